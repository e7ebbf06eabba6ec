//! A JSON value that can be changed and keeps the text of unchanged parts. A list that is being changed
//! consists of runs of items as they were read, and of items that differ.

use std::borrow::Cow;
use std::collections::HashMap;
use std::mem;

use super::text::write_string;
use super::{Kind, Node, NodeEntries, WIDE};

/// A value of which some parts may be new.
///
/// It takes memory for its changes alone: a map or list on the way to a change notes what
/// differs from what was read, and everything else stays a [`Node`] and is written as it was
/// read.
#[derive(Debug, Clone)]
pub enum Tree<'d> {
    /// As it was read.
    Node(Node<'d>),
    /// `null`, for a change without a value.
    Null,
    /// A map with changes.
    Object(Box<TreeMap<'d>>),
    /// A list with changes.
    Array(Box<TreeList<'d>>),
}

/// The size of a changed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeSize {
    /// How many levels are open, this one included.
    pub(crate) levels: usize,
    /// How many notes of changes there are: the work of visiting or copying the value.
    pub(crate) notes: usize,
    /// An upper bound for its length as JSON.
    pub(crate) bytes: usize,
}

/// With more pieces than this, each item becomes a piece of its own, so that it is found by its index.
const MAX_PIECES: usize = 1024;

/// A list with changes.
#[derive(Debug, Clone)]
pub struct TreeList<'d> {
    /// None of them is empty.
    pieces: Vec<Piece<'d>>,
    len: usize,
}

#[derive(Debug, Clone)]
enum Piece<'d> {
    /// Consecutive items of a list that was read.
    Run {
        list: Node<'d>,
        from: usize,
        count: usize,
    },
    /// An item that may be changed.
    Item(Tree<'d>),
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

    /// Whether it is not open, and so as it was read.
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

    pub(crate) fn extent(&self) -> TreeSize {
        match self {
            Self::Node(node) => TreeSize::of(node.raw().len()),
            Self::Null => TreeSize::of("null".len()),
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

    /// The value as JSON text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::with_capacity(self.extent().bytes);
        self.write(&mut text);
        text
    }
}

// === impl TreeSize ===

impl TreeSize {
    /// The extent of a value of `bytes` bytes without changes.
    const fn of(bytes: usize) -> Self {
        Self {
            levels: 1,
            notes: 1,
            bytes,
        }
    }

    /// Adds the extent of a value within this one.
    fn add(&mut self, within: Self) {
        self.levels = self.levels.max(1 + within.levels);
        self.notes += within.notes;
        self.bytes += within.bytes;
    }
}

// A map that is being changed: as it was read, and what differs.

/// A map with changes. New keys come last, in the order added.
#[derive(Debug, Clone)]
pub struct TreeMap<'d> {
    read: Node<'d>,
    /// One for each key that was changed.
    notes: Vec<Note<'d>>,
    /// Where the note of each key is; kept only once there are many.
    index: HashMap<Cow<'d, str>, usize>,
    /// How many keys were added so far, also those that were removed since.
    added: usize,
    len: usize,
}

/// The change of one key.
#[derive(Debug, Clone)]
struct Note<'d> {
    key: Cow<'d, str>,
    /// `None` if the key was removed.
    value: Option<Tree<'d>>,
    /// The order of insertion, from 1; 0 for a key of the original text.
    added: usize,
}

// === impl TreeMap ===

impl<'d> TreeMap<'d> {
    pub(crate) fn of(read: Node<'d>) -> Self {
        Self {
            read,
            notes: Vec::new(),
            index: HashMap::new(),
            added: 0,
            len: read.len(),
        }
    }

