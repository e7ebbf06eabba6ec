//! A compact form of documents, for those that are only needed again to locate a warning.
//!
//! One byte tells the type of a value; the numbers after it have variable length, and frequent
//! words of Kubernetes are numbers too. A RoleBinding takes about a hundred bytes, a thirtieth of
//! its tree, and a small policy with its columns three hundred.

use std::sync::Arc;

use super::layout::Layout;
use super::{Document, Entry, Node, Value};
use crate::field::{FieldPath, Place};

/// A document with the same values and lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedDocument {
    file: Option<Arc<str>>,
    bytes: Box<[u8]>,
    columns: Columns,
}

/// Whether a packed document has its columns and the layout of its strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Columns {
    /// A fault can name the character of an expression.
    Kept,
    LeftOut,
}

/// Frequent words, which are packed as their index. Packed documents are never written to disk, so
/// the list may change.
const WORDS: [&str; 64] = [
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
    "spec",
    "effect",
    "mode",
    "conditions",
    "expression",
    "message",
    "reason",
    "messageExpression",
    "excludeSubjects",
    "resourceRules",
    "nonResourceRules",
    "namespaces",
    "names",
    "paths",
    "Allow",
    "Deny",
    "Limit",
    "portcullis.dev/v1alpha1",
    "AuthorizationPolicy",
    "admissionregistration.k8s.io/v1",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "matchConstraints",
    "matchConditions",
    "matchResources",
    "namespaceSelector",
    "matchLabels",
    "matchExpressions",
    "failurePolicy",
    "apiVersions",
    "operations",
    "validations",
    "variables",
    "policyName",
    "validationActions",
    "paramKind",
    "paramRef",
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
    /// Packs `document`, without columns and the layout of its strings.
    #[must_use]
    pub fn new(document: &Document) -> Self {
        Self::pack(document, Columns::LeftOut)
    }

    /// Packs `document` with them, for objects that have expressions.
    #[must_use]
    pub fn with_columns(document: &Document) -> Self {
        Self::pack(document, Columns::Kept)
    }

    fn pack(document: &Document, columns: Columns) -> Self {
        let mut writer = PackedWriter {
            bytes: Vec::with_capacity(128),
            columns,
        };
        writer.node(document.root());
        Self {
            file: document.file().cloned(),
            bytes: writer.bytes.into(),
            columns,
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
        let mut reader = PackedReader {
            bytes: &self.bytes,
            columns: self.columns,
        };
        // What `pack` wrote can always be read.
        let root = reader.node().unwrap_or(Node::new(0, Value::Null));
        Document::new(self.file.clone(), root)
    }

    /// Like [`Document::place`].
    pub(crate) fn place(&self, path: FieldPath) -> Place {
        self.unpack().place(path)
    }
}

// === packing ===

struct PackedWriter {
    bytes: Vec<u8>,
    columns: Columns,
}

impl PackedWriter {
    /// Recursion is bounded by [`MAX_DEPTH`](super::MAX_DEPTH).
    fn node(&mut self, node: &Node) {
        let tag = self.bytes.len();
        self.bytes.push(NULL);
        self.position(node.line, node.column);
        let found = match &node.value {
            Value::Null => NULL,
            Value::Bool(false) => FALSE,
            Value::Bool(true) => TRUE,
            Value::Number(value) => match (value.as_u64(), value.as_i64(), value.as_f64()) {
                (Some(value), ..) => {
                    self.number(value);
                    UNSIGNED
                }
                (None, Some(value), _) => {
                    self.bytes.extend(value.to_le_bytes());
                    SIGNED
                }
                (None, None, value) => {
                    self.bytes.extend(value.unwrap_or_default().to_le_bytes());
                    FLOAT
                }
            },
            Value::String(value) => {
                self.text(value);
                self.layout(&node.layout);
                TEXT
            }
            Value::List(items) => {
                self.number(items.len() as u64);
                items.iter().for_each(|item| self.node(item));
                LIST
            }
            Value::Map(entries) => {
                self.number(entries.len() as u64);
                for entry in entries {
                    self.text(&entry.key);
                    self.position(entry.line, entry.column);
                    self.node(&entry.value);
                }
                MAP
            }
        };
        if let Some(tag) = self.bytes.get_mut(tag) {
            *tag = found;
        }
    }

    fn position(&mut self, line: u32, column: u32) {
        self.number(line.into());
        if self.columns == Columns::Kept {
            self.number(column.into());
        }
    }

    fn layout(&mut self, layout: &Layout) {
        if self.columns == Columns::Kept {
            self.number(layout.numbers().count() as u64);
            layout.numbers().for_each(|number| self.number(number));
        }
    }

    /// Writes seven bits per byte, the lowest first.
    fn number(&mut self, mut value: u64) {
        while value > 0x7f {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Writes a frequent word as its index with the lowest bit set, and other strings as length and
    /// bytes.
    fn text(&mut self, value: &str) {
        match WORDS.iter().position(|word| *word == value) {
            Some(word) => self.number((word as u64) << 1 | 1),
            None => {
                self.number((value.len() as u64) << 1);
                self.bytes.extend(value.as_bytes());
            }
        }
    }
}

// === unpacking ===

struct PackedReader<'b> {
    bytes: &'b [u8],
    columns: Columns,
}

impl PackedReader<'_> {
    fn node(&mut self) -> Option<Node> {
        let [tag] = self.take()?;
        let (line, column) = self.position()?;
        let mut layout = Layout::default();
        let value = match tag {
            NULL => Value::Null,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            UNSIGNED => Value::Number(self.number()?.into()),
            SIGNED => Value::Number(i64::from_le_bytes(self.take()?).into()),
            FLOAT => Value::Number(serde_json::Number::from_f64(f64::from_le_bytes(self.take()?))?),
            TEXT => {
                let text = self.text()?;
                layout = self.layout()?;
                Value::String(text)
            }
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
        Some(Node {
            line,
            column,
            value,
            layout,
        })
    }

    fn entry(&mut self) -> Option<Entry> {
        let key = self.text()?;
        let (line, column) = self.position()?;
        Some(Entry {
            key,
            line,
            column,
            value: self.node()?,
        })
    }

    fn position(&mut self) -> Option<(u32, u32)> {
        let line = u32::try_from(self.number()?).ok()?;
        let column = match self.columns {
            Columns::Kept => u32::try_from(self.number()?).ok()?,
            Columns::LeftOut => 0,
        };
        Some((line, column))
    }

    fn layout(&mut self) -> Option<Layout> {
        let count = match self.columns {
            Columns::Kept => self.number()?,
            Columns::LeftOut => 0,
        };
        let numbers: Vec<u32> = (0..count)
            .map(|_| u32::try_from(self.number()?).ok())
            .collect::<Option<_>>()?;
        Some(Layout::of_numbers(&numbers))
    }

    fn text(&mut self) -> Option<String> {
        let coded = usize::try_from(self.number()?).ok()?;
        if coded & 1 == 1 {
            return WORDS.get(coded >> 1).map(|&word| word.to_owned());
        }
        let (text, rest) = self.bytes.split_at_checked(coded >> 1)?;
        self.bytes = rest;
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
        let (taken, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
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
    fn with_columns_each_character_is_found_where_it_stood() {
        let text = "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nspec:\n  reason: \"a \\u00e9\\n b\"\n\
            \x20 conditions:\n  - {name: x, expression: 'a ''b'' c'}\n  - name: y\n    expression: |\n      first\n\n      second\n\
            \x20 flow: {a: [1, ~, -2.5]}\n";
        for document in super::super::parse(Some("f.yaml"), text).unwrap() {
            assert_eq!(PackedDocument::with_columns(&document).unpack(), document);
            assert_ne!(PackedDocument::new(&document).unpack(), document);
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
