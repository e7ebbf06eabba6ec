//! A JSON value that can be changed and keeps the text of unchanged parts.

use std::borrow::Cow;
use std::collections::HashMap;

use super::tape::WIDE;
use super::text::write_string;
use super::{Kind, Node};

/// A value of which some parts may be new.
///
/// Only what lies on the way to a change is taken apart; everything else stays
/// a [`Node`] and is written as it was read.
#[derive(Debug, Clone)]
pub enum Tree<'d> {
    /// As it was read.
    Node(Node<'d>),
    /// `null`, of a change that gave no value.
    Null,
    /// A map taken apart.
    Object(TreeMap<'d>),
    /// A list taken apart.
    Array(Vec<Tree<'d>>),
}

/// The entries of a map that is being changed, in order.
#[derive(Debug, Clone, Default)]
pub struct TreeMap<'d> {
    /// Removed entries leave a gap.
    entries: Vec<Option<(Cow<'d, str>, Tree<'d>)>>,
    /// Where each key is; kept only once the map is wide.
    index: HashMap<Cow<'d, str>, usize>,
    live: usize,
}

// === impl Tree ===

impl<'d> Tree<'d> {
    /// Takes this value apart, one level, so that its items can be changed.
    /// A scalar stays what it is.
    pub fn open(&mut self) -> &mut Self {
        if let Self::Node(node) = *self {
            match node.kind() {
                Kind::Object => *self = Self::Object(TreeMap::of(node)),
                Kind::Array => *self = Self::Array(node.items().map(Tree::Node).collect()),
                Kind::Null | Kind::Bool | Kind::Number | Kind::String => {}
            }
        }
        self
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

    /// How many levels have been taken apart, this one included, and how many
    /// values they hold: what it costs to look.
    #[must_use]
    pub fn extent(&self) -> (usize, usize) {
        let within = |values: &mut dyn Iterator<Item = &Self>| {
            values.fold((1, 1), |(depth, count), value| {
                let (below, more) = value.extent();
                (depth.max(1 + below), count + more)
            })
        };
        match self {
            Self::Node(_) | Self::Null => (1, 1),
            Self::Object(map) => within(&mut map.values()),
            Self::Array(items) => within(&mut items.iter()),
        }
    }

    /// Writes it as JSON.
    pub fn write(&self, out: &mut String) {
        match self {
            Self::Node(node) => out.push_str(node.raw()),
            Self::Null => out.push_str("null"),
            Self::Object(map) => map.write(out),
            Self::Array(items) => {
                out.push('[');
                for (position, item) in items.iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
        }
    }

    /// It as JSON text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }
}

// === impl TreeMap ===

impl<'d> TreeMap<'d> {
    fn of(node: Node<'d>) -> Self {
        let mut map = Self::default();
        for (key, value) in node.entries() {
            map.push(key, Tree::Node(value));
        }
        map
    }

    /// The value at `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Tree<'d>> {
        let (_, value) = self.entries.get(self.position(key)?)?.as_ref()?;
        Some(value)
    }

    /// The value at `key`, to change it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Tree<'d>> {
        let position = self.position(key)?;
        let (_, value) = self.entries.get_mut(position)?.as_mut()?;
        Some(value)
    }

    /// Sets the value at `key`; a new key comes last.
    pub fn insert(&mut self, key: Cow<'d, str>, value: Tree<'d>) {
        match self.get_mut(&key) {
            Some(old) => *old = value,
            None => self.push(key, value),
        }
    }

    /// Takes out the value at `key`.
    pub fn remove(&mut self, key: &str) -> Option<Tree<'d>> {
        let position = self.position(key)?;
        let (key, value) = self.entries.get_mut(position)?.take()?;
        self.index.remove(&key);
        self.live -= 1;
        if self.entries.len() > WIDE && self.live < self.entries.len() / 2 {
            self.close_gaps();
        }
        Some(value)
    }

    /// Gaps must not outnumber entries: a copy would cost what it does not hold.
    fn close_gaps(&mut self) {
        self.entries.retain(Option::is_some);
        self.index.clear();
        if self.entries.len() > WIDE {
            self.index_all();
        }
    }

    fn index_all(&mut self) {
        let places = self.entries.iter().enumerate();
        self.index = places
            .filter_map(|(at, entry)| Some((entry.as_ref()?.0.clone(), at)))
            .collect();
    }

    /// How many keys there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.live
    }

    /// Whether there is no key.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The keys and values, in order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Tree<'d>)> {
        self.entries
            .iter()
            .flatten()
            .map(|(key, value)| (key.as_ref(), value))
    }

    /// The places that it takes, gaps among them.
    #[cfg(test)]
    pub(super) const fn places(&self) -> usize {
        self.entries.len()
    }

    fn values(&self) -> impl Iterator<Item = &Tree<'d>> {
        self.entries().map(|(_, value)| value)
    }

    fn push(&mut self, key: Cow<'d, str>, value: Tree<'d>) {
        let position = self.entries.len();
        if position > WIDE && self.index.is_empty() {
            self.index_all();
        }
        if position > WIDE {
            self.index.insert(key.clone(), position);
        }
        self.entries.push(Some((key, value)));
        self.live += 1;
    }

    fn position(&self, key: &str) -> Option<usize> {
        if self.entries.len() > WIDE + 1 {
            return self.index.get(key).copied();
        }
        self.entries
            .iter()
            .position(|entry| entry.as_ref().is_some_and(|(name, _)| name == key))
    }

    fn write(&self, out: &mut String) {
        out.push('{');
        for (position, (key, value)) in self.entries().enumerate() {
            if position > 0 {
                out.push(',');
            }
            write_string(out, key);
            out.push(':');
            value.write(out);
        }
        out.push('}');
    }
}
