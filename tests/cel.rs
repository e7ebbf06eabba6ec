//! Expressions and what kube-apiserver makes of them: whether they compile,
//! what they evaluate to, and what that costs, unit for unit.
//!
//! The tables stand in `tests/cel/`, a case a line: cost, outcome, expression.
//! `refused` does not compile, `fails: …` fails when it runs, in these words (`fails`: in
//! any). The variables are in `variables.json` and `variables.rs`. The test of words in
//! `tests/oracle/` asks Kubernetes about each expression again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "cel/variables.rs"]
mod variables;

use std::path::Path;

use portcullis_cel::json::Document;
use portcullis_cel::{Budget, Environment, Value, Version, cost};

use variables::{activation, environment_of, untyped};

/// What expressions may name, as a 1.36 API server compiles new ones.
fn environment() -> Environment {
    environment_of(Version::new(35))
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
                |(key, value): (Value<'_>, Value<'_>)| format!("{}:{}", written(&key), written(&value));
            let mut entries: Vec<String> = map.entries().map(entry).collect();
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
        result.map_or_else(|error| format!("fails: {error}"), |value| written(&value)),
    )
}

fn check(table: &str, environment: &Environment) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cel")
        .join(table);
    let text = std::fs::read_to_string(file).unwrap();
    let variables = Document::parse(untyped()).unwrap();
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
        let is_expected = match expected {
            "fails" => actual.1.starts_with("fails: "),
            expected => actual.1 == expected,
        };
        if actual.0 != cost || !is_expected {
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
fn functions_fail_as_those_of_kubernetes_do() {
    check("errors.txt", &environment());
}

#[test]
fn failures_are_told_in_the_words_of_kubernetes() {
    check("failures.txt", &environment());
}

#[test]
fn mutations_write_what_kubernetes_lets_them() {
    check("mutation.txt", &environment().mutation());
}

#[test]
fn what_a_version_added_is_not_in_the_one_before() {
    check("since-1.37.txt", &environment_of(Version::new(37)));
    let before = environment_of(Version::new(36));
    let error = before.compile("[1].includes(1)", &[]).unwrap_err();
    assert!(error.to_string().contains("includes"), "{error}");
}
