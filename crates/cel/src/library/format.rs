//! `format`: text with `%s`, `%d`, `%f`, `%e`, `%b`, `%x`, `%X`, `%o`, `%%`
//! (cel-go `ext/formatting.go`).

use std::fmt::Write;

use super::conversions::shortest;
use super::standard::{Computed, mismatched};
use crate::error::EvalError;
use crate::evaluate::Evaluation;
use crate::program::Call;
use crate::quote::quote;
use crate::types::Type;
use crate::value::{Key, Text, Value};

/// At least as many digits as distinguish two doubles.
const MOST_PRECISION: usize = 1000;

pub(crate) fn format<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(format), Value::List(values)] = arguments else {
        return mismatched();
    };
    own.work(format.len())?;
    let count = values.len();
    let mut values = values.items();
    let mut text = String::with_capacity(format.len());
    let mut rest: &str = format;
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            text.push('%');
            rest = after;
            continue;
        }
        let Some(value) = values.next() else {
            return Err(EvalError::failed(format!("index {count} out of range")));
        };
        rest = clause(own, after, &value, &mut text)?;
        own.has_room(text.len())?;
    }
    text.push_str(rest);
    own.allocate(text.len() + Text::BYTES)?;
    Ok(Value::String(Text::from(text)))
}

/// Finds what is wrong with a constant `format` of values of these types.
pub(crate) fn check(format: &str, types: &[Type]) -> Result<(), String> {
    let mut seen = 0;
    let mut rest = format;
    while let Some((_, after)) = rest.split_once('%') {
        if let Some(after) = after.strip_prefix('%') {
            rest = after;
            continue;
        }
        let of = types
            .get(seen)
            .ok_or_else(|| format!("index {seen} out of range"))?;
        let (_, after) = precision(after).map_err(|error| error.to_string())?;
        let mut characters = after.chars();
        let clause = characters.next().ok_or("unexpected end of string")?;
        if !takes(clause, of).ok_or_else(|| format!("unrecognized formatting clause \"{clause}\""))? {
            return Err(format!(
                "error during formatting: clause \"{clause}\" cannot be used on {of}"
            ));
        }
        rest = characters.as_str();
        seen += 1;
    }
    if types.len() > seen {
        let given = types.len();
        return Err(format!(
            "too many arguments supplied to string.format (expected {seen}, got {given})"
        ));
    }
    Ok(())
}

/// Whether `%s` takes values of this type.
pub(crate) const fn is_formattable(of: &Type) -> bool {
    !matches!(of, Type::Object(_) | Type::Opaque(_) | Type::Optional(_))
}

/// Whether `clause` takes values of this type; none if there is no such clause.
fn takes(clause: char, of: &Type) -> Option<bool> {
    let is_int = matches!(of, Type::Int | Type::Uint | Type::Dyn);
    Some(match clause {
        's' => is_formattable(of),
        'd' | 'o' => is_int,
        'f' | 'e' => matches!(of, Type::Double | Type::String | Type::Dyn),
        'b' => is_int || *of == Type::Bool,
        'x' | 'X' => is_int || matches!(of, Type::String | Type::Bytes),
        _ => return None,
    })
}

/// Writes `value` as the clause at the beginning of `format`, and returns the rest.
fn clause<'f>(
    own: &mut Evaluation<'_, '_>,
    format: &'f str,
    value: &Value<'_>,
    text: &mut String,
) -> Result<&'f str, EvalError> {
    let (precision, format) = precision(format)?;
    let mut characters = format.chars();
    let clause = characters
        .next()
        .ok_or_else(|| EvalError::failed("unexpected end of string"))?;
    match clause {
        's' => string(own, value, text, 0)?,
        'd' => text.push_str(&decimal(value)?),
        'f' => text.push_str(&fixed(number(value, "fixed-point")?, precision)),
        'e' => text.push_str(&scientific(number(value, "scientific")?, precision)),
        'b' => text.push_str(&binary(value)?),
        'x' => text.push_str(&hex(value)?),
        'X' => text.push_str(&hex(value)?.to_uppercase()),
        'o' => text.push_str(&octal(value)?),
        _ => {
            // A byte is a character to upstream.
            let other = format.bytes().next().map_or('\0', char::from);
            let message =
                format!("could not parse formatting clause: unrecognized formatting clause \"{other}\"");
            return Err(EvalError::failed(message));
        }
    }
    Ok(characters.as_str())
}

/// How deep a value may nest that `%s` writes.
const MOST_LEVELS: usize = 128;

