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

use super::index::{Candidates, Grants, NamespaceIndex, NamespaceSelectors, Subjects, Symbols};
use super::listed_policy::ListedPolicy;
use super::matching::ClusterScoped;
use super::never_deny::Protection;
use super::periods::Periods;
use super::{AuthorizationPolicy, Binding, Effect, Mode, NeverDeny, Objects, Role, rbac};
use crate::engine::{Attributes, CauseKind, Time};

/// The roles, bindings and policies of one cluster.
///
/// Building it takes time linear in the objects; a decision takes time that
/// follows the rules that could apply to the request, not those that are
/// loaded.
pub struct PolicySet {
    pub(super) roles: Vec<Role>,
    /// In the order in which they decide.
    pub(super) bindings: Vec<Binding>,
    pub(super) grants: Grants,
    /// Those in Shadow, then those that deny, then those that allow, each by name.
    policies: Vec<Arc<ListedPolicy>>,
    pub(super) periods: Periods,
    pub(super) shadow: PolicyGroup,
    pub(super) deny: PolicyGroup,
    pub(super) allow: PolicyGroup,
    pub(super) protection: Protection,
    never_deny: NeverDeny,
    pub(super) namespaces: NamespaceIndex,
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
    pub fn new(objects: Objects, never_deny: &NeverDeny) -> Self {
        let Objects {
            mut roles,
            mut bindings,
            mut policies,
            namespaces: labels,
            cluster_scoped,
        } = objects;
        rbac::aggregate(&mut roles);
        bindings.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        policies.sort_by(|one, other| (rank(one), &one.name).cmp(&(rank(other), &other.name)));
        let policies: Vec<Arc<ListedPolicy>> = policies.into_iter().enumerate().map(listed).collect();
        let (mut subjects, mut symbols) = (Subjects::default(), Symbols::default());
        let mut selectors = NamespaceSelectors::default();
        let grants = Grants::new(&roles, &bindings, &mut subjects, &mut symbols);
        let mut group = |wanted| {
            let own = policies.iter().filter(|listed| rank(&listed.policy) == wanted);
            let policies: Vec<Arc<ListedPolicy>> = own.cloned().collect();
            PolicyGroup {
                candidates: Candidates::new(&policies, &mut selectors, &mut subjects, &mut symbols),
                policies,
            }
        };
        Self {
            shadow: group(Rank::Shadow),
            deny: group(Rank::Deny),
            allow: group(Rank::Allow),
            protection: Protection::new(never_deny),
            never_deny: never_deny.clone(),
            periods: Periods::new(policies.iter().map(|listed| listed.policy.validity)),
            knows_namespaces: !labels.is_empty(),
            namespaces: selectors.resolve(&labels),
            cluster_scoped,
            roles,
            bindings,
            grants,
            policies,
            subjects,
            symbols,
        }
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
        self.policies.iter().map(|listed| &listed.policy)
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
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// The bindings, in the order in which they decide.
    #[must_use]
    pub fn bindings(&self) -> &[Binding] {
        &self.bindings
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

fn listed((place, policy): (usize, AuthorizationPolicy)) -> Arc<ListedPolicy> {
    let name = policy.name.as_str().into();
    Arc::new(ListedPolicy { place, name, policy })
}

#[cfg(test)]
mod tests;
