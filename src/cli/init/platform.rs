//! The data types of set-ups, and the files of `init --for`: how each platform that runs API
//! servers is configured, in its own format.
//!
//! | platform | form | how the API server gets the files |
//! |---|---|---|
//! | kubeadm, k3s, RKE2 | a configuration file | the folder of the set-up, at the same path |
//! | Talos | a patch of the machine configuration, with the files | below `/var` |
//! | Cluster API | a patch of the KubeadmControlPlane, and a Secret | written on each machine |
//! | Kamaji, Kubermatic | a patch, and a Secret | mounted into the pod |
//! | Gardener | ConfigMap, Secret, and a patch of the Shoot | embedded |
//!
//! Sources: `siderolabs/talos` control_plane.go; `gardener/gardener` apiserver/authorization.go and
//! authorizationconfig/handler.go; `kubermatic/kubermatic` apiserver/deployment.go;
//! `clastix/kamaji` #1120.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::pki::{Host, Namespace, Pair};
use crate::cli::output::{self, CommandError};

/// The folder at which the files are mounted into pods or written on machines.
const MOUNT_PATH: &str = "/etc/kubernetes/portcullis";

/// The folder on Talos, which only writes files below `/var`.
const TALOS_PATH: &str = "/var/portcullis";

const AUTHORIZATION_CONFIGURATION: &str = "authorization-configuration.yaml";

/// The files of a set-up that an API server reads.
const API_SERVER_FILES: [&str; 9] = [
    AUTHORIZATION_CONFIGURATION,
    "admission-configuration.yaml",
    "kubeconfigs/authorization.kubeconfig",
    "kubeconfigs/admission.kubeconfig",
    TRUSTED,
    AUTHORIZATION.0,
    AUTHORIZATION.1,
    ADMISSION.0,
    ADMISSION.1,
];

/// The gateway's configuration, which marks a folder as a set-up.
pub(crate) const CONFIGURATION: &str = "portcullis.yaml";

/// The certificates and keys of a set-up.
pub(crate) const SERVER: KeyFiles = KeyFiles("pki/server.crt", "pki/server.key");
pub(crate) const AUTHORIZATION: KeyFiles = KeyFiles("pki/authorization.crt", "pki/authorization.key");
pub(crate) const ADMISSION: KeyFiles = KeyFiles("pki/admission.crt", "pki/admission.key");
/// The certificate authority that signs, in a folder that `serve` does not need.
pub(crate) const AUTHORITY: KeyFiles = KeyFiles("ca/ca.crt", "ca/ca.key");
/// All trusted certificate authorities.
pub(crate) const TRUSTED: &str = "pki/ca.crt";

/// The common names of the first certificates of a set-up.
pub(crate) const SERVER_NAME: &str = "portcullis";
pub(crate) const AUTHORIZATION_NAME: &str = "kube-apiserver-authorization";
pub(crate) const ADMISSION_NAME: &str = "kube-apiserver-admission";

/// The paths of a certificate and its key, relative to the folder of the set-up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyFiles(pub(crate) &'static str, pub(crate) &'static str);

/// The port of the gateway.
pub(crate) const PORT: u16 = 8443;

/// The options of a new set-up.
#[derive(Debug, Default)]
pub(crate) struct SetUp<'a> {
    /// The hosts at which the gateway is reached; if empty, only from its own machine.
    pub(crate) hosts: &'a [Host],
    /// The namespace of the gateway, if it runs in the cluster.
    pub(crate) in_cluster: Option<&'a Namespace>,
    /// Further namespaces about whose service accounts the API server does not ask the gateway.
    pub(crate) exempt: &'a [Namespace],
    pub(crate) examples: Examples,
    /// Whether the webhook configurations are static manifests.
    pub(crate) is_static: bool,
    /// Whether the gateway watches the cluster.
    pub(crate) watch: bool,
    /// The manifests of the RBAC objects that Kubernetes creates by itself.
    pub(crate) builtin_roles: Option<File>,
    /// The platform that runs the API servers, if it is configured in a format of its own.
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
    /// Policies, with Denies in mode Shadow, because they could lock out users of a cluster.
    InShadow,
    /// Policies in force, and RBAC, objects, a recording and a log to try each command with, and a
    /// console on a loopback address.
    InForce,
}

// === impl Platform ===

