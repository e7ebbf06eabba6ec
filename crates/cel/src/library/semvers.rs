//! Functions of semantic versions (apiserver `pkg/cel/library/semverlib.go`, version 1).

use std::sync::Arc;

use super::comparisons;
use super::standard::{Computed, no_such_overload};
use super::strings::first_size;
use crate::evaluate::Evaluation;
use crate::function::{Cost, Overload};
use crate::program::Call;
use crate::types::Type::{self, Bool, Int, String as Str};
use crate::value::{Opaque, Semver, SemverFault, Value};
use crate::{EvalError, cost};

/// The type of a semantic version.
pub(crate) const SEMVER: Type = Type::Opaque("kubernetes.Semver");

pub(crate) fn functions() -> Vec<Overload> {
    let read = Cost::OfFunction(|arguments, _| first_size(arguments, cost::traverse));
    let nominal = Cost::OfFunction(|_, _| 1);
    let names = [
        "semver_is_greater_than",
        "semver_is_less_than",
        "semver_compare_to",
    ];
    let mut functions = vec![
        Overload::global("string_to_semver", "semver", [Str], SEMVER, semver).cost(read),
        Overload::global("string_bool_to_semver", "semver", [Str, Bool], SEMVER, semver).cost(read),
        Overload::global("is_semver_string", "isSemver", [Str], Bool, is_semver).cost(read),
        Overload::global("is_semver_string_bool", "isSemver", [Str, Bool], Bool, is_semver).cost(read),
        Overload::member("semver_major", "major", [SEMVER], Int, major).cost(nominal),
        Overload::member("semver_minor", "minor", [SEMVER], Int, minor).cost(nominal),
        Overload::member("semver_patch", "patch", [SEMVER], Int, patch).cost(nominal),
    ];
    functions.extend(comparisons(&SEMVER, names));
    functions
}

fn parse(
    own: &mut Evaluation<'_, '_>,
    arguments: &[Value<'_>],
) -> Result<Result<Semver, SemverFault>, EvalError> {
    if let [Value::String(text), ..] = arguments {
        own.has_room(Semver::max_bytes_of(text))?;
    }
    match arguments {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Ok(Semver::parse(text)),
        [Value::String(text), Value::Bool(true)] => Ok(Semver::parse_lenient(text)),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn semver<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let semver = parse(own, arguments)?.map_err(EvalError::failed)?;
    Ok(Value::Opaque(Opaque::Semver(Arc::new(semver))))
}

fn is_semver<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    parse(own, arguments).map(|semver| Value::Bool(semver.is_ok()))
}

/// Converts as Go does: a number beyond int64 wraps around.
#[expect(clippy::cast_possible_wrap, reason = "as upstream")]
fn number<'a>(arguments: &[Value<'a>], of: impl FnOnce([u64; 3]) -> u64) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Semver(semver))] => Ok(Value::Int(of(semver.numbers) as i64)),
        _ => no_such_overload(),
    }
}

fn major<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    number(arguments, |[major, _, _]| major)
}

fn minor<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    number(arguments, |[_, minor, _]| minor)
}

fn patch<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    number(arguments, |[_, _, patch]| patch)
}
