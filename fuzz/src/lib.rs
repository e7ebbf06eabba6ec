//! Shared by the fuzz targets: policies, and files in memory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis::config::Files;
use portcullis_policy::admission::{AdmissionSet, AdmissionSettings};
use portcullis_policy::authorization::PolicySet;
use portcullis_policy::manifest::{self, Manifests, Options, Source};

/// The policies that reviews are judged by.
pub const AUTHORIZATION: &str = include_str!("../../tests/captures/policies.yaml");
/// The policies that objects are judged by.
pub const ADMISSION: &str = include_str!("../../tests/captures/admission-policies.yaml");

/// Reads manifests that are known to be right.
///
/// # Panics
/// Where they are not.
#[must_use]
pub fn manifests(text: &str) -> Manifests {
    let (manifests, faults) = load(text);
    manifests.unwrap_or_else(|| panic!("{faults}"))
}

/// Reads manifests.
#[must_use]
pub fn load(text: &str) -> (Option<Manifests>, portcullis_policy::field::Faults) {
    let source = Source {
        file: "f.yaml".to_owned(),
        text: text.to_owned(),
        cluster: None,
    };
    manifest::load(&[source], &Options::default())
}

/// What authorization decides by.
#[must_use]
pub fn policies() -> Arc<PolicySet> {
    manifests(AUTHORIZATION).policies.shared
}

/// What admission decides by.
#[must_use]
pub fn admission(text: &str) -> Arc<AdmissionSet> {
    manifests(text).admission(&AdmissionSettings::default()).shared
}

/// Files that exist nowhere else.
#[derive(Debug, Default)]
pub struct Memory(pub BTreeMap<PathBuf, Vec<u8>>);

impl Memory {
    /// One file more.
    #[must_use]
    pub fn with(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.0.insert(path.into(), content.into());
        self
    }
}

impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0
            .get(path)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The first line, and what follows it.
#[must_use]
pub fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (data, &[]),
    }
}
