//! Numbers as Go's `strconv` reads and writes them.

use serde_json::Number;

use super::resolve::Scalar;

/// What begins with a digit or a sign: a number, or text.
pub(crate) fn number(text: &str) -> Scalar {
    let plain = text.replace('_', "");
    if let Some(integer) = integer(&plain) {
        return integer;
    }
    if is_decimal(&plain)
        && let Some(float) = float(&plain)
    {
        return Scalar::Float(float);
    }
    // A sign behind the prefix is a slip of go-yaml's.
    let signed = plain
        .strip_prefix("0b")
        .and_then(|digits| i64::from_str_radix(digits, 2).ok());
    signed.map_or(Scalar::Text, Scalar::Int)
}

/// An integer whose prefix says its base; a leading 0 alone means 8.
fn integer(text: &str) -> Option<Scalar> {
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
    // The parser of a number would take a second sign.
    if !digits.starts_with(|first: char| first.is_digit(base)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, base).ok()?;
    match (sign, i64::try_from(magnitude)) {
        ("-", Ok(value)) => Some(Scalar::Int(-value)),
        ("-", Err(_)) => (magnitude == i64::MIN.unsigned_abs()).then_some(Scalar::Int(i64::MIN)),
        (_, Ok(value)) => Some(Scalar::Int(value)),
        ("", Err(_)) => Some(Scalar::Uint(magnitude)),
        _ => None,
    }
}

/// Digits with a point or an exponent or both.
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

/// What begins with a point: `_` may stand between digits.
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

/// A decimal number; `None` for what is none, or too large.
pub(crate) fn float(text: &str) -> Option<f64> {
    if !is_decimal(text) {
        return None;
    }
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// The number as JSON has it after Go wrote it and read it again: a whole one
/// is an integer. `None` where JSON has none.
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

/// A number that is a mapping's key, as text. Go writes it with the precision of 32 bits.
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
