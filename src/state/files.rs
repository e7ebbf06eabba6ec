//! The files of a snapshot: which they are, and what the manifests among them say.
//!
//! How much memory the objects of manifests may take:
//!
//! ```text
//! memory of the process ── 1/2  manifests: those for every cluster as much of it as they need,
//!                               at most a quarter of it, in equal parts, those of single clusters
//! ```
//!
//! A newer set is read while the one in force is kept, and objects of watched clusters may take half
//! of the memory: what single clusters write leaves the rest its room even then.

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
use crate::config::files::{FolderRule, FolderWalk, MANIFEST_BYTES, describe, observed, read, too_large};
use crate::config::limits::{LEAST_MEMORY, memory_of_process};
use crate::config::{FileScope, HeldBack, ManifestPath, hexadecimal};
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};
use portcullis_policy::manifest::{MemoryBudget, Source, SourceLimits};

pub(crate) use manifest_files::ManifestFiles;
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

/// The files that [`read_manifests`] reads at `path`, without those that cannot be found.
pub(crate) fn manifest_files_at(path: &Path) -> Vec<PathBuf> {
    FolderWalk::new(FileScope::Anywhere, FolderRule::Visible, path, MAX_FILES).files
}

/// The text of one of them.
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

/// A manifest of a set, before it is read.
struct FoundManifest<'m> {
    path: &'m Path,
    cluster: Option<&'m str>,
    scope: &'m FileScope,
    /// Its text, where it is in a bundle, whose signature was verified.
    of_bundle: Option<String>,
}

/// What `read` gives for every manifest at `paths`, in order, with its length; it is given how many
/// bytes may still come.
///
/// The paths of clusters share equally what those for every cluster leave: how much one of them has
/// keeps no other's from being read.
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
            // That of `init` says that there is no policy yet.
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

    /// What `read` gives, which is given how many bytes there may be; `None` after a file that had
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

impl FoundManifest<'_> {
    /// Its text, where it has no more than `left` bytes.
    ///
    /// One without a byte is an error: it was cut, or is being written, and says nothing of what it
    /// said before.
    fn text(self, left: usize) -> io::Result<String> {
        let most = left.min(MANIFEST_BYTES);
        let text = match self.of_bundle {
            Some(text) if text.len() > most => return Err(too_large(most)),
            Some(text) => text,
            None => self.scope.read_text(self.path, most)?,
        };
        if text.is_empty() {
            let message = "is empty (0 bytes), as a file is that was cut or is being written: remove it, or \
                           write a comment into it if it is to say nothing";
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
        "this folder contains no manifests: their names end in `.yaml`, `.yml` or `.json`, and do \
         not begin with `.`. If none are meant, say so in a `README.md`",
    )
}

/// Faults, by the cluster in whose own files they are; under `None` those of everybody's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FaultsByCluster(BTreeMap<Option<String>, Faults>);

// === impl FaultsByCluster ===

impl FaultsByCluster {
    /// Those of this cluster.
    pub(crate) fn of(&mut self, cluster: Option<&str>) -> &mut Faults {
        self.0.entry(cluster.map(str::to_owned)).or_default()
    }

