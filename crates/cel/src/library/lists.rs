//! Functions of lists: Kubernetes' own (apiserver `pkg/cel/library/lists.go`), and cel-go's
//! extension (`ext/lists.go`, version 3).

use std::cmp::Ordering;

use super::standard::{Computed, no_such_overload};
use crate::EvalError;
use crate::cost::{self, STEPS_PER_NODE};
use crate::environment::Version;
use crate::evaluate::Evaluation;
use crate::function::{A, Apply, Cost, Overload};
use crate::program::Call;
use crate::types::Type;
use crate::value::{Duration, List, Value, compare, steps_of_order};

/// The types whose values have an order.
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

/// Functions added in Kubernetes 1.37.
pub(crate) fn since_1_37() -> Vec<Overload> {
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
        return no_such_overload();
    };
    let mut before: Option<Value<'a>> = None;
    for item in list.items() {
        if !is_ordered(&item) {
            return no_such_overload();
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

/// The first of the greatest or smallest items. `beaten` is how an item compares to a better one.
fn extremum<'a>(own: &mut Evaluation<'_, 'a>, list: &List<'a>, name: &str, beaten: Ordering) -> Computed<'a> {
    let mut best: Option<Value<'a>> = None;
    for item in list.items() {
        if !is_ordered(&item) {
            return no_such_overload();
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
        return no_such_overload();
    };
    extremum(own, list, "max", Ordering::Less)
}

fn min<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::List(list)] = arguments else {
        return no_such_overload();
    };
    extremum(own, list, "min", Ordering::Greater)
}

fn sum<'a>(
    own: &mut Evaluation<'_, 'a>,
    call: &'a Call,
    arguments: &[Value<'a>],
    zero: Value<'a>,
) -> Computed<'a> {
    let [Value::List(list)] = arguments else {
        return no_such_overload();
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
        return no_such_overload();
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
        return no_such_overload();
    };
    let mut found = None;
    for (at, other) in list.items().enumerate() {
        if own.equal(&other, item)? {
            found = Some(at);
        }
    }
    position(found)
}

/// Whether the list contains the value. If the target is not a list, whether target and value are
/// equal.
fn includes<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [target, value] = arguments else {
        return no_such_overload();
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

/// The longest list that `lists.range` returns since cel-go 0.29.
const LONGEST_RANGE: i64 = 1_000_000;

pub(crate) fn extension(version: Version) -> Vec<Overload> {
    let is_strict = version >= Version::CEL_GO_0_29;
    let flattened = if is_strict {
        flatten_cost_0_29
    } else {
        flatten_cost
    };
    let list = || Type::list(A);
    let made = Cost::OfOverload(|_, result| cost::plain_size(result) + 1 + cost::LIST);
    let compared = |list: usize| match list {
        0 => Cost::OfList(0, |arguments, _| compared_items(arguments.first())),
        _ => Cost::OfList(1, |arguments, _| compared_items(arguments.get(1))),
    };
    let mut all = vec![
        Overload::member(
            "list_slice",
            "slice",
            [list(), Type::Int, Type::Int],
            list(),
            slice,
        )
        .cost(made),
        Overload::member("list_flatten", "flatten", [Type::list(list())], list(), flatten)
            .cost(Cost::OfOverload(flattened)),
        Overload::member(
            "list_flatten_int",
            "flatten",
            [Type::list(Type::Dyn), Type::Int],
            Type::list(Type::Dyn),
            flatten,
        )
        .cost(Cost::OfInt(1, flattened)),
        Overload::global(
            "lists_range",
            "lists.range",
            [Type::Int],
            Type::list(Type::Int),
            if is_strict { bounded_range } else { range },
        )
        .cost(made),
        Overload::member("list_reverse", "reverse", [list()], list(), reverse).cost(made),
        Overload::member("list_distinct", "distinct", [list()], list(), distinct).cost(compared(0)),
    ];
    for of in ORDERED {
        let sorted = [Type::list(of.clone())];
        all.push(
            Overload::member("list_sort", "sort", sorted, Type::list(of.clone()), sort).cost(compared(0)),
        );
        let keyed = [list(), Type::list(of)];
        all.push(
            Overload::member("list_sort_by", "@sortByAssociatedKeys", keyed, list(), sort).cost(compared(1)),
        );
    }
    all
}

/// The cost of comparing all items with each other.
pub(crate) fn self_compare(first: Option<&Value<'_>>, items: usize) -> u64 {
    let factor = match first {
        Some(Value::String(_) | Value::Bytes(_)) => 2.1,
        _ => 2.0,
    };
    let items = items as u64;
    multiplied(items.saturating_mul(items), factor).saturating_add(1 + cost::LIST)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as upstream"
)]
fn multiplied(size: u64, factor: f64) -> u64 {
    (size as f64 * factor) as u64
}

