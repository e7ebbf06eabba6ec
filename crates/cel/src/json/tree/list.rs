//! A list that is being changed: runs of items as they were read, and items that differ.

use std::borrow::Cow;
use std::mem;

use super::{Extent, Tree};
use crate::json::Node;

/// Beyond so many pieces each item is one of its own: it is found by its place then.
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
    /// Items of a list that was read, from one on.
    Run {
        list: Node<'d>,
        from: usize,
        count: usize,
    },
    /// One that may be changed.
    Item(Tree<'d>),
}

// === impl TreeList ===

impl<'d> TreeList<'d> {
    /// One without items.
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

    /// Puts an item at `place`, before the one that is there; nowhere beyond the end.
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

    /// Takes out the item at `place`.
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

    pub(crate) fn extent(&self) -> Extent {
        let mut extent = Extent::of(2);
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

    /// Makes the item at `place` a piece of its own, and says which.
    fn part(&mut self, place: usize) -> Option<usize> {
        if place + 1 < self.len {
            self.split(place + 1)?;
        }
        self.split(place)
    }

    /// Makes a piece begin at `place`, and says which.
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

    fn extent(&self) -> Extent {
        const COMMA: usize = 1;
        let mut extent = match self {
            Self::Run { list, from, count } => Extent::of(list.raw_items(*from, *count).len()),
            Self::Item(item) => item.extent(),
        };
        extent.bytes += COMMA;
        extent
    }
}
