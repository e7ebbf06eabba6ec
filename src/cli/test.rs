//! `portcullis test`: runs test suites for policies.
//!
//! ```text
//! PATH ──▶ PolicyTest documents ──suite──▶ Suite ──run──▶ one Outcome for each case ──▶ text · JSON · JUnit
//!                                                  ▲
//!                                      manifests or configuration
//! ```

mod admission;
mod coverage;
mod run;
mod suite;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use regex_automata::hybrid::regex::Regex;
use serde::Serialize;

use super::output::{self, CommandError, CommandResult, Format, Output};
use super::policy_files::{self, At};
use crate::config::files;
use crate::state;
use coverage::{Coverage, CoverageReport};
use portcullis_policy::document::{self, Document};
use portcullis_policy::explain::Lines;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};
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
    /// Also list the cases that pass.
    #[arg(short, long)]
    verbose: bool,
    /// Write the result to this file as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Show which policies, rules, validations, mutations and matchConditions the cases reached.
    #[arg(long)]
    coverage: bool,
    /// Fail if the coverage is lower than this.
    #[arg(long, value_name = "PERCENT", requires = "coverage", value_parser = percent)]
    fail_under: Option<f64>,
    /// Write the coverage of manifest lines to this file, in the format of lcov.
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

fn percent(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "is no number from 0 to 100".to_owned())
}

fn regex(text: &str) -> Result<Regex, CommandError> {
    Regex::new(text).map_err(|error| {
        let reason = std::error::Error::source(&error).map(ToString::to_string);
        let reason = reason.unwrap_or_else(|| error.to_string());
        CommandError::Usage(format!("`--run {text}` is not a regular expression: {reason}"))
    })
}

/// The JSON output.
#[derive(Debug, Serialize)]
struct TestReport<'a> {
    passed: usize,
    failed: usize,
    faults: Vec<String>,
    cases: &'a [CaseOutcome],
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<CoverageReport>,
    /// Whether passing cases are listed in text.
    #[serde(skip)]
    lists_all: bool,
    #[serde(skip)]
    wants_coverage: bool,
    /// The required coverage, in percent.
    #[serde(skip)]
    fail_under: Option<f64>,
}

// === impl Test ===

impl Test {
    pub(crate) fn run(self) -> Result<CommandResult, CommandError> {
        let format = self.output.output;
        let mut faults = Faults::new();
        let documents = documents(&self.paths, &mut faults)?;
        let wants_coverage = self.coverage || self.coverage_lcov.is_some();
        let mut run = TestRun {
            now: self.at.time(),
            filter: self.run.as_deref().map(regex).transpose()?,
            coverage: wants_coverage.then(Coverage::default),
            failed: 0,
        };
        let (mut cases, mut suites) = (Vec::new(), 0);
        for document in &documents {
            if let Some(suite) = suite::read(document, &self.paths, &mut faults) {
                suites += suite.cases.len();
                cases.extend(run.run(&suite, &mut faults));
            }
        }
        if cases.is_empty() && !faults.has_errors() {
            return Err(nothing_to_run(&self.paths, suites));
        }
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        if let Some(path) = &self.junit {
            write(path, &junit(&cases, &faults))?;
        }
        if let (Some(path), Some(coverage)) = (&self.coverage_lcov, &run.coverage) {
            write(path, &coverage::lcov(coverage))?;
        }
        let failed = cases.iter().filter(|case| !case.passed()).count();
        let report = TestReport {
            passed: cases.len() - failed,
            failed,
            cases: &cases,
            coverage: run
                .coverage
                .as_ref()
                .filter(|_| self.coverage && faults.is_empty())
                .map(Coverage::report),
            faults,
            lists_all: self.verbose,
            wants_coverage: self.coverage,
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

fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    files::replace_report(path, text).map_err(|source| CommandError::file("write", path, source))
}

fn nothing_to_run(paths: &[PathBuf], cases: usize) -> CommandError {
    let paths: Vec<String> = paths.iter().map(|path| format!("`{}`", path.display())).collect();
    let paths = paths.join(", ");
    CommandError::Usage(if cases == 0 {
        format!("there are no documents of kind PolicyTest in {paths}")
    } else {
        format!("`--run` matches none of the {cases} cases in {paths}")
    })
}

// === impl TestReport ===

impl TestReport<'_> {
    fn is_valid(&self) -> bool {
        self.failed == 0 && self.faults.is_empty() && !self.misses_required_coverage()
    }

    /// Whether the coverage is less than required.
    fn misses_required_coverage(&self) -> bool {
        let covered = self.coverage.as_ref().map(CoverageReport::percent);
        covered
            .zip(self.fail_under)
            .is_some_and(|(covered, least)| covered < least)
    }

    /// The report as text: faults, failing cases, coverage and totals.
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
        } else if self.wants_coverage {
            lines.line("coverage: not known, since not every suite could be run: mend the faults above");
        }
        if let Some(least) = self.fail_under.filter(|_| self.misses_required_coverage()) {
            lines.line(format_args!("FAIL: less than {least} % is covered"));
        }
        lines.line(format_args!("{} passed, {} failed", self.passed, self.failed));
        lines
    }
}

