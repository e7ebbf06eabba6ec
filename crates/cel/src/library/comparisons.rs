//! Comparison functions shared by quantities and versions.

use std::cmp::Ordering;

use super::standard::Computed;
use crate::error::EvalError;
use crate::evaluate::Evaluation;
use crate::function::{Cost, Overload};
use crate::program::Call;
use crate::types::Type::{self, Bool, Int};
use crate::value::{Opaque, Value};

/// `isGreaterThan`, `isLessThan` and `compareTo` of a type, with the names of the overloads.
pub(crate) fn functions(of: &Type, [greater, less, compare]: [&'static str; 3]) -> [Overload; 3] {
    let nominal = Cost::OfFunction(|_, _| 1);
    let two = || [of.clone(), of.clone()];
    [
        Overload::member(greater, "isGreaterThan", two(), Bool, is_greater).cost(nominal),
        Overload::member(less, "isLessThan", two(), Bool, is_less).cost(nominal),
        Overload::member(compare, "compareTo", two(), Int, compare_to).cost(nominal),
    ]
}

fn order(arguments: &[Value<'_>]) -> Result<Ordering, EvalError> {
    match arguments {
        [Value::Opaque(left), Value::Opaque(right)] => match (left, right) {
            (Opaque::Semver(left), Opaque::Semver(right)) => Ok(left.compare(right)),
            (left, right) => left
                .quantity()
                .zip(right.quantity())
                .map(|(left, right)| left.compare(right))
                .ok_or_else(EvalError::no_such_overload),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

fn is_greater<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    order(arguments).map(|order| Value::Bool(order.is_gt()))
}

fn is_less<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    order(arguments).map(|order| Value::Bool(order.is_lt()))
}

fn compare_to<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    order(arguments).map(|order| Value::Int(order as i64))
}
