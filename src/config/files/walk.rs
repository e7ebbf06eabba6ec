//! The walk through a folder that the configuration names.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::observed;

/// How deep folders may be nested: a link that leads back up ends here.
const DEPTH: usize = 32;

/// What is in a folder and the folders below it: `*.yaml`, `*.yml` and `*.json`, symbolic links
/// followed, names that begin with a dot ignored.
pub(crate) struct FolderWalk {
    /// The files, each folder's in byte order.
    pub(crate) files: Vec<PathBuf>,
    /// The folders on the way.
    pub(crate) folders: BTreeSet<PathBuf>,
    /// How many of either may still come.
    left: usize,
}

// === impl FolderWalk ===

impl FolderWalk {
    /// What is at and under `path`, at most so many files and folders; with the error, if
    /// there is one, what came before it.
    pub(crate) fn of(path: &Path, most: usize) -> (Self, Result<(), (PathBuf, io::Error)>) {
        let mut walk = Self {
            files: Vec::new(),
            folders: BTreeSet::new(),
            left: most,
        };
        let ended = walk.enter(path, DEPTH);
        (walk, ended)
    }

    fn enter(&mut self, path: &Path, depth: usize) -> Result<(), (PathBuf, io::Error)> {
        let looked = is_folder(path).map_err(|error| (path.to_owned(), error));
        self.take(path, looked, depth)
    }

    fn take(
        &mut self,
        path: &Path,
        looked: Result<bool, (PathBuf, io::Error)>,
        depth: usize,
    ) -> Result<(), (PathBuf, io::Error)> {
        let at_path = |error| (path.to_owned(), error);
        let more = self.left.checked_sub(1);
        self.left = more.ok_or_else(|| at_path(io::Error::other("too many files, or circular links")))?;
        if !looked? {
            self.files.push(path.to_owned());
            return Ok(());
        }
        if depth == 0 {
            let message = "folders nested too deeply, or a circular link";
            return Err(at_path(io::Error::other(message)));
        }
        self.folders.insert(path.to_owned());
        for (entry, known) in entries(path).map_err(at_path)? {
            let known = known.map_or_else(|| is_folder(&entry), Ok);
            let known = known.map_err(|error| (entry.clone(), error))?;
            if known || is_manifest(&entry) {
                self.take(&entry, Ok(known), depth - 1)?;
            }
        }
        Ok(())
    }
}

fn is_folder(path: &Path) -> io::Result<bool> {
    observed(path, || fs::metadata(path)).map(|metadata| metadata.is_dir())
}

/// What is in a folder and not hidden, in byte order, and whether it is a folder, where that is
/// known without following a link.
fn entries(folder: &Path) -> io::Result<Vec<(PathBuf, Option<bool>)>> {
    let entry = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        let sort = entry.file_type().ok().filter(|sort| !sort.is_symlink());
        Ok((entry.path(), sort.map(|sort| sort.is_dir())))
    };
    let read = || -> io::Result<Vec<_>> { fs::read_dir(folder)?.map(entry).collect() };
    let mut entries = observed(folder, read)?;
    entries.retain(|(entry, _)| !hidden(entry));
    entries.sort();
    Ok(entries)
}

fn hidden(path: &Path) -> bool {
    path.file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Whether a folder's file of this name counts.
pub(crate) fn is_manifest(path: &Path) -> bool {
    path.extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| ["yaml", "yml", "json"].contains(&extension))
}
