//! The files of a snapshot: which they are, and what the manifests among them say.

mod digest;
mod manifest_files;
mod stamp;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::files::{FolderWalk, MANIFEST_BYTES, describe, observed, read_text};
use crate::config::{Config, ManifestPath};
use crate::field::{Fault, FaultKind, Faults, Place};
use crate::manifest::Source;
use digest::MOST_BYTES;
pub(super) use digest::{Fingerprint, Revision, fingerprint};
pub(super) use manifest_files::ManifestFiles;
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

/// The manifests at `paths`, as [`read_manifests`] finds them, without reading them.
#[must_use]
pub fn manifest_files(paths: &[ManifestPath]) -> (Vec<PathBuf>, Faults) {
    each_manifest(paths, ReadLimits::default(), |file, _, _| {
        Ok((0, file.to_owned()))
    })
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
        let (walk, ended) = FolderWalk::of(&entry.path, limits.files);
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

/// The files of a set, and where they are.
#[derive(Debug, Default)]
pub(super) struct SetFiles {
    /// Every file that the set was or would be read from, ascending.
    pub(super) files: Vec<PathBuf>,
    /// What each is, links followed, as far as that is known.
    pub(super) real: Vec<PathBuf>,
    /// The folders whose entries must be watched for the files to be noticed: theirs, those of
    /// what they are links to, and those in which there may be more.
    pub(super) folders: BTreeSet<PathBuf>,
}

impl SetFiles {
    /// Those of `config`, which is at `config_file`, and `others`.
    pub(super) fn new(config_file: &Path, config: &Config, others: &BTreeSet<PathBuf>) -> Self {
        let mut found = Self::default();
        found.files.push(config_file.to_owned());
        found.files.extend(others.iter().cloned());
        found.files.extend(config.files());
        let of_clusters = config.cluster_folder.iter().map(|folder| folder.path.as_path());
        let manifests = config.manifests.iter().map(|entry| entry.path.as_path());
        for path in manifests.chain(of_clusters) {
            // A path that cannot be read is a fault of the load; here it counts as absent.
            let (mut walk, _) = FolderWalk::of(path, MOST_FILES);
            found.files.append(&mut walk.files);
            found.folders.append(&mut walk.folders);
        }
        found.files.sort();
        found.files.dedup();
        let parents = |paths: &[PathBuf]| -> BTreeSet<PathBuf> {
            paths
                .iter()
                .filter_map(|path| path.parent())
                .map(Path::to_owned)
                .collect()
        };
        found.real = real_paths(&found.files);
        found.folders.append(&mut parents(&found.files));
        found.folders.append(&mut parents(&found.real));
        found
    }
}

/// The files that `files` lead to. Of those that are no links, each folder is looked at once.
fn real_paths(files: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders: HashMap<&Path, Option<PathBuf>> = HashMap::new();
    let mut found = Vec::with_capacity(files.len());
    for file in files {
        let is_link = observed(file, || fs::symlink_metadata(file)).map(|found| found.is_symlink());
        let (Ok(false), Some(parent), Some(name)) = (is_link, file.parent(), file.file_name()) else {
            found.extend(follow(file));
            continue;
        };
        let folder = folders.entry(parent).or_insert_with(|| follow(parent));
        found.extend(folder.as_ref().map(|folder| folder.join(name)));
    }
    found
}

fn follow(path: &Path) -> Option<PathBuf> {
    observed(path, || fs::canonicalize(path)).ok()
}

#[cfg(test)]
mod tests;
