//! The policy set of one cluster, indexed and immutable.
//!
//! ```text
//!               ┌──── Deny, Limit ─────┐   ┌──── RBAC ────┐   ┌─────── Allow ───────┐
//! Attributes ─> policies touched, by name ─> first binding ─> policies within, by name ─> AccessRequests ─> no opinion
//!               └─ not for neverDeny ──┘   └──────────────┘   └─────────────────────┘
//!
//! A Limit is touched by a request that none of its rules holds.
//! ```
//!
//! Policies in mode Shadow are evaluated first, separately: they never affect the answer.

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
    /// What holds for a cluster without manifests of its own.
    pub shared: Arc<PolicySet>,
    /// What holds for the clusters that have some, shared manifests included.
    pub clusters: HashMap<String, Arc<PolicySet>>,
}

/// The roles, bindings and policies of one cluster.
///
/// Building it takes time linear in the objects; a decision takes time that
/// follows the rules that could apply to the request, not those that are
/// loaded. Its parts are shared with the sets that it is made of and that are made of it.
#[derive(Clone)]
pub struct PolicySet {
    pub(crate) roles: Arc<Vec<Arc<Role>>>,
    /// Whether aggregated ClusterRoles have the rules that they are made of, not those written.
    pub(crate) is_aggregated: bool,
    pub(crate) bindings: BindingIndex,
    pub(crate) policies: Arc<PolicyIndex>,
    pub(crate) namespaces: Arc<NamespaceIndex>,
    pub(crate) never_deny: Arc<NeverDenyMatcher>,
    pub(crate) cluster_scoped: ClusterScoped,
    pub(crate) labels: Arc<NamespaceLabels>,
    /// Those of API servers.
    pub(crate) access_requests: Arc<Vec<Arc<AccessRequest>>>,
    /// Which of them grant; `None`: none.
    pub(crate) trust: Option<AccessRequestTrust>,
    /// What they grant, where they grant anything.
    pub(crate) access: Option<Arc<AccessGrants>>,
    /// What `/validate` is known to see.
    pub(crate) reviewed: Option<ReviewedResources>,
    /// Of Allows with objectConditions, where changes are followed.
    pub(crate) history: Option<Arc<GrantHistory>>,
    /// Those of them that were removed or changed.
    pub(crate) former: Option<Arc<Self>>,
}

/// What becomes different in a set.
#[derive(Debug, Default)]
pub struct PolicySetChange<'s> {
    /// The bindings that go: the very objects that the set has.
    pub removed_bindings: Vec<Arc<Binding>>,
    /// Those that come.
    pub added_bindings: Vec<Arc<Binding>>,
    /// All roles, where one is different.
    pub roles: Option<Vec<Arc<Role>>>,
    /// All policies, where one is different.
    pub policies: Option<ChangedPolicies<'s>>,
    /// All AccessRequests, where one is different.
    pub access_requests: Option<Vec<Arc<AccessRequest>>>,
    /// The labels of all namespaces, where those of one are different.
    pub namespaces: Option<NamespaceLabels>,
    /// The custom resources that are known to have no namespace.
    pub cluster_scoped: ClusterScoped,
}

