//! CEL's own conversions between types (cel-go `common/stdlib/standard.go`).
//!
//! `double(string)` is Go's `strconv.ParseFloat(text, 64)` (`strconv/atof.go`), as upstream: decimal and
//! hexadecimal numbers, single underscores between digits, and the names of infinity and NaN.

use std::borrow::Cow;
use std::sync::Arc;

use super::arithmetic::{integer, timestamp, unsigned};
use super::standard::{Computed, no_such_overload};
use crate::evaluate::Evaluation;
use crate::function::{A, Apply, Cost, Overload};
use crate::program::Call;
use crate::types::Type;
use crate::types::Type::{
    Bool, Bytes as BytesType, Double, Duration, Dyn, Int, String as Str, Timestamp, Uint,
};
use crate::value::{Bytes, Text, Value};
use crate::{EvalError, cost};

pub(crate) fn functions() -> Vec<Overload> {
    let to = |id, name, from: Type, of: Type, apply: Apply| Overload::global(id, name, [from], of, apply);
    let read = Cost::OfOverload(|arguments, _| {
        arguments
            .first()
            .map_or(1, |text| cost::traverse(cost::size(text)))
    });
    vec![
        to("type", "type", A, Type::of_type(A), type_of),
        to("to_dyn", "dyn", A, Dyn, itself),
        to("bool_to_bool", "bool", Bool, Bool, to_bool),
        to("string_to_bool", "bool", Str, Bool, to_bool),
        to("bytes_to_bytes", "bytes", BytesType, BytesType, to_bytes),
        to("string_to_bytes", "bytes", Str, BytesType, to_bytes).cost(read),
        to("double_to_double", "double", Double, Double, to_double),
        to("int64_to_double", "double", Int, Double, to_double),
        to("string_to_double", "double", Str, Double, to_double),
        to("uint64_to_double", "double", Uint, Double, to_double),
        to(
            "duration_to_duration",
            "duration",
            Duration,
            Duration,
            to_duration,
        ),
        to("int64_to_duration", "duration", Int, Duration, to_duration),
        to("string_to_duration", "duration", Str, Duration, to_duration),
        to("int64_to_int64", "int", Int, Int, to_int),
        to("double_to_int64", "int", Double, Int, to_int),
        to("duration_to_int64", "int", Duration, Int, to_int),
        to("string_to_int64", "int", Str, Int, to_int),
        to("timestamp_to_int64", "int", Timestamp, Int, to_int),
        to("uint64_to_int64", "int", Uint, Int, to_int),
        to("string_to_string", "string", Str, Str, to_string),
        to("bool_to_string", "string", Bool, Str, to_string),
        to("bytes_to_string", "string", BytesType, Str, to_string).cost(read),
        to("double_to_string", "string", Double, Str, to_string),
        to("duration_to_string", "string", Duration, Str, to_string),
        to("int64_to_string", "string", Int, Str, to_string),
        to("timestamp_to_string", "string", Timestamp, Str, to_string),
        to("uint64_to_string", "string", Uint, Str, to_string),
        to(
            "timestamp_to_timestamp",
            "timestamp",
            Timestamp,
            Timestamp,
            to_timestamp,
        ),
        to("int64_to_timestamp", "timestamp", Int, Timestamp, to_timestamp),
        to("string_to_timestamp", "timestamp", Str, Timestamp, to_timestamp),
        to("uint64_to_uint64", "uint", Uint, Uint, to_uint),
        to("double_to_uint64", "uint", Double, Uint, to_uint),
        to("int64_to_uint64", "uint", Int, Uint, to_uint),
        to("string_to_uint64", "uint", Str, Uint, to_uint),
    ]
}

fn type_of<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [value] => Ok(Value::Type(Arc::new(value.type_of()))),
        _ => no_such_overload(),
    }
}

fn itself<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [value] => Ok(value.clone()),
        _ => no_such_overload(),
    }
}

/// The error of a value that cannot be converted.
fn unconvertible<'a>(from: &Value<'_>, to: &str) -> Computed<'a> {
    Err(EvalError::failed(format_args!(
        "type conversion error from '{}' to '{to}'",
        from.type_of()
    )))
}

fn to_bool<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        [Value::String(text)] => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => unconvertible(&Value::str(""), "bool"),
        },
        _ => no_such_overload(),
    }
}

