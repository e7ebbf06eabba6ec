//! Expressions in the environment of kube-apiserver: whether they compile,
//! whether they fail, their values, and what they cost.

use std::collections::BTreeMap;
use std::path::Path;

use portcullis_cel::json::Document;
use portcullis_cel::{Environment, Version};
use serde_json::json;

use crate::differences::Difference;
use crate::grammar::Grammar;
use crate::outcome::{Answer, Outcome};
use crate::program::{NEWEST, Oracle};
use crate::random::{Random, cases};
use crate::variables::{environment_of, untyped};

/// How many differences are printed; all of them are written to a file.
const SHOWN: usize = 40;

/// How often an expression is asked about again that has different outcomes:
/// Kubernetes' own answer may depend on the order of a map, which is another each time.
const ASKED_AGAIN: usize = 200;

/// An expression that has different outcomes.
struct Found {
    expression: String,
    kubernetes: Outcome,
    here: Outcome,
}

/// The two that are compared.
pub(crate) struct Both {
    oracle: Oracle,
    environment: Environment,
    variables: Document<'static>,
}

// === impl Both ===

impl Both {
    /// None where the program was not built.
    ///
    /// The environment that the Kubernetes `server` has for `version`, and ours.
    pub(crate) fn start(server: &str, version: Version) -> Option<Self> {
        let mut oracle = Oracle::of_expressions(server, version)?;
        let text = untyped();
        let values: serde_json::Value = serde_json::from_str(&text).unwrap();
        let _: Vec<Answer> = oracle.ask(&[json!({ "variables": values })]);
        Some(Self {
            oracle,
            environment: environment_of(version),
            variables: Document::parse(text).unwrap(),
        })
    }

    /// What becomes of each expression: in Kubernetes, and here.
    pub(crate) fn outcomes(&mut self, expressions: &[String]) -> Vec<(Outcome, Outcome)> {
        let questions: Vec<_> = expressions
            .iter()
            .map(|expression| json!({ "expression": expression }))
            .collect();
        let answers: Vec<Answer> = self.oracle.ask(&questions);
        let here = |expression: &String| Outcome::here(&self.environment, &self.variables, expression);
        answers
            .into_iter()
            .map(Outcome::from)
            .zip(expressions.iter().map(here))
            .collect()
    }

    /// Whether Kubernetes itself has several outcomes.
    fn varies(&mut self, expression: &str) -> bool {
        let outcomes = self.ask_again(expression);
        outcomes.iter().any(|outcome| *outcome != outcomes[0])
    }

    /// Whether Kubernetes has `outcome` too, if it is asked often enough.
    pub(crate) fn comes_to(&mut self, expression: &str, outcome: &Outcome) -> bool {
        self.ask_again(expression).iter().any(|one| one.is_same(outcome))
    }

    /// What Kubernetes makes of an expression, each time.
    fn ask_again(&mut self, expression: &str) -> Vec<Outcome> {
        let questions = vec![json!({ "expression": expression }); ASKED_AGAIN];
        let answers: Vec<Answer> = self.oracle.ask(&questions);
        answers.into_iter().map(Outcome::from).collect()
    }
}

pub(crate) fn random_expressions_are_what_kubernetes_1_37_makes_of_them() {
    compare("1.37", 37, 20_000);
}

pub(crate) fn random_expressions_are_what_kubernetes_1_36_makes_of_them() {
    compare("1.36", 36, 20_000);
}

/// Their cel-go is that of 1.36, and so is their code of libraries, but for comments.
pub(crate) fn random_expressions_are_what_kubernetes_1_34_and_1_35_make_of_them() {
    for minor in [34, 35] {
        compare("1.36", minor, 3_000);
    }
}

/// Expressions in the environment that the Kubernetes `server` has for 1.`minor`.
fn compare(server: &str, minor: u32, count: usize) {
    let version = Version::new(minor);
    assert!(Version::EXACT.contains(&version));
    let Some(mut both) = Both::start(server, version) else {
        return;
    };
    let known = Difference::all_of(version);
    let grammar = Grammar::read();
    let mut random = Random::of(u64::from(minor));
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut times = vec![0; known.len()];
    let mut found = Vec::new();
    let count = cases(count);
    for start in (0..count).step_by(1000) {
        let expressions: Vec<String> = (start..count.min(start + 1000))
            .map(|_| grammar.expression(&mut random))
            .collect();
        let outcomes = both.outcomes(&expressions);
        for (expression, (kubernetes, here)) in expressions.into_iter().zip(outcomes) {
            *kinds.entry(kubernetes.kind()).or_default() += 1;
            if kubernetes.is_same(&here) {
                continue;
            }
            match known
                .iter()
                .position(|known| known.explains(&expression, &kubernetes, &here))
            {
                Some(reason) => times[reason] += 1,
                None => found.push(Found {
                    expression,
                    kubernetes,
                    here,
                }),
            }
        }
    }
    println!("{count} expressions for {version}: {kinds:?}");
    for (known, times) in known.iter().zip(times) {
        println!("{times} times: {}", known.reason);
    }
    let all = found.len();
    found.retain(|found| !both.varies(&found.expression));
    println!(
        "{} times: Kubernetes has another outcome each time",
        all - found.len()
    );
    report(found, count, version);
}

pub(crate) fn every_difference_of_the_table_is_still_one() {
    for (server, minor) in [("1.36", 36), (NEWEST, 37)] {
        let version = Version::new(minor);
        let Some(mut both) = Both::start(server, version) else {
            return;
        };
        let known = Difference::all_of(version);
        let examples: Vec<String> = known.iter().map(|known| known.example.clone()).collect();
        let outcomes = both.outcomes(&examples);
        for (known, (kubernetes, here)) in known.iter().zip(outcomes) {
            let differ = !kubernetes.is_same(&here) && known.explains(&known.example, &kubernetes, &here);
            assert!(
                differ,
                "{} for {version}\n  Kubernetes {kubernetes:?}\n  here       {here:?}",
                known.example
            );
        }
    }
}

pub(crate) fn the_grammar_calls_every_function_of_kubernetes() {
    let Some(mut oracle) = Oracle::of_expressions(NEWEST, Version::NEWEST) else {
        return;
    };
    let answers: Vec<Answer> = oracle.ask(&[json!({ "functions": true })]);
    let functions = &answers[0].functions;
    assert!(functions.len() > 100, "{functions:?}");
    let grammar = Grammar::read();
    // Operators, and what macros expand to.
    let is_named = |name: &&String| !name.contains(['_', '@']);
    let missing: Vec<_> = functions
        .iter()
        .filter(is_named)
        .filter(|name| *name != "in" && !grammar.has(&format!("{name}(")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

fn report(mut found: Vec<Found>, count: usize, version: Version) {
    found.sort_by_key(|found| (found.expression.len(), found.expression.clone()));
    found.dedup_by(|one, other| one.expression == other.expression);
    let all: Vec<String> = found
        .iter()
        .map(|found| {
            let Found {
                expression,
                kubernetes,
                here,
            } = found;
            format!("{expression}\n  Kubernetes {kubernetes:?}\n  here       {here:?}")
        })
        .collect();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("oracle-cel-differences-{version}.txt"));
    std::fs::write(&file, all.join("\n")).unwrap();
    assert!(
        all.is_empty(),
        "{} of {count} differ for {version}, all in {}; the shortest:\n{}",
        all.len(),
        file.display(),
        all.iter()
            .take(SHOWN)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    );
}
