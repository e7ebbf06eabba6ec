//! A compact form of documents, for those that are only needed again to locate a warning.
//!
//! One byte tells the type of a value; the numbers after it have variable length, and frequent
//! words of Kubernetes are numbers too. A RoleBinding takes about a hundred bytes, a thirtieth of
//! its tree.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Document, Entry, Node, Value};
use crate::field::{FieldPath, Place};

/// A document without columns and the layout of its strings, but with the same values and lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedDocument {
    file: Option<Arc<str>>,
    bytes: Box<[u8]>,
}

/// A document, which is packed if there may be very many of its kind and it has no expressions.
#[derive(Debug, Clone)]
pub(crate) enum KeptDocument {
    Whole(Box<Document>),
    Packed(PackedDocument),
}

/// Frequent words, which are packed as their index. Packed documents are never written to disk, so
/// the list may change.
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
        pack(document.root(), &mut bytes);
        Self {
            file: document.file().cloned(),
            bytes: bytes.into(),
        }
    }

    /// The same document without its file.
    #[must_use]
    pub fn of_no_file(self) -> Self {
        Self { file: None, ..self }
    }

    /// The document that was packed.
    #[must_use]
    pub fn unpack(&self) -> Document {
        let mut reader = PackedReader(&self.bytes);
        // What `pack` wrote can always be read.
        let root = reader.node().unwrap_or(Node::new(0, Value::Null));
        Document::new(self.file.clone(), root)
    }
}

// === packing ===

impl KeptDocument {
    /// The document, unpacked if necessary.
    pub(crate) fn get(&self) -> Cow<'_, Document> {
        match self {
            Self::Whole(document) => Cow::Borrowed(document),
            Self::Packed(packed) => Cow::Owned(packed.unpack()),
        }
    }

    /// Like [`Document::place`].
    pub(crate) fn place(&self, path: FieldPath) -> Place {
        self.get().place(path)
    }
}

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

/// Writes seven bits per byte, the lowest first.
fn number(mut value: u64, into: &mut Vec<u8>) {
    while value > 0x7f {
        into.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Writes a frequent word as its index with the lowest bit set, and other strings as length and
/// bytes.
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

struct PackedReader<'b>(&'b [u8]);

impl PackedReader<'_> {
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
