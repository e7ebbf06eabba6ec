//! Scalars as Go reads and writes them.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use crate::engine::admission::apply::schema::Scalar;
use portcullis_cel::json::{Kind, Node, write_string};
use portcullis_cel::{Quantity, Timestamp};

/// Go's `base64.StdEncoding`.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The digits of a second that `metav1.MicroTime` has.
const MICRO_DIGITS: usize = 6;

/// The value as Go writes it, which is a scalar of its type's class or goes into `[]byte`.
///
/// # Errors
///
/// Why Go does not read it.
pub(crate) fn encoded(of: Scalar, node: Node<'_>, reading: DecodeMode) -> Result<Cow<'_, str>, String> {
    let text = node.as_str();
    match (of, text) {
        (Scalar::Int32, _) => integer(node, reading, |value| match reading {
            #[expect(clippy::cast_possible_truncation, reason = "as upstream")]
            DecodeMode::Values => Some(i64::from(value as i32)),
            DecodeMode::Strict | DecodeMode::Lenient => i32::try_from(value).ok().map(i64::from),
        }),
        (Scalar::Int64, _) => integer(node, reading, Some),
        (Scalar::IntOrString, None) => {
            integer(node, reading, |value| i32::try_from(value).ok().map(i64::from))
        }
        (Scalar::Quantity, _) => {
            let written = node.raw();
            let written = written
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'))
                .unwrap_or(written);
            let amount = Quantity::canonical(written.trim()).map_err(|fault| fault.to_string())?;
            Ok(quoted(&amount))
        }
        (Scalar::Bytes, Some(text)) => {
            let mut text = text.into_owned();
            text.retain(|one| !matches!(one, '\r' | '\n'));
            let bytes = BASE64
                .decode(text)
                .map_err(|error| format!("illegal base64 data: {error}"))?;
            Ok(quoted(&BASE64.encode(bytes)))
        }
        // Go reads a list of numbers, too.
        (Scalar::Bytes, None) => {
            let bytes = node.items().map(|item| byte(item, reading));
            let bytes: Option<Vec<u8>> = bytes.collect();
            let bytes = bytes.filter(|_| node.kind() == Kind::Array);
            bytes
                .map(|bytes| quoted(&BASE64.encode(bytes)))
                .ok_or_else(|| format!("expected string, got {}", node.raw()))
        }
        (Scalar::Time, Some(text)) => seconds(&text)
            .map(|time| quoted(&time))
            .ok_or_else(|| no_time(node)),
        (Scalar::MicroTime, Some(text)) => micro(&text)
            .map(|time| quoted(&time))
            .ok_or_else(|| no_time(node)),
        (Scalar::Time | Scalar::MicroTime, None) => Err(no_time(node)),
        (Scalar::Any | Scalar::String | Scalar::Double | Scalar::Boolean, _) => Ok(Cow::Borrowed(node.raw())),
        (Scalar::IntOrString, Some(_)) => Ok(Cow::Borrowed(node.raw())),
    }
}

/// What Go writes of one that was not set.
pub(crate) const fn zero(of: Scalar) -> &'static str {
    match of {
        Scalar::String => "\"\"",
        Scalar::Quantity => "\"0\"",
        Scalar::IntOrString | Scalar::Int32 | Scalar::Int64 | Scalar::Double => "0",
        Scalar::Boolean => "false",
        Scalar::Bytes | Scalar::Time | Scalar::MicroTime | Scalar::Any => "null",
    }
}

fn integer(
    node: Node<'_>,
    reading: DecodeMode,
    fits: impl Fn(i64) -> Option<i64>,
) -> Result<Cow<'_, str>, String> {
    let raw = node.raw();
    let whole = match reading {
        DecodeMode::Strict | DecodeMode::Lenient => raw.parse().ok(),
        DecodeMode::Values => raw.parse().ok().or_else(|| whole(node)),
    };
    match whole.filter(|_| node.kind() == Kind::Number).and_then(fits) {
        Some(value) => Ok(Cow::Owned(value.to_string())),
        None => Err(format!("expected an integer that fits, got {raw}")),
    }
}

fn byte(item: Node<'_>, reading: DecodeMode) -> Option<u8> {
    if item.is_null() {
        return Some(0);
    }
    let read = integer(item, reading, |value| match reading {
        DecodeMode::Values => Some(value.rem_euclid(256)),
        DecodeMode::Strict | DecodeMode::Lenient => u8::try_from(value).ok().map(i64::from),
    });
    read.ok()?.parse().ok()
}

/// The integer that a double is.
fn whole(node: Node<'_>) -> Option<i64> {
    const LIMIT: f64 = 9.0e18;
    let value = node.as_f64()?;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and fits")]
    let whole = value as i64;
    (value.fract() == 0.0 && value.abs() < LIMIT).then_some(whole)
}

/// To the second, in UTC.
fn seconds(text: &str) -> Option<String> {
    let time = Timestamp::parse(text)?;
    Some(Timestamp::from_seconds(time.seconds())?.to_string())
}

/// To the microsecond, which must be written with all its digits.
fn micro(text: &str) -> Option<String> {
    let (_, fraction) = text.split_once('.')?;
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    if digits != MICRO_DIGITS {
        return None;
    }
    let time = Timestamp::parse(text)?;
    let second = Timestamp::from_seconds(time.seconds())?.to_string();
    let micros = time.nanoseconds() / 1_000;
    Some(format!("{}.{micros:06}Z", second.trim_end_matches('Z')))
}

fn no_time(node: Node<'_>) -> String {
    format!("parsing time {}: no time in RFC 3339", node.raw())
}

fn quoted(text: &str) -> Cow<'static, str> {
    let mut out = String::with_capacity(text.len() + 2);
    write_string(&mut out, text);
    Cow::Owned(out)
}

// How objects are read.

/// How an object that was changed is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeMode {
    /// As JSON, in which a field that no API server had yet is an error.
    Strict,
    /// As JSON.
    Lenient,
    /// As values of an expression, which convert more freely: numbers that are too large wrap
    /// (`FromUnstructured` of `apimachinery/pkg/runtime/converter.go`).
    Values,
}
