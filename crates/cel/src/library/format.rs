//! `format`: strings with `%s`, `%d`, `%f`, `%e`, `%b`, `%x`, `%X`, `%o`, `%%` (cel-go
//! `ext/formatting.go`).

use super::TextWriter;
use super::conversions::shortest;
use super::standard::{Computed, no_such_overload};
use crate::EvalError;
use crate::evaluate::Evaluation;
use crate::go_format::Quoted;
use crate::program::Call;
use crate::types::Type;
use crate::value::{Key, Map, Value};

/// The highest precision, which distinguishes any two doubles.
const MAX_PRECISION: usize = 1000;

pub(crate) fn format<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(format), Value::List(values)] = arguments else {
        return no_such_overload();
    };
    own.work(format.len())?;
    let count = values.len();
    let mut values = values.items();
    let mut out = TextWriter::new(own);
    let mut rest: &str = format;
    while let Some((before, after)) = rest.split_once('%') {
        out.push(before)?;
        if let Some(after) = after.strip_prefix('%') {
            out.push("%")?;
            rest = after;
            continue;
        }
        let Some(value) = values.next() else {
            return Err(EvalError::failed(format_args!("index {count} out of range")));
        };
        rest = write_clause(&mut out, after, &value)?;
    }
    out.push(rest)?;
    out.finish()
}

/// Checks a constant `format` for values of these types.
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

/// Whether `%s` accepts values of this type.
pub(crate) const fn is_formattable(of: &Type) -> bool {
    !matches!(of, Type::Object(_) | Type::Opaque(_) | Type::Optional(_))
}

/// Whether `clause` accepts values of this type; `None` if there is no such clause.
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

/// Writes `value` by the clause at the start of `format`, and returns the rest of `format`.
fn write_clause<'f>(
    out: &mut TextWriter<'_, '_, '_>,
    format: &'f str,
    value: &Value<'_>,
) -> Result<&'f str, EvalError> {
    let (precision, format) = precision(format)?;
    let mut characters = format.chars();
    let clause = characters
        .next()
        .ok_or_else(|| EvalError::failed("unexpected end of string"))?;
    match clause {
        's' => string(out, value, 0)?,
        'd' => out.push(&decimal(value)?)?,
        'f' => out.push(&fixed(number(value, "fixed-point")?, precision))?,
        'e' => out.push(&scientific(number(value, "scientific")?, precision))?,
        'b' => out.push(&binary(value)?)?,
        'x' => hex(out, value, HexCase::Lower)?,
        'X' => hex(out, value, HexCase::Upper)?,
        'o' => out.push(&octal(value)?)?,
        _ => {
            // Upstream takes a single byte as the character here.
            let other = format.bytes().next().map_or('\0', char::from);
            let message =
                format!("could not parse formatting clause: unrecognized formatting clause \"{other}\"");
            return Err(EvalError::failed(message));
        }
    }
    Ok(characters.as_str())
}

/// How deep a value may nest that is written by `%s`.
const MAX_LEVELS: usize = 128;

/// Parses an optional precision such as `.2`.
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
        Ok(precision) if precision <= MAX_PRECISION => Ok((precision, rest)),
        _ => Err(imprecise(&format!(
            "precision {precision} exceeds maximum allowed precision {MAX_PRECISION}"
        ))),
    }
}

fn imprecise(why: &str) -> EvalError {
    EvalError::failed(format_args!(
        "could not parse formatting clause: error while parsing precision: {why}"
    ))
}

