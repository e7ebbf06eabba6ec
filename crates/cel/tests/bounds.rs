//! Whatever an expression is, compiling and evaluating it takes bounded memory and work.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

#[path = "bounds/expressions.rs"]
mod expressions;
#[path = "bounds/overloads.rs"]
mod overloads;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use peak_alloc::PeakAlloc;
use portcullis_cel::{
    Activation, Budget, CompileBudget, CompileErrorKind, Environment, EvalError, MAX_COMPILED_BYTES,
    MAX_EVALUATION_BYTES, MAX_LENGTH, Type, Value, Version, json,
};
use proptest::prelude::*;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// One test runs at a time: all share the allocator, and what another one takes would be measured too.
static TURN: Mutex<()> = Mutex::new(());

/// What compiling takes besides the programs: the tree of an expression, and the automaton of one
/// regular expression, three times its 32 MiB while it is built.
const MAX_WHILE_COMPILING: usize = 100 << 20;

/// What evaluating takes besides what it makes: the automaton of a regular expression that comes
/// with the request, and what compares or prints values.
const MAX_WHILE_EVALUATING: usize = 48 << 20;

/// What an expression may cost here: enough to meet the limit of bytes.
const COST: u64 = 100_000;

/// How many bytes `work` takes at most, beyond those that were taken before.
fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let result = work();
    (result, ALLOCATOR.peak_usage().saturating_sub(before))
}

fn environment() -> Environment {
    Environment::new(Version::NEWEST)
        .mutation()
        .variable("object", Type::Dyn)
        .variable("texts", Type::list(Type::String))
}

/// What is wrong with how `expression` compiles, if anything is.
fn overrun(environment: &Environment, expression: &str) -> Option<String> {
    compiled(environment, expression).err()
}

/// What compiling `expression` says, which is nothing where it compiles.
///
/// # Errors
///
/// It takes more than it may, or says more.
fn compiled(environment: &Environment, expression: &str) -> Result<String, String> {
    let budget = CompileBudget::new();
    let (compiled, peak) = peak(|| environment.compile_within(expression, &[], &budget));
    let kept = MAX_COMPILED_BYTES - budget.bytes();
    let shown: String = expression.chars().take(200).collect();
    let length = expression.len();
    let fault = |what: String| Err(format!("{what}: {length} characters, {shown}"));
    match compiled {
        _ if peak > kept + MAX_WHILE_COMPILING => fault(format!("{peak} bytes, {kept} of them counted")),
        Err(error) if error.message.len() > 2100 => {
            fault(format!("a message of {} bytes", error.message.len()))
        }
        Err(error) if error.kind == CompileErrorKind::Interrupted => fault(error.to_string()),
        // An expression that is no longer than some of policies must not take all.
        Ok(_) if length < 1000 && budget.steps() == 0 => fault("it took all steps".to_owned()),
        Ok(_) => Ok(String::new()),
        Err(error) => Ok(error.message),
    }
}

/// What ends compiling.
const TYPE: &str = "its type is too large";
const STEPS: &str = "compiling takes too long";
const BYTES: &str = "takes too much memory";

/// What ends evaluating.
const MEMORY: &str = "MemoryLimit";

