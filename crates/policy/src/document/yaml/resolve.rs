//! Resolves scalars to values by the rules of YAML 1.1 in go-yaml v2 (`resolve.go`).

use serde_json::Number;

/// A scalar's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ResolvedScalar {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer beyond the range of `i64`.
    Uint(u64),
    Float(f64),
    /// The scalar is a string.
    Text,
    /// A date or time, which is a string in JSON.
    Timestamp,
}

const PREFIX: &str = "tag:yaml.org,2002:";

/// Resolves `text` with the given tag, which is empty or in full form. It is an error if the text
/// does not suit the tag.
pub(crate) fn resolve(tag: &str, text: &str) -> Result<ResolvedScalar, String> {
    if tag.is_empty() {
        return Ok(untagged(text, true));
    }
    let Some(name) = tag.strip_prefix(PREFIX) else {
        return Ok(ResolvedScalar::Text);
    };
    let value = untagged(text, name == "timestamp");
    let is_as_tagged = match (name, value) {
        ("bool", ResolvedScalar::Bool(_))
        | ("int", ResolvedScalar::Int(_) | ResolvedScalar::Uint(_))
        | ("float", ResolvedScalar::Float(_))
        | ("null", ResolvedScalar::Null)
        | ("timestamp", ResolvedScalar::Timestamp) => true,
        #[expect(clippy::cast_precision_loss, reason = "the tag requires this type")]
        ("float", ResolvedScalar::Int(integer)) => return Ok(ResolvedScalar::Float(integer as f64)),
        ("bool" | "int" | "float" | "null" | "timestamp", _) => false,
        // With any other tag, the scalar is a string.
        _ => return Ok(ResolvedScalar::Text),
    };
    if is_as_tagged {
        Ok(value)
    } else {
        Err(format!("`{text}` is not an `!!{name}`"))
    }
}

fn untagged(text: &str, may_be_timestamp: bool) -> ResolvedScalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => ResolvedScalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            ResolvedScalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            ResolvedScalar::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => ResolvedScalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => ResolvedScalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => ResolvedScalar::Float(f64::NEG_INFINITY),
        _ => match text.as_bytes().first() {
            Some(b'.') => fraction(text).map_or(ResolvedScalar::Text, ResolvedScalar::Float),
            Some(b'0'..=b'9' | b'+' | b'-') => {
                if may_be_timestamp && is_timestamp(text) {
                    return ResolvedScalar::Timestamp;
                }
                number_or_text(text)
            }
            _ => ResolvedScalar::Text,
        },
    }
}

// Dates and times. They remain strings; recognising them matters only for the tag `!!timestamp`.

/// Whether `text` has a form that go-yaml accepts: a date such as `2001-12-14`, alone, with `T` or
/// `t`, a time and a zone, or with a space and a time without a zone.
pub(crate) fn is_timestamp(text: &str) -> bool {
    let mut rest = Rest(text);
    let Some(year) = rest.digits(4, 4) else {
        return false;
    };
    let date = (|| {
        rest.literal("-")?;
        let month = rest.digits(1, 2)?;
        rest.literal("-")?;
        let day = rest.digits(1, 2)?;
        is_day(year, month, day).then_some(())
    })();
    date.is_some() && (rest.0.is_empty() || rest.time().is_some_and(|()| rest.0.is_empty()))
}

/// The unread rest of a text.
struct Rest<'t>(&'t str);

// === impl Rest ===

impl Rest<'_> {
    fn literal(&mut self, literal: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(literal)?;
        Some(())
    }

    fn digits(&mut self, least: usize, most: usize) -> Option<u32> {
        let count = self.0.bytes().take(most).take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.0.split_at_checked(count).filter(|_| count >= least)?;
        self.0 = rest;
        digits.parse().ok()
    }

    fn time(&mut self) -> Option<()> {
        let has_zone = self.literal(" ").is_none();
        if has_zone {
            self.literal("T").or_else(|| self.literal("t"))?;
        }
        self.digits(1, 2).filter(|hour| *hour < 24)?;
        self.literal(":")?;
        self.digits(1, 2).filter(|minute| *minute < 60)?;
        self.literal(":")?;
        self.digits(1, 2).filter(|second| *second < 60)?;
        let fraction = self.0.strip_prefix(['.', ',']).unwrap_or_default();
        if fraction.starts_with(|first: char| first.is_ascii_digit()) {
            self.0 = fraction.trim_start_matches(|digit: char| digit.is_ascii_digit());
        }
        if has_zone { self.zone() } else { Some(()) }
    }

    fn zone(&mut self) -> Option<()> {
        if self.literal("Z").is_some() {
            return Some(());
        }
        self.literal("+").or_else(|| self.literal("-"))?;
        self.digits(2, 2).filter(|hours| *hours <= 24)?;
        self.literal(":")?;
        self.digits(2, 2).filter(|minutes| *minutes <= 60)?;
        Some(())
    }
}

