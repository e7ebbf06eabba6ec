//! The policy set of one cluster, indexed and immutable.
//!
//! ```text
//!               ┌──────── Deny ────────┐   ┌──── RBAC ────┐   ┌─────── Allow ───────┐
//! Attributes ─> policies touched, by name ─> first binding ─> policies within, by name ─> no opinion
//!               └─ not for neverDeny ──┘   └──────────────┘   └─────────────────────┘
//! ```
//!
//! Policies in mode Shadow are evaluated first, separately: they never affect the answer.

use std::fmt;
use std::sync::Arc;

use super::binding_list::BindingList;
use super::index::{Candidates, Grants, NamespaceIndex, NamespaceSelectors, Subjects, Symbols};
use super::listed_policy::ListedPolicy;
use super::matching::ClusterScoped;
use super::never_deny::Protection;
use super::periods::Periods;
use super::{
    AuthorizationPolicy, Binding, Effect, Mode, NamespaceLabels, NeverDeny, Objects, Role, SharedObjects,
    rbac,
};
use crate::engine::{Attributes, CauseKind, Time};

/// The roles, bindings and policies of one cluster.
///
/// Building it takes time linear in the objects; a decision takes time that
/// follows the rules that could apply to the request, not those that are
/// loaded.
pub struct PolicySet {
    pub(super) roles: Arc<Vec<Arc<Role>>>,
    pub(super) bindings: BindingList,
    pub(super) grants: Grants,
    /// Those in Shadow, then those that deny, then those that allow, each by name.
    policies: Arc<Vec<Arc<ListedPolicy>>>,
    pub(super) periods: Arc<Periods>,
    pub(super) shadow: Arc<PolicyGroup>,
    pub(super) deny: Arc<PolicyGroup>,
    pub(super) allow: Arc<PolicyGroup>,
    pub(super) protection: Arc<Protection>,
    never_deny: NeverDeny,
    selectors: Arc<NamespaceSelectors>,
    pub(super) namespaces: Arc<NamespaceIndex>,
    pub(super) cluster_scoped: ClusterScoped,
    /// Whether the labels of any namespace are known.
    knows_namespaces: bool,
    pub(super) subjects: Subjects,
    pub(super) symbols: Symbols,
}

/// Policies that are walked together.
#[derive(Debug, Default)]
pub(super) struct PolicyGroup {
    pub(super) policies: Vec<Arc<ListedPolicy>>,
    pub(super) candidates: Candidates,
}

/// The policies of a set and what is made of them.
struct IndexedPolicies {
    all: Arc<Vec<Arc<ListedPolicy>>>,
    periods: Arc<Periods>,
    shadow: Arc<PolicyGroup>,
    deny: Arc<PolicyGroup>,
    allow: Arc<PolicyGroup>,
    selectors: Arc<NamespaceSelectors>,
    namespaces: Arc<NamespaceIndex>,
    knows_namespaces: bool,
}

/// What becomes different in a set. Its roles stay.
#[derive(Debug, Default)]
pub struct PolicySetChange {
    /// The bindings that go: the very objects that the set has.
    pub removed_bindings: Vec<Arc<Binding>>,
    /// Those that come.
    pub added_bindings: Vec<Arc<Binding>>,
    /// All policies, where one is different.
    pub policies: Option<Vec<Arc<AuthorizationPolicy>>>,
    /// The labels of all namespaces, where those of one are different, or a policy is.
    pub namespaces: Option<NamespaceLabels>,
    /// The custom resources that are known to have no namespace.
    pub cluster_scoped: ClusterScoped,
}