/// Each ends by the bound that is for it, or compiles.
#[test]
fn known_attacks_on_the_compiler_are_bounded() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let environment = environment();
    let chain = |first: &str, link: &str, count: usize| {
        let link = |number: usize| link.replace('@', &format!("a{number}"));
        first.to_owned() + &(0..count).map(link).collect::<String>()
    };
    // With room for what is around it.
    let row = |one: &str, sign: &str| vec![one; (MAX_LENGTH - 5000) / (one.len() + sign.len())].join(sign);
    let patterns = (10..510).map(|number| format!(r"''.matches('\\pL{{{number}}}')"));
    let patterns: Vec<String> = patterns.collect();
    let long = "a".repeat(45_000);
    let pairs = chain("[[]]", ".map(@,{@:@})", 9);
    for (expression, expected) in [
        (chain("[0]", ".map(@,{@:@})", 40), TYPE),
        (chain("[[]]", ".map(@,{@:@})", 40), TYPE),
        (chain("[[]]", ".map(@,optional.of({@:@}))", 40), TYPE),
        (chain("[0]", ".map(@,{@:@})", 30) + ".nothing", TYPE),
        // Each side is as large as one may be.
        (format!("{pairs} == {pairs}"), TYPE),
        // Deeper than the stack, a variable within another.
        (
            format!("[[]].all(a,[[]].all(b,a==b&&{}&&b==[]))", row("a==[]", "&&")),
            TYPE,
        ),
        (
            format!("'%s'.format([{}])", chain("[0]", ".map(@,{'a':@})", 190)),
            "",
        ),
        // What an overload that does not fit has bound is unbound again.
        ("[].all(a,a+'b'=='c')".to_owned(), ""),
        (row("[]==[]", "||"), ""),
        (format!("[[]].all(a,{})", row("a==[]", "||")), ""),
        (format!("[0].map(x,[{}])", row("-x", ",")), ""),
        (format!("1 in [{}]", row("1", ",")), ""),
        (
            format!("{}[{}]{}", "dyn(".repeat(90), row("1", ","), ")".repeat(90)),
            STEPS,
        ),
        (patterns.join("||"), STEPS),
        (r"''.findAll('(\\pL|\\pN){400}')".to_owned(), STEPS),
        (
            vec!["a".repeat(500); 190].join("."),
            "undeclared reference to 'aaa",
        ),
        (
            format!(
                "[Object.{long}{{}}].map(a,{{a:a}}).map(a,{{a:a}}).map(a,{{a:a}}).map(a,{{a:a}}).nothing"
            ),
            "type 'list(map(map(map(map(Object.aaa",
        ),
        (
            format!("'{long}'.nothing({long})"),
            "undeclared reference to 'aaa",
        ),
        (
            format!("{{'a':1,'b':'{long}'}}"),
            "expected type 'int' but found 'string'",
        ),
    ] {
        let said = compiled(&environment, &expression).unwrap_or_else(|fault| panic!("{fault}"));
        let is_expected = said.starts_with(expected) && said.is_empty() == expected.is_empty();
        assert!(is_expected, "{said:.100} for {expression:.100}");
    }
}

/// An object with long text that must be unescaped wherever it is read.
fn object() -> json::Document<'static> {
    let text = r#"a\n"#.repeat(50_000);
    let list = "1,".repeat(999);
    json::Document::parse(format!(r#"{{"a":"b","text":"{text}","list":[{list}0]}}"#)).unwrap()
}

/// The value of `expression`, at so high a cost, and how many bytes that takes at most.
fn evaluate(expression: &str, cost: u64) -> (Result<(), EvalError>, usize) {
    evaluate_within(expression, Budget::new(cost))
}

fn evaluate_within(expression: &str, mut budget: Budget<'_>) -> (Result<(), EvalError>, usize) {
    let environment = environment();
    let program = environment.compile(expression, &[]).unwrap();
    let object = object();
    let mut activation = Activation::new(&environment);
    activation.set(environment.slot("object").unwrap(), Value::json(object.root()));
    let texts = (0..100)
        .map(|number| Value::string(format!("{number}")))
        .collect();
    activation.set(environment.slot("texts").unwrap(), Value::list(texts));
    peak(|| program.evaluate(&mut activation, &mut budget).map(drop))
}

/// Where no cost ends it.
#[test]
fn all_that_an_evaluation_makes_counts_in_bytes() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let entries: String = (0..200).map(|number| format!("{number}:i,")).collect();
    // What is named is made once.
    let many = |of: &str, one: &str| format!("[{of}].map(o,lists.range(1000).map(i,{one})) == []");
    // A text of half a megabyte, and one of 25 MB, that are made once.
    let shared = "[object.text.replace('\\n','0123456789')].map(s, lists.range(2000).map(i,s))";
    let long = format!("object.text.replace('a','{}')", "\\u0001".repeat(500));
    let query = "'http://a/?b=' + object.text.upperAscii().replace('\\n','')";
    for expression in [
        many("object.text", "o.upperAscii()"),
        many("object.text", "o + 'a'"),
        many("object.text", "'%s'.format([o])"),
        many("object.text", "o.split('\\n',2)"),
        many("1", &format!("lists.range(10).map(j,{{{entries}}})")),
        many("lists.range(2000)", "o.transformMap(k,v,v)"),
        many("lists.range(2000)", "o.transformMapEntry(k,v,{v:v})"),
        many("lists.range(3000)", "o.filter(j,true)"),
        format!("'%s'.format([{shared}]) == ''"),
        format!("'%s'.format([{{'k':{shared}}}]) == ''"),
        format!("'%s'.format([[bytes({long})]]) == ''"),
        format!("{shared}[0].join(',') == ''"),
        format!("strings.quote({long} + {long}) == ''"),
        format!("'%x'.format([{long}]) == ''"),
        format!("'%X'.format([{long}]) == ''"),
        many(query, "url(o).getQuery()"),
        many("1", "quantity('1e99999').add(quantity('1'))"),
        many("'1.0.0-' + object.list.map(i,'a').join('.a.')", "semver(o)"),
    ] {
        let budget = Budget::new(u64::MAX).per_expression(u64::MAX);
        let (result, peak) = evaluate_within(&expression, budget);
        assert_eq!(result, Err(EvalError::MemoryLimit), "{expression:.100}");
        assert!(
            peak < MAX_EVALUATION_BYTES + MAX_WHILE_EVALUATING,
            "{peak}: {expression:.100}"
        );
    }
}

