//! Text and values as Go prints them, for Kubernetes' messages: quoted text (`%q`), the names of
//! upstream's types (`%T`) and what its values print as (`%v`).

use std::fmt::{self, Write};

use crate::library::authorizer::CheckStage;
use crate::value::{Duration, Opaque, Timestamp, Value};

/// Quotes as Go's `%q`.
pub fn quote(into: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _infallible = write_quoted(into, &[text]);
}

/// `text` as a string literal, in the single quotes that people write if it needs no escape.
pub(crate) fn text_literal(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '\'' | '\\');
    if text.chars().all(is_plain) {
        return format!("'{text}'");
    }
    let mut quoted = String::new();
    quote(&mut quoted, text);
    quoted
}

/// Displays a text as [`quote`] quotes it, without a copy.
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
///
/// The errors of `out`.
pub fn write_quoted(out: &mut impl Write, parts: &[&str]) -> fmt::Result {
    out.write_char('"')?;
    parts.iter().try_for_each(|part| write_quoted_within(out, part))?;
    out.write_char('"')
}

/// Writes what is between the quotes.
pub(crate) fn write_quoted_within(out: &mut impl Write, part: &str) -> fmt::Result {
    if is_plain(part.as_bytes()) {
        return out.write_str(part);
    }
    part.chars()
        .try_for_each(|character| write_character(out, character))
}

/// Whether no character needs an escape, as in nearly every name. Checks eight bytes at a time.
fn is_plain(text: &[u8]) -> bool {
    let (eights, rest) = text.as_chunks();
    let mut all = eights.iter().all(|eight| are_plain(u64::from_le_bytes(*eight)));
    all &= match text.last_chunk() {
        // The last eight bytes overlap with those that were checked already.
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
    // `^ 2` makes 0x20 of a quote and 0x22 of a space, and leaves control characters below 0x20: so only control
    // characters and quotes borrow when 0x21 is subtracted.
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

/// Whether Go prints `character` without an escape, as Rust's `escape_debug` does. Another
/// character precedes it in the check, because `escape_debug` escapes combining marks at the start
/// of a string, and Go does not.
fn is_printable(character: char) -> bool {
    let mut text = String::with_capacity(8);
    text.push('a');
    text.push(character);
    text.escape_debug().count() == 2
}

/// How many levels of a value are printed: a message does not need more.
const MAX_LEVELS: usize = 16;

/// About how many bytes of a value are printed: a message is no place for a whole object.
const MAX_BYTES: usize = 4 << 10;

impl Value<'_> {
    /// The Go type of the value upstream (`%T`).
    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            Self::Null => "types.Null",
            Self::Bool(_) => "types.Bool",
            Self::Int(_) => "types.Int",
            Self::Uint(_) => "types.Uint",
            Self::Double(_) => "types.Double",
            Self::String(_) => "types.String",
            Self::Bytes(_) => "types.Bytes",
            Self::Duration(_) => "types.Duration",
            Self::Timestamp(_) => "types.Timestamp",
            Self::List(_) => "*types.baseList",
            Self::Map(_) => "*types.baseMap",
            Self::Optional(_) => "*types.Optional",
            Self::Type(_) => "*types.Type",
            Self::Opaque(opaque) => opaque.go_type(),
        }
    }

    /// The value as Go prints it (`%v`), cut to what a message has room for.
    pub(crate) fn printed(&self) -> String {
        let mut text = String::new();
        print(self, &mut text, 0);
        text
    }
}

// === impl Opaque ===

impl Opaque<'_> {
    fn go_type(&self) -> &'static str {
        match self {
            Self::Quantity(_) => "cel.Quantity",
            Self::ComputedQuantity(_) => "*cel.Quantity",
            Self::Url(_) => "cel.URL",
            Self::Ip(_) => "cel.IP",
            Self::Cidr(..) => "cel.CIDR",
            Self::Semver(_) => "cel.Semver",
            Self::Format(_) => "cel.Format",
            Self::Check(check) => match check.stage {
                CheckStage::Authorizer => "library.authorizerVal",
                CheckStage::Path => "library.pathCheckVal",
                CheckStage::Group => "library.groupCheckVal",
                CheckStage::Resource => "library.resourceCheckVal",
            },
            Self::Decision(_) => "library.decisionVal",
        }
    }
}

