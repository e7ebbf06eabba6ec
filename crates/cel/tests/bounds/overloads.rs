//! Each overload of the library with arguments that are large, or stand for much: texts of
//! half a megabyte of each sort, lists and maps that have one text a thousand times. What it makes on its
//! way, and what it says of what it does not take, is no more than what it may allocate.

use std::fmt::Write;
use std::sync::{Arc, PoisonError};

use portcullis_cel::{
    AccessCheckAttributes, AccessCheckDecision, Activation, AuthorizeAccess, Budget, Bytes, Entries,
    Environment, EvalError, Key, Text, Type, Value, Version,
};

use super::{TURN, peak};

/// How long a text is.
const TEXT_BYTES: usize = 512 << 10;

/// How often lists and maps have it.
const TIMES: usize = 1_000;

/// What an evaluation may cost here, so that all of them end soon: some million steps.
const COST: u64 = 10_000;

/// An authorizer that has much to say.
struct Talkative;

impl AuthorizeAccess for Talkative {
    fn authorize(&self, _: AccessCheckAttributes, _: &dyn Fn() -> bool) -> Arc<AccessCheckDecision> {
        Arc::new(AccessCheckDecision {
            allowed: false,
            reason: "r".repeat(TEXT_BYTES),
            error: Some("e".repeat(TEXT_BYTES)),
        })
    }
}

/// A variable of the expressions.
struct Variable {
    name: String,
    of: Type,
    value: Value<'static>,
}

/// Texts that are read to their end, or quoted in full, by one function or another.
fn texts() -> Vec<Value<'static>> {
    let long = |begin: &str, part: &str| {
        let text = begin.to_owned() + &part.repeat(TEXT_BYTES / part.len());
        Value::string(text)
    };
    vec![
        long("", "a"),
        long("", "\u{1}"),
        long("", "\u{a0}"),
        long("", "1"),
        long("", "/"),
        long("", "a,"),
        long("1.2.3-a", ".a"),
        long("1.2.3-a", ".~"),
        long("http://a/", "%41"),
        long("http://a/", "\""),
        long("http://a/?", "a&"),
        long("http://[", "\u{a0}"),
        long("fe80::1%", "\\"),
        long("10.0.0.0/", "\\"),
        long("a", "-"),
        long("", "%s"),
        Value::str(""),
        Value::str("%s"),
        Value::str("%X"),
        Value::str("a"),
        Value::str("get"),
    ]
}

/// The value of `expression` with all variables so far, for as long as the tests run.
fn made(expression: &str, variables: &[Variable]) -> Value<'static> {
    let environment = environment(variables);
    let program = Box::leak(Box::new(environment.compile(expression, &[]).unwrap()));
    let mut activation = activation(&environment, variables);
    program
        .evaluate(
            &mut activation,
            &mut Budget::new(u64::MAX).per_expression(u64::MAX),
        )
        .unwrap_or_else(|error| panic!("{error}: {expression}"))
}

fn environment(variables: &[Variable]) -> Environment {
    let empty = Environment::new(Version::NEWEST).mutation();
    let with = |environment: Environment, own: &Variable| environment.variable(&own.name, own.of.clone());
    variables.iter().fold(empty, with)
}

fn activation(environment: &Environment, variables: &[Variable]) -> Activation<'static> {
    let mut activation = Activation::new(environment);
    for own in variables {
        activation.set(environment.slot(&own.name).unwrap(), own.value.clone());
    }
    activation
}

