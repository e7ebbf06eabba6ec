//! The strings that were removed, so that copies of them are removed, too: a mutation may have
//! copied them, and a message may quote, escape and truncate them.
//!
//! All of them are searched in one pass over a text. At each position, the next six bytes tell by a
//! Bloom filter whether one of them may begin there; if so, it is looked up by binary search.

use std::borrow::Cow;

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use memchr::memmem;

use portcullis_cel::json::{Kind, Node};

/// The shortest string that is searched for within a text.
const MIN_QUOTED_BYTES: usize = 6;

/// The shortest string that is compared with a whole text.
const MIN_WHOLE_BYTES: usize = 4;

/// The bytes of a longer string that are searched for: where they occur, the rest may follow.
const MAX_COMPARED_BYTES: usize = 32;

/// The number of bytes whose base64 encoding has [`MAX_COMPARED_BYTES`].
const MAX_ENCODED_BYTES: usize = MAX_COMPARED_BYTES / 4 * 3;

/// How often quotes may be nested: a message may quote a message that contains a quote.
const MAX_QUOTINGS: usize = 4;

/// The longest escape: `\ud83d\ude00`. If it is cut in the middle, each half counts.
const MAX_ESCAPE_BYTES: usize = 12;

/// The end of a truncated message.
const CUT_MARK: &[u8] = "…".as_bytes();

/// Base64 as CEL decodes it, with optional padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The bits of the filter for each string.
const FILTER_BITS_PER_TEXT: usize = 16;

/// The removed strings.
#[derive(Debug, Default)]
pub(crate) struct RemovedTexts {
    /// The concatenated strings.
    bytes: Vec<u8>,
    /// The range of each string in `bytes`, sorted. No string is a prefix of another.
    within: Vec<(u32, u32)>,
    /// The ranges of the strings that are too short to be searched for within a text, sorted.
    whole: Vec<(u32, u32)>,
    /// A Bloom filter for the beginnings of the strings in `within`.
    filter: Vec<u64>,
}

// === impl RemovedTexts ===

impl RemovedTexts {
    /// Adds every string in `node`, its base64 encoding, and its decoding if it is base64.
    pub(crate) fn add(&mut self, node: Node<'_>) {
        for text in node.descendants().filter(|node| node.kind() == Kind::String) {
            self.add_text(&text.as_str().unwrap_or_default());
        }
    }

