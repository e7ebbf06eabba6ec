//! The present policies of a cluster, to which the command connects like kubectl: alone, together
//! with those in a gateway's files, or with manifests applied.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;

use super::output::{self, CommandError};
use crate::cluster::{ListedPlace, LiveCluster, LivePolicies, LivePurpose};
use crate::config::{ClusterEntry, Config};
use crate::state::{self, ManifestSource, WatchedObjects, WatchedPart};
use portcullis_cel::Version;
use portcullis_policy::document::{self, Document};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::explain::escalations::RunningPods;
use portcullis_policy::explain::objects::{KindResource, KnownKinds};
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath};
use portcullis_policy::manifest::{self, ObjectIdentity, Options, ValidatedObject};
use portcullis_policy::model::Time;
use portcullis_policy::model::groups::RBAC;

/// Where a cluster is, as for kubectl.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct LiveArguments {
    /// Read the policies from the cluster of this kubeconfig; with `--config`, also from the
    /// gateway's files.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// A cluster, and the objects that it has or would have.
pub(crate) struct LiveState<'c> {
    cluster: &'c LiveCluster,
    name: &'c str,
    found: LivePolicies,
}

// === impl LiveArguments ===

impl LiveArguments {
    pub(crate) const fn is_named(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// Connects to the cluster on the command line, or to that of kubectl's kubeconfig.
    ///
    /// # Errors
    ///
    /// There is no such cluster, or it does not respond.
    pub(crate) fn connect(&self) -> Result<LiveCluster, CommandError> {
        LiveCluster::connect(self.kubeconfig.as_deref(), self.context.as_deref()).map_err(CommandError::from)
    }
}

// === impl LiveState ===

impl<'c> LiveState<'c> {
    /// Reads the objects of `cluster` that `purpose` needs. `name` is the `cluster` of its
    /// requests. Prints a warning for each invalid object, and ignores it.
    ///
    /// # Errors
    ///
    /// The objects cannot be listed.
    pub(crate) fn read(
        cluster: &'c LiveCluster,
        name: &'c str,
        purpose: LivePurpose,
    ) -> Result<Self, CommandError> {
        if let Some(why) = version_warning(cluster) {
            output::print_error(format_args!("warning: {why}"));
        }
        Ok(Self::of(cluster, name, cluster.policies(name, purpose)?))
    }

    /// Like [`Self::read`], but only reads what a gateway with `config` would use.
    ///
    /// # Errors
    ///
    /// The objects cannot be listed.
    pub(crate) fn read_as_watched(
        cluster: &'c LiveCluster,
        name: &'c str,
        config: &Config,
    ) -> Result<Self, CommandError> {
        let entry = config.clusters.iter().find(|entry| entry.name == name);
        Ok(Self::of(cluster, name, cluster.policies_as_watched(name, entry)?))
    }

    fn of(cluster: &'c LiveCluster, name: &'c str, found: LivePolicies) -> Self {
        for fault in found.faults.iter() {
            output::print_error(format_args!("warning: {fault}; it is treated as absent"));
        }
        Self { cluster, name, found }
    }

    /// Compiles the policies at `now`, without a gateway's files.
    pub(crate) fn policies(&self, now: Time) -> LoadedPolicies {
        let options = Options {
            now: Some(now),
            cel_version: self.cluster.cel_version(),
            cluster_scoped: [(self.name.to_owned(), self.found.cluster_scoped.clone())].into(),
            ..Options::default()
        };
        let manifests = manifest::assemble(&self.found.objects, &options);
        LoadedPolicies {
            namespace: Some(self.cluster.namespace().to_owned()),
            kinds: served_kinds(self.cluster),
            ..LoadedPolicies::of_manifests_for(manifests, options.cel_version)
        }
    }

    /// Compiles the policies together with the files of `config`, merged as in `serve`.
    pub(crate) fn policies_with(&self, config: &Config) -> (Option<LoadedPolicies>, Faults) {
        let mut config = config.clone();
        if !config.clusters.iter().any(|entry| entry.name == self.name) {
            config.clusters.push(ClusterEntry::named(self.name));
        }
        let source = LiveObjects::new(self.name, &self.found);
        let (policies, faults) = state::policies(&config, &source, SystemTime::now());
        let policies = policies.filter(|_| !faults.has_errors());
        let webhooks = &config.authorization.webhooks;
        let loaded = policies.map(|(policies, admission)| LoadedPolicies {
            policies,
            admission,
            authorizers: webhooks.iter().map(|entry| entry.rules.clone()).collect(),
            namespace: Some(self.cluster.namespace().to_owned()),
            kinds: served_kinds(self.cluster),
        });
        (loaded, faults)
    }

