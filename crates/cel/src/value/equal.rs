//! Equality and order of values.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use super::{List, Map, MapEntries, Text, Value};
use crate::EvalError;

/// Called with the number of steps before each piece of work. An error stops the work.
pub(crate) type Work<'w> = &'w mut dyn FnMut(usize) -> Result<(), EvalError>;

/// The bytes of a string that count as one step.
const BYTES_PER_STEP: usize = 16;

/// The steps of comparing a pair of values, besides their contents.
const STEPS_PER_PAIR: usize = 16;

/// Whether two values are equal. Values of different types are not, except equal numbers.
///
/// # Errors
///
/// The error of `work`.
pub(crate) fn equal(left: &Value<'_>, right: &Value<'_>, work: Work<'_>) -> Result<bool, EvalError> {
    // Lists and maps that are not compared to their end yet, innermost last.
    let mut open = Vec::new();
    work(STEPS_PER_PAIR)?;
    if is_incomparable(left, right) || !equal_shallow(left, right, &mut open, work)? {
        return Ok(false);
    }
    while let Some(pair) = open.last_mut() {
        let Some((left, right)) = pair.next() else {
            open.pop();
            continue;
        };
        work(STEPS_PER_PAIR)?;
        let alike = match right {
            // Within lists and maps, upstream ignores that two values cannot be compared.
            Some(right) => is_incomparable(&left, &right) || equal_shallow(&left, &right, &mut open, work)?,
            None => false,
        };
        if !alike {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether it is an error to compare both: a value of a library type with one of another type, and
/// values for which [`Opaque::equals`] returns `None`.
///
/// [`Opaque::equals`]: super::Opaque::equals
pub(crate) fn is_incomparable(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (Value::Opaque(_), Value::Null) => false,
        (Value::Opaque(left), Value::Opaque(right)) => left.equals(right).is_none(),
        (Value::Opaque(_), _) => true,
        // Within optionals, `null` is no exception.
        (Value::Optional(Some(left)), Value::Optional(Some(right))) => {
            is_incomparable(left, right) || matches!((&**left, &**right), (Value::Opaque(_), Value::Null))
        }
        _ => false,
    }
}

/// Two lists or two maps that are being compared.
enum ComparedPair<'l, 'r> {
    Lists(List<'l>, List<'r>, usize),
    Maps(MapEntries<'l>, Map<'r>),
}

impl<'l, 'r> ComparedPair<'l, 'r> {
    /// The next item of the left one, and the item of the right one with the same index or key.
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

/// Compares two values without the contents of lists and maps, which are added to `open` and remain
/// to be compared.
fn equal_shallow<'l, 'r>(
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
            open.push(ComparedPair::Maps(left.entries(), right.clone()));
            true
        }
        (Value::Optional(Some(left)), Value::Optional(Some(right))) => {
            equal_shallow(left, right, open, work)?
        }
        (Value::Type(left), Value::Type(right)) => left.runtime_name() == right.runtime_name(),
        (Value::Opaque(left), Value::Opaque(right)) => {
            work(left.bytes().max(right.bytes()))?;
            left.equals(right) == Some(true)
        }
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

/// The steps of ordering two values.
pub(crate) fn steps_of_order(left: &Value<'_>, right: &Value<'_>) -> usize {
    let bytes = match (left, right) {
        (Value::String(left), Value::String(right)) => left.len().min(right.len()),
        (Value::Bytes(left), Value::Bytes(right)) => left.len().min(right.len()),
        _ => 0,
    };
    1 + bytes / BYTES_PER_STEP
}

/// Compares two numbers; `None` if one is NaN or not a number.
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

/// Compares as Go does: an int beyond 2^53 is rounded to a double.
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

/// Compares two values that have an order.
///
/// # Errors
///
/// They have no order, or one is NaN.
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

// The keys of maps.

/// A key of a map.
///
/// An int and a uint of the same number are two keys, as in Kubernetes, but a lookup of one finds
/// the other.
#[derive(Debug, Clone)]
pub enum Key<'a> {
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating point number, as its bits.
    Double(u64),
    /// A string.
    String(Text<'a>),
}

// === impl Key ===

impl<'a> Key<'a> {
    /// `value` as a key, if it can be one.
    #[must_use]
    pub fn new(value: &Value<'a>) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Int(value) => Some(Self::Int(*value)),
            Value::Uint(value) => Some(Self::Uint(*value)),
            Value::Double(value) => Some(Self::Double(value.to_bits())),
            Value::String(text) => Some(Self::String(text.clone())),
            _ => None,
        }
    }

    /// The key as a value.
    #[must_use]
    pub fn to_value(&self) -> Value<'a> {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::Double(bits) => Value::Double(f64::from_bits(*bits)),
            Self::String(text) => Value::String(text.clone()),
        }
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        matches!(self, Self::String(text) if &**text == name)
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bool(own), Self::Bool(other)) => own == other,
            (Self::Int(own), Self::Int(other)) => own == other,
            (Self::Uint(own), Self::Uint(other)) | (Self::Double(own), Self::Double(other)) => own == other,
            (Self::String(own), Self::String(other)) => **own == **other,
            _ => false,
        }
    }
}

impl Eq for Key<'_> {}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Self::Bool(value) => value.hash(state),
            Self::Int(value) => value.hash(state),
            Self::Uint(value) | Self::Double(value) => value.hash(state),
            Self::String(text) => (**text).hash(state),
        }
    }
}

/// The int that is equal to `double`, if there is one.
#[expect(clippy::cast_possible_truncation, reason = "checked by converting back")]
#[expect(
    clippy::cast_precision_loss,
    reason = "a double that is an int converts back to itself"
)]
pub(crate) fn exact_int(double: f64) -> Option<i64> {
    let int = double as i64;
    (int as f64 == double && double < 9_223_372_036_854_775_808.0).then_some(int)
}

/// The uint that is equal to `double`, if there is one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked by converting back"
)]
#[expect(
    clippy::cast_precision_loss,
    reason = "a double that is a uint converts back to itself"
)]
pub(crate) fn exact_uint(double: f64) -> Option<u64> {
    let uint = double as u64;
    (uint as f64 == double && double < 18_446_744_073_709_551_616.0).then_some(uint)
}
