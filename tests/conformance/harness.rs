//! Runs the cases of a file of vectors and counts.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use serde_json::Value;

/// The checks of one file, by the name that cases call them.
pub(crate) type Table = &'static [(&'static str, fn(&Case<'_>) -> Result<(), Mismatch>)];

/// Cases that have no counterpart: those of a check for which `when` holds.
pub(crate) struct Skip {
    pub(crate) file: &'static str,
    pub(crate) check: &'static str,
    pub(crate) when: fn(&Case<'_>) -> bool,
    pub(crate) reason: &'static str,
}

/// One case, in the environment that its file gives to all.
pub(crate) struct Case<'a> {
    pub(crate) file: &'a Value,
    pub(crate) value: &'a Value,
}

/// What came out instead.
#[derive(Debug)]
pub(crate) struct Mismatch(String);

/// What was printed, and how it went.
#[derive(Default)]
pub(crate) struct Report {
    lines: String,
    /// The cases read, skipped ones included.
    pub(crate) cases: usize,
    /// Cases that failed, and files and checks that cannot be used.
    pub(crate) failures: usize,
}

#[derive(Default)]
struct Tally {
    passed: usize,
    run: usize,
    skipped: BTreeMap<&'static str, usize>,
}

// === impl Case ===

impl<'a> Case<'a> {
    pub(crate) fn id(&self) -> &'a str {
        self.value["id"].as_str().unwrap_or("without id")
    }

    pub(crate) fn check(&self) -> &'a str {
        self.value["check"].as_str().unwrap_or_default()
    }

    pub(crate) fn input(&self) -> &'a Value {
        &self.value["input"]
    }

    pub(crate) fn expect(&self) -> &'a Value {
        &self.value["expect"]
    }

    /// Fails unless the two are equal; `what` says what they are.
    pub(crate) fn same<T: PartialEq + Debug>(
        &self,
        what: &str,
        actual: &T,
        expected: &T,
    ) -> Result<(), Mismatch> {
        if actual == expected {
            return Ok(());
        }
        Err(Mismatch(format!("{what} is {actual:?}, not {expected:?}")))
    }
}

// === impl Mismatch ===

impl Mismatch {
    pub(crate) fn new(actual: impl Into<String>) -> Self {
        Self(actual.into())
    }
}

// === impl Skip ===

impl Skip {
    /// Every case of a check.
    pub(crate) const fn all(file: &'static str, check: &'static str, reason: &'static str) -> Self {
        Self {
            file,
            check,
            when: |_| true,
            reason,
        }
    }
}

// === impl Report ===

impl Report {
    /// Runs every case of the file at `path`.
    pub(crate) fn run(&mut self, path: &Path, checks: &[(&str, Table)], skips: &[Skip]) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(path).unwrap_or_default();
        match serde_json::from_str::<Value>(&text) {
            Ok(file) if file["schema"] == "conformance-vectors/v1" => {
                self.run_file(&name, &file, checks, skips)
            }
            Ok(_) => self.fail(format_args!(
                "vectors {name} is not of schema conformance-vectors/v1"
            )),
            Err(error) => self.fail(format_args!("vectors {name} cannot be read: {error}")),
        }
    }

    fn run_file(&mut self, name: &str, file: &Value, checks: &[(&str, Table)], skips: &[Skip]) {
        let tables = checks.iter().filter(|(file, _)| *file == name);
        let known: Vec<_> = tables.flat_map(|(_, table)| table.iter()).collect();
        let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
        for value in file["cases"].as_array().into_iter().flatten() {
            self.cases += 1;
            let case = Case { file, value };
            let tally = tallies.entry(case.check()).or_default();
            let skip = skips
                .iter()
                .find(|skip| skip.file == name && skip.check == case.check() && (skip.when)(&case));
            let check = known.iter().find(|(check, _)| *check == case.check());
            match (skip, check) {
                (Some(skip), _) => *tally.skipped.entry(skip.reason).or_default() += 1,
                (None, Some((_, check))) => {
                    tally.run += 1;
                    match outcome(&case, *check) {
                        Ok(()) => tally.passed += 1,
                        Err(Mismatch(actual)) => self.fail(format_args!(
                            "vectors {name} {} {} failed\n  input:    {}\n  expected: {}\n  actual:   {actual}",
                            case.check(),
                            case.id(),
                            case.input(),
                            case.expect(),
                        )),
                    }
                }
                (None, None) => {
                    tally.run += 1;
                    self.fail(format_args!(
                        "vectors {name} {} {}: unknown check",
                        case.check(),
                        case.id()
                    ));
                }
            }
        }
        for (check, tally) in tallies {
            self.tally(name, check, &tally);
        }
    }

    fn tally(&mut self, file: &str, check: &str, tally: &Tally) {
        if tally.run > 0 {
            self.line(format_args!(
                "vectors {file} {check} {}/{}",
                tally.passed, tally.run
            ));
        }
        for (reason, cases) in &tally.skipped {
            self.line(format_args!("vectors {file} {check} skipped {cases}: {reason}"));
        }
    }

    fn fail(&mut self, line: fmt::Arguments<'_>) {
        self.failures += 1;
        self.line(line);
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        self.lines.push_str(&line.to_string());
        self.lines.push('\n');
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines)
    }
}

