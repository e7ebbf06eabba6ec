//! Unescapes and escapes JSON strings.

use std::borrow::Cow;
use std::fmt;

use wide::u8x16;

/// The string of a quoted JSON string, whose syntax the scanner has checked. `escaped` tells
/// whether it contains a backslash.
pub(crate) fn unescape(quoted: &str, escaped: bool) -> Cow<'_, str> {
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

/// The character of the escape at the start of `text`, and the length of the escape.
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

/// Reads `\uXXXX`, or two of these that are a surrogate pair. As in Go, an unpaired surrogate
/// becomes U+FFFD, and nothing after it is consumed.
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

/// Writes `text` as a JSON string with its quotes.
pub fn write_string(out: &mut String, text: &str) {
    out.push('"');
    write_escaped(out, text);
    out.push('"');
}

/// Writes parts of a JSON string, without its quotes.
#[derive(Debug)]
pub struct StringWriter<'o>(pub &'o mut String);

impl fmt::Write for StringWriter<'_> {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_escaped(self.0, text);
        Ok(())
    }

    #[inline]
    fn write_char(&mut self, character: char) -> fmt::Result {
        match u8::try_from(character) {
            Ok(byte) if !needs_no_escape(byte) => escape_byte(self.0, byte),
            _ => self.0.push(character),
        }
        Ok(())
    }
}

fn write_escaped(out: &mut String, text: &str) {
    let plain = find_escape(text.as_bytes(), 0);
    if plain == text.len() {
        // Nearly every string takes this path.
        out.push_str(text);
    } else {
        write_with_escapes(out, text, plain);
    }
}

/// Writes `text`, whose first `plain` bytes need no escape, while the next one does.
#[inline(never)]
fn write_with_escapes(out: &mut String, mut text: &str, mut plain: usize) {
    while let Some((before, other)) = text.split_at_checked(plain) {
        out.push_str(before);
        let mut others = other.chars();
        // A character that needs an escape is one byte.
        let Some(byte) = others.next().and_then(|other| u8::try_from(other).ok()) else {
            return;
        };
        escape_byte(out, byte);
        text = others.as_str();
        plain = find_escape(text.as_bytes(), 0);
    }
}

#[inline]
fn escape_byte(out: &mut String, byte: u8) {
    out.push('\\');
    match byte {
        b'"' | b'\\' => out.push(char::from(byte)),
        b'\n' => out.push('n'),
        b'\r' => out.push('r'),
        b'\t' => out.push('t'),
        _ => {
            out.push_str("u00");
            out.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
            out.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        }
    }
}

/// Whether both are equal. Keys are short: most fit into two words, which may overlap.
#[inline(always)]
pub(crate) fn is_same(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    match left.len() {
        0..4 => left.iter().eq(right),
        4..8 => ends(left).map(u32::from_le_bytes) == ends(right).map(u32::from_le_bytes),
        8..=16 => ends(left).map(u64::from_le_bytes) == ends(right).map(u64::from_le_bytes),
        _ => left == right,
    }
}

/// The first and the last `COUNT` bytes.
#[inline(always)]
fn ends<const COUNT: usize>(text: &[u8]) -> [[u8; COUNT]; 2] {
    const fn of<const COUNT: usize>(bytes: Option<&[u8; COUNT]>) -> [u8; COUNT] {
        match bytes {
            Some(bytes) => *bytes,
            None => [0; COUNT],
        }
    }
    [of(text.first_chunk()), of(text.last_chunk())]
}

/// Whether a byte needs no escape in a JSON string.
const fn needs_no_escape(byte: u8) -> bool {
    byte >= b' ' && byte != b'"' && byte != b'\\'
}

