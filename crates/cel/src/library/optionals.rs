//! The functions of optional values (cel-go `cel/library.go`).

use std::sync::Arc;

use super::standard::{Computed, no_such_overload};
use crate::EvalError;
use crate::evaluate::Evaluation;
use crate::function::{A, Overload};
use crate::program::Call;
use crate::types::Type;
use crate::value::Value;

pub(crate) fn functions() -> Vec<Overload> {
    let optional = || Type::optional(A);
    vec![
        Overload::global("optional_of", "optional.of", [A], optional(), of),
        Overload::global(
            "optional_ofNonZeroValue",
            "optional.ofNonZeroValue",
            [A],
            optional(),
            of_non_zero,
        ),
        Overload::global("optional_none", "optional.none", [], optional(), none),
        Overload::global(
            "optional_unwrap",
            "optional.unwrap",
            [Type::list(optional())],
            Type::list(A),
            unwrap,
        ),
        Overload::member(
            "optional_unwrapOpt",
            "unwrapOpt",
            [Type::list(optional())],
            Type::list(A),
            unwrap,
        ),
        Overload::member("optional_value", "value", [optional()], A, value),
        Overload::member(
            "optional_hasValue",
            "hasValue",
            [optional()],
            Type::Bool,
            has_value,
        ),
        // The checker plans these two as `PlanNode::OptionalOr`: `value` is never called for them.
        Overload::member(
            "optional_or_optional",
            "or",
            [optional(), optional()],
            optional(),
            value,
        ),
        Overload::member("optional_orValue_value", "orValue", [optional(), A], A, value),
        Overload::member("list_first", "first", [Type::list(A)], optional(), first),
        Overload::member("list_last", "last", [Type::list(A)], optional(), last),
    ]
}

fn of<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [value] => Ok(Value::some(value.clone())),
        _ => no_such_overload(),
    }
}

fn of_non_zero<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [value] if value.is_zero() => Ok(Value::none()),
        [value] => Ok(Value::some(value.clone())),
        _ => no_such_overload(),
    }
}

fn none<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, _: &[Value<'a>]) -> Computed<'a> {
    Ok(Value::none())
}

fn unwrap<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::List(list)] = arguments else {
        return no_such_overload();
    };
    own.allocate_items(list.len())?;
    let mut values = Vec::new();
    for item in list.items() {
        match item {
            Value::Optional(inner) => values.extend(inner.map(Arc::unwrap_or_clone)),
            item => {
                let item = item.printed();
                return Err(EvalError::failed(format_args!("value {item} is not optional")));
            }
        }
    }
    Ok(Value::list(values))
}

fn value<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Optional(Some(inner))] => Ok((**inner).clone()),
        [Value::Optional(None)] => Err(EvalError::failed("optional.none() dereference")),
        _ => no_such_overload(),
    }
}

fn has_value<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::Optional(inner)] => Ok(Value::Bool(inner.is_some())),
        _ => no_such_overload(),
    }
}

fn first<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::List(list)] => Ok(list.get(0).map_or(Value::none(), Value::some)),
        _ => no_such_overload(),
    }
}

fn last<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    match arguments {
        [Value::List(list)] => {
            let last = list.len().checked_sub(1).and_then(|last| list.get(last));
            Ok(last.map_or(Value::none(), Value::some))
        }
        _ => no_such_overload(),
    }
}
