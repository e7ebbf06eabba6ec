//! Runs test cases and compares the results.

use std::fmt;

use serde::Serialize;

use super::admission::AdmissionCase;
use super::suite::{AccessCase, Case, CaseQuestion, Expectation, PoliciesFrom, Suite};
use crate::cli::admit::{self, answer::OfflineReview};
use crate::cli::authorizers;
use crate::cli::explain::{InWords, object};
use crate::cli::loading::{self, LoadedPolicies};
use crate::engine::Time;
use crate::engine::authorization::Authorization;
use crate::field::Faults;

/// What became of one case.
#[derive(Debug, Serialize)]
pub(super) struct CaseOutcome {
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
pub(super) struct Difference {
    what: String,
    expected: String,
    actual: String,
}

/// Decides every case of `suite`, as at `now` where it names no time. Without
/// policies to decide by there is none.
pub(super) fn run(suite: &Suite, now: Time, faults: &mut Faults) -> Vec<CaseOutcome> {
    let (loaded, found) = match &suite.policies {
        PoliciesFrom::Manifests(paths) => loading::of_paths(paths),
        PoliciesFrom::Configuration(path) => loading::of_configuration(path),
    };
    // What check warns of is no matter of a test.
    faults.extend(
        found
            .into_iter()
            .filter(|fault| fault.severity == crate::field::Severity::Error),
    );
    let Some(loaded) = loaded else {
        return Vec::new();
    };
    suite
        .cases
        .iter()
        .map(|case| decide(&loaded, &suite.file, case, case.at.unwrap_or(now)))
        .collect()
}

pub(super) fn decide(loaded: &LoadedPolicies, file: &str, case: &Case, now: Time) -> CaseOutcome {
    let (differences, explanation) = match &case.question {
        CaseQuestion::Access(asked) => access(loaded, &case.cluster, asked, now),
        CaseQuestion::Admission(asked) => admit(loaded, &case.cluster, asked, now),
    };
    let passed = differences.is_empty();
    CaseOutcome {
        file: file.to_owned(),
        line: case.line,
        name: case.name.clone(),
        passed,
        differences,
        explanation: if passed { String::new() } else { explanation },
    }
}

fn access(loaded: &LoadedPolicies, cluster: &str, case: &AccessCase, now: Time) -> (Vec<Difference>, String) {
    let foreign = none_of(case.opinions.foreign(&loaded.authorizers));
    if !foreign.is_empty() {
        return (foreign, String::new());
    }
    let policies = loaded.policies.for_cluster(cluster);
    let (own, trace) = policies.explain(&case.attributes, now);
    let webhooks = (loaded.authorizers.as_slice(), &case.opinions);
    let consulted = authorizers::consult(policies, &case.attributes, own, webhooks);
    let words = InWords {
        consulted: &consulted,
        trace: &trace,
        bindings: policies.unmatched(&case.attributes, now).bindings,
    };
    (
        differences(&case.expect, &consulted.authorization),
        words.to_string(),
    )
}

/// Recorded answers of webhooks that are not there.
fn none_of<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Difference> {
    names
        .map(|name| Difference::new("webhooks".to_owned(), name.to_owned(), String::new()))
        .collect()
}

fn admit(
    loaded: &LoadedPolicies,
    cluster: &str,
    case: &AdmissionCase,
    now: Time,
) -> (Vec<Difference>, String) {
    if let Some(name) = &case.policy
        && !loaded.has_policy(cluster, case.phases, name)
    {
        let none = Difference::new("policy".to_owned(), name.clone(), String::new());
        return (vec![none], String::new());
    }
    let policies = loaded.admission.for_cluster(cluster);
    let foreign = none_of(case.answers.foreign(policies));
    if !foreign.is_empty() {
        return (foreign, String::new());
    }
    let asked = OfflineReview {
        loaded,
        cluster,
        phases: case.phases,
        only: case.policy.as_deref(),
        now,
        answers: &case.answers,
    };
    match asked.answer(case.review.as_bytes()) {
        Ok(answered) => (
            case.expect.differences(&answered),
            admit::AdmitInWords(&answered).to_string(),
        ),
        Err(error) => {
            let expected = "an AdmissionReview".to_owned();
            let wrong = Difference::new("review".to_owned(), expected, error.to_string());
            (vec![wrong], String::new())
        }
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
    .filter_map(|(what, expected, actual)| Difference::between(what, expected?, actual))
    .collect()
}

// === impl Difference ===

impl Difference {
    pub(super) const fn new(what: String, expected: String, actual: String) -> Self {
        Self {
            what,
            expected,
            actual,
        }
    }

    /// None where both are the same.
    pub(super) fn between(what: &str, expected: String, actual: String) -> Option<Self> {
        (expected != actual).then(|| Self::new(what.to_owned(), expected, actual))
    }
}

// === impl CaseOutcome ===

impl CaseOutcome {
    pub(super) const fn passed(&self) -> bool {
        self.passed
    }
}

/// A failing case: what was expected, what came, and why.
impl fmt::Display for CaseOutcome {
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