/// A panic is a mismatch like any other, so that the other cases are still run.
fn outcome(case: &Case<'_>, check: fn(&Case<'_>) -> Result<(), Mismatch>) -> Result<(), Mismatch> {
    catch_unwind(AssertUnwindSafe(|| check(case))).unwrap_or_else(|_| Err(Mismatch::new("a panic")))
}

mod tests {
    use super::*;
    use serde_json::json;

    const CHECKS: &[(&str, Table)] = &[(
        "f.json",
        &[("even", |case| {
            // Panics without a message, which would look like a failure among the output.
            let number = case.input().as_u64();
            let even = number.unwrap_or_else(|| resume_unwind(Box::new("no number"))) % 2 == 0;
            case.same("even", &even, &case.expect().as_bool().unwrap())
        })],
    )];

    fn report(cases: Value) -> Report {
        let mut report = Report::default();
        let skips = [Skip {
            file: "f.json",
            check: "even",
            when: |case| case.input() == 0,
            reason: "zero is a matter of taste",
        }];
        report.run_file("f.json", &json!({"cases": cases}), CHECKS, &skips);
        report
    }

    #[test]
    fn counts_what_passed_and_what_was_skipped() {
        let report = report(json!([
            {"id": "1", "check": "even", "input": 2, "expect": true},
            {"id": "2", "check": "even", "input": 3, "expect": false},
            {"id": "3", "check": "even", "input": 0, "expect": false},
        ]));
        assert_eq!((report.cases, report.failures), (3, 0));
        assert_eq!(
            report.to_string(),
            "vectors f.json even 2/2\nvectors f.json even skipped 1: zero is a matter of taste\n"
        );
    }

    #[test]
    fn a_wrong_answer_and_a_panic_fail() {
        let report = report(json!([
            {"id": "1", "check": "even", "input": 2, "expect": false},
            {"id": "2", "check": "even", "input": "two", "expect": true},
        ]));
        assert_eq!(report.failures, 2);
        assert_eq!(
            report.to_string(),
            "vectors f.json even 1 failed\n  input:    2\n  expected: false\n  actual:   even is true, not false\n\
             vectors f.json even 2 failed\n  input:    \"two\"\n  expected: true\n  actual:   a panic\n\
             vectors f.json even 0/2\n"
        );
    }

    #[test]
    fn a_check_that_is_not_known_fails() {
        let report = report(json!([{"id": "1", "check": "odd", "input": 1, "expect": true}]));
        assert_eq!(report.failures, 1);
        assert!(report.to_string().contains("odd 1: unknown check"), "{report}");
    }
}
