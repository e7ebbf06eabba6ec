//! Functions of lists as sets (cel-go `ext/sets.go`).

use super::standard::Computed;
use crate::evaluate::Evaluation;
use crate::function::{A, Apply, Cost, Overload};
use crate::program::Call;
use crate::types::Type;
use crate::value::{List, Value};
use crate::{EvalError, cost};

pub(crate) fn functions() -> Vec<Overload> {
    let once = Cost::OfOverload(|arguments, _| 1 + compared(arguments));
    let twice = Cost::OfOverload(|arguments, _| 1 + compared(arguments).saturating_mul(2));
    let two = |id, name, apply: Apply, cost| {
        Overload::global(id, name, [Type::list(A), Type::list(A)], Type::Bool, apply).cost(cost)
    };
    vec![
        two("list_sets_contains_list", "sets.contains", contains, once),
        two("list_sets_equivalent_list", "sets.equivalent", equivalent, twice),
        two("list_sets_intersects_list", "sets.intersects", intersects, once),
    ]
}

fn compared(arguments: &[Value<'_>]) -> u64 {
    match arguments {
        [left, right] => cost::plain_size(left).saturating_mul(cost::plain_size(right)),
        _ => 1,
    }
}

/// Whether `list` contains `item`.
fn has(own: &mut Evaluation<'_, '_>, list: &List<'_>, item: &Value<'_>) -> Result<bool, EvalError> {
    for other in list.items() {
        if own.equal(item, &other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_all(own: &mut Evaluation<'_, '_>, list: &List<'_>, items: &List<'_>) -> Result<bool, EvalError> {
    for item in items.items() {
        if !has(own, list, &item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Both lists, if the cost of comparing them can be afforded.
fn lists<'l, 'a>(
    own: &mut Evaluation<'_, 'a>,
    arguments: &'l [Value<'a>],
) -> Result<(&'l List<'a>, &'l List<'a>), EvalError> {
    own.afford(compared(arguments))?;
    match arguments {
        [Value::List(left), Value::List(right)] => Ok((left, right)),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn contains<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (list, items) = lists(own, arguments)?;
    has_all(own, list, items).map(Value::Bool)
}

fn equivalent<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (left, right) = lists(own, arguments)?;
    Ok(Value::Bool(
        has_all(own, left, right)? && has_all(own, right, left)?,
    ))
}

fn intersects<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (left, right) = lists(own, arguments)?;
    for item in left.items() {
        if has(own, right, &item)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
