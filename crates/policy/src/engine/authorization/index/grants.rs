//! RBAC grants, indexed by subject and namespace.
//!
//! For each subject there is a node for cluster scope and one for each namespace with a
//! binding for it. A node with few bindings asks their roles one by one, so that a role
//! bound in 10,000 namespaces is compiled once; a node with many bindings has its own
//! cells.

mod base;
mod changed;

use std::sync::Arc;

use super::cells::{CompiledRule, RulePlace};
use super::query::Query;
use super::{Ids, Subjects, Symbols};
use crate::engine::authorization::Role;
use crate::engine::authorization::binding_list::BindingList;
use base::{CLUSTER, GrantsBase, SubjectNode};
use changed::ChangedGrants;

/// All that RBAC grants: what was built from nothing, which sets share, and what changed since.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grants {
    base: Arc<GrantsBase>,
    changed: ChangedGrants,
}

/// What allows a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The place of the binding in the list that the index is of.
    pub(crate) binding: u32,
    /// The rule of its role.
    pub(crate) rule: usize,
}

// === impl Grants ===

impl Grants {
    /// The index of `bindings`, of which none came or went since the list was built.
    pub(in crate::engine::authorization) fn new(
        roles: &[Arc<Role>],
        bindings: &BindingList,
        subjects: &mut Subjects,
        symbols: &mut Symbols,
    ) -> Self {
        Self {
            base: Arc::new(GrantsBase::new(roles, bindings, subjects, symbols)),
            changed: ChangedGrants::default(),
        }
    }

    /// The same of a list that came of the one that this was built of, with the same roles.
    pub(in crate::engine::authorization) fn changed(
        &self,
        bindings: &BindingList,
        subjects: &mut Subjects,
        symbols: &mut Symbols,
    ) -> Self {
        Self {
            base: Arc::clone(&self.base),
            changed: ChangedGrants::new(&self.base, bindings, subjects, symbols),
        }
    }

    /// The first rule by which one of `who` may do what `query` asks.
    pub(crate) fn find(&self, who: &Ids, query: &Query<'_, '_>, visited: &mut usize) -> Option<Grant> {
        // Bindings of cluster scope come before all others.
        self.first(who, CLUSTER, query, visited)
            .or_else(|| self.first(who, namespace_of(query)?, query, visited))
            .map(|place| Grant {
                binding: place.binding,
                rule: place.rule as usize,
            })
    }

    /// The places of the bindings that apply to `who` where `query` asks, in
    /// the order in which they decide, each once; of each subject at most `limit`.
    pub(crate) fn applying(&self, who: &Ids, query: &Query<'_, '_>, limit: usize) -> Vec<u32> {
        let namespaces = std::iter::once(CLUSTER).chain(namespace_of(query));
        let nodes = namespaces.flat_map(|namespace| self.nodes(who, namespace));
        let places = nodes.flat_map(|node| node.bindings.iter().take(limit));
        let mut places: Vec<u32> = places.copied().collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// The places of all bindings of `who`, in the order in which they decide, each once.
    pub(crate) fn held(&self, who: &Ids) -> Vec<u32> {
        let is_own = |of: &(u32, u32)| who.as_slice().contains(&of.0);
        let base = self.base.namespaced().filter(|(of, _)| !self.changed.has(of));
        let elsewhere = base.chain(self.changed.namespaced());
        let elsewhere = elsewhere.filter(|(of, _)| is_own(of)).map(|(_, node)| node);
        let nodes = self.nodes(who, CLUSTER).chain(elsewhere);
        let mut places: Vec<u32> = nodes.flat_map(|node| &node.bindings).copied().collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// The place of the role of a binding, if there is one.
    pub(crate) fn role_of(&self, binding: u32) -> Option<usize> {
        self.bound(binding).map(|role| role as usize)
    }

    fn bound(&self, binding: u32) -> Option<u32> {
        match self.base.places.ordinal(binding) {
            Some(ordinal) => self.base.bound.get(ordinal).copied().flatten(),
            None => self.changed.bound(binding),
        }
    }

    fn nodes<'g>(&'g self, who: &'g Ids, namespace: u32) -> impl Iterator<Item = &'g SubjectNode> {
        let subjects = who.as_slice().iter();
        subjects.filter_map(move |&subject| self.node(subject, namespace))
    }

    #[inline]
    fn node(&self, subject: u32, namespace: u32) -> Option<&SubjectNode> {
        if !self.changed.is_empty()
            && let Some(node) = self.changed.node(subject, namespace)
        {
            return Some(node);
        }
        self.base.node(subject, namespace)
    }

    #[inline]
    fn first(
        &self,
        who: &Ids,
        namespace: u32,
        query: &Query<'_, '_>,
        visited: &mut usize,
    ) -> Option<RulePlace> {
        let mut first: Option<RulePlace> = None;
        for &subject in who.as_slice() {
            let Some(node) = self.node(subject, namespace) else {
                continue;
            };
            let found = match &node.cells {
                Some(cells) => cells.find(query, |role, rule| self.rule(role, rule), visited),
                None => self.first_of_few(node, first, query, visited),
            };
            first = match (first, found) {
                (Some(first), Some(found)) => Some(first.min(found)),
                (first, found) => first.or(found),
            };
        }
        first
    }

    fn first_of_few(
        &self,
        node: &SubjectNode,
        first: Option<RulePlace>,
        query: &Query<'_, '_>,
        visited: &mut usize,
    ) -> Option<RulePlace> {
        let earlier = |binding: &&u32| first.is_none_or(|first| **binding < first.binding);
        node.bindings.iter().take_while(earlier).find_map(|&binding| {
            let role = self.bound(binding)?;
            let rule = self.base.roles.get(role as usize)?.find(query, visited)?;
            Some(RulePlace { binding, rule })
        })
    }

    fn rule(&self, role: u32, rule: u32) -> Option<&CompiledRule> {
        self.base.roles.get(role as usize)?.rules.get(rule as usize)
    }
}

/// The namespace whose RoleBindings may allow, if it is one that a rule or binding names.
fn namespace_of(query: &Query<'_, '_>) -> Option<u32> {
    match query {
        Query::Resource(query) if query.has_namespace && query.namespace != Symbols::UNKNOWN => {
            Some(query.namespace)
        }
        Query::Resource(_) | Query::Path(_) => None,
    }
}
