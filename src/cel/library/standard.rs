//! CEL's own operators and functions (cel-go `common/stdlib/standard.go`).

use std::cmp::Ordering;
use std::sync::Arc;

use super::Prepared;
use crate::cel::cost;
use crate::cel::error::EvalError;
use crate::cel::evaluate::Evaluation;
use crate::cel::function::{A, Apply, B, Cost, Overload};
use crate::cel::program::Call;
use crate::cel::types::Type;
use crate::cel::types::Type::{
    Bool, Bytes as BytesType, Double, Duration, Dyn, Int, String as Str, Timestamp, Uint,
};
use crate::cel::value::{Bytes, List, Map, Text, Value, compare, equal};

pub(super) type Computed<'a> = Result<Value<'a>, EvalError>;

pub(super) fn functions() -> Vec<Overload> {
    let mut all = Vec::new();
    logic(&mut all);
    arithmetic(&mut all);
    order(&mut all);
    containers(&mut all);
    text(&mut all);
    all.extend(conversions());
    all
}

fn logic(all: &mut Vec<Overload>) {
    all.extend([
        Overload::global("logical_not", "!_", [Bool], Bool, not),
        // These four are steps of their own; what counts here is their types.
        Overload::global("equals", "_==_", [A, A], Bool, unreached),
        Overload::global("not_equals", "_!=_", [A, A], Bool, unreached),
    ]);
}

fn arithmetic(all: &mut Vec<Overload>) {
    let listed = Type::list(A);
    let both =
        |id, name, of: Type, apply: Apply| Overload::global(id, name, [of.clone(), of.clone()], of, apply);
    let copied = Cost::OfOverload(|arguments, _| match arguments {
        [left, right] => cost::traverse(cost::size(left) + cost::size(right)),
        _ => 1,
    });
    all.extend([
        both("add_bytes", "_+_", BytesType, add).cost(copied),
        both("add_double", "_+_", Double, add),
        both("add_duration_duration", "_+_", Duration, add),
        Overload::global(
            "add_duration_timestamp",
            "_+_",
            [Duration, Timestamp],
            Timestamp,
            add,
        ),
        Overload::global(
            "add_timestamp_duration",
            "_+_",
            [Timestamp, Duration],
            Timestamp,
            add,
        ),
        both("add_int64", "_+_", Int, add),
        both("add_list", "_+_", listed, add),
        both("add_string", "_+_", Str, add).cost(copied),
        both("add_uint64", "_+_", Uint, add),
        both("divide_double", "_/_", Double, divide),
        both("divide_int64", "_/_", Int, divide),
        both("divide_uint64", "_/_", Uint, divide),
        both("modulo_int64", "_%_", Int, modulo),
        both("modulo_uint64", "_%_", Uint, modulo),
        both("multiply_double", "_*_", Double, multiply),
        both("multiply_int64", "_*_", Int, multiply),
        both("multiply_uint64", "_*_", Uint, multiply),
        Overload::global("negate_double", "-_", [Double], Double, negate),
        Overload::global("negate_int64", "-_", [Int], Int, negate),
        both("subtract_double", "_-_", Double, subtract),
        both("subtract_duration_duration", "_-_", Duration, subtract),
        both("subtract_int64", "_-_", Int, subtract),
        Overload::global(
            "subtract_timestamp_duration",
            "_-_",
            [Timestamp, Duration],
            Timestamp,
            subtract,
        ),
        Overload::global(
            "subtract_timestamp_timestamp",
            "_-_",
            [Timestamp, Timestamp],
            Duration,
            subtract,
        ),
        both("subtract_uint64", "_-_", Uint, subtract),
    ]);
}

