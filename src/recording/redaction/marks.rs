//! The values that are removed, as places in the index of a document.

use portcullis_cel::json::{Document, Node};

/// Values that are removed; a value may be marked several times, and within another.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Position, and whether what is there is secret.
    found: Vec<(u32, bool)>,
}

// === impl Marks ===

impl Marks {
    /// Marks a value whose content is secret.
    pub(crate) fn add(&mut self, node: Node<'_>) {
        self.found.push((node.position(), true));
    }

    /// Marks one that could tell the names of fields alone.
    pub(crate) fn add_names(&mut self, node: Node<'_>) {
        self.found.push((node.position(), false));
    }

    /// Whether something in `node` is marked, or all of it.
    pub(crate) fn is_any_in(&self, node: Node<'_>) -> bool {
        let within = node.position()..node.end();
        self.found.iter().any(|(position, _)| within.contains(position))
    }

    /// The values whose content is secret, of those within others the outermost.
    pub(crate) fn content<'d>(&self, document: &'d Document<'d>) -> impl Iterator<Item = Node<'d>> {
        let secret = self.found.iter().filter(|(_, is_content)| *is_content);
        let mut positions: Vec<u32> = secret.map(|(position, _)| *position).collect();
        positions.sort_unstable();
        let mut end = 0;
        positions.into_iter().filter_map(move |position| {
            let node = document.at(position).filter(|_| position >= end)?;
            end = node.end();
            Some(node)
        })
    }

    /// The positions of all, in rising order.
    pub(crate) fn into_positions(self) -> Vec<u32> {
        let mut positions: Vec<u32> = self.found.into_iter().map(|(position, _)| position).collect();
        positions.sort_unstable();
        positions.dedup();
        positions
    }
}