fn compared_items(list: Option<&Value<'_>>) -> u64 {
    match list {
        Some(Value::List(list)) => self_compare(list.get(0).as_ref(), list.len()),
        _ => self_compare(None, 1),
    }
}

/// The cost of `flatten`: the size times the depth, which may be negative or beyond any integer.
/// Upstream's conversion to uint64 then depends on the processor; this is the result on amd64.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as upstream"
)]
fn flatten_cost(arguments: &[Value<'_>], _: &Value<'_>) -> u64 {
    let depth = match arguments.get(1) {
        Some(Value::Int(depth)) => *depth as f64,
        _ => 1.0,
    };
    let product = arguments.first().map_or(1, cost::plain_size) as f64 * depth;
    let units = if product < i64::MAX as f64 {
        product as i64 as u64
    } else if product < u64::MAX as f64 {
        product as u64
    } else {
        1 << 63
    };
    units.wrapping_add(1 + cost::LIST)
}

/// The same cost since cel-go 0.29, where a negative depth counts as one.
fn flatten_cost_0_29(arguments: &[Value<'_>], result: &Value<'_>) -> u64 {
    match arguments {
        [list, Value::Int(depth)] if *depth < 0 => flatten_cost(std::slice::from_ref(list), result),
        _ => flatten_cost(arguments, result),
    }
}

fn slice<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = arguments else {
        return no_such_overload();
    };
    let fault = |why: &str| {
        Err(EvalError::failed(format_args!(
            "cannot slice({start}, {end}), {why}"
        )))
    };
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return fault("negative indexes not supported");
    };
    if from > to {
        return fault("start index must be less than or equal to end index");
    }
    if list.len() < to {
        return fault(&format!("list is length {}", list.len()));
    }
    own.work(from * STEPS_PER_NODE)?;
    own.allocate_items(to - from)?;
    Ok(Value::list(list.items().skip(from).take(to - from).collect()))
}

fn flatten<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (list, depth) = match arguments {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return no_such_overload(),
    };
    if depth < 0 {
        return Err(EvalError::failed("level must be non-negative"));
    }
    let mut items = Vec::new();
    flatten_into(own, list, depth, &mut items)?;
    Ok(Value::list(items))
}

/// Lists from a request may nest to any depth, so open lists are kept in `begun` instead of on the
/// stack.
fn flatten_into<'a>(
    own: &mut Evaluation<'_, 'a>,
    list: &List<'a>,
    depth: i64,
    items: &mut Vec<Value<'a>>,
) -> Result<(), EvalError> {
    own.allocate_items(list.len())?;
    let mut begun: Vec<(std::vec::IntoIter<Value<'a>>, i64)> = vec![(values(list), depth)];
    while let Some((rest, depth)) = begun.last_mut() {
        let depth = *depth;
        match rest.next() {
            None => drop(begun.pop()),
            Some(Value::List(inner)) if depth > 0 => {
                own.allocate_items(inner.len())?;
                begun.push((values(&inner), depth - 1));
            }
            Some(item) => items.push(item),
        }
    }
    Ok(())
}

fn values<'a>(list: &List<'a>) -> std::vec::IntoIter<Value<'a>> {
    list.items().collect::<Vec<_>>().into_iter()
}