fn order(all: &mut Vec<Overload>) {
    let read = Cost::OfOverload(|arguments, _| match arguments {
        [left, right] => cost::smaller(left, right),
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
        for of in [Bool, Int, Uint, Double, Str, BytesType, Timestamp, Duration] {
            let cost = if matches!(of, Str | BytesType) {
                read
            } else {
                Cost::One
            };
            all.push(Overload::global("ordered", name, [of.clone(), of], Bool, apply).cost(cost));
        }
        for (left, right) in [
            (Int, Double),
            (Int, Uint),
            (Uint, Double),
            (Uint, Int),
            (Double, Int),
            (Double, Uint),
        ] {
            all.push(Overload::global(
                "ordered_numbers",
                name,
                [left, right],
                Bool,
                apply,
            ));
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
        Overload::global("index_list", "_[_]", [list(), Int], A, unreached),
        Overload::global("index_map", "_[_]", [map(), A], B, unreached),
        Overload::global(
            "optional_list_index_int",
            "_[_]",
            [optional_list(), Int],
            Type::optional(A),
            unreached,
        ),
        Overload::global(
            "optional_map_index_value",
            "_[_]",
            [optional_map(), A],
            Type::optional(B),
            unreached,
        ),
        Overload::global(
            "list_optindex_optional_int",
            "_[?_]",
            [list(), Int],
            Type::optional(A),
            unreached,
        ),
        Overload::global(
            "optional_list_optindex_optional_int",
            "_[?_]",
            [optional_list(), Int],
            Type::optional(A),
            unreached,
        ),
        Overload::global(
            "map_optindex_optional_value",
            "_[?_]",
            [map(), A],
            Type::optional(B),
            unreached,
        ),
        Overload::global(
            "optional_map_optindex_optional_value",
            "_[?_]",
            [optional_map(), A],
            Type::optional(B),
            unreached,
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

fn text(all: &mut Vec<Overload>) {
    let read = Cost::OfOverload(|arguments, _| {
        arguments
            .first()
            .map_or(1, |text| cost::traverse(cost::size(text)))
    });
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
        Overload::member("ends_with_string", "endsWith", [Str, Str], Bool, ends_with).cost(read),
        Overload::member("starts_with_string", "startsWith", [Str, Str], Bool, starts_with).cost(read),
        Overload::global("matches", "matches", [Str, Str], Bool, matches),
        Overload::member("matches_string", "matches", [Str, Str], Bool, matches).cost(matched),
    ]);
}

fn conversions() -> Vec<Overload> {
    let to = |id, name, from: Type, of: Type, apply: Apply| Overload::global(id, name, [from], of, apply);
    let read = Cost::OfOverload(|arguments, _| {
        arguments
            .first()
            .map_or(1, |text| cost::traverse(cost::size(text)))
    });
    vec![
        to("type", "type", A, Type::of_type(A), type_of),
        to("to_dyn", "dyn", A, Dyn, itself),
        to("bool_to_bool", "bool", Bool, Bool, to_bool),
        to("string_to_bool", "bool", Str, Bool, to_bool),
        to("bytes_to_bytes", "bytes", BytesType, BytesType, to_bytes),
        to("string_to_bytes", "bytes", Str, BytesType, to_bytes).cost(read),
        to("double_to_double", "double", Double, Double, to_double),
        to("int64_to_double", "double", Int, Double, to_double),
        to("string_to_double", "double", Str, Double, to_double),
        to("uint64_to_double", "double", Uint, Double, to_double),
        to(
            "duration_to_duration",
            "duration",
            Duration,
            Duration,
            to_duration,
        ),
        to("int64_to_duration", "duration", Int, Duration, to_duration),
        to("string_to_duration", "duration", Str, Duration, to_duration),
        to("int64_to_int64", "int", Int, Int, to_int),
        to("double_to_int64", "int", Double, Int, to_int),
        to("duration_to_int64", "int", Duration, Int, to_int),
        to("string_to_int64", "int", Str, Int, to_int),
        to("timestamp_to_int64", "int", Timestamp, Int, to_int),
        to("uint64_to_int64", "int", Uint, Int, to_int),
        to("string_to_string", "string", Str, Str, to_string),
        to("bool_to_string", "string", Bool, Str, to_string),
        to("bytes_to_string", "string", BytesType, Str, to_string).cost(read),
        to("double_to_string", "string", Double, Str, to_string),
        to("duration_to_string", "string", Duration, Str, to_string),
        to("int64_to_string", "string", Int, Str, to_string),
        to("timestamp_to_string", "string", Timestamp, Str, to_string),
        to("uint64_to_string", "string", Uint, Str, to_string),
        to(
            "timestamp_to_timestamp",
            "timestamp",
            Timestamp,
            Timestamp,
            to_timestamp,
        ),
        to("int64_to_timestamp", "timestamp", Int, Timestamp, to_timestamp),
        to("string_to_timestamp", "timestamp", Str, Timestamp, to_timestamp),
        to("uint64_to_uint64", "uint", Uint, Uint, to_uint),
        to("double_to_uint64", "uint", Double, Uint, to_uint),
        to("int64_to_uint64", "uint", Int, Uint, to_uint),
        to("string_to_uint64", "uint", Str, Uint, to_uint),
    ]
}

pub(super) fn mismatched<'a>() -> Computed<'a> {
    Err(EvalError::no_such_overload())
}

/// For operators that are steps of their own and never called.
fn unreached<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, _: &[Value<'a>]) -> Computed<'a> {
    mismatched()
}

fn not<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => mismatched(),
    }
}

fn integer<'a>(result: Option<i64>) -> Computed<'a> {
    result
        .map(Value::Int)
        .ok_or_else(|| EvalError::failed("integer overflow"))
}

fn unsigned<'a>(result: Option<u64>) -> Computed<'a> {
    result
        .map(Value::Uint)
        .ok_or_else(|| EvalError::failed("unsigned integer overflow"))
}

fn duration<'a>(result: Option<crate::cel::value::Duration>) -> Computed<'a> {
    result
        .map(Value::Duration)
        .ok_or_else(|| EvalError::failed("integer overflow"))
}

fn timestamp<'a>(result: Option<crate::cel::value::Timestamp>) -> Computed<'a> {
    result
        .map(Value::Timestamp)
        .ok_or_else(|| EvalError::failed("timestamp overflow"))
}

pub(super) fn add<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Int(left), Value::Int(right)] => integer(left.checked_add(*right)),
        [Value::Uint(left), Value::Uint(right)] => unsigned(left.checked_add(*right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left + right)),
        [Value::String(left), Value::String(right)] => concatenate(own, left, right),
        [Value::Bytes(left), Value::Bytes(right)] => {
            own.work(left.len() + right.len())?;
            Ok(Value::Bytes(Bytes::from([&**left, &**right].concat())))
        }
        [Value::List(left), Value::List(right)] => append(own, left, right),
        [Value::Duration(left), Value::Duration(right)] => duration(left.add(*right)),
        [Value::Duration(length), Value::Timestamp(time)]
        | [Value::Timestamp(time), Value::Duration(length)] => timestamp(time.add(*length)),
        _ => mismatched(),
    }
}

