//! A policy set as it is after one object of it is written.

use std::sync::Arc;

use super::{ChangedPolicies, PolicySet, PolicySetChange};
use crate::authorization::{AuthorizationInvariant, AuthorizationPolicy, Binding, Role};

/// An object that is created or replaced, or an AuthorizationPolicy that is deleted. Nobody is allowed
/// more once a role or binding is gone.
#[derive(Debug, Clone)]
pub enum ObjectWrite {
    /// A Role or ClusterRole.
    Role(Arc<Role>),
    /// A RoleBinding or ClusterRoleBinding.
    Binding(Arc<Binding>),
    /// An AuthorizationPolicy.
    Policy(Arc<AuthorizationPolicy>),
    /// The AuthorizationPolicy of this name, which is deleted.
    DeletedPolicy(String),
    /// An AuthorizationInvariant.
    Invariant(Arc<AuthorizationInvariant>),
}

impl PolicySet {
    /// This set after `write`; it shares with this one what is the same.
    #[must_use]
    pub fn after_write(&self, write: &ObjectWrite) -> Option<Self> {
        let mut change = PolicySetChange {
            cluster_scoped: self.cluster_scoped.clone(),
            ..PolicySetChange::default()
        };
        match write {
            ObjectWrite::Role(role) => {
                let others = self.roles.iter().filter(|other| other.key() != role.key());
                change.roles = Some(others.chain([role]).cloned().collect());
            }
            ObjectWrite::Binding(binding) => {
                let bindings = self.bindings.iter().map(|bound| &bound.binding);
                let earlier = bindings
                    .filter(|other| (&other.namespace, &other.name) == (&binding.namespace, &binding.name));
                change.removed_bindings = earlier.cloned().collect();
                change.added_bindings = vec![Arc::clone(binding)];
            }
            ObjectWrite::Policy(policy) => {
                change.policies = Some(self.policies_with(&policy.name, Some(policy)));
            }
            ObjectWrite::DeletedPolicy(name) => change.policies = Some(self.policies_with(name, None)),
            ObjectWrite::Invariant(invariant) => {
                let policies = self.policies.policies.iter().map(|indexed| &indexed.policy);
                let others = self.invariants().filter(|other| other.name() != invariant.name());
                change.policies = Some(ChangedPolicies::Objects(
                    policies.cloned().collect(),
                    others.chain([invariant]).cloned().collect(),
                ));
            }
        }
        self.changed(change)
    }

    /// The policies, with `written` in place of the one called `name`.
    fn policies_with(&self, name: &str, written: Option<&Arc<AuthorizationPolicy>>) -> ChangedPolicies<'_> {
        let policies = self.policies.policies.iter().map(|indexed| &indexed.policy);
        let others = policies.filter(|other| other.name != name);
        ChangedPolicies::Objects(
            others.chain(written).cloned().collect(),
            self.policies.invariants.clone(),
        )
    }
}
