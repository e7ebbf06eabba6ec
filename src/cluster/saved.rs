//! The cache file of a cluster, with its last complete set of objects.
//!
//! The first line contains the name of the cluster, the number of objects and the digest of the
//! rest, which has one object per line, as JSON. Parameters may be objects of any kind, including
//! Secrets: only the owner may read the file.
//!
//! Later changes are in a second file, so that the cost of saving a change does not depend on the
//! size of the set. Each line is a digest, a space, and changes as JSON. The digest covers the
//! digest of the line before (on the first line: of the set) and this line's changes. So lines of
//! another set, or after a damaged line, are not used, and the restored set is known to lack
//! changes. An incomplete last line was being written when the process ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use openssl::sha::Sha256;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::kind::{Name, WatchedKind};
use super::object::ReceivedObject;
use super::weight::LeftOutReason;
use crate::config::{CACHE_FILE_CHANGES, FileScope, files, hexadecimal};

const API_VERSION: &str = "portcullis.dev/v1alpha1";
const KIND: &str = "ClusterSnapshot";

/// The texts of a cluster's objects are shorter than the memory for the decoded objects divided by
/// this. A larger file was not written by this program.
const TEXT_SHARE: usize = 4;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SavedHeader {
    api_version: String,
    kind: String,
    cluster: String,
    objects: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kinds: Vec<SavedKind>,
    sha256: String,
}

/// The state of a kind, besides its objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SavedKind {
    api_version: String,
    kind: String,
    /// The newest resource version that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource_version: Option<u64>,
    /// Whether some objects are not saved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_partial: bool,
    /// Why some of the objects may have been deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) doubt: Option<String>,
}

/// A saved object.
pub(crate) type RestoredObject = (WatchedKind, Name, Result<ReceivedObject, LeftOutReason>);

/// A saved set. Its objects are decoded one by one, since they take more memory than their text.
pub(crate) struct RestoredSet {
    pub(crate) objects: Box<dyn Iterator<Item = RestoredObject>>,
    pub(crate) kinds: Vec<(WatchedKind, SavedKind)>,
    /// Whether saved changes cannot be read, which may include a Deny or a revocation.
    pub(crate) lacks_changes: bool,
}

/// The identity of an object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SavedHead {
    api_version: String,
    kind: String,
    metadata: SavedMetadata,
}

#[derive(Deserialize)]
struct SavedMetadata {
    #[serde(default)]
    namespace: String,
    name: String,
}

/// Why a saved set is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheFileError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The file was damaged or modified.
    #[error("corrupt, or not a saved set: {0}")]
    Damaged(&'static str),
    /// The file belongs to another cluster.
    #[error("it contains the objects of the cluster `{0}`")]
    OtherCluster(String),
}

/// The objects of a set in the form in which they are saved: as JSON, one per line.
#[derive(Debug, Default)]
pub(crate) struct SavedObjects {
    kinds: Vec<SavedKind>,
    count: usize,
    lines: Vec<u8>,
}

/// The set is saved as a whole again when the changes exceed a quarter of its size by more than
/// this number of bytes.
const CHANGED_BYTES: usize = 64 << 10;

/// The objects that have not been saved.
#[derive(Debug)]
pub(crate) enum UnsavedObjects {
    /// All objects, because too many changed.
    All(SavedObjects),
    /// The changes since the last save.
    Changed(SavedChanges),
}

/// Objects that were added, changed or deleted.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedChanges {
    set: Vec<Box<RawValue>>,
    delete: Vec<DeletedObject>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kinds: Vec<SavedKind>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeletedObject {
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
}

/// Saves the set of one cluster: first as a whole, and then its changes.
pub(crate) struct SnapshotSaver {
    path: PathBuf,
    scope: FileScope,
    cluster: String,
    written: Option<WrittenSnapshot>,
}

/// The state on disk.
struct WrittenSnapshot {
    /// The inode of the file of the set.
    inode: u64,
    bytes: usize,
    /// The digest of the set, or of the last line of changes.
    digest: [u8; 32],
    changes: Option<File>,
    changed_bytes: usize,
}

