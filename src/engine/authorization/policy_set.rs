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
use std::ops::Range;
use std::sync::Arc;

use super::index::{Candidates, Grants, NamespaceIndex, Subjects, Symbols};
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
    pub(super) policies: Vec<AuthorizationPolicy>,
    pub(super) periods: Periods,
    pub(super) names: Vec<Arc<str>>,
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
    /// Whether its policies deny, and are enforced.
    pub(super) denies: bool,
    pub(super) policies: Range<usize>,
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
        let (mut subjects, mut symbols) = (Subjects::default(), Symbols::default());
        let namespaces = NamespaceIndex::new(&policies, &labels);
        let grants = Grants::new(&roles, &bindings, &mut subjects, &mut symbols);
        let [shadow, deny, allow] =
            [0, 1, 2].map(|rank| PolicyGroup::new(&policies, rank, &namespaces, &mut subjects, &mut symbols));
        Self {
            names: policies
                .iter()
                .map(|policy| policy.name.as_str().into())
                .collect(),
            protection: Protection::new(never_deny),
            never_deny: never_deny.clone(),
            periods: Periods::new(&policies),
            knows_namespaces: !labels.is_empty(),
            namespaces,
            cluster_scoped,
            roles,
            bindings,
            grants,
            policies,
            shadow,
            deny,
            allow,
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
        let range = self.deny.policies.clone();
        self.names.get(range).unwrap_or_default().iter()
    }

    /// Whom no Deny can hold up.
    #[must_use]
    pub const fn never_deny(&self) -> &NeverDeny {
        &self.never_deny
    }

    /// The AuthorizationPolicies.
    #[must_use]
    pub fn authorization_policies(&self) -> &[AuthorizationPolicy] {
        &self.policies
    }

    /// Whether the labels of any namespace are known.
    #[must_use]
    pub const fn knows_namespaces(&self) -> bool {
        self.knows_namespaces
    }

    /// The name and end of each policy that has an end, past ones too.
    pub fn ends(&self) -> impl Iterator<Item = (&str, Time)> {
        let end = |policy: &AuthorizationPolicy| policy.validity.not_after;
        self.policies
            .iter()
            .filter_map(move |policy| Some((policy.name.as_str(), end(policy)?)))
    }

    /// The kind and name of each policy, by the index that is passed to an [`Observer`](super::Observer).
    pub fn policies(&self) -> impl ExactSizeIterator<Item = (CauseKind, &Arc<str>)> {
        self.names
            .iter()
            .map(|name| (CauseKind::AuthorizationPolicy, name))
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

// === impl Region ===

impl PolicyGroup {
    /// The policies of `rank`, by which `policies` are sorted.
    fn new(
        policies: &[AuthorizationPolicy],
        wanted: u8,
        namespaces: &NamespaceIndex,
        subjects: &mut Subjects,
        symbols: &mut Symbols,
    ) -> Self {
        let start = policies.partition_point(|policy| rank(policy) < wanted);
        let end = policies.partition_point(|policy| rank(policy) <= wanted);
        let own = policies.get(start..end).unwrap_or_default();
        Self {
            denies: wanted == rank_of(Mode::Enforce, Effect::Deny),
            policies: start..end,
            candidates: Candidates::new(own, start, namespaces, subjects, symbols),
        }
    }
}

fn rank(policy: &AuthorizationPolicy) -> u8 {
    rank_of(policy.mode, policy.effect)
}

const fn rank_of(mode: Mode, effect: Effect) -> u8 {
    match (mode, effect) {
        (Mode::Shadow, _) => 0,
        (Mode::Enforce, Effect::Deny) => 1,
        (Mode::Enforce, Effect::Allow) => 2,
    }
}

#[cfg(test)]
mod tests;
