//! The syntax tree of a document, before aliases, merge keys and scalars are resolved.

use super::super::layout::Layout;

/// A document's values. They refer to each other by their position, so that
/// no depth of nesting is a depth of the stack.
#[derive(Debug, Default)]
pub(super) struct Tree {
    values: Vec<Value>,
    pub(super) root: usize,
}

#[derive(Debug)]
pub(super) struct Value {
    /// From 0.
    pub(super) line: u32,
    pub(super) column: usize,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Scalar(Scalar),
    Sequence(Vec<usize>),
    /// Keys and values in turn.
    Mapping(Vec<usize>),
    /// The anchor's name, and what it stands at.
    Alias(String, usize),
}

#[derive(Debug, Default)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// In full, such as `tag:yaml.org,2002:int`; empty where there is none.
    pub(super) tag: String,
    /// Whether its meaning follows from the text: it is plain, or its tag is `!`.
    pub(super) implicit: bool,
    /// Where the characters of the text stand.
    pub(super) layout: Layout,
}

// === impl Tree ===

impl Tree {
    pub(super) fn push(&mut self, value: Value) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }

    pub(super) fn value(&self, at: usize) -> Option<&Value> {
        self.values.get(at)
    }

    /// Adds the value `child` to the sequence or mapping `parent`.
    pub(super) fn add(&mut self, parent: usize, child: usize) {
        if let Some(value) = self.values.get_mut(parent)
            && let Kind::Sequence(children) | Kind::Mapping(children) = &mut value.kind
        {
            children.push(child);
        }
    }
}
