//! Runs test cases, and compares the decisions with the expected ones.

use std::collections::HashMap;

use regex_automata::hybrid::regex::Regex;
use serde::Serialize;

use super::admission::{AdmissionCase, Difference};
use super::coverage::Coverage;
use super::suite::{AccessCase, Case, CaseQuestion, Expectation, InvariantCase, PoliciesFrom, Suite};
use crate::cli::access::TimeLimit;
use crate::cli::{access_requests, output, policy_files, set_checks};
use crate::{config, state};
use portcullis_policy::authorization::{Authorization, Trace};
use portcullis_policy::explain::admission::{AdmitInWords, OfflineReview, TracedStep};
use portcullis_policy::explain::authorization::{self, InWords, object};
use portcullis_policy::explain::invariants::CheckedInvariant;
use portcullis_policy::explain::{Lines, LoadedPolicies};
use portcullis_policy::field::Faults;
use portcullis_policy::manifest::{self, odd_request};
use portcullis_policy::model::Time;

/// The result of a test case.
#[derive(Debug, Serialize)]
pub(crate) struct CaseOutcome {
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) name: String,
    passed: bool,
    /// The differences to the expected decision; empty if the case passed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<Difference>,
    /// The decision and its explanation; empty if the case passed.
    #[serde(skip_serializing_if = "String::is_empty")]
    explanation: String,
}

/// The maximum number of failing cases that are explained. An explanation lists all policies
/// considered.
const MAX_EXPLAINED: usize = 100;

/// The parameters and state of a run.
pub(crate) struct TestRun {
    /// The time for cases that do not have their own.
    pub(crate) now: Time,
    /// Selects cases by `suite/name`; `None` selects all.
    pub(crate) filter: Option<Regex>,
    /// The coverage, if requested.
    pub(crate) coverage: Option<Coverage>,
    /// The number of cases that did not pass so far.
    pub(crate) failed: usize,
}

/// The checked invariants, by cluster and time. All cases of a suite share the results and one time
/// limit.
struct CheckedInvariants {
    answers: HashMap<(String, Time), Result<Vec<CheckedInvariant>, String>>,
    time: TimeLimit,
}

/// What the decision of a case reached, for the coverage.
enum CaseDecision {
    Access(Trace),
    Admission(Vec<TracedStep>),
    Nothing,
}

/// The differences, the explanation, and what was reached.
type CaseComparison = (Vec<Difference>, String, CaseDecision);

// === impl TestRun ===

impl TestRun {
    /// Runs the cases of `suite`. There are no results if its policies cannot be loaded.
    pub(crate) fn run(&mut self, suite: &Suite, faults: &mut Faults) -> Vec<CaseOutcome> {
        let (config, paths) = match &suite.policies {
            PoliciesFrom::Manifests(paths) => (None, paths.as_slice()),
            PoliciesFrom::Configuration(path) => (Some(path.as_path()), &[][..]),
        };
        let (loaded, found) = match config {
            None => policy_files::load_paths(paths),
            Some(path) => policy_files::load_configuration(path),
        };
        // Warnings are reported by `check`, not by tests.
        faults.extend(
            found
                .into_iter()
                .filter(|fault| fault.severity == portcullis_policy::field::Severity::Error),
        );
        let Some(mut loaded) = loaded else {
            return Vec::new();
        };
        let requests = [paths, &suite.access_requests].concat();
        let found = access_requests::apply_access_requests_of_files(&mut loaded, config, &requests);
        if found.has_errors() {
            faults.append(found);
            return Vec::new();
        }
        let mut coverage = self.coverage.is_some().then(|| reachable(&suite.policies));
        let mut outcomes = Vec::new();
        let mut proven = CheckedInvariants::new();
        let cases = suite.cases.iter();
        let wanted: Vec<&Case> = cases.filter(|case| self.is_wanted(suite, case)).collect();
        for case in wanted {
            let at = case.at.unwrap_or(self.now);
            let (mut outcome, reached) = run_case((&loaded, &mut proven), &suite.file, case, at);
            self.failed += usize::from(!outcome.passed);
            if !outcome.passed && self.failed > MAX_EXPLAINED {
                outcome.explanation = format!(
                    "only the first {MAX_EXPLAINED} failing cases are explained: name this one with `--run`"
                );
            }
            if let Some(coverage) = &mut coverage {
                match reached {
                    CaseDecision::Access(trace) => {
                        coverage.note_access(&trace, loaded.policies.for_cluster(&case.cluster));
                    }
                    CaseDecision::Admission(trace) => coverage.note_admission(&trace),
                    CaseDecision::Nothing => {}
                }
            }
            outcomes.push(outcome);
        }
        if let (Some(all), Some(more)) = (&mut self.coverage, coverage) {
            all.merge(more);
        }
        outcomes
    }

