//! Text and bytes, borrowed or shared.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

/// Text.
#[derive(Debug, Clone)]
pub enum Text<'a> {
    /// Of somebody else.
    Borrowed(&'a str),
    /// Its own.
    Shared(Arc<str>),
}

/// Bytes.
#[derive(Debug, Clone)]
pub enum Bytes<'a> {
    /// Of somebody else.
    Borrowed(&'a [u8]),
    /// Their own.
    Shared(Arc<[u8]>),
}

impl<'a> Text<'a> {
    /// How many bytes a text of its own takes beside what it says.
    pub(crate) const BYTES: usize = 32;

    /// Whether it is its own and of nobody else.
    pub(crate) fn is_unshared(&self) -> bool {
        matches!(self, Self::Shared(text) if Arc::strong_count(text) == 1)
    }

    /// The part of the text that `part` finds in it, borrowed if it can be.
    pub(crate) fn part(&self, part: impl for<'t> FnOnce(&'t str) -> &'t str) -> Text<'a> {
        match self {
            Self::Borrowed(text) => Text::Borrowed(part(text)),
            Self::Shared(text) => Text::Shared(part(text).into()),
        }
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl<'a> From<Cow<'a, str>> for Text<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        match text {
            Cow::Borrowed(text) => Self::Borrowed(text),
            Cow::Owned(text) => Self::Shared(text.into()),
        }
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Bytes<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Shared(bytes.into())
    }
}
