//! What became different in the grants of a set since it was built from nothing.

use std::sync::Arc;

use super::super::{FastMap, Subjects, Symbols};
use super::base::{CLUSTER, GrantsBase, SubjectNode};
use crate::engine::authorization::Binding;
use crate::engine::authorization::binding_list::BindingList;

/// The bindings that came, and every node with one that came or went, as it is now.
#[derive(Debug, Clone, Default)]
pub(super) struct ChangedGrants {
    /// By place, ascending.
    bound: Vec<(u32, Option<u32>)>,
    nodes: Vec<Arc<SubjectNode>>,
    /// Node by subject and namespace, or [`CLUSTER`].
    at: FastMap<(u32, u32), u32>,
}

/// What came to a node and went from it, as places.
#[derive(Default)]
struct NodeChange {
    removed: Vec<u32>,
    added: Vec<u32>,
}

// === impl ChangedGrants ===

impl ChangedGrants {
    /// What is different from `base` in `bindings`.
    pub(super) fn new(
        base: &GrantsBase,
        bindings: &BindingList,
        subjects: &mut Subjects,
        symbols: &mut Symbols,
    ) -> Self {
        let mut changes: FastMap<(u32, u32), NodeChange> = FastMap::default();
        let mut each = |binding: &Binding, note: &mut dyn FnMut(&mut NodeChange)| {
            let namespace = match binding.namespace.as_str() {
                "" => CLUSTER,
                namespace => symbols.intern(namespace),
            };
            for subject in &binding.subjects {
                if let Some(subject) = subjects.bound(subject, &binding.namespace) {
                    note(changes.entry((subject, namespace)).or_default());
                }
            }
        };
        let mut changed = Self::default();
        for (place, binding) in bindings.removed() {
            each(binding, &mut |change| change.removed.push(place));
        }
        for (place, binding) in bindings.added() {
            changed.bound.push((place, base.role_of(binding)));
            each(binding, &mut |change| change.added.push(place));
        }
        for (of, change) in changes {
            let node = change.apply(base.node(of.0, of.1));
            let role = |place| match base.places.ordinal(place) {
                Some(ordinal) => base.bound.get(ordinal).copied().flatten(),
                None => changed.bound(place),
            };
            let node = node.filled(&base.roles, role);
            let at = u32::try_from(changed.nodes.len()).unwrap_or(u32::MAX);
            changed.nodes.push(Arc::new(node));
            changed.at.insert(of, at);
        }
        changed
    }

    /// The role of a binding that came.
    pub(super) fn bound(&self, place: u32) -> Option<u32> {
        let at = self
            .bound
            .binary_search_by_key(&place, |(place, _)| *place)
            .ok()?;
        self.bound.get(at)?.1
    }

    /// Whether no node is different.
    pub(super) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// Whether it has the node of this subject and namespace.
    pub(super) fn has(&self, of: &(u32, u32)) -> bool {
        self.at.contains_key(of)
    }

    /// The nodes of namespaces, each with its subject and namespace.
    pub(super) fn namespaced(&self) -> impl Iterator<Item = ((u32, u32), &SubjectNode)> {
        let nodes = self.at.iter().filter(|((_, namespace), _)| *namespace != CLUSTER);
        nodes.filter_map(|(of, &node)| Some((*of, &**self.nodes.get(node as usize)?)))
    }

    pub(super) fn node(&self, subject: u32, namespace: u32) -> Option<&SubjectNode> {
        let node = self.at.get(&(subject, namespace)).copied()?;
        self.nodes.get(node as usize).map(AsRef::as_ref)
    }
}

// === impl NodeChange ===

impl NodeChange {
    /// `node`, where there is one, as it is now.
    fn apply(self, node: Option<&SubjectNode>) -> SubjectNode {
        let before = node.into_iter().flat_map(|node| &node.bindings).copied();
        let kept = before.filter(|place| self.removed.binary_search(place).is_err());
        let mut bindings: Vec<u32> = kept.chain(self.added).collect();
        bindings.sort_unstable();
        // One that names a subject twice.
        bindings.dedup();
        SubjectNode {
            bindings,
            cells: None,
        }
    }
}