impl Platform {
    /// Checks that the files of this platform can be written.
    ///
    /// # Errors
    ///
    /// The platform cannot configure an authorizer, or `--static` does not work with it.
    pub(crate) fn check(self, is_static: bool) -> Result<(), CommandError> {
        if self == Self::Hypershift {
            return Err(CommandError::Usage(format!(
                "a HostedCluster of HyperShift has no field for an authorizer, and none for files of its API server: \
                 install admission by the chart, with `admission.enforceAuthorization` for Denies of writes \
                 (docs/install/managed.md). `{} init` is not needed",
                output::program()
            )));
        }
        if is_static && !self.reads_the_folder() {
            return Err(CommandError::Usage(
                "`--static` needs the folder of the set-up on the API servers' machines: it can be combined with \
                 `--for kubeadm`, `k3s` and `rke2`"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    const fn reads_the_folder(self) -> bool {
        matches!(self, Self::Kubeadm | Self::K3s | Self::Rke2)
    }

    /// The files of the platform, in addition to the `files` of the set-up.
    pub(crate) fn files(self, files: &[File], values: &TemplateValues<'_>) -> Vec<File> {
        let template = PlatformTemplate {
            files,
            values,
            mount_path: if self == Self::Talos {
                TALOS_PATH
            } else {
                MOUNT_PATH
            },
        };
        macro_rules! file {
            ($path:literal) => {
                template.file($path, include_str!(concat!("templates/platform/", $path)))
            };
        }
        let secret = || File {
            secret: true,
            ..template.file(
                "apiserver-secret.yaml",
                include_str!("templates/platform/secret.yaml"),
            )
        };
        match self {
            Self::Kubeadm => vec![file!("kubeadm.yaml")],
            Self::K3s => vec![file!("k3s.yaml")],
            Self::Rke2 => vec![file!("rke2.yaml")],
            Self::Talos => vec![File {
                secret: true,
                ..file!("talos.yaml")
            }],
            Self::Kamaji => vec![secret(), file!("kamaji.yaml")],
            Self::ClusterApi => vec![secret(), file!("cluster-api.yaml")],
            Self::Kubermatic => vec![
                secret(),
                file!("kubermatic.yaml"),
                file!("kubermatic-network-policy.yaml"),
            ],
            Self::Gardener => vec![
                File {
                    secret: true,
                    ..file!("gardener.yaml")
                },
                file!("gardener-shoot.yaml"),
            ],
            Self::Hypershift => Vec::new(),
        }
    }
}

struct PlatformTemplate<'t> {
    files: &'t [File],
    values: &'t TemplateValues<'t>,
    mount_path: &'static str,
}

// === impl PlatformTemplate ===

impl PlatformTemplate<'_> {
    fn file(&self, path: &'static str, template: &str) -> File {
        let folder = self.values.directory();
        let argument =
            |flag: &str, file: &str| quoted(Path::new(&format!("{flag}={}", folder.join(file).display())));
        let mount = format!("{0}:{0}:ro", folder.display());
        let pem = |file| STANDARD.encode(self.text(file));
        let mut text = template.to_owned();
        for (name, value) in [
            ("folder", quoted(folder)),
            ("mount", quoted(Path::new(&mount))),
            ("mount-path", self.mount_path.to_owned()),
            (
                "authorization-argument",
                argument("authorization-config", AUTHORIZATION_CONFIGURATION),
            ),
            (
                "admission-argument",
                argument("admission-control-config-file", "admission-configuration.yaml"),
            ),
            (
                "secret-data",
                self.each_file(|name, text| format!("  {name}: |\n{}", indented(text, 4))),
            ),
            (
                "machine-files",
                self.each_file(|name, text| self.machine_file(name, text)),
            ),
            ("node-files", self.each_file(|name, _| self.node_file(name))),
            ("authorizers", indented(&self.authorizers(), 4)),
            ("webhook", indented(&self.webhook_without_connection(), 4)),
            ("certificate", pem(AUTHORIZATION.0)),
            ("key", pem(AUTHORIZATION.1)),
        ] {
            text = text.replace(&format!("{{{{{name}}}}}"), &value);
        }
        File::open(path, self.values.fill(&text))
    }

    /// Concatenates what `write` returns for the name and text of each file that the API server
    /// reads.
    fn each_file(&self, write: impl Fn(&str, &str) -> String) -> String {
        let read = API_SERVER_FILES.iter();
        read.map(|path| write(name(path), &self.text(path))).collect()
    }

    fn machine_file(&self, name: &str, text: &str) -> String {
        let path = self.mount_path;
        let text = indented(text, 6);
        format!("  - path: {path}/{name}\n    permissions: 0o600\n    op: create\n    content: |\n{text}")
    }

    fn node_file(&self, name: &str) -> String {
        let path = self.mount_path;
        format!(
            "    - path: {path}/{name}\n      permissions: \"0600\"\n      contentFrom: {{secret: {{name: \
             portcullis-apiserver, key: {name}}}}}\n"
        )
    }

    /// The text of a file, with the paths at which the API server finds the other files.
    fn text(&self, path: &str) -> String {
        let found = self.files.iter().find(|file| file.path == path);
        let contents = found.map(|file| file.contents.as_slice()).unwrap_or_default();
        let mut text = String::from_utf8_lossy(contents).into_owned();
        for other in API_SERVER_FILES {
            let there = format!("{}/{}", self.mount_path, name(other));
            let here = quoted(&self.values.directory().join(other));
            text = text.replace(&here, &quoted(Path::new(&there)));
        }
        text
    }

    /// The list of authorizers.
    fn authorizers(&self) -> String {
        let text = self.text(AUTHORIZATION_CONFIGURATION);
        let list = text.split_once("authorizers:\n").map(|(_, list)| list);
        list.unwrap_or_default().to_owned()
    }

    /// The webhook in the list of authorizers, without its connection, which the platform adds.
    fn webhook_without_connection(&self) -> String {
        let authorizers = self.authorizers();
        let webhook = authorizers.split("- type: Node").next().unwrap_or_default();
        let (before, after) = webhook
            .split_once("    connectionInfo:\n")
            .unwrap_or((webhook, ""));
        let after = after
            .split_inclusive('\n')
            .skip_while(|line| line.starts_with("      "));
        before.to_owned() + &after.collect::<String>()
    }
}

/// The name under which a file is mounted.
fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// `text`, with each line indented by `by` spaces.
pub(crate) fn indented(text: &str, by: usize) -> String {
    text.lines()
        .map(|line| format!("{:by$}{line}", "").trim_end().to_owned() + "\n")
        .collect()
}

// === impl SetUp ===

impl SetUp<'_> {
    /// A set-up to try commands with, reachable from this machine only.
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
    /// The path relative to the folder of the set-up.
    pub(crate) path: &'static str,
    pub(crate) contents: Vec<u8>,
    /// Whether only the owner may read the file.
    pub(crate) secret: bool,
}

/// Replaces the placeholders in templates of one set-up.
pub(crate) struct TemplateValues<'a> {
    directory: &'a Path,
    values: Vec<(&'static str, String)>,
}

impl<'a> TemplateValues<'a> {
    /// `values` are the names of placeholders and their values. A value may contain placeholders
    /// that come later in the list.
    pub(crate) const fn new(directory: &'a Path, values: Vec<(&'static str, String)>) -> Self {
        Self { directory, values }
    }

