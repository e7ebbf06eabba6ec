//! The policy set of one cluster, indexed and immutable.
//!
//! ```text
//!               ┌──── Deny, Limit ─────┐   ┌──── RBAC ────┐   ┌─────── Allow ───────┐
//! Attributes ─> policies touched, by name ─> first binding ─> policies within, by name ─> AccessRequests ─> no opinion
//!               └─ not for neverDeny ──┘   └──────────────┘   └─────────────────────┘
//!
//! A request touches a Limit if it lies within none of its rules.
//! ```
//!
//! Policies in mode Shadow are evaluated first and separately: they never change the decision.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use super::access_request::{AccessGrants, AccessRequestSettings, AccessRequestTrust};
use super::index::{BindingIndex, BoundRole, NamespaceIndex, PolicyIndex};
use super::matching::ClusterScoped;
use super::never_deny::NeverDenyMatcher;
use super::rbac::{self, RoleResolver};
use super::reviewed_resources::{GrantHistory, ReviewedResources};
use super::{
    AccessRequest, AuthorizationInvariant, AuthorizationPolicy, Binding, NamespaceLabels, NeverDeny, Objects,
    Role, SharedObjects,
};
use crate::model::{Attributes, CauseKind, Time, User};

/// The policy sets of all clusters.
#[derive(Debug, Clone)]
pub struct ClusterPolicySets {
    /// The set for clusters without manifests of their own.
    pub shared: Arc<PolicySet>,
    /// The sets of the clusters with manifests of their own; each includes the shared manifests.
    pub clusters: HashMap<String, Arc<PolicySet>>,
}

/// The roles, bindings and policies of one cluster.
///
/// Building a set takes time linear in its objects. A decision takes time proportional to the rules
/// that could apply to the request, not to those that are loaded. A set that is derived from
/// another one shares the unchanged parts.
#[derive(Clone)]
pub struct PolicySet {
    pub(crate) roles: Arc<Vec<Arc<Role>>>,
    /// Whether ClusterRoles with an aggregation rule have the aggregated rules here, instead of
    /// those written in them.
    pub(crate) is_aggregated: bool,
    pub(crate) bindings: BindingIndex,
    pub(crate) policies: Arc<PolicyIndex>,
    pub(crate) namespaces: Arc<NamespaceIndex>,
    pub(crate) never_deny: Arc<NeverDenyMatcher>,
    pub(crate) cluster_scoped: ClusterScoped,
    pub(crate) namespace_labels: Arc<NamespaceLabels>,
    /// All AccessRequests of the cluster.
    pub(crate) access_requests: Arc<Vec<Arc<AccessRequest>>>,
    /// Which AccessRequests grant; `None` if none does.
    pub(crate) trust: Option<AccessRequestTrust>,
    /// What the AccessRequests grant; `None` if nothing.
    pub(crate) access_grants: Option<Arc<AccessGrants>>,
    /// The requests that `/validate` is known to see.
    pub(crate) reviewed: Option<ReviewedResources>,
    /// The changes of Allows with objectConditions, if they are tracked.
    pub(crate) history: Option<Arc<GrantHistory>>,
    /// A set of the Allows with objectConditions that were removed or changed recently.
    pub(crate) removed_grants: Option<Arc<Self>>,
}

/// The differences between a set and the next one.
#[derive(Debug, Default)]
pub struct PolicySetChange<'s> {
    /// The bindings to remove. They must be the same allocations as in the set.
    pub removed_bindings: Vec<Arc<Binding>>,
    /// The bindings to add.
    pub added_bindings: Vec<Arc<Binding>>,
    /// All roles, if any is different.
    pub roles: Option<Vec<Arc<Role>>>,
    /// All policies, if any is different.
    pub policies: Option<ChangedPolicies<'s>>,
    /// All AccessRequests, if any is different.
    pub access_requests: Option<Vec<Arc<AccessRequest>>>,
    /// The labels of all namespaces, if any is different.
    pub namespaces: Option<NamespaceLabels>,
    /// The custom resources that are known to be cluster-scoped.
    pub cluster_scoped: ClusterScoped,
}

/// The new AuthorizationPolicies and AuthorizationInvariants of a set.
#[derive(Debug)]
pub enum ChangedPolicies<'s> {
    /// These objects.
    Objects(Vec<Arc<AuthorizationPolicy>>, Vec<Arc<AuthorizationInvariant>>),
    /// The objects of this set; both sets then share the index.
    SharedWith(&'s PolicySet),
}