fn to_bytes<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [bytes @ Value::Bytes(_)] => Ok(bytes.clone()),
        [Value::String(Text::Borrowed(text))] => Ok(Value::Bytes(Bytes::Borrowed(text.as_bytes()))),
        [Value::String(text)] => {
            own.allocate_text(text.len())?;
            Ok(Value::Bytes(Bytes::from(text.as_bytes().to_vec())))
        }
        _ => no_such_overload(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "as Go converts")]
fn to_double<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Double(double)] => Ok(Value::Double(*double)),
        [Value::Int(int)] => Ok(Value::Double(*int as f64)),
        [Value::Uint(uint)] => Ok(Value::Double(*uint as f64)),
        [text @ Value::String(digits)] => {
            own.work(digits.len())?;
            // Digits are copied to remove underscores.
            own.has_room(digits.len().saturating_mul(2))?;
            parse_float(digits).map_or_else(
                || unconvertible(text, "double"),
                |double| Ok(Value::Double(double)),
            )
        }
        _ => no_such_overload(),
    }
}

fn to_duration<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Duration(*duration)),
        [value @ Value::String(text)] => match crate::value::Duration::parse(text) {
            Some(duration) => Ok(Value::Duration(duration)),
            None => unconvertible(value, "google.protobuf.Duration"),
        },
        [value @ Value::Int(_)] => unconvertible(value, "google.protobuf.Duration"),
        _ => no_such_overload(),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "checked to be in range")]
fn to_int<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    const LIMIT: f64 = 9_223_372_036_854_775_807.0;
    match arguments {
        [Value::Int(int)] => Ok(Value::Int(*int)),
        [Value::Uint(uint)] => integer(i64::try_from(*uint).ok()),
        [Value::Double(double)] => {
            let fits = double.is_finite() && *double > -LIMIT && *double < LIMIT;
            integer(fits.then_some(*double as i64))
        }
        [Value::Duration(duration)] => Ok(Value::Int(duration.nanoseconds())),
        [Value::Timestamp(timestamp)] => Ok(Value::Int(timestamp.seconds())),
        [value @ Value::String(text)] => match text.parse() {
            Ok(int) => Ok(Value::Int(int)),
            Err(_) => unconvertible(value, "int"),
        },
        _ => no_such_overload(),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be in range"
)]
fn to_uint<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    const LIMIT: f64 = 18_446_744_073_709_551_615.0;
    match arguments {
        [Value::Uint(uint)] => Ok(Value::Uint(*uint)),
        [Value::Int(int)] => unsigned(u64::try_from(*int).ok()),
        [Value::Double(double)] => {
            let fits = double.is_finite() && *double >= 0.0 && *double < LIMIT;
            unsigned(fits.then_some(*double as u64))
        }
        [value @ Value::String(text)] => match text.parse::<u64>() {
            Ok(uint) if !text.starts_with('+') => Ok(Value::Uint(uint)),
            _ => unconvertible(value, "uint"),
        },
        _ => no_such_overload(),
    }
}

fn to_string<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let text = match arguments {
        [text @ Value::String(_)] => return Ok(text.clone()),
        [Value::Bool(value)] => value.to_string(),
        [Value::Bytes(bytes)] => {
            own.work(bytes.len())?;
            let text = std::str::from_utf8(bytes);
            let text =
                text.map_err(|_| EvalError::failed("invalid UTF-8 in bytes, cannot convert to string"))?;
            own.allocate(text.len() + Text::BYTES)?;
            return Ok(Value::string(text));
        }
        [Value::Double(double)] => shortest(*double),
        [Value::Duration(duration)] => duration.to_string(),
        [Value::Int(int)] => int.to_string(),
        [Value::Timestamp(timestamp)] => timestamp.to_string(),
        [Value::Uint(uint)] => uint.to_string(),
        _ => return no_such_overload(),
    };
    Ok(Value::String(Text::from(text)))
}

