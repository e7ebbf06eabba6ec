//! The cache file of a cluster: the last complete set, in a file.
//!
//! The first line has the name of the cluster, the number of objects and the digest of
//! the rest, which has one object per line, as JSON. Parameters may be objects of any
//! kind, including Secrets: only the owner may read the file. What changed since is beside it
//! ([`changes`]).

mod changes;

use std::io::{self, Write};
use std::path::Path;

use openssl::sha::Sha256;
use serde::{Deserialize, Serialize};

use super::kind::{Name, WatchedKind};
use super::object::ReceivedObject;
use super::weight::LeftOutReason;
use crate::config::{files, hexadecimal};

pub(crate) use changes::{SavedChanges, SnapshotSaver, UnsavedObjects, read};

const API_VERSION: &str = "portcullis.dev/v1alpha1";
const KIND: &str = "ClusterSnapshot";

/// What the objects of a cluster take as text is less than this part, as its divisor, of what they
/// may take as objects: a file of more was not written here.
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

/// What is known of a kind besides its objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SavedKind {
    api_version: String,
    kind: String,
    /// The newest version that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resource_version: Option<u64>,
    /// Whether there are objects that are not saved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_partial: bool,
    /// Why some of the objects may be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) doubt: Option<String>,
}

/// An object as it was saved.
pub(crate) type RestoredObject = (WatchedKind, Name, Result<ReceivedObject, LeftOutReason>);

/// What was saved. Its objects are made one by one, since they take more memory than their text.
pub(crate) struct RestoredSet {
    pub(crate) objects: Box<dyn Iterator<Item = RestoredObject>>,
    pub(crate) kinds: Vec<(WatchedKind, SavedKind)>,
    /// Whether changes to it were saved that cannot be read: a Deny or a revocation may be among them.
    pub(crate) lacks_changes: bool,
}

/// What an object says of its identity.
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
    /// It is not what was written.
    #[error("corrupt, or not a saved set: {0}")]
    Damaged(&'static str),
    /// It is another cluster's.
    #[error("it contains the objects of the cluster `{0}`")]
    Elsewhere(String),
}

/// Objects as they are saved: each as JSON, on a line of its own.
#[derive(Debug, Default)]
pub(crate) struct SavedObjects {
    kinds: Vec<SavedKind>,
    count: usize,
    lines: Vec<u8>,
}

// === impl SavedKind ===

impl SavedKind {
    /// `None` where it says nothing.
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

    /// Names what they say.
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

/// Writes the objects of `cluster`, which have this digest, to `path`, as a whole or not at all.
///
/// # Errors
///
/// The file beside it cannot be written, or not put in its place.
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

/// A set of no objects.
#[cfg(test)]
pub(crate) fn write_empty(path: &Path, cluster: &str) {
    let objects = SavedObjects::default();
    write(path, cluster, &objects, &objects.digest()).unwrap();
}

/// The objects, and their digest.
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
        return Err(CacheFileError::Elsewhere(header.cluster));
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

/// The object on one line.
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::FileScope;
    use portcullis_cel::Version;

    const ROLE: &str = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"a","namespace":"n"},"rules":[]}"#;
    const LIMIT: &str = r#"{"apiVersion":"example.com/v2","kind":"Limit","max":3,"metadata":{"name":"b"}}"#;

    const MEMORY: usize = 64 << 20;

    fn write_all(path: &Path, objects: &[&str]) {
        let mut saved = SavedObjects::default();
        objects.iter().for_each(|object| saved.add(object));
        write(path, "east", &saved, &saved.digest()).unwrap();
    }

    fn saved() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("east.json");
        write_all(&path, &[ROLE, LIMIT]);
        (folder, path)
    }

    #[test]
    fn what_was_written_is_read() {
        let (_folder, path) = saved();
        let read = read((&path, &FileScope::Anywhere), "east", MEMORY)
            .unwrap()
            .unwrap();
        let read: Vec<_> = read.objects.collect();
        let kinds: Vec<String> = read.iter().map(|(kind, ..)| kind.to_string()).collect();
        assert_eq!(kinds, ["Role.rbac.authorization.k8s.io", "Limit.example.com"]);
        let texts: Vec<_> = read
            .into_iter()
            .map(|(.., received)| received.unwrap().read(&"east".into(), Version::NEWEST).unwrap())
            .map(|read| read.text.get().into_owned())
            .collect();
        assert_eq!(texts, [ROLE, LIMIT]);
    }

    #[test]
    fn only_the_owner_may_read_it() {
        let (folder, path) = saved();
        write_all(&path, &[ROLE]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let files = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 1, "nothing is left beside it");
    }

    #[test]
    fn no_file_is_no_set() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            read(
                (&folder.path().join("absent"), &FileScope::Anywhere),
                "east",
                MEMORY
            )
            .unwrap()
            .is_none()
        );
    }

    #[test]
    fn a_damaged_file_is_not_used() {
        let (_folder, path) = saved();
        let text = fs::read_to_string(&path).unwrap();
        let damages = [
            String::new(),
            "{}\n".to_owned(),
            text.replace("\"max\":3", "\"max\":4"),
            text.trim_end().to_owned(),
            text.lines().take(2).map(|line| format!("{line}\n")).collect(),
            text.replace("v1alpha1", "v9"),
            format!("{text}{ROLE}\n"),
            text.replace("\"objects\":2", "\"objects\":3"),
        ];
        for damage in damages {
            assert_ne!(damage, text);
            fs::write(&path, &damage).unwrap();
            let error = read((&path, &FileScope::Anywhere), "east", MEMORY).err();
            assert!(
                matches!(error, Some(CacheFileError::Damaged(_))),
                "{damage}: {error:?}"
            );
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(
            read((&path, &FileScope::Anywhere), "east", MEMORY),
            Err(CacheFileError::Damaged(_))
        ));
    }

    #[test]
    fn a_file_of_more_than_objects_may_take_is_not_read() {
        let (_folder, path) = saved();
        let bytes = fs::read(&path).unwrap().len();
        let read = |memory| read((&path, &FileScope::Anywhere), "east", memory);
        assert!(read(TEXT_SHARE * bytes).is_ok());
        let error = read(TEXT_SHARE * (bytes - 1)).err();
        assert!(matches!(error, Some(CacheFileError::Read(_))), "{error:?}");
    }

    #[test]
    fn a_set_of_another_cluster_is_not_used() {
        let (_folder, path) = saved();
        assert!(
            matches!(read((&path, &FileScope::Anywhere), "west", MEMORY), Err(CacheFileError::Elsewhere(east)) if east == "east")
        );
    }
}