    /// The state after applying those of `documents` that affect authorization. Each replaces the
    /// object of its name. Objects without a namespace are put into that of the context, if they
    /// need one.
    ///
    /// # Errors
    ///
    /// An object is invalid, or occurs twice.
    pub(crate) fn after_applying(&self, documents: Vec<Document>) -> Result<Self, Faults> {
        let mut faults = Faults::new();
        let mut applied: Vec<Arc<ValidatedObject>> = Vec::new();
        let mut identities = HashSet::new();
        for document in documents.into_iter().filter(affects_authorization) {
            let document = self.with_context_namespace(document);
            let place = document.place(FieldPath::root());
            match ValidatedObject::read(document, self.name.into(), self.cluster.cel_version()) {
                Ok(object) if !identities.insert(object.identity().clone()) => {
                    faults.push(Fault::error(
                        place,
                        FaultKind::Duplicate,
                        "the same object occurs earlier in these files: keep one of the two",
                    ));
                }
                Ok(object) => applied.push(Arc::new(object)),
                Err(found) => faults.append(found),
            }
        }
        if faults.has_errors() {
            return Err(faults);
        }
        let kept = self.found.objects.iter();
        let kept = kept.filter(|object| !identities.contains(object.identity()));
        let objects = kept.cloned().chain(applied).collect();
        Ok(Self {
            found: LivePolicies {
                objects,
                faults: Faults::new(),
                cluster_scoped: self.found.cluster_scoped.clone(),
            },
            ..*self
        })
    }

    /// Sets the namespace of the context, if `document` needs a namespace and has none.
    fn with_context_namespace(&self, document: Document) -> Document {
        let identity = ObjectIdentity::of(&document);
        let needs = matches!(identity.kind(), "Role" | "RoleBinding") && identity.namespace().is_empty();
        if !needs {
            return document;
        }
        let mut object = document.root().to_json();
        if let Some(metadata) = object
            .get_mut("metadata")
            .and_then(|metadata| metadata.as_object_mut())
        {
            metadata.insert("namespace".to_owned(), self.cluster.namespace().into());
        }
        let placed = document::parse(document.file().map(AsRef::as_ref), &document::to_yaml(&object));
        placed
            .ok()
            .and_then(|mut placed| placed.pop())
            .unwrap_or(document)
    }
}

/// Whether this is an object that affects authorization, including Namespaces, which selectors
/// match.
fn affects_authorization(document: &Document) -> bool {
    let identity = ObjectIdentity::of(document);
    match (identity.group(), identity.kind()) {
        (RBAC, _) | ("", "Namespace") => true,
        ("portcullis.dev", kind) => matches!(kind, "AuthorizationPolicy" | "AuthorizationInvariant"),
        _ => false,
    }
}

/// Loads the present policies of `cluster`, as those for requests of the cluster `name`. Prints a
/// warning for each invalid object, and ignores it.
///
/// # Errors
///
/// The objects cannot be listed.
pub(crate) fn live_policies(
    cluster: &LiveCluster,
    name: &str,
    purpose: LivePurpose,
    now: Time,
) -> Result<LoadedPolicies, CommandError> {
    Ok(LiveState::read(cluster, name, purpose)?.policies(now))
}

/// The present objects of a cluster, as the source of manifests that in `serve` is a watch.
struct LiveObjects(Arc<WatchedObjects>);

impl LiveObjects {
    fn new(cluster: &str, found: &LivePolicies) -> Self {
        let part = WatchedPart {
            objects: found.objects.clone(),
            ..WatchedPart::default()
        };
        Self(Arc::new(WatchedObjects {
            cluster: cluster.to_owned(),
            parts: vec![Arc::new(part)],
            cluster_scoped: found.cluster_scoped.clone(),
            ..WatchedObjects::default()
        }))
    }
}

impl ManifestSource for LiveObjects {
    fn objects(&self, _: &Config) -> Vec<Arc<WatchedObjects>> {
        vec![Arc::clone(&self.0)]
    }
}

/// For each service account, one running Pod that uses it.
///
/// # Errors
///
/// The Pods cannot be listed.
pub(crate) fn running_pods(cluster: &LiveCluster) -> Result<RunningPods, CommandError> {
    let mut running = RunningPods::new();
    let mut resources = cluster.resources().iter();
    let Some(pods) = resources.find(|resource| resource.group.is_empty() && resource.resource == "pods")
    else {
        return Ok(running);
    };
    cluster.list(pods, ListedPlace::Everywhere, |page| {
        for pod in page {
            let text = |pointer: &str| {
                pod.pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            let has_ended = ["Succeeded", "Failed"].contains(&text("/status/phase").as_str());
            let account = (text("/metadata/namespace"), text("/spec/serviceAccountName"));
            if !has_ended && !account.1.is_empty() {
                running.entry(account).or_insert_with(|| text("/metadata/name"));
            }
        }
        Ok::<(), CommandError>(())
    })?;
    Ok(running)
}

/// The resources under which `cluster` serves its kinds.
pub(crate) fn served_kinds(cluster: &LiveCluster) -> KnownKinds {
    let mut kinds = KnownKinds::default();
    for resource in cluster.resources() {
        let served = KindResource {
            group: resource.group.clone(),
            resource: resource.resource.clone(),
            is_namespaced: resource.is_namespaced,
            is_guess: false,
        };
        kinds.add_served(&resource.kind, served);
    }
    kinds
}

/// The warning if expressions are not compiled for the version of the API server.
fn version_warning(cluster: &LiveCluster) -> Option<String> {
    let compiled = cluster.cel_version();
    match cluster.minor_version() {
        None => Some(format!(
            "the API server does not report its version: expressions are compiled for Kubernetes {compiled}"
        )),
        Some(minor) if Version::new(minor) != compiled => Some(format!(
            "expressions are compiled for Kubernetes {compiled}; the API server is of version 1.{minor}, whose CEL may \
             calculate costs and errors differently"
        )),
        Some(_) => None,
    }
}
