//! Which files there are, what they say, and whether that changed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openssl::sha::Sha256;

use super::source::Watched;
use crate::config::{Config, ManifestPath};
use crate::field::{Fault, FaultKind, Faults, Place};
use crate::manifest::Source;

/// How deep folders may be nested: a link that leads back up ends here.
const DEPTH: usize = 32;

/// The files of a set and a digest of their names and content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of no files at all.
    pub(super) fn none() -> Self {
        fingerprint(&[])
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
    let mut sources = Vec::new();
    let mut faults = Faults::new();
    for entry in paths {
        let mut files = Vec::new();
        if let Err((path, error)) = walk(&entry.path, DEPTH, &mut files, &mut BTreeSet::new()) {
            faults.push(unreadable(&path, &error));
        } else if files.is_empty() {
            faults.push(empty(&entry.path));
        }
        for file in files {
            match fs::read_to_string(&file) {
                Ok(text) => sources.push(Source {
                    file: file.display().to_string(),
                    text,
                    cluster: entry.cluster.clone(),
                }),
                Err(error) => faults.push(unreadable(&file, &error)),
            }
        }
    }
    (sources, faults)
}

fn unreadable(path: &Path, error: &io::Error) -> Fault {
    let place = Place {
        file: Some(path.display().to_string().into()),
        ..Place::default()
    };
    Fault::error(
        place,
        FaultKind::Unreadable,
        format!("{error}; it must be there and readable"),
    )
}

fn empty(folder: &Path) -> Fault {
    let place = Place {
        file: Some(folder.display().to_string().into()),
        ..Place::default()
    };
    Fault::warning(
        place,
        FaultKind::NotFound,
        "this folder holds no manifest: files end in `.yaml`, `.yml` or `.json`, and do not begin with `.`",
    )
}

/// Collects the manifest files under `path`, and the folders on the way.
fn walk(
    path: &Path,
    depth: usize,
    files: &mut Vec<PathBuf>,
    folders: &mut BTreeSet<PathBuf>,
) -> Result<(), (PathBuf, io::Error)> {
    let told = |error| (path.to_owned(), error);
    if !fs::metadata(path).map_err(told)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    if depth == 0 {
        return Err(told(io::Error::other(
            "folders nested too deep, or a link that leads back up",
        )));
    }
    folders.insert(path.to_owned());
    let mut entries: Vec<PathBuf> = fs::read_dir(path)
        .map_err(told)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(told)?;
    entries.sort();
    for entry in entries.iter().filter(|entry| !hidden(entry)) {
        let folder = fs::metadata(entry)
            .map_err(|error| (entry.clone(), error))?
            .is_dir();
        if folder || is_manifest(entry) {
            walk(entry, depth - 1, files, folders)?;
        }
    }
    Ok(())
}

fn hidden(path: &Path) -> bool {
    path.file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
}

pub(super) fn is_manifest(path: &Path) -> bool {
    path.extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| ["yaml", "yml", "json"].contains(&extension))
}

/// Every file that a set was or would be read from.
pub(super) fn all_files(config_file: &Path, config: &Config, others: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut files = vec![config_file.to_owned()];
    files.extend(others.iter().cloned());
    files.extend(config.files());
    for entry in &config.manifests {
        // A path that cannot be read is told by the load; here it counts as absent.
        let _ = walk(&entry.path, DEPTH, &mut files, &mut BTreeSet::new());
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
        if let Ok(real) = fs::canonicalize(file) {
            folders.extend(real.parent().map(Path::to_owned));
        }
    }
    for entry in &config.manifests {
        let _ = walk(&entry.path, DEPTH, &mut Vec::new(), &mut folders);
    }
    folders
}

/// A digest of the names and content of `files`; one that cannot be read counts as absent.
pub(super) fn fingerprint(files: &[PathBuf]) -> Fingerprint {
    let mut digest = Sha256::new();
    for file in files {
        let content = fs::read(file).ok();
        part(&mut digest, file.as_os_str().as_encoded_bytes());
        digest.update(&[u8::from(content.is_some())]);
        part(&mut digest, content.as_deref().unwrap_or_default());
    }
    Fingerprint(digest.finish())
}

