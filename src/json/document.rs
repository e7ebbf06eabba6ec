//! A JSON text beside its tape.

use std::borrow::Cow;
use std::fmt;

use super::Error;
use super::scan::scan;
use super::tape::Tape;

/// A JSON text and its tokens.
///
/// `'t` is the text's lifetime; a document made of an owned `String` is `'static`.
#[derive(Clone)]
pub struct Document<'t> {
    pub(super) text: Cow<'t, str>,
    pub(super) tape: Tape,
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
        Ok(Self { text, tape })
    }

    /// Like [`Document::parse`], of bytes that may not even be text.
    ///
    /// # Errors
    ///
    /// As [`Document::parse`], and [`Error::NotUtf8`].
    pub fn parse_bytes(bytes: &'t [u8]) -> Result<Self, Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(text),
            Err(error) => Err(Error::NotUtf8 {
                at: error.valid_up_to(),
            }),
        }
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
        }
    }
}

impl fmt::Debug for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
