//! Equality and order of values.

use std::cmp::Ordering;

use super::{List, Map, Value};
use crate::EvalError;

/// Called before each piece of work, with its steps; may stop it.
pub(crate) type Work<'w> = &'w mut dyn FnMut(usize) -> Result<(), EvalError>;

/// How many bytes of text are one step of work.
const BYTES_PER_STEP: usize = 16;

/// The steps that comparing a pair of values takes, beside what is in them.
const STEPS_PER_PAIR: usize = 16;

/// Whether two values are equal. Values of different types are not, but for
/// numbers, which are equal if they are the same number.
///
/// # Errors
///
/// What `work` ended it with.
pub(crate) fn equal(left: &Value<'_>, right: &Value<'_>, work: Work<'_>) -> Result<bool, EvalError> {
    // Lists and maps that are not compared to their end yet, the innermost last.
    let mut open = Vec::new();
    work(STEPS_PER_PAIR)?;
    if is_incomparable(left, right) || !alike(left, right, &mut open, work)? {
        return Ok(false);
    }
    while let Some(pair) = open.last_mut() {
        let Some((left, right)) = pair.next() else {
            open.pop();
            continue;
        };
        work(STEPS_PER_PAIR)?;
        let alike = match right {
            // Upstream goes on where asking is an error.
            Some(right) => is_incomparable(&left, &right) || alike(&left, &right, &mut open, work)?,
            None => false,
        };
        if !alike {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether asking if both are equal is an error: a value of a library beside one
/// of another type, and what [`Opaque::equals`] does not tell.
///
/// [`Opaque::equals`]: super::Opaque::equals
pub(crate) fn is_incomparable(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (Value::Opaque(_), Value::Null) => false,
        (Value::Opaque(left), Value::Opaque(right)) => left.equals(right).is_none(),
        (Value::Opaque(_), _) => true,
        // Null is not told from others in an optional.
        (Value::Optional(Some(left)), Value::Optional(Some(right))) => {
            is_incomparable(left, right) || matches!((&**left, &**right), (Value::Opaque(_), Value::Null))
        }
        _ => false,
    }
}

/// Two lists of one length, or two maps.
enum ComparedPair<'l, 'r> {
    Lists(List<'l>, List<'r>, usize),
    Maps(std::vec::IntoIter<(Value<'l>, Value<'l>)>, Map<'r>),
}

impl<'l, 'r> ComparedPair<'l, 'r> {
    /// The next item of the left one, and what the right one has in its place.
    fn next(&mut self) -> Option<(Value<'l>, Option<Value<'r>>)> {
        match self {
            Self::Lists(left, right, next) => {
                let item = left.get(*next)?;
                *next += 1;
                Some((item, right.get(*next - 1)))
            }
            Self::Maps(left, right) => {
                let (key, value) = left.next()?;
                Some((value, right.get(&key)))
            }
        }
    }
}

/// Whether two values are equal, as far as is known before their contents are
/// compared, which is then `open`.
fn alike<'l, 'r>(
    left: &Value<'l>,
    right: &Value<'r>,
    open: &mut Vec<ComparedPair<'l, 'r>>,
    work: Work<'_>,
) -> Result<bool, EvalError> {
    Ok(match (left, right) {
        (Value::String(left), Value::String(right)) => same_bytes(left.as_bytes(), right.as_bytes(), work)?,
        (Value::Int(left), Value::Int(right)) => left == right,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Null, Value::Null) | (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Uint(left), Value::Uint(right)) => left == right,
        (Value::Bytes(left), Value::Bytes(right)) => same_bytes(left, right, work)?,
        (Value::Duration(left), Value::Duration(right)) => left == right,
        (Value::Timestamp(left), Value::Timestamp(right)) => left == right,
        (Value::List(left), Value::List(right)) => {
            open.push(ComparedPair::Lists(left.clone(), right.clone(), 0));
            left.len() == right.len()
        }
        (Value::Map(left), Value::Map(right)) => {
            if left.object_type() != right.object_type() || left.len() != right.len() {
                return Ok(false);
            }
            work(STEPS_PER_PAIR * left.len())?;
            open.push(ComparedPair::Maps(left.entries().into_iter(), right.clone()));
            true
        }
        (Value::Optional(Some(left)), Value::Optional(Some(right))) => alike(left, right, open, work)?,
        (Value::Type(left), Value::Type(right)) => left.runtime_name() == right.runtime_name(),
        (Value::Opaque(left), Value::Opaque(right)) => left.equals(right) == Some(true),
        _ => numbers(left, right) == Some(Ordering::Equal),
    })
}

fn same_bytes(left: &[u8], right: &[u8], work: Work<'_>) -> Result<bool, EvalError> {
    if left.len() != right.len() {
        return Ok(false);
    }
    work(left.len() / BYTES_PER_STEP)?;
    Ok(left == right)
}

/// How many steps it takes to compare two values that have an order.
pub(crate) fn steps_of_order(left: &Value<'_>, right: &Value<'_>) -> usize {
    let bytes = match (left, right) {
        (Value::String(left), Value::String(right)) => left.len().min(right.len()),
        (Value::Bytes(left), Value::Bytes(right)) => left.len().min(right.len()),
        _ => 0,
    };
    1 + bytes / BYTES_PER_STEP
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
