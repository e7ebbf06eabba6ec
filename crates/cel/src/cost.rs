//! The cost of evaluation, calculated exactly as in Kubernetes (cel-go
//! `interpreter/runtimecost.go`, apiserver `pkg/cel/library/cost.go`).
//!
//! The sums use floating point, as upstream: 30 characters cost 4 units instead of 3,
//! because 30 × 0.1 is slightly more than 3 there.

use super::error::EvalError;
use super::value::{List, MapEntries, Opaque, Value, Work, address_bytes};

/// What one expression may cost.
pub const PER_EXPRESSION: u64 = 1_000_000;

/// What all expressions of a policy and its binding may cost in one review.
pub const PER_BINDING: u64 = 10_000_000;

/// What all match conditions of a webhook or policy may cost in one review.
pub const PER_MATCH_CONDITIONS: u64 = 2_500_000;

/// Creating a list.
pub(crate) const LIST: u64 = 10;

/// Creating a map.
pub(crate) const MAP: u64 = 30;

/// Creating an object.
pub(crate) const OBJECT: u64 = 40;

/// One question to the authorizer: two are what an expression can afford.
pub(crate) const AUTHORIZER_CHECK: u64 = 350_000;

/// Reading a string once, for each character.
const TRAVERSAL: f64 = 0.1;

/// Matching a regular expression, for each character of it.
const REGEX: f64 = 0.25;

/// How large a value is: characters, bytes, items, keys; 1 for any other.
pub(crate) fn size(value: &Value<'_>) -> u64 {
    let size = match value {
        Value::String(text) if text.is_ascii() => text.len(),
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        Value::Optional(Some(inner)) => return size(inner),
        Value::Opaque(opaque) => return opaque_size(opaque),
        _ => 1,
    };
    size as u64
}

/// Like [`size`], but an optional counts 1, as Kubernetes' own estimates have it.
pub(crate) fn plain_size(value: &Value<'_>) -> u64 {
    match value {
        Value::Optional(_) => 1,
        other => size(other),
    }
}

/// Addresses count in bytes.
fn opaque_size(opaque: &Opaque<'_>) -> u64 {
    match opaque {
        Opaque::Ip(ip) => address_bytes(ip),
        Opaque::Cidr(_, bits) => u64::from(bits.div_ceil(8)),
        _ => 1,
    }
}

/// `size` characters read `factor` times, rounded up.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as upstream"
)]
fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// Reading text of this size once.
pub(crate) fn traverse(size: u64) -> u64 {
    scaled(size, TRAVERSAL)
}

/// Reading text of this size and writing it again.
pub(crate) fn rewrite(size: u64) -> u64 {
    scaled(size, 2.0 * TRAVERSAL)
}

/// `==`: the smaller of both is read. Short text, the usual case, is
/// not counted by characters: any of 1 to 10 bytes costs the same.
pub(crate) fn equality(left: &Value<'_>, right: &Value<'_>) -> u64 {
    if matches!(left, Value::Opaque(_)) {
        return 1;
    }
    smaller(left, right)
}

/// `!=`, and `<` and its like on text and bytes.
pub(crate) fn smaller(left: &Value<'_>, right: &Value<'_>) -> u64 {
    if let (Value::String(left), Value::String(right)) = (left, right) {
        let shorter = left.len().min(right.len());
        if shorter <= 10 {
            return u64::from(shorter > 0);
        }
    }
    traverse(size(left).min(size(right)))
}

/// Matching text against a regular expression.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as upstream"
)]
pub(crate) fn regex(text: u64, pattern: u64) -> u64 {
    let text = ((1.0 + text as f64) * TRAVERSAL).ceil() as u64;
    text.saturating_mul(scaled(pattern, REGEX))
}

/// Looking at every leaf of a value. `work` is called for each list and map before
/// it is looked into.
///
/// # Errors
///
/// What `work` ended it with.
pub(crate) fn traverse_tree(value: &Value<'_>, work: Work<'_>) -> Result<u64, EvalError> {
    let mut open = Vec::new();
    let mut sum = enter(value.clone(), &mut open, work)?;
    while let Some(container) = open.last_mut() {
        match container.next() {
            Some(value) => sum = sum.saturating_add(enter(value, &mut open, work)?),
            None => drop(open.pop()),
        }
    }
    Ok(sum)
}

/// What a leaf counts; a list or a map is opened.
fn enter<'a>(value: Value<'a>, open: &mut Vec<Container<'a>>, work: Work<'_>) -> Result<u64, EvalError> {
    match value {
        Value::List(list) => {
            work(list.len())?;
            open.push(Container::List(list, 0));
        }
        Value::Map(map) => {
            work(2 * map.len())?;
            open.push(Container::Map(map.entries(), None));
        }
        leaf => return Ok(traverse_leaf(&leaf)),
    }
    Ok(0)
}

/// A list from an item on, or a map from an entry on whose key was taken.
enum Container<'a> {
    List(List<'a>, usize),
    Map(MapEntries<'a>, Option<Value<'a>>),
}

impl<'a> Container<'a> {
    /// The next item, key or value.
    fn next(&mut self) -> Option<Value<'a>> {
        match self {
            Self::List(list, next) => {
                *next += 1;
                list.get(*next - 1)
            }
            Self::Map(entries, value) => value.take().or_else(|| {
                let (key, next) = entries.next()?;
                *value = Some(next);
                Some(key)
            }),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as upstream"
)]
fn traverse_leaf(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * TRAVERSAL) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * TRAVERSAL) as u64,
        _ => 1,
    }
}
