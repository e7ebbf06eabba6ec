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
mod find;
mod run;
mod suite;

use std::path::PathBuf;

use serde::Serialize;

use super::at::At;
use super::output::{self, Format};
use super::{CommandResult, Error};
use crate::field::Faults;
use run::CaseOutcome;

/// Run test suites for policies: requests with the expected decision and its cause.
#[derive(Debug, clap::Args)]
pub(super) struct Test {
    /// Files with documents of kind PolicyTest, or folders with such files.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Of cases that name no time of their own.
    #[command(flatten)]
    at: At,
}

/// The outcome of a run, for programs.
#[derive(Debug, Serialize)]
struct TestReport<'a> {
    passed: usize,
    failed: usize,
    faults: Vec<String>,
    cases: &'a [CaseOutcome],
}

// === impl Test ===

impl Test {
    pub(super) fn run(self, format: Format) -> Result<CommandResult, Error> {
        let (mut faults, now) = (Faults::new(), self.at.time());
        let documents = find::documents(&self.paths, &mut faults)?;
        let mut cases = Vec::new();
        for document in &documents {
            if let Some(suite) = suite::read(document, &mut faults) {
                cases.extend(run::run(&suite, now, &mut faults));
            }
        }
        if cases.is_empty() && faults.is_empty() {
            let paths: Vec<String> = self
                .paths
                .iter()
                .map(|path| format!("`{}`", path.display()))
                .collect();
            return Err(Error::Usage(format!(
                "there are no documents of kind PolicyTest in {}",
                paths.join(", ")
            )));
        }
        report(format, &cases, &faults)
    }
}

fn report(format: Format, cases: &[CaseOutcome], faults: &Faults) -> Result<CommandResult, Error> {
    let failed = cases.iter().filter(|case| !case.passed()).count();
    let passed = cases.len() - failed;
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let report = TestReport {
        passed,
        failed,
        faults,
        cases,
    };
    output::print(format, report.in_words(), &report)?;
    let valid = failed == 0 && report.faults.is_empty();
    Ok(if valid {
        CommandResult::Success
    } else {
        CommandResult::Failure
    })
}

// === impl TestReport ===

impl TestReport<'_> {
    /// Faults, then each failing case, then the count.
    fn in_words(&self) -> String {
        let mut text = String::new();
        for fault in &self.faults {
            text.push_str(fault);
            text.push('\n');
        }
        for case in self.cases.iter().filter(|case| !case.passed()) {
            text.push_str(&case.to_string());
        }
        text + &format!("{} passed, {} failed\n", self.passed, self.failed)
    }
}
