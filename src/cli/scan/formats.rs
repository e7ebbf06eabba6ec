//! The findings of a scan, and formats for other programs: OpenReports (a Report for each namespace
//! and a ClusterReport, `openreports.io/v1alpha1`, github.com/openreports/reports-api), JUnit XML
//! with a test case for each object, and SARIF 2.1.0 with a rule for each policy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use portcullis_policy::explain::authorization::object;
use portcullis_policy::model::{Time, truncate};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::output;
use crate::cli::test::escaped;

/// The API version of the reports.
pub(crate) const API_VERSION: &str = "openreports.io/v1alpha1";
/// The name of each report, and of the program that writes it.
pub(crate) const NAME: &str = "portcullis";
/// The label that marks the reports of a scan.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The maximum number of results in a report, which is a single object in etcd.
const MAX_RESULTS: usize = 1000;
/// The maximum length of a message in a report, in bytes.
const MAX_MESSAGE_BYTES: usize = 1 << 10;

/// The outcomes that are reported, most severe first.
const REPORTED_OUTCOMES: [ScanOutcome; 4] = [
    ScanOutcome::Fail,
    ScanOutcome::Error,
    ScanOutcome::Warn,
    ScanOutcome::Skip,
];

/// The reports so far, by namespace. The one without a namespace is the ClusterReport.
pub(crate) struct OpenReports {
    now: Time,
    namespaces: BTreeMap<String, NamespaceReport>,
}

/// A report, with at most [`MAX_RESULTS`] results of each outcome.
#[derive(Default)]
struct NamespaceReport {
    summary: ScanSummary,
    results: [Vec<ScanFinding>; REPORTED_OUTCOMES.len()],
}

impl OpenReports {
    /// Reports of a scan at `now`.
    pub(crate) const fn new(now: Time) -> Self {
        Self {
            now,
            namespaces: BTreeMap::new(),
        }
    }

    /// Counts the finding, and keeps it unless its outcome has reached the limit.
    pub(crate) fn add(&mut self, finding: &ScanFinding) {
        // A Namespace is cluster-scoped, but users expect it in the report of that namespace.
        let namespace = match (&*finding.kind, &*finding.api_version) {
            ("Namespace", "v1") => &finding.name,
            _ => &finding.namespace,
        };
        let report = self.namespaces.entry(namespace.to_string()).or_default();
        report.summary.count(finding.result);
        let sorts = REPORTED_OUTCOMES.iter().zip(&mut report.results);
        let kept = sorts.filter(|(sort, _)| **sort == finding.result);
        for (_, kept) in kept.filter(|(_, kept)| kept.len() < MAX_RESULTS) {
            kept.push(finding.clone());
        }
    }

    /// The reports as objects.
    pub(crate) fn objects(&self) -> impl Iterator<Item = Value> {
        let at = (self.now.as_seconds() as i64, 0);
        let reports = self.namespaces.iter();
        reports.map(move |(namespace, report)| report.object(namespace, at))
    }
}

impl NamespaceReport {
    fn object(&self, namespace: &str, at: (i64, u32)) -> Value {
        let results = self.results.iter().flatten().take(MAX_RESULTS);
        let results: Vec<Value> = results.map(|finding| open_report_result(finding, at)).collect();
        let labels = json!({MANAGED_BY: NAME});
        let (kind, metadata) = match namespace {
            "" => ("ClusterReport", json!({"name": NAME, "labels": labels})),
            namespace => (
                "Report",
                json!({"name": NAME, "namespace": namespace, "labels": labels}),
            ),
        };
        json!({
            "apiVersion": API_VERSION,
            "kind": kind,
            "metadata": metadata,
            "source": NAME,
            "configuration": {"limits": {
                "maxResults": MAX_RESULTS,
                "statusFilter": REPORTED_OUTCOMES.map(ScanOutcome::as_str),
            }},
            "summary": self.summary,
            "results": results,
        })
    }
}

fn open_report_result(finding: &ScanFinding, (seconds, nanos): (i64, u32)) -> Value {
    let mut resource = json!({
        "apiVersion": &*finding.api_version, "kind": &*finding.kind, "name": &*finding.name,
    });
    let mut properties = json!({});
    let optional = |object: &mut Value, fields: &[(&str, &str)]| {
        let object = object.as_object_mut();
        let said = fields.iter().filter(|(_, text)| !text.is_empty());
        if let Some(object) = object {
            object.extend(said.map(|(name, text)| ((*name).to_owned(), json!(text))));
        }
    };
    optional(
        &mut resource,
        &[("namespace", &finding.namespace), ("uid", &finding.uid)],
    );
    let number = |number: u32| match number {
        0 => String::new(),
        number => number.to_string(),
    };
    optional(
        &mut properties,
        &[
            ("binding", &finding.binding),
            ("exception", &finding.exception),
            ("file", &finding.file),
            ("line", &number(finding.line)),
            ("column", &number(finding.column)),
        ],
    );
    json!({
        // The field is required. If the gateway itself rejects an object, its own name is used.
        "policy": if finding.policy.is_empty() { NAME } else { &finding.policy },
        "result": finding.result,
        "scored": finding.result != ScanOutcome::Warn,
        "timestamp": {"seconds": seconds, "nanos": nanos},
        "resources": [resource],
        "message": truncate(&finding.message, MAX_MESSAGE_BYTES),
        "properties": properties,
    })
}

