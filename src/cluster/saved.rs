//! The saved snapshot of a cluster: the last complete set, in a file.
//!
//! The first line has the name of the cluster, the number of objects and the digest of
//! the rest, which has one object per line, as JSON. Parameters may be objects of any
//! kind, including Secrets: only the owner may read the file.

use std::io::{self, Write};
use std::path::Path;

use openssl::sha::{Sha256, sha256};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kind::WatchedKind;
use super::object::{ReceivedObject, name_of};
use crate::config::files;

const API_VERSION: &str = "portcullis.dev/v1alpha1";
const KIND: &str = "ClusterSnapshot";

/// A larger file is none that was written here.
const LONGEST: usize = 1 << 30;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SavedHeader {
    api_version: String,
    kind: String,
    cluster: String,
    objects: usize,
    sha256: String,
}

/// Why a saved set is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
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

/// Writes the objects of `cluster` to `path`, as a whole or not at all.
///
/// # Errors
///
/// The file beside it cannot be written, or not put in its place.
pub(super) fn write(path: &Path, cluster: &str, objects: &[Box<str>]) -> io::Result<()> {
    let mut digest = Sha256::new();
    for object in objects {
        digest.update(object.as_bytes());
        digest.update(b"\n");
    }
    let header = SavedHeader {
        api_version: API_VERSION.into(),
        kind: KIND.into(),
        cluster: cluster.into(),
        objects: objects.len(),
        sha256: hexadecimal(&digest.finish()),
    };
    files::replace(path, |file| {
        serde_json::to_writer(&mut *file, &header)?;
        file.write_all(b"\n")?;
        for object in objects {
            file.write_all(object.as_bytes())?;
            file.write_all(b"\n")?;
        }
        Ok(())
    })
}

/// The set of `cluster` at `path`; `None` where there is no file.
///
/// # Errors
///
/// There is one, and nothing in it can be used.
pub(super) fn read(path: &Path, cluster: &str) -> Result<Option<Vec<(WatchedKind, ReceivedObject)>>, Error> {
    let content = match files::read(path, LONGEST) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let text = String::from_utf8(content).map_err(|_| Error::Damaged("it is not UTF-8"))?;
    parse(&text, cluster).map(Some)
}

fn parse(text: &str, cluster: &str) -> Result<Vec<(WatchedKind, ReceivedObject)>, Error> {
    let (header, objects) = text.split_once('\n').ok_or(Error::Damaged("it ends too early"))?;
    let header: SavedHeader = serde_json::from_str(header).map_err(|_| Error::Damaged("its first line"))?;
    if header.api_version != API_VERSION || header.kind != KIND {
        return Err(Error::Damaged("it has another version"));
    }
    if header.cluster != cluster {
        return Err(Error::Elsewhere(header.cluster));
    }
    if header.sha256 != hexadecimal(&sha256(objects.as_bytes())) {
        return Err(Error::Damaged("its digest does not match"));
    }
    let objects: Vec<_> = objects
        .lines()
        .map(object)
        .collect::<Option<_>>()
        .unwrap_or_default();
    if objects.len() != header.objects {
        return Err(Error::Damaged("an object is missing"));
    }
    Ok(objects)
}

fn object(line: &str) -> Option<(WatchedKind, ReceivedObject)> {
    let value: Value = serde_json::from_str(line).ok()?;
    let api_version = value.get("apiVersion")?.as_str()?.to_owned();
    let kind = WatchedKind::of_object(&api_version, value.get("kind")?.as_str()?);
    let received = ReceivedObject::of_value(&kind, &api_version, name_of(&value), value);
    Some((kind, received))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::cel::Version;

    const ROLE: &str = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"a","namespace":"n"},"rules":[]}"#;
    const LIMIT: &str = r#"{"apiVersion":"example.com/v2","kind":"Limit","max":3,"metadata":{"name":"b"}}"#;

    fn saved() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("east.json");
        write(&path, "east", &[ROLE.into(), LIMIT.into()]).unwrap();
        (folder, path)
    }

    #[test]
    fn what_was_written_is_read() {
        let (_folder, path) = saved();
        let read = read(&path, "east").unwrap().unwrap();
        let kinds: Vec<String> = read.iter().map(|(kind, _)| kind.to_string()).collect();
        assert_eq!(kinds, ["Role.rbac.authorization.k8s.io", "Limit.example.com"]);
        let texts: Vec<_> = read
            .into_iter()
            .map(|(_, received)| received.read(&"east".into(), Version::NEWEST).unwrap().text)
            .collect();
        assert_eq!(texts, [ROLE.into(), LIMIT.into()] as [Box<str>; 2]);
    }

    #[test]
    fn only_the_owner_may_read_it() {
        let (folder, path) = saved();
        write(&path, "east", &[ROLE.into()]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let files = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 1, "nothing is left beside it");
    }

    #[test]
    fn no_file_is_no_set() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(&folder.path().join("absent"), "east").unwrap().is_none());
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
            let error = read(&path, "east").unwrap_err();
            assert!(matches!(error, Error::Damaged(_)), "{damage}: {error}");
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(read(&path, "east"), Err(Error::Damaged(_))));
    }

    #[test]
    fn a_set_of_another_cluster_is_not_used() {
        let (_folder, path) = saved();
        assert!(matches!(read(&path, "west"), Err(Error::Elsewhere(east)) if east == "east"));
    }
}
