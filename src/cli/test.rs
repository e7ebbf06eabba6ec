//! `portcullis test`: runs test suites for policies.
//!
//! ```text
//! PATH --find--> PolicyTest documents --suite--> Suite --run--> one Outcome for each case
//!                                                  |
//!                                      manifests or configuration
//! ```

mod admission;
#[cfg(test)]
mod agreement;
mod coverage;
mod find;
pub(crate) mod junit;
mod run;
mod suite;

use std::path::{Path, PathBuf};

use regex_automata::hybrid::regex::Regex;
use serde::Serialize;

use super::at::At;
use super::output::{self, Format, Output};
use super::{CommandResult, Error};
use coverage::{Coverage, CoverageReport};
use portcullis_policy::explain::Lines;
use portcullis_policy::field::Faults;
use run::{CaseOutcome, TestRun};

/// Run test suites for policies: requests with the expected decision and its cause.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Test {
    /// Files with documents of kind PolicyTest, or folders with such files.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Run only the cases whose suite and name, as `suite/name`, match this regular expression.
    #[arg(long, value_name = "REGEX")]
    run: Option<String>,
    /// List the cases that pass, too.
    #[arg(short, long)]
    verbose: bool,
    /// Write the outcome to this file as JUnit's XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Say which policies, rules, validations, mutations and matchConditions the cases reached.
    #[arg(long)]
    coverage: bool,
    /// Fail where less than this is covered, in percent.
    #[arg(long, value_name = "PERCENT", requires = "coverage")]
    fail_under: Option<f64>,
    /// Write the coverage, by the lines of the manifests, to this file in the format of lcov.
    #[arg(long, value_name = "FILE")]
    coverage_lcov: Option<PathBuf>,
    /// Of cases that name no time of their own.
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    output: Output<Format>,
}

const EXAMPLES: &str = "\
Examples:
  portcullis test policies
  portcullis test policies --run '^guard/' -v
  portcullis test policies --coverage --fail-under 80 --junit results.xml";

fn regex(text: &str) -> Result<Regex, Error> {
    Regex::new(text).map_err(|error| {
        let reason = std::error::Error::source(&error).map(ToString::to_string);
        let reason = reason.unwrap_or_else(|| error.to_string());
        Error::Usage(format!("`--run {text}` is no regular expression: {reason}"))
    })
}

/// The outcome of a run, for programs.
#[derive(Debug, Serialize)]
struct TestReport<'a> {
    passed: usize,
    failed: usize,
    faults: Vec<String>,
    cases: &'a [CaseOutcome],
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<CoverageReport>,
    /// Whether cases that pass are listed.
    #[serde(skip)]
    lists_all: bool,
    /// What must be covered, in percent.
    #[serde(skip)]
    fail_under: Option<f64>,
}

// === impl Test ===

impl Test {
    pub(crate) fn run(self) -> Result<CommandResult, Error> {
        let format = self.output.output;
        let mut faults = Faults::new();
        let documents = find::documents(&self.paths, &mut faults)?;
        let wants_coverage = self.coverage || self.coverage_lcov.is_some();
        let mut run = TestRun {
            now: self.at.time(),
            only: self.run.as_deref().map(regex).transpose()?,
            coverage: wants_coverage.then(Coverage::default),
        };
        let (mut cases, mut suites) = (Vec::new(), 0);
        for document in &documents {
            if let Some(suite) = suite::read(document, &mut faults) {
                suites += suite.cases.len();
                cases.extend(run.run(&suite, &mut faults));
            }
        }
        if cases.is_empty() && faults.is_empty() {
            return Err(nothing_to_run(&self.paths, suites));
        }
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        if let Some(path) = &self.junit {
            write(path, &junit::junit(&cases, &faults))?;
        }
        if let (Some(path), Some(coverage)) = (&self.coverage_lcov, &run.coverage) {
            write(path, &coverage::lcov(coverage))?;
        }
        let failed = cases.iter().filter(|case| !case.passed()).count();
        let report = TestReport {
            passed: cases.len() - failed,
            failed,
            faults,
            cases: &cases,
            coverage: run
                .coverage
                .as_ref()
                .filter(|_| self.coverage)
                .map(Coverage::report),
            lists_all: self.verbose,
            fail_under: self.fail_under,
        };
        output::print(format, &report.in_words(), &report)?;
        Ok(if report.is_valid() {
            CommandResult::Success
        } else {
            CommandResult::Failure
        })
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|source| Error::file("write", path, source))
}

fn nothing_to_run(paths: &[PathBuf], cases: usize) -> Error {
    let paths: Vec<String> = paths.iter().map(|path| format!("`{}`", path.display())).collect();
    let paths = paths.join(", ");
    Error::Usage(if cases == 0 {
        format!("there are no documents of kind PolicyTest in {paths}")
    } else {
        format!("`--run` matches none of the {cases} cases in {paths}")
    })
}

// === impl TestReport ===

impl TestReport<'_> {
    fn is_valid(&self) -> bool {
        self.failed == 0 && self.faults.is_empty() && !self.is_below()
    }

    /// Whether less is covered than must be.
    fn is_below(&self) -> bool {
        let covered = self.coverage.as_ref().map(CoverageReport::percent);
        covered
            .zip(self.fail_under)
            .is_some_and(|(covered, least)| covered < least)
    }

    /// Faults, then each failing case, then the count and what is covered.
    fn in_words(&self) -> Lines {
        let mut lines: Lines = self.faults.iter().collect();
        for case in self.cases {
            if !case.passed() {
                lines.append(&case.in_words());
            } else if self.lists_all {
                lines.line(format_args!("ok {}:{}: {}", case.file, case.line, case.name));
            }
        }
        if let Some(coverage) = &self.coverage {
            lines.append(&coverage.in_words());
        }
        if let Some(least) = self.fail_under.filter(|_| self.is_below()) {
            lines.line(format_args!("FAIL: less than {least} % is covered"));
        }
        lines.line(format_args!("{} passed, {} failed", self.passed, self.failed));
        lines
    }
}
