//! The files of a snapshot, their contents and fingerprints.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openssl::sha::Sha256;

use super::source::Watched;
use crate::config::files::{MANIFEST_BYTES, observed, read};
use crate::config::{Config, ManifestPath};
use crate::field::{Fault, FaultKind, Faults, Place};
use crate::manifest::Source;

/// How deep folders may be nested: a link that leads back up ends here.
const DEPTH: usize = 32;

/// How many files and folders one path of manifests may lead to: links can make
/// a tree of a few folders that never ends.
const MOST_FILES: usize = 100_000;

/// The most bytes of all manifests together.
const MOST_BYTES: usize = 512 << 20;

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
    read_within(paths, MOST_FILES, MOST_BYTES)
}

fn read_within(paths: &[ManifestPath], most_files: usize, most_bytes: usize) -> (Vec<Source>, Faults) {
    let mut sources = Vec::new();
    let mut faults = Faults::new();
    let mut left = most_bytes;
    for entry in paths {
        let mut walk = FolderWalk::new(most_files);
        if let Err((path, error)) = walk.enter(&entry.path, DEPTH) {
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
                    let message = format!("with this file all manifests are larger than {most_bytes} bytes");
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
    let message = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
            format!("{error}; it must be there and readable")
        }
        _ => error.to_string(),
    };
    Fault::error(place, FaultKind::Unreadable, message)
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

/// A walk through the folders of manifests.
struct FolderWalk {
    /// The manifests.
    files: Vec<PathBuf>,
    /// The folders on the way.
    folders: BTreeSet<PathBuf>,
    /// How many of either may still come.
    left: usize,
}

// === impl Walk ===

impl FolderWalk {
    fn new(most: usize) -> Self {
        Self {
            files: Vec::new(),
            folders: BTreeSet::new(),
            left: most,
        }
    }

    /// Collects what is at and under `path`.
    fn enter(&mut self, path: &Path, depth: usize) -> Result<(), (PathBuf, io::Error)> {
        let at_path = |error| (path.to_owned(), error);
        let more = self.left.checked_sub(1);
        self.left =
            more.ok_or_else(|| at_path(io::Error::other("too many files, or links that lead in circles")))?;
        if !is_folder(path).map_err(at_path)? {
            self.files.push(path.to_owned());
            return Ok(());
        }
        if depth == 0 {
            let message = "folders nested too deep, or a link that leads back up";
            return Err(at_path(io::Error::other(message)));
        }
        self.folders.insert(path.to_owned());
        for entry in entries(path).map_err(at_path)? {
            let is_folder = is_folder(&entry).map_err(|error| (entry.clone(), error))?;
            if is_folder || is_manifest(&entry) {
                self.enter(&entry, depth - 1)?;
            }
        }
        Ok(())
    }
}

fn is_folder(path: &Path) -> io::Result<bool> {
    observed(path, || fs::metadata(path)).map(|metadata| metadata.is_dir())
}

/// What is in a folder and not hidden, in byte order.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let read = || -> io::Result<Vec<PathBuf>> {
        fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect()
    };
    let mut entries = observed(folder, read)?;
    entries.retain(|entry| !hidden(entry));
    entries.sort();
    Ok(entries)
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
        let mut walk = FolderWalk::new(MOST_FILES);
        // A path that cannot be read is a fault of the load; here it counts as absent.
        let _ = walk.enter(&entry.path, DEPTH);
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
        let mut walk = FolderWalk::new(MOST_FILES);
        let _ = walk.enter(&entry.path, DEPTH);
        folders.append(&mut walk.folders);
    }
    folders
}

/// A digest of the names and content of `files`; one that cannot be read counts as absent,
/// and so does what is beyond the bytes of a set.
pub(super) fn fingerprint(files: &[PathBuf]) -> Fingerprint {
    let mut digest = Sha256::new();
    let mut left = MOST_BYTES;
    for file in files {
        let content = read(file, left.min(MANIFEST_BYTES)).ok();
        left -= content.as_ref().map_or(0, Vec::len);
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
    fn what_is_no_regular_file_is_a_fault_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let made = std::process::Command::new("mkfifo")
            .arg(path("fifo.yaml"))
            .status();
        assert!(made.unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", path("zero.json")).unwrap();
        fs::write(path("well.yaml"), "").unwrap();
        let (names, faults) = names(folder.path(), None);
        assert_eq!(names, ["well.yaml"]);
        let faults = faults.to_string();
        for fault in [
            "fifo.yaml: Unreadable: is a named pipe (FIFO); it must be a regular file\n",
            "zero.json: Unreadable: is a device; it must be a regular file",
        ] {
            assert!(faults.contains(fault), "{faults}");
        }
        let files = [path("fifo.yaml"), path("zero.json")];
        assert_ne!(fingerprint(&files), Fingerprint::none());
    }

    #[test]
    fn a_set_has_bounds_which_a_fault_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.yaml", "b.yaml", "c.yaml"] {
            fs::write(folder.path().join(name), "# ten bytes").unwrap();
        }
        let entry = ManifestPath {
            path: folder.path().to_owned(),
            cluster: None,
        };
        let read = |files, bytes| {
            let (sources, faults) = read_within(std::slice::from_ref(&entry), files, bytes);
            (sources.len(), faults.to_string())
        };
        assert_eq!(read(4, 33), (3, String::new()));
        let (count, faults) = read(4, 32);
        assert_eq!(count, 2);
        let expected = "c.yaml: Unreadable: with this file all manifests are larger than 32 bytes";
        assert!(faults.contains(expected), "{faults}");
        let (_, faults) = read(3, 33);
        assert!(faults.contains("c.yaml: Unreadable: too many files"), "{faults}");
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
