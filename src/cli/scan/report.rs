//! Findings: what a scan says about one object, and one policy with its binding. They are printed as
//! they come, or kept for the formats that are one document.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufWriter, Stdout, Write};
use std::sync::Arc;

use serde_json::json;

use super::finding::{ScanFinding, ScanOutcome, ScanSummary};
use super::formats::{self, JunitReport, OpenReports};
use super::judge::{JudgedObject, UnmatchedObject};
use crate::cli::output::{self, CommandError};
use portcullis_policy::explain::authorization::object;
use portcullis_policy::explain::lines::one_line;

/// The formats of `scan`.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum ScanFormat {
    /// A line for each result that is not `pass`.
    #[default]
    Text,
    /// One JSON document, for programs.
    Json,
    /// JUnit's XML, for CI services.
    Junit,
    /// SARIF 2.1.0, for code review tools.
    Sarif,
    /// Report and ClusterReport of openreports.io/v1alpha1, as JSON.
    Openreports,
}

/// Takes findings, in order.
pub(crate) struct ScanReport {
    out: BufWriter<Stdout>,
    form: ReportForm,
    summary: ScanSummary,
    objects: u64,
    /// Objects of which nothing could be said.
    unjudged: u64,
    /// By kind, and why.
    unmatched: BTreeMap<(Arc<str>, String), CountedObjects>,
}

enum ReportForm {
    /// Refusals and warnings at once; what was skipped at the end, by policy and reason.
    Text(BTreeMap<(Arc<str>, Arc<str>), CountedObjects>),
    /// Whether there was a finding before.
    Json(bool),
    Junit(JunitReport),
    /// What does not pass.
    Sarif(Vec<ScanFinding>),
    OpenReports(OpenReports),
}

/// How many, and the first of them.
struct CountedObjects {
    count: u64,
    first: String,
}

/// What a scan came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanTotals {
    /// Nothing would be refused.
    pub(crate) is_sound: bool,
    /// All objects.
    pub(crate) objects: u64,
    /// Those that no policy applied to.
    pub(crate) unmatched: u64,
    /// Those that no policy could judge, though some applied.
    pub(crate) unjudged: u64,
}

impl ScanReport {
    pub(crate) fn new(format: ScanFormat, reports: OpenReports) -> Self {
        let form = match format {
            ScanFormat::Text => ReportForm::Text(BTreeMap::new()),
            ScanFormat::Json => ReportForm::Json(false),
            ScanFormat::Junit => ReportForm::Junit(JunitReport::default()),
            ScanFormat::Sarif => ReportForm::Sarif(Vec::new()),
            ScanFormat::Openreports => ReportForm::OpenReports(reports),
        };
        Self {
            out: output::stdout(),
            form,
            summary: ScanSummary::default(),
            objects: 0,
            unjudged: 0,
            unmatched: BTreeMap::new(),
        }
    }

    /// Takes findings about no object.
    ///
    /// # Errors
    ///
    /// Standard output takes no more.
    pub(crate) fn skipped(&mut self, findings: &[ScanFinding]) -> Result<(), CommandError> {
        let mut findings = findings.iter();
        findings
            .try_for_each(|finding| self.finding(finding))
            .map_err(CommandError::Output)
    }

    /// Takes the findings about one object.
    ///
    /// # Errors
    ///
    /// Standard output takes no more.
    pub(crate) fn object(&mut self, judged: &JudgedObject) -> Result<(), CommandError> {
        self.objects += 1;
        if let Some(UnmatchedObject { object, reason }) = &judged.unmatched {
            let key = (Arc::clone(&object.kind), reason.clone());
            self.unmatched
                .entry(key)
                .or_insert_with(|| CountedObjects::before(object))
                .count += 1;
        }
        let findings = &judged.findings;
        // What an exception lets pass was judged.
        let is_unknown =
            |finding: &ScanFinding| finding.result == ScanOutcome::Skip && finding.exception.is_empty();
        self.unjudged += u64::from(!findings.is_empty() && findings.iter().all(is_unknown));
        if let (ReportForm::Junit(junit), Some(first)) = (&mut self.form, findings.first()) {
            junit.object(first, findings);
        }
        findings
            .iter()
            .try_for_each(|finding| self.finding(finding))
            .map_err(CommandError::Output)
    }