/// Arguments of each type that a parameter has.
fn variables() -> Vec<Variable> {
    let mut all: Vec<Variable> = Vec::new();
    let texts = texts();
    let add = |all: &mut Vec<Variable>, of: Type, value: Value<'static>| {
        let name = format!("v{}", all.len());
        all.push(Variable { name, of, value });
    };
    let many = |value: &Value<'static>| Value::list(vec![value.clone(); TIMES]);
    let quoted = texts[1].clone();
    let map: Entries<'static> = (0..TIMES)
        .map(|number| (Key::String(Text::from(format!("k{number}"))), quoted.clone()))
        .collect();
    let numbers: Entries<'static> = (0..100_000)
        .map(|number| (Key::Int(number), Value::Null))
        .collect();
    let (map, numbers) = (Value::map(map), Value::map(numbers));
    let bytes = Value::Bytes(Bytes::from(vec![1; TEXT_BYTES]));
    for text in &texts {
        add(&mut all, Type::String, text.clone());
    }
    for list in [many(&texts[0]), many(&quoted)] {
        add(&mut all, Type::list(Type::String), list.clone());
        add(&mut all, Type::list(Type::list(Type::String)), many(&list));
        add(&mut all, Type::list(Type::Dyn), Value::list(vec![list]));
    }
    for of in [&map, &numbers] {
        add(&mut all, Type::map(Type::Dyn, Type::Dyn), of.clone());
        add(&mut all, Type::list(Type::Dyn), many(of));
        add(&mut all, Type::Dyn, many(of));
    }
    add(&mut all, Type::Bytes, bytes.clone());
    add(&mut all, Type::list(Type::Bytes), many(&bytes));
    add(&mut all, Type::list(Type::Dyn), many(&bytes));
    let map_type = Type::map(Type::Dyn, Type::Dyn);
    add(&mut all, Type::optional(map_type), Value::some(map));
    add(
        &mut all,
        Type::optional(Type::list(Type::Dyn)),
        Value::some(many(&bytes)),
    );
    add(
        &mut all,
        Type::list(Type::optional(Type::Dyn)),
        many(&Value::some(bytes)),
    );
    add(
        &mut all,
        Type::Type(Arc::new(Type::Dyn)),
        Value::Type(Arc::new(Type::Int)),
    );
    add(
        &mut all,
        Type::Opaque("kubernetes.authorization.Authorizer"),
        Value::authorizer(&Talkative),
    );
    let authorizer = all.last().unwrap().name.clone();
    for (of, expression) in [
        (Type::Int, "-1"),
        (Type::Int, "500000"),
        (Type::Int, "1000000000000"),
        (Type::Uint, "7u"),
        (Type::Double, "1.5"),
        (Type::Bool, "true"),
        (Type::Null, "null"),
        (Type::Duration, "duration('1s')"),
        (Type::Timestamp, "timestamp('2024-01-01T00:00:00Z')"),
        (Type::Opaque("kubernetes.Quantity"), "quantity('1e9999')"),
        (Type::Opaque("kubernetes.URL"), "url(v8)"),
        (Type::Opaque("kubernetes.URL"), "url(v10)"),
        (Type::Opaque("kubernetes.Semver"), "semver(v6)"),
        (Type::Opaque("kubernetes.NamedFormat"), "format.uri()"),
        (
            Type::Opaque("kubernetes.NamedFormat"),
            "format.dns1123LabelPrefix()",
        ),
        (Type::Opaque("kubernetes.NamedFormat"), "format.datetime()"),
        (Type::Opaque("net.IP"), "ip('::1')"),
        (Type::Opaque("net.CIDR"), "cidr('10.0.0.0/8')"),
        (
            Type::Opaque("kubernetes.authorization.PathCheck"),
            "AUTHORIZER.path(v0)",
        ),
        (
            Type::Opaque("kubernetes.authorization.GroupCheck"),
            "AUTHORIZER.group(v0)",
        ),
        (
            Type::Opaque("kubernetes.authorization.ResourceCheck"),
            "AUTHORIZER.group(v0).resource(v0)",
        ),
        (
            Type::Opaque("kubernetes.authorization.Decision"),
            "AUTHORIZER.path('/').check('get')",
        ),
    ] {
        let value = made(&expression.replace("AUTHORIZER", &authorizer), &all);
        add(&mut all, of.clone(), value.clone());
        add(&mut all, Type::list(of), many(&value));
    }
    all
}

/// Whether a value of the type `of` is one of `parameter`.
fn fits(parameter: &Type, of: &Type) -> bool {
    match (parameter, of) {
        (Type::Dyn | Type::Param(_), _) => true,
        (Type::List(parameter), Type::List(of)) | (Type::Optional(parameter), Type::Optional(of)) => {
            fits(parameter, of)
        }
        (Type::Map(_), Type::Map(_)) | (Type::Type(_), Type::Type(_)) => true,
        (parameter, of) => parameter == of,
    }
}

