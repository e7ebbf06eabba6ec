//! The files of a snapshot: finds and reads them, and computes their digests.
//!
//! The objects in manifests may take this much memory:
//!
//! ```text
//! memory of the process ── 1/2  all manifests: those for every cluster may take all of it,
//!                               those of single clusters a quarter of it, in equal parts
//! ```
//!
//! While a newer set is read, the one in force is kept, and objects of watched clusters may take
//! half of the memory. Even then the manifests of single clusters leave enough memory for
//! everything else.

mod manifest_files;
mod set_files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use openssl::sha::{Sha256, sha256};

use super::watched::WatchedObjects;
use crate::bundle::Bundle;
use crate::config::files::{
    FolderRule, FolderWalk, MANIFEST_BYTES, describe, read, too_large, with_pending_path,
};
use crate::config::limits::{ASSUMED_MEMORY, memory_of_process};
use crate::config::{FileScope, HeldBack, ManifestPath, hexadecimal};
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};
use portcullis_policy::manifest::{MemoryBudget, Source, SourceLimits};

pub(crate) use manifest_files::ManifestFiles;
pub(crate) use set_files::{SetFiles, SetNames};

/// The maximum of files and folders below one path of manifests: with links, a few folders can form
/// an infinite tree.
const MAX_FILES: usize = 100_000;

/// Limits of reading.
#[derive(Debug, Clone, Copy)]
struct ReadLimits {
    /// Files and folders below one path.
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

/// Reads all manifests at `paths`, those of each path in byte order.
///
/// Reads `*.yaml`, `*.yml` and `*.json` in folders and their subfolders, and follows symbolic
/// links. Names that begin with a dot are ignored, so that the timestamped folders of a mounted
/// ConfigMap count once. A path that cannot be read is a fault; the others are read nevertheless.
#[must_use]
pub fn read_manifests(paths: &[ManifestPath]) -> (Vec<Source>, Faults) {
    let (sources, faults) = read_within(paths, ReadLimits::default());
    (sources, faults.together())
}

/// The manifests at `path` that `kubectl apply --recursive` applies, in byte order, including files
/// and folders whose names begin with a dot.
///
/// # Errors
///
/// The first file or folder that cannot be read.
pub fn applied_manifests(path: &Path) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
    let mut walk = FolderWalk::new(FileScope::Anywhere, FolderRule::All, path, MAX_FILES);
    if walk.errors.is_empty() {
        Ok(walk.files)
    } else {
        Err(walk.errors.swap_remove(0))
    }
}

/// The files that [`read_manifests`] reads at `path`, without those that cannot be found.
pub(crate) fn manifest_files_at(path: &Path) -> Vec<PathBuf> {
    FolderWalk::new(FileScope::Anywhere, FolderRule::Visible, path, MAX_FILES).files
}

/// Reads one manifest.
///
/// # Errors
///
/// It cannot be read, is too long or is not UTF-8.
pub fn read_manifest(file: &Path) -> io::Result<String> {
    let found = FoundManifest {
        path: file,
        cluster: None,
        scope: &FileScope::Anywhere,
        of_bundle: None,
    };
    found.text(MANIFEST_BYTES)
}

fn read_within(paths: &[ManifestPath], limits: ReadLimits) -> (Vec<Source>, FaultsByCluster) {
    each_manifest(paths, limits, |found, left| {
        let source = Source {
            file: found.path.display().to_string(),
            cluster: found.cluster.map(str::to_owned),
            text: found.text(left)?,
        };
        Ok((source.text.len(), source))
    })
}

/// A manifest that was found, and has not been read.
struct FoundManifest<'m> {
    path: &'m Path,
    cluster: Option<&'m str>,
    scope: &'m FileScope,
    /// Its text, if it comes from a bundle, whose signature was verified.
    of_bundle: Option<String>,
}