fn range<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::Int(end)] = arguments else {
        return no_such_overload();
    };
    own.afford(
        u64::try_from(*end)
            .unwrap_or_default()
            .saturating_add(1 + cost::LIST),
    )?;
    own.allocate_items(usize::try_from(*end).unwrap_or_default())?;
    Ok(Value::list((0..*end).map(Value::Int).collect()))
}

fn bounded_range<'a>(own: &mut Evaluation<'_, 'a>, call: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Int(size)] if *size < 0 => Err(EvalError::failed(format_args!(
            "lists.range: size must be non-negative, got {size}"
        ))),
        [Value::Int(size)] if *size > LONGEST_RANGE => Err(EvalError::failed(format_args!(
            "lists.range: size {size} exceeds maximum allowed ({LONGEST_RANGE})"
        ))),
        _ => range(own, call, arguments),
    }
}

fn reverse<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::List(list)] = arguments else {
        return no_such_overload();
    };
    own.allocate_items(list.len())?;
    let mut items: Vec<Value<'a>> = list.items().collect();
    items.reverse();
    Ok(Value::list(items))
}

fn distinct<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::List(list)] = arguments else {
        return no_such_overload();
    };
    own.afford(self_compare(list.get(0).as_ref(), list.len()))?;
    let mut items: Vec<Value<'a>> = Vec::new();
    for item in list.items() {
        let mut known = false;
        for other in &items {
            if own.equal(&item, other)? {
                known = true;
                break;
            }
        }
        if !known {
            own.allocate(List::BYTES_PER_ITEM)?;
            items.push(item);
        }
    }
    Ok(Value::list(items))
}

fn sort<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::List(list)] = arguments else {
        return no_such_overload();
    };
    own.allocate_items(list.len())?;
    let keys: Vec<Value<'a>> = list.items().collect();
    sort_by_keys(own, list, &keys)
}

/// Sorts the items by their `keys`, which must be of one type.
pub(crate) fn sort_by_keys<'a>(
    own: &mut Evaluation<'_, 'a>,
    list: &List<'a>,
    keys: &[Value<'a>],
) -> Computed<'a> {
    let Some(first) = keys.first() else {
        return Ok(Value::List(list.clone()));
    };
    let of = first.type_of();
    if !ORDERED.contains(&of) {
        return Err(EvalError::failed("list elements must be comparable"));
    }
    if keys.len() > 1 && keys.iter().any(|key| key.type_of() != of) {
        return Err(EvalError::failed("list elements must have the same type"));
    }
    own.allocate_items(list.len())?;
    // A sort cannot be interrupted, so all comparisons are charged before. Each key takes part in
    // about as many as the list can be halved.
    let halvings = keys
        .len()
        .checked_ilog2()
        .map_or(0, |halvings| halvings as usize + 1);
    for key in keys {
        own.work(steps_of_order(key, key).saturating_mul(halvings))?;
    }
    let mut items: Vec<(&Value<'a>, Value<'a>)> = keys.iter().zip(list.items()).collect();
    items.sort_by(|(left, _), (right, _)| total_order(left, right));
    Ok(Value::list(items.into_iter().map(|(_, item)| item).collect()))
}

/// The order of two keys of one type. NaN comes last: sorting panics if the order is not total.
/// (Upstream does not define where it comes.)
fn total_order(left: &Value<'_>, right: &Value<'_>) -> Ordering {
    match (left, right) {
        (Value::Double(left), Value::Double(right)) if left.is_nan() || right.is_nan() => {
            left.is_nan().cmp(&right.is_nan())
        }
        _ => compare(left, right).unwrap_or(Ordering::Equal),
    }
}
