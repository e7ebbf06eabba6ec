//! No function works long without checking the deadline: each is called with the largest
//! possible arguments, and its steps are counted.

use std::cell::Cell;
use std::sync::Arc;

use super::Evaluation;
use crate::cost::{
    Budget, FREE_STEPS, MAX_EVALUATION_BYTES, PER_EXPRESSION, STEPS_BETWEEN_DEADLINE_CHECKS, STEPS_PER_UNIT,
};
use crate::environment::{Environment, Version};
use crate::function::Overload;
use crate::program::{Activation, Call, PlanNode};
use crate::types::Type;
use crate::value::{Bytes, Duration, Entries, Key, Text, Value};
use crate::{AccessCheckAttributes, AccessCheckDecision, AuthorizeAccess, EvalError, library};

/// As much text as a review may bring, and as many items.
const TEXT: usize = 3 << 20;
const ITEMS: usize = 1 << 18;

/// Functions to which it makes no difference how long a list or map is.
const CONSTANT: [&str; 9] = [
    "@in",
    "dyn",
    "first",
    "last",
    "optional.of",
    "optional.ofNonZeroValue",
    "size",
    "slice",
    "type",
];

struct Nobody;

impl AuthorizeAccess for Nobody {
    fn authorize(&self, _: AccessCheckAttributes, _: &dyn Fn() -> bool) -> Arc<AccessCheckDecision> {
        Arc::new(AccessCheckDecision {
            allowed: false,
            reason: String::new(),
            error: None,
        })
    }
}

/// A large value of a type.
fn large(of: &Type) -> Value<'static> {
    match of {
        Type::Null => Value::Null,
        Type::Bool => Value::Bool(true),
        // An argument of any type is searched for in a list of numbers.
        Type::Int | Type::Dyn | Type::Param(_) => Value::Int(-1),
        Type::Uint => Value::Uint(7),
        Type::Double => Value::Double(1.5),
        Type::String => Value::string("ä".repeat(TEXT / 2)),
        Type::Bytes => Value::Bytes(Bytes::from(vec![b'a'; TEXT])),
        Type::Duration => Value::Duration(Duration::from_nanoseconds(1)),
        Type::List(item) => Value::list(vec![small(item); ITEMS]),
        Type::Map(_) | Type::Object(_) => {
            let entry = |number| (Key::Int(number), Value::Int(number));
            Value::map((0..1000).map(entry).collect::<Entries<'_>>())
        }
        Type::Optional(inner) => Value::some(large(inner)),
        other => small(other),
    }
}

/// A small value of a type.
fn small(of: &Type) -> Value<'static> {
    let expression = match of {
        Type::Int | Type::Dyn | Type::Param(_) => return Value::Int(1),
        Type::String => return Value::string("a"),
        Type::Bytes => return Value::Bytes(Bytes::from(vec![b'a'])),
        Type::List(item) => return Value::list(vec![small(item)]),
        Type::Optional(inner) => return Value::some(small(inner)),
        Type::Timestamp => "timestamp('2024-01-01T00:00:00Z')",
        Type::Type(_) => "int",
        Type::Opaque("kubernetes.Quantity") => "quantity('1k')",
        Type::Opaque("kubernetes.URL") => "url('https://a.example/?a=b')",
        Type::Opaque("kubernetes.Semver") => "semver('1.2.3')",
        Type::Opaque("kubernetes.NamedFormat") => "format.dns1123Label()",
        Type::Opaque("net.IP") => "ip('::1')",
        Type::Opaque("net.CIDR") => "cidr('10.0.0.0/8')",
        Type::Opaque("kubernetes.authorization.Authorizer") => return Value::authorizer(&Nobody),
        Type::Opaque("kubernetes.authorization.PathCheck") => "authorizer.path('/')",
        Type::Opaque("kubernetes.authorization.GroupCheck") => "authorizer.group('')",
        Type::Opaque("kubernetes.authorization.ResourceCheck") => "authorizer.group('').resource('a')",
        Type::Opaque("kubernetes.authorization.Decision") => "authorizer.path('/').check('get')",
        other => return large(other),
    };
    let environment = Environment::new(Version::NEWEST)
        .variable("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"));
    let program = Box::leak(Box::new(environment.compile(expression, &[]).unwrap()));
    let mut activation = Activation::new(&environment);
    activation.set(
        environment.slot("authorizer").unwrap(),
        Value::authorizer(&Nobody),
    );
    program
        .evaluate(&mut activation, &mut Budget::new(u64::MAX))
        .unwrap()
}

