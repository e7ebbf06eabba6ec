//! Creates the JSON Patch from one value to another.

use std::borrow::Cow;
use std::collections::HashMap;
use std::iter;

use super::patch::{PatchOperation, escape};
use super::{Kind, MAX_OPENED, Node};

/// Beyond this many pairs, items of two lists are compared place by place only.
const MAX_PAIRS: usize = 1 << 20;

/// Lists with more items than this between their equal beginnings and ends are compared place by place, too.
const MAX_ALIGNED: usize = 1 << 14;

/// A value whose path is longer than this many bytes is replaced as a whole: each operation repeats its path.
const MAX_PATH: usize = 4096;

/// The bytes that an operation takes in addition to its path and its value.
const OPERATION: usize = 128;

/// How many bytes of operations within a value are always kept. Beyond that, the new value replaces them if they
/// take more than it does, by an eighth.
const MIN_BYTES: usize = 64 << 10;

/// The most steps for comparing items of lists that are not the same text.
const COMPARISONS: usize = 1 << 22;

/// The operations that turn `before` into `after`, without touching what is the same in both. Only `add`, `remove`
/// and `replace` are used.
///
/// In lists, equal items stay, and of the others, those with the same `name` count as one item that changed. If
/// operations take more bytes than the new value that they are within, by an eighth, the value is replaced as a
/// whole.
///
/// The paths do not depend on how `before` was read: the API server applies them to its own copy of the object.
#[must_use]
pub fn diff<'d>(before: Node<'d>, after: Node<'d>) -> Vec<PatchOperation<'d>> {
    let mut diff = DiffWriter {
        path: String::new(),
        level: 0,
        operations: Vec::new(),
        bytes: 0,
        comparisons: COMPARISONS,
    };
    diff.value(before, after);
    diff.operations
}

struct DiffWriter<'d> {
    path: String,
    level: usize,
    operations: Vec<PatchOperation<'d>>,
    /// The bytes that the operations take.
    bytes: usize,
    comparisons: usize,
}

impl<'d> DiffWriter<'d> {
    fn value(&mut self, before: Node<'d>, after: Node<'d>) {
        if before.raw() == after.raw() {
            return;
        }
        let (count, bytes) = (self.operations.len(), self.bytes);
        let most = bytes + MIN_BYTES.max(after.raw().len() / 8 * 9);
        let is_far = self.level == MAX_OPENED || self.path.len() > MAX_PATH;
        match (before.kind(), after.kind()) {
            (Kind::Object, Kind::Object) if !is_far && (before.is_empty() || shares_a_key(before, after)) => {
                self.object(before, after, most);
            }
            (Kind::Array, Kind::Array) if !is_far && !before.is_empty() && !after.is_empty() => {
                self.array(before, after, most);
            }
            _ if before.same(after) => {}
            _ => self.push("replace", Some(after)),
        }
        if self.bytes > most {
            self.operations.truncate(count);
            self.bytes = bytes;
            self.push("replace", Some(after));
        }
    }

    /// Stops once the operations take more than `most` bytes.
    fn object(&mut self, before: Node<'d>, after: Node<'d>, most: usize) {
        for (key, value) in before.entries() {
            let outside = self.enter(&escape(&key));
            match after.get(&key) {
                Some(other) => self.value(value, other),
                None => self.push("remove", None),
            }
            self.leave(outside);
            if self.bytes > most {
                return;
            }
        }
        for (key, value) in after.entries() {
            if before.get(&key).is_none() {
                let outside = self.enter(&escape(&key));
                self.push("add", Some(value));
                self.leave(outside);
            }
            if self.bytes > most {
                return;
            }
        }
    }

    /// Stops once the operations take more than `most` bytes.
    fn array(&mut self, before: Node<'d>, after: Node<'d>, most: usize) {
        let (mut place, edits) = self.edits(before, after);
        for edit in edits {
            let outside = self.enter(&place.to_string());
            match edit {
                ListEdit::Pair(old, new) => self.value(old, new),
                ListEdit::Remove => self.push("remove", None),
                ListEdit::Add(new) => self.push("add", Some(new)),
            }
            self.leave(outside);
            if self.bytes > most {
                return;
            }
            place += usize::from(!matches!(edit, ListEdit::Remove));
        }
    }

