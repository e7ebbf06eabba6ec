//! Handles to the values of a document, their contents, and whether two values are equal.

use std::borrow::Cow;
use std::fmt;

use super::text::{is_same, unescape};
use super::{Document, Kind, TapeToken, WIDE};

/// A value of a [`Document`]: a handle that costs nothing to copy.
#[derive(Clone, Copy)]
pub struct Node<'d> {
    pub(crate) document: &'d Document<'d>,
    pub(crate) token: u32,
}

/// The items of a list, in order.
#[derive(Clone)]
pub struct NodeItems<'d> {
    document: &'d Document<'d>,
    next: u32,
    left: usize,
}

/// The entries of a map, in the order written, each key once.
#[derive(Clone)]
pub struct NodeEntries<'d> {
    document: &'d Document<'d>,
    next: u32,
    end: u32,
    left: usize,
}

impl Document<'_> {
    /// The outermost value.
    #[must_use]
    pub fn root(&self) -> Node<'_> {
        Node {
            document: self,
            token: 0,
        }
    }

    /// The value at a [position](Node::position) of this document.
    #[must_use]
    pub fn at(&self, position: u32) -> Option<Node<'_>> {
        let node = Node {
            document: self,
            token: position,
        };
        self.token(position).map(|_| node)
    }

    #[inline]
    pub(crate) fn token(&self, position: u32) -> Option<TapeToken> {
        self.tape.tokens.get(position as usize).copied()
    }
}

/// Down to this level, values are first compared as text. On every level, that would search for a difference at
/// the bottom of a deep value again and again.
const WHOLE: usize = 32;

/// As many bytes of text as are compared in about the time that a value takes.
const STEP_BYTES: usize = 256;

/// What is left to compare of two lists or maps.
enum PairedNodes<'l, 'r> {
    Items(NodeItems<'l>, NodeItems<'r>),
    Entries(NodeEntries<'l>, Node<'r>),
}

/// The result of comparing two values without their contents.
enum NodeComparison<'l, 'r> {
    Same,
    Different,
    Within(PairedNodes<'l, 'r>),
}

// === impl Node ===

impl<'d> Node<'d> {
    /// The kind of the value.
    #[must_use]
    pub fn kind(self) -> Kind {
        self.data().map_or(Kind::Null, TapeToken::kind)
    }

    /// Whether it is `null`.
    #[must_use]
    pub fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    /// Whether it is `root` or a part of it.
    #[must_use]
    pub fn is_within(self, root: Self) -> bool {
        let end = root.data().map_or(0, |token| token.next);
        std::ptr::eq(self.document, root.document) && (root.token..end).contains(&self.token)
    }

    /// The JSON Pointer (RFC 6901) from `root` to this value; `None` if this is no part of `root`.
    #[must_use]
    pub fn pointer_from(self, root: Self) -> Option<String> {
        let (mut pointer, mut around) = (String::new(), root);
        while self.is_within(around) && self.token != around.token {
            let mut entries = around.entries();
            let mut items = around.items().enumerate();
            let (step, next) = match around.kind() {
                Kind::Object => entries.find(|(_, value)| self.is_within(*value))?,
                _ => {
                    let (index, item) = items.find(|(_, item)| self.is_within(*item))?;
                    (index.to_string().into(), item)
                }
            };
            pointer.push('/');
            pointer.push_str(&step.replace('~', "~0").replace('/', "~1"));
            around = next;
        }
        self.is_within(around).then_some(pointer)
    }

