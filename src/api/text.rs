//! Text as Go's `encoding/json` reads it.

use std::borrow::Cow;

/// `text`, or as much of it as fits `limit` bytes without cutting a character.
pub(super) fn cut(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or_default()
}

/// JSON bytes as text in which serde_json finds no fault that Go would forgive.
///
/// Go replaces each byte that is not UTF-8, and each `\uD800`–`\uDFFF` escape
/// that is no half of a pair, by U+FFFD; serde_json refuses both. A review must
/// not fail over text that a user chose.
pub(super) fn forgive(bytes: &[u8]) -> Cow<'_, str> {
    let text = utf8(bytes);
    match lone_surrogates(text.as_bytes()) {
        places if places.is_empty() => text,
        places => Cow::Owned(replace_escapes(text.into_owned(), &places)),
    }
}

/// Every byte outside valid UTF-8 as one U+FFFD, as Go's `utf8.DecodeRune` counts them.
fn utf8(bytes: &[u8]) -> Cow<'_, str> {
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

/// Where `\uXXXX` escapes stand that are half a surrogate pair without the other half.
fn lone_surrogates(bytes: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut at = 0;
    while let Some(offset) = memchr::memchr(b'\\', bytes.get(at..).unwrap_or_default()) {
        at += offset;
        match escape(bytes, at) {
            Some(0xD800..=0xDBFF) if matches!(escape(bytes, at + 6), Some(0xDC00..=0xDFFF)) => at += 12,
            Some(0xD800..=0xDFFF) => {
                places.push(at);
                at += 6;
            }
            // Any other escape: past the backslash and what it escapes.
            _ => at += 2,
        }
    }
    places
}

/// The code unit of a `\uXXXX` escape at `at`.
fn escape(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let digits = str::from_utf8(digits)
        .ok()
        .filter(|digits| !digits.starts_with('+'))?;
    u16::from_str_radix(digits, 16).ok()
}

/// `text` with the escapes at `places` made `\ufffd`.
fn replace_escapes(text: String, places: &[usize]) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut from = 0;
    for &at in places {
        replaced.push_str(text.get(from..at).unwrap_or_default());
        replaced.push_str("\\ufffd");
        from = at + 6;
    }
    replaced.push_str(text.get(from..).unwrap_or_default());
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_text_is_borrowed() {
        for text in ["", r#"{"a":"é\ud83d\ude00\\ud800"}"#, r"\ud83d\uDE00"] {
            assert!(
                matches!(forgive(text.as_bytes()), Cow::Borrowed(same) if same == text),
                "{text}"
            );
        }
    }

    #[test]
    fn each_bad_byte_and_each_lone_half_becomes_a_replacement_character() {
        let cases: &[(&[u8], &str)] = &[
            (b"\"\xff\xfe\"", "\"\u{fffd}\u{fffd}\""),
            (b"\"\xe2\x82x\"", "\"\u{fffd}\u{fffd}x\""),
            (br#""\ud800""#, r#""\ufffd""#),
            (br#""\ud800\ud800\udc00\udc00""#, r#""\ufffd\ud800\udc00\ufffd""#),
            (br#""\\\udfff\u12""#, r#""\\\ufffd\u12""#),
        ];
        for (bytes, expected) in cases {
            assert_eq!(forgive(bytes), *expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn cuts_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
        assert_eq!(cut("", 3), "");
    }
}