/// The call of `name` with these arguments.
fn call(name: &str, member: bool, arguments: &[&str]) -> String {
    match (name, arguments) {
        ("_[_]", [list, index]) => format!("{list}[{index}]"),
        ("_[?_]", [list, index]) => format!("{list}[?{index}]"),
        ("@sortByAssociatedKeys", [list, keys]) => format!("{list}.sortBy(item, {keys}[0])"),
        ("@in", [item, list]) => format!("{item} in {list}"),
        (name, [only]) if name.ends_with('_') => format!("{}{only}", name.trim_matches('_')),
        (name, [left, right]) if name.ends_with('_') => {
            format!("{left} {} {right}", name.trim_matches('_'))
        }
        (name, [target, others @ ..]) if member => format!("{target}.{name}({})", others.join(", ")),
        (name, arguments) => format!("{name}({})", arguments.join(", ")),
    }
}

/// Each argument with the first of the others, and all with those of the same number.
fn combinations(candidates: &[Vec<&str>]) -> Vec<Vec<String>> {
    let most = candidates.iter().map(Vec::len).max().unwrap_or(1);
    let pick = |of: &Vec<&str>, number: usize| of[number % of.len()].to_owned();
    let mut all: Vec<Vec<String>> = (0..most)
        .map(|number| candidates.iter().map(|of| pick(of, number)).collect())
        .collect();
    for (place, of) in candidates.iter().enumerate() {
        for number in 0..of.len() {
            for others in 0..2 {
                let number_of = |other: usize| if other == place { number } else { others };
                let one = candidates
                    .iter()
                    .enumerate()
                    .map(|(other, of)| pick(of, number_of(other)));
                all.push(one.collect());
            }
        }
    }
    all.sort();
    all.dedup();
    all
}

#[test]
fn every_function_allocates_no_more_than_it_may() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let variables = variables();
    let environment = environment(&variables);
    let mut faults = String::new();
    let (mut overloads, mut calls) = (0, 0);
    for (name, member, parameters) in environment.overloads() {
        let candidates: Vec<Vec<&str>> = parameters
            .iter()
            .map(|parameter| {
                let fitting = variables.iter().filter(|own| fits(parameter, &own.of));
                fitting.map(|own| own.name.as_str()).collect()
            })
            .collect();
        assert!(
            candidates.iter().all(|of| !of.is_empty()),
            "no argument for {name}{parameters:?}"
        );
        let mut compiled = 0;
        for arguments in combinations(&candidates) {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let expression = call(name, member, &arguments);
            // Arguments of the same type parameter may be of different types.
            let Ok(program) = environment.compile(&expression, &[]) else {
                continue;
            };
            compiled += 1;
            for bytes in [TEXT_BYTES / 4, TEXT_BYTES * 2] {
                let evaluate = || {
                    let mut activation = activation(&environment, &variables);
                    let mut budget = Budget::new(COST).allocating(bytes);
                    peak(|| program.evaluate(&mut activation, &mut budget).map(drop))
                };
                let most = 2 * bytes + (64 << 10);
                let (result, taken) = match evaluate() {
                    // What is made once for all evaluations is there at the second.
                    (_, taken) if taken > most => evaluate(),
                    first => first,
                };
                let said = match &result {
                    Err(EvalError::Failed(text) | EvalError::Internal(text)) => text.len(),
                    _ => 0,
                };
                if taken > most || said > 3 << 10 {
                    let _infallible = writeln!(
                        faults,
                        "{name}{parameters:?}: {taken} bytes of {bytes}, {said} bytes said: {expression}"
                    );
                }
            }
        }
        assert!(compiled > 0, "no call of {name}{parameters:?} compiles");
        overloads += 1;
        calls += compiled;
    }
    assert!(overloads > 200, "{overloads} overloads in {calls} calls");
    assert!(faults.is_empty(), "{} faults\n{faults}", faults.lines().count());
}