const fn is_day(year: u32, month: u32, day: u32) -> bool {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => 0,
    };
    day >= 1 && day <= days
}

// Numbers as Go's `strconv` reads and writes them.

/// Resolves text that begins with a digit or a sign: a number, or a string.
pub(crate) fn number_or_text(text: &str) -> ResolvedScalar {
    let plain = text.replace('_', "");
    if let Some(integer) = integer(&plain) {
        return integer;
    }
    if is_decimal(&plain)
        && let Some(float) = float(&plain)
    {
        return ResolvedScalar::Float(float);
    }
    // go-yaml accepts a sign after `0b` by mistake.
    let signed = plain
        .strip_prefix("0b")
        .and_then(|digits| i64::from_str_radix(digits, 2).ok());
    signed.map_or(ResolvedScalar::Text, ResolvedScalar::Int)
}

/// Parses an integer whose prefix tells its base; a leading 0 alone means base 8.
fn integer(text: &str) -> Option<ResolvedScalar> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", text.get(1..)?),
        b'+' => ("+", text.get(1..)?),
        _ => ("", text),
    };
    let (base, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, digits.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, digits.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, digits.get(2..)?),
        [b'0', _, ..] => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    // `from_str_radix` would accept a second sign.
    if !digits.starts_with(|first: char| first.is_digit(base)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, base).ok()?;
    match (sign, i64::try_from(magnitude)) {
        ("-", Ok(value)) => Some(ResolvedScalar::Int(-value)),
        ("-", Err(_)) => (magnitude == i64::MIN.unsigned_abs()).then_some(ResolvedScalar::Int(i64::MIN)),
        (_, Ok(value)) => Some(ResolvedScalar::Int(value)),
        ("", Err(_)) => Some(ResolvedScalar::Uint(magnitude)),
        _ => None,
    }
}

/// Whether `text` consists of digits, with an optional point and an optional exponent.
fn is_decimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !(whole.is_empty() && fraction.is_empty());
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && are_digits(digits)
    });
    has_digits && are_digits(whole) && are_digits(fraction) && exponent_fits
}

/// Parses a float that begins with a point. `_` is allowed between digits.
pub(crate) fn fraction(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let mut underscores = text.match_indices('_');
    let separate = underscores.all(|(at, _)| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1)));
    if separate {
        float(&text.replace('_', ""))
    } else {
        None
    }
}

