//! The error for a text that is not a valid document.

/// What is wrong with a text, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// From 1.
    pub(crate) line: u32,
    /// In characters, from 1.
    pub(crate) column: usize,
    pub(crate) reason: Reason,
    message: String,
}

/// What sort of fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The text breaks the rules of its format.
    Syntax,
    /// There is more after the end of a document.
    Trailing,
    /// The text follows them, and says what cannot be: a key twice, say.
    Content,
}

// === impl Unreadable ===

impl Unreadable {
    /// `message` about what stands at `line` and `column`, both counted from 0.
    pub(crate) fn new(line: u32, column: usize, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            line: line.saturating_add(1),
            column: column + 1,
            reason,
            message: message.into(),
        }
    }

    /// The same where `lines` more stand above.
    pub(crate) fn moved_down(self, lines: u32) -> Self {
        Self {
            line: self.line.saturating_add(lines),
            ..self
        }
    }

    /// The same place: the document has ended before it.
    pub(crate) fn trailing(self) -> Self {
        Self {
            reason: Reason::Trailing,
            message: "text after the end of the document; begin another document with a line `---`"
                .to_owned(),
            ..self
        }
    }

    /// The message, with the column.
    pub(crate) fn message(&self) -> String {
        format!("{} (column {})", self.message, self.column)
    }
}
