//! Errors in patterns, with Go's messages.

/// Why a pattern does not compile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {code}: `{part}`")]
pub struct Error {
    /// What is wrong.
    pub code: Code,
    /// The part of the pattern that is.
    pub part: String,
}

/// What can be wrong with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Code {
    /// No such range or class of characters.
    #[error("invalid character class range")]
    CharRange,
    /// No such escape.
    #[error("invalid escape sequence")]
    Escape,
    /// A group without a name, or of a bad one.
    #[error("invalid named capture")]
    NamedCapture,
    /// No such flag or group.
    #[error("invalid or unsupported Perl syntax")]
    PerlSyntax,
    /// A repetition of a repetition, without a group.
    #[error("invalid nested repetition operator")]
    NestedRepetition,
    /// More than 1,000, or turned round.
    #[error("invalid repeat count")]
    RepeatCount,
    /// A class without an end.
    #[error("missing closing ]")]
    MissingBracket,
    /// A group without an end.
    #[error("missing closing )")]
    MissingParenthesis,
    /// A repetition of nothing.
    #[error("missing argument to repetition operator")]
    MissingArgument,
    /// A backslash at the end.
    #[error("trailing backslash at end of expression")]
    TrailingBackslash,
    /// The end of no group.
    #[error("unexpected )")]
    UnexpectedParenthesis,
    /// Nested more than 1,000 deep.
    #[error("expression nests too deeply")]
    TooDeep,
    /// More than an automaton may have.
    #[error("expression too large")]
    TooLarge,
}

/// Why compiling ended without a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The pattern is wrong.
    Refused(Error),
    /// The caller had enough of it.
    Stopped,
}

// === impl Code ===

impl Code {
    /// This is wrong with `part`.
    pub(crate) fn of(self, part: &str) -> Fault {
        Fault::Refused(Error {
            code: self,
            part: part.into(),
        })
    }
}
