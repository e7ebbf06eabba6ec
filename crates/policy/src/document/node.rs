//! YAML values with their line numbers.

use std::sync::Arc;

use super::Document;
use super::layout::Layout;
use crate::field::PathSegment;

/// A value and its line, from 1 (0: not known).
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The line on which the value begins.
    pub line: u32,
    /// The character of that line with which it begins, from 1 (0: not known).
    pub column: u32,
    /// The value.
    pub value: Value,
    /// Where the characters of text stand.
    pub(crate) layout: Layout,
}

/// What YAML and JSON have in common.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`, or nothing at all.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(serde_json::Number),
    /// Text.
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
    /// The character of that line with which it begins, from 1 (0: not known).
    pub column: u32,
    /// The value.
    pub value: Node,
}

/// A column that is counted from 0, as one that is counted from 1.
pub(crate) fn column_number(column: usize) -> u32 {
    u32::try_from(column).map_or(0, |column| column.saturating_add(1))
}

impl Node {
    /// `value`, which begins on `line`.
    #[must_use]
    pub fn new(line: u32, value: Value) -> Self {
        Self {
            line,
            column: 0,
            value,
            layout: Layout::default(),
        }
    }

    /// The same, which begins at `column`.
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

    /// Whether both say the same in the same order, on whatever lines.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Value::List(one), Value::List(other)) => {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.says_the_same(other))
            }
            (Value::Map(one), Value::Map(other)) => {
                let same = |(one, other): (&Entry, &Entry)| {
                    one.key == other.key && one.value.says_the_same(&other.value)
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

    /// Takes away the value at `path`: the entry of the innermost mapping on the
    /// way, so that no item of a list changes its place. `false` where there is none.
    pub(crate) fn leave_out(&mut self, path: &[PathSegment]) -> bool {
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
                    .is_some_and(|entry| entry.value.leave_out(rest));
                if !within {
                    entries.remove(index);
                }
                true
            }
            (Value::List(items), PathSegment::Index(index)) => {
                items.get_mut(*index).is_some_and(|item| item.leave_out(rest))
            }
            _ => false,
        }
    }

    /// The text, where it is text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// `value`, which stands on no line.
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

    /// The line and column, from 1, of the file where the character `column` of line `line`
    /// of this text stands, both from 1 as well; `None` where it is no text, or not known.
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

// Documents in little memory, for those that are only read again where there is a
// warning to place.
//
// One byte says what a value is; the numbers that follow are of variable length, and
// frequent words of Kubernetes are numbers too. A RoleBinding takes about a hundred bytes,
// where its tree takes thirty times as many.

/// A document without columns and the layout of its texts: it says the same, on the same lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedDocument {
    file: Option<Arc<str>>,
    bytes: Box<[u8]>,
}

/// Words that stand in many objects, as numbers. They are never written to a disk.
const WORDS: [&str; 27] = [
    "apiVersion",
    "kind",
    "metadata",
    "name",
    "namespace",
    "labels",
    "annotations",
    "roleRef",
    "apiGroup",
    "subjects",
    "rules",
    "verbs",
    "apiGroups",
    "resources",
    "resourceNames",
    "rbac.authorization.k8s.io/v1",
    "rbac.authorization.k8s.io",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "User",
    "Group",
    "ServiceAccount",
    "v1",
    "Namespace",
    "kubernetes.io/metadata.name",
];

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const UNSIGNED: u8 = 3;
const SIGNED: u8 = 4;
const FLOAT: u8 = 5;
const TEXT: u8 = 6;
const LIST: u8 = 7;
const MAP: u8 = 8;

// === impl PackedDocument ===

impl PackedDocument {
    /// Packs `document`.
    #[must_use]
    pub fn new(document: &Document) -> Self {
        let mut bytes = Vec::with_capacity(128);
        pack(&document.root, &mut bytes);
        Self {
            file: document.file.clone(),
            bytes: bytes.into(),
        }
    }

    /// The same, of no file.
    #[must_use]
    pub fn of_no_file(self) -> Self {
        Self { file: None, ..self }
    }

    /// The document that was packed.
    #[must_use]
    pub fn unpack(&self) -> Document {
        let mut reader = Reader(&self.bytes);
        // What was packed here can be unpacked.
        let root = reader.node().unwrap_or(Node::new(0, Value::Null));
        Document::new(self.file.clone(), root)
    }
}

// === packing ===

