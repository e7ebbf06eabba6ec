//! Finds the PolicyTest documents in files and folders.

use std::path::{Path, PathBuf};

use crate::cli::{Error, loading};
use crate::reload;
use portcullis_policy::document::{self, Document};
use portcullis_policy::field::{Fault, FaultKind, Faults};

/// `kind` of a suite.
pub(crate) const KIND: &str = "PolicyTest";
/// `apiVersion` of a suite.
pub(crate) const API_VERSION: &str = "portcullis.dev/v1alpha1";

/// Every suite in files named and in folders; in a folder the other documents are left alone.
///
/// # Errors
///
/// A path cannot be read.
pub(crate) fn documents(paths: &[PathBuf], faults: &mut Faults) -> Result<Vec<Document>, Error> {
    let mut suites = Vec::new();
    for path in paths {
        loading::readable(path)?;
        let (sources, unreadable) = reload::read_manifests(&loading::everywhere(std::slice::from_ref(path)));
        faults.append(unreadable);
        for source in sources {
            match document::parse(Some(&source.file), &source.text) {
                Ok(documents) => suites.extend(suites_of(path, documents, faults)),
                Err(fault) => faults.push(fault),
            }
        }
    }
    Ok(suites)
}

fn suites_of(named: &Path, documents: Vec<Document>, faults: &mut Faults) -> Vec<Document> {
    let (suites, others): (Vec<_>, Vec<_>) = documents
        .into_iter()
        .partition(|document| document.text("kind") == Some(KIND));
    if named.is_dir() {
        return suites;
    }
    // A file that is named is meant as a suite: what else is in it is a mistake.
    for other in others {
        let path = portcullis_policy::field::FieldPath::root().field("kind");
        let message = format!("expected the kind `{KIND}` of `{API_VERSION}`");
        faults.push(Fault::error(other.place(path), FaultKind::NotSupported, message));
    }
    suites
}
