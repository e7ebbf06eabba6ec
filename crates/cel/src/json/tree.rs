//! A JSON value that can be changed and keeps the text of unchanged parts.

mod list;
mod map;

pub use list::TreeList;
pub use map::TreeMap;

use super::{Kind, Node};

/// A value of which some parts may be new.
///
/// It takes memory for its changes alone: a map or list on the way to a change notes what
/// differs from what was read, and everything else stays a [`Node`] and is written as it was
/// read.
#[derive(Debug, Clone)]
pub enum Tree<'d> {
    /// As it was read.
    Node(Node<'d>),
    /// `null`, of a change that gave no value.
    Null,
    /// A map with changes.
    Object(Box<TreeMap<'d>>),
    /// A list with changes.
    Array(Box<TreeList<'d>>),
}

/// What a changed value takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// How many levels are open, this one included.
    pub(crate) levels: usize,
    /// How many notes of changes there are: what it costs to look, and to copy.
    pub(crate) notes: usize,
    /// No fewer bytes than it is written in.
    pub(crate) bytes: usize,
}

// === impl Tree ===

impl<'d> Tree<'d> {
    /// Opens a map or list, so that its values can be changed. A scalar stays what it is.
    pub fn open(&mut self) -> &mut Self {
        if let Self::Node(node) = *self {
            match node.kind() {
                Kind::Object => *self = Self::Object(Box::new(TreeMap::of(node))),
                Kind::Array => *self = Self::Array(Box::new(TreeList::of(node))),
                Kind::Null | Kind::Bool | Kind::Number | Kind::String => {}
            }
        }
        self
    }

    /// Whether it is as it was read.
    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self, Self::Node(_) | Self::Null)
    }

    /// Whether it is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        match self {
            Self::Node(node) => node.is_null(),
            Self::Null => true,
            Self::Object(_) | Self::Array(_) => false,
        }
    }

    pub(crate) fn extent(&self) -> Extent {
        match self {
            Self::Node(node) => Extent::of(node.raw().len()),
            Self::Null => Extent::of("null".len()),
            Self::Object(map) => map.extent(),
            Self::Array(list) => list.extent(),
        }
    }

    /// Writes it as JSON.
    pub fn write(&self, out: &mut String) {
        match self {
            Self::Node(node) => out.push_str(node.raw()),
            Self::Null => out.push_str("null"),
            Self::Object(map) => map.write(out),
            Self::Array(list) => list.write(out),
        }
    }

    /// It as JSON text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::with_capacity(self.extent().bytes);
        self.write(&mut text);
        text
    }
}

// === impl Extent ===

impl Extent {
    /// Of a value that is written in so many bytes, and has no changes.
    const fn of(bytes: usize) -> Self {
        Self {
            levels: 1,
            notes: 1,
            bytes,
        }
    }

    /// Adds a value within.
    fn add(&mut self, within: Self) {
        self.levels = self.levels.max(1 + within.levels);
        self.notes += within.notes;
        self.bytes += within.bytes;
    }
}
