//! RBAC grants, indexed by subject and namespace.
//!
//! For each subject there is a node for cluster scope and one for each namespace with a
//! binding for it. A node with few bindings asks their roles one by one, so that a role
//! bound in 10,000 namespaces is compiled once; a node with many bindings has its own
//! cells.

use crate::engine::authorization::rbac::{RoleFault, Roles};
use crate::engine::authorization::{Binding, Role};

use super::cells::{Cells, CompiledRule, RulePlace};
use super::query::Query;
use super::{FastMap, Ids, Subjects, Symbols};

/// All that RBAC grants.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    roles: Vec<CompiledRole>,
    /// For each binding its role; none where there is no such, and then it grants nothing.
    bound: Vec<Option<u32>>,
    nodes: Vec<SubjectNode>,
    /// Node of cluster scope by subject.
    cluster: Vec<Option<u32>>,
    /// Node by subject and namespace.
    namespaced: FastMap<(u32, u32), u32>,
}

/// What allows a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The place of the binding in the list that the index was built of.
    pub(crate) binding: usize,
    /// The rule of its role.
    pub(crate) rule: usize,
}

#[derive(Debug)]
struct CompiledRole {
    rules: Vec<CompiledRule>,
    /// Where the rules are too many to be compared one by one.
    cells: Option<Cells>,
}

#[derive(Debug, Default)]
struct SubjectNode {
    /// The bindings of the subject here, ascending.
    bindings: Vec<u32>,
    /// Where they are too many to be asked one by one.
    cells: Option<Cells>,
}

/// More rules of a role than this get cells.
const FEW_RULES: usize = 8;
/// More bindings of a node than this get cells.
const FEW_BINDINGS: usize = 8;

// === impl Grants ===

impl Grants {
    /// The index of `bindings`, which are in the order in which they decide.
    pub(crate) fn new(
        roles: &[Role],
        bindings: &[Binding],
        subjects: &mut Subjects,
        symbols: &mut Symbols,
    ) -> Self {
        let by_name = Roles::new(roles);
        let mut grants = Self {
            roles: roles
                .iter()
                .map(|role| CompiledRole::new(role, symbols))
                .collect(),
            ..Self::default()
        };
        for (ordinal, binding) in (0..).zip(bindings) {
            let role = match by_name.resolve(&binding.role, &binding.namespace) {
                Ok(role) => u32::try_from(role).ok(),
                // Told of where nothing decides: see `unmatched`.
                Err(RoleFault::NoRole(_) | RoleFault::NoClusterRole(_)) => None,
            };
            grants.bound.push(role);
            for subject in &binding.subjects {
                if let Some(subject) = subjects.bound(subject, &binding.namespace) {
                    grants.bind(subject, &binding.namespace, ordinal, symbols);
                }
            }
        }
        grants.fill_nodes();
        grants
    }

    /// The first rule by which one of `who` may do what `query` asks.
    pub(crate) fn find(&self, who: &Ids, query: &Query<'_, '_>, visited: &mut usize) -> Option<Grant> {
        // Bindings of cluster scope come before all others.
        self.first(self.cluster_nodes(who), query, visited)
            .or_else(|| self.first(self.namespace_nodes(who, query), query, visited))
            .map(|place| Grant {
                binding: place.binding as usize,
                rule: place.rule as usize,
            })
    }

