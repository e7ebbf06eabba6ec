//! JSON Patch (RFC 6902), as Kubernetes applies it.
//!
//! The API server uses `gopkg.in/evanphx/json-patch.v4`, which is more lenient than the
//! RFC in ways that policies rely on: `replace` adds a key that a map does not have, a
//! negative index counts from the end, and anything before the first `/` of a path is
//! ignored.

mod application;

use std::borrow::Cow;

use application::Application;

use super::tree::TreeSize;
use super::{Kind, Node, ObjectWriter, Tree, write_list};

/// A JSON Patch whose operations were checked. They are read from the document on demand, not copied.
#[derive(Debug, Clone, Copy)]
pub struct Patch<'d>(Node<'d>);

/// Reads a patch: a list of maps. `null` is an empty patch.
///
/// # Errors
///
/// [`PatchError::Malformed`]. Whether an operation is known and applies is only checked when it is applied.
pub fn read(patch: Node<'_>) -> Result<Patch<'_>, PatchError> {
    match patch.kind() {
        Kind::Null | Kind::Array => {}
        _ => return Err(PatchError::Malformed { expected: "a list" }),
    }
    for operation in patch.items() {
        PatchOperation::read(operation)?;
    }
    Ok(Patch(patch))
}

/// Writes a patch as JSON.
#[must_use]
pub fn write(operations: &[PatchOperation<'_>]) -> String {
    let mut out = String::new();
    write_list(&mut out, operations, |out, operation| operation.write(out));
    out
}

/// Applies the operations in order.
///
/// # Errors
///
/// As [`apply_within`].
pub fn apply<'d>(document: Node<'d>, patch: Patch<'d>) -> Result<Tree<'d>, PatchError> {
    apply_within(document, patch, &mut PatchBudget::new())
}

/// Applies the operations in order, within what is left of `budget`.
///
/// # Errors
///
/// The error of the first operation that does not apply; then none takes effect. Whether a failed `test` is an
/// error is up to the caller.
pub fn apply_within<'d>(
    document: Node<'d>,
    patch: Patch<'d>,
    budget: &mut PatchBudget,
) -> Result<Tree<'d>, PatchError> {
    let mut run = Application::new(document, budget);
    for operation in patch.operations() {
        run.step(&operation)?;
    }
    Ok(run.into_root())
}

// === impl Patch ===

impl<'d> Patch<'d> {
    /// The operations, in order.
    pub fn operations(self) -> impl Iterator<Item = PatchOperation<'d>> {
        // `read` has checked that each of them can be read.
        self.0.items().filter_map(|item| PatchOperation::read(item).ok())
    }
}

// One operation of a patch, and why it may not apply.

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
pub enum PatchError {
    /// A `test` found another value: the patch as a whole must not apply.
    #[error("testing value {path} failed: test failed")]
    TestFailed {
        /// The path tested.
        path: String,
    },
    /// A parent of the path does not exist, or is neither a map nor a list.
    #[error("{op} operation does not apply: doc is missing path: \"{path}\": missing value")]
    MissingPath {
        /// The operation.
        op: String,
        /// The path.
        path: String,
    },
    /// The key to remove does not exist.
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
    /// A `move` or `copy` has no `from`.
    #[error("{op} operation failed to decode from: operation, missing from field: missing value")]
    MissingFrom {
        /// The operation.
        op: String,
    },
    /// The whole document can only be replaced by a map or a list.
    #[error("replace operation value must be object or array")]
    ScalarDocument,
    /// The operation is unknown.
    #[error("Unexpected kind: {op}")]
    UnknownOperation {
        /// The value of `op`.
        op: String,
    },
    /// The patch is not a list of maps, or a field of an operation that must be text is not.
    #[error("cannot decode the patch: {expected} expected")]
    Malformed {
        /// What was expected instead.
        expected: &'static str,
    },
    /// The patch nests, copies or changes more than is allowed for it, or for all patches to one object together.
    #[error("the patch is too large: it may not {what}")]
    TooLarge {
        /// What it may not do, such as `copy more than 3 MiB`.
        what: &'static str,
    },
}

// === impl PatchOperation ===

