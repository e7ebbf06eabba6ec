//! Expressions and what kube-apiserver makes of them: whether they compile,
//! what they evaluate to, and what that costs, unit for unit.
//!
//! The tables stand in `tests/cel/`, a case a line: cost, outcome, expression.
//! `refused` does not compile, `fails` fails when it runs. The variables are in
//! `variables.json`, but for the few that [`activation`] sets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use portcullis::cel::{
    AccessAnswer, AccessQuestion, Activation, AdmissionVariables, AuthorizeAccess, Budget, Entries,
    Environment, Key, Text, Type, Value, Version, cost,
};
use portcullis::json::Document;

/// Allows `get`, and errs for `fail`.
struct Host;

impl AuthorizeAccess for Host {
    fn authorize(&self, question: AccessQuestion) -> Arc<AccessAnswer> {
        let AccessQuestion {
            verb,
            path,
            group,
            resource,
            subresource,
            namespace,
            name,
            service_account,
            ..
        } = question;
        let user = service_account.map_or("user".into(), |(namespace, name)| {
            format!("system:serviceaccount:{namespace}:{name}")
        });
        let path = path.as_deref().unwrap_or_default();
        Arc::new(AccessAnswer {
            allowed: verb == "get",
            reason: format!("{user} {verb} {path} {group}/{resource}/{subresource} {namespace}/{name}  "),
            error: (verb == "fail").then(|| "boom".into()),
        })
    }
}

fn environment() -> Environment {
    let variables = AdmissionVariables {
        params: true,
        authorizer: true,
    };
    Environment::admission(Version::DEFAULT, variables)
        .variable("i", Type::Int)
        .variable("u", Type::Uint)
        .variable("d", Type::Double)
        .variable("s", Type::String)
        .variable("t", Type::Bool)
        .variable("li", Type::list(Type::Int))
        .variable("ls", Type::list(Type::String))
        .variable("msi", Type::map(Type::String, Type::Int))
}

fn activation<'a>(environment: &Environment, variables: &'a Document<'_>) -> Activation<'a> {
    let mut activation = Activation::new(environment);
    let mut set = |name: &str, value| activation.set(environment.slot(name).unwrap(), value);
    for (name, value) in variables.root().entries() {
        set(&name, Value::json(value));
    }
    let list = |items: [i64; 3]| Value::list(items.map(Value::Int).to_vec());
    let deployment = AccessQuestion {
        group: "apps".into(),
        resource: "deployments".into(),
        namespace: "default".into(),
        name: "web".into(),
        ..AccessQuestion::default()
    };
    let numbers =
        [("x", 1), ("y", 2)].map(|(key, value)| (Key::String(Text::Borrowed(key)), Value::Int(value)));
    set("authorizer", Value::authorizer(&Host));
    set(
        "authorizer.requestResource",
        Value::resource_check(&Host, deployment),
    );
    set("i", Value::Int(5));
    set("u", Value::Uint(7));
    set("d", Value::Double(2.5));
    set("s", Value::str("hello"));
    set("t", Value::Bool(true));
    set("li", list([3, 1, 2]));
    set("ls", Value::list(["b", "a", "c"].map(Value::str).to_vec()));
    set("msi", Value::map(numbers.into_iter().collect::<Entries<'_>>()));
    activation
}

/// A value as the tables write it.
fn written(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Uint(uint) => format!("{uint}u"),
        Value::Double(double) if double.is_finite() => format!("{double:e}"),
        Value::Double(double) => double.to_string(),
        Value::String(text) => quoted(text),
        Value::Bytes(bytes) => bytes
            .iter()
            .fold("b".into(), |text, byte| format!("{text}{byte:02x}")),
        Value::Duration(duration) => format!("duration({})", duration.nanoseconds()),
        Value::Timestamp(time) => format!("timestamp({},{})", time.seconds(), time.nanoseconds()),
        Value::List(list) => {
            let items: Vec<String> = list.iter().map(|item| written(&item)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Map(map) => {
            let entry =
                |(key, value): &(Value<'_>, Value<'_>)| format!("{}:{}", written(key), written(value));
            let mut entries: Vec<String> = map.entries().iter().map(entry).collect();
            entries.sort();
            format!("{{{}}}", entries.join(","))
        }
        Value::Optional(None) => "none".into(),
        Value::Optional(Some(inner)) => format!("optional({})", written(inner)),
        Value::Type(of) => format!("type({of})"),
        Value::Opaque(opaque) => opaque.type_name().into(),
        other => panic!("{other:?}"),
    }
}

fn quoted(text: &str) -> String {
    let plain = |character: char| matches!(character, ' '..='~') && !matches!(character, '"' | '\\');
    let escaped = text.chars().map(|character| match character {
        character if plain(character) => character.to_string(),
        character => format!("\\u{{{:x}}}", u32::from(character)),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// Cost and outcome of an expression.
fn outcome(environment: &Environment, variables: &Document<'_>, expression: &str) -> (String, String) {
    let Ok(program) = environment.compile(expression, &[]) else {
        return ("-".into(), "refused".into());
    };
    let mut activation = activation(environment, variables);
    let mut budget = Budget::new(cost::PER_BINDING);
    let result = program.evaluate(&mut activation, &mut budget);
    let cost = cost::PER_BINDING - budget.remaining();
    (
        cost.to_string(),
        result.map_or("fails".into(), |value| written(&value)),
    )
}

fn check(table: &str, environment: &Environment) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cel");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let variables = Document::parse(read("variables.json")).unwrap();
    let text = read(table);
    let mut cases = 0;
    let mut failures = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.splitn(3, '\t');
        let mut column = || {
            columns
                .next()
                .unwrap_or_else(|| panic!("{table}: three columns, not {line}"))
        };
        let (cost, expected, expression) = (column(), column(), column());
        let actual = outcome(environment, &variables, expression);
        cases += 1;
        if actual != (cost.into(), expected.into()) {
            failures.push(format!(
                "{expression}\n  expected {cost} {expected}\n  actual   {} {}",
                actual.0, actual.1
            ));
        }
    }
    assert!(cases > 0, "{table} is empty");
    assert!(
        failures.is_empty(),
        "{table}: {} of {cases}\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn the_language_is_that_of_kubernetes() {
    check("language.txt", &environment());
}

#[test]
fn the_libraries_are_those_of_kubernetes() {
    check("libraries.txt", &environment());
}

#[test]
fn policies_see_what_kubernetes_shows_them() {
    check("kubernetes.txt", &environment());
}

#[test]
fn mutations_write_what_kubernetes_lets_them() {
    check("mutation.txt", &environment().mutation());
}
