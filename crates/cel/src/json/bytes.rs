//! Bytes that are not UTF-8, represented in a UTF-8 text.
//!
//! An API server passes on raw objects (`RawExtension`) byte by byte, and Go's decoder
//! reads each byte that is not UTF-8 as U+FFFD. Such a byte `0xNN` is represented here by
//! the escape `\udcNN`, half of a surrogate pair, which also reads as U+FFFD. So the text
//! is valid JSON with the values that Go reads, and the original bytes can be restored.

use std::borrow::Cow;

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
mod tests {
    use proptest::prelude::*;

    use crate::json::Document;

    /// As Go's decoder reads a string: each byte that is no UTF-8 as U+FFFD.
    fn go(bytes: &[u8]) -> String {
        let mut text = String::new();
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
        }
        text
    }

    #[test]
    fn each_byte_reads_as_one_replacement_and_comes_back() {
        let cases: [(&[u8], &str); 7] = [
            (b"\"a\xffb\"", "a\u{fffd}b"),
            (b"\"\xe2\x82\"", "\u{fffd}\u{fffd}"),
            (b"\"\\\\\xff\"", "\\\u{fffd}"),
            (b"\"\\ud83d\xff\"", "\u{fffd}\u{fffd}"),
            (b"\"\\ud83d\\udc80\xff\"", "\u{1f480}\u{fffd}"),
            (b"\"\\\\ud83d\xff\"", "\\ud83d\u{fffd}"),
            (b"\"\xc3\xa9\xff\"", "é\u{fffd}"),
        ];
        for (bytes, expected) in cases {
            let document = Document::parse_bytes(bytes).unwrap();
            assert_eq!(document.root().as_str().unwrap(), expected, "{bytes:?}");
            let restored = document.restored(document.text().to_owned());
            if !bytes.starts_with(b"\"\\ud83d\xff") {
                assert_eq!(restored, bytes);
            }
        }
    }

    #[test]
    fn beyond_strings_and_after_a_backslash_it_is_no_json() {
        for bytes in [
            &b"{\"a\":\xff}"[..],
            b"\xff",
            b"\"\\\xff\"",
            b"\"a\"\xff",
            b"[1,\xff]",
        ] {
            assert!(Document::parse_bytes(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_in_a_string_read_as_go_reads_them(
            bytes in prop::collection::vec(prop_oneof![Just(0xff_u8), Just(0x80), Just(0xe2), 0x20_u8..0x22, 0x23_u8..0x5c, 0x5d_u8..], 0..40)
        ) {
            let quoted = [b"\"", bytes.as_slice(), b"\""].concat();
            let document = Document::parse_bytes(&quoted).unwrap();
            prop_assert_eq!(document.root().as_str().unwrap(), go(&bytes));
            prop_assert_eq!(document.restored(document.text().to_owned()), quoted);
        }
    }
}