    fn is_wanted(&self, suite: &Suite, case: &Case) -> bool {
        let name = format!("{}/{}", suite.name, case.name);
        self.filter
            .as_ref()
            .is_none_or(|only| only.is_match(&mut only.create_cache(), name.as_str()))
    }
}

// === impl CheckedInvariants ===

impl CheckedInvariants {
    fn new() -> Self {
        Self {
            answers: HashMap::new(),
            time: TimeLimit::new(),
        }
    }

    fn of(
        &mut self,
        loaded: &LoadedPolicies,
        cluster: &str,
        now: Time,
    ) -> &Result<Vec<CheckedInvariant>, String> {
        let time = &self.time;
        self.answers.entry((cluster.to_owned(), now)).or_insert_with(|| {
            let set = loaded.policies.for_cluster(cluster);
            let set = set.with_roles(manifest::default_roles());
            set_checks::check_invariants(&set, cluster, now, time).map_err(|error| error.to_string())
        })
    }
}

/// The items that the cases of a suite can cover.
fn reachable(policies: &PoliciesFrom) -> Coverage {
    let paths = match policies {
        PoliciesFrom::Manifests(paths) => policy_files::for_all_clusters(paths),
        PoliciesFrom::Configuration(path) => config::load_valid_parts(path).0.manifests,
    };
    let mut coverage = Coverage::default();
    // Errors in the files were reported when they were loaded.
    let (sources, mut faults) = state::read_manifests(&paths);
    for source in &sources {
        for object in manifest::documents(source, &mut faults) {
            coverage.add(&object);
        }
    }
    coverage
}

#[cfg(test)]
pub(crate) fn decide(loaded: &LoadedPolicies, file: &str, case: &Case, now: Time) -> CaseOutcome {
    let mut proven = CheckedInvariants::new();
    run_case((loaded, &mut proven), file, case, now).0
}

fn run_case(
    (loaded, proven): (&LoadedPolicies, &mut CheckedInvariants),
    file: &str,
    case: &Case,
    now: Time,
) -> (CaseOutcome, CaseDecision) {
    if let CaseQuestion::Access(asked) = &case.question {
        let policies = loaded.policies.for_cluster(&case.cluster);
        for hint in odd_request(&asked.attributes.target, policies) {
            output::print_error(format_args!(
                "warning: {file}:{}: {}: {hint}",
                case.line, case.name
            ));
        }
    }
    let (differences, explanation, reached) = match &case.question {
        CaseQuestion::Access(asked) => access(loaded, &case.cluster, asked, now),
        CaseQuestion::Admission(asked) => admit(loaded, &case.cluster, asked, now),
        CaseQuestion::Invariant(asked) => invariant(proven.of(loaded, &case.cluster, now), asked),
    };
    let passed = differences.is_empty();
    let outcome = CaseOutcome {
        file: file.to_owned(),
        line: case.line,
        name: case.name.clone(),
        passed,
        differences,
        explanation: if passed { String::new() } else { explanation },
    };
    (outcome, reached)
}

fn access(loaded: &LoadedPolicies, cluster: &str, case: &AccessCase, now: Time) -> CaseComparison {
    let foreign = missing_webhooks(case.opinions.unknown_names(&loaded.authorizers));
    if !foreign.is_empty() {
        return (foreign, String::new(), CaseDecision::Nothing);
    }
    let policies = loaded.policies.for_cluster(cluster);
    let (own, trace) = policies.explain(&case.attributes, now);
    let webhooks = (loaded.authorizers.as_slice(), &case.opinions);
    let consulted = authorization::consult(policies, &case.attributes, own, webhooks);
    let words = InWords {
        consulted: &consulted,
        trace: &trace,
        bindings: policies.unmatched(&case.attributes, now).bindings,
    };
    let mut lines = words.lines();
    if let Some(assumption) = policies.assumption(&consulted.authorization) {
        lines.line(format_args!("note: {assumption}"));
    }
    let explanation = lines.to_string();
    let differences = differences(&case.expect, &consulted.authorization);
    (differences, explanation, CaseDecision::Access(trace))
}