/// `.2` and its like.
fn precision(format: &str) -> Result<(usize, &str), EvalError> {
    let Some(digits) = format.strip_prefix('.') else {
        return Ok((PRECISION, format));
    };
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = digits.split_at(length);
    if rest.is_empty() {
        return Err(imprecise("could not find end of precision specifier"));
    }
    let precision = digits.parse::<i64>().map_err(|_| {
        let why = if digits.is_empty() {
            "invalid syntax"
        } else {
            "value out of range"
        };
        imprecise(&format!(
            "error while converting precision to integer: strconv.Atoi: parsing \"{digits}\": {why}"
        ))
    })?;
    match usize::try_from(precision) {
        Ok(precision) if precision <= MOST_PRECISION => Ok((precision, rest)),
        _ => Err(imprecise(&format!(
            "precision {precision} exceeds maximum allowed precision {MOST_PRECISION}"
        ))),
    }
}

fn imprecise(why: &str) -> EvalError {
    EvalError::failed(format!(
        "could not parse formatting clause: error while parsing precision: {why}"
    ))
}

fn string(
    own: &mut Evaluation<'_, '_>,
    value: &Value<'_>,
    text: &mut String,
    level: usize,
) -> Result<(), EvalError> {
    own.work(1)?;
    if level > MOST_LEVELS {
        return Err(EvalError::failed("the value to be formatted nests too deep"));
    }
    let before = text.len();
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Value::Int(_) | Value::Uint(_) => text.push_str(&decimal(value)?),
        Value::Double(double) => text.push_str(&shortest(*double)),
        Value::String(own) => text.push_str(own),
        Value::Bytes(bytes) => text.push_str(utf8(bytes)?),
        Value::Duration(duration) => written(text, duration),
        Value::Timestamp(timestamp) => written(text, timestamp),
        Value::Type(of) => text.push_str(&of.runtime_name()),
        Value::List(list) => {
            own.work(list.len())?;
            text.push('[');
            for (position, item) in list.items().enumerate() {
                text.push_str(if position > 0 { ", " } else { "" });
                member(own, &item, text, level + 1)?;
            }
            text.push(']');
        }
        Value::Map(map) if map.object_type().is_none() => {
            own.work(map.len())?;
            entries(own, map.entries(), text, level)?;
        }
        other => {
            let takes = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps";
            return Err(unfit("string", takes, other));
        }
    }
    own.work(text.len() - before)?;
    own.has_room(text.len())
}

fn utf8(bytes: &[u8]) -> Result<&str, EvalError> {
    std::str::from_utf8(bytes).map_err(|_| {
        let fault = "invalid UTF-8 in bytes, cannot convert to string";
        EvalError::failed(format!(
            "error during formatting: could not convert argument \"{fault}\" to string"
        ))
    })
}

fn entries(
    own: &mut Evaluation<'_, '_>,
    entries: Vec<(Value<'_>, Value<'_>)>,
    text: &mut String,
    level: usize,
) -> Result<(), EvalError> {
    let mut written = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        if !matches!(
            Key::new(&key),
            Some(Key::Bool(_) | Key::Int(_) | Key::Uint(_) | Key::String(_))
        ) {
            return Err(EvalError::failed(format!(
                "error during formatting: no formatting function for map key of type {}",
                key.type_of().runtime_name()
            )));
        }
        let (mut own_key, mut own_value) = (String::new(), String::new());
        member(own, &key, &mut own_key, level + 1)?;
        member(own, &value, &mut own_value, level + 1)?;
        own.allocate(own_key.len() + own_value.len() + 2 * Text::BYTES)?;
        written.push((own_key, own_value));
    }
    let levels = written.len().checked_ilog2().unwrap_or_default() as usize;
    own.work(written.len() * levels)?;
    written.sort_by(|(left, _), (right, _)| left.cmp(right));
    text.push('{');
    for (position, (key, value)) in written.iter().enumerate() {
        text.push_str(if position > 0 { ", " } else { "" });
        text.push_str(key);
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    Ok(())
}

/// A value within a list or a map: as CEL would have it written.
fn member(
    own: &mut Evaluation<'_, '_>,
    value: &Value<'_>,
    text: &mut String,
    level: usize,
) -> Result<(), EvalError> {
    match value {
        Value::String(string) => quote(text, string),
        Value::Bytes(bytes) => {
            text.push('b');
            quote(text, utf8(bytes)?);
        }
        Value::Timestamp(timestamp) => written(text, format_args!("timestamp(\"{timestamp}\")")),
        Value::Duration(duration) => written(text, format_args!("duration(\"{duration}\")")),
        Value::Double(double) if double.is_finite() => written(text, format_args!("{double:.PRECISION$}")),
        Value::Double(double) => quote(text, &shortest(*double)),
        other if !is_written(other) => {
            return Err(EvalError::failed(format!(
                "error during formatting: no formatting function for {}",
                other.type_of().runtime_name()
            )));
        }
        other => string(own, other, text, level)?,
    }
    Ok(())
}

/// Whether `%s` takes the value.
fn is_written(value: &Value<'_>) -> bool {
    match value {
        Value::Map(map) => map.object_type().is_none(),
        Value::Optional(_) | Value::Opaque(_) => false,
        _ => true,
    }
}

