//! Cases decided and compared.

use std::fmt;

use serde::Serialize;

use super::suite::{Case, Expectation, PoliciesFrom, Suite};
use crate::cli::explain::{InWords, object};
use crate::cli::loading;
use crate::engine::{Authorization, Policies};
use crate::field::Faults;

/// What became of one case.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    file: String,
    line: u32,
    name: String,
    passed: bool,
    /// What was decided otherwise than expected; empty where it passed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<Difference>,
    /// The decision and the way to it, in words, where it did not pass.
    #[serde(skip_serializing_if = "String::is_empty")]
    explanation: String,
}

/// One thing that is not as expected.
#[derive(Debug, Serialize)]
struct Difference {
    what: &'static str,
    expected: String,
    actual: String,
}

/// Decides every case of `suite`. Without policies to decide by there is none.
pub(super) fn run(suite: &Suite, faults: &mut Faults) -> Vec<Outcome> {
    let (policies, found) = match &suite.policies {
        PoliciesFrom::Manifests(paths) => loading::policies_of_paths(paths),
        PoliciesFrom::Configuration(path) => loading::policies_of_configuration(path),
    };
    // What check warns of is no matter of a test.
    faults.extend(
        found
            .into_iter()
            .filter(|fault| fault.severity == crate::field::Severity::Error),
    );
    let Some(policies) = policies else {
        return Vec::new();
    };
    suite
        .cases
        .iter()
        .map(|case| decide(&policies, &suite.file, case))
        .collect()
}

fn decide(policies: &Policies, file: &str, case: &Case) -> Outcome {
    let policies = policies.for_cluster(&case.cluster);
    let (authorization, trace) = policies.explain(&case.attributes);
    let differences = differences(&case.expect, &authorization);
    let passed = differences.is_empty();
    let words = InWords {
        authorization: &authorization,
        trace: &trace,
        bindings: policies.unmatched(&case.attributes).bindings,
    };
    Outcome {
        file: file.to_owned(),
        line: case.line,
        name: case.name.clone(),
        passed,
        differences,
        explanation: if passed { String::new() } else { words.to_string() },
    }
}

fn differences(expect: &Expectation, actual: &Authorization) -> Vec<Difference> {
    let cause = actual.cause.as_ref();
    let written_cause = cause
        .map(|cause| object(cause.kind, &cause.namespace, &cause.name))
        .unwrap_or_default();
    let rule = cause
        .and_then(|cause| cause.rule)
        .map(|rule| rule.to_string())
        .unwrap_or_default();
    let shadow: Vec<String> = actual
        .shadow
        .iter()
        .map(|shadow| format!("{}/{}: {}", shadow.kind, shadow.name, shadow.decision))
        .collect();
    [
        (
            "decision",
            Some(expect.decision.to_string()),
            actual.decision.to_string(),
        ),
        ("cause", expect.cause.clone(), written_cause),
        ("rule", expect.rule.map(|rule| rule.to_string()), rule),
        ("reason", expect.reason.clone(), actual.reason.clone()),
        (
            "shadow",
            expect.shadow.as_ref().map(|shadow| shadow.join(", ")),
            shadow.join(", "),
        ),
    ]
    .into_iter()
    .filter_map(|(what, expected, actual)| {
        let expected = expected.filter(|expected| *expected != actual)?;
        Some(Difference {
            what,
            expected,
            actual,
        })
    })
    .collect()
}

// === impl Outcome ===

impl Outcome {
    pub(super) const fn passed(&self) -> bool {
        self.passed
    }
}

/// A failing case: what was expected, what came, and why.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "FAIL {}:{}: {}", self.file, self.line, self.name)?;
        for Difference {
            what,
            expected,
            actual,
        } in &self.differences
        {
            writeln!(f, "  {what}: expected `{expected}`, got `{actual}`")?;
        }
        for line in self.explanation.lines() {
            writeln!(f, "  | {line}")?;
        }
        writeln!(f)
    }
}
