//! Errors of applying a configuration.

use std::fmt;

use crate::model::truncate_with_mark;

/// The most bytes of a configuration as JSON, which is the API server's limit for a request. An
/// expression can create far more from few values.
pub const MAX_CONFIGURATION: usize = 3 << 20;

/// The most levels of a configuration, and of changed values that are compared with a schema: far
/// more than any type of Kubernetes has, and few enough for the stack of any thread.
pub const MAX_LEVELS: usize = 256;

/// Why a configuration is not applied. The messages are those of Kubernetes, except where those
/// print Go structures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// An object has another type name than its field requires.
    #[error("type mismatch: {}", names(.0))]
    TypeNames(Vec<WrongName>),
    /// A value of a type that is not allowed in an object.
    #[error("invalid ApplyConfiguration: {0}")]
    Value(FieldMismatch),
    /// There is no schema for the kind.
    #[error(
        "no schema for {kind}: ApplyConfiguration knows the kinds built into Kubernetes alone, use JSONPatch for any other"
    )]
    UnknownKind {
        /// Group, version and kind, in the notation of Kubernetes.
        kind: String,
    },
    /// The configuration does not match the schema of the kind.
    #[error("error applying patch: failed to convert patch object to typed object: {0}")]
    Patch(FieldMismatches),
    /// The configuration sets parts of atomic lists, maps or structs.
    #[error(
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
        .0.join(", ")
    )]
    Atomic(Vec<String>),
    /// The object does not match the schema of its kind, in a field that the configuration sets.
    #[error("error applying patch: failed to convert original object to typed object: {0}")]
    Object(FieldMismatches),
    /// The merged object cannot be decoded into its type.
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

/// An object whose type name is not that of its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongName {
    /// The type name that was found.
    pub found: String,
    /// The type name that the field requires.
    pub expected: String,
}

/// An error at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldMismatch {
    /// The path, such as `.spec.containers[name="a"].image`; empty for the whole.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

/// The errors that were found, at most [`FieldMismatches::MAX_MISMATCHES`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldMismatches(Vec<FieldMismatch>);

/// The most bytes of the path of an error. Paths contain keys that users choose, and an object may
/// have many errors below one long key.
const MAX_PATH_BYTES: usize = 1 << 10;

/// `path`, truncated for errors.
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
    /// Further errors are dropped.
    pub const MAX_MISMATCHES: usize = 16;

    /// Adds an error, unless there are too many already.
    pub(crate) fn push(&mut self, path: &str, message: String) {
        if self.0.len() < Self::MAX_MISMATCHES {
            let path = noted_path(path);
            self.0.push(FieldMismatch { path, message });
        }
    }

    /// The errors, in the order found.
    pub fn iter(&self) -> impl Iterator<Item = &FieldMismatch> {
        self.0.iter()
    }

    /// Returns the error that `of` creates from the mismatches, if there are any.
    pub(crate) fn into_error(self, of: impl FnOnce(Self) -> ApplyError) -> Result<(), ApplyError> {
        self.none().map_err(of)
    }

    /// Returns `Err` with the mismatches, if there are any.
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

/// Why an object cannot be decoded into its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Values of wrong types.
    #[error("{0}")]
    Mismatches(FieldMismatches),
    /// The paths of unknown fields.
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