    /// The value at `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Cow<'_, Tree<'d>>> {
        match self.note(key) {
            Some(note) => note.value.as_ref().map(Cow::Borrowed),
            None => self.read.get(key).map(|node| Cow::Owned(Tree::Node(node))),
        }
    }

    /// The value at `key`, to change it.
    pub fn get_mut(&mut self, key: &Cow<'d, str>) -> Option<&mut Tree<'d>> {
        let position = match self.position(key) {
            Some(position) => position,
            None => {
                let value = Tree::Node(self.read.get(key)?);
                self.push(key.clone(), Some(value), 0)
            }
        };
        self.notes.get_mut(position)?.value.as_mut()
    }

    /// Sets the value at `key`; a new key comes last.
    pub fn insert(&mut self, key: Cow<'d, str>, value: Tree<'d>) {
        if let Some(old) = self.get_mut(&key) {
            *old = value;
            return;
        }
        self.added += 1;
        self.len += 1;
        let added = self.added;
        match self
            .position(&key)
            .and_then(|position| self.notes.get_mut(position))
        {
            Some(note) => (note.value, note.added) = (Some(value), added),
            None => drop(self.push(key, Some(value), added)),
        }
    }

    /// Removes the value at `key` and returns it.
    pub fn remove(&mut self, key: &Cow<'d, str>) -> Option<Tree<'d>> {
        self.get_mut(key)?;
        let position = self.position(key)?;
        self.len -= 1;
        self.notes.get_mut(position)?.value.take()
    }

    /// How many keys there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no key.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The keys and values, in order.
    pub fn entries(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, Tree<'d>>)> {
        let read = self
            .read_entries()
            .filter_map(|(key, value)| match self.note(&key) {
                None => Some((key, Cow::Owned(Tree::Node(value)))),
                Some(note) if note.added == 0 => Some((key, Cow::Borrowed(note.value.as_ref()?))),
                Some(_) => None,
            });
        let mut added: Vec<&Note<'_>> = self.notes.iter().filter(|note| note.added > 0).collect();
        added.sort_unstable_by_key(|note| note.added);
        let added = added.into_iter().filter_map(|note| {
            let value = note.value.as_ref()?;
            Some((Cow::Borrowed(note.key.as_ref()), Cow::Borrowed(value)))
        });
        read.chain(added)
    }

    pub(crate) fn extent(&self) -> TreeSize {
        let mut extent = TreeSize::of(self.read.raw().len());
        for note in &self.notes {
            extent.add(note.extent());
            // The old value is part of the text that was read.
            let old = self.read.get(&note.key).map_or(0, |old| old.raw().len());
            extent.bytes = extent.bytes.saturating_sub(old);
        }
        extent
    }

    pub(crate) fn write(&self, out: &mut String) {
        out.push('{');
        for (position, (key, value)) in self.entries().enumerate() {
            if position > 0 {
                out.push(',');
            }
            write_string(out, &key);
            out.push(':');
            value.write(out);
        }
        out.push('}');
    }

    fn read_entries(&self) -> NodeEntries<'d> {
        self.read.entries()
    }

    fn note(&self, key: &str) -> Option<&Note<'d>> {
        self.notes.get(self.position(key)?)
    }

    fn position(&self, key: &str) -> Option<usize> {
        if self.index.is_empty() {
            return self.notes.iter().position(|note| note.key == key);
        }
        self.index.get(key).copied()
    }

    fn push(&mut self, key: Cow<'d, str>, value: Option<Tree<'d>>, added: usize) -> usize {
        let position = self.notes.len();
        if position == WIDE {
            let keys = self.notes.iter().map(|note| note.key.clone());
            self.index = keys.zip(0..).collect();
        }
        if position >= WIDE {
            self.index.insert(key.clone(), position);
        }
        if position == 0 {
            // Most maps have one note.
            self.notes.reserve_exact(1);
        }
        self.notes.push(Note { key, value, added });
        position
    }
}

// === impl Note ===

impl Note<'_> {
    fn extent(&self) -> TreeSize {
        /// Quotes, colon and comma.
        const MARKS: usize = 4;
        /// What a byte takes at most as an escape.
        const ESCAPE: usize = 6;
        let mut extent = self.value.as_ref().map_or(TreeSize::of(0), Tree::extent);
        if self.added > 0 {
            extent.bytes += MARKS + ESCAPE * self.key.len();
        }
        extent
    }
}

// === impl TreeList ===