    fn add_text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        self.add_bytes(bytes);
        let encoded = BASE64.encode(bytes.get(..MAX_ENCODED_BYTES).unwrap_or(bytes));
        self.add_bytes(encoded.as_bytes());
        if let Ok(decoded) = BASE64.decode(&*without_line_breaks(text))
            && std::str::from_utf8(&decoded).is_ok()
        {
            self.add_bytes(&decoded);
        }
    }

    fn add_bytes(&mut self, text: &[u8]) {
        let text = text.get(..MAX_COMPARED_BYTES).unwrap_or(text);
        let of_length = match text.len() {
            MIN_QUOTED_BYTES.. => &mut self.within,
            MIN_WHOLE_BYTES.. => &mut self.whole,
            _ => return,
        };
        // Positions that do not fit into 32 bits do not occur, because a review is smaller.
        let end = self.bytes.len() + text.len();
        if let (Ok(from), Ok(to)) = (u32::try_from(self.bytes.len()), u32::try_from(end)) {
            of_length.push((from, to));
            self.bytes.extend_from_slice(text);
        }
    }

    /// Prepares the search, after strings were added.
    pub(crate) fn sort(&mut self) {
        let Self {
            bytes,
            within,
            whole,
            filter,
        } = self;
        let text = |place: &(u32, u32)| at(bytes, *place);
        whole.sort_unstable_by(|one, other| text(one).cmp(text(other)));
        within.sort_unstable_by(|one, other| text(one).cmp(text(other)));
        // A string with another one as prefix is found by that prefix.
        within.dedup_by(|one, before| text(one).starts_with(text(before)));
        let bits = (FILTER_BITS_PER_TEXT * within.len()).next_power_of_two().max(64);
        filter.clear();
        filter.resize(bits / 64, 0);
        for place in within.iter() {
            let (word, bit) = bit_of(at(bytes, *place), bits);
            if let Some(word) = filter.get_mut(word) {
                *word |= bit;
            }
        }
    }

    /// Whether `text` is one of the strings or contains one, even quoted, or ends with the
    /// beginning of one because it was cut off.
    pub(crate) fn is_within(&self, text: &str) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut text = Cow::Borrowed(text.as_bytes());
        for _ in 0..MAX_QUOTINGS {
            if self.contains_unescaped(&text) {
                return true;
            }
            match unescaped(&text) {
                Some(plain) => text = Cow::Owned(plain),
                None => return false,
            }
        }
        // Deeper quotes do not occur in messages: hide the text.
        true
    }

    const fn is_empty(&self) -> bool {
        self.within.is_empty() && self.whole.is_empty()
    }

    fn contains_unescaped(&self, text: &[u8]) -> bool {
        let order = |place: &(u32, u32)| at(&self.bytes, *place).cmp(text);
        if self.whole.binary_search_by(order).is_ok() {
            return true;
        }
        !self.within.is_empty()
            && ((0..text.len()).any(|begin| self.begins(text.get(begin..).unwrap_or_default()))
                || self.is_cut_within(text))
    }

    /// Whether the beginning of a string stands at the end of `text`, or before a mark of
    /// truncation.
    fn is_cut_within(&self, text: &[u8]) -> bool {
        let cuts = memmem::find_iter(text, CUT_MARK).chain([text.len()]);
        cuts.map(|end| before_cut(text, end)).any(|text| {
            // The truncated text may end within an escape.
            let escape = memchr::memrchr(b'\\', text).and_then(|escape| text.get(..escape));
            self.ends_with_beginning(text) || escape.is_some_and(|text| self.ends_with_beginning(text))
        })
    }

    fn ends_with_beginning(&self, text: &[u8]) -> bool {
        let lengths = MIN_QUOTED_BYTES..MAX_COMPARED_BYTES;
        let tails = lengths.map_while(|length| text.get(text.len().checked_sub(length)?..));
        tails.into_iter().any(|tail| {
            let after = || {
                self.within
                    .partition_point(|place| at(&self.bytes, *place) < tail)
            };
            let is_beginning = |place: &(u32, u32)| at(&self.bytes, *place).starts_with(tail);
            self.may_begin(tail) && self.within.get(after()).is_some_and(is_beginning)
        })
    }

    /// Whether one of the strings may begin with the first bytes of `text`.
    fn may_begin(&self, text: &[u8]) -> bool {
        let (word, bit) = bit_of(text, self.filter.len() * 64);
        self.filter.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Whether `text` begins with one of the strings.
    fn begins(&self, text: &[u8]) -> bool {
        if text.len() < MIN_QUOTED_BYTES || !self.may_begin(text) {
            return false;
        }
        // No string is a prefix of another, so only the last one that is not greater than `text`
        // can be its prefix.
        let after = self
            .within
            .partition_point(|place| at(&self.bytes, *place) <= text);
        let last = after.checked_sub(1).and_then(|last| self.within.get(last));
        last.is_some_and(|place| text.starts_with(at(&self.bytes, *place)))
    }
}

/// The bytes of `text` before a cut at `end` that may be the beginning of a removed string. They
/// are bounded, because a text may have as many cuts as characters.
fn before_cut(text: &[u8], end: usize) -> &[u8] {
    let begin = end.saturating_sub(MAX_COMPARED_BYTES + MAX_ESCAPE_BYTES);
    text.get(begin..end).unwrap_or_default()
}

fn at(bytes: &[u8], (from, to): (u32, u32)) -> &[u8] {
    bytes.get(from as usize..to as usize).unwrap_or_default()
}

/// The word of the filter, and the bit in it, for texts with this beginning in a filter of `bits`.
fn bit_of(text: &[u8], bits: usize) -> (usize, u64) {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut beginning = [0; 8];
    beginning
        .iter_mut()
        .zip(text.iter().take(MIN_QUOTED_BYTES))
        .for_each(|(byte, other)| *byte = *other);
    let hash = u64::from_le_bytes(beginning).wrapping_mul(ODD) >> 32;
    let place = usize::try_from(hash).unwrap_or_default() & (bits - 1);
    (place / 64, 1 << (place % 64))
}

/// Removes line breaks, which Go ignores in base64.
fn without_line_breaks(text: &str) -> Cow<'_, str> {
    match text.contains(['\n', '\r']) {
        true => Cow::Owned(text.replace(['\n', '\r'], "")),
        false => Cow::Borrowed(text),
    }
}

// Escapes in quoted strings.

