//! Functions that are only available in mutations (apiserver `pkg/cel/library/jsonpatch.go`).

use super::standard::{Computed, no_such_overload};
use super::strings::first_size;
use crate::cost;
use crate::evaluate::Evaluation;
use crate::function::{Cost, Overload};
use crate::program::Call;
use crate::types::Type::String as Str;
use crate::value::Value;

pub(crate) fn functions() -> Vec<Overload> {
    let read = Cost::OfFunction(|arguments, _| first_size(arguments, cost::traverse));
    let id = "string_jsonpatch_escapeKey_string";
    vec![Overload::global(id, "jsonpatch.escapeKey", [Str], Str, escape_key).cost(read)]
}

/// Escapes a key for a JSON Pointer: `~` as `~0`, `/` as `~1`.
fn escape_key<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text)] = arguments else {
        return no_such_overload();
    };
    own.make_text(4 * text.len(), || text.replace('~', "~0").replace('/', "~1"))
}
