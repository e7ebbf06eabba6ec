//! The files of the project, and those of a fresh set-up.

use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_policy::document::{self, Document};
use portcullis_policy::field::Faults;
use portcullis_policy::manifest::{self, Manifests, Source};
use serde_json::{Value, json};

/// Where the API server's side lies, in the examples.
pub(crate) const ON_API_SERVER: &str = "/etc/kubernetes/portcullis";

/// A path of the project.
pub(crate) fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// The files of a folder that end in `ending`, sorted.
pub(crate) fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no *{ending} in {}", folder.display());
    files
}

pub(crate) fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents of a YAML file.
pub(crate) fn documents(path: &Path) -> Vec<Document> {
    document::parse(Some(&path.to_string_lossy()), &text(path)).unwrap_or_else(|fault| panic!("{fault}"))
}

/// The only document of a file, as a `T` without unknown fields.
pub(crate) fn decode<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    let documents = documents(path);
    assert_eq!(documents.len(), 1, "{}", path.display());
    let mut faults = Faults::new();
    documents[0]
        .decode(&mut faults)
        .unwrap_or_else(|| panic!("{faults}"))
}

/// Manifests without any fault, warnings included.
pub(crate) fn sound_manifests(paths: &[PathBuf]) -> Manifests {
    let sources: Vec<Source> = paths
        .iter()
        .map(|path| Source {
            file: path.display().to_string(),
            text: text(path),
            cluster: None,
        })
        .collect();
    // Of the Namespaces whose labels they ask for, a cluster's own manifests tell.
    let namespace = Source {
        file: "namespace.yaml".to_owned(),
        text: "{apiVersion: v1, kind: Namespace, metadata: {name: any}}".to_owned(),
        cluster: None,
    };
    let sources = [sources, vec![namespace]].concat();
    let (manifests, faults) = manifest::load(&sources, &manifest::Options::default());
    assert_eq!(faults.to_string(), "");
    manifests.unwrap()
}

/// A set-up that `portcullis init` has just made.
pub(crate) struct SetUp {
    folder: tempfile::TempDir,
}

impl SetUp {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// One made with further options.
    pub(crate) fn with(options: &[&str]) -> Self {
        let set_up = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let status = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(["init", "--host", "portcullis.example.com", "-o", "json"])
            .args(options)
            .arg(set_up.path(""))
            .output()
            .unwrap();
        assert!(status.status.success(), "{status:?}");
        set_up
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    /// Has the gateway decide by this ValidatingAdmissionPolicy, for every object.
    pub(crate) fn write_policy(&self, policy: &Value) {
        let name = policy["metadata"]["name"].as_str().unwrap();
        let binding = json!({
            "apiVersion": policy["apiVersion"],
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        for (file, object) in [("policy", policy), ("binding", &binding)] {
            let path = self.path(&format!("policies/{name}-{file}.json"));
            std::fs::write(path, object.to_string()).unwrap();
        }
    }

    /// Whether the gateway would admit what this AdmissionReview asks about.
    pub(crate) fn admits(&self, review: &Value) -> bool {
        std::fs::write(self.path("review.json"), review.to_string()).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .args(["admit", "--phase", "validate", "--config"])
            .arg(self.path("portcullis.yaml"))
            .arg("--review")
            .arg(self.path("review.json"))
            .output()
            .unwrap();
        match output.status.code() {
            Some(0) => true,
            Some(1) => false,
            _ => panic!("{output:?}"),
        }
    }
}