/// A write that may allow more than before: an object that is created or replaced, or an
/// AuthorizationPolicy that is deleted. Deleting a role or binding never allows more.
#[derive(Debug, Clone)]
pub enum ObjectWrite {
    /// A Role or ClusterRole.
    Role(Arc<Role>),
    /// A RoleBinding or ClusterRoleBinding.
    Binding(Arc<Binding>),
    /// An AuthorizationPolicy.
    Policy(Arc<AuthorizationPolicy>),
    /// The deletion of the AuthorizationPolicy of this name.
    DeletedPolicy(String),
    /// An AuthorizationInvariant.
    Invariant(Arc<AuthorizationInvariant>),
    /// An AccessRequest, with its status.
    AccessRequest(Arc<AccessRequest>),
}

impl PolicySet {
    /// This set after `write`, which shares the unchanged parts with this one.
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
            ObjectWrite::AccessRequest(request) => {
                let others = self
                    .access_requests
                    .iter()
                    .filter(|other| other.name != request.name);
                change.access_requests = Some(others.chain([request]).cloned().collect());
            }
        }
        self.with_change(change)
    }

    /// The policies, with `written` in place of the policy called `name`.
    fn policies_with(&self, name: &str, written: Option<&Arc<AuthorizationPolicy>>) -> ChangedPolicies<'_> {
        let policies = self.policies.policies.iter().map(|indexed| &indexed.policy);
        let others = policies.filter(|other| other.name != name);
        ChangedPolicies::Objects(
            others.chain(written).cloned().collect(),
            self.policies.invariants.clone(),
        )
    }
}

// === impl ClusterPolicySets ===

impl ClusterPolicySets {
    /// The policy set of `cluster`.
    #[must_use]
    pub fn for_cluster(&self, cluster: &str) -> &Arc<PolicySet> {
        self.clusters.get(cluster).unwrap_or(&self.shared)
    }
}

// === impl PolicySet ===

/// A set without objects, which has no opinion on any request.
impl Default for PolicySet {
    fn default() -> Self {
        Self::new(Objects::default(), &NeverDeny::default())
    }
}

impl PolicySet {
    /// Indexes `objects`, and aggregates their ClusterRoles.
    ///
    /// Bindings are tried in the order of their names, ClusterRoleBindings first. The order of
    /// kube-apiserver is that of its caches.
    #[must_use]
    pub fn new(objects: impl Into<SharedObjects>, never_deny: &NeverDeny) -> Self {
        let mut objects = objects.into();
        let policies = std::mem::take(&mut objects.policies);
        let invariants = std::mem::take(&mut objects.invariants);
        let policies = Arc::new(PolicyIndex::new(policies, invariants));
        let never_deny = Arc::new(NeverDenyMatcher::new(never_deny.clone()));
        Self::of(objects, policies, never_deny)
    }

    /// A set of `objects` with the AuthorizationPolicies and invariants of this set, whose index
    /// both sets share. It decides like a set that is built anew.
    #[must_use]
    pub fn with_same_policies(&self, objects: SharedObjects) -> Self {
        Self::of(objects, Arc::clone(&self.policies), Arc::clone(&self.never_deny))
    }

    /// A set of `objects`, with an existing index of their policies.
    fn of(objects: SharedObjects, policies: Arc<PolicyIndex>, never_deny: Arc<NeverDenyMatcher>) -> Self {
        let SharedObjects {
            mut roles,
            bindings,
            policies: _,
            invariants: _,
            access_requests,
            namespaces,
            cluster_scoped,
        } = objects;
        let is_aggregated = rbac::aggregate(&mut roles);
        let mut index = BindingIndex::default();
        index.add(&bindings, &roles);
        Self {
            bindings: index,
            roles: Arc::new(roles),
            is_aggregated,
            namespaces: Arc::new(policies.selectors.resolve(&namespaces)),
            namespace_labels: Arc::new(namespaces),
            policies,
            never_deny,
            cluster_scoped,
            access_requests: Arc::new(access_requests),
            trust: None,
            access_grants: None,
            reviewed: None,
            history: None,
            removed_grants: None,
        }
    }