/// As Go's `strconv.FormatFloat(double, 'g', -1, 64)`: with an exponent below 10⁻⁴
/// and from 10⁶ on.
pub(crate) fn shortest(double: f64) -> String {
    if double.is_nan() {
        return "NaN".into();
    }
    if double.is_infinite() {
        return if double > 0.0 {
            "+Inf".into()
        } else {
            "-Inf".into()
        };
    }
    let scientific = format!("{double:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return format!("{double}");
    }
    let digits = even(double, digits);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Of two shortest numbers that are equally near, Go prints the one with an even last digit, Rust the larger one.
fn even(double: f64, digits: &str) -> String {
    let lower = digits.char_indices().next_back().and_then(|(at, last)| {
        let lower = last.to_digit(10)?.checked_sub(1).filter(|digit| digit % 2 == 0)?;
        Some(format!("{}{lower}", digits.get(..at)?))
    });
    let Some(lower) = lower else {
        return digits.into();
    };
    // Enough digits to write any double exactly.
    let exact = format!("{double:.800e}");
    let exact = exact.split('e').next().unwrap_or_default();
    let is_between = exact
        .strip_prefix(lower.as_str())
        .map(|rest| rest.trim_start_matches('.').trim_end_matches('0'));
    if is_between == Some("5") {
        lower
    } else {
        digits.into()
    }
}

fn to_timestamp<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Timestamp(timestamp)] => Ok(Value::Timestamp(*timestamp)),
        [Value::Int(seconds)] => timestamp(crate::value::Timestamp::from_seconds(*seconds)),
        [value @ Value::String(text)] => match crate::value::Timestamp::parse(text) {
            Some(timestamp) => Ok(Value::Timestamp(timestamp)),
            None => unconvertible(value, "google.protobuf.Timestamp"),
        },
        _ => no_such_overload(),
    }
}

/// The bits of a mantissa, without the first one, which is implicit.
const MANTISSA_BITS: u32 = 52;

/// What is added to an exponent when it is stored.
const BIAS: i64 = 1023;

/// Go may not read all of an exponent that has more digits than this.
const EXPONENT_DIGITS: usize = 5;

/// A number as it is written.
struct Written<'t> {
    negative: bool,
    is_hexadecimal: bool,
    /// Digits, a point and underscores.
    mantissa: &'t str,
    exponent: i64,
    /// Whether `exponent` may be cut, as Go cuts long ones.
    is_exponent_cut: bool,
}

/// The double nearest to the number `text`; `None` if that is not a number, or is beyond any double.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    if let Some(special) = special(text) {
        return Some(special);
    }
    let written = read(text)?;
    if text.contains('_') && !are_underscores_right(text) {
        return None;
    }
    let double = match written.is_hexadecimal {
        true => hexadecimal(&written),
        false => decimal(text, &written)?,
    };
    double.is_finite().then_some(double)
}

fn special(text: &str) -> Option<f64> {
    if text.eq_ignore_ascii_case("nan") {
        // NaN takes no sign.
        return Some(f64::NAN);
    }
    let (sign, name) = match text.strip_prefix('-') {
        Some(name) => (-1.0, name),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let is_infinite = name.eq_ignore_ascii_case("inf") || name.eq_ignore_ascii_case("infinity");
    is_infinite.then_some(sign * f64::INFINITY)
}

/// Reads all of `text`, and accepts underscores anywhere.
fn read(text: &str) -> Option<Written<'_>> {
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"));
    let (is_hexadecimal, digits) = (digits.is_some(), digits.unwrap_or(rest));
    let is_digit = |byte: u8| byte.is_ascii_digit() || is_hexadecimal && byte.is_ascii_hexdigit();
    let mut points = 0;
    let length = digits.bytes().take_while(|byte| {
        points += usize::from(*byte == b'.');
        is_digit(*byte) || *byte == b'_' || *byte == b'.' && points == 1
    });
    let (mantissa, rest) = digits.split_at_checked(length.count())?;
    if !mantissa.bytes().any(is_digit) {
        return None;
    }
    let (exponent, is_exponent_cut) = match (rest, is_hexadecimal) {
        ("", false) => (0, false),
        (rest, false) => exponent(rest.strip_prefix(['e', 'E'])?)?,
        (rest, true) => exponent(rest.strip_prefix(['p', 'P'])?)?,
    };
    Some(Written {
        negative,
        is_hexadecimal,
        mantissa,
        exponent,
        is_exponent_cut,
    })
}

/// The exponent, and whether it may be cut.
fn exponent(text: &str) -> Option<(i64, bool)> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let mut exponent: i64 = 0;
    for byte in digits.bytes().filter(|byte| *byte != b'_') {
        let digit = char::from(byte).to_digit(10)?;
        if exponent < 10_000 {
            exponent = exponent * 10 + i64::from(digit);
        }
    }
    let exponent = if text.starts_with('-') {
        -exponent
    } else {
        exponent
    };
    Some((exponent, digits.len() > EXPONENT_DIGITS))
}