/// So many texts may come with changes, and more in a large set, before it is built again:
/// those that are not in it any more stay until then.
const MOST_ADDED: usize = 10_000;

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
        let SharedObjects {
            mut roles,
            bindings,
            policies,
            namespaces: labels,
            cluster_scoped,
        } = objects.into();
        rbac::aggregate(&mut roles);
        let (mut subjects, mut symbols) = (Subjects::default(), Symbols::default());
        // First the policies, so that their texts have small numbers: candidates are found by them.
        let policies = IndexedPolicies::new(policies, &labels, &mut subjects, &mut symbols);
        let bindings = BindingList::new(bindings);
        let grants = Grants::new(&roles, &bindings, &mut subjects, &mut symbols);
        subjects.share();
        symbols.share();
        Self {
            roles: Arc::new(roles),
            bindings,
            grants,
            protection: Arc::new(Protection::new(never_deny)),
            never_deny: never_deny.clone(),
            policies: policies.all,
            periods: policies.periods,
            shadow: policies.shadow,
            deny: policies.deny,
            allow: policies.allow,
            selectors: policies.selectors,
            namespaces: policies.namespaces,
            knows_namespaces: policies.knows_namespaces,
            cluster_scoped,
            subjects,
            symbols,
        }
    }

    /// The set of `objects`, which have the very AuthorizationPolicies of this set: their index
    /// exists once, however many sets are made of it. It decides as one that is built from
    /// nothing.
    #[must_use]
    pub fn with_same_policies(&self, objects: SharedObjects) -> Self {
        let SharedObjects {
            mut roles,
            bindings,
            policies: _,
            namespaces,
            cluster_scoped,
        } = objects;
        rbac::aggregate(&mut roles);
        let (mut subjects, mut symbols) = (self.subjects.over(), self.symbols.over());
        let bindings = BindingList::new(bindings);
        let grants = Grants::new(&roles, &bindings, &mut subjects, &mut symbols);
        subjects.share();
        symbols.share();
        let policies = self.indexed_policies().with_labels(&namespaces);
        Self {
            roles: Arc::new(roles),
            bindings,
            grants,
            cluster_scoped,
            ..self.with_policies(policies, subjects, symbols)
        }
    }

    /// Whether both have the very same AuthorizationPolicies, and their index exists once.
    #[must_use]
    pub fn shares_policies(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policies, &other.policies)
    }

    /// This set after `change`, at the price of what changed: the rest is shared by both. It
    /// decides as one that is built from nothing. `None` where so much changed since one was
    /// that it is better built again, or where what is to go is not there.
    #[must_use]
    pub fn changed(&self, change: PolicySetChange) -> Option<Self> {
        let (mut subjects, mut symbols) = (self.subjects.clone(), self.symbols.clone());
        let bindings = self
            .bindings
            .changed(&change.removed_bindings, &change.added_bindings)?;
        let grants = self.grants.changed(&bindings, &mut subjects, &mut symbols);
        let policies = match (change.policies, change.namespaces) {
            (Some(policies), labels) => {
                let labels = labels.unwrap_or_default();
                IndexedPolicies::new(policies, &labels, &mut subjects, &mut symbols)
            }
            (None, Some(labels)) => self.indexed_policies().with_labels(&labels),
            (None, None) => self.indexed_policies(),
        };
        if subjects.added() + symbols.added() > MOST_ADDED + bindings.len() / 8 {
            return None;
        }
        Some(Self {
            bindings,
            grants,
            cluster_scoped: change.cluster_scoped,
            ..self.with_policies(policies, subjects, symbols)
        })
    }

    /// This set with other policies.
    fn with_policies(&self, policies: IndexedPolicies, subjects: Subjects, symbols: Symbols) -> Self {
        Self {
            roles: Arc::clone(&self.roles),
            bindings: self.bindings.clone(),
            grants: self.grants.clone(),
            protection: Arc::clone(&self.protection),
            never_deny: self.never_deny.clone(),
            policies: policies.all,
            periods: policies.periods,
            shadow: policies.shadow,
            deny: policies.deny,
            allow: policies.allow,
            selectors: policies.selectors,
            namespaces: policies.namespaces,
            knows_namespaces: policies.knows_namespaces,
            cluster_scoped: self.cluster_scoped.clone(),
            subjects,
            symbols,
        }
    }

    fn indexed_policies(&self) -> IndexedPolicies {
        IndexedPolicies {
            all: Arc::clone(&self.policies),
            periods: Arc::clone(&self.periods),
            shadow: Arc::clone(&self.shadow),
            deny: Arc::clone(&self.deny),
            allow: Arc::clone(&self.allow),
            selectors: Arc::clone(&self.selectors),
            namespaces: Arc::clone(&self.namespaces),
            knows_namespaces: self.knows_namespaces,
        }
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
        self.protection.covers(attributes)
    }

    /// The names of the AuthorizationPolicies that deny and are enforced, in order.
    pub fn enforced_denies(&self) -> impl Iterator<Item = &Arc<str>> {
        self.deny.policies.iter().map(|listed| &listed.name)
    }

    /// Whom no Deny can hold up.
    #[must_use]
    pub const fn never_deny(&self) -> &NeverDeny {
        &self.never_deny
    }

    /// The AuthorizationPolicies.
    pub fn authorization_policies(&self) -> impl Iterator<Item = &AuthorizationPolicy> {
        self.policies.iter().map(|listed| &*listed.policy)
    }

    /// The custom resources that are known to have no namespace.
    #[must_use]
    pub const fn cluster_scoped(&self) -> &ClusterScoped {
        &self.cluster_scoped
    }

    /// Whether the labels of any namespace are known.
    #[must_use]
    pub const fn knows_namespaces(&self) -> bool {
        self.knows_namespaces
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
        let policies = self.policies.iter();
        policies.map(|listed| (CauseKind::AuthorizationPolicy, &listed.name))
    }

    /// Whether a resource is known to have no namespace.
    #[must_use]
    pub fn is_cluster_scoped(&self, group: &str, resource: &str) -> bool {
        self.cluster_scoped.contains(group, resource)
    }

    /// The roles, aggregated.
    #[must_use]
    pub fn roles(&self) -> &[Arc<Role>] {
        &self.roles
    }

    /// The bindings, in the order in which they decide.
    pub fn bindings(&self) -> impl Iterator<Item = &Binding> {
        self.bindings.iter().map(|(_, binding)| binding)
    }
}