/// Calls `read` for each manifest at `paths`, in order, with the number of bytes left; it returns
/// the length of the manifest and a result.
///
/// The paths of clusters share equally what those for every cluster leave, so that the size of one
/// cluster's manifests cannot prevent those of another from being read.
fn each_manifest<T>(
    paths: &[ManifestPath],
    limits: ReadLimits,
    mut read: impl FnMut(FoundManifest<'_>, usize) -> io::Result<(usize, T)>,
) -> (Vec<T>, FaultsByCluster) {
    let mut faults = FaultsByCluster::default();
    let mut found: Vec<Vec<T>> = paths.iter().map(|_| Vec::new()).collect();
    let mut read_all = |cluster: Option<&str>, bytes: usize| {
        let mut room = ByteBudget::new(bytes);
        let of_cluster = paths.iter().zip(&mut found);
        for (entry, found) in of_cluster.filter(|(entry, _)| entry.cluster.as_deref() == cluster) {
            let faults = faults.of(cluster);
            let scope = entry.scope();
            let mut take = |path: &Path, of_bundle: Option<String>| {
                let manifest = |left| {
                    let scope = &scope;
                    read(
                        FoundManifest {
                            path,
                            cluster,
                            scope,
                            of_bundle,
                        },
                        left,
                    )
                };
                match room.take(manifest) {
                    Ok(one) => found.extend(one),
                    Err(error) => faults.push(unreadable(path, &error)),
                }
            };
            if let Some(source) = &entry.bundle {
                match Bundle::kept(source, &entry.path) {
                    Ok(bundle) => bundle.files.into_iter().for_each(|(name, text)| {
                        take(Path::new(&format!("{}/{name}", source.reference)), Some(text));
                    }),
                    Err(error) => faults.push(unreadable(&entry.path, &io::Error::other(error))),
                }
                continue;
            }
            let walk = FolderWalk::new(scope.clone(), FolderRule::Visible, &entry.path, limits.files);
            walk.files.iter().for_each(|file| take(file, None));
            faults.extend(walk.errors.iter().map(|(path, error)| unreadable(path, error)));
            // The README of `portcullis init` says that there is no policy yet.
            let is_explained = || entry.path.join("README.md").is_file();
            if walk.errors.is_empty() && walk.files.is_empty() && !is_explained() {
                faults.push(empty(&entry.path));
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

/// The number of bytes that some files may have together.
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

    /// Calls `read` with the number of bytes left. Returns `None` once a file has exceeded it.
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

impl FoundManifest<'_> {
    /// Its text, if it has no more than `left` bytes.
    ///
    /// An empty file is an error: it was truncated or is being written, so it does not replace its
    /// earlier content.
    fn text(self, left: usize) -> io::Result<String> {
        let most = left.min(MANIFEST_BYTES);
        let text = match self.of_bundle {
            Some(text) if text.len() > most => return Err(too_large(most)),
            Some(text) => text,
            None => self.scope.read_text(self.path, most)?,
        };
        if text.is_empty() {
            let message = "is empty (0 bytes), like a file that was cut off or is being written: remove it, \
                or write a comment into it to leave it without objects";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(text)
    }
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
        "this folder contains no manifests: their names end in `.yaml`, `.yml` or `.json`, and do not begin \
        with `.`. If it is meant to have none, add a `README.md`",
    )
}

/// Faults by the cluster whose files they are in; under `None` those of files for every cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FaultsByCluster(BTreeMap<Option<String>, Faults>);

// === impl FaultsByCluster ===

impl FaultsByCluster {
    /// The faults of this cluster.
    pub(crate) fn of(&mut self, cluster: Option<&str>) -> &mut Faults {
        self.0.entry(cluster.map(str::to_owned)).or_default()
    }

    /// All faults.
    pub(crate) fn together(self) -> Faults {
        let mut all = Faults::new();
        self.0.into_values().for_each(|faults| all.append(faults));
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.values().all(Faults::is_empty)
    }

    /// Moves the faults of clusters that have errors to `held`.
    pub(crate) fn hold_back_clusters(&mut self, held: &mut HeldBack) {
        let is_faulty =
            |cluster: &Option<String>, faults: &mut Faults| cluster.is_some() && faults.has_errors();
        for (cluster, faults) in self.0.extract_if(.., is_faulty) {
            held.entry(cluster.unwrap_or_default())
                .or_default()
                .append(faults);
        }
    }
}

// Digests that identify a set of files. A file that was not modified since, according to the file
// system, is not read again.

/// The maximum of bytes of all manifests together.
pub(crate) const MAX_MANIFEST_BYTES: usize = 512 << 20;

/// The files of a set, each with a digest of its content. Two are equal if the files and their
/// contents are, whenever they were read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fingerprint(Arc<[Arc<SeenFile>]>);

/// A file as it was found.
#[derive(Debug, Clone)]
struct SeenFile {
    path: PathBuf,
    stamp: Option<FileStamp>,
    /// The digest and the length; `None` if the file cannot be read, or exceeds the bytes of a set.
    /// Then changes are detected with the stamp.
    content: Option<([u8; 32], usize)>,
    /// The path without links when it was read. It is compared, too, because a file must be below
    /// the folder of its tenant.
    real_path: Option<PathBuf>,
}

impl Fingerprint {
    /// The fingerprint of no files.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// This fingerprint after `files`, which it must contain, were modified. `None` if it lacks one
    /// of them, or one cannot be read.
    pub(crate) fn with_modified(&self, files: &BTreeSet<PathBuf>, now: SystemTime) -> Option<Self> {
        let mut seen = self.0.to_vec();
        for path in files {
            let place = seen.binary_search_by(|seen| seen.path.cmp(path)).ok()?;
            let seen = seen.get_mut(place)?;
            let stamp = FileStamp::of(path, now);
            *seen = Arc::new(SeenFile {
                path: path.clone(),
                stamp,
                content: Some(content(path, MANIFEST_BYTES)?),
                real_path: fs::canonicalize(path).ok(),
            });
        }
        let bytes: usize = seen.iter().filter_map(|seen| Some(seen.content?.1)).sum();
        (bytes <= MAX_MANIFEST_BYTES).then(|| Self(seen.into()))
    }
}

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        let same = |(one, other): (&Arc<SeenFile>, &Arc<SeenFile>)| {
            let is_known = one.content.is_some() || one.stamp == other.stamp;
            Arc::ptr_eq(one, other)
                || is_known
                    && one.path == other.path
                    && one.content == other.content
                    && one.real_path == other.real_path
        };
        self.0.len() == other.0.len() && self.0.iter().zip(other.0.iter()).all(same)
    }
}

/// The fingerprint of `files`, which must ascend. A file that cannot be read, or exceeds the bytes
/// of a set, has only a stamp. Files with the same stamp as in `earlier` are not read.
pub(crate) fn fingerprint(files: &[PathBuf], earlier: &Fingerprint, now: SystemTime) -> Fingerprint {
    fingerprint_within(MAX_MANIFEST_BYTES, files, earlier, now)
}

fn fingerprint_within(
    mut left: usize,
    files: &[PathBuf],
    earlier: &Fingerprint,
    now: SystemTime,
) -> Fingerprint {
    let mut known = earlier.0.iter().peekable();
    let seen = |path: &PathBuf| {
        while known.next_if(|known| known.path < *path).is_some() {}
        let stamp = FileStamp::of(path, now);
        let earlier = known.next_if(|known| known.path == *path && stamp.is_some() && known.stamp == stamp);
        let is_within = |known: &&Arc<SeenFile>| known.content.is_some_and(|(_, length)| length <= left);
        let seen = match earlier.filter(is_within) {
            Some(known) => Arc::clone(known),
            None => Arc::new(SeenFile {
                path: path.clone(),
                stamp,
                content: content(path, left.min(MANIFEST_BYTES)),
                real_path: fs::canonicalize(path).ok(),
            }),
        };
        left -= seen.content.map_or(0, |(_, length)| length);
        seen
    };
    Fingerprint(files.iter().map(seen).collect())
}

/// The digest and the length of the content of a file.
fn content(path: &Path, most: usize) -> Option<([u8; 32], usize)> {
    let content = read(path, most).ok()?;
    Some((sha256(&content), content.len()))
}

/// A digest of the configuration and manifests of a set, without their paths on this machine and
/// without secrets.
#[derive(Clone)]
pub(crate) struct Revision(Sha256);

// === impl Revision ===

impl Revision {
    /// The digest of a set of files, with the texts of its configuration.
    pub(crate) fn of_files<'t>(
        config_texts: impl IntoIterator<Item = &'t str>,
        files: &ManifestFiles,
    ) -> Self {
        let mut digest = Sha256::new();
        for text in config_texts {
            part(&mut digest, text.as_bytes());
        }
        for (cluster, text) in files.digests() {
            part(&mut digest, cluster.as_bytes());
            part(&mut digest, text);
        }
        Self(digest)
    }

    /// Adds the objects of watched clusters.
    pub(crate) fn with(mut self, watched: &[Arc<WatchedObjects>]) -> Self {
        for watched in watched {
            part(&mut self.0, &watched.digest);
        }
        self
    }

    /// The digest as it is shown.
    pub(crate) fn name(self) -> Arc<str> {
        hexadecimal(self.0.finish().iter().take(6)).into()
    }
}

/// Adds one part, preceded by its length, so that different lists of parts never give the same
/// digest.
fn part(digest: &mut Sha256, bytes: &[u8]) {
    digest.update(&(bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}

/// A file that was modified this recently before it was read may be modified again with the same
/// times, because some file systems have a granularity of two seconds. git calls such entries of
/// its index racy.
const GRANULARITY: Duration = Duration::from_secs(2);

/// Whether the times of files are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileTimes {
    /// A file with the same times as before was not modified.
    Trusted,
    /// Every file is read, because a user requested the reload.
    Ignored,
}

/// Device, inode, size, and when content and inode were last changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of the file at `path`, as of `now`. `None` if it does not exist, or was modified
    /// so recently that another modification might have the same stamp.
    pub(crate) fn of(path: &Path, now: SystemTime) -> Option<Self> {
        let metadata = with_pending_path(path, || fs::metadata(path)).ok()?;
        Self::at(&metadata, now)
    }

    fn at(metadata: &Metadata, now: SystemTime) -> Option<Self> {
        let stamp = Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        let settled = now
            .checked_sub(GRANULARITY)?
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok()?;
        let settled = (
            i64::try_from(settled.as_secs()).ok()?,
            i64::from(settled.subsec_nanos()),
        );
        (stamp.modified < settled && stamp.changed < settled).then_some(stamp)
    }
}

/// Locked while a long document is parsed: one at a time in the whole process.
static LONG_DOCUMENTS: Mutex<()> = Mutex::new(());

/// The memory for all manifests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ManifestMemory {
    pub(crate) bytes: usize,
}