// === impl SavedKind ===

impl SavedKind {
    /// `None` if there is nothing to save.
    pub(crate) fn new(
        kind: &WatchedKind,
        resource_version: Option<u64>,
        is_partial: bool,
        doubt: Option<String>,
    ) -> Option<Self> {
        let version = kind.versions.first()?;
        let saved = Self {
            api_version: kind.api_version(version),
            kind: kind.kind.clone(),
            resource_version,
            is_partial,
            doubt,
        };
        let says = saved.resource_version.is_some() || saved.is_partial || saved.doubt.is_some();
        says.then_some(saved)
    }

    fn watched(&self) -> WatchedKind {
        WatchedKind::of_object(&self.api_version, &self.kind)
    }
}

// === impl SavedObjects ===

impl SavedObjects {
    pub(crate) fn new(kinds: impl Iterator<Item = SavedKind>) -> Self {
        Self {
            kinds: kinds.collect(),
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, object: &str) {
        self.count += 1;
        self.lines.extend_from_slice(object.as_bytes());
        self.lines.push(b'\n');
    }

    /// A digest of the objects.
    fn digest(&self) -> [u8; 32] {
        digest(&self.kinds, &self.lines)
    }
}

fn digest(kinds: &[SavedKind], lines: &[u8]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for kind in kinds {
        digest.update(format!("{kind:?}\n").as_bytes());
    }
    digest.update(lines);
    digest.finish()
}

/// Writes the objects of `cluster`, which have this digest, to `path`. The file is replaced
/// atomically.
///
/// # Errors
///
/// The temporary file cannot be written, or not renamed.
fn write(path: &Path, cluster: &str, objects: &SavedObjects, digest: &[u8; 32]) -> io::Result<()> {
    let header = SavedHeader {
        api_version: API_VERSION.into(),
        kind: KIND.into(),
        cluster: cluster.into(),
        objects: objects.count,
        kinds: objects.kinds.clone(),
        sha256: hexadecimal(digest),
    };
    files::replace(path, |file| {
        serde_json::to_writer(&mut *file, &header)?;
        file.write_all(b"\n")?;
        file.write_all(&objects.lines)
    })
}

/// Writes a set without objects.
#[cfg(test)]
pub(crate) fn write_empty(path: &Path, cluster: &str) {
    let objects = SavedObjects::default();
    write(path, cluster, &objects, &objects.digest()).unwrap();
}

/// Parses a set. Also returns its digest.
fn parse(text: String, cluster: &str) -> Result<(RestoredSet, [u8; 32]), CacheFileError> {
    let (header, objects) = text
        .split_once('\n')
        .ok_or(CacheFileError::Damaged("it ends too early"))?;
    let header: SavedHeader =
        serde_json::from_str(header).map_err(|_| CacheFileError::Damaged("its first line"))?;
    if header.api_version != API_VERSION || header.kind != KIND {
        return Err(CacheFileError::Damaged("it has another version"));
    }
    if header.cluster != cluster {
        return Err(CacheFileError::OtherCluster(header.cluster));
    }
    let digest = digest(&header.kinds, objects.as_bytes());
    if header.sha256 != hexadecimal(&digest) {
        return Err(CacheFileError::Damaged("its digest does not match"));
    }
    let is_object = |line: &str| serde_json::from_str::<SavedHead>(line).is_ok();
    let mut lines = objects.split_terminator('\n');
    if !lines.all(is_object) || objects.split_terminator('\n').count() != header.objects {
        return Err(CacheFileError::Damaged("an object is missing"));
    }
    let kinds = header.kinds.into_iter().map(|kind| (kind.watched(), kind));
    let kinds = kinds.collect();
    let mut next = text.len() - objects.len();
    let lines = std::iter::from_fn(move || {
        let (line, _) = text.get(next..)?.split_once('\n')?;
        next += line.len() + 1;
        Some(object(line))
    });
    let objects = Box::new(lines.flatten());
    let set = RestoredSet {
        objects,
        kinds,
        lacks_changes: false,
    };
    Ok((set, digest))
}

/// Parses the object on one line.
fn object(line: &str) -> Option<RestoredObject> {
    let SavedHead {
        api_version,
        kind,
        metadata,
    } = serde_json::from_str(line).ok()?;
    let kind = WatchedKind::of_object(&api_version, &kind);
    let name = (metadata.namespace, metadata.name);
    let received = ReceivedObject::new(&kind, &api_version, name.clone(), line.as_bytes());
    Some((kind, name, received))
}

// === impl SavedChanges ===

impl SavedChanges {
    /// Adds an object that is new or changed.
    pub(crate) fn set(&mut self, text: String) {
        // The text was read as JSON, so this cannot fail.
        self.set.extend(RawValue::from_string(text));
    }