// === impl IndexedPolicies ===

impl IndexedPolicies {
    fn new(
        mut policies: Vec<Arc<AuthorizationPolicy>>,
        labels: &NamespaceLabels,
        subjects: &mut Subjects,
        symbols: &mut Symbols,
    ) -> Self {
        policies.sort_by(|one, other| (rank(one), &one.name).cmp(&(rank(other), &other.name)));
        let policies: Vec<Arc<ListedPolicy>> = policies.into_iter().enumerate().map(listed).collect();
        let mut selectors = NamespaceSelectors::default();
        let mut group = |wanted| {
            let own = policies.iter().filter(|listed| rank(&listed.policy) == wanted);
            let policies: Vec<Arc<ListedPolicy>> = own.cloned().collect();
            Arc::new(PolicyGroup {
                candidates: Candidates::new(&policies, &mut selectors, subjects, symbols),
                policies,
            })
        };
        Self {
            shadow: group(Rank::Shadow),
            deny: group(Rank::Deny),
            allow: group(Rank::Allow),
            periods: Arc::new(Periods::new(policies.iter().map(|listed| listed.policy.validity))),
            knows_namespaces: !labels.is_empty(),
            namespaces: Arc::new(selectors.resolve(labels)),
            selectors: Arc::new(selectors),
            all: Arc::new(policies),
        }
    }

    /// The same, where namespaces have other labels.
    fn with_labels(self, labels: &NamespaceLabels) -> Self {
        Self {
            namespaces: Arc::new(self.selectors.resolve(labels)),
            knows_namespaces: !labels.is_empty(),
            ..self
        }
    }
}

impl fmt::Debug for PolicySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicySet")
            .field("roles", &self.roles.len())
            .field("bindings", &self.bindings.len())
            .field("policies", &self.policies.len())
            .finish_non_exhaustive()
    }
}

/// Which group a policy belongs to, in the order in which groups are walked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Shadow,
    Deny,
    Allow,
}

const fn rank(policy: &AuthorizationPolicy) -> Rank {
    match (policy.mode, policy.effect) {
        (Mode::Shadow, _) => Rank::Shadow,
        (Mode::Enforce, Effect::Deny) => Rank::Deny,
        (Mode::Enforce, Effect::Allow) => Rank::Allow,
    }
}

fn listed((place, policy): (usize, Arc<AuthorizationPolicy>)) -> Arc<ListedPolicy> {
    let name = policy.name.as_str().into();
    Arc::new(ListedPolicy { place, name, policy })
}

#[cfg(test)]
mod tests;