    /// This set after `change`. It decides like a set that is built anew, and shares the unchanged
    /// parts with this one. `None` if a binding to remove is not in the set.
    #[must_use]
    pub fn with_change(&self, change: PolicySetChange<'_>) -> Option<Self> {
        let mut set = self.clone();
        if !set.bindings.remove(&change.removed_bindings) {
            return None;
        }
        if let Some(roles) = change.roles {
            set.set_roles(roles);
        }
        set.bindings.add(&change.added_bindings, &set.roles);
        if let Some(requests) = change.access_requests {
            set.access_requests = Arc::new(requests);
            set.index_access();
        }
        set.cluster_scoped = change.cluster_scoped;
        let are_other = change.policies.is_some();
        match change.policies {
            None => {}
            Some(ChangedPolicies::Objects(policies, invariants)) => {
                set.policies = Arc::new(PolicyIndex::new(policies, invariants));
            }
            Some(ChangedPolicies::SharedWith(other)) => set.policies = Arc::clone(&other.policies),
        }
        if are_other || change.namespaces.is_some() {
            set.namespace_labels = change.namespaces.map_or(set.namespace_labels, Arc::new);
            set.namespaces = Arc::new(set.policies.selectors.resolve(&set.namespace_labels));
        }
        Some(set)
    }

    /// Replaces the roles, and resolves the role references of the bindings again.
    fn set_roles(&mut self, mut roles: Vec<Arc<Role>>) {
        self.is_aggregated = rbac::aggregate(&mut roles);
        let before: HashMap<(&str, &str), &Arc<Role>> =
            self.roles.iter().map(|role| (role.key(), role)).collect();
        for role in &mut roles {
            if let Some(same) = before.get(&role.key()).filter(|known| **known == role) {
                *role = Arc::clone(same);
            }
        }
        let resolver = RoleResolver::new(&roles);
        let is_rebound = |bound: &&BoundRole| {
            let role = resolver.resolve(&bound.binding.role, &bound.binding.namespace);
            role.ok() != bound.role.as_ref()
        };
        let rebound = self.bindings.iter().filter(is_rebound);
        let rebound: Vec<Arc<Binding>> = rebound.map(|bound| Arc::clone(&bound.binding)).collect();
        // `remove` finds all of them, because they come from this set.
        let _ = self.bindings.remove(&rebound);
        self.bindings.add(&rebound, &roles);
        self.roles = Arc::new(roles);
        self.index_access();
    }

    fn index_access(&mut self) {
        let grants = |trust| AccessGrants::new(&self.access_requests, &self.roles, trust);
        self.access_grants = self.trust.and_then(grants).map(Arc::new);
    }

    /// This set, with AccessRequests granting according to `trust`; with `None` they grant nothing.
    #[must_use]
    pub fn with_access_request_trust(mut self, trust: Option<AccessRequestTrust>) -> Self {
        self.trust = trust;
        self.index_access();
        self
    }

    /// This set with these AccessRequests in addition to its own. All of them are trusted, whenever
    /// they were created: this is for offline decisions.
    #[must_use]
    pub fn with_access_requests(
        &self,
        requests: Vec<Arc<AccessRequest>>,
        settings: AccessRequestSettings,
    ) -> Self {
        let own = self.access_requests.iter();
        let others = own.filter(|one| !requests.iter().any(|other| other.name == one.name));
        let access_requests = Arc::new(others.cloned().chain(requests.iter().cloned()).collect());
        let set = Self {
            access_requests,
            ..self.clone()
        };
        set.with_access_request_trust(Some(AccessRequestTrust {
            settings,
            since: None,
        }))
    }

    /// Which AccessRequests grant; `None` if none does.
    #[must_use]
    pub const fn access_request_trust(&self) -> Option<AccessRequestTrust> {
        self.trust
    }

    /// Whether an AccessRequest in force lifts the Deny or Limit `policy` for a request.
    pub(crate) fn is_lifted(
        &self,
        policy: &AuthorizationPolicy,
        attributes: &Attributes<'_>,
        now: Time,
    ) -> bool {
        let grants = self.access_grants.as_deref().filter(|_| policy.liftable);
        let mut own = grants
            .into_iter()
            .flat_map(|grants| grants.of(&attributes.user, now));
        own.any(|grant| grant.lifts(&policy.name) && grant.allowing_rule(attributes, &mut 0).is_some())
    }

    /// All AccessRequests, including those that do not grant.
    #[must_use]
    pub fn access_requests(&self) -> &[Arc<AccessRequest>] {
        &self.access_requests
    }

    /// This set with those of `roles` that it does not contain. ClusterRoles are aggregated again.
    #[must_use]
    pub fn with_roles(&self, roles: &[Arc<Role>]) -> Self {
        let known: HashSet<(&str, &str)> = self.roles.iter().map(|role| role.key()).collect();
        let more = roles.iter().filter(|role| !known.contains(&role.key()));
        let mut set = self.clone();
        set.set_roles(self.roles.iter().chain(more).cloned().collect());
        set
    }

