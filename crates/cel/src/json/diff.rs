//! Creates the JSON Patch from one value to another.

use std::borrow::Cow;
use std::collections::HashMap;

use super::patch::PatchOperation;
use super::pointer::escape;
use super::{Kind, MAX_OPENED, Node};

/// Beyond this many pairs, items of two lists are compared place by place only.
const MAX_PAIRS: usize = 1 << 20;

/// What is deeper than this many bytes of a path is replaced as a whole: each operation
/// repeats its path.
const MAX_PATH: usize = 4096;

/// The operations that make `before` into `after`, and touch nothing that is
/// the same in both: `add`, `remove` and `replace` alone.
///
/// In lists, items that are the same stay; of the others, those that bear the
/// same `name` are taken for one item that changed.
///
/// Paths are such that `before` may have been read by anyone: the API server
/// applies them to its own copy of the object.
#[must_use]
pub fn diff<'d>(before: Node<'d>, after: Node<'d>) -> Vec<PatchOperation<'d>> {
    let mut diff = Diff {
        path: String::new(),
        level: 0,
        operations: Vec::new(),
    };
    diff.value(before, after);
    diff.operations
}

struct Diff<'d> {
    path: String,
    level: usize,
    operations: Vec<PatchOperation<'d>>,
}

impl<'d> Diff<'d> {
    fn value(&mut self, before: Node<'d>, after: Node<'d>) {
        if before.same(after) {
            return;
        }
        let is_far = self.level == MAX_OPENED || self.path.len() > MAX_PATH;
        match (before.kind(), after.kind()) {
            _ if is_far => self.push("replace", Some(after)),
            (Kind::Object, Kind::Object) if before.is_empty() || shares_a_key(before, after) => {
                self.object(before, after);
            }
            (Kind::Array, Kind::Array) if !before.is_empty() && !after.is_empty() => {
                self.array(before, after);
            }
            _ => self.push("replace", Some(after)),
        }
    }

    fn object(&mut self, before: Node<'d>, after: Node<'d>) {
        for (key, value) in before.entries() {
            let length = self.enter(&escape(&key));
            match after.get(&key) {
                Some(other) => self.value(value, other),
                None => self.push("remove", None),
            }
            self.leave(length);
        }
        for (key, value) in after.entries() {
            if before.get(&key).is_none() {
                let length = self.enter(&escape(&key));
                self.push("add", Some(value));
                self.leave(length);
            }
        }
    }

    fn array(&mut self, before: Node<'d>, after: Node<'d>) {
        let before: Vec<Node<'d>> = before.items().collect();
        let after: Vec<Node<'d>> = after.items().collect();
        let mut place = 0;
        for step in align(&before, &after) {
            let length = self.enter(&place.to_string());
            match step {
                ListEdit::Pair(old, new) => {
                    self.value(old, new);
                    place += 1;
                }
                ListEdit::Remove => self.push("remove", None),
                ListEdit::Add(new) => {
                    self.push("add", Some(new));
                    place += 1;
                }
            }
            self.leave(length);
        }
    }

    /// Steps into `step`; returns the length to which the path goes back.
    fn enter(&mut self, step: &str) -> usize {
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(step);
        self.level += 1;
        length
    }

    fn leave(&mut self, length: usize) {
        self.path.truncate(length);
        self.level -= 1;
    }

    fn push(&mut self, op: &'static str, value: Option<Node<'d>>) {
        let path = Cow::Owned(self.path.clone());
        self.operations.push(PatchOperation {
            op: Cow::Borrowed(op),
            path,
            from: None,
            value,
        });
    }
}

fn shares_a_key(before: Node<'_>, after: Node<'_>) -> bool {
    before.entries().any(|(key, _)| after.get(&key).is_some())
}

/// What becomes of the items of a list, from its first place to its last.
enum ListEdit<'d> {
    Pair(Node<'d>, Node<'d>),
    Remove,
    Add(Node<'d>),
}

fn align<'d>(before: &[Node<'d>], after: &[Node<'d>]) -> Vec<ListEdit<'d>> {
    let mut steps = Vec::new();
    let (mut old, mut new) = (before, after);
    while let ([first, rest @ ..], [other, others @ ..]) = (old, new)
        && first.same(*other)
    {
        steps.push(ListEdit::Pair(*first, *other));
        (old, new) = (rest, others);
    }
    let mut tail = Vec::new();
    while let ([rest @ .., last], [others @ .., other]) = (old, new)
        && last.same(*other)
    {
        tail.push(ListEdit::Pair(*last, *other));
        (old, new) = (rest, others);
    }
    between(old, new, &mut steps);
    steps.extend(tail.into_iter().rev());
    steps
}

/// The part between equal beginnings and ends: items that are the same stay, and
/// between them those of the same name are paired.
fn between<'d>(old: &[Node<'d>], new: &[Node<'d>], steps: &mut Vec<ListEdit<'d>>) {
    let pairs = common(old, new, |item| Some(item.raw()));
    paired(old, new, pairs, steps, named);
}

/// A part of which no item is the same.
fn named<'d>(old: &[Node<'d>], new: &[Node<'d>], steps: &mut Vec<ListEdit<'d>>) {
    let pairs = common(old, new, |item| item.get("name").map(Node::raw));
    paired(old, new, pairs, steps, in_place);
}

/// The items at these places become each other; what is between them, `rest` settles.
fn paired<'d>(
    old: &[Node<'d>],
    new: &[Node<'d>],
    pairs: Vec<(usize, usize)>,
    steps: &mut Vec<ListEdit<'d>>,
    rest: impl Fn(&[Node<'d>], &[Node<'d>], &mut Vec<ListEdit<'d>>),
) {
    let (mut from, mut to) = (0, 0);
    for (left, right) in pairs {
        rest(
            old.get(from..left).unwrap_or_default(),
            new.get(to..right).unwrap_or_default(),
            steps,
        );
        if let (Some(left), Some(right)) = (old.get(left), new.get(right)) {
            steps.push(ListEdit::Pair(*left, *right));
        }
        (from, to) = (left + 1, right + 1);
    }
    rest(
        old.get(from..).unwrap_or_default(),
        new.get(to..).unwrap_or_default(),
        steps,
    );
}

/// A part of which nothing is known: each item becomes the one in its place.
fn in_place<'d>(old: &[Node<'d>], new: &[Node<'d>], steps: &mut Vec<ListEdit<'d>>) {
    let pairs = old.len().min(new.len());
    steps.extend(
        old.iter()
            .zip(new)
            .map(|(left, right)| ListEdit::Pair(*left, *right)),
    );
    steps.extend(old.iter().skip(pairs).map(|_| ListEdit::Remove));
    steps.extend(new.iter().skip(pairs).map(|item| ListEdit::Add(*item)));
}

/// A longest common subsequence of what `identity` says of the items: places
/// in both lists, rising. Items without identity are in none.
fn common<'d>(
    old: &[Node<'d>],
    new: &[Node<'d>],
    identity: impl Fn(Node<'d>) -> Option<&'d str>,
) -> Vec<(usize, usize)> {
    if old.is_empty() || new.is_empty() || old.len().saturating_mul(new.len()) > MAX_PAIRS {
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

/// For each pair of places the length of what the rests have in common.
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
