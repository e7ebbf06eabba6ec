//! Whether two values say the same.

use super::{Kind, Node, NodeEntries, NodeItems};

/// Text is compared as a whole near the root alone: else a difference at the bottom of a deep
/// value would be looked for once on each level.
const WHOLE: usize = 32;

/// As many bytes of text as are compared in about the time that a value takes.
const STEP_BYTES: usize = 256;

/// Two lists or maps that are being compared: what comes next of them.
enum PairedNodes<'l, 'r> {
    Items(NodeItems<'l>, NodeItems<'r>),
    Entries(NodeEntries<'l>, Node<'r>),
}

/// What is found of two values without going into them.
enum NodeComparison<'l, 'r> {
    Same,
    Different,
    Within(PairedNodes<'l, 'r>),
}

// === impl Node ===

impl Node<'_> {
    /// Whether both say the same: the order of keys, white space and the
    /// spelling of escapes do not matter; numbers are compared as written.
    #[must_use]
    pub fn same(self, other: Node<'_>) -> bool {
        let mut steps = usize::MAX;
        self.same_within(other, &mut steps)
    }

    /// Whether both say the same. They do not if `steps` are used up before that is known.
    pub(crate) fn same_within(self, other: Node<'_>, steps: &mut usize) -> bool {
        if self.kind() == other.kind() && self.is_spelt_as(other, steps) {
            return true;
        }
        // It grows with the depth of values, not with their number.
        let mut around: Vec<PairedNodes<'_, '_>> = Vec::new();
        let mut next = Some((self, other));
        while let Some((left, right)) = next.take() {
            match compare(left, right, around.len(), steps) {
                NodeComparison::Different => return false,
                NodeComparison::Same => {}
                NodeComparison::Within(compared) => around.push(compared),
            }
            while let Some(compared) = around.last_mut() {
                match compared.next() {
                    Some(Some(pair)) => {
                        next = Some(pair);
                        break;
                    }
                    Some(None) => return false,
                    None => drop(around.pop()),
                }
            }
        }
        true
    }

    /// Whether both are the same text.
    fn is_spelt_as(self, other: Node<'_>, steps: &mut usize) -> bool {
        let (left, right) = (self.raw(), other.raw());
        if left.len() != right.len() {
            return false;
        }
        *steps = steps.saturating_sub(left.len() / STEP_BYTES);
        left == right
    }
}

// === impl PairedNodes ===

impl<'l, 'r> PairedNodes<'l, 'r> {
    /// The next pair of values; the right side may have none.
    fn next(&mut self) -> Option<Option<(Node<'l>, Node<'r>)>> {
        match self {
            Self::Items(left, right) => left.next().map(|left| Some((left, right.next()?))),
            Self::Entries(left, right) => {
                let (key, left) = left.next()?;
                Some(right.get(&key).map(|right| (left, right)))
            }
        }
    }
}

fn compare<'l, 'r>(
    left: Node<'l>,
    right: Node<'r>,
    level: usize,
    steps: &mut usize,
) -> NodeComparison<'l, 'r> {
    if left.kind() != right.kind() || left.len() != right.len() || *steps == 0 {
        return NodeComparison::Different;
    }
    *steps -= 1;
    let is_scalar = !matches!(left.kind(), Kind::Array | Kind::Object);
    if (is_scalar || level < WHOLE) && left.is_spelt_as(right, steps) {
        return NodeComparison::Same;
    }
    match left.kind() {
        Kind::String if left.as_str() == right.as_str() => NodeComparison::Same,
        Kind::Null | Kind::Bool | Kind::Number | Kind::String => NodeComparison::Different,
        Kind::Array => NodeComparison::Within(PairedNodes::Items(left.items(), right.items())),
        Kind::Object => NodeComparison::Within(PairedNodes::Entries(left.entries(), right)),
    }
}

// All that is in a value, one after the other: what it takes to walk grows with how deep
// values nest, not with how many they are.

/// The items of a list, or the values of a map; nothing of a scalar.
#[derive(Clone)]
pub enum Children<'d> {
    /// Of a list.
    Items(NodeItems<'d>),
    /// Of a map.
    Values(NodeEntries<'d>),
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
