//! All that is in a value, one after the other: what it takes to walk grows with how deep
//! values nest, not with how many they are.

use super::{Entries, Items, Kind, Node};

/// The items of a list, or the values of a map; nothing of a scalar.
#[derive(Clone)]
pub enum Children<'d> {
    /// Of a list.
    Items(Items<'d>),
    /// Of a map.
    Values(Entries<'d>),
}

/// A value and all that is in it, each value before what is in it.
#[derive(Clone)]
pub struct Descendants<'d> {
    first: Option<Node<'d>>,
    around: Vec<Children<'d>>,
}

// === impl Node ===

impl<'d> Node<'d> {
    /// The values in it, one level down.
    #[must_use]
    pub fn children(self) -> Children<'d> {
        match self.kind() {
            Kind::Object => Children::Values(self.entries()),
            _ => Children::Items(self.items()),
        }
    }

    /// It and all values in it, on every level.
    #[must_use]
    pub const fn descendants(self) -> Descendants<'d> {
        Descendants {
            first: Some(self),
            around: Vec::new(),
        }
    }
}

// === impl Children ===

impl<'d> Iterator for Children<'d> {
    type Item = Node<'d>;

    fn next(&mut self) -> Option<Node<'d>> {
        match self {
            Self::Items(items) => items.next(),
            Self::Values(entries) => entries.next().map(|(_, value)| value),
        }
    }
}

// === impl Descendants ===

impl<'d> Iterator for Descendants<'d> {
    type Item = Node<'d>;

    fn next(&mut self) -> Option<Node<'d>> {
        let node = self.first.take().or_else(|| {
            loop {
                match self.around.last_mut()?.next() {
                    Some(node) => return Some(node),
                    None => self.around.pop(),
                };
            }
        })?;
        if !node.is_empty() {
            self.around.push(node.children());
        }
        Some(node)
    }
}
