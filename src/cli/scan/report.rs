//! Prints the findings about objects immediately, or collects them for formats that need all of
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, BufWriter, Stdout, Write};
use std::sync::Arc;

use serde_json::json;

use super::formats::{JunitReport, OpenReports, SarifReport, ScanFinding, ScanOutcome, ScanSummary};
use super::scanner::{ScannedObject, UnmatchedObject};
use crate::cli::output::{self, CommandError};
use portcullis_policy::explain::authorization::object;
use portcullis_policy::explain::one_line;

/// The formats of `scan`.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum ScanFormat {
    /// A line for each result except `pass`; on a terminal, the same as `table`.
    #[default]
    Text,
    /// Results except `pass`, by object, then totals by policy and namespace.
    Table,
    /// One JSON document, for programs.
    Json,
    /// JUnit's XML, for CI services.
    Junit,
    /// SARIF 2.1.0, for code review tools.
    Sarif,
    /// Report and ClusterReport of openreports.io/v1alpha1, as JSON.
    Openreports,
}

/// Receives findings in order.
pub(crate) struct ScanReport {
    out: BufWriter<Stdout>,
    form: ReportForm,
    summary: ScanSummary,
    objects: u64,
    /// The number of objects for which all outcomes are unknown.
    unjudged: u64,
    /// Objects to which no policy applies, by kind and reason.
    unmatched: BTreeMap<(Arc<str>, String), CountedObjects>,
    /// Namespaces whose labels are unknown, although policies select by them.
    unknown_namespaces: BTreeSet<Arc<str>>,
}

enum ReportForm {
    /// Prints rejections and warnings immediately.
    Text(TextReport),
    /// Whether a finding has been printed before.
    Json(bool),
    Junit(JunitReport),
    Sarif(SarifReport),
    OpenReports(OpenReports),
}

/// What the text format prints at the end.
#[derive(Default)]
struct TextReport {
    /// Skipped findings, by policy and reason.
    skipped: BTreeMap<(Arc<str>, Arc<str>), CountedObjects>,
    /// The table, if results are grouped by object.
    table: Option<ScanTable>,
}

/// Groups results by object.
struct ScanTable {
    is_coloured: bool,
    /// The findings that do not pass, by policy and namespace.
    totals: BTreeMap<(Arc<str>, Arc<str>), ScanSummary>,
}

/// The number of objects, and the first of them.
struct CountedObjects {
    count: u64,
    first: String,
}

/// The totals of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanTotals {
    /// No object would be rejected.
    pub(crate) is_sound: bool,
    /// The number of objects.
    pub(crate) objects: u64,
    /// The number of objects to which no policy applies.
    pub(crate) unmatched: u64,
    /// The number of objects to which policies apply, all with unknown outcome.
    pub(crate) unknown: u64,
}

impl ScanReport {
    pub(crate) fn new(format: ScanFormat, reports: OpenReports) -> Self {
        let form = match format {
            ScanFormat::Text if !output::is_terminal() => ReportForm::Text(TextReport::default()),
            ScanFormat::Text | ScanFormat::Table => ReportForm::Text(TextReport {
                table: Some(ScanTable::new()),
                ..TextReport::default()
            }),
            ScanFormat::Json => ReportForm::Json(false),
            ScanFormat::Junit => ReportForm::Junit(JunitReport::default()),
            ScanFormat::Sarif => ReportForm::Sarif(SarifReport::default()),
            ScanFormat::Openreports => ReportForm::OpenReports(reports),
        };
        Self {
            out: output::stdout(),
            form,
            summary: ScanSummary::default(),
            objects: 0,
            unjudged: 0,
            unmatched: BTreeMap::new(),
            unknown_namespaces: BTreeSet::new(),
        }
    }

    /// Adds findings that are not about an object.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written to.
    pub(crate) fn add_skipped(&mut self, findings: &[ScanFinding]) -> Result<(), CommandError> {
        let mut findings = findings.iter();
        findings
            .try_for_each(|finding| self.finding(finding, || Some(policy(finding))))
            .map_err(CommandError::Output)
    }

    /// Adds the findings about one object.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written to.
    pub(crate) fn object(&mut self, judged: &ScannedObject) -> Result<(), CommandError> {
        self.objects += 1;
        if let Some(UnmatchedObject { object, reason }) = &judged.unmatched {
            let key = (Arc::clone(&object.kind), reason.clone());
            self.unmatched
                .entry(key)
                .or_insert_with(|| CountedObjects::starting_with(object))
                .count += 1;
        }
        self.unknown_namespaces.extend(judged.unknown_namespace.clone());
        let findings = &judged.findings;
        // The outcome is known if an exception admits the object.
        let is_unknown =
            |finding: &ScanFinding| finding.result == ScanOutcome::Skip && finding.exception.is_empty();
        self.unjudged += u64::from(!findings.is_empty() && findings.iter().all(is_unknown));
        if let (ReportForm::Junit(junit), Some(first)) = (&mut self.form, findings.first()) {
            junit.object(first, findings);
        }
        if let ReportForm::Text(TextReport {
            table: Some(table), ..
        }) = &mut self.form
        {
            table
                .object(&mut self.out, findings)
                .map_err(CommandError::Output)?;
        }
        findings
            .iter()
            .enumerate()
            .try_for_each(|(at, finding)| self.finding(finding, || policies(findings, at)))
            .map_err(CommandError::Output)
    }