#[test]
fn what_an_evaluation_makes_is_bounded_in_bytes() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let doubled = |first: &str, times: usize| {
        let link = |number: usize| format!(".map(a{number},a{number}+a{number})");
        format!("[{first}]{} == []", (0..times).map(link).collect::<String>())
    };
    let tens = |times: usize| vec![".map(a,a.replace('','0123456789'))"; times].concat();
    for expression in [
        doubled("lists.range(1000)", 20),
        doubled("object.list", 20),
        doubled("'0123456789'", 30),
        doubled("b'0123456789'", 30),
        format!("['a']{} == []", tens(9)),
        "[lists.range(1000)].map(a,a.map(i,a)).map(b,b.map(i,b)).map(c,c.flatten().flatten()) == []"
            .to_owned(),
        "[lists.range(1000)].map(a,lists.range(1000).map(i,a.reverse())) == []".to_owned(),
        "[lists.range(1000)].map(a,lists.range(1000).map(i,a.slice(0,999))) == []".to_owned(),
        "lists.range(900).map(i,object.text) == []".to_owned(),
        "lists.range(900).map(i,object.text.substring(1)) == []".to_owned(),
        "lists.range(900).map(i,object.text.split('')) == []".to_owned(),
        "lists.range(900).map(i,object.text.findAll('a')) == []".to_owned(),
        "lists.range(900).map(i,object.text.upperAscii()) == []".to_owned(),
        "lists.range(900).map(i,'%s'.format([object.text])) == []".to_owned(),
        "lists.range(900).map(i,[object.text, object.text].join()) == []".to_owned(),
        "lists.range(900).map(i,bytes(object.text + 'a')) == []".to_owned(),
        "lists.range(900).map(i,lists.range(1000).transformMap(k,v,v)) == []".to_owned(),
    ] {
        let (result, peak) = evaluate(&expression, 1_000_000);
        let limits = [
            EvalError::MemoryLimit,
            EvalError::CostLimit,
            EvalError::OutOfBudget,
        ];
        assert!(
            result.as_ref().is_err_and(|error| limits.contains(error)),
            "{result:?}: {expression}"
        );
        let most = MAX_EVALUATION_BYTES + MAX_WHILE_EVALUATING;
        assert!(peak < most, "{peak} bytes: {expression}");
    }
}

#[test]
fn an_attempt_ends_where_it_needs_more_memory() {
    const BYTES: usize = 1 << 20;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let environment = environment();
    let attempt = |expression: &str| {
        let needs_more = AtomicBool::new(false);
        let program = environment.compile(expression, &[]).unwrap();
        let mut activation = Activation::new(&environment);
        let mut budget = Budget::new(10_000_000).attempt(BYTES, &needs_more);
        let (result, peak) = peak(|| program.evaluate(&mut activation, &mut budget).map(drop));
        assert!(peak < BYTES + MAX_WHILE_EVALUATING, "{peak} bytes: {expression}");
        (result, needs_more.into_inner())
    };
    assert_eq!(attempt("lists.range(1000).map(i, i) == []"), (Ok(()), false));
    let more = "lists.range(900).map(i, lists.range(1000)) == []";
    assert_eq!(attempt(more), (Err(EvalError::Interrupted), true));
    let hidden = format!("{more} || true");
    assert_eq!(attempt(&hidden), (Err(EvalError::Interrupted), true));
}

#[test]
fn what_is_gone_after_a_loop_does_not_count() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let loops = "lists.range(2000).all(i, lists.range(2).map(a, 1).transformMap(k, v, v).all(k, k < 2))";
    assert_eq!(evaluate(loops, 1_000_000).0, Ok(()));
    let replaced = "lists.range(500).all(i, object.a.replace('nothing', object.text) == 'b')";
    assert_eq!(evaluate(replaced, 10_000_000).0, Ok(()));
}