    fn finding(&mut self, finding: &ScanFinding) -> io::Result<()> {
        self.summary.count(finding.result);
        match &mut self.form {
            ReportForm::Text(skipped) => match finding.result {
                ScanOutcome::Pass => Ok(()),
                ScanOutcome::Skip => {
                    let key = (Arc::clone(&finding.policy), Arc::clone(&finding.message));
                    let skipped = skipped.entry(key);
                    skipped.or_insert_with(|| CountedObjects::before(finding)).count += 1;
                    Ok(())
                }
                _ => {
                    self.out.write_all(one_line(&line(finding)).as_bytes())?;
                    self.out.write_all(b"\n")
                }
            },
            ReportForm::Json(has_one) => {
                let before = if *has_one { ",\n  " } else { "{\"results\": [\n  " };
                *has_one = true;
                write!(self.out, "{before}{}", serde_json::to_string(finding)?)
            }
            ReportForm::Junit(_) => Ok(()),
            ReportForm::Sarif(kept) => {
                if finding.result.refuses() || finding.result == ScanOutcome::Warn {
                    kept.push(finding.clone());
                }
                Ok(())
            }
            ReportForm::OpenReports(reports) => {
                reports.add(finding);
                Ok(())
            }
        }
    }

    /// Lets people see what was found so far.
    ///
    /// # Errors
    ///
    /// Standard output takes no more.
    pub(crate) fn flush(&mut self) -> Result<(), CommandError> {
        self.out.flush().map_err(CommandError::Output)
    }

    /// Ends the report.
    ///
    /// # Errors
    ///
    /// Standard output takes no more.
    pub(crate) fn finish(mut self) -> Result<ScanTotals, CommandError> {
        self.end().map_err(CommandError::Output)?;
        Ok(ScanTotals {
            is_sound: self.summary.is_sound(),
            objects: self.objects,
            unmatched: self.unmatched(),
            unjudged: self.unjudged,
        })
    }

    fn unmatched(&self) -> u64 {
        self.unmatched.values().map(|counted| counted.count).sum()
    }

    fn end(&mut self) -> io::Result<()> {
        let (summary, unmatched) = (self.summary, self.unmatched());
        match &self.form {
            ReportForm::Text(skipped) => {
                for ((policy, message), counted) in skipped {
                    let line = format!("skip: policy `{policy}`: {message}: {counted}");
                    writeln!(self.out, "{}", one_line(&line))?;
                }
                for ((kind, reason), counted) in &self.unmatched {
                    let line = format!("no policy: {} {kind}: {reason}: {counted}", counted.count);
                    writeln!(self.out, "{}", one_line(&line))?;
                }
                let objects = output::count(self.objects, "object");
                let unmatched = match unmatched {
                    0 => String::new(),
                    unmatched => format!(", {unmatched} matched by no policy"),
                };
                writeln!(self.out, "{objects}: {summary}{unmatched}")?;
            }
            ReportForm::Json(has_one) => {
                let before = if *has_one { "\n" } else { "{\"results\": [" };
                let summary = serde_json::to_string(&summary)?;
                let unmatched = self.unmatched.iter().map(|((kind, reason), counted)| {
                    json!({"kind": &**kind, "count": counted.count, "reason": reason, "first": counted.first})
                });
                let unmatched = serde_json::Value::from(unmatched.collect::<Vec<_>>());
                writeln!(
                    self.out,
                    "{before}], \"summary\": {summary}, \"unmatched\": {unmatched}}}"
                )?;
            }
            ReportForm::Junit(junit) => write!(self.out, "{junit}")?,
            ReportForm::Sarif(kept) => {
                serde_json::to_writer_pretty(&mut self.out, &formats::sarif_log(kept))?;
                writeln!(self.out)?;
            }
            ReportForm::OpenReports(reports) => {
                let list = json!({"apiVersion": "v1", "kind": "List", "items": reports.objects()});
                serde_json::to_writer_pretty(&mut self.out, &list)?;
                writeln!(self.out)?;
            }
        }
        self.out.flush()
    }
}

// === impl CountedObjects ===

impl CountedObjects {
    /// None yet, of which `object` will be the first.
    fn before(object: &ScanFinding) -> Self {
        Self {
            count: 0,
            first: place_and_object(object),
        }
    }
}

/// The first, and how many others.
impl fmt::Display for CountedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, first } = self;
        match count {
            1 => f.write_str(first),
            count => write!(f, "{first} and {} more", count.saturating_sub(1)),
        }
    }
}

/// `FILE:LINE: Kind/namespace/name`; of a cluster without the former.
fn place_and_object(finding: &ScanFinding) -> String {
    let object = object(&finding.kind, &finding.namespace, &finding.name);
    match finding.line {
        0 => object,
        line => format!("{}:{line}: {object}", finding.file),
    }
}

fn line(finding: &ScanFinding) -> String {
    let by = match (&*finding.policy, &*finding.binding) {
        ("", _) => String::new(),
        (policy, "") => format!(" (policy `{policy}`)"),
        (policy, binding) => format!(" (policy `{policy}`, binding `{binding}`)"),
    };
    // One finding, one line.
    let message: Vec<&str> = finding.message.split_whitespace().collect();
    format!(
        "{}: {}: {}{by}",
        place_and_object(finding),
        finding.result,
        message.join(" ")
    )
}