/// Recursion is bounded by [`MAX_DEPTH`](super::MAX_DEPTH).
fn pack(node: &Node, into: &mut Vec<u8>) {
    let tag = into.len();
    into.push(NULL);
    number(node.line.into(), into);
    let found = match &node.value {
        Value::Null => NULL,
        Value::Bool(false) => FALSE,
        Value::Bool(true) => TRUE,
        Value::Number(value) => match (value.as_u64(), value.as_i64(), value.as_f64()) {
            (Some(value), ..) => {
                number(value, into);
                UNSIGNED
            }
            (None, Some(value), _) => {
                into.extend(value.to_le_bytes());
                SIGNED
            }
            (None, None, value) => {
                into.extend(value.unwrap_or_default().to_le_bytes());
                FLOAT
            }
        },
        Value::String(value) => {
            text(value, into);
            TEXT
        }
        Value::List(items) => {
            number(items.len() as u64, into);
            items.iter().for_each(|item| pack(item, into));
            LIST
        }
        Value::Map(entries) => {
            number(entries.len() as u64, into);
            for entry in entries {
                text(&entry.key, into);
                number(entry.line.into(), into);
                pack(&entry.value, into);
            }
            MAP
        }
    };
    if let Some(tag) = into.get_mut(tag) {
        *tag = found;
    }
}

/// Seven bits in each byte, the lowest first.
fn number(mut value: u64, into: &mut Vec<u8>) {
    while value > 0x7f {
        into.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// A word by its number, with the lowest bit set; or the length and the text.
fn text(value: &str, into: &mut Vec<u8>) {
    match WORDS.iter().position(|word| *word == value) {
        Some(word) => number((word as u64) << 1 | 1, into),
        None => {
            number((value.len() as u64) << 1, into);
            into.extend(value.as_bytes());
        }
    }
}

// === unpacking ===

struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn node(&mut self) -> Option<Node> {
        let [tag] = self.take()?;
        let line = self.line()?;
        let value = match tag {
            NULL => Value::Null,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            UNSIGNED => Value::Number(self.number()?.into()),
            SIGNED => Value::Number(i64::from_le_bytes(self.take()?).into()),
            FLOAT => Value::Number(serde_json::Number::from_f64(f64::from_le_bytes(self.take()?))?),
            TEXT => Value::String(self.text()?),
            LIST => {
                let count = self.number()?;
                Value::List((0..count).map(|_| self.node()).collect::<Option<_>>()?)
            }
            MAP => {
                let count = self.number()?;
                Value::Map((0..count).map(|_| self.entry()).collect::<Option<_>>()?)
            }
            _ => return None,
        };
        Some(Node::new(line, value))
    }

    fn entry(&mut self) -> Option<Entry> {
        Some(Entry {
            key: self.text()?,
            line: self.line()?,
            column: 0,
            value: self.node()?,
        })
    }

    fn line(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn text(&mut self) -> Option<String> {
        let coded = usize::try_from(self.number()?).ok()?;
        if coded & 1 == 1 {
            return WORDS.get(coded >> 1).map(|&word| word.to_owned());
        }
        let (text, rest) = self.0.split_at_checked(coded >> 1)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_with_its_lines() {
        for text in [
            "a: 1\nb: [-2, 2.5, null, true, false, 18446744073709551615]\n\nc:\n  kind: Role\n  'ä': \"\"\n",
            r#"{"apiVersion": "v1", "items": [{}, [], {"a": {"b": "c"}}], "long": 9007199254740993}"#,
        ] {
            for document in super::super::parse(Some("f.yaml"), text).unwrap() {
                let packed = PackedDocument::new(&document);
                let unpacked = packed.unpack();
                assert_eq!(unpacked.root().to_json(), document.root().to_json());
                assert_eq!(unpacked.file(), document.file());
                let lines = |document: &Document| {
                    let line = |name: &str| document.root().get(name).map(|node| node.line);
                    ["a", "b", "c", "items", "long"].map(line)
                };
                assert_eq!(lines(&unpacked), lines(&document));
                assert_eq!(PackedDocument::new(&unpacked), packed);
            }
        }
    }

    #[test]
    fn a_binding_takes_little() {
        let text = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
            metadata: {name: edit-77777, namespace: team-777}\n\
            roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}\n\
            subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: team-77777}]\n";
        let document = super::super::parse(None, text).unwrap().remove(0);
        assert!(PackedDocument::new(&document).bytes.len() < 120);
    }
}
