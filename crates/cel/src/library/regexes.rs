//! The functions `find` and `findAll` (apiserver `pkg/cel/library/regex.go`).

use super::PreparedArgument;
use super::standard::{Computed, no_such_overload};
use crate::evaluate::Evaluation;
use crate::function::{Cost, Overload};
use crate::program::Call;
use crate::regex::{self, CompileFault, Meter, Regex, RegexError, StoppedError};
use crate::types::Type::{self, Int, String as Str};
use crate::value::Value;
use crate::{EvalError, cost};

/// The longest pattern that is not constant, in bytes. Upstream has no limit.
const MAX_PATTERN_BYTES: usize = 64 << 10;

/// An upper bound of the compiled bytes for each byte of a pattern.
const COMPILED_BYTES_PER_BYTE: usize = 400;

pub(crate) fn functions() -> Vec<Overload> {
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

/// Calls `run` with the regular expression of a call, which is compiled before if it is constant.
pub(crate) fn with_pattern<T>(
    own: &mut Evaluation<'_, '_>,
    call: &Call,
    pattern: &str,
    run: impl FnOnce(&Regex, Meter<'_>) -> Result<T, StoppedError>,
) -> Result<Result<T, RegexError>, EvalError> {
    let stopped = || EvalError::internal("a search gave up");
    let compiled;
    let regex = if let Some(PreparedArgument::Regex(regex)) = &call.prepared {
        regex
    } else {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(EvalError::failed(format_args!(
                "a regular expression that is not constant may have at most {MAX_PATTERN_BYTES} bytes"
            )));
        }
        // Only checked and not allocated, because the tree and the program are dropped after the
        // call.
        own.has_room(pattern.len().saturating_mul(COMPILED_BYTES_PER_BYTE))?;
        match own.metered(|meter| regex::compiled(pattern, meter))? {
            Ok(regex) => compiled = regex,
            Err(CompileFault::Invalid(error)) => return Ok(Err(error)),
            Err(CompileFault::Stopped) => return Err(stopped()),
        }
        &compiled
    };
    let found = own.metered(|meter| run(regex, meter))?;
    found.map(Ok).map_err(|StoppedError| stopped())
}

fn illegal(error: &RegexError) -> EvalError {
    EvalError::failed(format_args!("Illegal regex: {error}"))
}

fn find<'a>(own: &mut Evaluation<'_, 'a>, call: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text), Value::String(pattern)] = arguments else {
        return no_such_overload();
    };
    let found = with_pattern(own, call, pattern, |regex, meter| regex.find_at(text, 0, meter))?;
    let (start, end) = found.map_err(|error| illegal(&error))?.unwrap_or_default();
    own.part(text, |text| text.get(start..end).unwrap_or_default())
}

fn find_all<'a>(own: &mut Evaluation<'_, 'a>, call: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (text, pattern, limit) = match arguments {
        [Value::String(text), Value::String(pattern)] => (text, pattern, -1),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => (text, pattern, *limit),
        _ => return no_such_overload(),
    };
    // One match more than there is memory for, so that it becomes an error.
    let room = own.room_for_items() + 1;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(room);
    let found = with_pattern(own, call, pattern, |regex, meter| {
        regex.find_all(text, limit, meter)
    })?;
    let found = found.map_err(|error| illegal(&error))?;
    own.allocate_items(found.len())?;
    let mut part = |(start, end)| own.part(text, |text| text.get(start..end).unwrap_or_default());
    let parts: Result<Vec<Value<'a>>, EvalError> = found.into_iter().map(&mut part).collect();
    parts.map(Value::list)
}
