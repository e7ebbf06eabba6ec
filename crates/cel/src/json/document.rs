//! A JSON document: text and tape.

use std::borrow::Cow;
use std::{fmt, mem};

use super::scan::{most_tokens, scan};
use super::{JsonError, MAX_TOKENS, escape_bytes, escaped_len, restore_bytes};

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
    pub fn parse(text: impl Into<Cow<'t, str>>) -> Result<Self, JsonError> {
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
    pub fn parse_bytes(bytes: &'t [u8]) -> Result<Self, JsonError> {
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

// The tape: the tokens of a text.

/// Lists and maps with more entries than this have an index of their own, so
/// that a large one costs no more a look-up than a small one.
pub(crate) const WIDE: usize = 32;

/// What sort of value it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// `null`.
    Null = 0,
    /// `true` or `false`.
    Bool = 1,
    /// A number, as written.
    Number = 2,
    /// Text.
    String = 3,
    /// A list.
    Array = 4,
    /// A map.
    Object = 5,
}

/// The tokens of a text, in its order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tape {
    pub(crate) tokens: Vec<TapeToken>,
    /// The wide lists and maps by token, each with its range in `order`.
    pub(crate) wide: Vec<Wide>,
    /// Of a wide list its items, of a wide map its keys in the order of their text.
    pub(crate) order: Vec<u32>,
    /// How deep lists and maps nest.
    pub(crate) levels: usize,
}

/// One value or key. A map's token is followed by key, value, key, value, …;
/// a list's by its items.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TapeToken {
    /// Where its text begins and ends, quotes and brackets included.
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// The token after all that is within this one.
    pub(crate) next: u32,
    /// Kind, flags and number of entries; see [`TapeToken::new`].
    meta: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Wide {
    pub(crate) token: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

const KIND: u32 = 0b111;
const ESCAPED: u32 = 1 << 3;
const SUPERSEDED: u32 = 1 << 4;
const COUNT_SHIFT: u32 = 5;

// === impl TapeToken ===

impl TapeToken {
    pub(crate) const fn new(kind: Kind, start: u32, end: u32, next: u32) -> Self {
        Self {
            start,
            end,
            next,
            meta: kind as u32,
        }
    }

    pub(crate) const fn string(start: u32, end: u32, next: u32, escaped: bool) -> Self {
        let meta = Kind::String as u32 | if escaped { ESCAPED } else { 0 };
        Self {
            start,
            end,
            next,
            meta,
        }
    }

    pub(crate) const fn kind(self) -> Kind {
        match self.meta & KIND {
            0 => Kind::Null,
            1 => Kind::Bool,
            2 => Kind::Number,
            3 => Kind::String,
            4 => Kind::Array,
            _ => Kind::Object,
        }
    }

    /// Whether the string has a backslash.
    pub(crate) const fn escaped(self) -> bool {
        self.meta & ESCAPED != 0
    }

    /// Whether the string may be one of `length` bytes.
    pub(crate) const fn may_be(self, length: usize) -> bool {
        (self.end - self.start) as usize == length + 2 || self.escaped()
    }

    /// Whether a later entry of the same map has the same key.
    pub(crate) const fn superseded(self) -> bool {
        self.meta & SUPERSEDED != 0
    }

    pub(crate) const fn supersede(&mut self) {
        self.meta |= SUPERSEDED;
    }

    /// The number of items or of distinct keys.
    pub(crate) const fn count(self) -> usize {
        (self.meta >> COUNT_SHIFT) as usize
    }

    /// `count` is below [`super::MAX_TOKENS`], and so fits.
    pub(crate) const fn close(&mut self, end: u32, next: u32, count: u32) {
        self.end = end;
        self.next = next;
        self.meta = (self.meta & (KIND | ESCAPED | SUPERSEDED)) | (count << COUNT_SHIFT);
    }
}

// === impl Tape ===

impl Tape {
    /// How many bytes of memory so many tokens take at most, whatever they are.
    pub(crate) const fn bytes_of(tokens: usize) -> usize {
        // A token is in one list or map at most, whose place in `order` may have grown twofold.
        (mem::size_of::<TapeToken>() + 2 * mem::size_of::<u32>()) * tokens
    }

    /// How many bytes of memory it holds.
    pub(crate) fn bytes(&self) -> usize {
        mem::size_of::<TapeToken>() * self.tokens.capacity()
            + mem::size_of::<Wide>() * self.wide.capacity()
            + mem::size_of::<u32>() * self.order.capacity()
    }

    /// The index of the wide list or map at `token`.
    pub(crate) fn order_of(&self, token: u32) -> Option<&[u32]> {
        let position = self.wide.binary_search_by_key(&token, |wide| wide.token).ok()?;
        let wide = self.wide.get(position)?;
        self.order.get(wide.from as usize..wide.to as usize)
    }
}