impl<'d> PatchOperation<'d> {
    pub(crate) fn read(node: Node<'d>) -> Result<Self, PatchError> {
        if node.kind() != Kind::Object {
            return Err(PatchError::Malformed { expected: "a map" });
        }
        let text = |name| match node.get(name) {
            None => Ok(None),
            Some(value) if value.is_null() => Ok(None),
            Some(value) => value
                .as_str()
                .map(Some)
                .ok_or(PatchError::Malformed { expected: "text" }),
        };
        Ok(Self {
            op: text("op")?.unwrap_or(Cow::Borrowed("unknown")),
            path: text("path")?.ok_or(PatchError::Malformed { expected: "a path" })?,
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

// Limits on the memory and the work of patches.

/// The most bytes that the `copy` operations of one patch may add, as the API server's
/// `JSONPatchMaxCopyBytes`.
pub const MAX_COPIED: usize = 3 << 20;

/// The most memory, in bytes, for the notes in which a [`Tree`] keeps its changes.
const MAX_NOTES: usize = 32 << 20;

/// The most notes, and pieces of lists, that patches may move and copy: this bounds their work.
const MAX_SHIFTED: usize = 100_000_000;

/// The memory of one note of a change, in bytes, with the map or list that it opens.
const NOTE: usize = 256;

/// What is left of the memory and the work that all patches to one object may take together.
#[derive(Debug, Clone)]
pub struct PatchBudget {
    copied: usize,
    notes: usize,
    shifted: usize,
}

// === impl PatchBudget ===

impl PatchBudget {
    /// A full budget, in which `copy` operations may add [`MAX_COPIED`] bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            copied: MAX_COPIED,
            notes: MAX_NOTES,
            shifted: MAX_SHIFTED,
        }
    }

    /// Charges the copy of a value.
    pub(crate) fn copy(&mut self, extent: TreeSize) -> Result<(), PatchError> {
        self.note(extent.notes)?;
        self.copied = left(self.copied, extent.bytes, "copy more than 3 MiB")?;
        Ok(())
    }

    /// Charges the memory of `notes` notes of changes.
    pub(crate) fn note(&mut self, notes: usize) -> Result<(), PatchError> {
        self.notes = left(self.notes, notes.saturating_mul(NOTE), "change so much")?;
        Ok(())
    }

    /// Charges the work of moving or copying `notes` notes.
    pub(crate) fn shift(&mut self, notes: usize) -> Result<(), PatchError> {
        self.shifted = left(self.shifted, notes, "shift so many items")?;
        Ok(())
    }
}

impl Default for PatchBudget {
    fn default() -> Self {
        Self::new()
    }
}

fn left(of: usize, taken: usize, what: &'static str) -> Result<usize, PatchError> {
    of.checked_sub(taken).ok_or(PatchError::TooLarge { what })
}

// JSON Pointers (RFC 6901): `/metadata/labels/example.com~1team`.

/// The steps of a pointer; `None` if it is neither empty nor begins with `/`.
#[must_use]
pub fn steps(pointer: &str) -> Option<Vec<Cow<'_, str>>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    Some(pointer.strip_prefix('/')?.split('/').map(unescape).collect())
}

/// The index that a step names: decimal, no sign, no leading zero.
#[must_use]
pub fn index(step: &str) -> Option<usize> {
    let canonical = step == "0" || (!step.starts_with('0') && step.bytes().all(|byte| byte.is_ascii_digit()));
    if canonical { step.parse().ok() } else { None }
}

/// A key as one step of a pointer: `~` becomes `~0`, `/` becomes `~1`.
#[must_use]
pub fn escape(key: &str) -> Cow<'_, str> {
    if key.contains(['~', '/']) {
        key.replace('~', "~0").replace('/', "~1").into()
    } else {
        key.into()
    }
}

fn unescape(step: &str) -> Cow<'_, str> {
    // `~1` first, else `~01` would become `/` instead of `~1`.
    if step.contains('~') {
        step.replace("~1", "/").replace("~0", "~").into()
    } else {
        step.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_unescaped() {
        assert_eq!(steps(""), Some(vec![]));
        assert_eq!(steps("/"), Some(vec!["".into()]));
        assert_eq!(
            steps("/a~1b/~01/c"),
            Some(vec!["a/b".into(), "~1".into(), "c".into()])
        );
        assert_eq!(steps("a"), None);
        assert_eq!(escape("a/~b"), "a~1~0b");
    }

    #[test]
    fn an_index_is_canonical() {
        for (step, expected) in [
            ("0", Some(0)),
            ("12", Some(12)),
            ("01", None),
            ("-1", None),
            ("+1", None),
        ] {
            assert_eq!(index(step), expected, "{step}");
        }
        assert_eq!(index(""), None);
        assert_eq!(index("99999999999999999999999"), None);
    }
}
