//! The files of a set-up, and those of `init --for`: how each platform that runs API servers is configured, in its
//! own format.
//!
//! | platform | form | how the API server gets the files |
//! |---|---|---|
//! | kubeadm, k3s, RKE2 | a configuration file | the folder of the set-up, at the same path |
//! | Talos | a patch of the machine configuration, with the files | below `/var` |
//! | Cluster API | a patch of the KubeadmControlPlane, and a Secret | written on each machine |
//! | Kamaji, Kubermatic | a patch, and a Secret | mounted into the pod |
//! | Gardener | ConfigMap, Secret, and a patch of the Shoot | embedded |
//!
//! Facts: `siderolabs/talos` control_plane.go; `gardener/gardener` apiserver/authorization.go and
//! authorizationconfig/handler.go; `kubermatic/kubermatic` apiserver/deployment.go; `clastix/kamaji` #1120.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::pki::{Host, Namespace, Pair};
use crate::cli::output::{self, CommandError};

/// The path of the files where they are mounted into pods or written on machines.
const MOUNT_PATH: &str = "/etc/kubernetes/portcullis";

/// The same on Talos, which writes files below `/var` alone.
const TALOS_PATH: &str = "/var/portcullis";

const AUTHORIZATION_CONFIGURATION: &str = "authorization-configuration.yaml";

/// The files of a set-up that an API server reads.
const READ_BY_THE_API_SERVER: [&str; 9] = [
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

/// The gateway's configuration. A folder that has it is a set-up.
pub(crate) const CONFIGURATION: &str = "portcullis.yaml";

/// The certificates of a set-up, each with its key.
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

/// The options of a new set-up.
#[derive(Debug, Default)]
pub(crate) struct SetUp<'a> {
    /// The names and addresses at which the gateway is reached; if there are none, only from its own machine.
    pub(crate) hosts: &'a [Host],
    /// The namespace in which the gateway runs, where it runs in the cluster.
    pub(crate) in_cluster: Option<&'a Namespace>,
    /// Further namespaces for whose service accounts the gateway is never asked.
    pub(crate) exempt: &'a [Namespace],
    /// Which examples there are.
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
    /// Policies, with Denies in mode Shadow: there may be a cluster to lock out.
    InShadow,
    /// Policies in force, RBAC, objects, a recording and a log to try each command with, and a
    /// console for this machine alone.
    InForce,
}

// === impl Platform ===

impl Platform {
    /// Checks that the files of this platform can be written.
    ///
    /// # Errors
    ///
    /// The platform has no way to configure an authorizer, or no use for `--static`.
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

/// Fills the templates of one platform.
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
            ("webhook", indented(&self.webhook_alone(), 4)),
            ("certificate", pem(AUTHORIZATION.0)),
            ("key", pem(AUTHORIZATION.1)),
        ] {
            text = text.replace(&format!("{{{{{name}}}}}"), &value);
        }
        File::open(path, self.values.fill(&text))
    }

    /// The text that `write` returns for each file that the API server reads, given the file's name and text.
    fn each_file(&self, write: impl Fn(&str, &str) -> String) -> String {
        let read = READ_BY_THE_API_SERVER.iter();
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

    /// The text of a file, with the paths at which the other files are mounted.
    fn text(&self, path: &str) -> String {
        let found = self.files.iter().find(|file| file.path == path);
        let contents = found.map(|file| file.contents.as_slice()).unwrap_or_default();
        let mut text = String::from_utf8_lossy(contents).into_owned();
        for other in READ_BY_THE_API_SERVER {
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

    /// The webhook of that list, without its connection, which the platform fills in.
    fn webhook_alone(&self) -> String {
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

/// `text`, with each line indented by so many spaces.
pub(crate) fn indented(text: &str, by: usize) -> String {
    text.lines()
        .map(|line| format!("{:by$}{line}", "").trim_end().to_owned() + "\n")
        .collect()
}

// === impl SetUp ===

impl SetUp<'_> {
    /// A set-up to try things with, on this machine alone.
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
    /// Whether only its owner may read it.
    pub(crate) secret: bool,
}

/// Fills the templates of one set-up.
pub(crate) struct TemplateValues<'a> {
    directory: &'a Path,
    values: Vec<(&'static str, String)>,
}

impl<'a> TemplateValues<'a> {
    /// `values` are the placeholders and what replaces them. A value may contain placeholders that come later in
    /// the list.
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
    // The umask applies to `mode` above, not here.
    handle.set_permissions(Permissions::from_mode(mode))?;
    handle.write_all(&file.contents)
}

/// Makes the missing folders down to `path`, the last with `mode`, regardless of the umask.
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

/// Replaces the file that is there by `file`, atomically.
///
/// # Errors
///
/// It cannot be written.
pub(crate) fn replace(directory: &Path, file: &File) -> Result<(), CommandError> {
    let path = directory.join(file.path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.new"));
    // An interrupted run may have left one, which is of no use.
    let _gone = fs::remove_file(&beside);
    create(&beside, file)
        .and_then(|()| fs::rename(&beside, &path))
        .map_err(|source| CommandError::file("write", &path, source))
}
