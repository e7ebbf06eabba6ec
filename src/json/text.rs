//! JSON strings: unescaping and escaping.

use std::borrow::Cow;

/// What a quoted string says. `escaped` is whether it has a backslash at all.
/// The scanner has checked its grammar.
pub(super) fn unescape(quoted: &str, escaped: bool) -> Cow<'_, str> {
    let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    if !escaped {
        return Cow::Borrowed(inner);
    }
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(position) = memchr::memchr(b'\\', rest.as_bytes()) {
        text.push_str(rest.get(..position).unwrap_or_default());
        let (character, length) = escape(rest.get(position..).unwrap_or_default());
        text.push(character);
        rest = rest.get(position + length..).unwrap_or_default();
    }
    text.push_str(rest);
    Cow::Owned(text)
}

/// The character that the escape at the start of `text` stands for, and its length.
fn escape(text: &str) -> (char, usize) {
    match text.as_bytes().get(1) {
        Some(b'b') => ('\u{8}', 2),
        Some(b'f') => ('\u{c}', 2),
        Some(b'n') => ('\n', 2),
        Some(b'r') => ('\r', 2),
        Some(b't') => ('\t', 2),
        Some(b'u') => unicode(text),
        Some(other) => (char::from(*other), 2),
        None => (char::REPLACEMENT_CHARACTER, 1),
    }
}

/// `\uXXXX`, or two of them that make a pair. As in Go, half a pair is U+FFFD
/// and takes nothing of what follows with it.
fn unicode(text: &str) -> (char, usize) {
    let high = unit(text, 0);
    if let Some(character) = char::from_u32(high) {
        return (character, 6);
    }
    let low = if text.get(6..8) == Some("\\u") {
        unit(text, 6)
    } else {
        0
    };
    if (0xd800..0xdc00).contains(&high) && (0xdc00..0xe000).contains(&low) {
        let point = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        return (char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER), 12);
    }
    (char::REPLACEMENT_CHARACTER, 6)
}

fn unit(text: &str, at: usize) -> u32 {
    let digits = text.get(at + 2..at + 6).unwrap_or_default();
    u32::from_str_radix(digits, 16).unwrap_or(0xfffd)
}

/// Writes `text` as a JSON string, quotes included.
pub fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut plain = 0;
    for (position, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(text.get(plain..position).unwrap_or_default());
        plain = position + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            _ => {
                out.push_str("\\u00");
                out.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
                out.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
            }
        }
    }
    out.push_str(text.get(plain..).unwrap_or_default());
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_escapes() {
        let cases = [
            (r#""a\"\\\/\b\f\n\r\tz""#, "a\"\\/\u{8}\u{c}\n\r\tz"),
            (r#""\u00e9\u20AC""#, "é€"),
            (r#""\ud83d\ude00!""#, "😀!"),
            (r#""\ud83dA""#, "\u{fffd}A"),
            (r#""\ud83d\u0041""#, "\u{fffd}A"),
            (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\u0000""#, "\0"),
        ];
        for (quoted, text) in cases {
            assert_eq!(unescape(quoted, true), text, "{quoted}");
        }
    }

    #[test]
    fn writes_what_it_reads() {
        for text in [
            "",
            "plain",
            "quote\" back\\slash",
            "\u{1}\u{1f}\n\r\t",
            "é€😀",
            "\u{7f}/",
        ] {
            let mut quoted = String::new();
            write_string(&mut quoted, text);
            assert_eq!(unescape(&quoted, true), text);
            assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), text);
        }
    }
}
