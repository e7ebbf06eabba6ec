//! What changed since a set was saved, in a file beside it: a change costs what it is, however
//! large the set.
//!
//! Each line is a digest, a space, and changes as JSON. The digest is that of the line before
//! (of the first line: of the set) and of this line's changes: lines of another set, or after
//! one that is damaged, are not used, and what is read is known to lack changes. A last line without
//! its end was being written when the process ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use openssl::sha::Sha256;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{CacheFileError, RestoredSet, SavedKind, SavedObjects, TEXT_SHARE, object, parse};
use crate::cluster::kind::{Name, WatchedKind};
use crate::config::{CACHE_FILE_CHANGES, FileScope, files, hexadecimal};

/// The changes may have so many bytes, besides a quarter of those of the set, before the set is
/// saved as a whole again.
const CHANGED_BYTES: usize = 64 << 10;

/// What is not saved yet.
#[derive(Debug)]
pub(crate) enum UnsavedObjects {
    /// All that holds: more changed than is worth being told apart.
    All(SavedObjects),
    /// What changed since this was asked for last.
    Changed(SavedChanges),
}

/// Objects that came, changed or went.
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

/// Saves the set of one cluster: as a whole, and then what changes.
pub(crate) struct SnapshotSaver {
    path: PathBuf,
    scope: FileScope,
    cluster: String,
    written: Option<WrittenSnapshot>,
}

/// What is on disk.
struct WrittenSnapshot {
    /// Of the file of the set.
    inode: u64,
    bytes: usize,
    /// Of the set, or of the last line of changes.
    digest: [u8; 32],
    changes: Option<File>,
    changed_bytes: usize,
}

// === impl SavedChanges ===

impl SavedChanges {
    /// The object with this text holds.
    pub(crate) fn set(&mut self, text: String) {
        // What holds was read as JSON, and is kept as such.
        self.set.extend(RawValue::from_string(text));
    }

    /// There is no such object any more.
    pub(crate) fn delete(&mut self, kind: &WatchedKind, (namespace, name): &Name) {
        // The versions of a kind are one: what is saved is of any of them.
        let version = kind.versions.first().map_or("", String::as_str);
        self.delete.push(DeletedObject {
            api_version: kind.api_version(version),
            kind: kind.kind.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
        });
    }

    /// A kind is known so, where it was saved as `before`.
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

    /// Whether all that holds is to be saved next.
    pub(crate) fn wants_all(&self) -> bool {
        let written = self.written.as_ref();
        written.is_none_or(|written| written.changed_bytes > written.bytes / 4 + CHANGED_BYTES)
    }

