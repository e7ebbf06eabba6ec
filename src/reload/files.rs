//! The files of a snapshot: which they are, and what the manifests among them say.

mod digest;
mod walk;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::files::{MANIFEST_BYTES, describe, observed, read};
use crate::config::{Config, ManifestPath};
use crate::field::{Fault, FaultKind, Faults, Place};
use crate::manifest::Source;
use digest::MOST_BYTES;
pub(super) use digest::{Fingerprint, Revision, fingerprint};
use walk::FolderWalk;
pub(super) use walk::is_manifest;

/// How many files and folders one path of manifests may lead to: links can make
/// a tree of a few folders that never ends.
const MOST_FILES: usize = 100_000;

/// Reads every manifest at `paths`, each path's in byte order.
///
/// Folders are walked as the contract says: `*.yaml`, `*.yml` and `*.json`,
/// symbolic links followed, names that begin with a dot ignored (so the
/// timestamped folders behind a mounted ConfigMap count once). A path that
/// cannot be read is a fault; the others are read all the same.
#[must_use]
pub fn read_manifests(paths: &[ManifestPath]) -> (Vec<Source>, Faults) {
    read_within(paths, MOST_FILES, MOST_BYTES)
}

fn read_within(paths: &[ManifestPath], most_files: usize, most_bytes: usize) -> (Vec<Source>, Faults) {
    let mut sources = Vec::new();
    let mut faults = Faults::new();
    let mut left = most_bytes;
    for entry in paths {
        let (walk, ended) = FolderWalk::of(&entry.path, most_files);
        if let Err((path, error)) = ended {
            faults.push(unreadable(&path, &error));
        } else if walk.files.is_empty() {
            faults.push(empty(&entry.path));
        }
        for file in walk.files {
            match text(&file, left) {
                Ok(text) => {
                    left -= text.len();
                    sources.push(Source {
                        file: file.display().to_string(),
                        text,
                        cluster: entry.cluster.clone(),
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge && left < MANIFEST_BYTES => {
                    let message = format!(
                        "with this file, the manifests exceed the limit of \
                         {most_bytes} bytes"
                    );
                    faults.push(unreadable(&file, &io::Error::new(error.kind(), message)));
                    return (sources, faults);
                }
                Err(error) => faults.push(unreadable(&file, &error)),
            }
        }
    }
    (sources, faults)
}

/// The text of a file, where it has no more than `left` bytes.
fn text(file: &Path, left: usize) -> io::Result<String> {
    let bytes = read(file, left.min(MANIFEST_BYTES))?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8"))
}

fn unreadable(path: &Path, error: &io::Error) -> Fault {
    let place = Place {
        file: Some(path.display().to_string().into()),
        ..Place::default()
    };
    Fault::error(place, FaultKind::Unreadable, describe(error))
}

fn empty(folder: &Path) -> Fault {
    let place = Place {
        file: Some(folder.display().to_string().into()),
        ..Place::default()
    };
    Fault::warning(
        place,
        FaultKind::NotFound,
        "this folder contains no manifests: their names end in `.yaml`, `.yml` or `.json`, and do \
         not begin with `.`",
    )
}

/// Every file that a set was or would be read from.
pub(super) fn all_files(config_file: &Path, config: &Config, others: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut files = vec![config_file.to_owned()];
    files.extend(others.iter().cloned());
    files.extend(config.files());
    for entry in &config.manifests {
        // A path that cannot be read is a fault of the load; here it counts as absent.
        let (mut walk, _) = FolderWalk::of(&entry.path, MOST_FILES);
        files.append(&mut walk.files);
    }
    files.sort();
    files.dedup();
    files
}

/// The folders whose entries must be watched for `files` to be noticed:
/// theirs, and those of what they are links to.
pub(super) fn folders_of(config: &Config, files: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    for file in files {
        folders.extend(file.parent().map(Path::to_owned));
        if let Ok(real) = observed(file, || fs::canonicalize(file)) {
            folders.extend(real.parent().map(Path::to_owned));
        }
    }
    for entry in &config.manifests {
        let (mut walk, _) = FolderWalk::of(&entry.path, MOST_FILES);
        folders.append(&mut walk.folders);
    }
    folders
}

#[cfg(test)]
mod tests;