/// `kind` of a suite.
pub(crate) const KIND: &str = "PolicyTest";
/// The suites in files and folders. Documents of other kinds are ignored in folders.
///
/// # Errors
///
/// A path cannot be read.
pub(crate) fn documents(paths: &[PathBuf], faults: &mut Faults) -> Result<Vec<Document>, CommandError> {
    let mut suites = Vec::new();
    let roots = suite::SuiteRoots {
        folder: Path::new(""),
        named: paths,
    };
    for path in paths {
        policy_files::check_readable(path)?;
        let outside = roots.files_outside(path);
        faults.extend(outside.iter().map(|file| outside_fault(file)));
        if !outside.is_empty() {
            continue;
        }
        let (sources, unreadable) =
            state::read_manifests(&policy_files::for_all_clusters(std::slice::from_ref(path)));
        faults.append(unreadable);
        for source in sources {
            match document::parse(Some(&source.file), &source.text) {
                Ok(documents) => suites.extend(suites_of(path, documents, faults)),
                Err(fault) => faults.push(fault),
            }
        }
    }
    Ok(suites)
}

fn outside_fault(file: &Path) -> Fault {
    Fault::error(
        Place::of_file(file),
        FaultKind::Forbidden,
        suite::outside_message(file),
    )
}

fn suites_of(named: &Path, documents: Vec<Document>, faults: &mut Faults) -> Vec<Document> {
    let (suites, others): (Vec<_>, Vec<_>) = documents
        .into_iter()
        .partition(|document| document.text("kind") == Some(KIND));
    if named.is_dir() {
        return suites;
    }
    // A file on the command line must only contain suites.
    for other in others {
        let path = portcullis_policy::field::FieldPath::root().field("kind");
        let message = format!("expected the kind `{KIND}` of `{}`", suite::API_VERSION);
        faults.push(Fault::error(other.place(path), FaultKind::NotSupported, message));
    }
    suites
}

/// The results as JUnit XML: a `testsuite` for each file, and one for faults, if any.
pub(crate) fn junit(cases: &[CaseOutcome], faults: &[String]) -> String {
    let mut files: Vec<&str> = cases.iter().map(|case| case.file.as_str()).collect();
    files.dedup();
    let failed = cases.iter().filter(|case| !case.passed()).count();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string does not fail.
    let _ = writeln!(
        xml,
        "<testsuites name=\"portcullis\" tests=\"{}\" failures=\"{failed}\" errors=\"{}\">",
        cases.len() + faults.len(),
        faults.len()
    );
    for file in files {
        let own: Vec<&CaseOutcome> = cases.iter().filter(|case| case.file == file).collect();
        let failed = own.iter().filter(|case| !case.passed()).count();
        let name = escaped(file);
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failed}\" errors=\"0\">",
            own.len()
        );
        own.iter().for_each(|case| write_case(&mut xml, case));
        xml.push_str("  </testsuite>\n");
    }
    if !faults.is_empty() {
        let count = faults.len();
        let _ = writeln!(
            xml,
            "  <testsuite name=\"faults\" tests=\"{count}\" failures=\"0\" errors=\"{count}\">"
        );
        for fault in faults {
            let fault = escaped(fault);
            let _ = write!(
                xml,
                "    <testcase name=\"{fault}\" classname=\"faults\">\n      <error message=\"{fault}\"/>\n    </testcase>\n"
            );
        }
        xml.push_str("  </testsuite>\n");
    }
    xml + "</testsuites>\n"
}

fn write_case(xml: &mut String, case: &CaseOutcome) {
    let (name, file) = (escaped(&case.name), escaped(&case.file));
    let _ = write!(
        xml,
        "    <testcase name=\"{name}\" classname=\"{file}\" file=\"{file}\" line=\"{}\"",
        case.line
    );
    if case.passed() {
        xml.push_str("/>\n");
        return;
    }
    let text = escaped(case.in_words().as_str());
    let message = escaped(&case.summary());
    let _ = write!(
        xml,
        ">\n      <failure message=\"{message}\">{text}</failure>\n    </testcase>\n"
    );
}

/// Escapes `text` for XML, also within quotes. Characters that XML does not allow are replaced.
pub(crate) fn escaped(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => written.push_str("&amp;"),
            '<' => written.push_str("&lt;"),
            '>' => written.push_str("&gt;"),
            '"' => written.push_str("&quot;"),
            '\n' | '\t' => {
                let _ = write!(written, "&#{};", u32::from(char));
            }
            char if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => written.push('\u{fffd}'),
            char => written.push(char),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    mod agreement;

    use super::*;

    #[test]
    fn what_xml_may_not_have_is_escaped_or_replaced() {
        assert_eq!(
            escaped("a<b>&\"c\"\n\u{1b}[0m"),
            "a&lt;b&gt;&amp;&quot;c&quot;&#10;\u{fffd}[0m"
        );
    }
}