fn invariant(checked: &Result<Vec<CheckedInvariant>, String>, case: &InvariantCase) -> CaseComparison {
    let nothing = |what: &str, actual: String| {
        let difference = Difference::new(what.to_owned(), case.expect.clone(), actual);
        (vec![difference], String::new(), CaseDecision::Nothing)
    };
    let checked = match checked {
        Ok(checked) => checked,
        Err(error) => return nothing("invariant", error.clone()),
    };
    let Some(invariant) = checked.iter().find(|invariant| invariant.name == case.name) else {
        return nothing(
            "invariant",
            format!("there is no AuthorizationInvariant `{}`", case.name),
        );
    };
    let actual = invariant.status.as_str().to_owned();
    let difference = Difference::between("invariant", case.expect.clone(), actual);
    (
        difference.into_iter().collect(),
        invariant.sentences().join("\n"),
        CaseDecision::Nothing,
    )
}

/// Differences for recorded responses of webhooks that do not exist.
fn missing_webhooks<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Difference> {
    names
        .map(|name| Difference::new("webhooks".to_owned(), name.to_owned(), String::new()))
        .collect()
}

fn admit(loaded: &LoadedPolicies, cluster: &str, case: &AdmissionCase, now: Time) -> CaseComparison {
    if let Some(name) = &case.policy
        && !loaded.has_policy(cluster, case.phases, name)
    {
        let none = Difference::new("policy".to_owned(), name.clone(), String::new());
        return (vec![none], String::new(), CaseDecision::Nothing);
    }
    let policies = loaded.admission.for_cluster(cluster);
    let foreign = missing_webhooks(case.answers.foreign(policies));
    if !foreign.is_empty() {
        return (foreign, String::new(), CaseDecision::Nothing);
    }
    let asked = OfflineReview {
        loaded,
        cluster,
        phases: case.phases,
        only: case.policy.as_deref(),
        now,
        clock: std::time::Instant::now,
        answers: &case.answers,
        requester_unknown: false,
        deadline: None,
        recorder: None,
    };
    match asked.answer(case.review.as_bytes()) {
        Ok(answered) => {
            let explanation = AdmitInWords(&answered).lines().to_string();
            let differences = case.expect.differences(&answered);
            (differences, explanation, CaseDecision::Admission(answered.trace))
        }
        Err(error) => {
            let expected = "an AdmissionReview".to_owned();
            let wrong = Difference::new("review".to_owned(), expected, error.to_string());
            (vec![wrong], String::new(), CaseDecision::Nothing)
        }
    }
}

fn differences(expect: &Expectation, actual: &Authorization<'_>) -> Vec<Difference> {
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
        ("reason", expect.reason.clone(), actual.reason.to_string()),
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

// === impl CaseOutcome ===

impl CaseOutcome {
    pub(crate) const fn passed(&self) -> bool {
        self.passed
    }

    /// Names the differences, on one line.
    pub(crate) fn summary(&self) -> String {
        let what: Vec<&str> = self.differences.iter().map(|one| one.what.as_str()).collect();
        format!("not as expected: {}", what.join(", "))
    }
}

impl CaseOutcome {
    /// A failing case as text: the expected (`-`) and the actual values (`+`), and the explanation.
    pub(crate) fn in_words(&self) -> Lines {
        let mut lines = Lines::from_iter([format!("FAIL {}:{}: {}", self.file, self.line, self.name)]);
        for Difference {
            what,
            expected,
            actual,
        } in &self.differences
        {
            lines.line(format_args!("  {what}:"));
            lines.each("  - ", expected);
            lines.each("  + ", actual);
        }
        lines.each("  | ", &self.explanation);
        lines.line("");
        lines
    }
}