#[test]
fn values_that_share_their_parts_are_not_compared_for_long() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let links: String = (0..40)
        .map(|number| format!(".map(a{number},[a{number},a{number}])"))
        .collect();
    let text = format!("[dyn(0)]{links} == [dyn(0)]{links}");
    let environment = environment();
    let looks = std::cell::Cell::new(0);
    let look = || {
        looks.set(looks.get() + 1);
        false
    };
    // Of types that are not known, so that they may be as large as they like.
    let text = text.replace(",[a", ",dyn([a").replace("])", "]))");
    let program = environment.compile(&text, &[]).unwrap();
    let mut budget = Budget::new(1_000_000).until(&look);
    let result = program.evaluate(&mut Activation::new(&environment), &mut budget);
    assert!(
        matches!(result, Err(EvalError::CostLimit | EvalError::OutOfBudget)),
        "{result:?}"
    );
    assert!(looks.get() > 1000, "{} looks", looks.get());
}

#[test]
fn variables_that_name_each_other_nest_no_deeper_than_the_stack() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut environment = environment();
    environment.add_lazy_variable("v0", Type::Dyn, 1);
    let mut depth = 1;
    for number in 0..2000 {
        let text = format!("dyn([[variables.v{number}]])");
        match environment.compile(&text, &[]) {
            Ok(program) => {
                assert!(
                    program.depth() > depth,
                    "each is deeper than the one that it names"
                );
                depth = program.depth();
                environment.add_lazy_variable(&format!("v{}", number + 1), Type::Dyn, depth);
            }
            Err(error) => {
                assert!(error.message.contains("recursion limit"), "{error}");
                assert!(number > 100, "{number}");
                return;
            }
        }
    }
    panic!("no end");
}

#[test]
fn the_expressions_of_one_object_are_bounded_together() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let environment = environment();
    let plain = vec!["object.a == 'b'"; 5000].join(" && ");
    let costly = format!(
        "{}[{}0]{}",
        "dyn(".repeat(20),
        "1,".repeat(20_000),
        ")".repeat(20)
    );
    for (text, expected) in [(plain, BYTES), (costly, STEPS)] {
        let budget = CompileBudget::new();
        let ended = (0..200).map(|_| environment.compile_within(&text, &[], &budget));
        let (count, error) = ended
            .enumerate()
            .find_map(|(count, compiled)| Some((count, compiled.err()?)))
            .unwrap();
        assert!(
            count >= 2 && error.message.starts_with(expected),
            "{count}: {error}"
        );
        let error = environment.compile_within("true", &[], &budget).unwrap_err();
        assert_eq!(error.kind, CompileErrorKind::TooLarge);
    }
}

#[test]
fn the_automaton_of_a_constant_pattern_counts() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let budget = CompileBudget::new();
    environment()
        .compile_within(r"''.matches('\\pL{900}')", &[], &budget)
        .unwrap();
    let kept = MAX_COMPILED_BYTES - budget.bytes();
    assert!(kept > 10 << 20, "{kept} bytes");
}

#[test]
fn a_deadline_ends_compiling() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let environment = environment();
    for (patience, expected) in [(0, 1), (3, 4)] {
        let asked = std::cell::Cell::new(0);
        let expired = || {
            asked.set(asked.get() + 1);
            asked.get() > patience
        };
        let budget = CompileBudget::new().until(&expired);
        let text = vec!["[1, 2].map(a, a < 3) == []"; 3000].join(" || ");
        let error = environment.compile_within(&text, &[], &budget).unwrap_err();
        assert_eq!(
            (error.kind, asked.get()),
            (CompileErrorKind::Interrupted, expected)
        );
        // And whatever is next.
        let error = environment.compile_within("true", &[], &budget).unwrap_err();
        assert_eq!(error.kind, CompileErrorKind::Interrupted);
    }
}

