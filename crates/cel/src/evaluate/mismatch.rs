//! What a call says that no overload takes. It depends on how cel-go binds the function: to its
//! overloads, each guarded by its types (`common/decls/decls.go`), or to one implementation for
//! what has a trait (`common/stdlib/standard.go`, `interpreter/interpretable.go`).

use crate::environment::Version;
use crate::error::EvalError;
use crate::function::Overload;
use crate::program::Call;
use crate::value::Value;

const NO_SUCH_OVERLOAD: &str = "no such overload";

/// How a function is bound to its name.
enum FunctionBinding {
    /// Each overload is called with values of its types only.
    Guarded,
    /// One implementation takes whatever has its trait.
    Trait(fn(&Value<'_>) -> bool),
    /// One implementation looks at its arguments itself.
    Unguarded,
}

/// What becomes of a call that no overload takes: what is bound for a trait, or looks at its
/// arguments itself, is called all the same.
pub(crate) fn unguarded(call: &Call) -> Option<&Overload> {
    let first = call.overloads.first()?;
    match binding(call, first.name) {
        FunctionBinding::Guarded => None,
        FunctionBinding::Trait(_) | FunctionBinding::Unguarded => Some(first),
    }
}

/// What becomes of `error`, with which `call` failed: if no overload takes its arguments, upstream
/// says that before it says anything else.
#[cold]
pub(crate) fn worded(call: &Call, arguments: &[Value<'_>], error: EvalError, version: Version) -> EvalError {
    let EvalError::Failed(text) = &error else {
        return error;
    };
    let Some(name) = call.overloads.first().map(|overload| overload.name) else {
        return error;
    };
    let is_mismatch = **text == *NO_SUCH_OVERLOAD;
    match binding(call, name) {
        FunctionBinding::Guarded if !call.overloads.iter().any(|overload| overload.takes(arguments)) => {
            of_types(name, arguments)
        }
        FunctionBinding::Trait(has) if is_mismatch => arguments
            .first()
            .map_or(error, |target| of_trait(name, target, has(target))),
        FunctionBinding::Unguarded if is_mismatch && name == "flatten" => unflattened(arguments, version),
        _ => error,
    }
}

/// What a function says that is bound for values with a trait, and called on `target`, which
/// `has` it or not.
pub(crate) fn of_trait(name: &str, target: &Value<'_>, has: bool) -> EvalError {
    // These have methods of their own, and say no more of what none of them is.
    let is_receiver = matches!(
        target,
        Value::String(_) | Value::Timestamp(_) | Value::Duration(_)
    );
    if has || is_receiver {
        EvalError::no_such_overload()
    } else {
        EvalError::failed(format!("{NO_SUCH_OVERLOAD}: {name}"))
    }
}

/// What a function says that takes none of these types.
pub(crate) fn of_types<'v, 'a: 'v>(
    name: &str,
    arguments: impl IntoIterator<Item = &'v Value<'a>>,
) -> EvalError {
    let types: Vec<String> = arguments
        .into_iter()
        .map(|argument| argument.type_of().runtime_name())
        .collect();
    EvalError::failed(format!("{NO_SUCH_OVERLOAD}: {name}({})", types.join(", ")))
}

fn unflattened(arguments: &[Value<'_>], version: Version) -> EvalError {
    let mut types = arguments.iter().map(|argument| match argument {
        Value::Type(_) => "type".into(),
        Value::Optional(_) if version < Version::CEL_GO_0_29 => "optional_type".into(),
        argument => argument.type_of().to_string(),
    });
    let list: String = types.next().unwrap_or_default();
    let depth: String = types.next().unwrap_or_default();
    EvalError::failed(format!("{NO_SUCH_OVERLOAD}: {list}.flatten({depth})"))
}

/// What the Go runtime says where code takes for a list what is none: `value`; if there is none, an error.
#[cold]
pub(crate) fn not_a_list(value: Option<&Value<'_>>) -> EvalError {
    let is = go_type(value);
    let missing = match value {
        Some(value) if is_adder(value) => "Contains",
        _ => "Add",
    };
    EvalError::internal(format!(
        "interface conversion: {is} is not traits.Lister: missing method {missing}"
    ))
}

/// What the Go runtime says where code takes for an int what is none: `value`; if there is none, an error.
#[cold]
pub(crate) fn not_an_int(value: Option<&Value<'_>>) -> EvalError {
    let is = go_type(value);
    EvalError::internal(format!("interface conversion: ref.Val is {is}, not types.Int"))
}

fn go_type(value: Option<&Value<'_>>) -> &'static str {
    value.map_or("*types.Err", Value::go_type)
}

fn binding(call: &Call, name: &str) -> FunctionBinding {
    match name {
        // A pattern that is known beforehand replaces the function.
        "matches" | "find" | "findAll" if call.prepared.is_some() => FunctionBinding::Unguarded,
        "!_" | "@in" | "type" | "dyn" | "contains" | "startsWith" | "endsWith" | "flatten" => {
            FunctionBinding::Unguarded
        }
        "_+_" => FunctionBinding::Trait(is_adder),
        "_-_" => FunctionBinding::Trait(is_subtractor),
        "_*_" | "_/_" => FunctionBinding::Trait(is_number),
        "_%_" => FunctionBinding::Trait(|value| matches!(value, Value::Int(_) | Value::Uint(_))),
        "-_" => FunctionBinding::Trait(is_negator),
        "_<_" | "_<=_" | "_>_" | "_>=_" => FunctionBinding::Trait(is_comparer),
        "size" => FunctionBinding::Trait(is_sizer),
        "matches" => FunctionBinding::Trait(|value| matches!(value, Value::String(_))),
        "sort" => FunctionBinding::Trait(|value| matches!(value, Value::List(_))),
        _ => FunctionBinding::Guarded,
    }
}

const fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Double(_) | Value::Int(_) | Value::Uint(_))
}

const fn is_adder(value: &Value<'_>) -> bool {
    is_subtractor(value) || matches!(value, Value::Bytes(_) | Value::List(_) | Value::String(_))
}

const fn is_subtractor(value: &Value<'_>) -> bool {
    is_number(value) || matches!(value, Value::Duration(_) | Value::Timestamp(_))
}

const fn is_negator(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bool(_) | Value::Double(_) | Value::Duration(_) | Value::Int(_)
    )
}

const fn is_comparer(value: &Value<'_>) -> bool {
    is_subtractor(value) || matches!(value, Value::Bool(_) | Value::Bytes(_) | Value::String(_))
}

const fn is_sizer(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bytes(_) | Value::List(_) | Value::Map(_) | Value::String(_)
    )
}