    /// The edits of the items, and the index of the first of them: the items before it stay.
    fn edits(&mut self, before: Node<'d>, after: Node<'d>) -> (usize, Edits<'d>) {
        let (begin, end) = self.same_ends(before, after);
        let between = |list: Node<'d>| list.items_from(begin).take(list.len() - begin - end);
        let (old, new) = (between(before), between(after));
        if old.len().max(new.len()) > MAX_ALIGNED || old.len() * new.len() > MAX_PAIRS {
            return (begin, Box::new(in_place(old, new)));
        }
        let mut edits = Vec::new();
        aligned(&old.collect::<Vec<_>>(), &new.collect::<Vec<_>>(), &mut edits);
        (begin, Box::new(edits.into_iter()))
    }

    /// The number of equal items at the beginning, and of the others at the end.
    fn same_ends(&mut self, before: Node<'d>, after: Node<'d>) -> (usize, usize) {
        let pairs = before.items().zip(after.items());
        let begin = pairs.take_while(|(old, new)| self.is_same(*old, *new)).count();
        let from_end = |list: Node<'d>, place: usize| list.item(list.len() - 1 - place);
        let end = (0..before.len().min(after.len()) - begin)
            .take_while(
                |place| match (from_end(before, *place), from_end(after, *place)) {
                    (Some(old), Some(new)) => self.is_same(old, new),
                    _ => false,
                },
            )
            .count();
        (begin, end)
    }

    fn is_same(&mut self, old: Node<'d>, new: Node<'d>) -> bool {
        old.raw() == new.raw() || old.same_within(new, &mut self.comparisons)
    }

    /// Steps into `step`; returns the length to which the path goes back.
    fn enter(&mut self, step: &str) -> usize {
        let outside = self.path.len();
        self.path.push('/');
        self.path.push_str(step);
        self.level += 1;
        outside
    }

    fn leave(&mut self, outside: usize) {
        self.path.truncate(outside);
        self.level -= 1;
    }

    fn push(&mut self, op: &'static str, value: Option<Node<'d>>) {
        self.bytes += OPERATION + self.path.len() + value.map_or(0, |value| value.raw().len());
        self.operations.push(PatchOperation {
            op: Cow::Borrowed(op),
            path: Cow::Owned(self.path.clone()),
            from: None,
            value,
        });
    }
}

fn shares_a_key(before: Node<'_>, after: Node<'_>) -> bool {
    before.entries().any(|(key, _)| after.get(&key).is_some())
}

/// The edits of the items of a list, in their order.
type Edits<'d> = Box<dyn Iterator<Item = ListEdit<'d>> + 'd>;

/// The edit of an item of a list.
#[derive(Clone, Copy)]
enum ListEdit<'d> {
    Pair(Node<'d>, Node<'d>),
    Remove,
    Add(Node<'d>),
}

/// Edits the part between equal beginnings and ends: equal items stay, and between them those with the same name
/// are paired.
fn aligned<'d>(old: &[Node<'d>], new: &[Node<'d>], edits: &mut Vec<ListEdit<'d>>) {
    let pairs = common(old, new, |item| Some(item.raw()));
    paired(old, new, pairs, edits, named);
}

/// Edits a part without equal items: those with the same name are paired.
fn named<'d>(old: &[Node<'d>], new: &[Node<'d>], edits: &mut Vec<ListEdit<'d>>) {
    let pairs = common(old, new, |item| item.get("name").map(Node::raw));
    paired(old, new, pairs, edits, |old, new, edits| {
        edits.extend(in_place(old.iter().copied(), new.iter().copied()));
    });
}