/// Writing to text does not fail.
fn print(value: &Value<'_>, text: &mut String, level: usize) {
    if level > MAX_LEVELS || text.len() > MAX_BYTES {
        return text.push('…');
    }
    let _ = match value {
        // Upstream, `types.Null` is an enum whose value is 0.
        Value::Null => write!(text, "0"),
        Value::Bool(value) => write!(text, "{value}"),
        Value::Int(int) => write!(text, "{int}"),
        Value::Uint(uint) => write!(text, "{uint}"),
        Value::Double(double) => write!(text, "{}", printed_double(*double)),
        Value::String(own) => write!(text, "{}", first_of(own)),
        Value::Bytes(bytes) => {
            let bytes = bytes.iter().take(MAX_BYTES).map(u8::to_string);
            write!(text, "[{}]", bytes.collect::<Vec<_>>().join(" "))
        }
        Value::Duration(duration) => write!(text, "{}", printed_duration(*duration)),
        Value::Timestamp(timestamp) => write!(text, "{}", printed_timestamp(*timestamp)),
        Value::List(list) => {
            text.push('[');
            for (position, item) in list.items().enumerate() {
                text.push_str(if position > 0 { ", " } else { "" });
                print(&item, text, level + 1);
                if text.len() > MAX_BYTES {
                    break;
                }
            }
            write!(text, "]")
        }
        Value::Map(map) => {
            text.push('{');
            for (position, (key, item)) in map.entries().enumerate() {
                text.push_str(if position > 0 { ", " } else { "" });
                print(&key, text, level + 1);
                text.push_str(": ");
                print(&item, text, level + 1);
                if text.len() > MAX_BYTES {
                    break;
                }
            }
            write!(text, "}}")
        }
        Value::Optional(None) => write!(text, "optional.none()"),
        Value::Optional(Some(held)) => {
            text.push_str("optional(");
            print(held, text, level + 1);
            write!(text, ")")
        }
        Value::Type(of) => write!(text, "{of}"),
        Value::Opaque(opaque) => write!(text, "{}", opaque.type_name()),
    };
}

/// The beginning of `text`, cut to what a message has room for.
fn first_of(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_BYTES)).unwrap_or(text)
}

/// As Go prints it: with an exponent below 10⁻⁴ and from 10²¹ on.
fn printed_double(double: f64) -> String {
    if double.is_nan() {
        return "NaN".into();
    }
    if double.is_infinite() {
        return if double > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let scientific = format!("{double:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..21).contains(&exponent) {
        return format!("{double}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// As Go writes it: `1h30m0s`, `1.5ms`.
fn printed_duration(duration: Duration) -> String {
    let sign = if duration.nanoseconds() < 0 { "-" } else { "" };
    let nanoseconds = duration.nanoseconds().unsigned_abs();
    let with_fraction = |unit: u64, digits: usize| {
        let fraction = format!("{:0digits$}", nanoseconds % unit);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        (nanoseconds / unit, format!("{point}{fraction}"))
    };
    let below_second = |unit: u64, digits: usize, name: &str| {
        let (whole, fraction) = with_fraction(unit, digits);
        format!("{sign}{whole}{fraction}{name}")
    };
    match nanoseconds {
        0 => "0s".into(),
        1..1_000 => format!("{sign}{nanoseconds}ns"),
        1_000..1_000_000 => below_second(1_000, 3, "µs"),
        1_000_000..1_000_000_000 => below_second(1_000_000, 6, "ms"),
        _ => {
            let (seconds, fraction) = with_fraction(1_000_000_000, 9);
            let (minutes, seconds) = (seconds / 60, seconds % 60);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}{fraction}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}{fraction}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}{fraction}s"),
            }
        }
    }
}

/// As Go writes it: `2024-03-01 12:30:45.5 +0530 +0530`, `… +0000 UTC`.
fn printed_timestamp(timestamp: Timestamp) -> String {
    let text = timestamp.to_string().replacen('T', " ", 1);
    if let Some(local) = text.strip_suffix('Z') {
        return format!("{local} +0000 UTC");
    }
    let zone = text.len().saturating_sub("+00:00".len());
    let (local, zone) = text.split_at_checked(zone).unwrap_or((&text, ""));
    let zone = zone.replace(':', "");
    format!("{local} {zone} {zone}")
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

    #[test]
    fn durations_are_printed_as_go_prints_them() {
        for (nanoseconds, printed) in [
            (0, "0s"),
            (1, "1ns"),
            (-1_500, "-1.5µs"),
            (1_000_000, "1ms"),
            (999_999_999, "999.999999ms"),
            (1_000_000_000, "1s"),
            (61_500_000_000, "1m1.5s"),
            (5_400_000_000_000, "1h30m0s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(printed_duration(Duration::from_nanoseconds(nanoseconds)), printed);
        }
    }

    #[test]
    fn timestamps_are_printed_as_go_prints_them() {
        for (text, printed) in [
            ("2024-02-29T23:59:59.5Z", "2024-02-29 23:59:59.5 +0000 UTC"),
            ("2023-01-01T00:00:00-08:00", "2023-01-01 00:00:00 -0800 -0800"),
        ] {
            assert_eq!(printed_timestamp(Timestamp::parse(text).unwrap()), printed);
        }
    }

    #[test]
    fn numbers_are_printed_as_go_prints_them() {
        for (double, printed) in [
            (1.0, "1"),
            (-0.0, "-0"),
            (123_456_789.5, "123456789.5"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-07"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(printed_double(double), printed);
        }
    }

    #[test]
    fn what_is_printed_is_bounded() {
        let long = "é".repeat(MAX_BYTES);
        let many = Value::list(vec![Value::string(&*long); 1000]);
        assert!(many.printed().len() < 2 * MAX_BYTES + 100);
        let deep = (0..100).fold(Value::Null, |value, _| Value::list(vec![value]));
        assert!(deep.printed().contains('…'));
    }
}
