//! Quotes text as Go does, which Kubernetes' messages use.

use std::fmt::{self, Write};

/// Quotes as Go's `%q`.
pub fn quote(into: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _infallible = write_quoted(into, &[text]);
}

/// `text` as a literal, between the quotes that people write where they will do.
pub(crate) fn text_literal(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '\'' | '\\');
    if text.chars().all(is_plain) {
        return format!("'{text}'");
    }
    let mut quoted = String::new();
    quote(&mut quoted, text);
    quoted
}

/// A text that is quoted as [`quote`] does, while it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quoted<'t>(pub(crate) &'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quoted(f, &[self.0])
    }
}

/// Quotes the parts of one text, as [`quote`] does the whole.
///
/// # Errors
/// Those of `out`.
pub fn write_quoted(out: &mut impl Write, parts: &[&str]) -> fmt::Result {
    out.write_char('"')?;
    parts.iter().try_for_each(|part| write_quoted_within(out, part))?;
    out.write_char('"')
}

/// What stands between the quotes.
pub(crate) fn write_quoted_within(out: &mut impl Write, part: &str) -> fmt::Result {
    if is_plain(part.as_bytes()) {
        return out.write_str(part);
    }
    part.chars()
        .try_for_each(|character| write_character(out, character))
}

/// Whether every character stands for itself; nearly every name has no other. Checked
/// eight at a time.
fn is_plain(text: &[u8]) -> bool {
    let (eights, rest) = text.as_chunks();
    let mut all = eights.iter().all(|eight| are_plain(u64::from_le_bytes(*eight)));
    all &= match text.last_chunk() {
        // Some of these were checked already.
        Some(last) if !rest.is_empty() => are_plain(u64::from_le_bytes(*last)),
        Some(_) => true,
        None => rest
            .iter()
            .all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')),
    };
    all
}

const fn are_plain(eight: u64) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    // That makes a space of a quote, and of no other byte one of what is up to a space.
    let controls = (eight ^ (ONES * 2)).wrapping_sub(ONES * 0x21);
    let backslashes = (eight ^ (ONES * 0x5c)).wrapping_sub(ONES);
    let deletes = (eight ^ (ONES * 0x7f)).wrapping_sub(ONES);
    (controls | backslashes | deletes | eight) & HIGHS == 0
}

fn write_character(out: &mut impl Write, character: char) -> fmt::Result {
    match character {
        '"' => out.write_str("\\\""),
        '\\' => out.write_str("\\\\"),
        '\x07' => out.write_str("\\a"),
        '\x08' => out.write_str("\\b"),
        '\x0c' => out.write_str("\\f"),
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        '\x0b' => out.write_str("\\v"),
        ' '..='~' => out.write_char(character),
        _ => write_escaped(out, character),
    }
}

fn write_escaped(out: &mut impl Write, character: char) -> fmt::Result {
    let code = u32::from(character);
    match code {
        0..=0x1f | 0x7f => write!(out, "\\x{code:02x}"),
        _ if is_printable(character) => out.write_char(character),
        0x80..=0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    }
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
            write_quoted(&mut joined, parts).unwrap();
            quote(&mut whole, &parts.concat());
            assert_eq!(joined, whole);
        }
    }

    #[test]
    fn characters_are_plain_wherever_they_stand() {
        for length in 1..20 {
            for (place, byte) in (0..length).flat_map(|place| (0..=255).map(move |byte| (place, byte))) {
                let mut text = b"a ~z!#[]".repeat(3);
                text.truncate(length);
                text[place] = byte;
                let expected = matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
                assert_eq!(is_plain(&text), expected, "{text:?}");
            }
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
