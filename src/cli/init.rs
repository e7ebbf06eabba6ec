//! `portcullis init`: writes the files of a set-up: keys, certificates and configuration.
//!
//! ```text
//! hosts --> pki --> kubeconfigs --> portcullis.yaml          (what the gateway reads)
//!                        '--------> *-configuration.yaml     (what the API server reads)
//!                                   webhooks.yaml, static/
//!                                   kustomization.yaml, …    (what a cluster runs)
//!                                   cluster/                 (what the gateway watches it with)
//! ```
//!
//! Files refer to certificates and keys by path, so that [`renew`] can replace these while the
//! gateway and the API server run.
//!
//! The example policies are those of `config/policies`. They are in force in a development set-up.
//! In others, Denies are in mode Shadow, because they could lock out users of a cluster: they are
//! evaluated, logged and counted, but not enforced, as their test suites expect.

mod files;
mod pki;
mod platform;
mod renew;
mod watch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;

use super::output::{self, CommandError, CommandResult, Format, Output};
use crate::cluster::LiveCluster;
use crate::config::files::{KeyFolderOwner, unsafe_for_keys};
use pki::Namespace;
use portcullis_cel::Version;
use portcullis_policy::authorization::rbac::bootstrap_policy;
use portcullis_policy::explain::Lines;

pub(crate) use pki::{Authority, Host, Pair, Usage, hosts_of};
use platform::{AUTHORITY, File, Platform, SERVER, create};
pub(crate) use platform::{CONFIGURATION, Examples, SERVER_NAME, SetUp};

/// Write keys, certificates and configuration files for a gateway and its API servers.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Init {
    /// The folder to write to. Existing files are never overwritten.
    directory: PathBuf,
    /// A DNS name or IP address at which the API server reaches the gateway; repeat for each.
    ///
    /// URLs contain the first one. The certificate is also valid for the names of loopback.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<Host>,
    /// Also write what this platform needs: patches of its objects, or files and flags of its API
    /// servers.
    #[arg(long = "for", value_enum, value_name = "PLATFORM", conflicts_with_all = ["in_cluster", "if_absent", "renew", "renew_ca", "credentials"])]
    platform: Option<Platform>,
    /// Also write manifests that run a gateway on each control plane node, in this namespace.
    ///
    /// Apply them with `kubectl apply -k`. The gateways use the network of the host. The API server
    /// does not call a gateway about this namespace.
    #[arg(long, value_name = "NAMESPACE")]
    in_cluster: Option<Namespace>,
    /// Exempt the service accounts of this namespace from every Deny; repeat for each.
    ///
    /// The API server does not call the gateway to authorize them.
    #[arg(long = "exempt-namespace", value_name = "NAMESPACE")]
    exempt: Vec<Namespace>,
    /// Also write manifests that let the gateway watch the RBAC objects and policies of its cluster.
    ///
    /// They contain CustomResourceDefinitions, roles and a service account: apply them with
    /// `kubectl apply -k`. The gateway then also watches Namespaces and webhook configurations.
    #[arg(long)]
    watch: bool,
    /// Also write manifests of the RBAC objects that this version of Kubernetes creates by default.
    ///
    /// For gateways that read RBAC objects from files. In an existing set-up, writes only these.
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, default_missing_value = "1.37",
        value_parser = ["1.36", "1.37"])]
    builtin_roles: Option<String>,
    /// Also write example policies with tests; those that deny are in mode Shadow.
    #[arg(long)]
    examples: bool,
    /// Write the webhook configurations as static manifests, for kube-apiserver 1.37 and later.
    ///
    /// By default, they are written to a file for `kubectl apply`.
    #[arg(long = "static")]
    is_static: bool,
    /// Write the service account's token and the API server's address to the folder.
    ///
    /// Use this after `init --watch` and `kubectl apply -k`. The address is the one that kubectl
    /// uses.
    #[arg(long, conflicts_with_all = ["hosts", "in_cluster", "exempt", "watch", "builtin_roles", "examples", "is_static", "if_absent", "renew", "renew_ca"])]
    credentials: bool,
    /// The kubeconfig with which `--credentials` reads the token [default: the one that kubectl
    /// uses]
    #[arg(long, value_name = "FILE", requires = "credentials")]
    kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", requires = "credentials")]
    context: Option<String>,
    /// The URL at which the gateway reaches the API server [default: that of the kubeconfig]
    #[arg(long, value_name = "URL", requires = "credentials")]
    server: Option<String>,
    /// Issue new certificates from the CA in the folder, for the existing hosts and those of
    /// `--host`.
    ///
    /// The old certificates are accepted until they expire.
    #[arg(long, conflicts_with_all = ["in_cluster", "exempt", "watch", "builtin_roles", "examples", "is_static", "if_absent", "renew_ca"])]
    renew: bool,
    /// Replace the CA, in two runs: the first lets both CAs be trusted, the second issues new
    /// certificates.
    #[arg(long, conflicts_with_all = ["in_cluster", "exempt", "watch", "builtin_roles", "examples", "is_static", "if_absent"])]
    renew_ca: bool,
    /// If the folder already has a set-up, leave it unchanged and succeed.
    #[arg(long)]
    if_absent: bool,
    #[command(flatten)]
    output: Output<Format>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis init gateway --examples
  portcullis init /etc/portcullis --watch --host gateway.example.com --host 10.0.0.7
  portcullis init /etc/portcullis --credentials --kubeconfig /etc/kubernetes/admin.conf
  portcullis init /etc/portcullis --renew";

