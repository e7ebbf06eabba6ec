//! The walk through a folder that the configuration or a user names.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{FileScope, observed};

/// How deep folders may be nested.
const MAX_DEPTH: usize = 32;

/// A path of so many bytes more counts as another entry: names take memory too.
const PATH_BYTES_OF_AN_ENTRY: usize = 256;

/// Which entries of a folder count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderRule {
    /// Those that do not begin with a dot, as Kubernetes names what is behind the links of a mounted
    /// ConfigMap or Secret.
    Visible,
    /// All, as for `kubectl apply --recursive`.
    All,
}

/// What is in a folder and the folders below it: `*.yaml`, `*.yml` and `*.json`, symbolic links
/// followed. What several names lead to counts once, by the first of them.
pub(crate) struct FolderWalk {
    /// The files, each folder's in byte order.
    pub(crate) files: Vec<PathBuf>,
    /// The folders on the way.
    pub(crate) folders: BTreeSet<PathBuf>,
    /// What could not be followed or read; the walk went on without it.
    pub(crate) errors: Vec<(PathBuf, io::Error)>,
    /// Whether there were more entries than it may have, so that it ended before its end.
    pub(crate) is_cut: bool,
    /// Those of the folders of tenants of which the same holds.
    pub(crate) cut_folders: Vec<PathBuf>,
    /// How many entries each folder may have that is directly in this one, as that of a tenant.
    tenant_entries: Option<usize>,
    max_entries: usize,
    /// How many may still come.
    left: usize,
    scope: FileScope,
    rule: FolderRule,
    /// The real paths of the files and folders so far.
    real: HashSet<PathBuf>,
}

/// What is known of an entry of a folder without following a link.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FolderEntry {
    path: PathBuf,
    /// `None`: it is a link.
    is_folder: Option<bool>,
}

// === impl FolderWalk ===

impl FolderWalk {
    /// What is at and under `path`, where links lead to what is in `scope`. At most so many entries
    /// of folders are taken, whatever they are.
    pub(crate) fn new(scope: FileScope, rule: FolderRule, path: &Path, max_entries: usize) -> Self {
        Self::limited(scope, rule, path, (max_entries, None))
    }

    /// The same of visible entries, where each folder directly in `path` is that of a tenant: it has
    /// `tenant_entries` of its own, and links in it lead nowhere else.
    pub(crate) fn of_tenants(path: &Path, max_entries: usize, tenant_entries: usize) -> Self {
        let (scope, limits) = (FileScope::below(path), (max_entries, Some(tenant_entries)));
        Self::limited(scope, FolderRule::Visible, path, limits)
    }

    fn limited(
        scope: FileScope,
        rule: FolderRule,
        path: &Path,
        (max_entries, tenant_entries): (usize, Option<usize>),
    ) -> Self {
        let mut walk = Self {
            files: Vec::new(),
            folders: BTreeSet::new(),
            errors: Vec::new(),
            is_cut: false,
            cut_folders: Vec::new(),
            tenant_entries,
            max_entries,
            left: max_entries,
            scope,
            rule,
            real: HashSet::new(),
        };
        match resolve(&FileScope::Anywhere, path) {
            Ok((real, is_folder)) => walk.take(path, real, is_folder, MAX_DEPTH),
            Err(error) => walk.fail(path, error),
        }
        walk
    }

    fn take(&mut self, path: &Path, real: PathBuf, is_folder: bool, depth: usize) {
        if !self.real.insert(real.clone()) {
            return;
        }
        if !is_folder {
            self.files.push(path.to_owned());
        } else if depth == 0 {
            self.fail(path, io::Error::other("folders nested too deeply"));
        } else {
            self.folders.insert(path.to_owned());
            self.enter(path, &real, depth - 1);
        }
    }

    fn enter(&mut self, folder: &Path, real: &Path, depth: usize) {
        let entries = match observed(folder, || self.entries(folder)) {
            Ok(entries) => entries,
            Err(error) => return self.fail(folder, error),
        };
        for FolderEntry { path, is_folder } in entries {
            if self.is_cut {
                return;
            }
            let found = match (is_folder, path.file_name()) {
                (Some(is_folder), Some(name)) => Ok((real.join(name), is_folder)),
                _ => resolve(&self.scope, &path),
            };
            match (found, self.tenant_entries) {
                (Ok((_, true)), Some(max_entries)) => self.take_tenant(&path, max_entries),
                (Ok((real, is_folder)), _) if is_folder || is_manifest(&path) => {
                    self.take(&path, real, is_folder, depth);
                }
                (Ok(_), _) => {}
                (Err(error), _) => self.fail(&path, error),
            }
        }
    }

    /// Takes the folder of a tenant, in which no more is cut than is in it.
    fn take_tenant(&mut self, folder: &Path, max_entries: usize) {
        let walk = Self::new(FileScope::below(folder), self.rule, folder, max_entries);
        if walk.is_cut {
            self.cut_folders.push(folder.to_owned());
        }
        self.files.extend(walk.files);
        self.folders.extend(walk.folders);
        self.errors.extend(walk.errors);
    }

    fn fail(&mut self, path: &Path, error: io::Error) {
        self.errors.push((path.to_owned(), error));
    }

    /// What of a folder counts, in byte order.
    fn entries(&mut self, folder: &Path) -> io::Result<Vec<FolderEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            self.charge(&path)?;
            if self.rule == FolderRule::Visible && is_hidden(&path) {
                continue;
            }
            let sort = entry.file_type().ok().filter(|sort| !sort.is_symlink());
            let is_folder = sort.map(|sort| sort.is_dir());
            if is_folder != Some(false) || is_manifest(&path) {
                entries.push(FolderEntry { path, is_folder });
            }
        }
        entries.sort_unstable();
        Ok(entries)
    }

    fn charge(&mut self, path: &Path) -> io::Result<()> {
        let entries = 1 + path.as_os_str().len() / PATH_BYTES_OF_AN_ENTRY;
        match self.left.checked_sub(entries) {
            Some(left) => self.left = left,
            None => {
                self.is_cut = true;
                return Err(io::Error::other(format!(
                    "with this folder there are more than {} files and folders: keep manifests in a folder of their own",
                    self.max_entries
                )));
            }
        }
        Ok(())
    }
}

/// The real path of what is at `path`, which is in `scope`, and whether it is a folder.
fn resolve(scope: &FileScope, path: &Path) -> io::Result<(PathBuf, bool)> {
    observed(path, || {
        let real = scope.real_path(path)?;
        let is_folder = fs::metadata(&real)?.is_dir();
        Ok((real, is_folder))
    })
}

fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Whether a folder's file of this name counts. As for kubectl, `.yaml` is all ending.
pub(crate) fn is_manifest(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let endings: [&[u8]; 3] = [b".yaml", b".yml", b".json"];
    endings.iter().any(|ending| name.ends_with(ending))
}
