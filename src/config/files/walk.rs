//! The walk through a folder that the configuration or a user names.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::observed;

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
    /// How many of either may still come.
    left: usize,
    rule: FolderRule,
    /// The real paths so far, where each counts once.
    real: HashSet<PathBuf>,
}

// === impl FolderWalk ===

impl FolderWalk {
    /// What is at and under `path`, at most so many files and folders; with the error, if
    /// there is one, what came before it.
    pub(crate) fn of(
        path: &Path,
        rule: FolderRule,
        max_entries: usize,
    ) -> (Self, Result<(), (PathBuf, io::Error)>) {
        let mut walk = Self {
            files: Vec::new(),
            folders: BTreeSet::new(),
            left: max_entries,
            rule,
            real: HashSet::new(),
        };
        let ended = walk.enter(path, MAX_DEPTH);
        (walk, ended)
    }

    fn enter(&mut self, path: &Path, depth: usize) -> Result<(), (PathBuf, io::Error)> {
        let is_folder = is_folder(path).map_err(|error| (path.to_owned(), error));
        self.take(path, is_folder, depth)
    }

    fn take(
        &mut self,
        path: &Path,
        is_folder: Result<bool, (PathBuf, io::Error)>,
        depth: usize,
    ) -> Result<(), (PathBuf, io::Error)> {
        let at_path = |error| (path.to_owned(), error);
        let more = self.left.checked_sub(1);
        self.left = more.ok_or_else(|| at_path(io::Error::other("too many files, or circular links")))?;
        let is_folder = is_folder?;
        if !self.is_new(path).map_err(at_path)? {
            return Ok(());
        }
        if !is_folder {
            self.files.push(path.to_owned());
            return Ok(());
        }
        if depth == 0 {
            let message = "folders nested too deeply, or a circular link";
            return Err(at_path(io::Error::other(message)));
        }
        self.folders.insert(path.to_owned());
        for (entry, known) in self.entries(path).map_err(at_path)? {
            let known = known.map_or_else(|| self::is_folder(&entry), Ok);
            let known = known.map_err(|error| (entry.clone(), error))?;
            if known || is_manifest(&entry) {
                self.take(&entry, Ok(known), depth - 1)?;
            }
        }
        Ok(())
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
