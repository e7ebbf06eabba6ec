//! The files of a snapshot: which they are, and what the manifests among them say.

mod digest;
mod manifest_files;
mod set_files;
mod stamp;
mod trail;

use std::io;
use std::path::{Path, PathBuf};

use crate::config::ManifestPath;
use crate::config::files::{FolderRule, FolderWalk, MANIFEST_BYTES, describe, read_text};
use digest::MOST_BYTES;
pub(super) use digest::{Fingerprint, Revision, fingerprint};
pub(super) use manifest_files::ManifestFiles;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};
use portcullis_policy::manifest::Source;
pub(super) use set_files::{SetFiles, SetNames};
pub(super) use stamp::FileTimes;

/// How many files and folders one path of manifests may lead to: links can make
/// a tree of a few folders that never ends.
const MOST_FILES: usize = 100_000;

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
            files: MOST_FILES,
            bytes: MOST_BYTES,
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
    read_within(paths, ReadLimits::default())
}

/// The manifests at `path` that `kubectl apply --recursive` takes, in byte order: files and folders
/// whose names begin with a dot too.
///
/// # Errors
///
/// What cannot be read on the way.
pub fn applied_manifests(path: &Path) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let (walk, ended) = FolderWalk::of(path, FolderRule::All, MOST_FILES);
    ended.map(|()| walk.files)
}

/// The text of one of them.
///
/// # Errors
///
/// It cannot be read, is too long or is not UTF-8.
pub fn read_manifest(file: &Path) -> io::Result<String> {
    text(file, MANIFEST_BYTES)
}

fn read_within(paths: &[ManifestPath], limits: ReadLimits) -> (Vec<Source>, Faults) {
    each_manifest(paths, limits, |file, entry, left| {
        let text = text(file, left)?;
        let source = Source {
            file: file.display().to_string(),
            cluster: entry.cluster.clone(),
            text,
        };
        Ok((source.text.len(), source))
    })
}

/// What `read` gives for every manifest at `paths`, with its length; it is told how many bytes
/// may still come.
fn each_manifest<T>(
    paths: &[ManifestPath],
    limits: ReadLimits,
    mut read: impl FnMut(&Path, &ManifestPath, usize) -> io::Result<(usize, T)>,
) -> (Vec<T>, Faults) {
    let mut found = Vec::new();
    let mut faults = Faults::new();
    let mut left = limits.bytes;
    for entry in paths {
        let (walk, ended) = FolderWalk::of(&entry.path, FolderRule::Visible, limits.files);
        if let Err((path, error)) = ended {
            faults.push(unreadable(&path, &error));
        } else if walk.files.is_empty() {
            faults.push(empty(&entry.path));
        }
        for file in walk.files {
            match read(&file, entry, left) {
                Ok((length, one)) => {
                    left -= length;
                    found.push(one);
                }
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge && left < MANIFEST_BYTES => {
                    let message = format!(
                        "with this file, the manifests exceed the limit of \
                         {} bytes",
                        limits.bytes
                    );
                    faults.push(unreadable(&file, &io::Error::new(error.kind(), message)));
                    return (found, faults);
                }
                Err(error) => faults.push(unreadable(&file, &error)),
            }
        }
    }
    (found, faults)
}

/// The text of a file, where it has no more than `left` bytes.
fn text(file: &Path, left: usize) -> io::Result<String> {
    read_text(file, left.min(MANIFEST_BYTES))
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
