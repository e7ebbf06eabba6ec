//! YAML and JSON documents that know the line of each value.
//!
//! Manifests, configuration, kubeconfigs and test suites are all parsed here, so that every fault
//! can name file, line and field:
//!
//! ```text
//! text --parse--> Document (values with lines) --decode--> a serde type
//!                                 |                            |
//!                                 '------ line of a path <-----' faults
//! ```
//!
//! Documents are read as kubectl reads them, with the same values: YAML 1.1 as in Kubernetes' API
//! machinery (`yaml`), or JSON.

mod decode;
mod json;
mod layout;
mod packed;
mod read;
mod write;
mod yaml;

use std::borrow::Cow;
use std::sync::Arc;

pub use packed::PackedDocument;
pub use read::{ParseLimits, parse, parse_each};
pub(crate) use write::{begins_command, is_before_command};
pub use write::{is_escaped, to_yaml};

use crate::field::{FieldPath, PathSegment, Place};

use layout::Layout;

/// How deep lists and mappings may nest, which bounds the recursion of code that walks a document.
/// Kubernetes' own objects stay below 100.
pub const MAX_DEPTH: usize = 128;

/// One document of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    file: Option<Arc<str>>,
    root: Node,
}

impl Document {
    /// A document with the value `root`, as if it had been read from `file`.
    #[must_use]
    pub const fn new(file: Option<Arc<str>>, root: Node) -> Self {
        Self { file, root }
    }

    /// The file from which the document was read.
    #[must_use]
    pub const fn file(&self) -> Option<&Arc<str>> {
        self.file.as_ref()
    }

    /// The outermost value.
    #[must_use]
    pub const fn root(&self) -> &Node {
        &self.root
    }

    /// Returns the outermost value.
    #[must_use]
    pub fn into_root(self) -> Node {
        self.root
    }

    /// The string in the field `name` of the outermost mapping.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.root.get(name)?.as_str()
    }

    /// The same document with another `apiVersion`, for kinds whose versions differ only in their
    /// defaults.
    #[must_use]
    pub fn in_version(&self, api_version: &str) -> Cow<'_, Self> {
        if self.text("apiVersion") == Some(api_version) {
            return Cow::Borrowed(self);
        }
        let mut document = self.clone();
        if let Value::Map(entries) = &mut document.root.value {
            for entry in entries.iter_mut().filter(|entry| entry.key == "apiVersion") {
                entry.value.value = Value::String(api_version.to_owned());
            }
        }
        Cow::Owned(document)
    }

    /// `Kind/name` or `Kind/namespace/name`, without the parts that are missing in the document.
    #[must_use]
    pub fn object(&self) -> String {
        let metadata = |name| self.root.get("metadata")?.get(name)?.as_str();
        let parts = [self.text("kind"), metadata("namespace"), metadata("name")];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    }

    /// Like [`Node::insert`], with an arbitrary string.
    pub(crate) fn fill_in(&mut self, path: &FieldPath) -> bool {
        self.root.insert(path.steps(), Node::from_json("x".into()))
    }

    /// Like [`Node::remove`].
    pub(crate) fn leave_out(&mut self, path: &FieldPath) -> bool {
        self.root.remove(path.steps())
    }

    /// The value at `path`, or the innermost existing one around it.
    #[must_use]
    pub fn nearest(&self, path: &FieldPath) -> &Node {
        let mut node = &self.root;
        for step in path.steps() {
            let next = match step {
                PathSegment::Field(name) | PathSegment::Key(name) => node.get(name),
                PathSegment::Index(index) => node.item(*index),
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node
    }

    /// The place of `path` for a fault. The line is that of the innermost existing value on the
    /// path.
    #[must_use]
    pub fn place(&self, path: FieldPath) -> Place {
        let line = self.nearest(&path).line;
        Place {
            file: self.file.clone(),
            line,
            column: 0,
            object: self.object(),
            path,
        }
    }

    /// The position of the field or item at `pointer` (RFC 6901), or of the innermost existing one
    /// around it: the line and character of a field's key or of an item's value, both from 1; 0 if
    /// not known.
    #[must_use]
    pub fn field_position(&self, pointer: &str) -> (u32, u32) {
        let mut node = &self.root;
        let mut position = (node.line, node.column);
        for step in pointer.split('/').skip(1) {
            let step = step.replace("~1", "/").replace("~0", "~");
            let next = match &node.value {
                Value::Map(entries) => {
                    let entry = entries.iter().find(|entry| entry.key == step);
                    entry.map(|entry| (&entry.value, (entry.line, entry.column)))
                }
                Value::List(items) => {
                    let item = step.parse().ok().and_then(|index: usize| items.get(index));
                    item.map(|item| (item, (item.line, item.column)))
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            };
            let Some((next, at)) = next else { break };
            (node, position) = (next, at);
        }
        position
    }

    /// The place of a character of the string at `path`, given as line and column in that string,
    /// both from 1. If it is not known where in the file the character stands, this is the place of
    /// `path`.
    #[must_use]
    pub fn place_within(&self, path: FieldPath, character: (usize, usize)) -> Place {
        let position = self.nearest(&path).position(character);
        let place = self.place(path);
        match position {
            Some((line, column)) => Place {
                line,
                column,
                ..place
            },
            None => place,
        }
    }
}

/// A value and its line, from 1 (0: not known).
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The line on which the value begins, from 1 (0: not known).
    pub line: u32,
    /// The character in that line with which the value begins, from 1 (0: not known).
    pub column: u32,
    /// The value.
    pub value: Value,
    /// The positions of a string's characters in the file.
    pub(crate) layout: Layout,
}

/// The types of values that YAML and JSON share.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`, or nothing at all.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(serde_json::Number),
    /// A string.
    String(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order written.
    Map(Vec<Entry>),
}

/// One entry of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The line of the key.
    pub line: u32,
    /// The character in that line with which the key begins, from 1 (0: not known).
    pub column: u32,
    /// The value.
    pub value: Node,
}