/// The test cases so far.
#[derive(Debug, Default)]
pub(crate) struct JunitReport {
    cases: Vec<ObjectCase>,
}

#[derive(Debug)]
struct ObjectCase {
    file: String,
    line: u32,
    name: String,
    /// The most severe outcome.
    result: ScanOutcome,
    /// The messages of all outcomes except `Pass`.
    texts: Vec<String>,
}

impl JunitReport {
    /// Adds all findings about one object. `about` is a finding that identifies it.
    pub(crate) fn object(&mut self, about: &ScanFinding, findings: &[ScanFinding]) {
        let result = findings.iter().map(|finding| finding.result).max();
        let texts = findings
            .iter()
            .filter(|finding| finding.result != ScanOutcome::Pass)
            .map(|finding| format!("{}: {}: {}", finding.policy, finding.result, finding.message));
        self.cases.push(ObjectCase {
            file: about.file.to_string(),
            line: about.object_line,
            name: object(&about.kind, &about.namespace, &about.name),
            result: result.unwrap_or(ScanOutcome::Pass),
            texts: texts.collect(),
        });
    }

    fn count(&self, result: ScanOutcome) -> usize {
        self.cases.iter().filter(|case| case.result == result).count()
    }
}

/// `failure` if a policy rejects the object, `error` if an evaluation failed and the object is
/// rejected, `skipped` if the outcome is unknown. Warnings are in `system-out`.
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

/// The rule for objects that the gateway itself rejects.
const GATEWAY: &str = "portcullis";

/// The SARIF log of one run. Results are written immediately, and the rules after them.
#[derive(Debug, Default)]
pub(crate) struct SarifReport {
    policies: BTreeSet<Arc<str>>,
    has_one: bool,
}

impl SarifReport {
    /// Writes a result, unless the object passes or was skipped.
    pub(crate) fn finding(&mut self, out: &mut impl Write, finding: &ScanFinding) -> io::Result<()> {
        if finding.result.rejects() || finding.result == ScanOutcome::Warn {
            self.policies.insert(rule_of(finding));
            self.separate(out)?;
            write!(out, "{}", sarif_result(finding))?;
        }
        Ok(())
    }

    fn separate(&mut self, out: &mut impl Write) -> io::Result<()> {
        let is_first = !std::mem::replace(&mut self.has_one, true);
        out.write_all(if is_first {
            b"{\"runs\": [{\"results\": [\n  "
        } else {
            b",\n  "
        })
    }

    /// Writes the end of the log.
    pub(crate) fn end(&self, out: &mut impl Write) -> io::Result<()> {
        let rule =
            |policy: &Arc<str>| json!({"id": &**policy, "shortDescription": {"text": description(policy)}});
        let log = output::sarif_log(self.policies.iter().map(rule).collect(), Vec::new());
        let none = if self.has_one {
            ""
        } else {
            "{\"runs\": [{\"results\": ["
        };
        let of = |pointer: &str| log.pointer(pointer).unwrap_or(&Value::Null);
        writeln!(
            out,
            "{none}\n],\n\"columnKind\": {}, \"tool\": {}}}],\n\"version\": {}, \"$schema\": {}}}",
            of("/runs/0/columnKind"),
            of("/runs/0/tool"),
            of("/version"),
            of("/$schema"),
        )
    }
}

fn rule_of(finding: &ScanFinding) -> Arc<str> {
    match &*finding.policy {
        "" => GATEWAY.into(),
        _ => Arc::clone(&finding.policy),
    }
}

fn description(policy: &str) -> String {
    match policy {
        GATEWAY => "Objects that the gateway itself refuses".to_owned(),
        policy => format!("What the policy {policy} refuses"),
    }
}

fn sarif_result(finding: &ScanFinding) -> Value {
    let object = object(&finding.kind, &finding.namespace, &finding.name);
    let message = if finding.message.is_empty() {
        "is refused"
    } else {
        &finding.message
    };
    let mut location = json!({
        "logicalLocations": [{"fullyQualifiedName": object, "name": &*finding.name, "kind": "resource"}],
    });
    if let (Some(physical), Some(location)) = (
        output::physical_location(&finding.file, finding.line, finding.column),
        location.as_object_mut(),
    ) {
        location.insert("physicalLocation".to_owned(), physical);
    }
    json!({
        "ruleId": &*rule_of(finding),
        "level": match finding.result {
            ScanOutcome::Fail | ScanOutcome::Error => "error",
            ScanOutcome::Warn => "warning",
            ScanOutcome::Pass | ScanOutcome::Skip => "none",
        },
        "message": output::sarif_message(&format!("{object}: {message}")),
        "locations": [location],
    })
}

