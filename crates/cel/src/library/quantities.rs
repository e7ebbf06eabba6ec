//! Functions of quantities (apiserver `pkg/cel/library/quantity.go`).

use std::sync::Arc;

use super::comparisons;
use super::standard::{Computed, no_such_overload};
use super::strings::first_size;
use crate::evaluate::Evaluation;
use crate::function::{Cost, Overload};
use crate::program::Call;
use crate::types::Type::{self, Bool, Double, Int, String as Str};
use crate::value::{Opaque, Quantity, Value};
use crate::{EvalError, cost};

/// The type of a quantity.
pub(crate) const QUANTITY: Type = Type::Opaque("kubernetes.Quantity");

pub(crate) fn functions() -> Vec<Overload> {
    let read = Cost::OfFunction(|arguments, _| first_size(arguments, cost::traverse));
    let nominal = Cost::OfFunction(|_, _| 1);
    let two = [QUANTITY, QUANTITY];
    let names = [
        "quantity_is_greater_than",
        "quantity_is_less_than",
        "quantity_compare_to",
    ];
    let mut functions = vec![
        Overload::global("string_to_quantity", "quantity", [Str], QUANTITY, quantity).cost(read),
        Overload::global("is_quantity_string", "isQuantity", [Str], Bool, is_quantity).cost(read),
        Overload::global("quantity_sign", "sign", [QUANTITY], Int, sign).cost(nominal),
        Overload::member(
            "quantity_get_float",
            "asApproximateFloat",
            [QUANTITY],
            Double,
            as_double,
        )
        .cost(nominal),
        Overload::member("quantity_get_int", "asInteger", [QUANTITY], Int, as_int).cost(nominal),
        Overload::member("quantity_is_integer", "isInteger", [QUANTITY], Bool, is_int).cost(nominal),
        Overload::member("quantity_add", "add", two.clone(), QUANTITY, add).cost(nominal),
        Overload::member("quantity_add_int", "add", [QUANTITY, Int], QUANTITY, add).cost(nominal),
        Overload::member("quantity_sub", "sub", two, QUANTITY, subtract).cost(nominal),
        Overload::member("quantity_sub_int", "sub", [QUANTITY, Int], QUANTITY, subtract).cost(nominal),
    ];
    functions.extend(comparisons(&QUANTITY, names));
    functions
}

fn quantity<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text)] = arguments else {
        return no_such_overload();
    };
    own.work(text.len().saturating_mul(60))?;
    Quantity::parse(text)
        .map(|quantity| Value::Opaque(Opaque::Quantity(Arc::new(quantity))))
        .map_err(EvalError::failed)
}

fn is_quantity<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text)] = arguments else {
        return no_such_overload();
    };
    own.work(text.len().saturating_mul(60))?;
    Ok(Value::Bool(Quantity::parse(text).is_ok()))
}

fn one<'l>(arguments: &'l [Value<'_>]) -> Result<&'l Quantity, EvalError> {
    match arguments {
        [Value::Opaque(opaque)] => opaque.quantity().ok_or_else(EvalError::no_such_overload),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn sign<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    one(arguments).map(|quantity| Value::Int(quantity.sign()))
}

fn as_double<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    one(arguments).map(|quantity| Value::Double(quantity.as_double()))
}

fn as_int<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let int = one(arguments)?.as_int();
    int.map(Value::Int)
        .ok_or_else(|| EvalError::failed("cannot convert value to integer"))
}

fn is_int<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    one(arguments).map(|quantity| Value::Bool(quantity.as_int().is_some()))
}

fn combined<'a>(
    arguments: &[Value<'a>],
    combine: impl FnOnce(&Quantity, &Quantity) -> Option<Quantity>,
) -> Computed<'a> {
    let [left, right] = arguments else {
        return no_such_overload();
    };
    let left = one(std::slice::from_ref(left))?;
    let combined = match right {
        Value::Int(right) => combine(left, &Quantity::from_int(*right)),
        right => combine(left, one(std::slice::from_ref(right))?),
    };
    combined
        .map(|sum| Value::Opaque(Opaque::ComputedQuantity(Arc::new(sum))))
        .ok_or_else(|| EvalError::failed("the amounts have too many digits"))
}

fn add<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    combined(arguments, Quantity::add)
}

fn subtract<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    combined(arguments, Quantity::subtract)
}
