//! What a set-up is to be, and the files that it is made of.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use super::pki::{Host, Namespace, Pair};
use crate::cli::output::CommandError;

/// The gateway's configuration, by whose presence a set-up is known.
pub(crate) const CONFIGURATION: &str = "portcullis.yaml";

/// The certificates of a set-up: where each is, with its key, and who signs new ones.
pub(crate) const SERVER: KeyFiles = KeyFiles("pki/server.crt", "pki/server.key");
pub(crate) const AUTHORIZATION: KeyFiles = KeyFiles("pki/authorization.crt", "pki/authorization.key");
pub(crate) const ADMISSION: KeyFiles = KeyFiles("pki/admission.crt", "pki/admission.key");
/// The authority that signs, in a folder that `serve` does not need.
pub(crate) const AUTHORITY: KeyFiles = KeyFiles("ca/ca.crt", "ca/ca.key");
/// Every authority that is trusted.
pub(crate) const TRUSTED: &str = "pki/ca.crt";

/// The common names of the certificates that a set-up begins with.
pub(crate) const SERVER_NAME: &str = "portcullis";
pub(crate) const AUTHORIZATION_NAME: &str = "kube-apiserver-authorization";
pub(crate) const ADMISSION_NAME: &str = "kube-apiserver-admission";

/// Where a certificate and its key are, relative to the folder of the set-up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyFiles(pub(crate) &'static str, pub(crate) &'static str);

/// The port of the gateway.
pub(crate) const PORT: u16 = 8443;

/// What a set-up is to be.
#[derive(Debug, Default)]
pub(crate) struct SetUp<'a> {
    /// As whom the gateway is reached; none: from its own machine alone.
    pub(crate) hosts: &'a [Host],
    /// The namespace in which the gateway runs, where it runs in the cluster.
    pub(crate) in_cluster: Option<&'a Namespace>,
    /// Further namespaces whose service accounts are never asked about.
    pub(crate) exempt: &'a [Namespace],
    /// Which examples there are.
    pub(crate) examples: Examples,
    /// Whether the registrations are static manifests.
    pub(crate) is_static: bool,
    /// Whether the gateway watches the cluster.
    pub(crate) watch: bool,
    /// The manifests of what Kubernetes makes of RBAC by itself.
    pub(crate) builtin_roles: Option<File>,
    /// What runs the API servers, if it needs to be told of the gateway in its own form.
    pub(crate) platform: Option<Platform>,
}

/// What runs the API servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Platform {
    Kubeadm,
    K3s,
    Rke2,
    Talos,
    Kamaji,
    Gardener,
    Kubermatic,
    Hypershift,
    ClusterApi,
}

/// The examples of a set-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Examples {
    #[default]
    None,
    /// Policies, with Denies in mode Shadow: there may be a cluster to lock out.
    InShadow,
    /// Policies in force, RBAC, objects, a recording and a log to try each command with, and a
    /// console for this machine alone.
    InForce,
}

// === impl SetUp ===

impl SetUp<'_> {
    /// One to try things with, on this machine alone.
    pub(crate) fn development() -> Self {
        Self {
            examples: Examples::InForce,
            ..Self::default()
        }
    }
}

/// One file of a set-up.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Relative to the folder of the set-up.
    pub(crate) path: &'static str,
    pub(crate) contents: Vec<u8>,
    /// Only its owner may read it.
    pub(crate) secret: bool,
}

/// Fills the templates of one set-up.
pub(crate) struct TemplateValues<'a> {
    directory: &'a Path,
    values: Vec<(&'static str, String)>,
}

impl<'a> TemplateValues<'a> {
    /// `values`: what each name stands for. A value is not itself a template, but those
    /// of names further back may stand in it.
    pub(crate) const fn new(directory: &'a Path, values: Vec<(&'static str, String)>) -> Self {
        Self { directory, values }
    }

    /// The folder of the set-up.
    pub(crate) const fn directory(&self) -> &'a Path {
        self.directory
    }

    /// `template` without gaps.
    pub(crate) fn fill(&self, template: &str) -> String {
        let mut text = template.to_owned();
        for (name, value) in &self.values {
            text = text.replace(&format!("{{{{{name}}}}}"), value);
        }
        self.with_paths(&text)
    }

    fn with_paths(&self, text: &str) -> String {
        let mut parts = text.split("{{path:");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (path, rest) = part.split_once("}}").unwrap_or((part, ""));
            filled.push_str(&quoted(&self.directory.join(path)));
            filled.push_str(rest);
        }
        filled
    }
}

/// As a YAML double-quoted scalar: JSON's strings are a subset of those.
pub(crate) fn quoted(path: &Path) -> String {
    serde_json::Value::from(path.to_string_lossy()).to_string()
}

impl KeyFiles {
    /// The files that hold `pair`.
    pub(crate) fn files(self, pair: Pair) -> [File; 2] {
        [
            File::secret(self.1, pair.key),
            File::open(self.0, pair.certificate),
        ]
    }
}

// === impl File ===

impl File {
    /// A file that everybody may read.
    pub(crate) fn open(path: &'static str, contents: impl Into<Vec<u8>>) -> Self {
        Self {
            path,
            contents: contents.into(),
            secret: false,
        }
    }

    /// A file for its owner alone.
    pub(crate) fn secret(path: &'static str, contents: impl Into<Vec<u8>>) -> Self {
        Self {
            secret: true,
            ..Self::open(path, contents)
        }
    }
}

pub(crate) fn create(path: &Path, file: &File) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        let is_authority = file.path == AUTHORITY.1;
        make_folder(folder, if is_authority { 0o700 } else { 0o755 })?;
    }
    let mode = if file.secret { 0o600 } else { 0o644 };
    let mut handle = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    // Whatever the umask leaves of it.
    handle.set_permissions(Permissions::from_mode(mode))?;
    handle.write_all(&file.contents)
}

/// Makes what is missing of the folders down to `path`, the last with `mode`, whatever the umask.
fn make_folder(path: &Path, mode: u32) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(around) = path.parent() {
        make_folder(around, 0o755)?;
    }
    std::fs::DirBuilder::new().mode(mode).create(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Puts `file` in the place of the one that is there, whole.
///
/// # Errors
///
/// It cannot be written.
pub(crate) fn replace(directory: &Path, file: &File) -> Result<(), CommandError> {
    let path = directory.join(file.path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.new"));
    // What an interrupted run left is of no use.
    let _gone = fs::remove_file(&beside);
    create(&beside, file)
        .and_then(|()| fs::rename(&beside, &path))
        .map_err(|source| CommandError::file("write", &path, source))
}
