//! The last configuration and manifests that were in force, saved in a file (`reload.lastGood`), so
//! that a gateway can restart while the files have faults.
//!
//! The first line contains the format and a digest; the second contains the texts. Keys,
//! certificates, kubeconfigs and tokens are not copied but read from their files. Since the texts
//! may contain inline credentials, only the owner may read the file.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use openssl::sha::sha256;
use serde::{Deserialize, Serialize};

use crate::config::{ClusterFile, Config, files, hexadecimal};
use portcullis_policy::manifest::Source;

const API_VERSION: &str = "portcullis.dev/v1alpha1";
const KIND: &str = "LastGoodSet";

/// A larger file was not written by this program.
const MAX_BYTES: usize = 1 << 30;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LastGoodHeader {
    api_version: String,
    kind: String,
    revision: String,
    sha256: String,
}

/// The texts of a set.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedTexts {
    configuration: String,
    /// The files of the folder that `clusters` names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    clusters: Vec<SavedClusterFile>,
    manifests: Vec<Manifest>,
    /// The clusters whose own files are not completely contained.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    unknown: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedClusterFile {
    file: PathBuf,
    text: String,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    file: String,
    cluster: Option<String>,
    text: String,
}

/// A set to be saved when it comes into force.
#[derive(Debug)]
pub(crate) struct PendingSave {
    path: PathBuf,
    content: Vec<u8>,
}

/// Saves sets on its own thread, so that a disk that does not respond delays no reload. Of the sets
/// that wait, only the newest is saved.
#[derive(Debug, Default)]
pub(crate) struct Saver(Arc<Mutex<WaitingSave>>);

#[derive(Debug, Default)]
struct WaitingSave {
    next: Option<PendingSave>,
    is_saving: bool,
}

/// A saved set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LastGoodSet {
    /// The revision of the snapshot.
    pub(crate) revision: String,
    /// The text of the configuration.
    pub(crate) configuration: String,
    /// The files of the folder that its `clusters` names.
    pub(crate) cluster_files: Vec<ClusterFile>,
    /// The manifests, in the order in which they were read.
    pub(crate) manifests: Vec<Source>,
    /// The clusters whose own files were not completely known.
    pub(crate) unknown: BTreeSet<String>,
}

/// Why the last good set cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LastGoodError {
    /// The configuration names no `reload.lastGood`, or does not exist.
    #[error("the configuration names no `reload.lastGood`")]
    NotConfigured,
    /// The configuration is not valid YAML.
    #[error(
        "`{path}` is not YAML, so it does not name the last good set (`reload.lastGood`): correct it, or \
        restore its last version"
    )]
    Unknown {
        /// The configuration.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("`{path}` cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file was damaged or modified.
    #[error("`{path}` is not a complete saved set: {reason}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The saved set cannot be used with the current certificates and credentials.
    #[error("the set saved in `{path}` cannot be used:\n{faults}")]
    Faulty {
        /// The file.
        path: PathBuf,
        /// All faults.
        faults: portcullis_policy::field::Faults,
    },
}

// === impl PendingSave ===

impl PendingSave {
    /// The set of `config` and `sources`, which lacks files of the `unknown` clusters; `None` if
    /// saving is not configured.
    pub(crate) fn new(
        config: &Config,
        sources: impl Iterator<Item = Source>,
        unknown: &BTreeSet<String>,
        revision: &str,
    ) -> Option<Self> {
        let path = config.reload.last_good.clone()?;
        let texts = SavedTexts {
            configuration: config.text.to_string(),
            clusters: config
                .cluster_folder
                .iter()
                .flat_map(|folder| folder.files.iter().cloned().map(SavedClusterFile::from))
                .collect(),
            manifests: sources.map(Manifest::from).collect(),
            unknown: unknown.clone(),
        };
        let texts = serde_json::to_vec(&texts).ok()?;
        let header = LastGoodHeader {
            api_version: API_VERSION.into(),
            kind: KIND.into(),
            revision: revision.into(),
            sha256: hexadecimal(&sha256(&texts)),
        };
        let mut content = serde_json::to_vec(&header).ok()?;
        content.push(b'\n');
        content.extend(texts);
        Some(Self { path, content })
    }

    /// Writes the set. An error is only logged, because the snapshot in force does not need it.
    pub(crate) fn save(self) {
        if let Err(error) = files::replace(&self.path, |file| file.write_all(&self.content)) {
            tracing::warn!(
                file = %self.path.display(),
                %error,
                "cannot save the last good set: a restart would fail while the files have errors"
            );
        }
    }
}

// === impl Saver ===

impl Saver {
    /// Saves the set soon.
    pub(crate) fn save(&self, unsaved: PendingSave) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.next = Some(unsaved);
        if waiting.is_saving {
            return;
        }
        let all = Arc::clone(&self.0);
        let saving = thread::Builder::new()
            .name("last-good".to_owned())
            .spawn(move || save_all(&all));
        match saving {
            Ok(_) => waiting.is_saving = true,
            Err(error) => tracing::warn!(%error, "cannot start a thread to save the last good set"),
        }
    }
}

