//! Stand-ins for the API servers of many clusters: what they store is listed and watched.
//!
//! ```text
//! gateway ──TLS──▶ server ─▶ /CLUSTER/… ─▶ StoredCluster ─▶ discovery, a page of a list, or a watch
//!                                           ▲    │
//!              the test: put, delete, behave┘    └─▶ asked(): what came, for the test to look at
//! ```
//!
//! They are for numbers and for hostility; what an API server means, a real one says.

#![allow(dead_code, reason = "each test program uses its own part of the harness")]

mod cluster;
mod server;

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::kubeconfig::{self, Credential};
use super::pki::{Authority, Identity};
use cluster::StoredCluster;

/// API servers on one address, each below a path of its own.
pub(crate) struct ApiServers {
    address: SocketAddr,
    authority: Vec<u8>,
    clusters: Arc<[StoredCluster]>,
    farewells: watch::Sender<()>,
    /// Ends the server when it is dropped.
    _runtime: tokio::runtime::Runtime,
}

/// How an API server answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// As it should.
    #[default]
    Serves,
    /// Never.
    Hangs,
    /// Every page of a list is followed by another one, of other objects.
    EndlessLists,
    /// A list that never ends, in one body.
    EndlessBodies,
    /// A watch brings new objects as fast as they are taken.
    EndlessEvents,
    /// A watch ends as soon as it has begun.
    EndsWatches,
    /// A watch brings what is no event, and objects of other kinds.
    WrongEvents,
    /// Every path is not found, as by a load balancer without a backend.
    NotFound,
    /// The groups are as they should be, but no group has AuthorizationPolicies.
    LacksPolicies,
    /// The definition of AuthorizationPolicies was deleted, and they with it.
    DefinitionDeleted,
    /// The same, from a server that lists its groups as before Kubernetes 1.26: without what is in them.
    OlderDiscovery,
    /// Watches have expired, and lists are empty and of version 1: the etcd is another one.
    AnotherEtcd,
    /// Watches have expired, and lists are empty, as new as they should be.
    EmptyLists,
    /// Lists are empty and of a version far ahead, and no groups are served: it is no API server.
    EmptyListsWithoutGroups,
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Below the cluster's own path.
    pub(crate) path: String,
    /// What stands after the `?`.
    pub(crate) query: String,
    /// Which of the server's connections it came on, from 0.
    pub(crate) connection: usize,
}

/// A kind that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredKind {
    pub(crate) group_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) is_namespaced: bool,
}

/// What there is to be listed and watched.
pub(crate) const KINDS: [StoredKind; 14] = [
    kind("v1", "Namespace", "namespaces", false),
    kind("v1", "ConfigMap", "configmaps", true),
    kind("rbac.authorization.k8s.io/v1", "Role", "roles", true),
    kind(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        "clusterroles",
        false,
    ),
    kind(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        "rolebindings",
        true,
    ),
    kind(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        false,
    ),
    kind(
        "portcullis.dev/v1alpha1",
        "AuthorizationPolicy",
        "authorizationpolicies",
        false,
    ),
    kind(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        false,
    ),
    kind(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        false,
    ),
    kind(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        false,
    ),
    kind(
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        false,
    ),
    kind(
        "admissionregistration.k8s.io/v1",
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        false,
    ),
    kind(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        false,
    ),
    kind(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        false,
    ),
];

const fn kind(
    group_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    is_namespaced: bool,
) -> StoredKind {
    StoredKind {
        group_version,
        kind,
        plural,
        is_namespaced,
    }
}

impl ApiServers {
    /// So many, which store `objects` each: those that `objects` gives for its number.
    ///
    /// # Panics
    /// When an object is of none of [`KINDS`], or there is no port.
    pub(crate) fn start(
        authority: &Authority,
        count: usize,
        objects: impl Fn(usize) -> Vec<Arc<str>>,
    ) -> Self {
        Self::with(authority, authority.server(), count, objects)
    }

    /// The same, with this certificate.
    ///
    /// # Panics
    /// As [`ApiServers::start`].
    pub(crate) fn with(
        authority: &Authority,
        identity: Identity,
        count: usize,
        objects: impl Fn(usize) -> Vec<Arc<str>>,
    ) -> Self {
        let clusters: Arc<[StoredCluster]> = (0..count)
            .map(|cluster| StoredCluster::new(objects(cluster)))
            .collect();
        let farewells = watch::Sender::new(());
        let (runtime, address) = server::start(&identity, Arc::clone(&clusters), &farewells);
        Self {
            address,
            authority: authority.pem(),
            clusters,
            farewells,
            _runtime: runtime,
        }
    }

    /// A kubeconfig for the API server of this number.
    pub(crate) fn kubeconfig(&self, cluster: usize) -> String {
        let server = format!("https://{}/{cluster}", self.address);
        kubeconfig::render(
            &server,
            &self.authority,
            &Credential::Token(format!("token-{cluster}")),
        )
    }

    /// Creates or replaces an object.
    ///
    /// # Panics
    /// When it is of none of [`KINDS`].
    pub(crate) fn put(&self, cluster: usize, object: &Value) {
        self.clusters[cluster].put(object.to_string().into());
    }

    /// Deletes the object that is so called in `plural`.
    pub(crate) fn delete(&self, cluster: usize, plural: &str, namespace: &str, name: &str) {
        self.clusters[cluster].delete(plural, namespace, name);
    }

    /// Answers requests of this path, which is no list, with a text.
    pub(crate) fn publish(&self, cluster: usize, path: &'static str, text: String) {
        self.clusters[cluster].publish(path, text);
    }

    /// How it answers from now on. Watches that run already end.
    pub(crate) fn behave(&self, cluster: usize, behaviour: Behaviour) {
        self.clusters[cluster].behave(behaviour);
    }

    /// Sends GOAWAY on every connection there is: what was asked on it goes on.
    pub(crate) fn say_farewell(&self) {
        self.farewells.send_replace(());
    }

    /// Every request to it so far.
    pub(crate) fn asked(&self, cluster: usize) -> Vec<Asked> {
        self.clusters[cluster].asked()
    }
}