/// Parses a decimal number; `None` if it is invalid or too large.
pub(crate) fn float(text: &str) -> Option<f64> {
    if !is_decimal(text) {
        return None;
    }
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// The number as it is in JSON after Go has written and read it: a whole number is an integer.
/// `None` if JSON cannot represent it.
pub(crate) fn normal(value: f64) -> Option<Number> {
    if value == value.trunc() && value.abs() < 1e21 {
        let digits = value.to_string();
        if let Ok(integer) = digits.parse::<i64>() {
            return Some(integer.into());
        }
        if let Ok(integer) = digits.parse::<u64>() {
            return Some(integer.into());
        }
    }
    Number::from_f64(value)
}

/// A number as the key of a mapping. Go writes it in 32-bit precision.
pub(crate) fn key(value: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "as Go does")]
    let value = value as f32;
    if value.is_nan() {
        return ".nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> ResolvedScalar {
        resolve("", text).unwrap()
    }

    #[test]
    fn words_of_yaml_1_1_are_booleans_and_nulls() {
        for text in [
            "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE",
        ] {
            assert_eq!(plain(text), ResolvedScalar::Bool(true), "{text}");
        }
        for text in [
            "n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE",
        ] {
            assert_eq!(plain(text), ResolvedScalar::Bool(false), "{text}");
        }
        for text in ["", "~", "null", "Null", "NULL"] {
            assert_eq!(plain(text), ResolvedScalar::Null, "{text}");
        }
        for text in [
            "yEs", "nO", "oN", "nULL", "tRue", "yes ", "nil", "None", "ye", "<<", "=",
        ] {
            assert_eq!(plain(text), ResolvedScalar::Text, "{text}");
        }
    }

    #[test]
    fn numbers_are_those_of_go_yaml() {
        let integers = [
            ("0644", 420),
            ("0o644", 420),
            ("0O17", 15),
            ("0x1F", 31),
            ("0X1f", 31),
            ("0b101", 5),
            ("0B101", 5),
            ("-0b11", -3),
            ("-0x10", -16),
            ("+12", 12),
            ("1_000", 1000),
            ("1__0_", 10),
            ("0x_ff", 255),
            ("0b+1", 1),
            ("0b-1", -1),
            ("-9223372036854775808", i64::MIN),
        ];
        for (text, value) in integers {
            assert_eq!(plain(text), ResolvedScalar::Int(value), "{text}");
        }
        assert_eq!(plain("18446744073709551615"), ResolvedScalar::Uint(u64::MAX));
        let floats = [
            ("1e3", 1000.0),
            ("1.", 1.0),
            (".5", 0.5),
            (".5_0", 0.5),
            ("08", 8.0),
            ("09.5", 9.5),
            ("-1.5E+3", -1500.0),
            ("1_0.5", 10.5),
            ("18446744073709551616", 18_446_744_073_709_551_616.0),
            ("-9223372036854775809", -9_223_372_036_854_775_808.0),
        ];
        for (text, value) in floats {
            assert_eq!(plain(text), ResolvedScalar::Float(value), "{text}");
        }
        for text in [
            "1:30",
            "190:20:30",
            "0o8",
            "0xg",
            "0b2",
            "1e",
            "1e999",
            "-",
            "+",
            "--1",
            "_1",
            "1 2",
            "0x",
            "0b",
            "._5",
            ".",
            ".e3",
            "1.2.3",
            "infinity",
            "nan",
            "0x1p-2",
            ".5_",
            ".5__0",
            "-_",
            "1,000",
        ] {
            assert_eq!(plain(text), ResolvedScalar::Text, "{text}");
        }
    }

    #[test]
    fn timestamps_are_text() {
        for text in [
            "2001-12-14",
            "2001-1-2T3:4:5Z",
            "2001-12-14t21:59:43.10-05:00",
            "2001-12-14 21:59:43.1",
        ] {
            assert_eq!(plain(text), ResolvedScalar::Timestamp, "{text}");
            assert_eq!(
                resolve("tag:yaml.org,2002:timestamp", text),
                Ok(ResolvedScalar::Timestamp)
            );
        }
        for text in [
            "2001-13-14",
            "2001-2-30",
            "2001-12-14 21:59:43.10 -5",
            "20011-1-1",
            "2001-12-14T25:00:00Z",
        ] {
            assert_eq!(plain(text), ResolvedScalar::Text, "{text}");
            assert!(resolve("tag:yaml.org,2002:timestamp", text).is_err());
        }
    }

    #[test]
    fn a_tag_says_what_a_scalar_must_be() {
        let tagged = |tag: &str, text| resolve(&format!("{PREFIX}{tag}"), text);
        assert_eq!(tagged("str", "yes"), Ok(ResolvedScalar::Text));
        assert_eq!(tagged("int", "0x10"), Ok(ResolvedScalar::Int(16)));
        assert_eq!(tagged("float", "1"), Ok(ResolvedScalar::Float(1.0)));
        assert_eq!(tagged("bool", "on"), Ok(ResolvedScalar::Bool(true)));
        assert_eq!(tagged("null", ""), Ok(ResolvedScalar::Null));
        assert_eq!(tagged("set", "yes"), Ok(ResolvedScalar::Text));
        assert_eq!(resolve("!own", "12"), Ok(ResolvedScalar::Text));
        for (tag, text) in [
            ("int", "1.5"),
            ("int", "yes"),
            ("float", "18446744073709551615"),
            ("float", "x"),
            ("bool", "1"),
            ("null", "x"),
            ("timestamp", "12"),
        ] {
            assert!(tagged(tag, text).is_err(), "{tag} {text}");
        }
    }

    #[test]
    fn whole_numbers_are_integers() {
        for (value, expected) in [
            (1000.0, "1000"),
            (-0.0, "0"),
            (1e18, "1000000000000000000"),
            (1_234_567_890_123_456_789.0, "1234567890123456800"),
            (1e19, "10000000000000000000"),
            (0.5, "0.5"),
        ] {
            assert_eq!(normal(value).unwrap().to_string(), expected);
        }
        assert_eq!(normal(1e21).and_then(|number| number.as_f64()), Some(1e21));
        assert_eq!(normal(f64::NAN), None);
        assert_eq!(normal(f64::INFINITY), None);
    }

    #[test]
    fn keys_are_written_as_go_writes_them() {
        for (value, expected) in [
            (1.1, "1.1"),
            (1000.0, "1000"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (100_000.0, "100000"),
            (1e6, "1e+06"),
            (1_234_567.5, "1.2345675e+06"),
            (1e300, ".inf"),
            (-1e300, "-.inf"),
            (f64::NAN, ".nan"),
        ] {
            assert_eq!(key(value), expected);
        }
    }
}