    /// Adds a finding. `policies` returns the description of its policies for text, or `None` if
    /// the finding was already printed for another policy.
    fn finding(
        &mut self,
        finding: &ScanFinding,
        policies: impl FnOnce() -> Option<String>,
    ) -> io::Result<()> {
        self.summary.count(finding.result);
        match &mut self.form {
            ReportForm::Text(text) => match finding.result {
                ScanOutcome::Pass => Ok(()),
                ScanOutcome::Skip => {
                    let key = (Arc::clone(&finding.policy), Arc::clone(&finding.message));
                    let skipped = text.skipped.entry(key);
                    skipped
                        .or_insert_with(|| CountedObjects::starting_with(finding))
                        .count += 1;
                    Ok(())
                }
                // The table prints it with its object.
                _ if text.table.is_some() => Ok(()),
                _ => match policies() {
                    Some(policies) => writeln!(self.out, "{}", one_line(&line(finding, &policies))),
                    None => Ok(()),
                },
            },
            ReportForm::Json(has_one) => {
                let before = if *has_one { ",\n  " } else { "{\"results\": [\n  " };
                *has_one = true;
                write!(self.out, "{before}{}", serde_json::to_string(finding)?)
            }
            ReportForm::Junit(_) => Ok(()),
            ReportForm::Sarif(sarif) => sarif.finding(&mut self.out, finding),
            ReportForm::OpenReports(reports) => {
                reports.add(finding);
                Ok(())
            }
        }
    }

    /// Flushes standard output, so that the findings so far are visible.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written to.
    pub(crate) fn flush(&mut self) -> Result<(), CommandError> {
        self.out.flush().map_err(CommandError::Output)
    }

    /// Ends the report.
    ///
    /// # Errors
    ///
    /// Standard output cannot be written to.
    pub(crate) fn finish(mut self) -> Result<ScanTotals, CommandError> {
        self.end().map_err(CommandError::Output)?;
        if !self.unknown_namespaces.is_empty() {
            output::print_error(unknown_namespaces(&self.unknown_namespaces));
        }
        Ok(ScanTotals {
            is_sound: self.summary.has_no_rejections(),
            objects: self.objects,
            unmatched: self.unmatched(),
            unknown: self.unjudged,
        })
    }

    fn unmatched(&self) -> u64 {
        self.unmatched.values().map(|counted| counted.count).sum()
    }

