//! JSON text, indexed in place: a [`Document`] is a text and its tape.
//!
//! One pass over the text writes a tape of tokens; nothing is copied and no number is
//! converted. Reading one field of an object costs only the scan and that field:
//!
//! ```text
//! {"kind":"Pod","spec":{"nodeName":"a"}}      text, borrowed or owned
//!  |  |     |     |     |   |        |
//!  v  v     v     v     v   v        v
//! [obj key string key  obj key  string]       tokens: where, what, what follows
//!         ^
//!         Node: a handle of two words, Copy
//! ```
//!
//! A changed value keeps the text of everything that did not change ([`Tree`]): numbers
//! beyond 2^53, unknown fields and the spelling of escapes. It takes memory for its changes
//! alone. [`patch`] applies RFC 6902,
//! [`diff()`] creates such patches.
//!
//! The text may be malicious: recursion is limited to `MAX_OPENED` levels, and memory by
//! the text's length and [`MAX_TOKENS`].

mod diff;
mod node;
pub mod patch;
mod replace;
mod scan;
mod text;
mod tree;

use std::borrow::Cow;
use std::{fmt, mem};

pub use diff::diff;
pub use node::{Children, Descendants, Node, NodeEntries, NodeItems};
pub use replace::replaced;
pub use text::{ObjectWriter, StringWriter, find_escape, write_list, write_string};
pub use tree::{Tree, TreeList, TreeMap};

use scan::{most_tokens, scan};

/// The longest text that is read, in bytes.
pub const MAX_TEXT: usize = 1 << 30;

/// How deep lists and maps may nest: as deep as Go's decoder accepts an object, plus the two maps of a review
/// around it.
pub const MAX_DEPTH: usize = 10_000 + 2;

/// How deep a patch opens a value, and how deep [`diff()`] goes: these recurse.
pub(crate) const MAX_OPENED: usize = 256;

/// The most values and keys that one text may have. A token takes 16 bytes, or
/// 20 in lists and maps of over 32 entries; an object of the API server's 3 MiB
/// has at most half of these.
pub const MAX_TOKENS: usize = 1 << 22;

/// Why a text cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Something else was expected at this byte.
    #[error("invalid JSON at byte {at}: expected {expected}")]
    Unexpected {
        /// The offset in bytes.
        at: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// Lists and maps nest deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels at byte {at}")]
    TooDeep {
        /// The offset in bytes.
        at: usize,
    },
    /// More values and keys than [`MAX_TOKENS`].
    #[error("more than {MAX_TOKENS} values")]
    TooMany,
    /// More text than [`MAX_TEXT`].
    #[error("more than {MAX_TEXT} bytes")]
    TooLong,
}

// Bytes that are not UTF-8, represented in a UTF-8 text.
//
// An API server passes on raw objects (`RawExtension`) byte by byte, and Go's decoder
// reads each byte that is not UTF-8 as U+FFFD. Such a byte `0xNN` is represented here by
// the escape `\udcNN`, half of a surrogate pair, which also reads as U+FFFD. So the text
// is valid JSON with the values that Go reads, and the original bytes can be restored.

/// `bytes` as text; borrowed if they are UTF-8 already.
///
/// Outside strings, and after a backslash, the result is not valid JSON: there, the bytes were not either.
#[must_use]
pub fn escape_bytes(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(escaped_len(bytes));
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            escape_byte(&mut text, *byte);
        }
    }
    Cow::Owned(text)
}

/// An upper bound for the length of what [`escape_bytes`] returns.
pub(crate) fn escaped_len(bytes: &[u8]) -> usize {
    let invalid = bytes.utf8_chunks().map(|chunk| chunk.invalid().len());
    bytes.len() + (ESCAPE_BYTES - 1) * invalid.sum::<usize>()
}

fn escape_byte(text: &mut String, byte: u8) {
    if is_open_escape(text) {
        // The backslash before would make `\udcNN` an escaped backslash and plain text. This character, which no
        // escape has, keeps the text invalid.
        text.push(char::REPLACEMENT_CHARACTER);
        return;
    }
    if ends_with_high_half(text) {
        // The half before must not make a pair with this one: Go reads two U+FFFD.
        text.truncate(text.len() - ESCAPE_BYTES);
        text.push_str("\\ufffd");
    }
    text.push_str("\\udc");
    for digit in [byte >> 4, byte & 15] {
        text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
    }
}