fn concatenate<'a>(own: &mut Evaluation<'_, 'a>, left: &Text<'a>, right: &Text<'a>) -> Computed<'a> {
    own.work(left.len() + right.len())?;
    let mut text = String::with_capacity(left.len() + right.len());
    text.push_str(left);
    text.push_str(right);
    Ok(Value::String(Text::from(text)))
}

fn append<'a>(own: &mut Evaluation<'_, 'a>, left: &List<'a>, right: &List<'a>) -> Computed<'a> {
    if right.is_empty() {
        return Ok(Value::List(left.clone()));
    }
    if left.is_empty() {
        return Ok(Value::List(right.clone()));
    }
    own.work((left.len() + right.len()) * 4)?;
    let mut items = Vec::with_capacity(left.len() + right.len());
    items.extend(left.items());
    items.extend(right.items());
    Ok(Value::list(items))
}

fn subtract<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Int(left), Value::Int(right)] => integer(left.checked_sub(*right)),
        [Value::Uint(left), Value::Uint(right)] => unsigned(left.checked_sub(*right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left - right)),
        [Value::Duration(left), Value::Duration(right)] => duration(left.subtract(*right)),
        [Value::Timestamp(left), Value::Timestamp(right)] => duration(left.since(*right)),
        [Value::Timestamp(time), Value::Duration(length)] => timestamp(time.subtract(*length)),
        _ => mismatched(),
    }
}