    /// Adds an object that was deleted.
    pub(crate) fn delete(&mut self, kind: &WatchedKind, (namespace, name): &Name) {
        // The version does not matter when the file is read.
        let version = kind.versions.first().map_or("", String::as_str);
        self.delete.push(DeletedObject {
            api_version: kind.api_version(version),
            kind: kind.kind.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
        });
    }

    /// Adds the state of a kind, if it differs from `before`, and updates `before`.
    pub(crate) fn note(&mut self, kind: Option<SavedKind>, before: &mut Option<SavedKind>) {
        if kind != *before {
            before.clone_from(&kind);
            self.kinds.extend(kind);
        }
    }

    fn is_empty(&self) -> bool {
        self.set.is_empty() && self.delete.is_empty() && self.kinds.is_empty()
    }
}

// === impl SnapshotSaver ===

impl SnapshotSaver {
    pub(crate) fn new(path: PathBuf, scope: FileScope, cluster: &str) -> Self {
        Self {
            path,
            scope,
            cluster: cluster.to_owned(),
            written: None,
        }
    }

    /// Whether the set has to be saved as a whole next.
    pub(crate) fn wants_all(&self) -> bool {
        let written = self.written.as_ref();
        written.is_none_or(|written| written.changed_bytes > written.bytes / 4 + CHANGED_BYTES)
    }

    /// Saves `unsaved`. After an error, the set has to be saved as a whole.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub(crate) fn save(&mut self, unsaved: &UnsavedObjects) -> io::Result<()> {
        let written = self.written.take();
        self.written = Some(match (unsaved, written) {
            (UnsavedObjects::Changed(changes), Some(written)) if changes.is_empty() => written,
            (UnsavedObjects::Changed(changes), Some(written)) => self.append(written, changes)?,
            (UnsavedObjects::Changed(_), None) => {
                return Err(io::Error::other("the saved set that this changes is missing"));
            }
            (UnsavedObjects::All(objects), written) => self.replace(written, objects)?,
        });
        Ok(())
    }

