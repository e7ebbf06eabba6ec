//! One operation of a patch, and why it may not apply.

use std::borrow::Cow;

use crate::json::{Kind, Node, ObjectWriter, Tree};

/// One operation.
#[derive(Debug, Clone)]
pub struct PatchOperation<'d> {
    /// `add`, `remove`, `replace`, `move`, `copy` or `test`.
    pub op: Cow<'d, str>,
    /// A JSON Pointer to what is changed.
    pub path: Cow<'d, str>,
    /// Where `move` and `copy` take the value from.
    pub from: Option<Cow<'d, str>>,
    /// The value of `add`, `replace` and `test`.
    pub value: Option<Node<'d>>,
}

/// Why a patch does not apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A `test` found another value: the patch as a whole must not apply.
    #[error("testing value {path} failed: test failed")]
    TestFailed {
        /// The path tested.
        path: String,
    },
    /// What the path leads through is not there.
    #[error("{op} operation does not apply: doc is missing path: \"{path}\": missing value")]
    MissingPath {
        /// The operation.
        op: String,
        /// The path.
        path: String,
    },
    /// What is to be removed is not there.
    #[error("error in {op} for path: '{path}': Unable to remove nonexistent key: {key}: missing value")]
    MissingKey {
        /// The operation.
        op: String,
        /// The path.
        path: String,
        /// Its last step.
        key: String,
    },
    /// A list has no such item.
    #[error(
        "error in {op} for path: '{path}': Unable to access invalid index: {key}: invalid index referenced"
    )]
    Index {
        /// The operation.
        op: String,
        /// The path.
        path: String,
        /// Its last step.
        key: String,
    },
    /// `move` or `copy` says not from where.
    #[error("{op} operation failed to decode from: operation, missing from field: missing value")]
    MissingFrom {
        /// The operation.
        op: String,
    },
    /// The whole document can only become a map or a list.
    #[error("replace operation value must be object or array")]
    ScalarDocument,
    /// No such operation.
    #[error("Unexpected kind: {op}")]
    UnknownOperation {
        /// What it was called.
        op: String,
    },
    /// The patch is no list of maps, or a member of one is no text.
    #[error("cannot decode the patch: {expected} expected")]
    Malformed {
        /// What should have stood there.
        expected: &'static str,
    },
    /// The patch nests, copies or shifts more than it may, or all patches to an object together do.
    #[error("the patch is too large: it may not {what}")]
    TooLarge {
        /// Which bound it breaks.
        what: &'static str,
    },
}

// === impl PatchOperation ===

impl<'d> PatchOperation<'d> {
    pub(crate) fn read(node: Node<'d>) -> Result<Self, Error> {
        if node.kind() != Kind::Object {
            return Err(Error::Malformed { expected: "a map" });
        }
        let text = |name| match node.get(name) {
            None => Ok(None),
            Some(value) if value.is_null() => Ok(None),
            Some(value) => value
                .as_str()
                .map(Some)
                .ok_or(Error::Malformed { expected: "text" }),
        };
        Ok(Self {
            op: text("op")?.unwrap_or(Cow::Borrowed("unknown")),
            path: text("path")?.ok_or(Error::Malformed { expected: "a path" })?,
            from: text("from")?,
            value: node.get("value"),
        })
    }

    pub(crate) fn write(&self, out: &mut String) {
        ObjectWriter::write(out, |fields| {
            fields.text("op", &self.op);
            if let Some(from) = &self.from {
                fields.text("from", from);
            }
            fields.text("path", &self.path);
            if let Some(value) = self.value {
                fields.json("value", value.raw());
            }
        });
    }

    pub(crate) fn value(&self) -> Tree<'d> {
        self.value.map_or(Tree::Null, Tree::Node)
    }
}