/// Pairs the items at these places; `rest` edits those between them.
fn paired<'d>(
    old: &[Node<'d>],
    new: &[Node<'d>],
    pairs: Vec<(usize, usize)>,
    edits: &mut Vec<ListEdit<'d>>,
    rest: impl Fn(&[Node<'d>], &[Node<'d>], &mut Vec<ListEdit<'d>>),
) {
    let (mut from, mut to) = (0, 0);
    for (left, right) in pairs {
        rest(
            old.get(from..left).unwrap_or_default(),
            new.get(to..right).unwrap_or_default(),
            edits,
        );
        if let (Some(left), Some(right)) = (old.get(left), new.get(right)) {
            edits.push(ListEdit::Pair(*left, *right));
        }
        (from, to) = (left + 1, right + 1);
    }
    rest(
        old.get(from..).unwrap_or_default(),
        new.get(to..).unwrap_or_default(),
        edits,
    );
}

/// Edits a part in which no items belong together: each item becomes the one in its place.
fn in_place<'d>(
    old: impl ExactSizeIterator<Item = Node<'d>>,
    new: impl ExactSizeIterator<Item = Node<'d>> + Clone,
) -> impl Iterator<Item = ListEdit<'d>> {
    let (gone, pairs) = (old.len().saturating_sub(new.len()), old.len().min(new.len()));
    let added = new.clone().skip(pairs).map(ListEdit::Add);
    old.zip(new)
        .map(|(old, new)| ListEdit::Pair(old, new))
        .chain(iter::repeat_n(ListEdit::Remove, gone))
        .chain(added)
}

/// A longest common subsequence of the items by their `identity`: indexes in both lists, ascending. Items without
/// an identity are in none.
fn common<'d>(
    old: &[Node<'d>],
    new: &[Node<'d>],
    identity: impl Fn(Node<'d>) -> Option<&'d str>,
) -> Vec<(usize, usize)> {
    if old.is_empty() || new.is_empty() {
        return Vec::new();
    }
    // Text is hashed once for each item, not compared for each pair.
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut number = |item: &Node<'d>| {
        let next = numbers.len();
        identity(*item).map(|text| *numbers.entry(text).or_insert(next))
    };
    let old: Vec<Option<usize>> = old.iter().map(&mut number).collect();
    let new: Vec<Option<usize>> = new.iter().map(&mut number).collect();
    Lengths::of(&old, &new).pairs(&old, &new)
}

/// For each pair of indexes, the length of the longest common subsequence from there on.
struct Lengths {
    cells: Vec<u32>,
    width: usize,
}

impl Lengths {
    fn of(old: &[Option<usize>], new: &[Option<usize>]) -> Self {
        let width = new.len() + 1;
        let mut lengths = Self {
            cells: vec![0; (old.len() + 1) * width],
            width,
        };
        for (left, old_item) in old.iter().enumerate().rev() {
            for (right, new_item) in new.iter().enumerate().rev() {
                let length = if old_item.is_some() && old_item == new_item {
                    lengths.at(left + 1, right + 1) + 1
                } else {
                    lengths.at(left + 1, right).max(lengths.at(left, right + 1))
                };
                if let Some(cell) = lengths.cells.get_mut(left * width + right) {
                    *cell = length;
                }
            }
        }
        lengths
    }

    fn at(&self, left: usize, right: usize) -> u32 {
        self.cells.get(left * self.width + right).copied().unwrap_or(0)
    }

    fn pairs(&self, old: &[Option<usize>], new: &[Option<usize>]) -> Vec<(usize, usize)> {
        let (mut left, mut right, mut pairs) = (0, 0, Vec::new());
        while let (Some(old_item), Some(new_item)) = (old.get(left), new.get(right)) {
            if old_item.is_some() && old_item == new_item {
                pairs.push((left, right));
                (left, right) = (left + 1, right + 1);
            } else if self.at(left + 1, right) >= self.at(left, right + 1) {
                left += 1;
            } else {
                right += 1;
            }
        }
        pairs
    }
}
