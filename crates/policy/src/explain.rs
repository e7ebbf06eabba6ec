//! Answers for people and programs: what decides a request, who may do something, what becomes
//! of a manifest. The command line prints them and the console shows them, so both give the same
//! answer to the same question.
//!
//! ```text
//! question --> the engine's own functions --> a report --> JSON (`serde::Serialize`) | words (`Lines`)
//! ```
//!
//! Nothing here reads arguments or files, and nothing is called.

pub mod admission;
pub mod authorization;
pub mod difference;
pub mod escalations;
pub mod invariants;
pub mod lines;
pub mod logged;
pub mod objects;
pub mod recorded;
pub mod request;
pub mod sentences;
pub mod what_can;
pub mod who_can;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::authorization::authorizer::Authorizer;
use crate::authorization::{Policies, PolicySet, RoleKind};
use crate::engine::admission::{AdmissionPolicies, AdmissionSettings, Phase};
use crate::manifest;
use objects::CustomKinds;
use portcullis_cel::Version;

pub use lines::{Lines, TextTable};

// All that decides.

/// All that decides.
pub struct LoadedPolicies {
    pub policies: Policies,
    /// Those of `authorization.webhooks`.
    pub authorizers: Vec<Authorizer>,
    pub admission: AdmissionPolicies,
    /// That of the context of a kubeconfig.
    pub namespace: Option<String>,
    /// What the cluster serves that they were read from.
    pub kinds: CustomKinds,
}

/// That nothing is known of what RBAC allows in `cluster`, whose requests `set` decides: there is no
/// binding, while each API server makes some by itself. `None` where there is one.
#[must_use]
pub fn unknown_rbac(set: &PolicySet, cluster: &str) -> Option<String> {
    let is_known = set.bindings().next().is_some();
    (!is_known).then(|| {
        format!("no RBAC object of the cluster `{cluster}` is known here, so what its RBAC allows is missing")
    })
}

impl LoadedPolicies {
    /// What `manifests` decide by, without a configuration beside them.
    pub fn of_manifests(manifests: manifest::Manifests) -> Self {
        Self::of_manifests_for(manifests, Version::default())
    }

    /// The same where expressions are compiled for `cel_version`.
    pub fn of_manifests_for(manifests: manifest::Manifests, cel_version: Version) -> Self {
        let settings = AdmissionSettings {
            cel_version,
            ..AdmissionSettings::default()
        };
        Self {
            admission: manifests.admission(&settings),
            policies: manifests.policies,
            authorizers: Vec::new(),
            namespace: None,
            kinds: CustomKinds::default(),
        }
    }

    /// The sets of all clusters, that of those without manifests of their own first.
    pub fn sets(&self) -> impl Iterator<Item = (Option<&str>, &PolicySet)> {
        let clusters = self.policies.clusters.iter();
        let own = clusters.map(|(cluster, set)| (Some(cluster.as_str()), &**set));
        std::iter::once((None, &*self.policies.shared)).chain(own)
    }

    /// Lets the ClusterRoles that an API server makes by itself count as it makes them, in each set
    /// that does not have them.
    pub fn add_default_roles(&mut self) {
        let roles = manifest::default_roles();
        let sets = [&mut self.policies.shared].into_iter();
        for set in sets.chain(self.policies.clusters.values_mut()) {
            *set = Arc::new(set.with_roles(roles));
        }
    }

    /// The names of the ClusterRoles that bindings of `cluster` refer to, that it does not have, and
    /// that an API server makes by itself.
    #[must_use]
    pub fn lacking_default_roles(&self, cluster: &str) -> BTreeSet<String> {
        let set = self.policies.for_cluster(cluster);
        let is_known = |name: &str| {
            let mut roles = set.roles().iter();
            roles.any(|role| role.namespace.is_empty() && role.name == name)
        };
        let bound = set
            .bindings()
            .filter(|binding| binding.role.kind == RoleKind::ClusterRole);
        let mut lacking: BTreeSet<String> = bound
            .map(|binding| binding.role.name.clone())
            .filter(|name| !is_known(name))
            .collect();
        if !lacking.is_empty() {
            let defaults = manifest::default_roles();
            lacking.retain(|name| {
                defaults
                    .iter()
                    .any(|role| role.namespace.is_empty() && role.name == *name)
            });
        }
        lacking
    }

    /// Whether one of the phases has a policy of this name.
    pub fn has_policy(&self, cluster: &str, phases: &[Phase], name: &str) -> bool {
        let policies = self.admission.for_cluster(cluster);
        phases.iter().any(|phase| policies.has(*phase, name))
    }
}
