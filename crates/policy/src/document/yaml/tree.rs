//! The syntax tree of a document, before aliases, merge keys and scalars are resolved.

use super::super::layout::Layout;

/// A document's values. They refer to each other by their position, so that
/// no depth of nesting is a depth of the stack.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    values: Vec<Value>,
    pub(crate) root: usize,
}

#[derive(Debug)]
pub(crate) struct Value {
    /// From 0.
    pub(crate) line: u32,
    pub(crate) column: usize,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Scalar(Scalar),
    Sequence(Vec<usize>),
    /// Keys and values in turn.
    Mapping(Vec<usize>),
    /// The anchor's name, and what it stands at.
    Alias(String, usize),
}

#[derive(Debug, Default)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    /// In full, such as `tag:yaml.org,2002:int`; empty where there is none.
    pub(crate) tag: String,
    /// Whether its meaning follows from the text: it is plain, or its tag is `!`.
    pub(crate) implicit: bool,
    /// Where the characters of the text stand.
    pub(crate) layout: Layout,
}

// === impl Tree ===

impl Tree {
    pub(crate) fn push(&mut self, value: Value) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }

    pub(crate) fn value(&self, at: usize) -> Option<&Value> {
        self.values.get(at)
    }

    /// Adds the value `child` to the sequence or mapping `parent`.
    pub(crate) fn add(&mut self, parent: usize, child: usize) {
        if let Some(value) = self.values.get_mut(parent)
            && let Kind::Sequence(children) | Kind::Mapping(children) = &mut value.kind
        {
            children.push(child);
        }
    }
}