    fn replace(
        &self,
        written: Option<WrittenSnapshot>,
        objects: &SavedObjects,
    ) -> io::Result<WrittenSnapshot> {
        let digest = objects.digest();
        if let Some(written) = written.filter(|written| written.digest == digest) {
            return Ok(written);
        }
        let placed = self.scope.place(&self.path)?;
        write(placed.path(), &self.cluster, objects, &digest)?;
        // These changes belong to the previous set, and would not be used.
        match fs::remove_file(changes_path(placed.path())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(WrittenSnapshot {
            inode: fs::metadata(placed.path())?.ino(),
            bytes: objects.lines.len(),
            digest,
            changes: None,
            changed_bytes: 0,
        })
    }

    fn append(&self, mut written: WrittenSnapshot, changes: &SavedChanges) -> io::Result<WrittenSnapshot> {
        let text = serde_json::to_string(changes)?;
        let digest = chained(&written.digest, &text);
        let line = format!("{} {text}\n", hexadecimal(&digest));
        // Changes to a set that no longer exists would be lost.
        let placed = self.scope.place(&self.path)?;
        if fs::metadata(placed.path())?.ino() != written.inode {
            return Err(io::Error::other("something else has replaced the saved set"));
        }
        let mut file = match written.changes.take() {
            Some(file) if file.metadata()?.nlink() == 0 => {
                return Err(io::Error::other("something else has removed the saved changes"));
            }
            Some(file) => file,
            None => self.begin()?,
        };
        file.write_all(line.as_bytes())?;
        file.sync_data()?;
        Ok(WrittenSnapshot {
            inode: written.inode,
            bytes: written.bytes,
            digest,
            changes: Some(file),
            changed_bytes: written.changed_bytes + line.len(),
        })
    }

    fn begin(&self) -> io::Result<File> {
        let placed = self.scope.place(&self.path)?;
        let path = changes_path(placed.path());
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .mode(0o600)
            .open(&path)?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        File::open(folder)?.sync_all()?;
        Ok(file)
    }
}

/// The path of the changes of the set at `path`.
fn changes_path(path: &Path) -> PathBuf {
    files::with_ending(path, CACHE_FILE_CHANGES)
}

fn chained(before: &[u8; 32], text: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(before);
    digest.update(text.as_bytes());
    digest.finish()
}

/// Reads the set of `cluster` at `path`, whose objects may take `memory` bytes; `None` if there is
/// no file.
///
/// # Errors
///
/// The set cannot be used.
pub(crate) fn read(
    (path, scope): (&Path, &FileScope),
    cluster: &str,
    memory: usize,
) -> Result<Option<RestoredSet>, CacheFileError> {
    let max_bytes = memory / TEXT_SHARE;
    let content = match scope.read(path, max_bytes) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let text = String::from_utf8(content).map_err(|_| CacheFileError::Damaged("it is not UTF-8"))?;
    let (saved, digest) = parse(text, cluster)?;
    Ok(Some(with_changes((path, scope), saved, (digest, max_bytes))))
}

/// The set `saved` from `path`, which has this digest, with later changes.
fn with_changes(
    (path, scope): (&Path, &FileScope),
    mut saved: RestoredSet,
    (mut digest, max_bytes): ([u8; 32], usize),
) -> RestoredSet {
    let content = match scope.read(&changes_path(path), max_bytes) {
        Ok(content) => content,
        Err(error) => {
            saved.lacks_changes = error.kind() != io::ErrorKind::NotFound;
            return saved;
        }
    };
    let text = String::from_utf8_lossy(&content);
    let mut changed = BTreeMap::new();
    for line in text
        .split_inclusive('\n')
        .map_while(|line| line.strip_suffix('\n'))
    {
        let Some(SavedChanges { set, delete, kinds }) = next_changes(&mut digest, line) else {
            saved.lacks_changes = true;
            break;
        };
        for text in set {
            if let Some((kind, name, _)) = object(text.get()) {
                changed.insert((kind, name), Some(text));
            }
        }
        saved
            .kinds
            .extend(kinds.into_iter().map(|kind| (kind.watched(), kind)));
        for gone in delete {
            let kind = WatchedKind::of_object(&gone.api_version, &gone.kind);
            changed.insert((kind, (gone.namespace, gone.name)), None);
        }
    }
    if !changed.is_empty() {
        let came: Vec<_> = changed.values().flatten().cloned().collect();
        let changed: BTreeSet<(WatchedKind, Name)> = changed.into_keys().collect();
        let is_same = move |kind: &WatchedKind, name: &Name| !changed.contains(&(kind.clone(), name.clone()));
        let same = saved.objects.filter(move |(kind, name, _)| is_same(kind, name));
        let came = came.into_iter().filter_map(|text| object(text.get()));
        saved.objects = Box::new(same.chain(came));
    }
    saved
}

/// The changes on `line`, if it follows the line or set with this digest, which is then updated.
fn next_changes(digest: &mut [u8; 32], line: &str) -> Option<SavedChanges> {
    let (named, changes) = line.split_once(' ')?;
    *digest = chained(digest, changes);
    if named != hexadecimal(&*digest) {
        return None;
    }
    serde_json::from_str(changes).ok()
}

#[cfg(test)]
mod tests;
