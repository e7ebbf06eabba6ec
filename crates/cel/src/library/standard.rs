//! CEL's own operators and functions (cel-go `common/stdlib/standard.go`); those of numbers and
//! conversions are in `arithmetic` and `conversions`.

use std::cmp::Ordering;

use super::regexes::with_pattern;
use super::{arithmetic, conversions};
use crate::environment::Version;
use crate::evaluate::Evaluation;
use crate::function::{A, Apply, B, Cost, Overload};
use crate::program::Call;
use crate::types::Type;
use crate::types::Type::{Bool, Bytes as BytesType, Double, Duration, Int, String as Str, Timestamp, Uint};
use crate::value::{Map, Value, compare, steps_of_order};
use crate::{EvalError, cost};

pub(crate) type Computed<'a> = Result<Value<'a>, EvalError>;

pub(crate) fn functions(version: Version) -> Vec<Overload> {
    let mut all = Vec::new();
    logic(&mut all);
    all.extend(arithmetic::functions());
    order(&mut all);
    containers(&mut all);
    text(&mut all, version);
    all.extend(conversions::functions());
    if version >= Version::CEL_GO_0_29 {
        // Before, it existed but always failed.
        all.retain(|overload| overload.id != "int64_to_duration");
    }
    all
}

fn logic(all: &mut Vec<Overload>) {
    all.extend([
        Overload::global("logical_not", "!_", [Bool], Bool, not),
        // These two have plan nodes of their own; the overloads only declare their types.
        Overload::global("equals", "_==_", [A, A], Bool, never_called),
        Overload::global("not_equals", "_!=_", [A, A], Bool, never_called),
    ]);
}

fn order(all: &mut Vec<Overload>) {
    let read = Cost::OfOverload(|arguments, _| match arguments {
        [left, right] => cost::cost_of_smaller(left, right),
        _ => 1,
    });
    let operators: [(&str, Apply); 4] = [
        ("_<_", less),
        ("_<=_", less_equal),
        (">=", greater_equal),
        (">", greater),
    ];
    for (name, apply) in operators {
        let name = match name {
            ">=" => "_>=_",
            ">" => "_>_",
            name => name,
        };
        // In upstream's order: the first overload that matches binds the type variables.
        for (left, right) in [
            (Bool, Bool),
            (Int, Int),
            (Int, Double),
            (Int, Uint),
            (Uint, Uint),
            (Uint, Double),
            (Uint, Int),
            (Double, Double),
            (Double, Int),
            (Double, Uint),
            (Str, Str),
            (BytesType, BytesType),
            (Timestamp, Timestamp),
            (Duration, Duration),
        ] {
            let cost = if matches!(left, Str | BytesType) {
                read
            } else {
                Cost::One
            };
            let id = if left == right {
                "ordered"
            } else {
                "ordered_numbers"
            };
            all.push(Overload::global(id, name, [left, right], Bool, apply).cost(cost));
        }
    }
}

fn containers(all: &mut Vec<Overload>) {
    let list = || Type::list(A);
    let map = || Type::map(A, B);
    let optional_list = || Type::optional(Type::list(A));
    let optional_map = || Type::optional(Type::map(A, B));
    let searched = Cost::OfOverload(|arguments, _| arguments.get(1).map_or(1, cost::size));
    all.extend([
        Overload::global("index_list", "_[_]", [list(), Int], A, never_called),
        Overload::global("index_map", "_[_]", [map(), A], B, never_called),
        Overload::global(
            "optional_list_index_int",
            "_[_]",
            [optional_list(), Int],
            Type::optional(A),
            never_called,
        ),
        Overload::global(
            "optional_map_index_value",
            "_[_]",
            [optional_map(), A],
            Type::optional(B),
            never_called,
        ),
        Overload::global(
            "list_optindex_optional_int",
            "_[?_]",
            [list(), Int],
            Type::optional(A),
            never_called,
        ),
        Overload::global(
            "optional_list_optindex_optional_int",
            "_[?_]",
            [optional_list(), Int],
            Type::optional(A),
            never_called,
        ),
        Overload::global(
            "map_optindex_optional_value",
            "_[?_]",
            [map(), A],
            Type::optional(B),
            never_called,
        ),
        Overload::global(
            "optional_map_optindex_optional_value",
            "_[?_]",
            [optional_map(), A],
            Type::optional(B),
            never_called,
        ),
        Overload::global("in_list", "@in", [A, list()], Bool, contained).cost(searched),
        Overload::global("in_map", "@in", [A, map()], Bool, contained),
    ]);
    for (global, member, of) in [
        ("size_bytes", "bytes_size", BytesType),
        ("size_list", "list_size", list()),
        ("size_map", "map_size", map()),
        ("size_string", "string_size", Str),
    ] {
        all.push(Overload::global(global, "size", [of.clone()], Int, size));
        all.push(Overload::member(member, "size", [of], Int, size));
    }
}