/// What the revision of a set is made of: its configuration and manifests,
/// without their paths on this machine and without any secret.
#[derive(Clone)]
pub(super) struct Revision(Sha256);

// === impl Revision ===

impl Revision {
    /// Of a set of files alone.
    pub(super) fn of_files(config_text: &str, sources: &[Source]) -> Self {
        let mut digest = Sha256::new();
        part(&mut digest, config_text.as_bytes());
        for source in sources {
            part(
                &mut digest,
                source.cluster.as_deref().unwrap_or_default().as_bytes(),
            );
            part(&mut digest, source.text.as_bytes());
        }
        Self(digest)
    }

    /// With what is beside the files.
    pub(super) fn with(mut self, watched: &[Watched]) -> Self {
        for watched in watched {
            part(&mut self.0, &watched.digest);
        }
        self
    }

    /// As it is shown.
    pub(super) fn name(self) -> Arc<str> {
        let digits = self.0.finish();
        let digits = digits.iter().take(6).map(|byte| format!("{byte:02x}"));
        digits.collect::<String>().into()
    }
}

/// One part, with its length before it: no two lists of parts read the same.
fn part(digest: &mut Sha256, bytes: &[u8]) {
    digest.update(&(bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path, cluster: Option<&str>) -> (Vec<String>, Faults) {
        let entry = ManifestPath {
            path: folder.to_owned(),
            cluster: cluster.map(str::to_owned),
        };
        let (sources, faults) = read_manifests(&[entry]);
        let prefix = format!("{}/", folder.display());
        (
            sources
                .iter()
                .map(|source| source.file.replace(&prefix, ""))
                .collect(),
            faults,
        )
    }

    #[test]
    fn a_folder_is_read_as_the_contract_says() {
        let folder = tempfile::tempdir().unwrap();
        for file in [
            "b.yaml",
            "a.yml",
            "sub/c.json",
            ".hidden.yaml",
            "note.txt",
            ".dir/d.yaml",
        ] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let (names, faults) = names(folder.path(), None);
        assert_eq!(names, ["a.yml", "b.yaml", "sub/c.json"]);
        assert!(faults.is_empty());
    }

    #[test]
    fn a_mounted_config_map_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("..2026_01_01");
        fs::create_dir(&real).unwrap();
        fs::write(real.join("p.yaml"), "").unwrap();
        std::os::unix::fs::symlink("..2026_01_01", folder.path().join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/p.yaml", folder.path().join("p.yaml")).unwrap();
        assert_eq!(names(folder.path(), None).0, ["p.yaml"]);
    }

    #[test]
    fn a_link_that_leads_back_up_is_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("again")).unwrap();
        assert!(names(folder.path(), None).1.has_errors());
    }

    #[test]
    fn a_path_that_is_not_there_is_a_fault_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let (_, faults) = names(&folder.path().join("absent"), Some("east"));
        assert!(faults.to_string().contains("absent: Unreadable: "), "{faults}");
    }

    #[test]
    fn the_revision_is_of_the_text_and_its_cluster() {
        let source = |text: &str, cluster: Option<&str>| Source {
            file: "anywhere".into(),
            text: text.into(),
            cluster: cluster.map(str::to_owned),
        };
        let revision = |config: &str, sources: &[Source]| Revision::of_files(config, sources).name();
        let one = revision("c", &[source("a", None)]);
        assert_eq!(one.len(), 12);
        assert_ne!(one, revision("c", &[source("a", Some("east"))]));
        assert_ne!(one, revision("c", &[source("a", None), source("", None)]));
        assert_ne!(one, revision("d", &[source("a", None)]));
    }

    #[test]
    fn the_revision_is_of_what_is_beside_the_files_too() {
        let files = Revision::of_files("c", &[]);
        let watched = |byte| Watched {
            digest: [byte; 32],
            ..Watched::default()
        };
        let names = [
            files.clone().name(),
            files.clone().with(&[watched(1)]).name(),
            files.clone().with(&[watched(2)]).name(),
            files.with(&[watched(1), watched(2)]).name(),
        ];
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 4);
    }
}