fn multiply<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Int(left), Value::Int(right)] => integer(left.checked_mul(*right)),
        [Value::Uint(left), Value::Uint(right)] => unsigned(left.checked_mul(*right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left * right)),
        _ => mismatched(),
    }
}

fn divide<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(EvalError::failed("division by zero"))
        }
        [Value::Int(left), Value::Int(right)] => integer(left.checked_div(*right)),
        [Value::Uint(left), Value::Uint(right)] => unsigned(left.checked_div(*right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left / right)),
        _ => mismatched(),
    }
}

fn modulo<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(EvalError::failed("modulus by zero"))
        }
        [Value::Int(left), Value::Int(right)] => integer(left.checked_rem(*right)),
        [Value::Uint(left), Value::Uint(right)] => unsigned(left.checked_rem(*right)),
        _ => mismatched(),
    }
}

fn negate<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Int(value)] => integer(value.checked_neg()),
        [Value::Double(value)] => Ok(Value::Double(-value)),
        [Value::Duration(value)] => duration(value.negate()),
        _ => mismatched(),
    }
}

fn ordered<'a>(arguments: &[Value<'a>], holds: impl FnOnce(Ordering) -> bool) -> Computed<'a> {
    match arguments {
        [left, right] => compare(left, right).map(|order| Value::Bool(holds(order))),
        _ => mismatched(),
    }
}

fn less<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    ordered(arguments, Ordering::is_lt)
}

fn less_equal<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    ordered(arguments, Ordering::is_le)
}

fn greater<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    ordered(arguments, Ordering::is_gt)
}

fn greater_equal<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    ordered(arguments, Ordering::is_ge)
}

fn contained<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [item, Value::List(list)] => {
            own.work(list.len() * 4)?;
            Ok(Value::Bool(list.items().any(|other| equal(item, &other))))
        }
        [key, Value::Map(map)] => Ok(Value::Bool(has_key(map, key))),
        _ => mismatched(),
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
        _ => mismatched(),
    }
}

fn contains<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::String(text), Value::String(part)] => {
            own.work(text.len())?;
            Ok(Value::Bool(text.contains(&**part)))
        }
        _ => mismatched(),
    }
}

fn starts_with<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::String(text), Value::String(start)] => Ok(Value::Bool(text.starts_with(&**start))),
        _ => mismatched(),
    }
}

fn ends_with<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::String(text), Value::String(end)] => Ok(Value::Bool(text.ends_with(&**end))),
        _ => mismatched(),
    }
}

fn matches<'a>(own: &mut Evaluation<'_, 'a>, call: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text), Value::String(pattern)] = arguments else {
        return mismatched();
    };
    own.work(text.len())?;
    let found = match &call.prepared {
        Some(Prepared::Regex(regex)) => regex.is_match(text),
        _ => super::regex(pattern).map_err(EvalError::failed)?.is_match(text),
    };
    Ok(Value::Bool(found))
}

fn type_of<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [value] => Ok(Value::Type(Arc::new(value.type_of()))),
        _ => mismatched(),
    }
}

fn itself<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [value] => Ok(value.clone()),
        _ => mismatched(),
    }
}

/// A value that has no such type.
fn unconvertible<'a>(from: &Value<'_>, to: &str) -> Computed<'a> {
    Err(EvalError::failed(format!(
        "type conversion error from '{}' to '{to}'",
        from.type_of()
    )))
}

fn to_bool<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        [Value::String(text)] => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => unconvertible(&Value::str(""), "bool"),
        },
        _ => mismatched(),
    }
}

fn to_bytes<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [bytes @ Value::Bytes(_)] => Ok(bytes.clone()),
        [Value::String(Text::Borrowed(text))] => Ok(Value::Bytes(Bytes::Borrowed(text.as_bytes()))),
        [Value::String(text)] => Ok(Value::Bytes(Bytes::from(text.as_bytes().to_vec()))),
        _ => mismatched(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "as Go converts")]
