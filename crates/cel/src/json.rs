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
//! [`diff`] creates such patches.
//!
//! The text may be malicious: recursion is limited to `MAX_OPENED` levels, and memory by
//! the text's length and [`MAX_TOKENS`].

mod bytes;
mod diff;
mod document;
mod node;
pub mod patch;
mod replace;
mod same;
mod scan;
mod text;
mod tree;

pub use bytes::{escape_bytes, restore_bytes};
pub use diff::diff;
pub use document::{Document, Kind};
pub use node::{Entries, Items, Node};
pub use replace::replaced;
pub use same::{Children, Descendants};
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

#[cfg(test)]
mod tests;
