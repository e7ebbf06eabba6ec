//! Functions for mutations only (apiserver `pkg/cel/library/jsonpatch.go`).

use super::standard::{Computed, mismatched};
use super::strings::first_size;
use crate::cel::cost;
use crate::cel::evaluate::Evaluation;
use crate::cel::function::{Cost, Overload};
use crate::cel::program::Call;
use crate::cel::types::Type::String as Str;
use crate::cel::value::{Text, Value};

pub(super) fn functions() -> Vec<Overload> {
    let read = Cost::OfFunction(|arguments, _| first_size(arguments, cost::traverse));
    let id = "string_jsonpatch_escapeKey_string";
    vec![Overload::global(id, "jsonpatch.escapeKey", [Str], Str, escape_key).cost(read)]
}

/// As a step of a JSON Pointer: `~` is `~0`, `/` is `~1`.
fn escape_key<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text)] = arguments else {
        return mismatched();
    };
    own.work(text.len())?;
    Ok(Value::String(Text::from(
        text.replace('~', "~0").replace('/', "~1"),
    )))
}
