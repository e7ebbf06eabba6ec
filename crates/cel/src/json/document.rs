//! A JSON document: text and tape.

use std::borrow::Cow;
use std::fmt;

use super::bytes::{escape_bytes, escaped_len, restore_bytes};
use super::scan::{most_tokens, scan};
use super::tape::Tape;
use super::{Error, MAX_TOKENS};

/// A JSON text and its tokens.
///
/// `'t` is the text's lifetime; a document made of an owned `String` is `'static`.
#[derive(Clone)]
pub struct Document<'t> {
    pub(crate) text: Cow<'t, str>,
    pub(crate) tape: Tape,
    /// Whether the text stands for bytes that are no UTF-8.
    has_bytes: bool,
}

impl<'t> Document<'t> {
    /// Reads one JSON value and nothing after it but white space.
    ///
    /// As Go's decoder does, the last of several equal keys counts, and half a
    /// surrogate pair reads as U+FFFD.
    ///
    /// # Errors
    ///
    /// The first place where the text is not JSON, or the bound it breaks.
    pub fn parse(text: impl Into<Cow<'t, str>>) -> Result<Self, Error> {
        let text = text.into();
        let tape = scan(&text)?;
        let has_bytes = false;
        Ok(Self {
            text,
            tape,
            has_bytes,
        })
    }

    /// Like [`Document::parse`], of bytes that may not be text: as in Go, each byte
    /// within a string that is no UTF-8 reads as U+FFFD.
    ///
    /// # Errors
    ///
    /// As [`Document::parse`].
    pub fn parse_bytes(bytes: &'t [u8]) -> Result<Self, Error> {
        let text = escape_bytes(bytes);
        let has_bytes = matches!(text, Cow::Owned(_));
        let document = Self::parse(text)?;
        Ok(Self {
            has_bytes,
            ..document
        })
    }

    /// The bytes of `text`, which consists of parts of this document, as they were read.
    #[must_use]
    pub fn restored(&self, text: String) -> Vec<u8> {
        if self.has_bytes {
            restore_bytes(&text)
        } else {
            text.into_bytes()
        }
    }

    /// How deep its lists and maps nest; 0 for a scalar.
    #[must_use]
    pub const fn levels(&self) -> usize {
        self.tape.levels
    }

    /// No fewer bytes of memory than the index of `text` takes, which need not be JSON.
    #[must_use]
    pub fn most_index_bytes(text: &[u8]) -> usize {
        Tape::bytes_of(most_tokens(text).min(MAX_TOKENS))
    }

    /// No fewer bytes of memory than a document of `bytes` takes with a text of its own.
    #[must_use]
    pub fn most_bytes(bytes: &[u8]) -> usize {
        escaped_len(bytes) + Self::most_index_bytes(bytes)
    }

    /// How many bytes of memory it holds: its index, and its text if that is its own.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let text = match &self.text {
            Cow::Borrowed(_) => 0,
            Cow::Owned(text) => text.capacity(),
        };
        text + self.tape.bytes()
    }

    /// The whole text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same document with a text of its own.
    #[must_use]
    pub fn into_owned(self) -> Document<'static> {
        Document {
            text: Cow::Owned(self.text.into_owned()),
            tape: self.tape,
            has_bytes: self.has_bytes,
        }
    }
}

impl fmt::Debug for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
