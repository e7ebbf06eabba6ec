//! The files of a snapshot: which they are, and what the manifests among them say.

mod digest;
mod manifest_files;
mod set_files;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::held_back::FaultsByCluster;
use crate::config::files::{FolderRule, FolderWalk, MANIFEST_BYTES, describe};
use crate::config::{FileScope, ManifestPath};
use digest::MAX_MANIFEST_BYTES;
pub(crate) use digest::{FileTimes, Fingerprint, Revision, fingerprint};
pub(crate) use manifest_files::ManifestFiles;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};
use portcullis_policy::manifest::Source;
pub(crate) use set_files::{SetFiles, SetNames};

/// How many files and folders one path of manifests may lead to: links can make
/// a tree of a few folders that never ends.
const MAX_FILES: usize = 100_000;

/// How much is read.
#[derive(Debug, Clone, Copy)]
struct ReadLimits {
    /// Files and folders that one path leads to.
    files: usize,
    /// Bytes of all files together.
    bytes: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self {
            files: MAX_FILES,
            bytes: MAX_MANIFEST_BYTES,
        }
    }
}

/// Reads every manifest at `paths`, each path's in byte order.
///
/// Folders are walked as the contract says: `*.yaml`, `*.yml` and `*.json`,
/// symbolic links followed, names that begin with a dot ignored (so the
/// timestamped folders behind a mounted ConfigMap count once). A path that
/// cannot be read is a fault; the others are read all the same.
#[must_use]
pub fn read_manifests(paths: &[ManifestPath]) -> (Vec<Source>, Faults) {
    let (sources, faults) = read_within(paths, ReadLimits::default());
    (sources, faults.together())
}

/// The manifests at `path` that `kubectl apply --recursive` takes, in byte order: files and folders
/// whose names begin with a dot too.
///
/// # Errors
///
/// What cannot be read on the way.
pub fn applied_manifests(path: &Path) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let mut walk = FolderWalk::new(FileScope::Anywhere, FolderRule::All, path, MAX_FILES);
    if walk.errors.is_empty() {
        Ok(walk.files)
    } else {
        Err(walk.errors.swap_remove(0))
    }
}

/// The text of one of them.
///
/// # Errors
///
/// It cannot be read, is too long or is not UTF-8.
pub fn read_manifest(file: &Path) -> io::Result<String> {
    text(file, &FileScope::Anywhere, MANIFEST_BYTES)
}

fn read_within(paths: &[ManifestPath], limits: ReadLimits) -> (Vec<Source>, FaultsByCluster) {
    each_manifest(paths, limits, |file, (entry, scope), left| {
        let text = text(file, scope, left)?;
        let source = Source {
            file: file.display().to_string(),
            cluster: entry.cluster.clone(),
            text,
        };
        Ok((source.text.len(), source))
    })
}

/// What `read` gives for every manifest at `paths`, in order, with its length; it is told how many
/// bytes may still come.
///
/// The paths of clusters share equally what those for every cluster leave: how much one of them has
/// keeps no other's from being read.
fn each_manifest<T>(
    paths: &[ManifestPath],
    limits: ReadLimits,
    mut read: impl FnMut(&Path, (&ManifestPath, &FileScope), usize) -> io::Result<(usize, T)>,
) -> (Vec<T>, FaultsByCluster) {
    let mut faults = FaultsByCluster::default();
    let mut found: Vec<Vec<T>> = paths.iter().map(|_| Vec::new()).collect();
    let mut read_all = |cluster: Option<&str>, bytes: usize| {
        let mut room = ByteBudget::new(bytes);
        let of_cluster = paths.iter().zip(&mut found);
        for (entry, found) in of_cluster.filter(|(entry, _)| entry.cluster.as_deref() == cluster) {
            let faults = faults.of(cluster);
            let scope = entry.scope();
            let walk = FolderWalk::new(scope.clone(), FolderRule::Visible, &entry.path, limits.files);
            faults.extend(walk.errors.iter().map(|(path, error)| unreadable(path, error)));
            if walk.errors.is_empty() && walk.files.is_empty() {
                faults.push(empty(&entry.path));
            }
            for file in walk.files {
                match room.take(|left| read(&file, (entry, &scope), left)) {
                    Ok(one) => found.extend(one),
                    Err(error) => faults.push(unreadable(&file, &error)),
                }
            }
        }
        room.left
    };
    let left = read_all(None, limits.bytes);
    let clusters: BTreeSet<&str> = paths
        .iter()
        .filter_map(|entry| entry.cluster.as_deref())
        .collect();
    for cluster in &clusters {
        read_all(Some(cluster), left / clusters.len());
    }
    (found.into_iter().flatten().collect(), faults)
}

/// How many bytes some files may still have together.
struct ByteBudget {
    whole: usize,
    left: usize,
    is_exceeded: bool,
}

impl ByteBudget {
    const fn new(bytes: usize) -> Self {
        Self {
            whole: bytes,
            left: bytes,
            is_exceeded: false,
        }
    }

    /// What `read` gives, which is told how many bytes there may be; `None` after a file that had
    /// more.
    fn take<T>(&mut self, read: impl FnOnce(usize) -> io::Result<(usize, T)>) -> io::Result<Option<T>> {
        if self.is_exceeded {
            return Ok(None);
        }
        match read(self.left) {
            Ok((length, one)) => {
                self.left = self.left.saturating_sub(length);
                Ok(Some(one))
            }
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge && self.left < MANIFEST_BYTES => {
                self.is_exceeded = true;
                let message = format!(
                    "with this file, the manifests exceed the limit of {} bytes",
                    self.whole
                );
                Err(io::Error::new(error.kind(), message))
            }
            Err(error) => Err(error),
        }
    }
}

/// The text of a file, where it has no more than `left` bytes.
///
/// One without a byte is an error: it was cut, or is being written, and says nothing of what it
/// said before.
fn text(file: &Path, scope: &FileScope, left: usize) -> io::Result<String> {
    let text = scope.read_text(file, left.min(MANIFEST_BYTES))?;
    if text.is_empty() {
        let message = "is empty (0 bytes), as a file is that was cut or is being written: remove it, or \
                       write a comment into it if it is to say nothing";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(text)
}

fn unreadable(path: &Path, error: &io::Error) -> Fault {
    let place = Place::of_file(path);
    Fault::error(place, FaultKind::Unreadable, describe(error))
}

fn empty(folder: &Path) -> Fault {
    let place = Place::of_file(folder);
    Fault::warning(
        place,
        FaultKind::NotFound,
        "this folder contains no manifests: their names end in `.yaml`, `.yml` or `.json`, and do \
         not begin with `.`",
    )
}

#[cfg(test)]
mod tests;