impl<'d> TreeList<'d> {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            pieces: Vec::new(),
            len: 0,
        }
    }

    pub(crate) fn of(read: Node<'d>) -> Self {
        let mut list = Self::new();
        list.push_run(read, 0, read.len());
        list
    }

    /// Appends items of a list that was read.
    pub fn push_run(&mut self, list: Node<'d>, from: usize, count: usize) {
        if count > 0 {
            self.pieces.push(Piece::Run { list, from, count });
            self.len += count;
        }
    }

    /// Appends an item.
    pub fn push(&mut self, item: Tree<'d>) {
        self.pieces.push(Piece::Item(item));
        self.len += 1;
    }

    /// How many items there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no item.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many pieces a change may shift.
    pub(crate) const fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The item at `place`.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<Cow<'_, Tree<'d>>> {
        let (position, within) = self.find(place)?;
        Some(match self.pieces.get(position)? {
            Piece::Run { list, from, .. } => Cow::Owned(Tree::Node(list.item(from + within)?)),
            Piece::Item(item) => Cow::Borrowed(item),
        })
    }

    /// The item at `place`, to change it.
    pub fn get_mut(&mut self, place: usize) -> Option<&mut Tree<'d>> {
        let position = self.part(place)?;
        let piece = self.pieces.get_mut(position)?;
        if let Piece::Run { list, from, .. } = piece {
            *piece = Piece::Item(Tree::Node(list.item(*from)?));
        }
        match piece {
            Piece::Item(item) => Some(item),
            Piece::Run { .. } => None,
        }
    }

    /// Inserts an item at `place`, before the one that is there. Does nothing if that is beyond the end.
    pub fn insert(&mut self, place: usize, item: Tree<'d>) {
        let position = if place == self.len {
            Some(self.pieces.len())
        } else {
            self.split(place)
        };
        if let Some(position) = position {
            self.pieces.insert(position, Piece::Item(item));
            self.len += 1;
        }
    }

    /// Removes the item at `place` and returns it.
    pub fn remove(&mut self, place: usize) -> Option<Tree<'d>> {
        let item = mem::replace(self.get_mut(place)?, Tree::Null);
        let (position, _) = self.find(place)?;
        self.pieces.remove(position);
        self.len -= 1;
        Some(item)
    }

    /// The items, in order.
    pub fn items(&self) -> impl Iterator<Item = Cow<'_, Tree<'d>>> {
        self.pieces.iter().flat_map(Piece::items)
    }

    pub(crate) fn extent(&self) -> TreeSize {
        let mut extent = TreeSize::of(2);
        for piece in &self.pieces {
            extent.add(piece.extent());
        }
        extent
    }

    pub(crate) fn write(&self, out: &mut String) {
        out.push('[');
        for (position, item) in self.items().enumerate() {
            if position > 0 {
                out.push(',');
            }
            item.write(out);
        }
        out.push(']');
    }

    /// Makes the item at `place` a piece of its own, and returns the index of the piece.
    fn part(&mut self, place: usize) -> Option<usize> {
        if place + 1 < self.len {
            self.split(place + 1)?;
        }
        self.split(place)
    }

    /// Makes a piece begin at `place`, and returns its index.
    fn split(&mut self, place: usize) -> Option<usize> {
        let (position, within) = self.find(place)?;
        if within == 0 {
            return Some(position);
        }
        if let Some(Piece::Run { list, from, count }) = self.pieces.get_mut(position) {
            let rest = Piece::Run {
                list: *list,
                from: *from + within,
                count: *count - within,
            };
            *count = within;
            self.pieces.insert(position + 1, rest);
        }
        if self.pieces.len() > MAX_PIECES {
            self.part_all();
            return Some(place);
        }
        Some(position + 1)
    }

    /// The piece that has the item at `place`, and which of the piece's items it is.
    fn find(&self, place: usize) -> Option<(usize, usize)> {
        if self.pieces.len() == self.len {
            return (place < self.len).then_some((place, 0));
        }
        let mut before = 0;
        for (position, piece) in self.pieces.iter().enumerate() {
            let count = piece.count();
            if place < before + count {
                return Some((position, place - before));
            }
            before += count;
        }
        None
    }

    /// Makes each item a piece of its own.
    fn part_all(&mut self) {
        let mut parts = Vec::with_capacity(self.len);
        for piece in self.pieces.drain(..) {
            match piece {
                Piece::Run { list, from, count } => {
                    let parted = (from..from + count).map(|from| Piece::Run { list, from, count: 1 });
                    parts.extend(parted);
                }
                item @ Piece::Item(_) => parts.push(item),
            }
        }
        self.pieces = parts;
    }
}

impl Default for TreeList<'_> {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Piece ===

impl<'d> Piece<'d> {
    const fn count(&self) -> usize {
        match self {
            Self::Run { count, .. } => *count,
            Self::Item(_) => 1,
        }
    }

    fn items(&self) -> impl Iterator<Item = Cow<'_, Tree<'d>>> {
        let (run, item) = match self {
            Self::Run { list, from, count } => (Some(list.items_from(*from).take(*count)), None),
            Self::Item(item) => (None, Some(Cow::Borrowed(item))),
        };
        let run = run.into_iter().flatten();
        run.map(|node| Cow::Owned(Tree::Node(node))).chain(item)
    }

    fn extent(&self) -> TreeSize {
        const COMMA: usize = 1;
        let mut extent = match self {
            Self::Run { list, from, count } => TreeSize::of(list.raw_items(*from, *count).len()),
            Self::Item(item) => item.extent(),
        };
        extent.bytes += COMMA;
        extent
    }
}