/// The text with its bytes as they were before [`escape_bytes`].
#[must_use]
pub fn restore_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some(position) = memchr::memchr(b'\\', rest) {
        let (plain, escape) = rest.split_at(position);
        bytes.extend_from_slice(plain);
        let length = match (half(escape), escape.get(ESCAPE_BYTES..).and_then(half)) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 2 * ESCAPE_BYTES,
            (Some(unit @ 0xdc80..=0xdcff), _) => {
                bytes.extend(unit.to_be_bytes().last());
                rest = escape.split_at(ESCAPE_BYTES).1;
                continue;
            }
            (Some(_), _) => ESCAPE_BYTES,
            (None, _) => 2,
        };
        let (kept, after) = escape.split_at(length.min(escape.len()));
        bytes.extend_from_slice(kept);
        rest = after;
    }
    bytes.extend_from_slice(rest);
    bytes
}

/// The length of `\uXXXX`.
const ESCAPE_BYTES: usize = 6;

/// The code unit of a `\uXXXX` at the beginning.
fn half(escape: &[u8]) -> Option<u16> {
    let digits = escape.strip_prefix(b"\\u")?.get(..4)?;
    let digits = std::str::from_utf8(digits).ok()?;
    let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| is_hexadecimal)
}

/// Whether the text ends in a backslash that is not itself escaped.
fn is_open_escape(text: &str) -> bool {
    let backslashes = text.bytes().rev().take_while(|byte| *byte == b'\\').count();
    backslashes % 2 == 1
}

/// Whether the text ends in an escape that is the first half of a surrogate pair.
fn ends_with_high_half(text: &str) -> bool {
    let Some((before, escape)) = text
        .len()
        .checked_sub(ESCAPE_BYTES)
        .and_then(|at| text.split_at_checked(at))
    else {
        return false;
    };
    matches!(half(escape.as_bytes()), Some(0xd800..0xdc00)) && !is_open_escape(before)
}

/// A JSON text and its tokens.
///
/// `'t` is the text's lifetime; a document made of an owned `String` is `'static`.
#[derive(Clone)]
pub struct Document<'t> {
    pub(crate) text: Cow<'t, str>,
    pub(crate) tape: Tape,
    /// Whether the text has escapes for bytes that were not UTF-8.
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

    /// Like [`Document::parse`], for bytes that may not be text: as in Go, each byte within a string that is not
    /// UTF-8 reads as U+FFFD.
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

    /// An upper bound for the memory of the index of `text`, in bytes. `text` need not be JSON.
    #[must_use]
    pub fn most_index_bytes(text: &[u8]) -> usize {
        Tape::bytes_of(most_tokens(text).min(MAX_TOKENS))
    }

    /// An upper bound for the memory of a document of `bytes` that owns its text, in bytes.
    #[must_use]
    pub fn most_bytes(bytes: &[u8]) -> usize {
        escaped_len(bytes) + Self::most_index_bytes(bytes)
    }

    /// How many bytes of memory it holds: its index, and its text if it owns that.
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

    /// The same document, which owns its text.
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

/// Lists and maps with more entries than this have an index of their own, so that a look-up in a large one costs
/// no more than in a small one.
pub(crate) const WIDE: usize = 32;

/// The kind of a value.
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
    /// The items of wide lists, and the keys of wide maps sorted by their text.
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

    /// Whether the string may have `length` bytes once it is unescaped.
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

    /// `count` is below [`MAX_TOKENS`], and so fits.
    pub(crate) const fn close(&mut self, end: u32, next: u32, count: u32) {
        self.end = end;
        self.next = next;
        self.meta = (self.meta & (KIND | ESCAPED | SUPERSEDED)) | (count << COUNT_SHIFT);
    }
}

// === impl Tape ===

impl Tape {
    /// The maximum memory of this many tokens in bytes, for tokens of any kind.
    pub(crate) const fn bytes_of(tokens: usize) -> usize {
        // A token has one place in `order` at most, whose capacity may be twice its length.
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

#[cfg(test)]
mod tests;