/// The position of the next quote, backslash or control character in `bytes` from `begin` on, or
/// their length. Tests sixteen bytes at a time.
#[inline(always)]
pub fn find_escape(bytes: &[u8], begin: usize) -> usize {
    // Most strings end within these sixteen bytes.
    match bytes.get(begin..).and_then(|rest| rest.first_chunk()) {
        Some(sixteen) => match not_plain_of_sixteen(sixteen) {
            0 => plain_end_of_long(bytes, begin),
            others => begin + others.trailing_zeros() as usize,
        },
        None => plain_end_near(bytes, begin, begin),
    }
}

/// Like [`find_escape`], if the first sixteen bytes need no escape.
#[inline(never)]
fn plain_end_of_long(bytes: &[u8], begin: usize) -> usize {
    let mut at = begin + 16;
    while let Some(sixteen) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let others = not_plain_of_sixteen(sixteen);
        if others != 0 {
            return at + others.trailing_zeros() as usize;
        }
        at += 16;
    }
    plain_end_near(bytes, begin, at)
}

/// Sets a bit for each byte that needs an escape; the lowest bit is that of the first byte.
#[inline(always)]
fn not_plain_of_sixteen(bytes: &[u8; 16]) -> u32 {
    let bytes = u8x16::new(*bytes);
    let others = bytes.simd_eq(u8x16::splat(b'"'))
        | bytes.simd_eq(u8x16::splat(b'\\'))
        // Bytes of at most 0x1f.
        | bytes.min(u8x16::splat(0x1f)).simd_eq(bytes);
    others.to_bitmask()
}

/// Like [`find_escape`], if fewer than sixteen bytes are left from `at` on, and those before need no
/// escape.
#[inline(never)]
fn plain_end_near(bytes: &[u8], begin: usize, mut at: usize) -> usize {
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let others = not_plain(u64::from_le_bytes(*eight));
        if others != 0 {
            return at + first_marked(others);
        }
        at += 8;
    }
    plain_end_of_few(bytes, begin, at)
}

/// Like [`find_escape`] for the last bytes, which are fewer than eight.
fn plain_end_of_few(bytes: &[u8], begin: usize, at: usize) -> usize {
    if at == bytes.len() {
        return at;
    }
    match bytes.get(begin..).and_then(|from| from.last_chunk()) {
        // The last eight bytes, of which those before `at` need no escape.
        Some(last) => match not_plain(u64::from_le_bytes(*last)) {
            0 => bytes.len(),
            others => bytes.len() - 8 + first_marked(others),
        },
        None => {
            let rest = bytes.get(at..).unwrap_or_default();
            at + rest.iter().take_while(|byte| needs_no_escape(**byte)).count()
        }
    }
}

/// Sets the highest bit of each byte that needs an escape, in eight bytes of which the first is the
/// lowest. Only the lowest of these bits is reliable: a borrow may set those above it.
const fn not_plain(eight: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    // Flipping this bit turns a quote into a space, and no other byte above a space into one of at
    // most a space.
    let controls = (eight ^ (ONES * 2)).wrapping_sub(ONES * 0x21);
    let backslashes = (eight ^ (ONES * 0x5c)).wrapping_sub(ONES);
    (controls | backslashes) & !eight & HIGHS
}

const fn first_marked(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

// Writes JSON objects field by field, in the order given.

/// Writes an object.
///
/// Numbers and values that are JSON already are written as given; strings are escaped. The caller
/// must write each key only once.
#[derive(Debug)]
pub struct ObjectWriter<'o> {
    out: &'o mut String,
    is_empty: bool,
}