    /// The folder of the set-up.
    pub(crate) const fn directory(&self) -> &'a Path {
        self.directory
    }

    /// `template` with its placeholders replaced.
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

/// `path` as a double-quoted YAML scalar, which JSON strings are.
pub(crate) fn quoted(path: &Path) -> String {
    serde_json::Value::from(path.to_string_lossy()).to_string()
}

impl KeyFiles {
    /// The files for `pair`.
    pub(crate) fn files(self, pair: Pair) -> [File; 2] {
        [
            File::secret(self.1, pair.key),
            File::open(self.0, pair.certificate),
        ]
    }
}

// === impl File ===

impl File {
    /// A file that all users may read.
    pub(crate) fn open(path: &'static str, contents: impl Into<Vec<u8>>) -> Self {
        Self {
            path,
            contents: contents.into(),
            secret: false,
        }
    }

    /// A file that only its owner may read.
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
    // The umask affected `mode` above, but does not affect this.
    handle.set_permissions(Permissions::from_mode(mode))?;
    handle.write_all(&file.contents)
}

/// Creates the missing folders of `path`, the last one with `mode`, regardless of the umask.
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

/// Atomically replaces an existing file by `file`.
///
/// # Errors
///
/// The file cannot be written.
pub(crate) fn replace(directory: &Path, file: &File) -> Result<(), CommandError> {
    let path = directory.join(file.path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.new"));
    // An interrupted run may have left a file.
    let _gone = fs::remove_file(&beside);
    create(&beside, file)
        .and_then(|()| fs::rename(&beside, &path))
        .map_err(|source| CommandError::file("write", &path, source))
}