    /// Whether both sets share one index of AuthorizationPolicies.
    #[must_use]
    pub fn shares_policies(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policies, &other.policies)
    }

    /// Whether rules about namespaces mean the same in both sets: they have the same labels of
    /// namespaces and the same cluster-scoped resources.
    pub(crate) fn has_same_namespaces(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.namespace_labels, &other.namespace_labels)
            && self.cluster_scoped == other.cluster_scoped
    }

    /// An address that is equal for sets that [share their policies](Self::shares_policies), as
    /// long as one of them exists.
    #[must_use]
    pub fn policies_address(&self) -> usize {
        Arc::as_ptr(&self.policies).addr()
    }

    /// Whether `neverDeny` protects this request: no Deny can stop it, not even one of another
    /// authorizer.
    #[must_use]
    pub fn is_protected(&self, attributes: &Attributes<'_>) -> bool {
        self.never_deny.matches(attributes)
    }

    /// The configured `neverDeny`.
    #[must_use]
    pub fn never_deny(&self) -> &NeverDeny {
        self.never_deny.configured()
    }

    /// Whether `neverDeny` names `user`, so that all requests of the user are protected.
    #[must_use]
    pub fn never_denies_user(&self, user: &User<'_>) -> bool {
        self.never_deny.matches_user(user)
    }

    /// The names of the Denies and Limits that are enforced, in order.
    pub fn enforced_denies(&self) -> impl Iterator<Item = &Arc<str>> {
        self.policies.deny.policies.iter().map(|indexed| &indexed.name)
    }

    /// The AuthorizationPolicies.
    pub fn authorization_policies(&self) -> impl Iterator<Item = &AuthorizationPolicy> {
        self.policies.policies.iter().map(|indexed| &*indexed.policy)
    }

    /// The times at which decisions may change, in no particular order: between two of them, the
    /// same request is always decided alike. `None` if decisions may change at any time, for
    /// example if AccessRequests grant.
    #[must_use]
    pub fn time_boundaries(&self) -> Option<Vec<Time>> {
        let is_steady = self.access_grants.is_none()
            && self.history.is_none()
            && self.removed_grants.is_none()
            && !self.policies.has_object_conditions;
        is_steady.then(|| self.policies.time_boundaries().collect())
    }

    /// The AuthorizationInvariants, by name.
    pub fn invariants(&self) -> impl ExactSizeIterator<Item = &Arc<AuthorizationInvariant>> {
        self.policies.invariants.iter()
    }

    /// The custom resources that are known to be cluster-scoped.
    #[must_use]
    pub const fn cluster_scoped(&self) -> &ClusterScoped {
        &self.cluster_scoped
    }

    /// This set with `labels` for the namespace `name`, for decisions in this namespace only. If
    /// the labels of the namespace are known, these are kept.
    pub(crate) fn with_namespace(&self, name: &str, labels: &BTreeMap<String, String>) -> Self {
        let mut set = self.clone();
        if !self.namespace_labels.contains_key(name) {
            set.namespaces = Arc::new(NamespaceIndex::of_one(name, labels));
        }
        set
    }

    /// Whether the labels of any namespace are known.
    #[must_use]
    pub fn knows_namespaces(&self) -> bool {
        !self.namespace_labels.is_empty()
    }

    /// The name and end of each policy that has an end, including those that have ended.
    pub fn ends(&self) -> impl Iterator<Item = (&str, Time)> {
        let policies = self.authorization_policies();
        policies.flat_map(|policy| {
            let end = policy.validity.not_after.into_iter();
            end.map(|end| (policy.name.as_str(), end))
        })
    }

    /// The kind and name of each policy, at the index that is passed to an
    /// [`Observer`](super::Observer).
    pub fn policies(&self) -> impl ExactSizeIterator<Item = (CauseKind, &Arc<str>)> {
        let policies = self.policies.policies.iter();
        policies.map(|indexed| (CauseKind::AuthorizationPolicy, &indexed.name))
    }

    /// The roles, with ClusterRoles aggregated.
    #[must_use]
    pub fn roles(&self) -> &[Arc<Role>] {
        &self.roles
    }

    /// The bindings, in the order in which they are tried.
    pub fn bindings(&self) -> impl Iterator<Item = &Binding> {
        self.bindings.iter().map(|bound| &*bound.binding)
    }
}

impl fmt::Debug for PolicySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicySet")
            .field("roles", &self.roles.len())
            .field("bindings", &self.bindings.len())
            .field("policies", &self.policies.policies.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