    fn end(&mut self) -> io::Result<()> {
        let (summary, unmatched) = (self.summary, self.unmatched());
        match &self.form {
            ReportForm::Text(TextReport { skipped, table }) => {
                if let Some(table) = table {
                    table.end(&mut self.out)?;
                }
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
            ReportForm::Sarif(sarif) => sarif.end(&mut self.out)?,
            ReportForm::OpenReports(reports) => {
                write!(
                    self.out,
                    "{{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": ["
                )?;
                for (index, report) in reports.objects().enumerate() {
                    write!(self.out, "{}\n{report:#}", if index == 0 { "" } else { "," })?;
                }
                writeln!(self.out, "\n]}}")?;
            }
        }
        self.out.flush()
    }
}

/// How many namespaces are listed in the message.
const NAMED: usize = 5;

/// The message with the remedy for namespaces whose labels are unknown.
fn unknown_namespaces(names: &BTreeSet<Arc<str>>) -> String {
    let named: Vec<String> = names.iter().take(NAMED).map(|name| format!("`{name}`")).collect();
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let first = names.first().map(|name| &**name).unwrap_or_default();
    format!(
        "note: policies select namespaces by labels, but the labels of {}{more} are not known: add manifests \
        of the Namespaces, set labels with `--namespace-labels {first}:KEY=VALUE`, or assume only the name \
        label with `--missing-namespace NameOnly` (policies that select by other labels then do not apply)",
        named.join(", ")
    )
}

// === impl ScanTable ===

impl ScanTable {
    fn new() -> Self {
        Self {
            is_coloured: output::is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()),
            totals: BTreeMap::new(),
        }
    }

    /// Prints the findings about one object that do not pass, without repeating messages of a
    /// policy.
    fn object(&mut self, out: &mut impl Write, findings: &[ScanFinding]) -> io::Result<()> {
        let mut told = BTreeSet::new();
        let failing =
            |finding: &&ScanFinding| finding.result.rejects() || finding.result == ScanOutcome::Warn;
        for (at, finding) in findings.iter().enumerate().filter(|(_, one)| failing(one)) {
            let total = (Arc::clone(&finding.policy), Arc::clone(&finding.namespace));
            self.totals.entry(total).or_default().count(finding.result);
            if told.is_empty() {
                writeln!(out, "{}", self.bold(&one_line(&place_and_object(finding))))?;
            }
            let place = match finding.column {
                0 => String::new(),
                column => format!("{}:{column}: ", finding.line),
            };
            let Some(policies) = policies(findings, at) else {
                continue;
            };
            let line = format!("{place}{policies}: {}", message(finding));
            if told.insert((finding.result, line.clone())) {
                writeln!(out, "  {} {}", self.result(finding.result), one_line(&line))?;
            }
        }
        Ok(())
    }

    fn end(&self, out: &mut impl Write) -> io::Result<()> {
        if self.totals.is_empty() {
            return Ok(());
        }
        let namespace = |name: &str| {
            if name.is_empty() {
                "(cluster)".to_owned()
            } else {
                name.to_owned()
            }
        };
        let row = |((policy, of), total): (&(Arc<str>, Arc<str>), &ScanSummary)| {
            let counts = [total.fail, total.warn, total.error].map(|count| count.to_string());
            let [fail, warn, error] = counts;
            let policy = if policy.is_empty() { "portcullis" } else { policy };
            [policy.to_owned(), namespace(of), fail, warn, error]
        };
        let head = ["POLICY", "NAMESPACE", "FAIL", "WARN", "ERROR"].map(str::to_owned);
        let rows: Vec<[String; 5]> = std::iter::once(head).chain(self.totals.iter().map(row)).collect();
        let width =
            |column: fn(&[String; 5]) -> &str| rows.iter().map(|row| column(row).chars().count()).max();
        let (policies, namespaces) = (width(|row| &row[0]), width(|row| &row[1]));
        let (policies, namespaces) = (policies.unwrap_or_default(), namespaces.unwrap_or_default());
        writeln!(out)?;
        for [policy, namespace, fail, warn, error] in &rows {
            let line =
                format!("{policy:policies$}  {namespace:namespaces$}  {fail:>5}  {warn:>5}  {error:>5}");
            writeln!(out, "{}", one_line(&line))?;
        }
        writeln!(out)
    }

    fn bold(&self, text: &str) -> String {
        self.styled("1", text)
    }

    fn result(&self, result: ScanOutcome) -> String {
        let code = if result == ScanOutcome::Warn { "33" } else { "31" };
        self.styled(code, &format!("{:5}", result.as_str()))
    }

    /// `text` in an ANSI X3.64 style, if output is coloured.
    fn styled(&self, code: &str, text: &str) -> String {
        match self.is_coloured {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

// === impl CountedObjects ===

impl CountedObjects {
    /// A count of 0, for which `object` will be the first.
    fn starting_with(object: &ScanFinding) -> Self {
        Self {
            count: 0,
            first: place_and_object(object),
        }
    }
}

/// The first object, and the number of the others.
impl fmt::Display for CountedObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, first } = self;
        match count {
            1 => f.write_str(first),
            count => write!(f, "{first} and {} more", count.saturating_sub(1)),
        }
    }
}

/// `FILE:LINE: Kind/namespace/name`; for an object of a cluster without file and line.
fn place_and_object(finding: &ScanFinding) -> String {
    at_place(finding, (finding.object_line, 0))
}

/// Like [`place_and_object`], with this line and column.
fn at_place(finding: &ScanFinding, place: (u32, u32)) -> String {
    let object = object(&finding.kind, &finding.namespace, &finding.name);
    match place {
        (0, _) => object,
        (line, 0) => format!("{}:{line}: {object}", finding.file),
        (line, column) => format!("{}:{line}:{column}: {object}", finding.file),
    }
}

fn line(finding: &ScanFinding, policies: &str) -> String {
    let by = match &*finding.policy {
        "" => String::new(),
        _ => format!(" ({policies})"),
    };
    format!(
        "{}: {}: {}{by}",
        at_place(finding, (finding.line, finding.column)),
        finding.result,
        message(finding)
    )
}

/// Describes the policy of the finding at index `at`. An error that several policies have in
/// common, such as an unknown Namespace, is only reported for the first of them, with the number of
/// the others; `None` for these others.
fn policies(findings: &[ScanFinding], at: usize) -> Option<String> {
    let finding = findings.get(at)?;
    let named = policy(finding);
    if finding.result != ScanOutcome::Error {
        return Some(named);
    }
    let is_same = |other: &&ScanFinding| {
        other.result == ScanOutcome::Error && other.message == finding.message && other.line == finding.line
    };
    let (before, from_here) = findings.split_at_checked(at)?;
    if before.iter().any(|other| is_same(&other)) {
        return None;
    }
    match from_here.iter().filter(is_same).count() {
        0 | 1 => Some(named),
        all => Some(format!("{named} and {} more", all - 1)),
    }
}

/// Describes the policy and its binding.
fn policy(finding: &ScanFinding) -> String {
    match (&*finding.policy, &*finding.binding) {
        ("", _) => "the gateway".to_owned(),
        (policy, "") => format!("policy `{policy}`"),
        (policy, binding) => format!("policy `{policy}`, binding `{binding}`"),
    }
}

/// The message on one line.
fn message(finding: &ScanFinding) -> String {
    let words: Vec<&str> = finding.message.split_whitespace().collect();
    words.join(" ")
}
