//! Why a rule is not converted, and at which of its fields.

use serde_json::Value;

use portcullis_policy::field::{FieldPath, PathSegment};

/// A reason, and the path below what was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    /// From the inside to the outside.
    steps: Vec<PathSegment>,
    pub(crate) reason: String,
}

/// A refusal of the field `name`.
pub(crate) fn of<T>(name: &str, reason: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(name, reason))
}

/// Refuses the first field that is none of the `known` ones.
pub(crate) fn unknown(object: &Value, known: &[&str]) -> Result<(), Refusal> {
    let fields = object.as_object().into_iter().flatten();
    match fields
        .map(|(name, _)| name)
        .find(|name| !known.contains(&name.as_str()))
    {
        Some(name) => of(name, "this field has no counterpart"),
        None => Ok(()),
    }
}

// === impl Refusal ===

impl Refusal {
    pub(crate) fn new(name: &str, reason: impl Into<String>) -> Self {
        Self {
            steps: vec![PathSegment::Field(name.into())],
            reason: reason.into(),
        }
    }

    /// A refusal of the whole.
    pub(crate) fn here(reason: impl Into<String>) -> Self {
        Self {
            steps: Vec::new(),
            reason: reason.into(),
        }
    }

    /// The same, seen from what has it in the field `name`.
    pub(crate) fn within(mut self, name: &str) -> Self {
        self.steps.push(PathSegment::Field(name.into()));
        self
    }

    /// The same, seen from the list that has it.
    pub(crate) fn within_index(mut self, index: usize) -> Self {
        self.steps.push(PathSegment::Index(index));
        self
    }

    /// Where it is below `base`.
    pub(crate) fn path(&self, base: &FieldPath) -> FieldPath {
        self.steps
            .iter()
            .rev()
            .fold(base.clone(), |path, step| match step {
                PathSegment::Field(name) => path.field(name),
                PathSegment::Key(key) => path.key(key),
                PathSegment::Index(index) => path.index(*index),
            })
    }
}
