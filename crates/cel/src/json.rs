//! JSON text, indexed in place.
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
mod document;
mod node;
pub mod patch;
mod replace;
mod scan;
mod text;
mod tree;

use std::borrow::Cow;

pub use diff::diff;
pub use document::{Document, Kind};
pub use node::{Children, Descendants, Node, NodeEntries, NodeItems};
pub use replace::replaced;
pub use text::{ObjectWriter, StringWriter, plain_end, write_list, write_string};
pub use tree::{Tree, TreeList, TreeMap};

/// The longest text that is read, in bytes.
pub const MAX_TEXT: usize = 1 << 30;

/// How deep lists and maps may nest: an object as deep as Go's decoder takes one, in the
/// two maps of a review.
pub const MAX_DEPTH: usize = 10_000 + 2;

/// How deep a patch opens a value, and how deep [`diff()`] goes: these recurse.
pub(crate) const MAX_OPENED: usize = 256;

/// The most values and keys that one text may have. A token takes 16 bytes, or
/// 20 in lists and maps of over 32 entries; an object of the API server's 3 MiB
/// has at most half of these.
pub const MAX_TOKENS: usize = 1 << 22;

/// Why a text is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Something else was expected at this byte.
    #[error("invalid JSON at byte {at}: expected {expected}")]
    Unexpected {
        /// The offset in bytes.
        at: usize,
        /// What could have stood there.
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

/// `bytes` as text; borrowed where they are text already.
///
/// Beyond strings, and after a backslash, what comes out is no JSON: there the bytes
/// were none.
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

/// No fewer bytes than [`escape_bytes`] makes.
pub(crate) fn escaped_len(bytes: &[u8]) -> usize {
    let invalid = bytes.utf8_chunks().map(|chunk| chunk.invalid().len());
    bytes.len() + (ESCAPE_BYTES - 1) * invalid.sum::<usize>()
}

fn escape_byte(text: &mut String, byte: u8) {
    if is_open_escape(text) {
        // Only a character that ends no escape keeps this from being read as one.
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

/// What `\uXXXX` takes.
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

#[cfg(test)]
mod tests;