/// The memory for the manifests of each cluster.
#[derive(Debug)]
pub(crate) struct ClusterBudgets(BTreeMap<String, MemoryBudget>);

// === impl ManifestMemory ===

impl ManifestMemory {
    /// Half of the memory of this process.
    pub(crate) fn of_process() -> Self {
        Self {
            bytes: memory_of_process().unwrap_or(ASSUMED_MEMORY) / 2,
        }
    }

    /// The budget of the files for every cluster.
    pub(crate) const fn for_all_clusters(self) -> MemoryBudget {
        MemoryBudget::new(self.bytes)
    }

    /// The budgets of the clusters that have some of `paths`, when the files for every cluster
    /// leave this many bytes.
    pub(crate) fn of_clusters(self, paths: &[ManifestPath], left: usize) -> ClusterBudgets {
        let clusters: BTreeSet<&String> = paths.iter().filter_map(|path| path.cluster.as_ref()).collect();
        let share = left.min(self.bytes / 4) / clusters.len().max(1);
        let budget = |cluster: &String| (cluster.clone(), MemoryBudget::new(share));
        ClusterBudgets(clusters.into_iter().map(budget).collect())
    }
}

// === impl ClusterBudgets ===

impl ClusterBudgets {
    /// The budget of a cluster.
    pub(crate) fn of(&self, cluster: &str) -> &MemoryBudget {
        static NONE: MemoryBudget = MemoryBudget::new(0);
        self.0.get(cluster).unwrap_or(&NONE)
    }
}

/// The limits of a source with this memory budget.
pub(crate) fn limits(memory: &MemoryBudget) -> SourceLimits<'_> {
    SourceLimits {
        memory,
        long_documents: &LONG_DOCUMENTS,
    }
}

#[cfg(test)]
mod tests;