// Numbers as the clauses of `format` write them, and what a clause says of a value that it does
// not take.

/// Digits after the point unless others are asked for.
pub(crate) const PRECISION: usize = 6;

pub(crate) fn unfit(clause: &str, takes: &str, value: &Value<'_>) -> EvalError {
    EvalError::failed(format!(
        "error during formatting: {clause} clause can only be used on {takes}, was given {}",
        value.type_of().runtime_name()
    ))
}

/// Writing to text does not fail.
pub(crate) fn written(text: &mut String, value: impl std::fmt::Display) {
    let _ = write!(text, "{value}");
}

pub(crate) fn decimal(value: &Value<'_>) -> Result<String, EvalError> {
    match value {
        Value::Int(int) => Ok(int.to_string()),
        Value::Uint(uint) => Ok(uint.to_string()),
        other => Err(unfit("decimal", "integers", other)),
    }
}

pub(crate) fn number(value: &Value<'_>, clause: &str) -> Result<f64, EvalError> {
    match value {
        Value::Double(double) => Ok(*double),
        Value::String(text) => match &**text {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => Err(unfit(clause, "doubles", value)),
        },
        other => Err(unfit(clause, "doubles", other)),
    }
}

/// A number that is none, or has no end.
fn special(double: f64) -> Option<String> {
    match double {
        _ if double.is_nan() => Some("NaN".into()),
        _ if double.is_infinite() => Some(if double > 0.0 { "∞".into() } else { "-∞".into() }),
        _ => None,
    }
}

/// Zero without its sign, which is not written.
fn unsigned_zero(double: f64) -> f64 {
    if double == 0.0 { 0.0 } else { double }
}

/// With a comma after each three digits, as in English.
pub(crate) fn fixed(double: f64, precision: usize) -> String {
    special(double).unwrap_or_else(|| {
        let plain = format!("{:.precision$}", unsigned_zero(double));
        let (whole, fraction) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
        let (sign, digits) = match whole.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => ("", whole),
        };
        let mut grouped = String::new();
        for (position, digit) in digits.chars().enumerate() {
            if position > 0 && (digits.len() - position) % 3 == 0 {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        format!("{sign}{grouped}{fraction}")
    })
}

/// As in English print: `1.500000×10⁰³`. What looks like a precision is a width
/// upstream, and stays one here.
pub(crate) fn scientific(double: f64, width: usize) -> String {
    let text = special(double).unwrap_or_else(|| {
        let plain = format!("{:.PRECISION$e}", unsigned_zero(double));
        let (digits, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
        let exponent: i32 = exponent.parse().unwrap_or_default();
        let sign = if exponent < 0 { "⁻" } else { "" };
        let raised: String = format!("{:02}", exponent.abs())
            .chars()
            .filter_map(superscript)
            .collect();
        format!("{digits}×10{sign}{raised}")
    });
    format!("{text:>width$}")
}

fn superscript(digit: char) -> Option<char> {
    "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit.to_digit(10)? as usize)
}

pub(crate) fn binary(value: &Value<'_>) -> Result<String, EvalError> {
    match value {
        Value::Int(int) if *int < 0 => Ok(format!("-{:b}", int.unsigned_abs())),
        Value::Int(int) => Ok(format!("{int:b}")),
        Value::Uint(uint) => Ok(format!("{uint:b}")),
        Value::Bool(value) => Ok(u8::from(*value).to_string()),
        other => Err(EvalError::failed(format!(
            "error during formatting: only integers and bools can be formatted as binary, was given {}",
            other.type_of().runtime_name()
        ))),
    }
}

pub(crate) fn hex(value: &Value<'_>) -> Result<String, EvalError> {
    match value {
        Value::Int(int) if *int < 0 => Ok(format!("-{:x}", int.unsigned_abs())),
        Value::Int(int) => Ok(format!("{int:x}")),
        Value::Uint(uint) => Ok(format!("{uint:x}")),
        Value::String(text) => Ok(hex_of(text.as_bytes())),
        Value::Bytes(bytes) => Ok(hex_of(bytes)),
        other => Err(EvalError::failed(format!(
            "error during formatting: only integers, byte buffers, and strings can be formatted as hex, was given {}",
            other.type_of().runtime_name()
        ))),
    }
}

fn hex_of(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            written(&mut text, format_args!("{byte:02x}"));
            text
        })
}

pub(crate) fn octal(value: &Value<'_>) -> Result<String, EvalError> {
    match value {
        Value::Int(int) if *int < 0 => Ok(format!("-{:o}", int.unsigned_abs())),
        Value::Int(int) => Ok(format!("{int:o}")),
        Value::Uint(uint) => Ok(format!("{uint:o}")),
        other => Err(unfit("octal", "integers", other)),
    }
}