/// The JSON output: the files that were written.
#[derive(Debug, Serialize)]
struct WrittenFiles<'a> {
    directory: &'a Path,
    files: Vec<&'a str>,
}

// === impl Init ===

impl Init {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let format = self.output.output;
        let named: PathBuf = self.directory.components().collect();
        if let Some(why) = unsafe_for_keys(&named, KeyFolderOwner::Own) {
            return Err(CommandError::Usage(why));
        }
        let directory = absolute(&named)?;
        if self.renew || self.renew_ca {
            return self.renew(&directory, format);
        }
        if self.credentials {
            return self.credentials(&directory, format);
        }
        if self.if_absent && directory.join(CONFIGURATION).exists() {
            let nothing = WrittenFiles {
                directory: &directory,
                files: Vec::new(),
            };
            let words = Lines::from_iter([format!("{} already exists", directory.display())]);
            output::print(format, &words, &nothing)?;
            return Ok(CommandResult::Success);
        }
        let builtin_roles = self.builtin_roles.as_deref().map(builtin_roles);
        if let Some(roles) = &builtin_roles
            && self.has_no_set_up_flags()
            && directory.join(CONFIGURATION).exists()
        {
            platform::replace(&directory, roles)?;
            let files = vec![roles.path];
            let words = written_message(&files, &directory);
            output::print(
                format,
                &words,
                &WrittenFiles {
                    directory: &directory,
                    files,
                },
            )?;
            return Ok(CommandResult::Success);
        }
        let set_up = SetUp {
            hosts: &self.hosts,
            in_cluster: self.in_cluster.as_ref(),
            exempt: &self.exempt,
            examples: if self.examples {
                Examples::InShadow
            } else {
                Examples::None
            },
            is_static: self.is_static,
            watch: self.watch,
            builtin_roles,
            platform: self.platform,
        };
        if let Some(platform) = self.platform {
            platform.check(self.is_static)?;
        }
        let files = write(&directory, &set_up)?;
        let mut words = written_message(&files, &directory);
        words.line(format_args!(
            "next: read {}, then",
            directory.join("README.md").display()
        ));
        for command in next_commands(&directory, &set_up) {
            words.line(format_args!("  {command}"));
        }
        let directory = &directory;
        output::print(format, &words, &WrittenFiles { directory, files })?;
        Ok(CommandResult::Success)
    }

    /// Whether no flag asks for files of a whole set-up.
    const fn has_no_set_up_flags(&self) -> bool {
        let is_plain = self.hosts.is_empty()
            && self.exempt.is_empty()
            && self.in_cluster.is_none()
            && self.platform.is_none();
        is_plain && !(self.watch || self.examples || self.is_static || self.if_absent)
    }

    fn renew(&self, directory: &Path, format: Format) -> Result<CommandResult, CommandError> {
        let now = SystemTime::now();
        check_folders(directory, [SERVER.1, AUTHORITY.1])?;
        let renewed = if self.renew {
            renew::renew(directory, &self.hosts, now)?
        } else {
            renew::renew_authority(directory, &self.hosts, now)?
        };
        let mut words = written_message(&renewed.files, directory);
        words.each("", &renewed.next);
        let written = WrittenFiles {
            directory,
            files: renewed.files,
        };
        output::print(format, &words, &written)?;
        Ok(CommandResult::Success)
    }

    fn credentials(&self, directory: &Path, format: Format) -> Result<CommandResult, CommandError> {
        check_folders(directory, [watch::TOKEN])?;
        watch::check_set_up(directory)?;
        let cluster = LiveCluster::connect(self.kubeconfig.as_deref(), self.context.as_deref())?;
        let files = watch::write_credentials(directory, &cluster, self.server.as_deref())?;
        let mut words = written_message(&files, directory);
        words.line("next: let the user that the gateway runs as read cluster/token, then");
        words.line(format_args!("  {}", serve_command(directory)));
        output::print(format, &words, &WrittenFiles { directory, files })?;
        Ok(CommandResult::Success)
    }
}

