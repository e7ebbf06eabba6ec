//! The names by which files are reached, links followed.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::config::files::observed;

/// How many links are followed for one path, as Linux does.
const MOST_LINKS: usize = 40;

/// Every name on the way to some files: their folders, up to the root, the links that lead to them,
/// and their own. What happens under other names changes nothing that is read of them.
#[derive(Debug, Default)]
pub(crate) struct Trail(HashSet<PathBuf>);

// === impl Trail ===

impl Trail {
    /// Of `files`, which are `real` with links followed, and `folders`.
    pub(crate) fn new(files: &[PathBuf], real: &[Option<PathBuf>], folders: &BTreeSet<PathBuf>) -> Self {
        let mut trail = Self::default();
        let mut followed = HashSet::new();
        for folder in folders {
            trail.add(folder);
        }
        for (file, real) in files.iter().zip(real) {
            trail.add(file);
            if real.as_ref() == Some(file) {
                continue;
            }
            // Files of one folder have the way to it in common.
            if let Some(folder) = file.parent().filter(|folder| followed.insert(*folder)) {
                trail.follow(folder);
            }
            let name = file.file_name().map(Path::new);
            let lies_there = name.is_some_and(|name| real.as_ref().is_some_and(|real| real.ends_with(name)));
            if !(lies_there && is_no_link(file)) {
                trail.follow(file);
            }
            if let Some(real) = real {
                trail.add(real);
            }
        }
        trail
    }

    pub(crate) fn contains(&self, name: &Path) -> bool {
        self.0.contains(name)
    }

    /// Adds `path` and the folders above it.
    fn add(&mut self, path: &Path) {
        let mut ancestors = path.ancestors();
        // Those above one that is there are there too.
        while ancestors
            .next()
            .is_some_and(|path| self.0.insert(path.to_owned()))
        {}
    }

    /// Adds what `path` leads through, as the operating system resolves it.
    fn follow(&mut self, path: &Path) {
        let mut ahead = components(path);
        let (mut reached, mut links) = (PathBuf::from("/"), 0);
        while let Some(next) = ahead.pop_front() {
            match Path::new(&next).components().next() {
                Some(Component::RootDir) => reached = PathBuf::from("/"),
                Some(Component::ParentDir) => {
                    reached.pop();
                }
                Some(Component::Normal(name)) => reached.push(name),
                _ => {}
            }
            self.0.insert(reached.clone());
            let Ok(target) = observed(&reached, || fs::read_link(&reached)) else {
                continue;
            };
            links += 1;
            if links > MOST_LINKS {
                return;
            }
            reached.pop();
            for component in components(&target).into_iter().rev() {
                ahead.push_front(component);
            }
        }
    }
}

fn components(path: &Path) -> VecDeque<OsString> {
    let components = path.components();
    components
        .map(|component| component.as_os_str().to_owned())
        .collect()
}

fn is_no_link(file: &Path) -> bool {
    let found = observed(file, || fs::symlink_metadata(file));
    found.is_ok_and(|found| !found.is_symlink())
}

/// What each of `files` leads to, as far as that is known. Of those that are no links, each folder
/// is looked at once.
pub(crate) fn real_paths(files: &[PathBuf]) -> Vec<Option<PathBuf>> {
    let mut folders: HashMap<&Path, Option<PathBuf>> = HashMap::new();
    let mut found = Vec::with_capacity(files.len());
    for file in files {
        let (true, Some(parent), Some(name)) = (is_no_link(file), file.parent(), file.file_name()) else {
            found.push(real_path(file));
            continue;
        };
        let folder = folders.entry(parent).or_insert_with(|| real_path(parent));
        found.push(folder.as_ref().map(|folder| folder.join(name)));
    }
    found
}

fn real_path(path: &Path) -> Option<PathBuf> {
    observed(path, || fs::canonicalize(path)).ok()
}
