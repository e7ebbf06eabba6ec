//! `clusters: FOLDER`: a file for each API server, so that one can be added or removed without
//! touching what is written about the others.

use std::io;
use std::path::{Path, PathBuf};

use super::FIELDS;
use crate::config::files::{FileScope, FolderRule, FolderWalk, describe};
use crate::config::section::{Reading, Section};
use portcullis_policy::document;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};

/// The most files and folders in it.
const MOST_FILES: usize = 20_000;
/// The most bytes of one of its files.
const MOST_ENTRY_BYTES: usize = 1 << 20;
/// The most bytes of its files together.
const MOST_BYTES: usize = 64 << 20;

/// The folder, and what was in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFolder {
    /// Absolute.
    pub path: PathBuf,
    /// In the order in which they were read.
    pub files: Vec<ClusterFile>,
}

/// A file with one entry of `clusters`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFile {
    /// Absolute; the relative paths in it start at its folder.
    pub path: PathBuf,
    /// What stands in it.
    pub text: String,
}

impl ClusterFile {
    /// The name of the cluster, where it can be read.
    pub(crate) fn name(&self) -> Option<String> {
        let documents = document::parse(None, &self.text).ok()?;
        documents.first()?.text("name").map(str::to_owned)
    }
}

/// How the files of a folder are had.
pub(crate) type ReadFolder<'f> = &'f dyn Fn(&Path) -> (Vec<ClusterFile>, Faults);

/// Reads the folder that `clusters` names, and has `add` take each entry.
pub(crate) fn clusters(
    root: &Section<'_>,
    read_folder: ReadFolder<'_>,
    mut add: impl FnMut(&Section<'_>),
) -> Option<ClusterFolder> {
    let path = root.path("clusters")?;
    let (files, unreadable) = read_folder(&path);
    if files.is_empty() && !unreadable.has_errors() {
        let message = "this folder holds no file for a cluster: their names end in `.yaml`, `.yml` or \
                       `.json`, and do not begin with `.`";
        root.warn("clusters", FaultKind::NotFound, message);
    }
    root.append(unreadable);
    for file in &files {
        root.append(entry(file, &mut add));
    }
    Some(ClusterFolder { path, files })
}

/// Has `add` take the entry in `file`; what is wrong with it.
fn entry(file: &ClusterFile, add: &mut impl FnMut(&Section<'_>)) -> Faults {
    let mut faults = Faults::new();
    let documents = match document::parse(Some(&file.path.display().to_string()), &file.text) {
        Ok(documents) => documents,
        Err(fault) => {
            faults.push(fault);
            return faults;
        }
    };
    let [document] = documents.as_slice() else {
        let message = format!(
            "{} documents: one entry of `clusters` to a file, with `name` and `kubeconfig`",
            documents.len()
        );
        faults.push(Fault::error(
            Place::of_file(&file.path),
            FaultKind::Invalid,
            message,
        ));
        return faults;
    };
    let reading = Reading::of_tenant(document, file.path.parent().unwrap_or(Path::new("/")));
    add(&reading.root(&FIELDS));
    faults.append(reading.into_faults());
    faults
}

/// What is in the folder at `path` and the folders below it. Blocks: it reads files.
pub(crate) fn read_folder(path: &Path) -> (Vec<ClusterFile>, Faults) {
    let mut faults = Faults::new();
    let mut unreadable = |path: &Path, error: &io::Error| {
        faults.push(Fault::error(
            Place::of_file(path),
            FaultKind::Unreadable,
            describe(error),
        ));
    };
    let scope = FileScope::below(path);
    let walk = FolderWalk::new(scope.clone(), FolderRule::Visible, path, MOST_FILES);
    for (path_of_error, error) in &walk.errors {
        unreadable(path_of_error, error);
    }
    if walk.is_cut {
        unreadable(
            path,
            &io::Error::other("holds more files and folders than can be read"),
        );
    }
    let mut left = MOST_BYTES;
    let mut files = Vec::with_capacity(walk.files.len());
    for path in walk.files {
        match scope.read_text(&path, left.min(MOST_ENTRY_BYTES)) {
            Ok(text) => {
                left -= text.len();
                files.push(ClusterFile { path, text });
            }
            Err(error) => unreadable(&path, &error),
        }
    }
    (files, faults)
}