/// The RBAC objects that Kubernetes `version`, `1.36` or `1.37`, creates by itself.
fn builtin_roles(version: &str) -> File {
    let minor = version.strip_prefix("1.").and_then(|minor| minor.parse().ok());
    let version = minor.map_or(Version::NEWEST, Version::new);
    File::open("policies/kubernetes-roles.yaml", bootstrap_policy(version))
}

/// The text output: how many files were written, and where.
fn written_message(files: &[&str], directory: &Path) -> Lines {
    let count = output::count(files.len().try_into().unwrap_or(u64::MAX), "file");
    Lines::from_iter([format!("wrote {count} to {}", directory.display()), String::new()])
}

/// The commands that put the set-up into use.
fn next_commands(directory: &Path, set_up: &SetUp<'_>) -> Vec<String> {
    if let Some(namespace) = set_up.in_cluster {
        return vec![
            format!("kubectl apply -k {}", output::argument(directory)),
            format!("kubectl -n {namespace} rollout status daemonset/portcullis"),
        ];
    }
    let watch = set_up.watch.then(|| watch::commands(directory));
    watch
        .into_iter()
        .flatten()
        .chain([serve_command(directory)])
        .collect()
}

fn serve_command(directory: &Path) -> String {
    let configuration = output::argument(&directory.join(CONFIGURATION));
    format!("{} serve --config {configuration}", output::program())
}

/// Writes the files of `set_up` and returns their paths. The configuration is written last, so that
/// it only exists if all files do.
///
/// # Errors
///
/// A file exists already or cannot be written, or a key cannot be generated.
pub(crate) fn write(directory: &Path, set_up: &SetUp<'_>) -> Result<Vec<&'static str>, CommandError> {
    let files = files::compose(directory, set_up, now())?;
    refuse_to_overwrite(directory, &files)?;
    check_folders(directory, files.iter().map(|file| file.path))?;
    for file in &files {
        let path = directory.join(file.path);
        create(&path, file).map_err(|source| CommandError::file("write", &path, source))?;
    }
    Ok(files.into_iter().map(|file| file.path).collect())
}

/// Makes `path` absolute and resolves symbolic links, if it exists, because other programs use it
/// from other working directories.
///
/// # Errors
///
/// The working directory is unknown.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, CommandError> {
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(_) => std::path::absolute(path).map_err(|source| CommandError::file("find", path, source)),
    }
}

/// Checks that others cannot read or replace keys in the folders of `files`.
///
/// # Errors
///
/// A folder is a link, or others may write to it.
fn check_folders(
    directory: &Path,
    files: impl IntoIterator<Item = &'static str>,
) -> Result<(), CommandError> {
    let folders = files.into_iter().filter_map(|file| Path::new(file).parent());
    let folders: BTreeSet<PathBuf> = folders
        .map(|folder| directory.join(folder).components().collect())
        .collect();
    for folder in folders {
        if let Some(why) = unsafe_for_keys(&folder, KeyFolderOwner::Own) {
            return Err(CommandError::Usage(why));
        }
    }
    Ok(())
}

fn refuse_to_overwrite(directory: &Path, files: &[File]) -> Result<(), CommandError> {
    let there: Vec<&str> = files
        .iter()
        .map(|file| file.path)
        .filter(|path| directory.join(path).symlink_metadata().is_ok())
        .collect();
    if there.is_empty() {
        return Ok(());
    }
    Err(CommandError::Usage(format!(
        "`{}` already has {}: name another folder, or move these files first",
        directory.display(),
        there.join(", "),
    )))
}

/// The present time, in seconds since 1970.
fn now() -> i64 {
    time::OffsetDateTime::now_utc().unix_timestamp()
}
