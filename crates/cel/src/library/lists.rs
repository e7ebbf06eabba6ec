//! Functions of lists: Kubernetes' own (apiserver `pkg/cel/library/lists.go`).

mod extended;

pub(crate) use extended::functions as extended;
pub(crate) use extended::{self_compare, sort_by_keys};

use std::cmp::Ordering;

use super::standard::{Computed, mismatched};
use crate::error::EvalError;
use crate::evaluate::Evaluation;
use crate::function::{A, Apply, Cost, Overload};
use crate::program::Call;
use crate::types::Type;
use crate::value::{Duration, List, Value, compare, steps_of_order};

/// Types whose values have an order.
const ORDERED: [Type; 8] = [
    Type::Int,
    Type::Uint,
    Type::Double,
    Type::Bool,
    Type::Duration,
    Type::Timestamp,
    Type::String,
    Type::Bytes,
];

pub(crate) fn functions() -> Vec<Overload> {
    let mut all = Vec::new();
    for of in ORDERED {
        let list = || [Type::list(of.clone())];
        all.push(Overload::member(
            "list_is_sorted",
            "isSorted",
            list(),
            Type::Bool,
            is_sorted,
        ));
        all.push(Overload::member("list_max", "max", list(), of.clone(), max));
        all.push(Overload::member("list_min", "min", list(), of.clone(), min));
    }
    let sums: [(Type, Apply); 4] = [
        (Type::Int, sum_int),
        (Type::Uint, sum_uint),
        (Type::Double, sum_double),
        (Type::Duration, sum_duration),
    ];
    for (of, apply) in sums {
        all.push(Overload::member(
            "list_sum",
            "sum",
            [Type::list(of.clone())],
            of,
            apply,
        ));
    }
    all.push(Overload::member(
        "list_a_index_of_int",
        "indexOf",
        [Type::list(A), A],
        Type::Int,
        index_of,
    ));
    all.push(Overload::member(
        "list_a_last_index_of_int",
        "lastIndexOf",
        [Type::list(A), A],
        Type::Int,
        last_index_of,
    ));
    all.into_iter()
        .map(|overload| overload.cost(Cost::Traversal))
        .collect()
}

/// What Kubernetes 1.37 added.
pub(crate) fn membership() -> Vec<Overload> {
    let overload = Overload::member(
        "list_includes_dyn_dyn",
        "includes",
        [Type::Dyn, Type::Dyn],
        Type::Bool,
        includes,
    );
    vec![overload.cost(Cost::Traversal)]
}

fn is_sorted<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::List(list)] = arguments else {
        return mismatched();
    };
    let mut before: Option<Value<'a>> = None;
    for item in list.items() {
        if !is_ordered(&item) {
            return mismatched();
        }
        if let Some(before) = &before {
            own.work(steps_of_order(before, &item))?;
            if compare(before, &item).is_ok_and(Ordering::is_gt) {
                return Ok(Value::Bool(false));
            }
        }
        before = Some(item);
    }
    Ok(Value::Bool(true))
}

fn is_ordered(value: &Value<'_>) -> bool {
    ORDERED.contains(&value.type_of())
}

/// The item that no other `beats`.
fn best<'a>(own: &mut Evaluation<'_, 'a>, list: &List<'a>, name: &str, beaten: Ordering) -> Computed<'a> {
    let mut best: Option<Value<'a>> = None;
    for item in list.items() {
        if !is_ordered(&item) {
            return mismatched();
        }
        let keep = match &best {
            Some(before) => {
                own.work(steps_of_order(before, &item))?;
                compare(before, &item) != Ok(beaten)
            }
            None => false,
        };
        if !keep {
            best = Some(item);
        }
    }
    best.ok_or_else(|| EvalError::failed(format_args!("{name} called on empty list")))
}

fn max<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::List(list)] = arguments else {
        return mismatched();
    };
    best(own, list, "max", Ordering::Less)
}

fn min<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::List(list)] = arguments else {
        return mismatched();
    };
    best(own, list, "min", Ordering::Greater)
}

fn sum<'a>(
    own: &mut Evaluation<'_, 'a>,
    call: &'a Call,
    arguments: &[Value<'a>],
    zero: Value<'a>,
) -> Computed<'a> {
    let [Value::List(list)] = arguments else {
        return mismatched();
    };
    own.work(list.len() * 4)?;
    let mut items = list.items();
    items.try_fold(zero, |sum, item| super::arithmetic::add(own, call, &[sum, item]))
}

fn sum_int<'a>(own: &mut Evaluation<'_, 'a>, call: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    sum(own, call, arguments, Value::Int(0))
}

fn sum_uint<'a>(own: &mut Evaluation<'_, 'a>, call: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    sum(own, call, arguments, Value::Uint(0))
}

fn sum_double<'a>(own: &mut Evaluation<'_, 'a>, call: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    sum(own, call, arguments, Value::Double(0.0))
}

fn sum_duration<'a>(own: &mut Evaluation<'_, 'a>, call: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    sum(
        own,
        call,
        arguments,
        Value::Duration(Duration::from_nanoseconds(0)),
    )
}

fn position<'a>(found: Option<usize>) -> Computed<'a> {
    Ok(Value::Int(
        found.and_then(|found| i64::try_from(found).ok()).unwrap_or(-1),
    ))
}

fn index_of<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::List(list), item] = arguments else {
        return mismatched();
    };
    for (at, other) in list.items().enumerate() {
        if own.equal(&other, item)? {
            return position(Some(at));
        }
    }
    position(None)
}

fn last_index_of<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::List(list), item] = arguments else {
        return mismatched();
    };
    let mut found = None;
    for (at, other) in list.items().enumerate() {
        if own.equal(&other, item)? {
            found = Some(at);
        }
    }
    position(found)
}

/// Whether an element of the list is equal to the value or, of anything else, whether both are.
fn includes<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [target, value] = arguments else {
        return mismatched();
    };
    let Value::List(list) = target else {
        return own.equal(target, value).map(Value::Bool);
    };
    for item in list.items() {
        if own.equal(&item, value)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
