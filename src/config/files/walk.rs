//! The walk through a folder that the configuration or a user names.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{FileScope, observed};

/// How deep folders may be nested: a link that leads back up ends here.
const MAX_DEPTH: usize = 32;

/// Which entries of a folder count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderRule {
    /// Those that do not begin with a dot: what a mounted ConfigMap or Secret has behind its links
    /// counts once.
    Visible,
    /// All, as for `kubectl apply --recursive`; what links lead to again counts once.
    All,
}

/// What is in a folder and the folders below it: `*.yaml`, `*.yml` and `*.json`, symbolic links
/// followed.
pub(crate) struct FolderWalk {
    /// The files, each folder's in byte order.
    pub(crate) files: Vec<PathBuf>,
    /// The folders on the way.
    pub(crate) folders: BTreeSet<PathBuf>,
    /// What could not be followed or read; the walk went on without it.
    pub(crate) errors: Vec<(PathBuf, io::Error)>,
    /// Whether there were more files and folders than it may have, so that it ended before its end.
    pub(crate) is_cut: bool,
    /// How many of either may still come.
    left: usize,
    scope: FileScope,
    rule: FolderRule,
    /// The real paths so far, where each counts once.
    real: HashSet<PathBuf>,
}

// === impl FolderWalk ===

impl FolderWalk {
    /// What is at and under `path`, at most so many files and folders, where links lead to what is
    /// in `scope`.
    pub(crate) fn new(scope: FileScope, rule: FolderRule, path: &Path, max_entries: usize) -> Self {
        let mut walk = Self {
            files: Vec::new(),
            folders: BTreeSet::new(),
            errors: Vec::new(),
            is_cut: false,
            left: max_entries,
            scope,
            rule,
            real: HashSet::new(),
        };
        match is_folder(path) {
            Ok(is_folder) => walk.take(path, is_folder, MAX_DEPTH),
            Err(error) => walk.fail(path, error),
        }
        walk
    }

    fn take(&mut self, path: &Path, is_folder: bool, depth: usize) {
        let Some(left) = self.left.checked_sub(1) else {
            if !std::mem::replace(&mut self.is_cut, true) {
                self.fail(path, io::Error::other("too many files, or circular links"));
            }
            return;
        };
        self.left = left;
        match self.is_new(path) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return self.fail(path, error),
        }
        if !is_folder {
            self.files.push(path.to_owned());
        } else if depth == 0 {
            let message = "folders nested too deeply, or a circular link";
            self.fail(path, io::Error::other(message));
        } else {
            self.folders.insert(path.to_owned());
            self.enter(path, depth - 1);
        }
    }

    fn enter(&mut self, folder: &Path, depth: usize) {
        let entries = match self.entries(folder) {
            Ok(entries) => entries,
            Err(error) => return self.fail(folder, error),
        };
        for (entry, known) in entries {
            if self.is_cut {
                return;
            }
            match known.map_or_else(|| self.follow(&entry), Ok) {
                Ok(is_folder) if is_folder || is_manifest(&entry) => self.take(&entry, is_folder, depth),
                Ok(_) => {}
                Err(error) => self.fail(&entry, error),
            }
        }
    }

    /// Whether a link leads to a folder.
    fn follow(&self, link: &Path) -> io::Result<bool> {
        observed(link, || self.scope.check_link(link))?;
        is_folder(link)
    }

    fn fail(&mut self, path: &Path, error: io::Error) {
        self.errors.push((path.to_owned(), error));
    }

    /// Whether what is at `path` counts: it has not been met by another name.
    fn is_new(&mut self, path: &Path) -> io::Result<bool> {
        if self.rule == FolderRule::Visible {
            return Ok(true);
        }
        let real = observed(path, || fs::canonicalize(path))?;
        Ok(self.real.insert(real))
    }

    /// What of a folder counts, in byte order, and whether it is a folder, where that is known
    /// without following a link.
    fn entries(&self, folder: &Path) -> io::Result<Vec<(PathBuf, Option<bool>)>> {
        let entry = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            let sort = entry.file_type().ok().filter(|sort| !sort.is_symlink());
            Ok((entry.path(), sort.map(|sort| sort.is_dir())))
        };
        let read = || -> io::Result<Vec<_>> { fs::read_dir(folder)?.map(entry).collect() };
        let mut entries = observed(folder, read)?;
        entries.retain(|(entry, _)| self.rule == FolderRule::All || !is_hidden(entry));
        entries.sort();
        Ok(entries)
    }
}

fn is_folder(path: &Path) -> io::Result<bool> {
    observed(path, || fs::metadata(path)).map(|metadata| metadata.is_dir())
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
