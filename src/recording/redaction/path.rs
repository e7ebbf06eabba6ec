//! Paths of what is removed, and the places that they lead to.

use std::collections::BTreeMap;

use super::{DEEPEST, MARKER, key};
use crate::config::PathStep;
use portcullis_cel::json::{Document, Kind, Node, Tree};

/// What is removed of an object: a path from its root.
#[derive(Debug, Clone)]
pub(super) struct Pattern(Vec<PathStep>);

/// A value that is removed.
#[derive(Debug)]
pub(super) struct RedactedPlace<'d> {
    /// The keys and indices that lead to it.
    pub(super) steps: Vec<String>,
    pub(super) node: Node<'d>,
}

/// The places to remove below one value.
#[derive(Debug, Default)]
struct Branch {
    is_removed: bool,
    below: BTreeMap<String, Branch>,
}

// === impl RedactedPlace ===

impl<'d> RedactedPlace<'d> {
    /// The value at `steps`; where they are too many, all that is around it has to go too, and
    /// it is still this value whose content is known to be removed.
    pub(super) fn of(mut steps: Vec<String>, node: Node<'d>) -> Self {
        steps.truncate(DEEPEST);
        Self { steps, node }
    }
}

// === impl Pattern ===

impl Pattern {
    pub(super) const fn new(steps: Vec<PathStep>) -> Self {
        Self(steps)
    }

    pub(super) fn keys<const N: usize>(names: [&str; N]) -> Self {
        Self(names.map(key).to_vec())
    }

    /// Whether it is the object itself.
    pub(super) const fn is_whole(&self) -> bool {
        self.0.is_empty()
    }

    /// What of the path is left once `steps` have been taken; `None` where they lead elsewhere.
    /// Indices of lists need no step of their own.
    pub(super) fn after(&self, steps: &[String]) -> Option<Self> {
        let mut left = self.0.as_slice();
        for step in steps {
            match left.split_first() {
                // Within what is removed.
                None => break,
                Some((PathStep::Each, rest)) => left = rest,
                Some((PathStep::Key(name), rest)) if name == step => left = rest,
                Some(_) if is_index(step) => {}
                Some(_) => return None,
            }
        }
        Some(Self(left.to_vec()))
    }

    /// Adds what it leads to in `node`, which is at `at`.
    pub(super) fn find<'d>(&self, node: Node<'d>, at: &[String], found: &mut Vec<RedactedPlace<'d>>) {
        let mut pending = vec![(node, self.0.as_slice(), at.to_vec())];
        while let Some((node, steps, at)) = pending.pop() {
            let Some((step, rest)) = steps.split_first() else {
                if !node.is_null() {
                    found.push(RedactedPlace::of(at, node));
                }
                continue;
            };
            let mut go = |name: String, node: Node<'d>, steps| {
                let mut at = at.clone();
                at.push(name);
                pending.push((node, steps, at));
            };
            match (step, node.kind()) {
                (PathStep::Key(name), Kind::Object) => {
                    if let Some(value) = node.get(name) {
                        go(name.clone(), value, rest);
                    }
                }
                (PathStep::Each, Kind::Object) => node
                    .entries()
                    .for_each(|(name, value)| go(name.into_owned(), value, rest)),
                (PathStep::Each, Kind::Array) => items(node).for_each(|(index, item)| go(index, item, rest)),
                // A name is that of each item.
                (PathStep::Key(_), Kind::Array) => {
                    items(node).for_each(|(index, item)| go(index, item, steps));
                }
                // Not of the type that the path expects: what it hides may be in there.
                (_, Kind::String) => found.push(RedactedPlace::of(at, node)),
                (_, Kind::Null | Kind::Bool | Kind::Number) => {}
            }
        }
    }
}

fn items(node: Node<'_>) -> impl Iterator<Item = (String, Node<'_>)> {
    node.items()
        .enumerate()
        .map(|(index, item)| (index.to_string(), item))
}

fn is_index(step: &str) -> bool {
    step == "-" || !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit())
}

/// The text of `root` without `places`, and where they were, each outermost one once.
pub(super) fn remove_all(root: Node<'_>, places: Vec<RedactedPlace<'_>>) -> (String, Vec<Vec<String>>) {
    if places.is_empty() {
        return (root.raw().to_owned(), Vec::new());
    }
    let mut all = Branch::default();
    for place in places {
        let branch = place
            .steps
            .into_iter()
            .fold(&mut all, |branch, step| branch.below.entry(step).or_default());
        branch.is_removed = true;
    }
    let markers = Markers::new();
    let (mut tree, mut removed) = (Tree::Node(root), Vec::new());
    all.remove(&mut tree, &markers, &mut Vec::new(), &mut removed);
    (tree.to_text(), removed)
}

/// What stands in place of what was removed.
struct Markers {
    text: Option<Document<'static>>,
    map: Option<Document<'static>>,
}

// === impl Markers ===

impl Markers {
    fn new() -> Self {
        Self {
            text: Document::parse(format!("\"{MARKER}\"")).ok(),
            map: Document::parse("{}").ok(),
        }
    }
}

// === impl Branch ===

impl Branch {
    fn remove<'m: 'd, 'd>(
        &self,
        tree: &mut Tree<'d>,
        markers: &'m Markers,
        at: &mut Vec<String>,
        removed: &mut Vec<Vec<String>>,
    ) {
        if self.is_removed {
            // A review has an object, or none: text is neither.
            let is_member = at.len() == 2 && matches!(tree, Tree::Node(node) if node.kind() == Kind::Object);
            let marker = if is_member { &markers.map } else { &markers.text };
            *tree = marker
                .as_ref()
                .map_or(Tree::Null, |marker| Tree::Node(marker.root()));
            removed.push(at.clone());
            return;
        }
        for (step, branch) in &self.below {
            let child = match tree.open() {
                Tree::Object(map) => map.get_mut(step),
                Tree::Array(items) => step.parse().ok().and_then(|index: usize| items.get_mut(index)),
                Tree::Node(_) | Tree::Null => None,
            };
            if let Some(child) = child {
                at.push(step.clone());
                branch.remove(child, markers, at, removed);
                at.pop();
            }
        }
    }
}
