//! Numbers as the clauses of `format` write them, and what a clause says of a value that it does
//! not take.

use std::fmt::Write;

use crate::error::EvalError;
use crate::value::Value;

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