fn text(all: &mut Vec<Overload>, version: Version) {
    // The string that is counted as read.
    let compared = if version >= Version::CEL_GO_0_29 {
        Cost::OfOverload(|arguments, _| traversed(arguments.get(1)))
    } else {
        Cost::OfOverload(|arguments, _| traversed(arguments.first()))
    };
    let searched = Cost::OfOverload(|arguments, _| match arguments {
        [text, part] => cost::traverse(cost::size(text)).saturating_mul(cost::traverse(cost::size(part))),
        _ => 1,
    });
    let matched = Cost::OfOverload(|arguments, _| match arguments {
        [text, pattern] => cost::regex(cost::size(text), cost::size(pattern)),
        _ => 1,
    });
    all.extend([
        Overload::member("contains_string", "contains", [Str, Str], Bool, contains).cost(searched),
        Overload::member("ends_with_string", "endsWith", [Str, Str], Bool, ends_with).cost(compared),
        Overload::member("starts_with_string", "startsWith", [Str, Str], Bool, starts_with).cost(compared),
        Overload::global("matches", "matches", [Str, Str], Bool, matches).cost(
            if version >= Version::CEL_GO_0_29 {
                matched
            } else {
                Cost::One
            },
        ),
        Overload::member("matches_string", "matches", [Str, Str], Bool, matches).cost(matched),
    ]);
}

/// The cost of reading the whole string.
fn traversed(text: Option<&Value<'_>>) -> u64 {
    text.map_or(1, |text| cost::traverse(cost::size(text)))
}

pub(crate) fn no_such_overload<'a>() -> Computed<'a> {
    Err(EvalError::no_such_overload())
}

/// The function of operators that have plan nodes of their own, so it is never called.
fn never_called<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, _: &[Value<'a>]) -> Computed<'a> {
    no_such_overload()
}

fn not<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => no_such_overload(),
    }
}

fn ordered<'a>(
    own: &mut Evaluation<'_, 'a>,
    arguments: &[Value<'a>],
    holds: impl FnOnce(Ordering) -> bool,
) -> Computed<'a> {
    match arguments {
        [left, right] => {
            own.work(steps_of_order(left, right))?;
            compare(left, right).map(|order| Value::Bool(holds(order)))
        }
        _ => no_such_overload(),
    }
}

fn less<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    ordered(own, arguments, Ordering::is_lt)
}

fn less_equal<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    ordered(own, arguments, Ordering::is_le)
}

fn greater<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    ordered(own, arguments, Ordering::is_gt)
}

fn greater_equal<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    ordered(own, arguments, Ordering::is_ge)
}

fn contained<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [item, Value::List(list)] => {
            for other in list.items() {
                if own.equal(item, &other)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        [key, Value::Map(map)] => Ok(Value::Bool(has_key(map, key))),
        _ => no_such_overload(),
    }
}

fn has_key(map: &Map<'_>, key: &Value<'_>) -> bool {
    match key {
        Value::String(name) => map.has(name),
        key => map.get(key).is_some(),
    }
}

#[expect(
    clippy::cast_possible_wrap,
    reason = "nothing in memory has more than i64::MAX parts"
)]
fn size<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
            Ok(Value::Int(cost::size(value) as i64))
        }
        _ => no_such_overload(),
    }
}

fn contains<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::String(text), Value::String(part)] => {
            own.work(text.len())?;
            Ok(Value::Bool(text.contains(&**part)))
        }
        _ => no_such_overload(),
    }
}

fn starts_with<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::String(text), Value::String(start)] => Ok(Value::Bool(text.starts_with(&**start))),
        _ => no_such_overload(),
    }
}

fn ends_with<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::String(text), Value::String(end)] => Ok(Value::Bool(text.ends_with(&**end))),
        _ => no_such_overload(),
    }
}

fn matches<'a>(own: &mut Evaluation<'_, 'a>, call: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text), Value::String(pattern)] = arguments else {
        return no_such_overload();
    };
    let found = with_pattern(own, call, pattern, |regex, meter| regex.is_match(text, meter))?;
    found.map(Value::Bool).map_err(EvalError::failed)
}
