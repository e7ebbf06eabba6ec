//! Equality and order of values.

use std::cmp::Ordering;

use super::{List, Map, Value};
use crate::cel::EvalError;
use crate::json::{Kind, Node};

/// Whether two values are equal. Values of different types are not, but for
/// numbers, which are equal if they are the same number.
pub(crate) fn equal(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (Value::String(left), Value::String(right)) => **left == **right,
        (Value::Int(left), Value::Int(right)) => left == right,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Null, Value::Null) => true,
        (Value::Uint(left), Value::Uint(right)) => left == right,
        (Value::Bytes(left), Value::Bytes(right)) => **left == **right,
        (Value::Duration(left), Value::Duration(right)) => left == right,
        (Value::Timestamp(left), Value::Timestamp(right)) => left == right,
        (Value::List(List::Json(left)), Value::List(List::Json(right)))
        | (Value::Map(Map::Json(left)), Value::Map(Map::Json(right))) => equal_json(*left, *right),
        (Value::List(left), Value::List(right)) => equal_lists(left, right),
        (Value::Map(left), Value::Map(right)) => equal_maps(left, right),
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(left)), Value::Optional(Some(right))) => equal(left, right),
        (Value::Type(left), Value::Type(right)) => left.runtime_name() == right.runtime_name(),
        (Value::Opaque(left), Value::Opaque(right)) => left.equals(right) == Some(true),
        _ => numbers(left, right) == Some(Ordering::Equal),
    }
}

/// How two numbers compare; none if they are no numbers, or one is not a number.
fn numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Uint(left), Value::Uint(right)) => Some(left.cmp(right)),
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(right),
        (Value::Int(left), Value::Uint(right)) => Some(int_uint(*left, *right)),
        (Value::Uint(left), Value::Int(right)) => Some(int_uint(*right, *left).reverse()),
        (Value::Double(left), Value::Int(right)) => double_int(*left, *right),
        (Value::Int(left), Value::Double(right)) => double_int(*right, *left).map(Ordering::reverse),
        (Value::Double(left), Value::Uint(right)) => double_uint(*left, *right),
        (Value::Uint(left), Value::Double(right)) => double_uint(*right, *left).map(Ordering::reverse),
        _ => None,
    }
}

fn int_uint(int: i64, uint: u64) -> Ordering {
    u64::try_from(int).map_or(Ordering::Less, |int| int.cmp(&uint))
}

/// As Go compares them: an int beyond 2^53 is rounded to a double.
#[expect(clippy::cast_precision_loss, reason = "upstream rounds the int")]
fn double_int(double: f64, int: i64) -> Option<Ordering> {
    if double < i64::MIN as f64 {
        return Some(Ordering::Less);
    }
    if double > i64::MAX as f64 {
        return Some(Ordering::Greater);
    }
    double.partial_cmp(&(int as f64))
}

#[expect(clippy::cast_precision_loss, reason = "upstream rounds the uint")]
fn double_uint(double: f64, uint: u64) -> Option<Ordering> {
    if double < 0.0 {
        return Some(Ordering::Less);
    }
    if double > u64::MAX as f64 {
        return Some(Ordering::Greater);
    }
    double.partial_cmp(&(uint as f64))
}

/// How two values compare.
///
/// # Errors
///
/// They have no order, or one is not a number.
pub(crate) fn compare(left: &Value<'_>, right: &Value<'_>) -> Result<Ordering, EvalError> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Ok((**left).cmp(&**right)),
        (Value::Bool(left), Value::Bool(right)) => Ok(left.cmp(right)),
        (Value::Bytes(left), Value::Bytes(right)) => Ok((**left).cmp(&**right)),
        (Value::Duration(left), Value::Duration(right)) => Ok(left.cmp(right)),
        (Value::Timestamp(left), Value::Timestamp(right)) => Ok(left.cmp(right)),
        _ if is_nan(left) || is_nan(right) && is_number(left) => {
            Err(EvalError::failed("NaN values cannot be ordered"))
        }
        _ => numbers(left, right).ok_or_else(EvalError::no_such_overload),
    }
}

fn is_nan(value: &Value<'_>) -> bool {
    matches!(value, Value::Double(double) if double.is_nan())
}

const fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

/// As [`equal`], of what was read: that nests as deep as somebody sent it, where what an
/// expression makes nests no deeper than it is written.
fn equal_json(left: Node<'_>, right: Node<'_>) -> bool {
    let mut pending = vec![(left, right)];
    while let Some((left, right)) = pending.pop() {
        match (left.kind(), right.kind()) {
            (Kind::Array, Kind::Array) if left.len() == right.len() => {
                pending.extend(left.items().zip(right.items()));
            }
            (Kind::Object, Kind::Object) if left.len() == right.len() => {
                for (key, value) in left.entries() {
                    let Some(other) = right.get(&key) else {
                        return false;
                    };
                    pending.push((value, other));
                }
            }
            (Kind::Array | Kind::Object, _) | (_, Kind::Array | Kind::Object) => return false,
            _ if !equal(&Value::json(left), &Value::json(right)) => return false,
            _ => {}
        }
    }
    true
}

fn equal_lists(left: &List<'_>, right: &List<'_>) -> bool {
    left.len() == right.len()
        && left
            .items()
            .zip(right.items())
            .all(|(left, right)| equal(&left, &right))
}

fn equal_maps(left: &Map<'_>, right: &Map<'_>) -> bool {
    if left.object_type() != right.object_type() || left.len() != right.len() {
        return false;
    }
    let mut entries = left.entries().into_iter();
    entries.all(|(key, value)| right.get(&key).is_some_and(|other| equal(&value, &other)))
}