fn to_double<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Double(double)] => Ok(Value::Double(*double)),
        [Value::Int(int)] => Ok(Value::Double(*int as f64)),
        [Value::Uint(uint)] => Ok(Value::Double(*uint as f64)),
        [text @ Value::String(digits)] => match digits.parse::<f64>() {
            Ok(double) if double.is_finite() || !digits.contains(|c: char| c.is_ascii_digit()) => {
                Ok(Value::Double(double))
            }
            _ => unconvertible(text, "double"),
        },
        _ => mismatched(),
    }
}

fn to_duration<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Duration(duration)] => Ok(Value::Duration(*duration)),
        [value @ Value::String(text)] => match crate::cel::value::Duration::parse(text) {
            Some(duration) => Ok(Value::Duration(duration)),
            None => unconvertible(value, "google.protobuf.Duration"),
        },
        [value @ Value::Int(_)] => unconvertible(value, "google.protobuf.Duration"),
        _ => mismatched(),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "checked to be in range")]
fn to_int<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    const LIMIT: f64 = 9_223_372_036_854_775_807.0;
    match arguments {
        [Value::Int(int)] => Ok(Value::Int(*int)),
        [Value::Uint(uint)] => integer(i64::try_from(*uint).ok()),
        [Value::Double(double)] => {
            let fits = double.is_finite() && *double > -LIMIT && *double < LIMIT;
            integer(fits.then_some(*double as i64))
        }
        [Value::Duration(duration)] => Ok(Value::Int(duration.nanoseconds())),
        [Value::Timestamp(timestamp)] => Ok(Value::Int(timestamp.seconds())),
        [value @ Value::String(text)] => match text.parse() {
            Ok(int) => Ok(Value::Int(int)),
            Err(_) => unconvertible(value, "int"),
        },
        _ => mismatched(),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be in range"
)]
fn to_uint<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    const LIMIT: f64 = 18_446_744_073_709_551_615.0;
    match arguments {
        [Value::Uint(uint)] => Ok(Value::Uint(*uint)),
        [Value::Int(int)] => unsigned(u64::try_from(*int).ok()),
        [Value::Double(double)] => {
            let fits = double.is_finite() && *double >= 0.0 && *double < LIMIT;
            unsigned(fits.then_some(*double as u64))
        }
        [value @ Value::String(text)] => match text.parse::<u64>() {
            Ok(uint) if !text.starts_with('+') => Ok(Value::Uint(uint)),
            _ => unconvertible(value, "uint"),
        },
        _ => mismatched(),
    }
}

fn to_string<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let text = match arguments {
        [text @ Value::String(_)] => return Ok(text.clone()),
        [Value::Bool(value)] => value.to_string(),
        [Value::Bytes(bytes)] => {
            own.work(bytes.len())?;
            let text = std::str::from_utf8(bytes);
            text.map_err(|_| EvalError::failed("invalid UTF-8 in bytes, cannot convert to string"))?
                .to_owned()
        }
        [Value::Double(double)] => shortest(*double),
        [Value::Duration(duration)] => duration.to_string(),
        [Value::Int(int)] => int.to_string(),
        [Value::Timestamp(timestamp)] => timestamp.to_string(),
        [Value::Uint(uint)] => uint.to_string(),
        _ => return mismatched(),
    };
    Ok(Value::String(Text::from(text)))
}

/// As Go's `%g` writes it: an exponent below 10⁻⁴ and from 10²¹ on.
pub(super) fn shortest(double: f64) -> String {
    if double.is_nan() {
        return "NaN".into();
    }
    if double.is_infinite() {
        return if double > 0.0 {
            "+Inf".into()
        } else {
            "-Inf".into()
        };
    }
    let scientific = format!("{double:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..21).contains(&exponent) {
        return format!("{double}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn to_timestamp<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Timestamp(timestamp)] => Ok(Value::Timestamp(*timestamp)),
        [Value::Int(seconds)] => timestamp(crate::cel::value::Timestamp::from_seconds(*seconds)),
        [value @ Value::String(text)] => match crate::cel::value::Timestamp::parse(text) {
            Some(timestamp) => Ok(Value::Timestamp(timestamp)),
            None => unconvertible(value, "google.protobuf.Timestamp"),
        },
        _ => mismatched(),
    }
}
