//! The files from which a set is read, and the names through which they are reached, including
//! links.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use super::MAX_FILES;
use crate::config::files::{FolderRule, FolderWalk, is_manifest, with_pending_path};
use crate::config::{Config, FileScope};

/// The files of a set, and their folders.
#[derive(Debug, Default)]
pub(crate) struct SetFiles {
    /// All files from which the set is or would be read, ascending.
    pub(crate) files: Vec<PathBuf>,
    /// The path of each file without links, if it is known.
    pub(crate) real: Vec<PathBuf>,
    /// The folders to watch to notice changes of the files: the folders of the files and of link
    /// targets, and those where files may be added.
    pub(crate) folders: BTreeSet<PathBuf>,
    /// Files and folders that could not be followed or read.
    unreadable: Vec<PathBuf>,
    names: SetNames,
}

/// The meaning of the names in the folders of a set.
#[derive(Debug, Default)]
pub(crate) struct SetNames {
    /// Whether all names were found: every folder could be read, and every link leads to a file.
    is_whole: bool,
    /// Manifest files that are used for nothing else, and that no link leads to.
    manifests: HashSet<PathBuf>,
    trail: WatchedNames,
}

impl SetFiles {
    /// The files of `config`, which is at `config_file`, and `others`.
    pub(crate) fn new(config_file: &Path, config: &Config, others: &BTreeSet<PathBuf>) -> Self {
        let mut found = Self::default();
        found.names.is_whole = true;
        found.files.push(config_file.to_owned());
        found.files.extend(others.iter().cloned());
        found.files.extend(config.files());
        let of_clusters = config.cluster_folder.iter().map(|folder| folder.path.as_path());
        of_clusters.for_each(|path| found.walk(FileScope::below(path), path));
        let others: HashSet<PathBuf> = found.files.iter().cloned().collect();
        let manifests = config.manifests.iter();
        manifests.for_each(|entry| found.walk(entry.scope(), &entry.path));
        found.files.sort();
        found.files.dedup();
        let real = real_paths(&found.files);
        found.names.add(&found.files, &real, &found.folders, &others);
        found.real = real.into_iter().flatten().collect();
        let mut parents = parents(&found.files);
        parents.append(&mut self::parents(&found.real));
        found.folders.append(&mut parents);
        found.files.append(&mut found.unreadable);
        found.files.sort();
        found.files.dedup();
        found
    }

    /// Adds the files at `path` and below. A path that cannot be read is a fault of the load, and
    /// is added so that it is noticed when it appears.
    fn walk(&mut self, scope: FileScope, path: &Path) {
        let mut walk = FolderWalk::new(scope, FolderRule::Visible, path, MAX_FILES);
        self.names.is_whole &= walk.errors.is_empty();
        self.unreadable
            .extend(walk.errors.into_iter().map(|(path, _)| path));
        self.files.append(&mut walk.files);
        self.folders.append(&mut walk.folders);
    }

    /// Takes the names, with which later changes can be classified.
    pub(crate) fn take_names(&mut self) -> SetNames {
        std::mem::take(&mut self.names)
    }
}

fn parents(paths: &[PathBuf]) -> BTreeSet<PathBuf> {
    let parents = paths.iter().filter_map(|path| path.parent());
    parents.map(Path::to_owned).collect()
}

impl SetNames {
    /// Adds the names of `files`, whose paths without links are `real`; `others` are not only
    /// manifest files.
    fn add(
        &mut self,
        files: &[PathBuf],
        real: &[Option<PathBuf>],
        folders: &BTreeSet<PathBuf>,
        others: &HashSet<PathBuf>,
    ) {
        let mut leading: HashMap<&Path, usize> = HashMap::new();
        for real in real.iter().flatten() {
            *leading.entry(real).or_default() += 1;
        }
        let manifests = files.iter().zip(real).filter(|(file, real)| {
            let is_one = real.as_ref() == Some(*file) && leading.get(file.as_path()) == Some(&1);
            is_one && !others.contains(*file)
        });
        self.manifests = manifests.map(|(file, _)| file.clone()).collect();
        self.trail = WatchedNames::new(files, real, folders);
    }

    /// The files whose content changed, if nothing but `names` changed since the set was read.
    /// `None` if that requires examining other files: a name is or was a link or a folder, or the
    /// set may have gained or lost files.
    ///
    /// Examines each of the names, and nothing else.
    pub(crate) fn modified_files(&self, names: &BTreeSet<PathBuf>) -> Option<BTreeSet<PathBuf>> {
        self.is_whole.then_some(())?;
        let mut rewritten = BTreeSet::new();
        for name in names {
            let found = with_pending_path(name, || fs::symlink_metadata(name));
            match found {
                // A file with a second name may have been modified under that name, and the other
                // way round.
                Ok(found) if self.manifests.contains(name) => {
                    (found.is_file() && found.nlink() == 1).then_some(())?;
                    rewritten.insert(name.clone());
                }
                Ok(found) => (found.is_file() && !self.matters(name)).then_some(())?,
                Err(error) => {
                    (error.kind() == io::ErrorKind::NotFound && !self.matters(name)).then_some(())?;
                }
            }
        }
        Some(rewritten)
    }

    /// Whether a file of this name can be in the set, or lead to one.
    fn matters(&self, name: &Path) -> bool {
        let (Some(folder), Some(last)) = (name.parent(), name.file_name()) else {
            return true;
        };
        // A folder may be watched under a name that is a link.
        let real = with_pending_path(folder, || fs::canonicalize(folder)).map(|folder| folder.join(last));
        is_manifest(name) || self.trail.contains(name) || !real.is_ok_and(|real| !self.trail.contains(&real))
    }
}

/// The maximum of links that are followed for a path, like that of Linux.
const MAX_LINKS: usize = 40;

/// All names on the way to some files: the names of their folders up to the root, of links, and of
/// the files. Changes of other names do not affect the content of these files.
#[derive(Debug, Default)]
pub(crate) struct WatchedNames(HashSet<PathBuf>);

// === impl WatchedNames ===

impl WatchedNames {
    /// The trail of `files`, whose paths without links are `real`, and of `folders`.
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
            // The files of a folder have the way to the folder in common.
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
        // If a folder has been added, so have those above it.
        while ancestors
            .next()
            .is_some_and(|path| self.0.insert(path.to_owned()))
        {}
    }

    /// Adds the names through which `path` leads, as the operating system resolves it.
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
            let Ok(target) = with_pending_path(&reached, || fs::read_link(&reached)) else {
                continue;
            };
            links += 1;
            if links > MAX_LINKS {
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
    let found = with_pending_path(file, || fs::symlink_metadata(file));
    found.is_ok_and(|found| !found.is_symlink())
}

/// The path of each file without links, if it is known. For files that are not links, each folder
/// is resolved once.
fn real_paths(files: &[PathBuf]) -> Vec<Option<PathBuf>> {
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
    with_pending_path(path, || fs::canonicalize(path)).ok()
}

#[cfg(test)]
mod tests;