    /// The places of the bindings that apply to `who` where `query` asks, in
    /// the order in which they decide, each once; of each subject at most `limit`.
    pub(crate) fn applying(&self, who: &Ids, query: &Query<'_, '_>, limit: usize) -> Vec<usize> {
        let nodes = self.cluster_nodes(who).chain(self.namespace_nodes(who, query));
        let places = nodes.flat_map(|node| node.bindings.iter().take(limit));
        let mut places: Vec<usize> = places.map(|&binding| binding as usize).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// The places of all bindings of `who`, in the order in which they decide, each once.
    pub(crate) fn held(&self, who: &Ids) -> Vec<usize> {
        let is_own = |subject: &u32| who.as_slice().contains(subject);
        let elsewhere = self.namespaced.iter().filter(|((subject, _), _)| is_own(subject));
        let elsewhere = elsewhere.filter_map(|(_, &node)| self.nodes.get(node as usize));
        let nodes = self.cluster_nodes(who).chain(elsewhere);
        let mut places: Vec<usize> = nodes
            .flat_map(|node| node.bindings.iter().map(|&binding| binding as usize))
            .collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// The place of the role of a binding, if there is one.
    pub(crate) fn role_of(&self, binding: usize) -> Option<usize> {
        self.bound
            .get(binding)
            .copied()
            .flatten()
            .map(|role| role as usize)
    }

    fn bind(&mut self, subject: u32, namespace: &str, ordinal: u32, symbols: &mut Symbols) {
        let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let node = if namespace.is_empty() {
            let place = subject as usize;
            if self.cluster.len() <= place {
                self.cluster.resize(place + 1, None);
            }
            self.cluster
                .get_mut(place)
                .map_or(next, |node| *node.get_or_insert(next))
        } else {
            *self
                .namespaced
                .entry((subject, symbols.intern(namespace)))
                .or_insert(next)
        };
        if node == next {
            self.nodes.push(SubjectNode::default());
        }
        if let Some(node) = self.nodes.get_mut(node as usize)
            && node.bindings.last() != Some(&ordinal)
        {
            node.bindings.push(ordinal);
        }
    }

    fn fill_nodes(&mut self) {
        let Self {
            roles, bound, nodes, ..
        } = self;
        for node in nodes.iter_mut().filter(|node| node.bindings.len() > FEW_BINDINGS) {
            let mut cells = Cells::default();
            for &binding in &node.bindings {
                let Some(role) = bound.get(binding as usize).copied().flatten() else {
                    continue;
                };
                let rules = roles.get(role as usize).into_iter().flat_map(|role| &role.rules);
                for (rule, compiled) in (0..).zip(rules) {
                    cells.add(compiled, role, RulePlace { binding, rule });
                }
            }
            node.cells = Some(cells);
        }
    }

    fn cluster_nodes<'g>(&'g self, who: &'g Ids) -> impl Iterator<Item = &'g SubjectNode> {
        let node = |&subject: &u32| self.cluster.get(subject as usize).copied().flatten();
        who.as_slice()
            .iter()
            .filter_map(node)
            .filter_map(|node| self.nodes.get(node as usize))
    }

    fn namespace_nodes<'g>(
        &'g self,
        who: &'g Ids,
        query: &Query<'_, '_>,
    ) -> impl Iterator<Item = &'g SubjectNode> {
        let namespace = match query {
            Query::Resource(query) if query.has_namespace && query.namespace != Symbols::UNKNOWN => {
                Some(query.namespace)
            }
            _ => None,
        };
        let node = move |(&subject, namespace)| self.namespaced.get(&(subject, namespace)).copied();
        let subjects = who.as_slice().iter();
        let subjects = subjects.zip(namespace.into_iter().cycle());
        subjects
            .filter_map(node)
            .filter_map(|node| self.nodes.get(node as usize))
    }

    fn first<'g>(
        &self,
        nodes: impl Iterator<Item = &'g SubjectNode>,
        query: &Query<'_, '_>,
        visited: &mut usize,
    ) -> Option<RulePlace> {
        let mut first: Option<RulePlace> = None;
        for node in nodes {
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
            let role = self.bound.get(binding as usize).copied().flatten()?;
            let rule = self.roles.get(role as usize)?.find(query, visited)?;
            Some(RulePlace { binding, rule })
        })
    }

    fn rule(&self, role: u32, rule: u32) -> Option<&CompiledRule> {
        self.roles.get(role as usize)?.rules.get(rule as usize)
    }
}

// === impl CompiledRole ===

impl CompiledRole {
    fn new(role: &Role, symbols: &mut Symbols) -> Self {
        let rules: Vec<_> = role
            .rules
            .iter()
            .map(|rule| CompiledRule::new(rule, symbols))
            .collect();
        let mut cells = None;
        if rules.len() > FEW_RULES {
            let cells = cells.get_or_insert_with(Cells::default);
            for (rule, compiled) in (0..).zip(&rules) {
                cells.add(compiled, 0, RulePlace { binding: 0, rule });
            }
        }
        Self { rules, cells }
    }

    /// The first rule that allows `query`.
    fn find(&self, query: &Query<'_, '_>, visited: &mut usize) -> Option<u32> {
        match &self.cells {
            Some(cells) => cells
                .find(query, |_, rule| self.rules.get(rule as usize), visited)
                .map(|place| place.rule),
            None => (0..).zip(&self.rules).find_map(|(place, rule)| {
                *visited += 1;
                rule.allows(query).then_some(place)
            }),
        }
    }
}