    /// All of them.
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

// Digests that identify a set of files. A file is not read again if its file system says that it was
// not written since.

/// The most bytes of all manifests together.
pub(crate) const MAX_MANIFEST_BYTES: usize = 512 << 20;

/// The files of a set, each with a digest of its content. Two are equal where the files and
/// what they say are, whenever that was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fingerprint(Arc<[Arc<SeenFile>]>);

/// A file as it was found.
#[derive(Debug, Clone)]
struct SeenFile {
    path: PathBuf,
    stamp: Option<FileStamp>,
    /// The digest and the length; `None`: it cannot be read, or is beyond the bytes of a set. Then the
    /// stamp tells whether it changed.
    content: Option<([u8; 32], usize)>,
    /// Where it is when links were followed, as of when it was read: whether that is below a
    /// tenant's folder decides too.
    real_path: Option<PathBuf>,
}

impl Fingerprint {
    /// Of no files at all.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// The same where `files`, which are among them, were written since. `None` where one of them
    /// is not, or cannot be read.
    pub(crate) fn after(&self, files: &BTreeSet<PathBuf>, now: SystemTime) -> Option<Self> {
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

/// A digest of the content of each of `files`, which ascend; of one that cannot be read, and of what
/// is beyond the bytes of a set, the stamp alone. Files that are as `earlier` saw them
/// are not read.
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

/// The digest and the length of what is in a file.
fn content(path: &Path, most: usize) -> Option<([u8; 32], usize)> {
    let content = read(path, most).ok()?;
    Some((sha256(&content), content.len()))
}

/// What the revision of a set is made of: its configuration and manifests,
/// without their paths on this machine and without any secret.
#[derive(Clone)]
pub(crate) struct Revision(Sha256);

// === impl Revision ===

impl Revision {
    /// Of a set of files alone, with the texts of its configuration.
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

    /// With what there is besides the files.
    pub(crate) fn with(mut self, watched: &[Arc<WatchedObjects>]) -> Self {
        for watched in watched {
            part(&mut self.0, &watched.digest);
        }
        self
    }

    /// As it is shown.
    pub(crate) fn name(self) -> Arc<str> {
        hexadecimal(self.0.finish().iter().take(6)).into()
    }
}

/// One part, with its length before it: no two lists of parts read the same.
fn part(digest: &mut Sha256, bytes: &[u8]) {
    digest.update(&(bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}

/// A file that was written so shortly before it was read may be written again with the same
/// times: those of some file systems have a granularity of two seconds. git calls an index
/// with such files racy.
const GRANULARITY: Duration = Duration::from_secs(2);

/// Whether the times of files are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileTimes {
    /// A file that has those of before was not written.
    Believed,
    /// Every file is read: somebody asks for it.
    Ignored,
}

/// Device, inode, size, and when content and inode were changed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of what `path` leads to, at the moment `now`; `None` where there is nothing, or
    /// where it was written so lately that it may be written again without another stamp.
    pub(crate) fn of(path: &Path, now: SystemTime) -> Option<Self> {
        let metadata = observed(path, || fs::metadata(path)).ok()?;
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

/// Held while a long document is parsed: one at a time in the whole process.
static LONG_DOCUMENTS: Mutex<()> = Mutex::new(());

/// What manifests may take together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ManifestMemory {
    pub(crate) bytes: usize,
}

/// What those of each cluster may take, where those for every cluster are known.
#[derive(Debug)]
pub(crate) struct ClusterBudgets(BTreeMap<String, MemoryBudget>);

// === impl ManifestMemory ===

impl ManifestMemory {
    /// Of this process.
    pub(crate) fn of_process() -> Self {
        Self {
            bytes: memory_of_process().unwrap_or(LEAST_MEMORY) / 2,
        }
    }

    /// What the files for every cluster may take.
    pub(crate) const fn everywhere(self) -> MemoryBudget {
        MemoryBudget::new(self.bytes)
    }

    /// What each cluster that has some of `paths` may take where those for every cluster leave so
    /// many bytes.
    pub(crate) fn of_clusters(self, paths: &[ManifestPath], left: usize) -> ClusterBudgets {
        let clusters: BTreeSet<&String> = paths.iter().filter_map(|path| path.cluster.as_ref()).collect();
        let share = left.min(self.bytes / 4) / clusters.len().max(1);
        let budget = |cluster: &String| (cluster.clone(), MemoryBudget::new(share));
        ClusterBudgets(clusters.into_iter().map(budget).collect())
    }
}

// === impl ClusterBudgets ===

impl ClusterBudgets {
    /// That of a cluster.
    pub(crate) fn of(&self, cluster: &str) -> &MemoryBudget {
        static NONE: MemoryBudget = MemoryBudget::new(0);
        self.0.get(cluster).unwrap_or(&NONE)
    }
}

/// The limits of a source with this budget.
pub(crate) fn limits(memory: &MemoryBudget) -> SourceLimits<'_> {
    SourceLimits {
        memory,
        long_documents: &LONG_DOCUMENTS,
    }
}

#[cfg(test)]
mod tests;
