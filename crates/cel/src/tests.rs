//! Bounds: of stack, cost and time; and variables that are expressions.

use std::cell::Cell;

use proptest::prelude::*;

use super::{Activation, Budget, Environment, EvalError, Program, Type, Value, Version, cost};
use crate::json::Document;

/// Half of what a thread of the service has.
const STACK: usize = 1 << 20;

fn environment() -> Environment {
    Environment::new(Version::new(35))
        .variable("object", Type::Dyn)
        .variable("x", Type::Bool)
}

fn compile(expression: &str) -> Program {
    environment()
        .compile(expression, &[])
        .unwrap_or_else(|error| panic!("{expression}: {error}"))
}

fn evaluate(expression: &str, budget: &mut Budget<'_>) -> Result<Value<'static>, EvalError> {
    let document = Document::parse(r#"{"a":[1,2,3],"s":"text","n":null}"#).unwrap();
    let program = compile(expression);
    let environment = environment();
    let mut activation = Activation::new(&environment);
    activation.set(0, Value::json(document.root()));
    activation.set(1, Value::Bool(true));
    program.evaluate(&mut activation, budget).map(Value::into_owned)
}

fn on_small_stack(run: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(run).unwrap();
    thread.join().expect("no panic");
}

/// Texts that nest or chain, each as deep as it is asked for.
fn deep(depth: usize) -> Vec<String> {
    let around = |open: &str, middle: &str, close: &str| open.repeat(depth) + middle + &close.repeat(depth);
    vec![
        around("(", "1", ")"),
        around("[", "1", "]"),
        around("{1:", "1", "}"),
        around("!(", "x", ")"),
        around("-(", "1", ")"),
        around("x ? 1 : ", "1", ""),
        around("dyn(", "1", ")"),
        around("[1].map(a, ", "1", ")"),
        around("[1].all(a, ", "x", ")"),
        around("optional.of(1).optMap(a, ", "1", ")"),
        around("(1 + ", "1", ")"),
        around("(x && ", "x", ")"),
        around("object", ".a", ""),
        "object".to_owned() + &".a".repeat(depth),
        "object".to_owned() + &"[0]".repeat(depth),
        "[]".to_owned() + &".map(a, 1)".repeat(depth),
        "'a'".to_owned() + &" + 'a'".repeat(depth),
        "1".to_owned() + &" == 1".repeat(depth),
        "x".to_owned() + &" && x".repeat(depth),
        "x".to_owned() + &" || x && x".repeat(depth),
        "'a'".to_owned() + &".trim()".repeat(depth),
        "!".repeat(depth) + "x",
        around("[1].sortBy(a, [", "1", "].size())"),
        around("(x ? (", "1", ") : 1)"),
        around("[1].all(a, !(", "x", "))"),
        around("[1].exists(a, x && size([", "1", "]) == 1)"),
        around("(object.a.b + ", "1", " + 1 + 1)"),
    ]
}

#[test]
fn no_expression_overflows_the_stack() {
    on_small_stack(|| {
        for depth in [10, 48, 66, 94, 96, 98, 190, 199, 201, 500, 20_000] {
            for expression in deep(depth) {
                if let Ok(program) = environment().compile(&expression, &[]) {
                    let _ = program.evaluate(&mut Activation::default(), &mut Budget::new(cost::PER_BINDING));
                }
            }
        }
    });
}

#[test]
fn as_much_nesting_as_policies_need_is_accepted() {
    for expression in deep(30) {
        if let Err(error) = environment().compile(&expression, &[]) {
            assert!(!error.message.contains("limit"), "{expression}: {error}");
        }
    }
    let long = "x".to_owned() + &" && x".repeat(5000);
    assert!(environment().compile(&long, &[Type::Bool]).is_ok());
}

#[test]
fn an_expression_that_is_too_long_is_refused() {
    let text = format!("'{}'", "a".repeat(super::MAX_LENGTH));
    assert!(environment().compile(&text, &[]).is_err());
}

#[test]
fn an_expression_that_costs_too_much_is_cut_off() {
    let many = "lists.range(1000).map(a, lists.range(1000).map(b, a * b)).size()";
    let mut budget = Budget::new(cost::PER_BINDING);
    assert_eq!(evaluate(many, &mut budget).unwrap_err(), EvalError::CostLimit);
    let spent = cost::PER_BINDING - budget.remaining();
    assert!(
        (cost::PER_EXPRESSION..cost::PER_EXPRESSION + 2000).contains(&spent),
        "{spent}"
    );
    // No other term makes up for it.
    let absorbed = format!("{many} == 1 || true");
    assert_eq!(
        evaluate(&absorbed, &mut budget).unwrap_err(),
        EvalError::CostLimit
    );
}

#[test]
fn flattening_overflows_neither_the_cost_nor_the_stack() {
    // The size of the list times the depth is what it costs.
    let costly = format!("[1, 2, 3].flatten({})", i64::MAX);
    let mut budget = Budget::new(u64::MAX);
    assert_eq!(evaluate(&costly, &mut budget).unwrap_err(), EvalError::CostLimit);
    on_small_stack(|| {
        let nested = "[".repeat(crate::json::MAX_DEPTH) + &"]".repeat(crate::json::MAX_DEPTH);
        let document = Document::parse(nested).unwrap();
        let program = compile("object.flatten(100000) == []");
        let mut activation = Activation::new(&environment());
        activation.set(0, Value::json(document.root()));
        let flat = program.evaluate(&mut activation, &mut Budget::new(cost::PER_BINDING));
        assert_eq!(flat.unwrap().as_bool(), Some(true));
    });
}

#[test]
fn expressions_share_a_budget() {
    let mut budget = Budget::new(8);
    assert!(evaluate("object.a.size() > 2", &mut budget).is_ok());
    assert_eq!(budget.remaining(), 4);
    assert!(evaluate("object.a.size() > 2", &mut budget).is_ok());
    assert_eq!(
        evaluate("object.a.size() > 2", &mut budget).unwrap_err(),
        EvalError::OutOfBudget
    );
}

#[test]
fn a_loop_looks_at_the_deadline() {
    let asked = Cell::new(0);
    let expired = || {
        asked.set(asked.get() + 1);
        asked.get() > 3
    };
    let mut budget = Budget::new(cost::PER_BINDING).until(&expired);
    let result = evaluate("lists.range(10000).all(a, a >= 0)", &mut budget);
    assert_eq!(result.unwrap_err(), EvalError::Interrupted);
    let absorbed = evaluate("lists.range(10000).all(a, a >= 0) || true", &mut budget);
    assert_eq!(absorbed.unwrap_err(), EvalError::Interrupted);
}

#[test]
fn rounds_of_several_expressions_count_together() {
    let asked = Cell::new(0);
    let expired = || {
        asked.set(asked.get() + 1);
        false
    };
    let mut budget = Budget::new(cost::PER_BINDING).until(&expired);
    for _ in 0..50 {
        evaluate("lists.range(10).all(a, a >= 0)", &mut budget).unwrap();
    }
    assert!(asked.get() >= 4, "{}", asked.get());
}

#[test]
fn a_variable_that_is_an_expression_is_evaluated_once() {
    let mut environment = Environment::new(Version::new(35)).variable("object", Type::Dyn);
    let size = environment.compile("object.a.size()", &[]).unwrap();
    environment.add_lazy_variable("size", size.output().clone(), size.depth());
    let double = environment.compile("variables.size * 2", &[]).unwrap();
    environment.add_lazy_variable("double", Type::Int, double.depth());
    let program = environment
        .compile("variables.double + variables.size", &[Type::Int])
        .unwrap();

    let document = Document::parse(r#"{"a":[1,2,3]}"#).unwrap();
    let mut activation = Activation::new(&environment);
    activation.set(environment.slot("object").unwrap(), Value::json(document.root()));
    activation.set_lazy(environment.slot("variables.size").unwrap(), &size);
    activation.set_lazy(environment.slot("variables.double").unwrap(), &double);
    let mut budget = Budget::new(100);
    let value = program.evaluate(&mut activation, &mut budget).unwrap();
    assert!(matches!(value, Value::Int(9)), "{value:?}");
    // 5 for the sum, 3 for size, 3 for double.
    assert_eq!(budget.remaining(), 100 - 11);
}

#[test]
fn a_variable_that_fails_fails_each_time() {
    let mut environment = Environment::new(Version::new(35));
    environment.add_lazy_variable("broken", Type::Dyn, 2);
    let broken = environment.compile("1 / 0", &[]).unwrap().named("broken");
    let myself = environment
        .compile("variables.broken", &[])
        .unwrap()
        .named("broken");
    let program = environment
        .compile("variables.broken == 1 || variables.broken == 2", &[])
        .unwrap();
    for variable in [&broken, &myself] {
        let mut activation = Activation::new(&environment);
        activation.set_lazy(environment.slot("variables.broken").unwrap(), variable);
        let error = program
            .evaluate(&mut activation, &mut Budget::new(100))
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("composited variable \"broken\" fails to evaluate"),
            "{error}"
        );
    }
}

#[test]
fn faults_stand_where_they_are() {
    for (expression, line, column, message) in [
        (
            "object.a &&\n  nope",
            2,
            3,
            "undeclared reference to 'nope' (in container '')",
        ),
        (
            "1 + 'a'",
            1,
            3,
            "found no matching overload for '_+_' applied to '(int, string)'",
        ),
        (
            "'a'.foo()",
            1,
            8,
            "undeclared reference to 'foo' (in container '')",
        ),
        (
            "1 +",
            1,
            4,
            "Syntax error: mismatched input '<EOF>' expecting an expression",
        ),
        ("object.a", 1, 7, "must evaluate to bool but got dyn"),
    ] {
        let error = environment().compile(expression, &[Type::Bool]).unwrap_err();
        assert_eq!(
            (error.line, error.column, error.message.as_str()),
            (line, column, message),
            "{expression}"
        );
    }
}

/// Pieces that make expressions, and pieces that break them.
const PIECES: [&str; 64] = [
    "object",
    "x",
    "a",
    "1",
    "2u",
    "1.5",
    "'t'",
    "b'b'",
    "true",
    "null",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    ".",
    ",",
    ":",
    "?",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "==",
    "!=",
    "<",
    ">=",
    "&&",
    "||",
    "in",
    "in ",
    ".?",
    "[?",
    "has(object.a)",
    ".a",
    ".s",
    ".n",
    "[0]",
    "['a']",
    ".map(a, a)",
    ".all(a, x)",
    ".exists(a, b, x)",
    ".size()",
    ".split('')",
    ".matches('[')",
    ".join()",
    "optional.of(",
    ".orValue(1)",
    "quantity('1')",
    "duration('1h')",
    "lists.range(9)",
    ".sortBy(a, a)",
    ".distinct()",
    ".flatten()",
    "type(1)",
    "ip('::1')",
    "url('http://a')",
    "'%s'.format([1])",
    "\u{e9}",
    "\\",
    "0x",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_text_panics(pieces in proptest::collection::vec(0..PIECES.len(), 0..40)) {
        let text: String = pieces.iter().map(|piece| PIECES[*piece]).collect();
        if let Ok(program) = environment().compile(&text, &[]) {
            let document = Document::parse(r#"{"a":[1,2,3],"s":"text","n":null}"#).unwrap();
            let mut activation = Activation::default();
            activation.set(0, Value::json(document.root()));
            activation.set(1, Value::Bool(true));
            let mut budget = Budget::new(cost::PER_BINDING);
            let _ = program.evaluate(&mut activation, &mut budget);
        }
    }

    #[test]
    fn no_characters_panic(text in "\\PC{0,60}") {
        let _ = environment().compile(&text, &[]);
    }
}