/// What a call did: its outcome, its steps, and how often it checked the deadline.
struct Measured {
    result: Result<(), EvalError>,
    steps: u64,
    looks: u64,
}

fn measure(overload: &Arc<Overload>, arguments: &[Value<'static>], expired: bool) -> Measured {
    let call = PlanNode::Call(Box::new(Call {
        overloads: [Arc::clone(overload)].into(),
        arguments: arguments.iter().cloned().map(PlanNode::Constant).collect(),
        cost: overload.cost,
        stops_at_first_error: false,
        prepared: None,
        is_negation: false,
    }));
    let looks = Cell::new(0);
    let look = || {
        looks.set(looks.get() + 1);
        expired
    };
    let mut activation = Activation::default();
    let mut evaluation = Evaluation {
        variables: &mut activation,
        locals: Vec::new(),
        deferred: Vec::new(),
        version: Version::NEWEST,
        cost: 0,
        limit: PER_EXPRESSION,
        composed: 0,
        per_expression: PER_EXPRESSION,
        remaining: PER_EXPRESSION,
        steps: 0,
        until_look: STEPS_BETWEEN_DEADLINE_CHECKS,
        bytes: MAX_EVALUATION_BYTES,
        needs_more: None,
        expired: Some(&look),
    };
    let result = evaluation.value(&call).map(drop);
    Measured {
        result,
        steps: evaluation.steps,
        looks: looks.get(),
    }
}

fn functions() -> Vec<Arc<Overload>> {
    let mut all: Vec<_> = library::functions(Version::NEWEST)
        .into_values()
        .flatten()
        .collect();
    all.extend(library::mutation().into_iter().map(Arc::new));
    // Operators that are steps of their own are no calls.
    all.retain(|overload| {
        !matches!(
            overload.name,
            "_==_" | "_!=_" | "_[_]" | "_[?_]" | "or" | "orValue"
        )
    });
    all
}

/// How many steps a call with these arguments takes at least.
fn least(overload: &Overload, arguments: &[Value<'_>]) -> u64 {
    let size = |argument: &Value<'_>| match argument {
        Value::String(text) => text.len() / 4,
        Value::List(list) if !CONSTANT.contains(&overload.name) => list.len() - 1,
        Value::Map(map) if !CONSTANT.contains(&overload.name) => map.len(),
        _ => 0,
    };
    arguments.iter().map(size).sum::<usize>() as u64
}

#[test]
fn every_function_counts_its_work_and_checks_the_deadline() {
    let functions = functions();
    assert!(functions.len() > 150, "{} functions", functions.len());
    let mut faults = Vec::new();
    for overload in &functions {
        let arguments: Vec<_> = overload.parameters.iter().map(large).collect();
        let Measured { result, steps, looks } = measure(overload, &arguments, false);
        let name = format!("{} ({})", overload.name, overload.id);
        let least = least(overload, &arguments);
        let refused = matches!(result, Err(EvalError::CostLimit | EvalError::OutOfBudget));
        // What failed for its value need not have read all of it.
        if result.is_ok() && steps < least {
            faults.push(format!("{name}: {steps} steps for arguments that take {least}"));
        }
        let most = FREE_STEPS + STEPS_PER_UNIT * (PER_EXPRESSION + 1) + TEXT as u64 * 64;
        if steps > most && !refused {
            faults.push(format!("{name}: {steps} steps, beyond what any cost pays for"));
        }
        if looks == 0 && steps >= STEPS_BETWEEN_DEADLINE_CHECKS && !refused {
            faults.push(format!("{name}: {steps} steps without a look at the deadline"));
        }
        if looks > 0 {
            let late = measure(overload, &arguments, true);
            if late.result != Err(EvalError::Interrupted) || late.looks != 1 {
                faults.push(format!(
                    "{name}: went on for {:?} after the deadline",
                    late.result
                ));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "{} faults\n{}",
        faults.len(),
        faults.join("\n")
    );
}

/// Evaluates with variables `text` (a megabyte that is not ASCII), `list` (a list
/// of lists of it, ten thousand long) and `patterns` (3,000 of them).
fn evaluate(expression: &str) -> (Result<(), EvalError>, u64, u64) {
    let environment = Environment::new(Version::NEWEST)
        .variable("text", Type::String)
        .variable("list", Type::Dyn)
        .variable("patterns", Type::list(Type::String));
    let program = environment.compile(expression, &[]).unwrap();
    let text = Value::string("ä".repeat(1 << 19));
    let inner = Value::list(vec![text.clone(); 100]);
    let list = Value::list(vec![inner; 100]);
    let pattern = |number: usize| Value::String(Text::from(format!(r"(\pL{{{}}}|{number})*$", number % 50)));
    let mut activation = Activation::new(&environment);
    for (name, value) in [
        ("text", text),
        ("list", list),
        ("patterns", Value::list((0..3000).map(pattern).collect())),
    ] {
        activation.set(environment.slot(name).unwrap(), value);
    }
    let looks = Cell::new(0);
    let look = || {
        looks.set(looks.get() + 1);
        false
    };
    let mut budget = Budget::new(PER_EXPRESSION).until(&look);
    let result = program.evaluate(&mut activation, &mut budget).map(drop);
    (result, PER_EXPRESSION - budget.remaining(), looks.get())
}

#[test]
fn slow_expressions_with_a_low_cost_are_stopped() {
    for expression in [
        // Two units a round upstream, and a megabyte to read.
        "[0].all(a, lists.range(60000).all(b, text.size() > 0))",
        "lists.range(60000).all(b, text != 'abcdefghijkl')",
        "lists.range(60000).all(b, !(text in {'a': 1}))",
        "lists.range(60000).all(b, {'a': 1}[?text] == optional.none())",
        // One unit, and ten thousand megabytes to compare.
        "lists.range(1000).all(b, list == list)",
        "lists.range(1000).all(b, [list].indexOf(list) == 0)",
        "lists.range(1000).all(b, {'a': list} == {'a': list})",
        "[list, list].distinct() == [list] && lists.range(1000).all(b, list in [list])",
        "patterns.map(p, text.matches(p)).size() == 0",
        "patterns.exists(p, ''.find(p) == 'a')",
    ] {
        let (result, _, looks) = evaluate(expression);
        let refused = matches!(result, Err(EvalError::CostLimit | EvalError::OutOfBudget));
        assert!(refused, "{expression}: {result:?}");
        assert!(looks > 100, "{expression}: {looks} looks");
    }
}

struct Panicking;

impl AuthorizeAccess for Panicking {
    fn authorize(&self, _: AccessCheckAttributes, _: &dyn Fn() -> bool) -> Arc<AccessCheckDecision> {
        panic!("on purpose")
    }
}

#[test]
fn a_panic_is_an_error_of_the_expression() {
    let environment = Environment::new(Version::NEWEST)
        .variable("authorizer", Type::Opaque("kubernetes.authorization.Authorizer"));
    let asks = "authorizer.path('/x').check('get').allowed()";
    let program = environment.compile(asks, &[]).unwrap();
    let mut activation = Activation::new(&environment);
    activation.set(
        environment.slot("authorizer").unwrap(),
        Value::authorizer(&Panicking),
    );
    let result = program.evaluate(&mut activation, &mut Budget::new(PER_EXPRESSION));
    assert!(matches!(result, Err(EvalError::Internal(_))), "{result:?}");
}