    /// Saves what is not saved. After a failure all is wanted.
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
                return Err(io::Error::other("no set was saved that this changes"));
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
        super::write(placed.path(), &self.cluster, objects, &digest)?;
        // They are of the set before, and would not be used.
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
        // What changes a set that is not there any more would be lost.
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

/// Where the changes of the set at `path` are.
fn changes_path(path: &Path) -> PathBuf {
    files::with_ending(path, CACHE_FILE_CHANGES)
}

fn chained(before: &[u8; 32], text: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(before);
    digest.update(text.as_bytes());
    digest.finish()
}

/// The set of `cluster` at `path`, whose objects may take so many bytes of memory; `None` where
/// there is no file.
///
/// # Errors
///
/// There is one, and nothing in it can be used.
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

/// The `objects` of the set at `path`, which have this digest, with what changed since.
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

/// What `line` changes, if it belongs after what has this digest, which becomes its own.
fn next_changes(digest: &mut [u8; 32], line: &str) -> Option<SavedChanges> {
    let (named, changes) = line.split_once(' ')?;
    *digest = chained(digest, changes);
    if named != hexadecimal(&*digest) {
        return None;
    }
    serde_json::from_str(changes).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::cluster::saved::read;
    use portcullis_cel::Version;

    fn role(name: &str, verb: &str) -> String {
        format!(
            r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{{"name":"{name}","namespace":"n"}},"rules":[{{"apiGroups":[""],"resources":["pods"],"verbs":["{verb}"]}}]}}"#
        )
    }

    fn kind() -> WatchedKind {
        WatchedKind::of_object("rbac.authorization.k8s.io/v1", "Role")
    }

    fn all(objects: &[String]) -> UnsavedObjects {
        let mut saved = SavedObjects::default();
        objects.iter().for_each(|object| saved.add(object));
        UnsavedObjects::All(saved)
    }

    fn changed(set: &[String], deleted: &[&str]) -> UnsavedObjects {
        let mut changes = SavedChanges::default();
        set.iter().for_each(|object| changes.set(object.clone()));
        let name = |name: &str| ("n".to_owned(), name.to_owned());
        deleted
            .iter()
            .for_each(|deleted| changes.delete(&kind(), &name(deleted)));
        UnsavedObjects::Changed(changes)
    }

    fn restored(path: &Path) -> RestoredSet {
        let read = read((path, &FileScope::Anywhere), "east", 64 << 20);
        read.unwrap().unwrap()
    }

    fn texts(path: &Path) -> Vec<String> {
        let read = restored(path).objects;
        let text = |received: crate::cluster::object::ReceivedObject| {
            let read = received.read(&"east".into(), Version::NEWEST).unwrap();
            read.text.get().into_owned()
        };
        let mut texts: Vec<String> = read.map(|(.., received)| text(received.unwrap())).collect();
        texts.sort();
        texts
    }

    /// A set with two changes.
    fn saved() -> (tempfile::TempDir, PathBuf, SnapshotSaver) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("east.json");
        let mut saver = SnapshotSaver::new(path.clone(), FileScope::Anywhere, "east");
        saver.save(&all(&[role("a", "get"), role("b", "get")])).unwrap();
        saver
            .save(&changed(&[role("a", "list"), role("c", "get")], &[]))
            .unwrap();
        saver.save(&changed(&[], &["b"])).unwrap();
        (folder, path, saver)
    }

    #[test]
    fn what_changed_is_read_with_the_set() {
        let (_folder, path, mut saver) = saved();
        assert_eq!(texts(&path), [role("a", "list"), role("c", "get")]);
        saver.save(&changed(&[], &[])).unwrap();
        saver
            .save(&changed(&[role("b", "watch")], &["c", "absent"]))
            .unwrap();
        assert_eq!(texts(&path), [role("a", "list"), role("b", "watch")]);
        let mode = fs::metadata(changes_path(&path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only the owner may read it");
        // Another set ends them.
        saver.save(&all(&[role("d", "get")])).unwrap();
        assert_eq!(texts(&path), [role("d", "get")]);
        assert!(!changes_path(&path).exists());
    }

    #[test]
    fn changes_that_are_not_whole_or_of_another_set_are_not_used() {
        let (folder, path, _) = saved();
        let lines = fs::read_to_string(changes_path(&path)).unwrap();
        let first = [role("a", "list"), role("b", "get"), role("c", "get")];
        for (torn, lacks) in [
            (lines.trim_end(), false),
            (lines[..lines.len() - 9].trim_end(), false),
            (&lines.replace("\"b\"", "\"c\""), true),
        ] {
            fs::write(changes_path(&path), torn).unwrap();
            assert_eq!(texts(&path), first, "{torn}");
            assert_eq!(restored(&path).lacks_changes, lacks, "{torn}");
        }
        let later = lines.split_inclusive('\n').nth(1).unwrap();
        for useless in [later, "", "\n", "no digest\n", &lines.replace("list", "edit")] {
            fs::write(changes_path(&path), useless).unwrap();
            assert_eq!(texts(&path), [role("a", "get"), role("b", "get")], "{useless}");
            assert_eq!(restored(&path).lacks_changes, !useless.is_empty(), "{useless}");
        }
        fs::remove_file(changes_path(&path)).unwrap();
        fs::create_dir(changes_path(&path)).unwrap();
        assert_eq!(texts(&path), [role("a", "get"), role("b", "get")]);
        assert!(restored(&path).lacks_changes, "what cannot be read");
        let other = folder.path().join("west.json");
        SnapshotSaver::new(other.clone(), FileScope::Anywhere, "east")
            .save(&all(&[role("e", "get")]))
            .unwrap();
        fs::write(changes_path(&other), &lines).unwrap();
        assert_eq!(texts(&other), [role("e", "get")]);
    }

    #[test]
    fn all_is_saved_again_where_something_else_wrote_to_its_place() {
        let remove = |path: &Path| fs::remove_file(path).unwrap();
        let others: [&dyn Fn(&Path); 3] = [
            &|path| remove(&changes_path(path)),
            &|path| remove(path),
            // Another gateway on the same file.
            &|path| {
                SnapshotSaver::new(path.to_owned(), FileScope::Anywhere, "east")
                    .save(&all(&[role("e", "get")]))
                    .unwrap();
            },
        ];
        for other in others {
            let (_folder, path, mut saver) = saved();
            other(&path);
            assert!(saver.save(&changed(&[role("d", "get")], &[])).is_err());
            assert!(saver.wants_all());
            saver.save(&all(&[role("d", "get")])).unwrap();
            saver.save(&changed(&[role("d", "list")], &[])).unwrap();
            assert_eq!(texts(&path), [role("d", "list")]);
        }
    }

    #[test]
    fn all_is_saved_again_after_many_changes_or_a_failure() {
        let (_folder, path, mut saver) = saved();
        let mut rounds = 0;
        while !saver.wants_all() {
            rounds += 1;
            saver
                .save(&changed(&[role("a", &format!("verb-{rounds}"))], &[]))
                .unwrap();
        }
        assert!((100..1_000).contains(&rounds), "{rounds}");
        assert_eq!(
            texts(&path),
            [role("a", &format!("verb-{rounds}")), role("c", "get")]
        );
        saver.save(&all(&[role("a", "get")])).unwrap();
        assert!(!saver.wants_all());
        fs::create_dir(changes_path(&path)).unwrap();
        assert!(saver.save(&changed(&[role("a", "list")], &[])).is_err());
        assert!(saver.wants_all());
        assert!(saver.save(&changed(&[role("a", "list")], &[])).is_err());
    }
}
