//! `--kubeconfig` and `--context`: policies as they are in a cluster now.

use std::path::PathBuf;

use super::{Error, output};
use crate::cluster::{LiveCluster, LivePurpose};
use portcullis_cel::Version;
use portcullis_policy::engine::Time;
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::manifest::{self, Options};

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
    pub(crate) fn connect(&self) -> Result<LiveCluster, Error> {
        LiveCluster::connect(self.kubeconfig.as_deref(), self.context.as_deref()).map_err(Error::from)
    }
}

/// The policies of `cluster`, which requests of the cluster `name` are decided by. What is
/// wrong in it is said, and counts as absent.
///
/// # Errors
///
/// They cannot be listed.
pub(crate) fn policies(
    cluster: &LiveCluster,
    name: &str,
    purpose: LivePurpose,
    now: Time,
) -> Result<LoadedPolicies, Error> {
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
