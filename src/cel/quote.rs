//! Quotes text as Go does, which Kubernetes' messages use.

use std::fmt::Write;

/// Quotes as Go's `%q`.
pub fn quote(into: &mut String, text: &str) {
    quote_joined(into, &[text]);
}

/// Quotes the parts of one text, as [`quote`] does the whole.
pub fn quote_joined(into: &mut String, parts: &[&str]) {
    into.push('"');
    for part in parts {
        if part.bytes().all(is_plain) {
            into.push_str(part);
        } else {
            part.chars().for_each(|character| push_quoted(into, character));
        }
    }
    into.push('"');
}

/// Whether a character stands for itself; nearly every name has no other.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

fn push_quoted(into: &mut String, character: char) {
    match character {
        '"' => into.push_str("\\\""),
        '\\' => into.push_str("\\\\"),
        '\x07' => into.push_str("\\a"),
        '\x08' => into.push_str("\\b"),
        '\x0c' => into.push_str("\\f"),
        '\n' => into.push_str("\\n"),
        '\r' => into.push_str("\\r"),
        '\t' => into.push_str("\\t"),
        '\x0b' => into.push_str("\\v"),
        ' '..='~' => into.push(character),
        _ => push_escaped(into, character),
    }
}

fn push_escaped(into: &mut String, character: char) {
    let code = u32::from(character);
    // Writing to a String cannot fail.
    let _ = match code {
        0..=0x1f | 0x7f => write!(into, "\\x{code:02x}"),
        _ if is_printable(character) => into.write_char(character),
        0x80..=0xffff => write!(into, "\\u{code:04x}"),
        _ => write!(into, "\\U{code:08x}"),
    };
}

/// Whether Rust would print it as it is after another character, where unlike
/// at the start of a text it leaves combining marks alone, as Go does.
fn is_printable(character: char) -> bool {
    let mut text = String::with_capacity(8);
    text.push('a');
    text.push(character);
    text.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_quoted_as_the_text_that_they_are() {
        for parts in [
            &["edit", "/", "team-1"][..],
            &["a\"", "/", "zo", "\u{308}\n"],
            &[""],
            &[],
        ] {
            let (mut joined, mut whole) = (String::new(), String::new());
            quote_joined(&mut joined, parts);
            quote(&mut whole, &parts.concat());
            assert_eq!(joined, whole);
        }
    }

    #[test]
    fn quotes_as_go_does() {
        for (text, quoted) in [
            ("alice", r#""alice""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("a\nb\t\x00\x7f", r#""a\nb\t\x00\x7f""#),
            ("zoë 日本", "\"zoë 日本\""),
            ("e\u{301}", "\"e\u{301}\""),
            ("\u{a0}\u{200b}\u{e0001}", r#""\u00a0\u200b\U000e0001""#),
        ] {
            let mut actual = String::new();
            quote(&mut actual, text);
            assert_eq!(actual, quoted);
        }
    }
}