/// Else the two below would find nothing.
#[test]
fn generated_expressions_meet_each_bound() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let environment = environment();
    let mut unmet = BTreeSet::from([TYPE, STEPS, BYTES, MEMORY]);
    for seed in 0..200 {
        let expression = expressions::expression(seed);
        let said = compiled(&environment, &expression).unwrap();
        unmet.retain(|bound| !said.starts_with(bound));
        if said.is_empty() && evaluate(&expression, COST).0 == Err(EvalError::MemoryLimit) {
            unmet.remove(MEMORY);
        }
        if unmet.is_empty() {
            return;
        }
    }
    panic!("{unmet:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn evaluating_takes_bounded_memory(seed: u64) {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let expression = expressions::expression(seed);
        if environment().compile(&expression, &[]).is_ok() {
            let (_, peak) = evaluate(&expression, COST);
            prop_assert!(peak < MAX_EVALUATION_BYTES + MAX_WHILE_EVALUATING, "{peak} bytes: {expression}");
        }
    }

    #[test]
    fn compiling_takes_bounded_memory_and_work(seed: u64) {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let environment = environment();
        let fault = overrun(&environment, &expressions::expression(seed));
        prop_assert!(fault.is_none(), "{}", fault.unwrap_or_default());
    }
}

/// What comes with an object, as `texts`.
fn evaluate_on(expression: &str, texts: Vec<String>) -> (Result<(), EvalError>, usize) {
    let environment = environment();
    let program = environment.compile(expression, &[]).unwrap();
    let mut activation = Activation::new(&environment);
    let texts = texts.into_iter().map(Value::string).collect();
    activation.set(environment.slot("texts").unwrap(), Value::list(texts));
    let mut budget = Budget::new(10_000_000);
    peak(|| program.evaluate(&mut activation, &mut budget).map(drop))
}

#[test]
fn a_pattern_that_comes_with_an_object_takes_bounded_memory() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for one in [".", "a?", "|", "[ab]", "(?:a)*"] {
        for length in [60 << 10, 3 << 20] {
            let pattern = one.repeat(length / one.len());
            let (result, peak) = evaluate_on("'x'.matches(texts[0]) || true", vec![pattern]);
            assert_eq!(result, Ok(()), "an error that `||` absorbs");
            assert!(peak < 32 << 20, "{peak}: {length} bytes of {one}");
        }
    }
}

#[test]
fn what_has_no_order_is_sorted_all_the_same() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let numbers = |count: usize| -> Vec<String> {
        let number = |at: usize| match at * 7919 % 3 {
            0 => "NaN".to_owned(),
            _ => format!("{}", at * 104_729 % 1009),
        };
        (0..count).map(number).collect()
    };
    for count in [2, 25, 60, 1000] {
        let sorted = "texts.map(t,double(t)).sort()";
        let checks = format!(
            "{sorted}.size() == texts.size() && {sorted}[0] == texts.map(t,double(t)).filter(d,d==d).min()"
        );
        let environment = environment();
        let program = environment.compile(&checks, &[]).unwrap();
        let mut activation = Activation::new(&environment);
        let texts = numbers(count).into_iter().map(Value::string).collect();
        activation.set(environment.slot("texts").unwrap(), Value::list(texts));
        let mut budget = Budget::new(u64::MAX).per_expression(u64::MAX);
        let result = program.evaluate(&mut activation, &mut budget);
        assert!(matches!(result, Ok(Value::Bool(true))), "{count}: {result:?}");
    }
}

/// A sort whose budget ends on the way.
#[test]
fn a_sort_that_takes_too_long_is_an_error() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let texts: Vec<String> = (0..32).map(|at| format!("{}{at}", "a".repeat(3_050))).collect();
    for cost in (100..4_000).step_by(50) {
        let environment = environment();
        let program = environment.compile("texts.sort().size() > 0", &[]).unwrap();
        let mut activation = Activation::new(&environment);
        let texts = texts.iter().cloned().map(Value::string).collect();
        activation.set(environment.slot("texts").unwrap(), Value::list(texts));
        // It ends, with a value or an error.
        let _either = program.evaluate(&mut activation, &mut Budget::new(cost));
    }
}

#[test]
fn an_error_quotes_no_more_than_a_message_may_have() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let text = "x".repeat(2 << 20);
    for expression in [
        "int(texts[0]) > 0",
        "double(texts[0]) > 0.0",
        "timestamp(texts[0]) > timestamp(texts[0])",
        "duration(texts[0]) > duration(texts[0])",
        "semver(texts[0]).major() > 0",
        "url(texts[0] + '%').getHost() == ''",
        "'a'.matches('(' + texts[0].substring(0, 60000))",
        "{'a': 1}[texts[0]] > 0",
    ] {
        let (result, _) = evaluate_on(expression, vec![text.clone()]);
        let message = result.map_err(|error| error.to_string()).unwrap_err();
        assert!(message.len() < 3 << 10, "{} bytes: {expression}", message.len());
    }
}