/// The outcome of a policy for an object, from the least to the most severe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ScanOutcome {
    /// The policy admits the object.
    Pass,
    /// The outcome is unknown, or an exception admits the object.
    Skip,
    /// The policy does not admit the object, but its binding or failure policy does not enforce
    /// that.
    Warn,
    /// The evaluation failed, and the failure policy rejects the object.
    Error,
    /// The policy rejects the object.
    Fail,
}

/// A result of one policy for one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ScanFinding {
    /// Empty for an object of a cluster.
    pub(crate) file: Arc<str>,
    /// The line of the field that the policy read last, if known, or else of the object; 0 for an
    /// object of a cluster.
    pub(crate) line: u32,
    /// The column of that field, in characters from 1; 0 if `line` is that of the object.
    pub(crate) column: u32,
    pub(crate) kind: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    /// Empty if the gateway itself rejects the object.
    pub(crate) policy: Arc<str>,
    pub(crate) binding: Arc<str>,
    pub(crate) result: ScanOutcome,
    pub(crate) message: Arc<str>,
    /// The AdmissionException that admits the object; empty if none does.
    pub(crate) exception: Arc<str>,
    /// The line of the object.
    #[serde(skip)]
    pub(crate) object_line: u32,
    /// The apiVersion of the object, for reports that refer to it.
    #[serde(skip)]
    pub(crate) api_version: Arc<str>,
    /// The `uid` of an object in a cluster.
    #[serde(skip)]
    pub(crate) uid: Arc<str>,
}

/// The number of results for each outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ScanSummary {
    pub(crate) pass: u64,
    pub(crate) fail: u64,
    pub(crate) warn: u64,
    pub(crate) error: u64,
    pub(crate) skip: u64,
}

// === impl ScanOutcome ===

impl ScanOutcome {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Skip => "skip",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Fail => "fail",
        }
    }

    /// Whether the object would be rejected.
    pub(crate) const fn rejects(self) -> bool {
        matches!(self, Self::Fail | Self::Error)
    }
}

impl fmt::Display for ScanOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl ScanSummary ===

impl ScanSummary {
    pub(crate) const fn count(&mut self, result: ScanOutcome) {
        match result {
            ScanOutcome::Pass => self.pass += 1,
            ScanOutcome::Skip => self.skip += 1,
            ScanOutcome::Warn => self.warn += 1,
            ScanOutcome::Error => self.error += 1,
            ScanOutcome::Fail => self.fail += 1,
        }
    }

    /// Whether no object would be rejected.
    pub(crate) const fn has_no_rejections(&self) -> bool {
        self.fail == 0 && self.error == 0
    }
}

impl fmt::Display for ScanSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pass,
            fail,
            warn,
            error,
            skip,
        } = self;
        write!(
            f,
            "{pass} pass, {fail} fail, {warn} warn, {error} error, {skip} skip"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(namespace: &str, result: ScanOutcome) -> ScanFinding {
        ScanFinding {
            file: "".into(),
            line: 0,
            column: 0,
            object_line: 0,
            kind: "Pod".into(),
            namespace: namespace.into(),
            name: "p".into(),
            policy: "owner".into(),
            binding: "owner".into(),
            result,
            message: "m".into(),
            exception: "".into(),
            api_version: "v1".into(),
            uid: "u".into(),
        }
    }

    #[test]
    fn a_report_has_what_is_gravest_and_counts_the_rest() {
        let mut reports = OpenReports::new(Time::UNIX_EPOCH);
        for _ in 0..MAX_RESULTS {
            reports.add(&finding("shop", ScanOutcome::Skip));
            reports.add(&finding("shop", ScanOutcome::Warn));
        }
        reports.add(&finding("shop", ScanOutcome::Pass));
        reports.add(&finding("shop", ScanOutcome::Fail));
        reports.add(&finding("", ScanOutcome::Error));
        let objects: Vec<Value> = reports.objects().collect();
        let [cluster, shop] = &objects[..] else {
            panic!("{objects:?}")
        };
        assert_eq!(cluster["kind"], "ClusterReport");
        assert_eq!(shop["kind"], "Report");
        assert_eq!(shop["metadata"]["namespace"], "shop");
        let results = shop["results"].as_array().unwrap();
        assert_eq!(results.len(), MAX_RESULTS);
        assert_eq!(results[0]["result"], "fail");
        assert!(results[1..].iter().all(|result| result["result"] == "warn"));
        assert_eq!(
            shop["summary"],
            json!({"pass": 1, "fail": 1, "warn": 1000, "error": 0, "skip": 1000})
        );
    }

    #[test]
    fn a_result_names_the_object_and_the_binding() {
        let written = open_report_result(&finding("shop", ScanOutcome::Warn), (7, 8));
        assert_eq!(
            written["resources"],
            json!([{"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "p", "uid": "u"}])
        );
        assert_eq!(written["properties"], json!({"binding": "owner"}));
        assert_eq!(written["timestamp"], json!({"seconds": 7, "nanos": 8}));
        assert_eq!(written["scored"], false);
    }
}