/// Replaces the escapes of CEL, Go, JSON and Rust in `text`; `None` if there are none. Invalid
/// escapes are kept.
pub(crate) fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let (mut rest, mut is_any) = (text, false);
    while let Some(escape) = memchr::memchr(b'\\', rest) {
        let (before, after) = rest.split_at(escape);
        plain.extend_from_slice(before);
        let length = unescape(after.get(1..).unwrap_or_default(), &mut plain);
        is_any |= length > 0;
        if length == 0 {
            plain.push(b'\\');
        }
        rest = after.get(1 + length..).unwrap_or_default();
    }
    plain.extend_from_slice(rest);
    is_any.then_some(plain)
}

/// Appends the meaning of an escape, given the text after its `\`, and returns its length, or 0 if
/// it is not an escape.
fn unescape(escape: &[u8], plain: &mut Vec<u8>) -> usize {
    let Some(letter) = escape.first() else { return 0 };
    let byte = match letter {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        b'v' => 11,
        b'f' => 12,
        b'"' | b'\'' | b'`' | b'\\' | b'/' | b'?' => *letter,
        b'x' | b'X' => return write_byte(digits(escape, 1, 2, 16), plain),
        b'0' if digits(escape, 0, 3, 8).is_none() => 0,
        b'0'..=b'7' => return write_byte(digits(escape, 0, 3, 8), plain),
        b'u' if escape.get(1) == Some(&b'{') => return write_braced(escape, plain),
        b'u' => return write_utf16(escape, plain),
        b'U' => return write_character(digits(escape, 1, 8, 16), plain),
        _ => return 0,
    };
    plain.push(byte);
    1
}

/// Parses `count` digits, and returns their number and where they end.
fn digits(escape: &[u8], from: usize, count: usize, radix: u32) -> Option<(u32, usize)> {
    let end = from + count;
    let digits = std::str::from_utf8(escape.get(from..end)?).ok()?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u32::from_str_radix(digits, radix).ok().filter(|_| is_number)?;
    Some((number, end))
}

fn write_byte(found: Option<(u32, usize)>, plain: &mut Vec<u8>) -> usize {
    let Some((number, end)) = found else { return 0 };
    let Ok(byte) = u8::try_from(number) else { return 0 };
    plain.push(byte);
    end
}

fn write_character(found: Option<(u32, usize)>, plain: &mut Vec<u8>) -> usize {
    let Some((number, end)) = found else { return 0 };
    let Some(character) = char::from_u32(number) else {
        return 0;
    };
    plain.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    end
}

/// An escape such as `u{7f}`.
fn write_braced(escape: &[u8], plain: &mut Vec<u8>) -> usize {
    let close = escape.iter().take(9).position(|byte| *byte == b'}');
    let found = close.and_then(|close| digits(escape, 2, close.checked_sub(2)?, 16));
    write_character(found.map(|(number, end)| (number, end + 1)), plain)
}

