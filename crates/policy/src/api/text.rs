//! Text as Go's `encoding/json` reads it, and as errors repeat it.

use std::borrow::Cow;

use crate::engine::text::truncate;

/// Longest part of a foreign kind or version that an error repeats.
const EXCERPT_BYTES: usize = 64;

/// As much of a foreign kind or version as an error repeats.
pub(crate) fn excerpt(text: &str) -> String {
    truncate(text, EXCERPT_BYTES).to_owned()
}

/// Every byte outside valid UTF-8 as one U+FFFD, as Go's `utf8.DecodeRune` counts
/// them: a review must not fail over text that a user chose.
pub(crate) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_text_is_borrowed_and_each_bad_byte_replaced() {
        assert!(matches!(utf8("é".as_bytes()), Cow::Borrowed("é")));
        assert_eq!(utf8(b"a\xff\xfe"), "a\u{fffd}\u{fffd}");
        assert_eq!(utf8(b"\xe2\x82x"), "\u{fffd}\u{fffd}x");
    }
}