impl ObjectWriter<'_> {
    /// Appends an object whose fields `fields` writes.
    pub fn write(out: &mut String, fields: impl FnOnce(&mut ObjectWriter<'_>)) {
        out.push('{');
        fields(&mut ObjectWriter {
            out: &mut *out,
            is_empty: true,
        });
        out.push('}');
    }

    /// Writes a key. Its value must be appended to the returned string.
    pub fn key(&mut self, key: &str) -> &mut String {
        if !self.is_empty {
            self.out.push(',');
        }
        self.is_empty = false;
        write_string(self.out, key);
        self.out.push(':');
        self.out
    }

    /// Writes a string.
    pub fn text(&mut self, key: &str, text: &str) {
        write_string(self.key(key), text);
    }

    /// Writes a string unless it is empty, like Go's `omitempty`.
    pub fn text_if_any(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.text(key, text);
        }
    }

    /// Writes a list of strings.
    pub fn texts(&mut self, key: &str, texts: &[impl AsRef<str>]) {
        self.list(key, texts, |out, text| write_string(out, text.as_ref()));
    }

    /// Writes a list of strings unless it is empty.
    pub fn texts_if_any(&mut self, key: &str, texts: &[impl AsRef<str>]) {
        if !texts.is_empty() {
            self.texts(key, texts);
        }
    }

    /// Writes a list, whose items `write` appends.
    pub fn list<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        write: impl FnMut(&mut String, T),
    ) {
        write_list(self.key(key), items, write);
    }

    /// Writes `true` or `false`.
    pub fn flag(&mut self, key: &str, value: bool) {
        self.json(key, if value { "true" } else { "false" });
    }

    /// Writes a value that is JSON already.
    pub fn json(&mut self, key: &str, json: &str) {
        self.key(key).push_str(json);
    }

    /// Writes an object whose fields `fields` writes.
    pub fn object(&mut self, key: &str, fields: impl FnOnce(&mut ObjectWriter<'_>)) {
        ObjectWriter::write(self.key(key), fields);
    }
}

/// Appends a list, whose items `write` appends.
pub fn write_list<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    out.push('[');
    for (position, item) in items.into_iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        write(out, item);
    }
    out.push(']');
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
    fn what_is_plain_ends_where_it_does_byte_by_byte() {
        for length in 0..40 {
            for place in 0..length {
                for byte in 0..=127 {
                    let mut text = "é}! ~#]".repeat(6).into_bytes();
                    text.truncate(length);
                    text[place] = byte;
                    let expected = text
                        .iter()
                        .position(|byte| !needs_no_escape(*byte))
                        .unwrap_or(length);
                    assert_eq!(find_escape(&text, 0), expected, "{text:?}");
                    let begin = place / 2;
                    assert_eq!(
                        find_escape(&text, begin),
                        expected.max(begin),
                        "{text:?} from {begin}"
                    );
                }
            }
        }
    }

    #[test]
    fn pieces_of_a_string_are_written_as_the_whole() {
        use std::fmt::Write as _;

        for text in ["", "plain and long enough", "\u{1}\"é\\ \n", "\u{7f}€ü😀 behind"] {
            let (mut whole, mut pieces) = (String::new(), String::from("\""));
            write_string(&mut whole, text);
            let mut writer = StringWriter(&mut pieces);
            let middle = text.char_indices().nth(3).map_or(text.len(), |(at, _)| at);
            writer.write_str(&text[..middle]).unwrap();
            text[middle..]
                .chars()
                .for_each(|character| writer.write_char(character).unwrap());
            pieces.push('"');
            assert_eq!(pieces, whole);
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

    #[test]
    fn each_sort_of_value_is_written_after_its_key() {
        let mut out = String::from("[");
        ObjectWriter::write(&mut out, |object| {
            object.text("a\"", "\n");
            object.text_if_any("left out", "");
            object.texts("b", &["c", "d"]);
            object.texts("e", &[""; 0]);
            object.texts_if_any("left out", &[""; 0]);
            object.flag("f", false);
            object.json("g", "1e3");
            object.object("h", |_| {});
            object.object("i", |object| object.text_if_any("j", "k"));
            object.list("l", [1, 2], |out, number| out.push_str(&number.to_string()));
        });
        let expected =
            r#"[{"a\"":"\n","b":["c","d"],"e":[],"f":false,"g":1e3,"h":{},"i":{"j":"k"},"l":[1,2]}"#;
        assert_eq!(out, expected);
    }
}
