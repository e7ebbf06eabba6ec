//! CEL's own operators on numbers, times, lists and strings (cel-go `common/stdlib/standard.go`).

use super::standard::{Computed, no_such_overload};
use crate::evaluate::Evaluation;
use crate::function::{A, Apply, Cost, Overload};
use crate::program::Call;
use crate::types::Type;
use crate::types::Type::{Bytes as BytesType, Double, Duration, Int, String as Str, Timestamp, Uint};
use crate::value::{Bytes, List, Text, Value};
use crate::{EvalError, cost};

pub(crate) fn functions() -> Vec<Overload> {
    let listed = Type::list(A);
    let both =
        |id, name, of: Type, apply: Apply| Overload::global(id, name, [of.clone(), of.clone()], of, apply);
    let copied = Cost::OfOverload(|arguments, _| match arguments {
        [left, right] => cost::traverse(cost::size(left) + cost::size(right)),
        _ => 1,
    });
    vec![
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
    ]
}

pub(crate) fn integer<'a>(result: Option<i64>) -> Computed<'a> {
    result
        .map(Value::Int)
        .ok_or_else(|| EvalError::failed("integer overflow"))
}

pub(crate) fn unsigned<'a>(result: Option<u64>) -> Computed<'a> {
    result
        .map(Value::Uint)
        .ok_or_else(|| EvalError::failed("unsigned integer overflow"))
}

fn duration<'a>(result: Option<crate::value::Duration>) -> Computed<'a> {
    result
        .map(Value::Duration)
        .ok_or_else(|| EvalError::failed("integer overflow"))
}

pub(crate) fn timestamp<'a>(result: Option<crate::value::Timestamp>) -> Computed<'a> {
    result
        .map(Value::Timestamp)
        .ok_or_else(|| EvalError::failed("timestamp overflow"))
}

pub(crate) fn add<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Int(left), Value::Int(right)] => integer(left.checked_add(*right)),
        [Value::Uint(left), Value::Uint(right)] => unsigned(left.checked_add(*right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left + right)),
        [Value::String(left), Value::String(right)] => concatenate(own, left, right),
        [Value::Bytes(left), Value::Bytes(right)] => {
            let bytes = left.len() + right.len();
            own.allocate_text(bytes.saturating_mul(2))?;
            let concatenated = Bytes::from([&**left, &**right].concat());
            own.release(bytes);
            Ok(Value::Bytes(concatenated))
        }
        [Value::List(left), Value::List(right)] => append(own, left, right),
        [Value::Duration(left), Value::Duration(right)] => duration(left.add(*right)),
        [Value::Duration(length), Value::Timestamp(time)]
        | [Value::Timestamp(time), Value::Duration(length)] => timestamp(time.add(*length)),
        _ => no_such_overload(),
    }
}

fn concatenate<'a>(own: &mut Evaluation<'_, 'a>, left: &Text<'a>, right: &Text<'a>) -> Computed<'a> {
    let bytes = left.len() + right.len();
    own.make_text(bytes, || {
        let mut text = String::with_capacity(bytes);
        text.push_str(left);
        text.push_str(right);
        text
    })
}

fn append<'a>(own: &mut Evaluation<'_, 'a>, left: &List<'a>, right: &List<'a>) -> Computed<'a> {
    if right.is_empty() {
        return Ok(Value::List(left.clone()));
    }
    if left.is_empty() {
        return Ok(Value::List(right.clone()));
    }
    own.allocate_items(left.len() + right.len())?;
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
        [Value::Timestamp(time), Value::Duration(length)] => match length.negate() {
            Some(length) => timestamp(time.add(length)),
            None => integer(None),
        },
        _ => no_such_overload(),
    }
}

fn multiply<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Int(left), Value::Int(right)] => integer(left.checked_mul(*right)),
        [Value::Uint(left), Value::Uint(right)] => unsigned(left.checked_mul(*right)),
        [Value::Double(left), Value::Double(right)] => Ok(Value::Double(left * right)),
        _ => no_such_overload(),
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
        _ => no_such_overload(),
    }
}

fn modulo<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(EvalError::failed("modulus by zero"))
        }
        [Value::Int(left), Value::Int(right)] => integer(left.checked_rem(*right)),
        [Value::Uint(left), Value::Uint(right)] => unsigned(left.checked_rem(*right)),
        _ => no_such_overload(),
    }
}

fn negate<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Int(value)] => integer(value.checked_neg()),
        [Value::Double(value)] => Ok(Value::Double(-value)),
        [Value::Duration(value)] => duration(value.negate()),
        _ => no_such_overload(),
    }
}
