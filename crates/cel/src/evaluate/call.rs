//! Calls of functions, `&&` and `||`, `==` and `!=`.

use super::Evaluation;
use crate::cost::STEPS_PER_NODE;
use crate::environment::Version;
use crate::function::{Cost, Overload};
use crate::program::{Call, InSet, PlanNode};
use crate::value::{Opaque, Value, equal, is_incomparable};
use crate::{EvalError, cost};

/// Takes the place of an argument or result that failed when costs are computed: its size is 1.
const FAILED: Value<'static> = Value::Null;

impl<'a> Evaluation<'_, 'a> {
    pub(crate) fn call(&mut self, call: &'a Call) -> Result<Value<'a>, EvalError> {
        match &*call.arguments {
            [argument] => {
                let argument = self.value(argument);
                match argument {
                    Ok(Value::Bool(value)) if call.is_negation => {
                        self.charge_call(1)?;
                        Ok(Value::Bool(!value))
                    }
                    Ok(argument) => self.apply(call, &[argument]),
                    Err(error) => self.failed(call, &[FAILED], error),
                }
            }
            [left, right] if !call.stops_at_first_error => {
                let left = self.body(left)?;
                let right = self.body(right)?;
                match (left, right) {
                    (Ok(left), Ok(right)) => self.apply(call, &[left, right]),
                    (Err(error), right) => self.failed(call, &[FAILED, right.unwrap_or(FAILED)], error),
                    (Ok(left), Err(error)) => self.failed(call, &[left, FAILED], error),
                }
            }
            arguments => self.call_many(call, arguments),
        }
    }

    /// Evaluates the arguments in order. The first that fails ends the call, which is only charged if it is the
    /// last one.
    fn call_many(&mut self, call: &'a Call, nodes: &'a [PlanNode]) -> Result<Value<'a>, EvalError> {
        let mut arguments = Vec::with_capacity(nodes.len());
        for node in nodes {
            match self.value(node) {
                Ok(argument) => arguments.push(argument),
                Err(error) if arguments.len() + 1 == nodes.len() => {
                    arguments.push(FAILED);
                    return self.failed(call, &arguments, error);
                }
                Err(error) => return Err(error),
            }
        }
        self.apply(call, &arguments)
    }

    fn apply(&mut self, call: &'a Call, arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
        for argument in arguments {
            self.met(argument)?;
        }
        let overload = match &*call.overloads {
            // Kubernetes' own functions of lists are guarded, cel-go's are not.
            [only] => {
                let is_guarded = matches!(call.cost, Cost::Traversal);
                (!is_guarded || only.takes(arguments)).then_some(only)
            }
            several => several.iter().find(|overload| overload.takes(arguments)),
        };
        let result = match overload.map(|overload| &**overload).or_else(|| unguarded(call)) {
            Some(overload) => (overload.apply)(self, call, arguments),
            None => Err(EvalError::no_such_overload()),
        };
        match result {
            Ok(result) => {
                match &result {
                    Value::Opaque(opaque) => {
                        self.work(opaque.bytes())?;
                        self.allocate(Opaque::BYTES + opaque.bytes())?;
                    }
                    Value::Optional(Some(_)) => self.allocate(Opaque::BYTES)?,
                    _ => {}
                }
                let units = self.cost_of(call, arguments, &result)?;
                self.charge_call(units)?;
                Ok(result)
            }
            Err(error) => {
                if error.is_absorbable() {
                    let units = self.cost_of(call, arguments, &FAILED)?;
                    self.charge_call(units)?;
                }
                Err(worded(call, arguments, error, self.version))
            }
        }
    }

    /// Charges for a call of which an argument failed, and returns the error.
    fn failed(
        &mut self,
        call: &'a Call,
        arguments: &[Value<'a>],
        error: EvalError,
    ) -> Result<Value<'a>, EvalError> {
        if error.is_absorbable() {
            let units = match (self.cost_of(call, arguments, &FAILED), call.cost) {
                (Err(EvalError::Internal(_)), Cost::OfList(..)) => return Err(not_a_list(None)),
                (Err(EvalError::Internal(_)), Cost::OfInt(..)) => return Err(not_an_int(None)),
                (units, _) => units?,
            };
            self.charge_call(units)?;
        }
        Err(error)
    }

    fn cost_of(
        &mut self,
        call: &Call,
        arguments: &[Value<'a>],
        result: &Value<'a>,
    ) -> Result<u64, EvalError> {
        match call.cost {
            Cost::One => Ok(1),
            Cost::Traversal => match arguments.first() {
                Some(value) => cost::traverse_tree(value, &mut |steps| self.work(steps)),
                None => Ok(0),
            },
            Cost::OfFunction(cost) | Cost::OfOverload(cost) => Ok(cost(arguments, result)),
            Cost::OfList(list, cost) => match arguments.get(list) {
                Some(Value::List(_)) => Ok(cost(arguments, result)),
                other => Err(not_a_list(other)),
            },
            Cost::OfInt(int, cost) => match arguments.get(int) {
                Some(Value::Int(_)) => Ok(cost(arguments, result)),
                other => Err(not_an_int(other)),
            },
        }
    }

    /// `&&` (decided by false) or `||` (decided by true): an error counts only
    /// if no other term decides.
    pub(crate) fn logic(&mut self, terms: &'a [PlanNode], decisive: bool) -> Result<bool, EvalError> {
        let mut failure = None;
        for term in terms {
            match self.truth(term) {
                Ok(value) if value == decisive => return Ok(decisive),
                Ok(_) => {}
                Err(error) if error.is_absorbable() => failure = failure.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        failure.map_or(Ok(!decisive), Err)
    }

    /// Evaluates `node`, which must be true or false.
    pub(crate) fn truth(&mut self, node: &'a PlanNode) -> Result<bool, EvalError> {
        self.work(STEPS_PER_NODE)?;
        match node {
            PlanNode::And(terms) => self.logic(terms, false),
            PlanNode::Or(terms) => self.logic(terms, true),
            PlanNode::Equal(sides) => self.equality(sides, true),
            PlanNode::NotEqual(sides) => self.equality(sides, false),
            node => match self.value(node)?.as_bool() {
                Some(value) => Ok(value),
                None => Err(EvalError::no_such_overload()),
            },
        }
    }

    /// `==` if `expected`, `!=` if not.
    pub(crate) fn equality(
        &mut self,
        sides: &'a (PlanNode, PlanNode),
        expected: bool,
    ) -> Result<bool, EvalError> {
        let left = self.body(&sides.0)?;
        let right = self.body(&sides.1)?;
        let failed = FAILED;
        for side in [&left, &right].into_iter().flatten() {
            self.met(side)?;
        }
        // For values of its own libraries, Kubernetes counts the cost of `==` itself.
        let cost = if expected {
            cost::equality
        } else {
            cost::cost_of_smaller
        };
        self.charge(cost(
            left.as_ref().unwrap_or(&failed),
            right.as_ref().unwrap_or(&failed),
        ))?;
        let (left, right) = (left?, right?);
        if expected && is_incomparable(&left, &right) {
            return Err(EvalError::no_such_overload());
        }
        Ok(self.equal(&left, &right)? == expected)
    }

    /// Whether two values are equal. Each item, entry and piece of text that is
    /// compared counts as work.
    pub(crate) fn equal(&mut self, left: &Value<'_>, right: &Value<'_>) -> Result<bool, EvalError> {
        equal(left, right, &mut |steps| self.work(steps))
    }

    pub(crate) fn in_set(&mut self, set: &'a InSet) -> Result<Value<'a>, EvalError> {
        let item = self.value(&set.item)?;
        self.met(&item)?;
        // Upstream hashes the item. A value that Go cannot hash panics, which ends the whole expression.
        if matches!(item, Value::Bytes(_) | Value::Opaque(Opaque::Semver(_))) {
            return Err(EvalError::internal(format_args!(
                "runtime error: hash of unhashable type {}",
                item.go_type()
            )));
        }
        Ok(Value::Bool(set.set.search(&item).is_some()))
    }
}

// The error of a call that no overload accepts. It depends on how cel-go binds the function: to its overloads,
// each guarded by its types (`common/decls/decls.go`), or to one implementation for all values that have a trait
// (`common/stdlib/standard.go`, `interpreter/interpretable.go`).

const NO_SUCH_OVERLOAD: &str = "no such overload";

/// How a function is bound to its name.
enum FunctionBinding {
    /// Each overload is called with values of its types only.
    Guarded,
    /// One implementation accepts all values that have its trait.
    Trait(fn(&Value<'_>) -> bool),
    /// One implementation checks its arguments itself.
    Unguarded,
}

/// The overload that is called although none accepts the arguments: upstream calls a function nevertheless if it
/// is bound for a trait, or checks its arguments itself.
pub(crate) fn unguarded(call: &Call) -> Option<&Overload> {
    let first = call.overloads.first()?;
    match binding(call, first.name) {
        FunctionBinding::Guarded => None,
        FunctionBinding::Trait(_) | FunctionBinding::Unguarded => Some(first),
    }
}

/// The error that upstream returns instead of `error`, with which `call` failed: if no overload accepts the
/// arguments, it reports that before anything else.
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

/// The error of a function that is bound for values with a trait, called on `target`, which `has` the trait or
/// not.
pub(crate) fn of_trait(name: &str, target: &Value<'_>, has: bool) -> EvalError {
    // These dispatch methods themselves (`traits.Receiver`), and do not name the function in their error.
    let is_receiver = matches!(
        target,
        Value::String(_) | Value::Timestamp(_) | Value::Duration(_)
    );
    if has || is_receiver {
        EvalError::no_such_overload()
    } else {
        EvalError::failed(format_args!("{NO_SUCH_OVERLOAD}: {name}"))
    }
}

/// The error of a function that accepts none of these types.
pub(crate) fn of_types<'v, 'a: 'v>(
    name: &str,
    arguments: impl IntoIterator<Item = &'v Value<'a>>,
) -> EvalError {
    let types: Vec<String> = arguments
        .into_iter()
        .map(|argument| argument.type_of().runtime_name())
        .collect();
    EvalError::failed(format_args!("{NO_SUCH_OVERLOAD}: {name}({})", types.join(", ")))
}

fn unflattened(arguments: &[Value<'_>], version: Version) -> EvalError {
    let mut types = arguments.iter().map(|argument| match argument {
        Value::Type(_) => "type".into(),
        Value::Optional(_) if version < Version::CEL_GO_0_29 => "optional_type".into(),
        argument => argument.type_of().to_string(),
    });
    let list: String = types.next().unwrap_or_default();
    let depth: String = types.next().unwrap_or_default();
    EvalError::failed(format_args!("{NO_SUCH_OVERLOAD}: {list}.flatten({depth})"))
}

/// The error of the Go runtime where code assumes a list and gets `value`; `None` stands for an error value.
#[cold]
pub(crate) fn not_a_list(value: Option<&Value<'_>>) -> EvalError {
    let is = go_type(value);
    let missing = match value {
        Some(value) if is_adder(value) => "Contains",
        _ => "Add",
    };
    EvalError::internal(format_args!(
        "interface conversion: {is} is not traits.Lister: missing method {missing}"
    ))
}

/// The error of the Go runtime where code assumes an int and gets `value`; `None` stands for an error value.
#[cold]
pub(crate) fn not_an_int(value: Option<&Value<'_>>) -> EvalError {
    let is = go_type(value);
    EvalError::internal(format_args!(
        "interface conversion: ref.Val is {is}, not types.Int"
    ))
}

fn go_type(value: Option<&Value<'_>>) -> &'static str {
    value.map_or("*types.Err", Value::go_type)
}

fn binding(call: &Call, name: &str) -> FunctionBinding {
    match name {
        // Upstream replaces the function if the pattern is constant.
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
