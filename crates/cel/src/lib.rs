//! Kubernetes' CEL: the expressions of policies and match conditions.

#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
mod check;
pub mod cost;
mod environment;
mod evaluate;
mod function;
mod go_format;
pub mod json;
mod library;
pub mod predicate;
mod program;
mod reads;
pub mod regex;
mod syntax;
mod types;
mod value;

use std::fmt;

pub use crate::cost::{Budget, CompileBudget, MAX_COMPILE_STEPS, MAX_COMPILED_BYTES, MAX_EVALUATION_BYTES};
pub use environment::{AdmissionVariables, Environment, PerVersion, Version};
pub use go_format::{quote, write_quoted};
pub use library::authorizer::{
    AccessCheckAttributes, AccessCheckBuilder, AccessCheckDecision, AuthorizeAccess,
};
pub use program::{Activation, LazyValue, Program};
pub use reads::{AttributeRead, ReadExtent, ReadStep};
pub use syntax::{
    MAX_DEPTH, MAX_LENGTH, MAX_NESTING, ObjectPart, PartStep, PatchPath, VariableUse, compared_parts,
    constructed_objects, copied_parts, is_identifier, patch_paths, plain_or_values, variable_uses,
};
pub use types::{ObjectType, Type};
pub use value::{
    Bytes, Duration, Entries, Key, List, Map, MapEntries, Object, Opaque, Quantity, QuantityFault, Semver,
    SemverFault, Text, Timestamp, UrlFault, UrlValue, Value,
};

/// How long a message may be, in bytes: it may quote what was written, which may be very long.
const MAX_MESSAGE_BYTES: usize = 2 << 10;

/// An expression that cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct CompileError {
    /// What sort of error it is.
    pub kind: CompileErrorKind,
    /// What is wrong, in lower case, with what the author wrote in backticks. Cut where it is
    /// longer than 2 KiB.
    pub message: String,
    /// The line of the expression, from 1.
    pub line: usize,
    /// The character of the line, from 1.
    pub column: usize,
}

/// Why an expression does not compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompileErrorKind {
    /// The expression is invalid.
    Invalid,
    /// Compiling it takes more than what was left of the budget, or it has a type that is too
    /// large.
    TooLarge,
    /// The deadline passed. The expression may be valid.
    Interrupted,
}

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The expression itself failed: a missing key, an overflow. `&&`, `||` and the macros built on them may
    /// absorb it.
    #[error("{0}")]
    Failed(Box<str>),
    /// The expression read something unknown, which is named here. That may be absorbed, too: then the value does
    /// not depend on it.
    #[error("{0} is not known")]
    Unknown(&'static str),
    /// A function got a value at which upstream's own panics or reports an internal error: nothing absorbs that.
    #[error("internal error: {0}")]
    Internal(Box<str>),
    /// The expression exceeded the cost limit of a single expression.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// The expressions that share a budget exceeded it.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    OutOfBudget,
    /// The expressions that share a budget allocated more than they may.
    #[error("operation cancelled: memory limit exceeded")]
    MemoryLimit,
    /// The caller's deadline has passed.
    #[error("operation interrupted")]
    Interrupted,
}

impl CompileError {
    pub(crate) fn new(message: impl fmt::Display, (line, column): (usize, usize)) -> Self {
        Self {
            kind: CompileErrorKind::Invalid,
            message: brief(message),
            line,
            column,
        }
    }

    /// An error without a position yet: see [`placed`](Self::placed).
    pub(crate) fn unplaced(kind: CompileErrorKind, message: &str) -> Self {
        Self {
            kind,
            ..Self::new(message, (0, 0))
        }
    }

    /// The same error, at the position that `at` returns if it has none yet.
    pub(crate) fn placed(self, at: impl FnOnce() -> (usize, usize)) -> Self {
        if self.line > 0 {
            return self;
        }
        let (line, column) = at();
        Self { line, column, ..self }
    }
}

/// `message`, cut to the length of a message. The rest is not even formatted.
pub(crate) fn brief(message: impl fmt::Display) -> String {
    let mut text = BriefText(String::new());
    // The error of `BriefText` ends the formatting.
    let _ = fmt::write(&mut text, format_args!("{message}"));
    text.0
}

/// Accepts [`MAX_MESSAGE_BYTES`] bytes, and fails at the rest.
struct BriefText(String);

impl fmt::Write for BriefText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_MESSAGE_BYTES - self.0.len().min(MAX_MESSAGE_BYTES);
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        self.0
            .push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
        self.0.push('…');
        Err(fmt::Error)
    }
}

impl EvalError {
    /// A failure described by `message`, of which the first 2 KiB are kept, because it may quote what a user
    /// wrote. Pass what formats the message, such as `format_args!`, and not the finished text.
    #[must_use]
    #[cold]
    pub fn failed(message: impl fmt::Display) -> Self {
        Self::Failed(brief(message).into())
    }

    /// A failure that ends the whole expression upstream, described by `message`.
    #[cold]
    pub(crate) fn internal(message: impl fmt::Display) -> Self {
        Self::Internal(brief(message).into())
    }

    /// No overload of the function accepts such values.
    #[cold]
    pub(crate) fn no_such_overload() -> Self {
        Self::failed("no such overload")
    }

    /// No key or field of this name.
    #[cold]
    pub(crate) fn no_such_key(key: impl fmt::Display) -> Self {
        Self::failed(format_args!("no such key: {key}"))
    }

    /// Whether `&&`, `||` and comprehensions may absorb it.
    pub(crate) const fn is_absorbable(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Unknown(_))
    }
}

#[cfg(test)]
mod tests;