/// The AuthorizationPolicies and AuthorizationInvariants of a set that has others than before.
#[derive(Debug)]
pub enum ChangedPolicies<'s> {
    /// These.
    Objects(Vec<Arc<AuthorizationPolicy>>, Vec<Arc<AuthorizationInvariant>>),
    /// Those of this set, whose index both then share.
    SharedWith(&'s PolicySet),
}

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
    /// An AccessRequest, with its status.
    AccessRequest(Arc<AccessRequest>),
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
            ObjectWrite::AccessRequest(request) => {
                let others = self
                    .access_requests
                    .iter()
                    .filter(|other| other.name != request.name);
                change.access_requests = Some(others.chain([request]).cloned().collect());
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

// === impl Policies ===

impl ClusterPolicySets {
    /// What decides for `cluster`.
    #[must_use]
    pub fn for_cluster(&self, cluster: &str) -> &Arc<PolicySet> {
        self.clusters.get(cluster).unwrap_or(&self.shared)
    }
}

// === impl PolicySet ===

/// No policies at all, and no opinion.
impl Default for PolicySet {
    fn default() -> Self {
        Self::new(Objects::default(), &NeverDeny::default())
    }
}

impl PolicySet {
    /// Indexes `objects`, and aggregates their ClusterRoles.
    ///
    /// Bindings decide in the order of their names, ClusterRoleBindings first,
    /// where kube-apiserver takes them as its caches give them.
    #[must_use]
    pub fn new(objects: impl Into<SharedObjects>, never_deny: &NeverDeny) -> Self {
        let mut objects = objects.into();
        let policies = std::mem::take(&mut objects.policies);
        let invariants = std::mem::take(&mut objects.invariants);
        let policies = Arc::new(PolicyIndex::new(policies, invariants));
        let never_deny = Arc::new(NeverDenyMatcher::new(never_deny.clone()));
        Self::of(objects, policies, never_deny)
    }

    /// The set of `objects`, which have the very AuthorizationPolicies and invariants of this set: their index
    /// exists once, however many sets are made of it. It decides as one that is built from
    /// nothing.
    #[must_use]
    pub fn with_same_policies(&self, objects: SharedObjects) -> Self {
        Self::of(objects, Arc::clone(&self.policies), Arc::clone(&self.never_deny))
    }

    /// The set of `objects`, whose policies have an index already.
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
            labels: Arc::new(namespaces),
            policies,
            never_deny,
            cluster_scoped,
            access_requests: Arc::new(access_requests),
            trust: None,
            access: None,
            reviewed: None,
            history: None,
            former: None,
        }
    }

    /// This set after `change`: it decides as one that is built from nothing, and shares with
    /// this one what did not change. `None` where a binding that is to go is not there.
    #[must_use]
    pub fn changed(&self, change: PolicySetChange<'_>) -> Option<Self> {
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
            set.labels = change.namespaces.map_or(set.labels, Arc::new);
            set.namespaces = Arc::new(set.policies.selectors.resolve(&set.labels));
        }
        Some(set)
    }

    /// Gives the set other roles, and its bindings those of them that they bind to.
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
        // They are there.
        let _ = self.bindings.remove(&rebound);
        self.bindings.add(&rebound, &roles);
        self.roles = Arc::new(roles);
        self.index_access();
    }

    fn index_access(&mut self) {
        let grants = |trust| AccessGrants::new(&self.access_requests, &self.roles, trust);
        self.access = self.trust.and_then(grants).map(Arc::new);
    }

    /// This set, whose AccessRequests grant as `trust` says; where there is none they grant nothing.
    #[must_use]
    pub fn trusting(mut self, trust: Option<AccessRequestTrust>) -> Self {
        self.trust = trust;
        self.index_access();
        self
    }

    /// This set with these AccessRequests besides its own, all of which grant whenever they were created: for
    /// answers offline.
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
        set.trusting(Some(AccessRequestTrust {
            settings,
            since: None,
        }))
    }

    /// Which AccessRequests grant; `None`: none.
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
        let grants = self.access.as_deref().filter(|_| policy.liftable);
        let mut own = grants
            .into_iter()
            .flat_map(|grants| grants.of(&attributes.user, now));
        own.any(|grant| grant.lifts(&policy.name) && grant.allowing_rule(attributes, &mut 0).is_some())
    }

    /// The AccessRequests, whether they grant or not.
    #[must_use]
    pub fn access_requests(&self) -> &[Arc<AccessRequest>] {
        &self.access_requests
    }

    /// This set, with those of `roles` that it does not have: ClusterRoles are aggregated once more.
    #[must_use]
    pub fn with_roles(&self, roles: &[Arc<Role>]) -> Self {
        let known: HashSet<(&str, &str)> = self.roles.iter().map(|role| role.key()).collect();
        let more = roles.iter().filter(|role| !known.contains(&role.key()));
        let mut set = self.clone();
        set.set_roles(self.roles.iter().chain(more).cloned().collect());
        set
    }

    /// Whether both have the very same AuthorizationPolicies, and their index exists once.
    #[must_use]
    pub fn shares_policies(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policies, &other.policies)
    }

    /// Whether a rule about namespaces means the same in both: these are labelled alike, and the same
    /// resources have none.
    pub(crate) fn resolves_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.labels, &other.labels) && self.cluster_scoped == other.cluster_scoped
    }

    /// Equal for sets that [share their policies](Self::shares_policies), as long as one of them
    /// is there.
    #[must_use]
    pub fn policies_address(&self) -> usize {
        Arc::as_ptr(&self.policies).addr()
    }

    /// Whether `neverDeny` protects this request: no Deny, not even another
    /// authorizer's, can hold it up.
    #[must_use]
    pub fn is_protected(&self, attributes: &Attributes<'_>) -> bool {
        self.never_deny.matches(attributes)
    }

    /// Whom no Deny can hold up.
    #[must_use]
    pub fn never_deny(&self) -> &NeverDeny {
        self.never_deny.configured()
    }

    /// Whether `neverDeny` names `user`, whatever is asked.
    #[must_use]
    pub fn protects(&self, user: &User<'_>) -> bool {
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

    /// The instants at which another decision may begin, in no order: the same request is decided in the same way
    /// at all times between two of them. `None`: at any instant, as where AccessRequests grant.
    #[must_use]
    pub fn time_boundaries(&self) -> Option<Vec<Time>> {
        let is_steady = self.access.is_none()
            && self.history.is_none()
            && self.former.is_none()
            && !self.policies.has_object_conditions;
        is_steady.then(|| self.policies.time_boundaries().collect())
    }

    /// The AuthorizationInvariants, by name.
    pub fn invariants(&self) -> impl ExactSizeIterator<Item = &Arc<AuthorizationInvariant>> {
        self.policies.invariants.iter()
    }

    /// The custom resources that are known to have no namespace.
    #[must_use]
    pub const fn cluster_scoped(&self) -> &ClusterScoped {
        &self.cluster_scoped
    }

    /// This set as it decides about the namespace `name`, and about no other, if that had `labels`; where
    /// its labels are known, those stay.
    pub(crate) fn with_namespace(&self, name: &str, labels: &BTreeMap<String, String>) -> Self {
        let mut set = self.clone();
        if !self.labels.contains_key(name) {
            set.namespaces = Arc::new(NamespaceIndex::of_one(name, labels));
        }
        set
    }

    /// Whether the labels of any namespace are known.
    #[must_use]
    pub fn knows_namespaces(&self) -> bool {
        !self.labels.is_empty()
    }

    /// The name and end of each policy that has an end, past ones too.
    pub fn ends(&self) -> impl Iterator<Item = (&str, Time)> {
        let policies = self.authorization_policies();
        policies.flat_map(|policy| {
            let end = policy.validity.not_after.into_iter();
            end.map(|end| (policy.name.as_str(), end))
        })
    }

    /// The kind and name of each policy, by the index that is passed to an [`Observer`](super::Observer).
    pub fn policies(&self) -> impl ExactSizeIterator<Item = (CauseKind, &Arc<str>)> {
        let policies = self.policies.policies.iter();
        policies.map(|indexed| (CauseKind::AuthorizationPolicy, &indexed.name))
    }

    /// The roles, aggregated.
    #[must_use]
    pub fn roles(&self) -> &[Arc<Role>] {
        &self.roles
    }

    /// The bindings, in the order in which they decide.
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
