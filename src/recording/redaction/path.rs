//! Paths of what is removed, and the values that they lead to.

use super::marks::Marks;
use super::{MANAGED_FIELDS, key};
use crate::config::PathStep;
use portcullis_cel::json::{Children, Kind, Node};

/// What is removed of an object: a path from its root.
#[derive(Debug, Clone)]
pub(crate) struct Pattern(Vec<PathStep>);

// === impl Pattern ===

impl Pattern {
    pub(crate) const fn new(steps: Vec<PathStep>) -> Self {
        Self(steps)
    }

    pub(crate) fn keys<const N: usize>(names: [&str; N]) -> Self {
        Self(names.map(key).to_vec())
    }

    /// Whether it is the object itself.
    pub(crate) const fn is_whole(&self) -> bool {
        self.0.is_empty()
    }

    /// Marks what it leads to in `node`.
    pub(crate) fn find(&self, node: Node<'_>, marks: &mut Marks) {
        find(&self.0, node, marks);
    }

    /// What of the path is left once `taken` have been gone; `None` where they lead elsewhere.
    /// Indices of lists need no step of their own.
    pub(crate) fn after<S: AsRef<str>>(&self, taken: &[S]) -> Option<&[PathStep]> {
        let mut left = self.0.as_slice();
        for step in taken.iter().map(AsRef::as_ref) {
            match left.split_first() {
                // Within what is removed.
                None => break,
                Some((PathStep::Each, rest)) => left = rest,
                Some((PathStep::Key(name), rest)) if name == step => left = rest,
                Some(_) if is_index(step) => {}
                Some(_) => return None,
            }
        }
        Some(left)
    }
}

/// Marks what `steps` lead to in `node`.
pub(crate) fn find<'s, 'd>(steps: &'s [PathStep], node: Node<'d>, marks: &mut Marks) {
    let is_content = !matches!(steps.last(), Some(PathStep::Key(name)) if name == MANAGED_FIELDS);
    // The lists and maps all of whose values are gone into, and with which steps.
    let mut around: Vec<(Children<'d>, &'s [PathStep])> = Vec::new();
    let mut next = Some((node, steps));
    while let Some((node, steps)) = next.take() {
        match (steps.split_first(), node.kind()) {
            (None, Kind::Null) => {}
            (None, _) if is_content => marks.add(node),
            (None, _) => marks.add_names(node),
            (Some((PathStep::Key(name), rest)), Kind::Object) => {
                next = node.get(name).map(|value| (value, rest));
            }
            (Some((PathStep::Each, rest)), Kind::Object | Kind::Array) => {
                around.push((node.children(), rest))
            }
            // A name is that of each item.
            (Some((PathStep::Key(_), _)), Kind::Array) => around.push((node.children(), steps)),
            // Not of the type that the path expects: what it hides may be in there.
            (Some(_), Kind::String) => marks.add(node),
            (Some(_), Kind::Null | Kind::Bool | Kind::Number) => {}
        }
        while next.is_none()
            && let Some((children, steps)) = around.last_mut()
        {
            let steps = *steps;
            next = children.next().map(|child| (child, steps));
            if next.is_none() {
                around.pop();
            }
        }
    }
}

fn is_index(step: &str) -> bool {
    step == "-" || !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit())
}