/// The size of a document, by which its memory can be estimated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DocumentSize {
    /// The number of values; each list and mapping counts besides the values in it.
    pub values: usize,
    /// The bytes of strings and keys, and of the recorded layout of strings.
    pub text_bytes: usize,
}

/// Converts a column counted from 0 into one counted from 1.
pub(crate) fn column_number(column: usize) -> u32 {
    u32::try_from(column).map_or(0, |column| column.saturating_add(1))
}

impl Node {
    /// A node for `value`, which begins on `line`.
    #[must_use]
    pub fn new(line: u32, value: Value) -> Self {
        Self {
            line,
            column: 0,
            value,
            layout: Layout::default(),
        }
    }

    /// The same node, beginning at `column`, which counts from 0.
    pub(crate) fn at_column(self, column: usize) -> Self {
        Self {
            column: column_number(column),
            ..self
        }
    }

    /// Adds `lines` to the line of each value.
    pub(crate) fn move_down(&mut self, lines: u32) {
        self.line = self.line.saturating_add(lines);
        self.layout.move_down(lines);
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.move_down(lines)),
            Value::Map(entries) => {
                for entry in entries {
                    entry.line = entry.line.saturating_add(lines);
                    entry.value.move_down(lines);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// The size of this value and of everything in it.
    #[must_use]
    pub fn size(&self) -> DocumentSize {
        let mut size = DocumentSize::default();
        self.add_size(&mut size);
        size
    }

    /// Recursion is bounded by [`MAX_DEPTH`].
    fn add_size(&self, size: &mut DocumentSize) {
        size.values += 1;
        match &self.value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => size.text_bytes += text.len() + self.layout.bytes(),
            Value::List(items) => items.iter().for_each(|item| item.add_size(size)),
            Value::Map(entries) => {
                for entry in entries {
                    size.text_bytes += entry.key.len();
                    entry.value.add_size(size);
                }
            }
        }
    }

    /// Whether the values are equal, including their order, regardless of their lines.
    #[must_use]
    pub fn equals_ignoring_lines(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Value::List(one), Value::List(other)) => {
                one.len() == other.len()
                    && one
                        .iter()
                        .zip(other)
                        .all(|(one, other)| one.equals_ignoring_lines(other))
            }
            (Value::Map(one), Value::Map(other)) => {
                let same = |(one, other): (&Entry, &Entry)| {
                    one.key == other.key && one.value.equals_ignoring_lines(&other.value)
                };
                one.len() == other.len() && one.iter().zip(other).all(same)
            }
            (one, other) => one == other,
        }
    }

    /// The entry `name` of a mapping.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => entries
                .iter()
                .find(|entry| entry.key == name)
                .map(|entry| &entry.value),
            _ => None,
        }
    }

    /// The item `index` of a list.
    #[must_use]
    pub fn item(&self, index: usize) -> Option<&Self> {
        match &self.value {
            Value::List(items) => items.get(index),
            _ => None,
        }
    }

    /// Removes the value at `path`. If it is in a list, the entry of the innermost mapping around
    /// it is removed instead, so that list items keep their indexes. Returns `false` if there is no
    /// such value.
    pub(crate) fn remove(&mut self, path: &[PathSegment]) -> bool {
        let Some((step, rest)) = path.split_first() else {
            return false;
        };
        match (&mut self.value, step) {
            (Value::Map(entries), PathSegment::Field(name) | PathSegment::Key(name)) => {
                let Some(index) = entries.iter().position(|entry| entry.key == *name) else {
                    return false;
                };
                let within = entries
                    .get_mut(index)
                    .is_some_and(|entry| entry.value.remove(rest));
                if !within {
                    entries.remove(index);
                }
                true
            }
            (Value::List(items), PathSegment::Index(index)) => {
                items.get_mut(*index).is_some_and(|item| item.remove(rest))
            }
            _ => false,
        }
    }

    /// Adds `value` at `path`, whose last step must be a field that its mapping does not have.
    /// Returns whether it was added.
    pub(crate) fn insert(&mut self, path: &[PathSegment], value: Self) -> bool {
        match (&mut self.value, path) {
            (Value::Map(entries), [PathSegment::Field(name) | PathSegment::Key(name), rest @ ..]) => {
                if let Some(entry) = entries.iter_mut().find(|entry| entry.key == *name) {
                    return entry.value.insert(rest, value);
                }
                let is_last = rest.is_empty();
                if is_last {
                    entries.push(Entry {
                        key: name.clone(),
                        line: 0,
                        column: 0,
                        value,
                    });
                }
                is_last
            }
            (Value::List(items), [PathSegment::Index(index), rest @ ..]) => {
                items.get_mut(*index).is_some_and(|item| item.insert(rest, value))
            }
            _ => false,
        }
    }

    /// The string, if the value is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// A node for `value` without a line.
    #[must_use]
    pub fn from_json(value: serde_json::Value) -> Self {
        let value = match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Bool(value),
            serde_json::Value::Number(number) => Value::Number(number),
            serde_json::Value::String(text) => Value::String(text),
            serde_json::Value::Array(items) => Value::List(items.into_iter().map(Self::from_json).collect()),
            serde_json::Value::Object(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| Entry {
                        key,
                        line: 0,
                        column: 0,
                        value: Self::from_json(value),
                    })
                    .collect(),
            ),
        };
        Self::new(0, value)
    }

    /// The line and column in the file of a character of this string, which is given by its line
    /// and column in the string. All count from 1. `None` if this is not a string, or the position
    /// is not known.
    pub(crate) fn position(&self, (line, column): (usize, usize)) -> Option<(u32, u32)> {
        let text = self.as_str()?;
        let lines = text.split_inclusive('\n');
        let start: usize = lines.take(line.checked_sub(1)?).map(str::len).sum();
        let rest = text.get(start..)?;
        let at = rest.char_indices().nth(column.checked_sub(1)?);
        let at = at.map_or(text.len(), |(at, _)| start + at);
        self.layout.position(text, at, self.line)
    }

    /// The same value without its lines.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(number) => serde_json::Value::Number(number.clone()),
            Value::String(text) => text.as_str().into(),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), entry.value.to_json()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