fn string(out: &mut TextWriter<'_, '_, '_>, value: &Value<'_>, level: usize) -> Result<(), EvalError> {
    out.evaluation.work(1)?;
    if level > MAX_LEVELS {
        return Err(EvalError::failed("the value to be formatted nests too deep"));
    }
    match value {
        Value::Null => out.push("null"),
        Value::Bool(value) => out.display(value),
        Value::Int(_) | Value::Uint(_) => out.push(&decimal(value)?),
        Value::Double(double) => out.push(&shortest(*double)),
        Value::String(text) => out.push(text),
        Value::Bytes(bytes) => {
            out.evaluation.work(bytes.len())?;
            out.push(utf8(bytes)?)
        }
        Value::Duration(duration) => out.display(duration),
        Value::Timestamp(timestamp) => out.display(timestamp),
        Value::Type(of) => out.push(&of.runtime_name()),
        Value::List(list) => {
            out.push("[")?;
            for (position, item) in list.items().enumerate() {
                out.push(if position > 0 { ", " } else { "" })?;
                write_element(out, &item, level + 1)?;
            }
            out.push("]")
        }
        Value::Map(map) if map.object_type().is_none() => write_map(out, map, level),
        other => {
            let takes = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps";
            Err(not_accepted("string", takes, other))
        }
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, EvalError> {
    std::str::from_utf8(bytes).map_err(|_| {
        let fault = "invalid UTF-8 in bytes, cannot convert to string";
        EvalError::failed(format_args!(
            "error during formatting: could not convert argument \"{fault}\" to string"
        ))
    })
}

/// The bytes of memory for sorting an entry of a map, besides the string of its key.
const BYTES_PER_ENTRY: usize = 2 * (size_of::<(Value<'_>, Value<'_>)>() + size_of::<String>());

fn write_map(out: &mut TextWriter<'_, '_, '_>, map: &Map<'_>, level: usize) -> Result<(), EvalError> {
    let before = out.evaluation.room() + out.allocated();
    let written = sorted_entries(out, map, level).and_then(|sorted| write_entries(out, &sorted, level));
    // Releases what was allocated for sorting; the text itself remains allocated.
    out.evaluation
        .release(before - out.allocated() - out.evaluation.room());
    written
}

/// Each key as it is written, and its value, sorted by these strings.
fn sorted_entries<'a>(
    out: &mut TextWriter<'_, '_, '_>,
    map: &Map<'a>,
    level: usize,
) -> Result<Vec<(String, Value<'a>)>, EvalError> {
    out.evaluation.work(map.len())?;
    out.evaluation
        .allocate(map.len().saturating_mul(BYTES_PER_ENTRY))?;
    let named = map
        .entries()
        .map(|(key, value)| Ok((key_text(out, &key, level)?, value)));
    let mut named = named.collect::<Result<Vec<_>, EvalError>>()?;
    let levels = named.len().checked_ilog2().unwrap_or_default() as usize;
    out.evaluation.work(named.len() * levels)?;
    named.sort_by(|(left, _), (right, _)| left.cmp(right));
    Ok(named)
}

/// Writes the key of a map. Its memory remains allocated.
fn key_text(out: &mut TextWriter<'_, '_, '_>, key: &Value<'_>, level: usize) -> Result<String, EvalError> {
    if !matches!(
        Key::new(key),
        Some(Key::Bool(_) | Key::Int(_) | Key::Uint(_) | Key::String(_))
    ) {
        return Err(EvalError::failed(format_args!(
            "error during formatting: no formatting function for map key of type {}",
            key.type_of().runtime_name()
        )));
    }
    let mut text = TextWriter::new(out.evaluation);
    write_element(&mut text, key, level + 1)?;
    let allocated = text.allocated();
    let text = text.into_string();
    out.evaluation.allocate(allocated)?;
    Ok(text)
}

fn write_entries(
    out: &mut TextWriter<'_, '_, '_>,
    entries: &[(String, Value<'_>)],
    level: usize,
) -> Result<(), EvalError> {
    out.push("{")?;
    for (position, (key, value)) in entries.iter().enumerate() {
        out.push(if position > 0 { ", " } else { "" })?;
        out.push(key)?;
        out.push(":")?;
        write_element(out, value, level + 1)?;
    }
    out.push("}")
}

/// Writes a value within a list or a map, where it looks like a CEL literal.
fn write_element(out: &mut TextWriter<'_, '_, '_>, value: &Value<'_>, level: usize) -> Result<(), EvalError> {
    match value {
        Value::String(text) => out.display(Quoted(text)),
        Value::Bytes(bytes) => {
            out.evaluation.work(bytes.len())?;
            out.display(format_args!("b{}", Quoted(utf8(bytes)?)))
        }
        Value::Timestamp(timestamp) => out.display(format_args!("timestamp(\"{timestamp}\")")),
        Value::Duration(duration) => out.display(format_args!("duration(\"{duration}\")")),
        Value::Double(double) if double.is_finite() => out.display(format_args!("{double:.PRECISION$}")),
        Value::Double(double) => out.display(Quoted(&shortest(*double))),
        other if !is_written(other) => Err(EvalError::failed(format_args!(
            "error during formatting: no formatting function for {}",
            other.type_of().runtime_name()
        ))),
        other => string(out, other, level),
    }
}

/// Whether `%s` accepts the value.
fn is_written(value: &Value<'_>) -> bool {
    match value {
        Value::Map(map) => map.object_type().is_none(),
        Value::Optional(_) | Value::Opaque(_) => false,
        _ => true,
    }
}

// Numbers as the clauses of `format` write them, and the errors for values that a clause does not
// accept.

/// The default number of digits after the point.
const PRECISION: usize = 6;

fn not_accepted(clause: &str, takes: &str, value: &Value<'_>) -> EvalError {
    EvalError::failed(format_args!(
        "error during formatting: {clause} clause can only be used on {takes}, was given {}",
        value.type_of().runtime_name()
    ))
}

fn decimal(value: &Value<'_>) -> Result<String, EvalError> {
    match value {
        Value::Int(int) => Ok(int.to_string()),
        Value::Uint(uint) => Ok(uint.to_string()),
        other => Err(not_accepted("decimal", "integers", other)),
    }
}

fn number(value: &Value<'_>, clause: &str) -> Result<f64, EvalError> {
    match value {
        Value::Double(double) => Ok(*double),
        Value::String(text) => match &**text {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => Err(not_accepted(clause, "doubles", value)),
        },
        other => Err(not_accepted(clause, "doubles", other)),
    }
}

/// NaN and infinity.
fn special(double: f64) -> Option<String> {
    match double {
        _ if double.is_nan() => Some("NaN".into()),
        _ if double.is_infinite() => Some(if double > 0.0 { "∞".into() } else { "-∞".into() }),
        _ => None,
    }
}

/// Removes the sign of zero, which is not written.
fn unsigned_zero(double: f64) -> f64 {
    if double == 0.0 { 0.0 } else { double }
}

/// Fixed-point notation with commas between groups of three digits, as in English.
fn fixed(double: f64, precision: usize) -> String {
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

/// Scientific notation as in print: `1.500000×10⁰³`. As upstream, the precision is a minimal width
/// here.
fn scientific(double: f64, width: usize) -> String {
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

fn binary(value: &Value<'_>) -> Result<String, EvalError> {
    match value {
        Value::Int(int) if *int < 0 => Ok(format!("-{:b}", int.unsigned_abs())),
        Value::Int(int) => Ok(format!("{int:b}")),
        Value::Uint(uint) => Ok(format!("{uint:b}")),
        Value::Bool(value) => Ok(u8::from(*value).to_string()),
        other => Err(EvalError::failed(format_args!(
            "error during formatting: only integers and bools can be formatted as binary, was given {}",
            other.type_of().runtime_name()
        ))),
    }
}

/// The case of hexadecimal digits.
#[derive(Clone, Copy)]
enum HexCase {
    Lower,
    Upper,
}

fn hex(out: &mut TextWriter<'_, '_, '_>, value: &Value<'_>, case: HexCase) -> Result<(), EvalError> {
    let number = |sign: &str, number: u64| match case {
        HexCase::Lower => format!("{sign}{number:x}"),
        HexCase::Upper => format!("{sign}{number:X}"),
    };
    match value {
        Value::Int(int) => out.push(&number(if *int < 0 { "-" } else { "" }, int.unsigned_abs())),
        Value::Uint(uint) => out.push(&number("", *uint)),
        Value::String(text) => hex_of(out, text.as_bytes(), case),
        Value::Bytes(bytes) => hex_of(out, bytes, case),
        other => Err(EvalError::failed(format_args!(
            "error during formatting: only integers, byte buffers, and strings can be formatted as hex, was given {}",
            other.type_of().runtime_name()
        ))),
    }
}

fn hex_of(out: &mut TextWriter<'_, '_, '_>, bytes: &[u8], case: HexCase) -> Result<(), EvalError> {
    out.reserve(bytes.len().saturating_mul(2))?;
    bytes.iter().try_for_each(|byte| match case {
        HexCase::Lower => out.display(format_args!("{byte:02x}")),
        HexCase::Upper => out.display(format_args!("{byte:02X}")),
    })
}

fn octal(value: &Value<'_>) -> Result<String, EvalError> {
    match value {
        Value::Int(int) if *int < 0 => Ok(format!("-{:o}", int.unsigned_abs())),
        Value::Int(int) => Ok(format!("{int:o}")),
        Value::Uint(uint) => Ok(format!("{uint:o}")),
        other => Err(not_accepted("octal", "integers", other)),
    }
}
