//! Errors of expressions, when they are compiled and when they run.

/// An expression that cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct CompileError {
    /// What is wrong, in lower case, with what the author wrote in backticks.
    pub message: String,
    /// The line of the expression, from 1.
    pub line: usize,
    /// The character of the line, from 1.
    pub column: usize,
}

/// An expression that gave no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The expression itself failed: a key that is not there, an overflow. `&&`,
    /// `||` and the macros built on them may absorb it.
    #[error("{0}")]
    Failed(Box<str>),
    /// The expression looked at what nobody knows, named here. It may be absorbed, too:
    /// then the value is the same whatever that is.
    #[error("{0} is not known")]
    Unknown(&'static str),
    /// A function met what upstream's own cannot stand: nothing absorbs that.
    #[error("internal error: {0}")]
    Internal(Box<str>),
    /// This expression cost more than one may.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// All expressions together cost more than they may.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    OutOfBudget,
    /// The caller's deadline has passed.
    #[error("operation interrupted")]
    Interrupted,
}

impl CompileError {
    pub(crate) fn new(message: impl Into<String>, (line, column): (usize, usize)) -> Self {
        Self {
            message: message.into(),
            line,
            column,
        }
    }
}

impl EvalError {
    /// A failure that `message` describes.
    #[must_use]
    #[cold]
    pub fn failed(message: impl Into<Box<str>>) -> Self {
        Self::Failed(message.into())
    }

    /// Something that ends the expression upstream, which `message` describes.
    #[cold]
    pub(crate) fn internal(message: impl Into<Box<str>>) -> Self {
        Self::Internal(message.into())
    }

    /// No function of this name takes such values.
    #[cold]
    pub(crate) fn no_such_overload() -> Self {
        Self::failed("no such overload")
    }

    /// No key or field of this name.
    #[cold]
    pub(crate) fn no_such_key(key: impl std::fmt::Display) -> Self {
        Self::failed(format!("no such key: {key}"))
    }

    /// Whether `&&`, `||` and comprehensions may absorb it.
    pub(crate) const fn is_absorbable(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Unknown(_))
    }
}