fn save_all(all: &Mutex<WaitingSave>) {
    loop {
        let mut waiting = all.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(unsaved) = waiting.next.take() else {
            waiting.is_saving = false;
            return;
        };
        drop(waiting);
        unsaved.save();
    }
}

// === impl SavedClusterFile ===

impl From<ClusterFile> for SavedClusterFile {
    fn from(file: ClusterFile) -> Self {
        Self {
            file: file.path,
            text: file.text,
        }
    }
}

impl From<SavedClusterFile> for ClusterFile {
    fn from(saved: SavedClusterFile) -> Self {
        Self {
            path: saved.file,
            text: saved.text,
        }
    }
}

// === impl Manifest ===

impl From<Source> for Manifest {
    fn from(source: Source) -> Self {
        Self {
            file: source.file,
            cluster: source.cluster,
            text: source.text,
        }
    }
}

impl Manifest {
    fn into_source(self) -> Source {
        Source {
            file: self.file,
            text: self.text,
            cluster: self.cluster,
        }
    }
}

/// Reads the set saved at `path`.
pub(crate) fn read(path: &Path) -> Result<LastGoodSet, LastGoodError> {
    let unreadable = |source| LastGoodError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let content = files::read(path, MAX_BYTES).map_err(unreadable)?;
    parse(&content).map_err(|reason| LastGoodError::Corrupt {
        path: path.to_owned(),
        reason,
    })
}

fn parse(content: &[u8]) -> Result<LastGoodSet, &'static str> {
    let end = content
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or("it ends too early")?;
    let (header, texts) = content.split_at(end);
    let texts = texts.get(1..).unwrap_or_default();
    let header: LastGoodHeader =
        serde_json::from_slice(header).map_err(|_| "its first line cannot be read")?;
    if header.api_version != API_VERSION || header.kind != KIND {
        return Err("another version wrote it");
    }
    if header.sha256 != hexadecimal(&sha256(texts)) {
        return Err("its digest does not match");
    }
    let texts: SavedTexts = serde_json::from_slice(texts).map_err(|_| "its contents cannot be read")?;
    Ok(LastGoodSet {
        revision: header.revision,
        configuration: texts.configuration,
        cluster_files: texts.clusters.into_iter().map(ClusterFile::from).collect(),
        manifests: texts.manifests.into_iter().map(Manifest::into_source).collect(),
        unknown: texts.unknown,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mk_saved() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/last-good");
        let texts = SavedTexts {
            configuration: "kind: GatewayConfiguration\n".into(),
            clusters: vec![SavedClusterFile {
                file: "/etc/p/clusters.d/east.yaml".into(),
                text: "name: east\n".into(),
            }],
            manifests: vec![Manifest {
                file: "policies/a.yaml".into(),
                cluster: Some("east".into()),
                text: "kind: Role\n".into(),
            }],
            unknown: ["north".to_owned()].into(),
        };
        let texts = serde_json::to_vec(&texts).unwrap();
        let header = LastGoodHeader {
            api_version: API_VERSION.into(),
            kind: KIND.into(),
            revision: "0123456789ab".into(),
            sha256: hexadecimal(&sha256(&texts)),
        };
        let content = [&serde_json::to_vec(&header).unwrap(), b"\n".as_slice(), &texts].concat();
        PendingSave {
            path: path.clone(),
            content,
        }
        .save();
        (folder, path)
    }

    #[test]
    fn what_was_saved_is_read() {
        let (_folder, path) = mk_saved();
        let saved = read(&path).unwrap();
        assert_eq!(saved.revision, "0123456789ab");
        assert_eq!(saved.configuration, "kind: GatewayConfiguration\n");
        let cluster_files = [ClusterFile {
            path: "/etc/p/clusters.d/east.yaml".into(),
            text: "name: east\n".into(),
        }];
        assert_eq!(saved.cluster_files, cluster_files);
        let manifests: Vec<_> = saved
            .manifests
            .iter()
            .map(|source| {
                (
                    source.file.as_str(),
                    source.cluster.as_deref(),
                    source.text.as_str(),
                )
            })
            .collect();
        assert_eq!(manifests, [("policies/a.yaml", Some("east"), "kind: Role\n")]);
        assert_eq!(saved.unknown, ["north".to_owned()].into());
    }

    #[test]
    fn only_the_owner_may_read_it() {
        let (_folder, path) = mk_saved();
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_corrupt_file_is_not_used() {
        let (_folder, path) = mk_saved();
        let text = fs::read_to_string(&path).unwrap();
        for corrupt in [
            String::new(),
            "{}\n".into(),
            text.replace("Role", "Hole"),
            text.replace("v1alpha1", "v9"),
            text.trim_end_matches('}').into(),
        ] {
            assert_ne!(corrupt, text);
            fs::write(&path, &corrupt).unwrap();
            assert!(
                matches!(read(&path), Err(LastGoodError::Corrupt { .. })),
                "{corrupt}"
            );
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(read(&path), Err(LastGoodError::Unreadable { .. })));
        assert!(matches!(
            read(Path::new("/dev/zero")),
            Err(LastGoodError::Unreadable { .. })
        ));
    }
}
