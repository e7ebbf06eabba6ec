//! Findings as JUnit's XML: a case for each object.

use std::fmt;

use super::finding::{ScanFinding, ScanOutcome};
use crate::cli::test::junit::escaped;
use portcullis_policy::explain::authorization::object;

/// The cases so far.
#[derive(Debug, Default)]
pub(crate) struct JunitReport {
    cases: Vec<ObjectCase>,
}

#[derive(Debug)]
struct ObjectCase {
    file: String,
    line: u32,
    name: String,
    /// The gravest.
    result: ScanOutcome,
    /// What does not pass.
    texts: Vec<String>,
}

impl JunitReport {
    /// Takes all findings about the object of `about`.
    pub(crate) fn object(&mut self, about: &ScanFinding, findings: &[ScanFinding]) {
        let result = findings.iter().map(|finding| finding.result).max();
        let texts = findings
            .iter()
            .filter(|finding| finding.result != ScanOutcome::Pass)
            .map(|finding| format!("{}: {}: {}", finding.policy, finding.result, finding.message));
        self.cases.push(ObjectCase {
            file: about.file.to_string(),
            line: about.line,
            name: object(&about.kind, &about.namespace, &about.name),
            result: result.unwrap_or(ScanOutcome::Pass),
            texts: texts.collect(),
        });
    }

    fn count(&self, result: ScanOutcome) -> usize {
        self.cases.iter().filter(|case| case.result == result).count()
    }
}

/// `failure` for what a policy refuses, `error` for what has no result and is refused,
/// `skipped` where nothing could be said; warnings are in `system-out`.
impl fmt::Display for JunitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = format!(
            "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"",
            self.cases.len(),
            self.count(ScanOutcome::Fail),
            self.count(ScanOutcome::Error),
            self.count(ScanOutcome::Skip)
        );
        writeln!(f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
        writeln!(f, "<testsuites name=\"portcullis scan\" {counts}>")?;
        writeln!(f, "  <testsuite name=\"portcullis scan\" {counts}>")?;
        self.cases.iter().try_for_each(|case| write_case(f, case))?;
        writeln!(f, "  </testsuite>\n</testsuites>")
    }
}

fn write_case(f: &mut fmt::Formatter<'_>, case: &ObjectCase) -> fmt::Result {
    let (name, file) = (escaped(&case.name), escaped(&case.file));
    write!(f, "    <testcase name=\"{name}\" classname=\"{file}\"")?;
    if case.line > 0 {
        write!(f, " file=\"{file}\" line=\"{}\"", case.line)?;
    }
    let text = escaped(&case.texts.join("\n"));
    let first = case.texts.first().map(|first| escaped(first)).unwrap_or_default();
    match case.result {
        ScanOutcome::Pass => writeln!(f, "/>"),
        ScanOutcome::Fail => writeln!(
            f,
            ">\n      <failure message=\"{first}\">{text}</failure>\n    </testcase>"
        ),
        ScanOutcome::Error => writeln!(
            f,
            ">\n      <error message=\"{first}\">{text}</error>\n    </testcase>"
        ),
        ScanOutcome::Skip => writeln!(f, ">\n      <skipped message=\"{first}\"/>\n    </testcase>"),
        ScanOutcome::Warn => writeln!(f, ">\n      <system-out>{text}</system-out>\n    </testcase>"),
    }
}
