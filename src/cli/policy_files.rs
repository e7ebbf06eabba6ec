//! The policies by which a command decides, and the time for which it does: `--config`, `--manifests`
//! and `--cluster`; `--kubeconfig` and `--context` for those that are in a cluster now; `--at`.

use std::path::PathBuf;
use std::time::SystemTime;

use super::{CommandError, loading, output};
use crate::cluster::{LiveCluster, LivePurpose};
use crate::config::{self, DEFAULT_CLUSTER};
use crate::reload;
use portcullis_cel::Version;
use portcullis_policy::document::Document;
use portcullis_policy::engine::Time;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::manifest::{self, Options};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PolicyFiles {
    /// The configuration whose policies decide [default: that of the development set-up]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Manifests, as files or folders, that decide in place of a configuration.
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with = "config")]
    manifests: Vec<PathBuf>,
    /// The cluster that the request comes from.
    #[arg(long, default_value = DEFAULT_CLUSTER)]
    pub(crate) cluster: String,
    #[command(flatten)]
    pub(crate) live: LiveArguments,
}

/// What policies are loaded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyPurpose {
    /// Who may do what.
    Authorization,
    /// Whether objects are admitted, for which expressions may ask who may do what.
    Admission,
}

impl PolicyFiles {
    /// Reads and compiles them: those of files, or of a cluster as far as `purpose` needs them.
    ///
    /// # Errors
    ///
    /// A file cannot be read or has a fault; a cluster cannot be asked.
    pub(crate) fn load(&self, purpose: PolicyPurpose) -> Result<LoadedPolicies, CommandError> {
        if self.is_live() {
            if self.names_files() {
                let message = "the policies are read from files or from a cluster: name `--config` or \
                               `--manifests`, or `--kubeconfig` and `--context`";
                return Err(CommandError::Usage(message.to_owned()));
            }
            let purpose = match purpose {
                PolicyPurpose::Authorization => LivePurpose::Authorization,
                PolicyPurpose::Admission => LivePurpose::Both,
            };
            let now = SystemTime::now().into();
            return live_policies(&self.live.connect()?, &self.cluster, purpose, now);
        }
        let _ = purpose;
        self.load_files()
    }

    /// Whether files are named on the command line.
    pub(crate) const fn names_files(&self) -> bool {
        self.config.is_some() || !self.manifests.is_empty()
    }

    /// Whether a cluster is asked: it is named, or kubectl runs the program and no files are.
    pub(crate) fn is_live(&self) -> bool {
        self.live.is_named() || (output::is_plugin() && !self.names_files())
    }

    /// Reads and compiles those of files.
    ///
    /// # Errors
    ///
    /// A file cannot be read or has a fault.
    pub(crate) fn load_files(&self) -> Result<LoadedPolicies, CommandError> {
        if self.manifests.is_empty() {
            let path = loading::configuration(self.config.as_deref())?;
            loading::warn_of_unknown_cluster(&path, &self.cluster);
            return valid(&path.display().to_string(), loading::of_configuration(&path));
        }
        for path in &self.manifests {
            loading::readable(path)?;
        }
        valid(
            &loading::shown(&self.manifests),
            loading::of_paths(&self.manifests),
        )
    }

    /// Every object in the manifests, those that have faults left out.
    pub(crate) fn documents(&self) -> Vec<Document> {
        if !self.names_files() && self.is_live() {
            return Vec::new();
        }
        let paths = if self.manifests.is_empty() {
            let path = loading::configuration(self.config.as_deref()).ok();
            path.map(|path| config::examine(&path).0.manifests)
                .unwrap_or_default()
        } else {
            loading::everywhere(&self.manifests)
        };
        let (sources, mut faults) = reload::read_manifests(&paths);
        let sources = sources.iter();
        sources
            .flat_map(|source| manifest::documents(source, &mut faults))
            .collect()
    }
}

fn valid(
    path: &str,
    (loaded, faults): (Option<LoadedPolicies>, portcullis_policy::field::Faults),
) -> Result<LoadedPolicies, CommandError> {
    loaded.ok_or_else(|| CommandError::Faulty {
        path: path.to_owned(),
        faults,
    })
}

/// Where a cluster is, as for kubectl.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LiveArguments {
    /// Read the policies from the cluster of this kubeconfig, as kubectl would.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl LiveArguments {
    /// Whether a cluster is named on the command line.
    pub(crate) const fn is_named(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// Connects to the cluster named, or to the one that kubectl would.
    ///
    /// # Errors
    ///
    /// There is none, or it does not answer.
    pub(crate) fn connect(&self) -> Result<LiveCluster, CommandError> {
        LiveCluster::connect(self.kubeconfig.as_deref(), self.context.as_deref()).map_err(CommandError::from)
    }
}

/// The policies of `cluster`, which requests of the cluster `name` are decided by. What is
/// wrong in it is said, and counts as absent.
///
/// # Errors
///
/// They cannot be listed.
pub(crate) fn live_policies(
    cluster: &LiveCluster,
    name: &str,
    purpose: LivePurpose,
    now: Time,
) -> Result<LoadedPolicies, CommandError> {
    if let Some(why) = other_version(cluster) {
        output::complain(format_args!("warning: {why}"));
    }
    let found = cluster.policies(name, purpose)?;
    for fault in found.faults.iter() {
        output::complain(format_args!("warning: {fault}; it counts as absent"));
    }
    let options = Options {
        now: Some(now),
        cel_version: cluster.cel_version(),
        cluster_scoped: [(name.to_owned(), found.cluster_scoped)].into(),
        ..Options::default()
    };
    let manifests = manifest::assemble(&found.objects, &options);
    Ok(LoadedPolicies {
        namespace: Some(cluster.namespace().to_owned()),
        ..LoadedPolicies::of_manifests_for(manifests, options.cel_version)
    })
}

/// Why expressions are not compiled for the version of the API server, if they are not.
fn other_version(cluster: &LiveCluster) -> Option<String> {
    let compiled = cluster.cel_version();
    match cluster.minor_version() {
        None => Some(format!(
            "the API server does not say its version: expressions are compiled for Kubernetes {compiled}"
        )),
        Some(minor) if Version::new(minor) != compiled => Some(format!(
            "expressions are compiled for Kubernetes {compiled}; the API server is of version 1.{minor}, whose CEL may \
             calculate costs and errors differently"
        )),
        Some(_) => None,
    }
}

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct At {
    /// Decide for this time, in RFC 3339, such as `2026-12-01T08:00:00Z` [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    at: Option<Time>,
}

impl At {
    /// The time named, or now.
    pub(crate) fn time(self) -> Time {
        self.at.unwrap_or_else(|| SystemTime::now().into())
    }
}

pub(crate) fn parse_time(text: &str) -> Result<Time, &'static str> {
    Time::parse(text).ok_or("expected a time in RFC 3339, such as `2026-12-01T08:00:00Z`")
}
