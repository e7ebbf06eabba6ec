//! Errors of applying a configuration.

use std::fmt;

use crate::model::truncate_with_mark;

/// The most bytes that a configuration may have as JSON, as the API server
/// bounds a request; an expression can make far more out of few values.
pub const MAX_CONFIGURATION: usize = 3 << 20;

/// How deep a configuration may nest, and how deep what changed is compared with a
/// schema: far deeper than any type of Kubernetes, and no deeper than any thread's stack.
pub const MAX_LEVELS: usize = 256;

/// Why a configuration is not applied. The texts are Kubernetes', where
/// those do not show Go's own structures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// An `Object…{}` stands where another name belongs.
    #[error("type mismatch: {}", names(.0))]
    TypeNames(Vec<WrongName>),
    /// A value that no object can have.
    #[error("invalid ApplyConfiguration: {0}")]
    Value(FieldMismatch),
    /// The kind has no schema here.
    #[error(
        "no schema for {kind}: ApplyConfiguration knows the kinds built into Kubernetes alone, use JSONPatch for any other"
    )]
    UnknownKind {
        /// Group, version and kind, as Kubernetes writes them.
        kind: String,
    },
    /// The configuration does not fit the kind.
    #[error("error applying patch: failed to convert patch object to typed object: {0}")]
    Patch(FieldMismatches),
    /// The configuration would replace what can only be replaced as a whole.
    #[error(
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
        .0.join(", ")
    )]
    Atomic(Vec<String>),
    /// The object does not fit its kind, where the configuration names it.
    #[error("error applying patch: failed to convert original object to typed object: {0}")]
    Object(FieldMismatches),
    /// The object with the configuration cannot be read into its type.
    #[error("error applying patch: {0}")]
    Decode(#[from] DecodeError),
    /// The configuration is too large or nests too deep.
    #[error(
        "the ApplyConfiguration has over {} bytes or {} levels",
        MAX_CONFIGURATION,
        MAX_LEVELS
    )]
    TooLarge,
}

/// An object type whose name is not that of the field it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongName {
    /// The name.
    pub found: String,
    /// The name that belongs there.
    pub expected: String,
}

/// Something at some path that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldMismatch {
    /// Where, such as `.spec.containers[name="a"].image`; empty for the whole.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

/// All that does not fit; at most [`FieldMismatches::MAX_MISMATCHES`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldMismatches(Vec<FieldMismatch>);

/// The most bytes of the path of a finding. A path has the keys above it, which users choose, and an
/// object may have many findings below one key.
const MAX_PATH_BYTES: usize = 1 << 10;

/// `path`, as much of it as findings have.
pub(crate) fn noted_path(path: &str) -> String {
    truncate_with_mark(path, MAX_PATH_BYTES).into_owned()
}

fn names(wrong: &[WrongName]) -> String {
    let lines: Vec<String> = wrong
        .iter()
        .map(|WrongName { found, expected }| {
            format!("unexpected type name {found:?}, expected {expected:?}, which matches field name path from root Object type")
        })
        .collect();
    lines.join("\n")
}

// === impl FieldMismatch ===

impl fmt::Display for FieldMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

// === impl FieldMismatches ===

impl FieldMismatches {
    /// After this many, the search ends.
    pub const MAX_MISMATCHES: usize = 16;

    /// Adds one, if there are not enough.
    pub(crate) fn push(&mut self, path: &str, message: String) {
        if self.0.len() < Self::MAX_MISMATCHES {
            let path = noted_path(path);
            self.0.push(FieldMismatch { path, message });
        }
    }

    /// Each, in the order found.
    pub fn iter(&self) -> impl Iterator<Item = &FieldMismatch> {
        self.0.iter()
    }

    /// The error that `of` makes of them, if there are any.
    pub(crate) fn into_error(self, of: impl FnOnce(Self) -> ApplyError) -> Result<(), ApplyError> {
        self.none().map_err(of)
    }

    /// That there are none.
    pub(crate) fn none(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for FieldMismatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return only.fmt(f);
        }
        f.write_str("errors:")?;
        self.0.iter().try_for_each(|one| write!(f, "\n  {one}"))
    }
}

/// Why an object cannot be read into its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Values that are not of their fields' types.
    #[error("{0}")]
    Mismatches(FieldMismatches),
    /// Fields that are not known, by their paths.
    #[error("strict decoding error: {}", unknown_fields(.0))]
    Unknown(Vec<String>),
}

fn unknown_fields(paths: &[String]) -> String {
    let fields: Vec<String> = paths
        .iter()
        .map(|path| format!("unknown field {path:?}"))
        .collect();
    fields.join(", ")
}