    /// The value as it is written.
    #[must_use]
    pub fn raw(self) -> &'d str {
        self.data().map_or("null", |token| text_of(self.document, token))
    }

    /// The number of items or of distinct keys; 0 for anything else.
    #[must_use]
    pub fn len(self) -> usize {
        self.data().map_or(0, TapeToken::count)
    }

    /// Whether it has no items or keys.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The value at the key `name`, if it is a map that has it.
    #[must_use]
    #[inline]
    pub fn get(self, name: &str) -> Option<Self> {
        let token = self.data().filter(|token| token.kind() == Kind::Object)?;
        if token.count() > WIDE {
            return self.find(name);
        }
        let entries = self.document.tape.tokens.get(..token.next as usize)?;
        let mut at = self.token as usize + 1;
        loop {
            let [key, value] = entries.get(at..)?.first_chunk()?;
            if key.may_be(name.len()) && is_key(self.document, *key, name) && !key.superseded() {
                // A key is followed by its value.
                return Some(Self {
                    token: key.next,
                    ..self
                });
            }
            at = value.next as usize;
        }
    }

    /// The values at the keys `names`, as [`Node::get`] returns them: fastest if the map has its keys in that
    /// order.
    #[must_use]
    pub fn get_all<const COUNT: usize>(self, names: [&str; COUNT]) -> [Option<Self>; COUNT] {
        let mut found = [None; COUNT];
        let Some(token) = self.data().filter(|token| token.kind() == Kind::Object) else {
            return found;
        };
        if token.count() > WIDE {
            return names.map(|name| self.find(name));
        }
        let (mut at, end) = (self.token as usize + 1, token.next as usize);
        let mut expected = 0;
        while let Some([key, value, ..]) = self.document.tape.tokens.get(at..end) {
            let is_key = |name: &&str| key.may_be(name.len()) && is_key(self.document, *key, name);
            let mut places = (expected..COUNT).chain(0..expected);
            let place = places.find(|&place| names.get(place).is_some_and(is_key));
            if let Some(place) = place.filter(|_| !key.superseded()) {
                expected = place + 1;
                if let Some(slot) = found.get_mut(place) {
                    *slot = Some(Self {
                        token: key.next,
                        ..self
                    });
                }
            }
            at = value.next as usize;
        }
        found
    }

    /// Like [`Node::get`], in a map so wide that it has an index.
    fn find(self, name: &str) -> Option<Self> {
        let keys = self.document.tape.order_of(self.token)?;
        let key_text = |key: &u32| Node { token: *key, ..self }.as_str().unwrap_or_default();
        let position = keys.binary_search_by(|key| (*key_text(key)).cmp(name)).ok()?;
        keys.get(position).map(|key| Self {
            token: key + 1,
            ..self
        })
    }

    /// The item `index` of a list.
    #[must_use]
    pub fn item(self, index: usize) -> Option<Self> {
        let token = self
            .data()
            .filter(|token| token.kind() == Kind::Array && index < token.count())?;
        if token.count() > WIDE {
            let item = *self.document.tape.order_of(self.token)?.get(index)?;
            return Some(Self { token: item, ..self });
        }
        self.items().nth(index)
    }

    /// The items; none if it is no list.
    #[must_use]
    pub fn items(self) -> NodeItems<'d> {
        let left = if self.kind() == Kind::Array { self.len() } else { 0 };
        NodeItems {
            document: self.document,
            next: self.token + 1,
            left,
        }
    }

    /// The items from `index` on; none if it is no list or has no such item.
    pub(crate) fn items_from(self, index: usize) -> NodeItems<'d> {
        match self.item(index) {
            Some(item) => NodeItems {
                document: self.document,
                next: item.token,
                left: self.len() - index,
            },
            None => NodeItems {
                document: self.document,
                next: self.token,
                left: 0,
            },
        }
    }

    /// Items of a list as they are written, from the first of them to the end of the last.
    pub(crate) fn raw_items(self, index: usize, count: usize) -> &'d str {
        let last = count.checked_sub(1).and_then(|more| self.item(index + more));
        let ends = self
            .item(index)
            .and_then(Self::data)
            .zip(last.and_then(Self::data));
        ends.and_then(|(first, last)| self.document.text.get(first.start as usize..last.end as usize))
            .unwrap_or_default()
    }

    /// The entries; none if it is no map.
    #[must_use]
    pub fn entries(self) -> NodeEntries<'d> {
        let is_map = self.kind() == Kind::Object;
        let left = if is_map { self.len() } else { 0 };
        let end = self.data().map_or(0, |token| token.next);
        NodeEntries {
            document: self.document,
            next: self.token + 1,
            end,
            left,
        }
    }

    /// The text, if it is text. Owned only if it has escapes.
    #[must_use]
    pub fn as_str(self) -> Option<Cow<'d, str>> {
        let token = self.data().filter(|token| token.kind() == Kind::String)?;
        Some(unescape(text_of(self.document, token), token.escaped()))
    }

    /// Whether it is the text `expected`.
    #[must_use]
    pub fn is_str(self, expected: &str) -> bool {
        self.data()
            .is_some_and(|token| token.kind() == Kind::String && is_key(self.document, token, expected))
    }

    /// The truth value, if it is one.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        (self.kind() == Kind::Bool).then(|| self.raw() == "true")
    }

    /// The number, if it is written as an integer and fits.
    #[must_use]
    pub fn as_i64(self) -> Option<i64> {
        self.number()?.parse().ok()
    }

    /// The number, if it is written as an integer that is not negative, and fits.
    #[must_use]
    pub fn as_u64(self) -> Option<u64> {
        self.number()?.parse().ok()
    }

    /// The nearest double; infinite if the number is too large for one.
    #[must_use]
    pub fn as_f64(self) -> Option<f64> {
        self.number()?.parse().ok()
    }

    /// The text of a number.
    #[must_use]
    pub fn number(self) -> Option<&'d str> {
        (self.kind() == Kind::Number).then(|| self.raw())
    }

    /// The value at a JSON Pointer (RFC 6901) from here; `""` is this value.
    #[must_use]
    pub fn pointer(self, pointer: &str) -> Option<Self> {
        let mut node = self;
        for step in super::patch::steps(pointer)? {
            node = match node.kind() {
                Kind::Array => node.item(super::patch::index(&step)?)?,
                _ => node.get(&step)?,
            };
        }
        Some(node)
    }

    /// The document that the value is part of.
    pub const fn document(self) -> &'d Document<'d> {
        self.document
    }

    /// A number that identifies this value within its document.
    #[must_use]
    pub const fn position(self) -> u32 {
        self.token
    }

    /// The [position](Self::position) after all that is within this value.
    #[must_use]
    pub fn end(self) -> u32 {
        self.data().map_or(self.token, |token| token.next)
    }

    fn data(self) -> Option<TapeToken> {
        self.document.token(self.token)
    }
}

