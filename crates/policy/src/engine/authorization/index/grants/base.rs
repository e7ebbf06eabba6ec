//! The grants of a set that was built from nothing.

use std::sync::Arc;

use super::super::cells::{Cells, CompiledRule, RulePlace};
use super::super::query::Query;
use super::super::{FastMap, Subjects, Symbols};
use crate::engine::authorization::binding_list::{BindingList, BindingPlaces};
use crate::engine::authorization::{Binding, Role, RoleKind};

/// What sets share that came of one another.
#[derive(Debug, Default)]
pub(super) struct GrantsBase {
    pub(super) places: BindingPlaces,
    pub(super) roles: Vec<CompiledRole>,
    /// Roles by [`role_key`].
    by_name: FastMap<Box<str>, u32>,
    /// For each binding its role; none where there is no such, and then it grants nothing.
    pub(super) bound: Vec<Option<u32>>,
    nodes: Vec<SubjectNode>,
    /// By subject.
    subjects: Vec<BoundSubject>,
    /// Node by subject and namespace.
    namespaced: FastMap<(u32, u32), u32>,
}

/// Where a subject is bound.
#[derive(Debug, Clone, Copy)]
struct BoundSubject {
    /// Its node of cluster scope, or [`NO_NODE`].
    cluster: u32,
    /// A bit for each namespace in which it has a node, which namespaces share: most subjects
    /// of a request are bound in none.
    namespaces: u32,
}

#[derive(Debug)]
pub(super) struct CompiledRole {
    pub(super) rules: Vec<CompiledRule>,
    /// Where the rules are too many to be compared one by one.
    cells: Option<Cells>,
}

#[derive(Debug, Default)]
pub(super) struct SubjectNode {
    /// The places of the bindings of the subject here, ascending.
    pub(super) bindings: Vec<u32>,
    /// Where they are too many to be asked one by one.
    pub(super) cells: Option<Box<Cells>>,
}

/// In the place of a namespace: cluster scope.
pub(super) const CLUSTER: u32 = Symbols::UNKNOWN;

/// In the place of a node: none.
const NO_NODE: u32 = u32::MAX;

/// More rules of a role than this get cells.
const FEW_RULES: usize = 8;
/// More bindings of a node than this get cells.
const FEW_BINDINGS: usize = 8;

// === impl GrantsBase ===

impl GrantsBase {
    /// The index of `bindings`, of which none came or went since the list was built.
    pub(super) fn new(
        roles: &[Arc<Role>],
        bindings: &BindingList,
        subjects: &mut Subjects,
        symbols: &mut Symbols,
    ) -> Self {
        let mut base = Self {
            places: bindings.places(),
            roles: roles
                .iter()
                .map(|role| CompiledRole::new(role, symbols))
                .collect(),
            ..Self::default()
        };
        for (at, role) in (0..).zip(roles) {
            let key = role_key(&role.namespace, &role.name);
            base.by_name.entry(key.into()).or_insert(at);
        }
        for (place, binding) in bindings.iter() {
            base.bound.push(base.role_of(binding));
            for subject in &binding.subjects {
                if let Some(subject) = subjects.bound(subject, &binding.namespace) {
                    base.bind(subject, &binding.namespace, place, symbols);
                }
            }
        }
        base.subjects.shrink_to_fit();
        base.fill_nodes();
        base
    }

    /// The role that a binding means, where there is one. Where there is none, that is told of
    /// where nothing decides: see `unmatched`.
    pub(super) fn role_of(&self, binding: &Binding) -> Option<u32> {
        let (role, namespace) = (&binding.role, binding.namespace.as_str());
        let key = match role.kind {
            // A ClusterRoleBinding has no namespace in which a Role could be.
            RoleKind::Role if namespace.is_empty() => return None,
            RoleKind::Role => role_key(namespace, &role.name),
            RoleKind::ClusterRole => role_key("", &role.name),
        };
        self.by_name.get(key.as_str()).copied()
    }

    fn bind(&mut self, subject: u32, namespace: &str, place: u32, symbols: &mut Symbols) {
        let next = u32::try_from(self.nodes.len()).unwrap_or(NO_NODE);
        let at = subject as usize;
        if self.subjects.len() <= at {
            self.subjects.resize(at + 1, BoundSubject::NOWHERE);
        }
        let Some(bound) = self.subjects.get_mut(at) else {
            return;
        };
        let node = if namespace.is_empty() {
            if bound.cluster == NO_NODE {
                bound.cluster = next;
            }
            bound.cluster
        } else {
            let namespace = symbols.intern(namespace);
            bound.namespaces |= namespace_bit(namespace);
            *self.namespaced.entry((subject, namespace)).or_insert(next)
        };
        if node == next {
            self.nodes.push(SubjectNode::default());
        }
        if let Some(node) = self.nodes.get_mut(node as usize)
            && node.bindings.last() != Some(&place)
        {
            node.bindings.push(place);
        }
    }

    fn fill_nodes(&mut self) {
        let Self {
            places,
            roles,
            bound,
            nodes,
            ..
        } = self;
        let role = |place| bound.get(places.ordinal(place)?).copied().flatten();
        for node in nodes {
            node.bindings.shrink_to_fit();
            *node = std::mem::take(node).filled(roles, role);
        }
    }

    #[inline]
    fn cluster_node(&self, subject: u32) -> Option<&SubjectNode> {
        let bound = self.subjects.get(subject as usize)?;
        self.nodes.get(bound.cluster as usize)
    }

    #[inline]
    fn namespace_node(&self, subject: u32, namespace: u32) -> Option<&SubjectNode> {
        let bound = self.subjects.get(subject as usize)?;
        if bound.namespaces & namespace_bit(namespace) == 0 {
            return None;
        }
        let node = self.namespaced.get(&(subject, namespace)).copied()?;
        self.nodes.get(node as usize)
    }

    /// The nodes of namespaces, each with its subject and namespace.
    pub(super) fn namespaced(&self) -> impl Iterator<Item = ((u32, u32), &SubjectNode)> {
        let nodes = self.namespaced.iter();
        nodes.filter_map(|(of, &node)| Some((*of, self.nodes.get(node as usize)?)))
    }

    #[inline]
    pub(super) fn node(&self, subject: u32, namespace: u32) -> Option<&SubjectNode> {
        match namespace {
            CLUSTER => self.cluster_node(subject),
            namespace => self.namespace_node(subject, namespace),
        }
    }
}

const fn namespace_bit(namespace: u32) -> u32 {
    1 << (namespace % u32::BITS)
}

/// The key of a role, whose namespace is empty for a ClusterRole: neither has a `/`.
fn role_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

// === impl BoundSubject ===

impl BoundSubject {
    const NOWHERE: Self = Self {
        cluster: NO_NODE,
        namespaces: 0,
    };
}

// === impl SubjectNode ===

impl SubjectNode {
    /// With cells, where it has too many bindings to be asked one by one.
    pub(super) fn filled(mut self, roles: &[CompiledRole], role_at: impl Fn(u32) -> Option<u32>) -> Self {
        if self.bindings.len() <= FEW_BINDINGS {
            return self;
        }
        let mut cells = Box::<Cells>::default();
        for &binding in &self.bindings {
            let Some(role) = role_at(binding) else { continue };
            let rules = roles.get(role as usize).into_iter().flat_map(|role| &role.rules);
            for (rule, compiled) in (0..).zip(rules) {
                cells.add(compiled, role, RulePlace { binding, rule });
            }
        }
        self.cells = Some(cells);
        self
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
    pub(super) fn find(&self, query: &Query<'_, '_>, visited: &mut usize) -> Option<u32> {
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