/// Whether each underscore is between two digits, or a prefix and a digit (Go's `underscoreOK`).
fn are_underscores_right(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_hexadecimal = digits.starts_with("0x") || digits.starts_with("0X");
    let (mut before, rest) = match digits.get(2..).filter(|_| is_hexadecimal) {
        Some(rest) => (b'0', rest),
        None => (b'!', digits),
    };
    for byte in rest.bytes() {
        let is_digit = byte.is_ascii_digit() || is_hexadecimal && byte.is_ascii_hexdigit();
        before = match (byte, before) {
            _ if is_digit => b'0',
            (b'_', b'0') => b'_',
            (b'_', _) | (_, b'_') => return false,
            _ => b'!',
        };
    }
    before != b'_'
}

/// Leaves the number to Rust's parser, which rounds correctly, as Go's does.
fn decimal(text: &str, written: &Written<'_>) -> Option<f64> {
    let mut plain = Cow::Borrowed(text);
    if written.is_exponent_cut || text.contains('_') {
        let sign = if written.negative { "-" } else { "" };
        let mantissa = written.mantissa.replace('_', "");
        plain = Cow::Owned(format!("{sign}{mantissa}e{}", written.exponent));
    }
    plain.parse().ok()
}

/// The leading digits of a hexadecimal mantissa, without leading zeros, as many as fit, and the exponent of the
/// power of two by which they are multiplied.
struct Digits {
    mantissa: u64,
    exponent: i64,
    /// Whether digits were left out that are not zero.
    is_cut: bool,
}

fn digits(written: &Written<'_>) -> Digits {
    const MAX_DIGITS: i64 = 16;
    let (mut mantissa, mut is_cut) = (0u64, false);
    let (mut seen, mut kept, mut point, mut has_point) = (0i64, 0i64, 0i64, false);
    for character in written.mantissa.chars() {
        match character.to_digit(16) {
            Some(0) if seen == 0 => point -= 1,
            Some(digit) => {
                seen += 1;
                if kept < MAX_DIGITS {
                    mantissa = mantissa << 4 | u64::from(digit);
                    kept += 1;
                } else {
                    is_cut |= digit != 0;
                }
            }
            None if character == '.' => (point, has_point) = (seen, true),
            None => {}
        }
    }
    let point = if has_point { point } else { seen };
    Digits {
        mantissa,
        exponent: 4 * (point - kept) + written.exponent,
        is_cut,
    }
}

/// The double nearest to a hexadecimal number, with ties rounded to even.
fn hexadecimal(written: &Written<'_>) -> f64 {
    let Digits {
        mut mantissa,
        exponent,
        is_cut,
    } = digits(written);
    if mantissa == 0 {
        return if written.negative { -0.0 } else { 0.0 };
    }
    let mut exponent = exponent + i64::from(MANTISSA_BITS);
    let halve = |mantissa: u64| mantissa >> 1 | mantissa & 1;
    // Two bits more than a double has: one that decides the rounding, and one that says whether any bit below it
    // is set.
    while mantissa >> (MANTISSA_BITS + 2) == 0 {
        mantissa <<= 1;
        exponent -= 1;
    }
    mantissa |= u64::from(is_cut);
    while mantissa >> (MANTISSA_BITS + 3) != 0 {
        mantissa = halve(mantissa);
        exponent += 1;
    }
    while mantissa > 1 && exponent < 1 - BIAS - 2 {
        mantissa = halve(mantissa);
        exponent += 1;
    }
    let rounds_up = (mantissa & 3) | (mantissa >> 2 & 1) == 3;
    mantissa = (mantissa >> 2) + u64::from(rounds_up);
    exponent += 2;
    if mantissa >> (MANTISSA_BITS + 1) != 0 {
        mantissa >>= 1;
        exponent += 1;
    }
    if exponent > BIAS {
        return f64::INFINITY;
    }
    let is_normal = mantissa >> MANTISSA_BITS != 0;
    let kept = if is_normal { exponent + BIAS } else { 0 };
    let bits =
        mantissa & ((1 << MANTISSA_BITS) - 1) | u64::try_from(kept).unwrap_or_default() << MANTISSA_BITS;
    let double = f64::from_bits(bits);
    if written.negative { -double } else { double }
}

#[cfg(test)]
mod tests;
