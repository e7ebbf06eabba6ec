//! `find` and `findAll` (apiserver `pkg/cel/library/regex.go`).

use std::borrow::Cow;

use regex::Regex;

use super::Prepared;
use super::standard::{Computed, mismatched};
use crate::cel::cost;
use crate::cel::error::EvalError;
use crate::cel::evaluate::Evaluation;
use crate::cel::function::{Cost, Overload};
use crate::cel::program::Call;
use crate::cel::types::Type::{self, Int, String as Str};
use crate::cel::value::{Text, Value};

pub(super) fn functions() -> Vec<Overload> {
    let matched = Cost::OfFunction(|arguments, _| match arguments {
        [text, pattern, ..] => cost::regex(cost::plain_size(text), cost::plain_size(pattern)),
        _ => 1,
    });
    let texts = || Type::list(Str);
    vec![
        Overload::member("string_find_string", "find", [Str, Str], Str, find).cost(matched),
        Overload::member("string_find_all_string", "findAll", [Str, Str], texts(), find_all).cost(matched),
        Overload::member(
            "string_find_all_string_int",
            "findAll",
            [Str, Str, Int],
            texts(),
            find_all,
        )
        .cost(matched),
    ]
}

/// The pattern of a call, compiled beforehand if it is constant.
pub(super) fn pattern<'c>(call: &'c Call, pattern: &str) -> Result<Cow<'c, Regex>, EvalError> {
    match &call.prepared {
        Some(Prepared::Regex(regex)) => Ok(Cow::Borrowed(regex)),
        _ => super::regex(pattern).map(Cow::Owned).map_err(EvalError::failed),
    }
}

fn find<'a>(own: &mut Evaluation<'_, 'a>, call: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text), Value::String(regex)] = arguments else {
        return mismatched();
    };
    own.work(text.len())?;
    let regex = pattern(call, regex)?;
    let range = regex.find(text).map_or(0..0, |found| found.range());
    Ok(Value::String(
        text.part(|text| text.get(range).unwrap_or_default()),
    ))
}

fn find_all<'a>(own: &mut Evaluation<'_, 'a>, call: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (text, regex, limit) = match arguments {
        [Value::String(text), Value::String(regex)] => (text, regex, -1),
        [Value::String(text), Value::String(regex), Value::Int(limit)] => (text, regex, *limit),
        _ => return mismatched(),
    };
    own.work(text.len().saturating_mul(8))?;
    let regex = pattern(call, regex)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let found: Vec<Value<'a>> = match text {
        Text::Borrowed(text) => regex
            .find_iter(text)
            .take(limit)
            .map(|found| Value::str(found.as_str()))
            .collect(),
        Text::Shared(text) => regex
            .find_iter(text)
            .take(limit)
            .map(|found| Value::string(found.as_str()))
            .collect(),
    };
    Ok(Value::list(found))
}