fn text_of<'d>(document: &'d Document<'d>, token: TapeToken) -> &'d str {
    document
        .text
        .get(token.start as usize..token.end as usize)
        .unwrap_or_default()
}

#[inline]
fn is_key(document: &Document<'_>, token: TapeToken, name: &str) -> bool {
    if token.escaped() {
        return is_escaped_key(document, token, name);
    }
    let quoted = document
        .text
        .as_bytes()
        .get(token.start as usize..token.end as usize);
    matches!(quoted, Some([_, text @ .., _]) if is_same(text, name.as_bytes()))
}

#[inline(never)]
fn is_escaped_key(document: &Document<'_>, token: TapeToken, name: &str) -> bool {
    unescape(text_of(document, token), true) == name
}

impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.raw())
    }
}

// === impl NodeItems ===

impl<'d> Iterator for NodeItems<'d> {
    type Item = Node<'d>;

    fn next(&mut self) -> Option<Node<'d>> {
        self.left = self.left.checked_sub(1)?;
        let item = Node {
            document: self.document,
            token: self.next,
        };
        self.next = item.data()?.next;
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for NodeItems<'_> {}

// === impl NodeEntries ===

impl<'d> Iterator for NodeEntries<'d> {
    type Item = (Cow<'d, str>, Node<'d>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.next < self.end {
            let key = Node {
                document: self.document,
                token: self.next,
            };
            let value = Node {
                document: self.document,
                token: self.next + 1,
            };
            self.next = value.data()?.next;
            if key.data().is_some_and(TapeToken::superseded) {
                continue;
            }
            self.left = self.left.saturating_sub(1);
            return Some((key.as_str()?, value));
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for NodeEntries<'_> {}

// === impl Node ===

impl Node<'_> {
    /// Whether both say the same: the order of keys, white space and the
    /// spelling of escapes do not matter; numbers are compared as written.
    #[must_use]
    pub fn same(self, other: Node<'_>) -> bool {
        let mut steps = usize::MAX;
        self.same_within(other, &mut steps)
    }

    /// Like [`Node::same`], in at most `steps` steps; `false` if these are used up first.
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
    /// The next pair of values; `Some(None)` if the right side has no counterpart.
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

// Iterators over everything in a value. Their memory grows with how deep values nest, not with how many they are.

/// The items of a list, or the values of a map; nothing of a scalar.
#[derive(Clone)]
pub enum Children<'d> {
    /// The items of a list.
    Items(NodeItems<'d>),
    /// The values of a map.
    Values(NodeEntries<'d>),
}

/// A value and everything in it, each value before its contents.
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