/// An escape such as `u00e4`, or both halves of a surrogate pair.
fn write_utf16(escape: &[u8], plain: &mut Vec<u8>) -> usize {
    let Some((first, end)) = digits(escape, 1, 4, 16) else {
        return 0;
    };
    let second = || {
        let second = escape.get(end..)?.strip_prefix(b"\\u")?;
        digits(second, 0, 4, 16)
    };
    match (first, second()) {
        (0xd800..0xdc00, Some((second @ 0xdc00..0xe000, length))) => {
            let character = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            write_character(Some((character, end + 2 + length)), plain)
        }
        _ => write_character(Some((first, end)), plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use portcullis_cel::json::Document;

    fn removed(texts: &[String]) -> RemovedTexts {
        let list = serde_json::to_string(texts).unwrap();
        let document = Document::parse(list).unwrap();
        let mut removed = RemovedTexts::default();
        removed.add(document.root());
        removed.sort();
        removed
    }

    /// Searches for every string separately.
    fn naive(texts: &[String], text: &str) -> bool {
        let is_beginning = |form: &str, end| form.get(..end).is_some_and(|cut| text.ends_with(cut));
        let is_cut = |form: &str| (MIN_QUOTED_BYTES..form.len()).any(|end| is_beginning(form, end));
        let forms = texts.iter().flat_map(|text| {
            let decoded = BASE64.decode(text).ok();
            let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
            [Some(text.clone()), decoded, Some(BASE64.encode(text))]
        });
        forms.flatten().any(|form| {
            let is_within =
                form.len() >= MIN_QUOTED_BYTES && memmem::find(text.as_bytes(), form.as_bytes()).is_some();
            form.len() >= MIN_WHOLE_BYTES && form == text || is_within || is_cut(&form)
        })
    }

    #[test]
    fn of_a_long_text_the_beginning_is_found() {
        let removed = removed(&["x".repeat(1_000)]);
        assert!(removed.is_within(&format!("<{}>", "x".repeat(32))));
        assert!(!removed.is_within(&format!("<{}>", "x".repeat(31))));
        assert!(removed.is_within(&BASE64.encode("x".repeat(1_000))));
    }

    #[test]
    fn a_text_is_found_however_a_message_quotes_it() {
        let secret = "quo\"te\\d <PASSWORD>\n\u{7f}ä";
        let removed = removed(&[secret.to_owned()]);
        let json = serde_json::to_string(secret).unwrap();
        for text in [
            json.clone(),
            serde_json::to_string(&format!("said {json}")).unwrap(),
            format!("{secret:?}"),
            json.replace('<', "\\u003c").replace('ä', "\\u00e4"),
            json.replace('ä', "\\xc3\\xa4").replace('<', "\\074"),
        ] {
            assert!(removed.is_within(&format!("bad: {{\"key\": {text}}}")), "{text}");
        }
        assert!(!removed.is_within(r#"a "path" such as C:\new\x or \u12"#));
    }

    #[test]
    fn what_is_quoted_more_often_than_any_message_is_taken_for_a_quote() {
        let backslashes = format!("{}n", "\\".repeat(16));
        assert!(removed(&["another".to_owned()]).is_within(&backslashes));
        assert!(!removed(&[]).is_within(&backslashes));
    }

    #[test]
    fn the_beginning_of_a_text_is_found_where_a_message_was_cut() {
        let removed = removed(&["top\nsecret".to_owned()]);
        for text in [
            r"bad: top\nse…",
            r"bad: top\nsec\…",
            "1: top\nse…; 2: well",
            "bad: top\nsecre",
        ] {
            assert!(removed.is_within(text), "{text}");
        }
        for text in ["bad: top\ns…", "top\nse is bad", "on top…"] {
            assert!(!removed.is_within(text), "{text}");
        }
    }

    #[test]
    fn what_is_looked_at_before_cuts_grows_no_faster_than_the_text() {
        let cuts = 20_000;
        let text = CUT_MARK.repeat(cuts);
        let looked_at = |cut: usize| before_cut(&text, cut * CUT_MARK.len()).len();
        let all: usize = (1..=cuts).map(looked_at).sum();
        assert!(all <= 50 * cuts, "{all} bytes for {cuts} cuts");
    }

    #[test]
    fn base64_in_lines_or_without_padding_is_decoded() {
        for encoded in ["aHVudGVy\nMi1wYXNz\r\nd29yZA==\n", "aHVudGVyMi1wYXNzd29yZA"] {
            let removed = removed(&[encoded.to_owned()]);
            assert!(removed.is_within("it is hunter2-password!"), "{encoded}");
        }
    }

    proptest! {
        #[test]
        fn texts_are_found_as_if_each_was_looked_for(
            texts in prop::collection::vec("[ab]{0,9}|[a-c]{3,12}|YWJj(YWJj)?", 0..8),
            text in "[ab]{0,20}|[a-c]{0,30}|x?(YWJj){0,3}y?",
        ) {
            prop_assert_eq!(removed(&texts).is_within(&text), naive(&texts, &text), "{:?} {}", texts, text);
        }
    }

    #[test]
    fn each_escape_is_what_it_stands_for() {
        let escaped = br#"\0\a\b\f\n\r\t\v\\\'\"\`\/\?\x41\101\u00e4\ud83d\ude00\U0001f600\u{7f}"#;
        let plain = "\0\u{7}\u{8}\u{c}\n\r\t\u{b}\\'\"`/?AAä😀😀\u{7f}";
        assert_eq!(unescaped(escaped).unwrap(), plain.as_bytes());
    }

    #[test]
    fn what_is_no_escape_stays() {
        for text in [
            "",
            "plain",
            "\\",
            "\\q",
            "\\x4",
            "\\u12",
            "\\u{110000}",
            "\\u{}",
            "\\ud800",
            "\\800",
            "\\u+123",
        ] {
            assert_eq!(unescaped(text.as_bytes()), None, "{text}");
        }
        assert_eq!(unescaped(br"\q\n").unwrap(), b"\\q\n");
    }

    proptest! {
        #[test]
        fn what_json_and_rust_escape_is_found_again(text in "[^\0]*") {
            let json = serde_json::to_string(&text).unwrap();
            for quoted in [json, format!("{text:?}")] {
                let plain = unescaped(quoted.as_bytes()).unwrap_or(quoted.into_bytes());
                prop_assert_eq!(String::from_utf8(plain).unwrap(), format!("\"{text}\""));
            }
        }
    }
}
