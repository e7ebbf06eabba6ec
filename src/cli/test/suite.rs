//! Test suites: PolicyTest documents, parsed and validated.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::admission::{AdmissionCase, AdmissionExpectation};
use crate::config::{self, DEFAULT_CLUSTER, files};
use crate::recording::decision_of;
use crate::state;
use portcullis_policy::admission::Phase;
use portcullis_policy::document::Document;
use portcullis_policy::explain::admission::PHASES;
use portcullis_policy::explain::authorization::Opinions;
use portcullis_policy::explain::recorded::RecordedAnswers;
use portcullis_policy::explain::request::{RequestArguments, WrittenReview};
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, unsupported_value};
use portcullis_policy::model::{Attributes, CauseKind, Decision, Time};

/// `apiVersion` of a suite.
pub(crate) const API_VERSION: &str = "portcullis.dev/v1alpha1";

/// Test cases, and the policies that decide them.
pub(crate) struct Suite {
    /// The file of the suite.
    pub(crate) file: String,
    /// `metadata.name`; may be empty.
    pub(crate) name: String,
    pub(crate) policies: PoliciesFrom,
    /// Files and folders with AccessRequests, in addition to those in `policies`.
    pub(crate) access_requests: Vec<PathBuf>,
    pub(crate) cases: Vec<Case>,
}

/// The source of a suite's policies.
pub(crate) enum PoliciesFrom {
    /// Files and folders.
    Manifests(Vec<PathBuf>),
    /// The manifests of a GatewayConfiguration.
    Configuration(PathBuf),
}

/// A test case.
pub(crate) struct Case {
    pub(crate) name: String,
    /// The line at which the case begins.
    pub(crate) line: u32,
    pub(crate) cluster: String,
    /// The time of the decision; `None`: that of the run.
    pub(crate) at: Option<Time>,
    pub(crate) question: CaseQuestion,
}

/// A request, and the expected decision.
pub(crate) enum CaseQuestion {
    Access(AccessCase),
    Admission(AdmissionCase),
    Invariant(InvariantCase),
}

/// The expected status of an AuthorizationInvariant.
pub(crate) struct InvariantCase {
    pub(crate) name: String,
    /// `holds`, `broken` or `notDecided`.
    pub(crate) expect: String,
}

/// An authorization request, and the expected decision.
pub(crate) struct AccessCase {
    pub(crate) attributes: Attributes<'static>,
    /// The decisions of other authorizers.
    pub(crate) opinions: Opinions,
    pub(crate) expect: Expectation,
}

/// The expected decision. Fields that are `None` may have any value.
pub(crate) struct Expectation {
    pub(crate) decision: Decision,
    /// `Kind/name` or `Kind/namespace/name`.
    pub(crate) cause: Option<String>,
    pub(crate) rule: Option<usize>,
    pub(crate) reason: Option<String>,
    /// `Kind/name: decision` of each policy in Shadow that would have decided.
    pub(crate) shadow: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenSuite {
    api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    metadata: Option<SuiteMetadata>,
    #[serde(default)]
    config: Option<PathBuf>,
    #[serde(default)]
    manifests: Vec<PathBuf>,
    #[serde(default)]
    access_requests: Vec<PathBuf>,
    cases: Vec<WrittenCase>,
}

#[derive(Deserialize)]
struct SuiteMetadata {
    #[serde(default)]
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenCase {
    name: String,
    #[serde(default)]
    cluster: Option<String>,
    #[serde(default)]
    at: Option<String>,
    #[serde(default)]
    request: Option<RequestArguments>,
    #[serde(default)]
    review: Option<WrittenReview>,
    #[serde(default)]
    review_file: Option<PathBuf>,
    #[serde(default)]
    invariant: Option<String>,
    #[serde(default)]
    phase: Option<String>,
    #[serde(default)]
    policy: Option<String>,
    #[serde(default)]
    webhooks: Option<serde_json::Value>,
    expect: WrittenExpectation,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenExpectation {
    #[serde(default)]
    invariant: Option<String>,
    #[serde(default)]
    decision: Option<String>,
    #[serde(default)]
    allowed: Option<bool>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    code: Option<u16>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
    #[serde(default)]
    webhooks: Option<Vec<String>>,
    #[serde(default)]
    audit_annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    object: Option<serde_json::Value>,
    #[serde(default)]
    cause: Option<String>,
    #[serde(default)]
    rule: Option<usize>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    shadow: Option<Vec<String>>,
}

/// Reads a suite in a file or folder of `named`, the paths on the command line. `None` if it has
/// errors.
pub(crate) fn read(document: &Document, named: &[PathBuf], faults: &mut Faults) -> Option<Suite> {
    document.decode_and(faults, |written, faults| {
        validate(document, written, named, faults)
    })
}

fn validate(
    document: &Document,
    written: WrittenSuite,
    named: &[PathBuf],
    faults: &mut Faults,
) -> Option<Suite> {
    let mut found = Faults::new();
    let root = FieldPath::root();
    let mut fault =
        |path, kind, message: String| found.push(Fault::error(document.place(path), kind, message));
    if written.api_version != API_VERSION {
        let message = format!("`{}`: write `{API_VERSION}`", written.api_version);
        fault(root.field("apiVersion"), FaultKind::NotSupported, message);
    }
    let file = document.file().map(ToString::to_string).unwrap_or_default();
    let roots = SuiteRoots {
        folder: Path::new(&file).parent().unwrap_or(Path::new("")),
        named,
    };
    let policies = match (written.config, written.manifests) {
        (Some(config), manifests) if manifests.is_empty() => {
            let path = root.field("config");
            let config = roots.configuration(&config, &path, &mut fault);
            PoliciesFrom::Configuration(config.unwrap_or_default())
        }
        (None, manifests) if !manifests.is_empty() => {
            let written = manifests.iter().enumerate();
            let paths = written.filter_map(|(index, path)| {
                roots.manifests(path, &root.field("manifests").index(index), &mut fault)
            });
            PoliciesFrom::Manifests(paths.collect())
        }
        _ => {
            let message = "set either `manifests` or `config`".to_owned();
            fault(root.field("manifests"), FaultKind::Required, message);
            PoliciesFrom::Manifests(Vec::new())
        }
    };
    let access_requests = written.access_requests.iter().enumerate();
    let access_requests = access_requests.filter_map(|(index, path)| {
        roots.manifests(path, &root.field("accessRequests").index(index), &mut fault)
    });
    let access_requests = access_requests.collect();
    if written.cases.is_empty() {
        let message = "the suite has no cases: add one".to_owned();
        fault(root.field("cases"), FaultKind::Required, message);
    }
    let mut reviews = ReviewFiles::default();
    let cases = written
        .cases
        .into_iter()
        .enumerate()
        .filter_map(|(index, case)| {
            read_case(
                document,
                &roots,
                &root.field("cases").index(index),
                (case, &mut reviews),
                &mut fault,
            )
        })
        .collect();
    let valid = found.is_empty();
    faults.append(found);
    let name = written.metadata.and_then(|metadata| metadata.name);
    valid.then_some(Suite {
        file,
        name: name.unwrap_or_default(),
        policies,
        access_requests,
        cases,
    })
}

/// Records an error.
type RecordFault<'f> = &'f mut dyn FnMut(FieldPath, FaultKind, String);

/// The folders in which a suite may refer to files. A suite comes with a change under review, so it
/// must not read other files.
pub(crate) struct SuiteRoots<'s> {
    /// The folder of the suite's file, to which paths are relative.
    pub(crate) folder: &'s Path,
    /// The paths on the command line.
    pub(crate) named: &'s [PathBuf],
}

// === impl SuiteRoots ===

impl SuiteRoots<'_> {
    /// The path for `written` in the suite, if it is in these folders after following links.
    fn path(&self, written: &Path, field: &FieldPath, fault: RecordFault<'_>) -> Option<PathBuf> {
        let path = self.folder.join(written);
        if self.contain(&path) {
            return Some(path);
        }
        fault(field.clone(), FaultKind::Forbidden, outside_message(written));
        None
    }

    /// Like [`Self::path`] for manifests, all of whose files must be in these folders.
    fn manifests(&self, written: &Path, field: &FieldPath, fault: RecordFault<'_>) -> Option<PathBuf> {
        let path = self.path(written, field, fault)?;
        let outside_of_all = self.files_outside(&path);
        for file in &outside_of_all {
            fault(field.clone(), FaultKind::Forbidden, outside_message(file));
        }
        outside_of_all.is_empty().then_some(path)
    }

    /// Like [`Self::path`] for a GatewayConfiguration and the files that it uses: its manifests,
    /// and the entries, credentials and saved objects of its clusters.
    fn configuration(&self, written: &Path, field: &FieldPath, fault: RecordFault<'_>) -> Option<PathBuf> {
        let path = self.path(written, field, fault)?;
        let examined = config::load_valid_parts(&path).0;
        let mut outside_of_all: Vec<PathBuf> = examined
            .manifests
            .iter()
            .flat_map(|manifests| self.files_outside(&manifests.path))
            .collect();
        if let Some(config) = &examined.config {
            let folder = config.cluster_folder.iter().map(|folder| folder.path.clone());
            let of_clusters = config.clusters.iter().flat_map(|entry| {
                let mut files = entry.saved_files();
                files.push(entry.kubeconfig.clone());
                files
            });
            outside_of_all.extend(folder.chain(of_clusters).filter(|path| !self.contain(path)));
        }
        for path in &outside_of_all {
            fault(field.clone(), FaultKind::Forbidden, outside_message(path));
        }
        outside_of_all.is_empty().then_some(path)
    }

    /// The path, or the files in it, that are outside of these folders.
    pub(crate) fn files_outside(&self, path: &Path) -> Vec<PathBuf> {
        if !self.contain(path) {
            return vec![path.to_owned()];
        }
        let files = state::manifest_files_at(path).into_iter();
        files.filter(|file| !self.contain(file)).collect()
    }

    /// Whether `path` is in these folders after following links. A missing file is reported when it
    /// is read.
    fn contain(&self, path: &Path) -> bool {
        let Ok(real) = path.canonicalize() else {
            return true;
        };
        let is_below = |root: &Path| root.canonicalize().is_ok_and(|root| real.starts_with(root));
        let here = Path::new(".");
        let named = self.named.iter().map(PathBuf::as_path);
        named.chain([here, &here.join(self.folder)]).any(is_below)
    }
}

/// The error message for a file outside of the folders of a suite.
pub(crate) fn outside_message(path: &Path) -> String {
    format!(
        "`{}` is neither below the folder of this file nor below the working directory or a folder that is \
         named: name a folder that has both",
        path.display()
    )
}

fn read_case(
    document: &Document,
    roots: &SuiteRoots<'_>,
    path: &FieldPath,
    (written, reviews): (WrittenCase, &mut ReviewFiles),
    fault: RecordFault<'_>,
) -> Option<Case> {
    let WrittenCase {
        name,
        cluster,
        at,
        request,
        review,
        review_file,
        invariant,
        phase,
        policy,
        webhooks,
        expect,
    } = written;
    let at = match at {
        None => None,
        Some(at) => Some(time(&at, &path.field("at"), fault)?),
    };
    let review = match (&request, review, review_file) {
        (None, None, None) if invariant.is_some() => None,
        (Some(_), None, None) if invariant.is_none() => None,
        (None, Some(review), None) if invariant.is_none() => {
            let review = review.review().map(Arc::from);
            Some(review.map_err(|message| ("review", message)))
        }
        (None, None, Some(file)) if invariant.is_none() => Some(
            reviews
                .text(&roots.path(&file, &path.field("reviewFile"), fault)?)
                .map_err(|error| ("reviewFile", format!("cannot read `{}`: {error}", file.display()))),
        ),
        _ => {
            let message =
                "a case needs exactly one of `request`, `review`, `reviewFile` and `invariant`".to_owned();
            fault(path.clone(), FaultKind::Required, message);
            return None;
        }
    };
    let question = match review {
        Some(Ok(review)) => CaseQuestion::Admission(AdmissionCase {
            review,
            phases: phases(phase.as_deref(), path, fault)?,
            policy,
            answers: answers(webhooks.as_ref(), path, fault),
            expect: expect.of_admission(&path.field("expect"), fault)?,
        }),
        Some(Err((field, message))) => {
            fault(path.field(field), FaultKind::Invalid, message);
            return None;
        }
        None => {
            for (field, is_written) in [("phase", phase.is_some()), ("policy", policy.is_some())] {
                if is_written {
                    fault(
                        path.field(field),
                        FaultKind::Forbidden,
                        ONLY_FOR_REVIEWS.to_owned(),
                    );
                }
            }
            match invariant {
                Some(name) => CaseQuestion::Invariant(InvariantCase {
                    name,
                    expect: expect.of_invariant(&path.field("expect"), fault)?,
                }),
                None => {
                    let attributes = attributes(&request.unwrap_or_default(), &path.field("request"), fault);
                    let expect = expect.of_access(&path.field("expect"), fault);
                    let opinions = opinions(webhooks.as_ref(), path, fault);
                    CaseQuestion::Access(AccessCase {
                        attributes: attributes?,
                        opinions,
                        expect: expect?,
                    })
                }
            }
        }
    };
    Some(Case {
        name,
        line: document.place(path.clone()).line,
        cluster: cluster.unwrap_or_else(|| DEFAULT_CLUSTER.to_owned()),
        at,
        question,
    })
}

fn time(written: &str, path: &FieldPath, fault: RecordFault<'_>) -> Option<Time> {
    let time = Time::parse(written);
    if time.is_none() {
        let message = format!("`{written}`: must be a time in RFC 3339, such as `2026-12-01T08:00:00Z`");
        fault(path.clone(), FaultKind::Invalid, message);
    }
    time
}

const ONLY_FOR_REVIEWS: &str = "is for a `review` or `reviewFile`";

/// The maximum size of all review files of a suite, in bytes.
const MAX_REVIEW_BYTES: usize = 64 << 20;

/// The review files, by path, which cases share.
#[derive(Default)]
struct ReviewFiles {
    texts: BTreeMap<PathBuf, Arc<str>>,
    bytes: usize,
}

impl ReviewFiles {
    fn text(&mut self, path: &Path) -> io::Result<Arc<str>> {
        if let Some(known) = self.texts.get(path) {
            return Ok(Arc::clone(known));
        }
        let bytes = files::read(path, files::CONFIGURATION_BYTES)?;
        self.bytes += bytes.len();
        if self.bytes > MAX_REVIEW_BYTES {
            return Err(io::Error::other(format!(
                "the files of the reviews of a suite may have {MAX_REVIEW_BYTES} bytes together: split the suite"
            )));
        }
        let text: Arc<str> = String::from_utf8(bytes).map_err(io::Error::other)?.into();
        self.texts.insert(path.to_owned(), Arc::clone(&text));
        Ok(text)
    }
}

fn attributes(
    request: &RequestArguments,
    path: &FieldPath,
    fault: RecordFault<'_>,
) -> Option<Attributes<'static>> {
    let attributes = request.attributes();
    for misfit in attributes.as_ref().err().into_iter().flatten() {
        let at = path.field(misfit.field);
        fault(at, FaultKind::Invalid, misfit.message.clone());
    }
    attributes.ok()
}

fn answers(written: Option<&serde_json::Value>, path: &FieldPath, fault: RecordFault<'_>) -> RecordedAnswers {
    let mut fault = |path, message| fault(path, FaultKind::Invalid, message);
    written.map_or_else(RecordedAnswers::default, |written| {
        RecordedAnswers::read(written, &path.field("webhooks"), &mut fault)
    })
}

fn opinions(written: Option<&serde_json::Value>, path: &FieldPath, fault: RecordFault<'_>) -> Opinions {
    let mut fault = |path, message| fault(path, FaultKind::Invalid, message);
    written.map_or_else(Opinions::default, |written| {
        Opinions::read(written, &path.field("webhooks"), &mut fault)
    })
}

fn phases(written: Option<&str>, path: &FieldPath, fault: RecordFault<'_>) -> Option<&'static [Phase]> {
    match written {
        None => Some(&PHASES),
        Some("mutate") => Some(&[Phase::Mutate]),
        Some("validate") => Some(&[Phase::Validate]),
        Some(other) => {
            let message = unsupported_value(other, &["mutate", "validate"]);
            fault(path.field("phase"), FaultKind::NotSupported, message);
            None
        }
    }
}

// === impl WrittenExpectation ===

impl WrittenExpectation {
    fn of_invariant(self, path: &FieldPath, fault: RecordFault<'_>) -> Option<String> {
        let written = self.invariant.unwrap_or_default();
        if ["holds", "broken", "notDecided"].contains(&written.as_str()) {
            return Some(written);
        }
        let message = unsupported_value(&written, &["holds", "broken", "notDecided"]);
        fault(path.field("invariant"), FaultKind::NotSupported, message);
        None
    }

    fn of_access(self, path: &FieldPath, fault: RecordFault<'_>) -> Option<Expectation> {
        for (field, is_written) in [
            ("allowed", self.allowed.is_some()),
            ("message", self.message.is_some()),
            ("code", self.code.is_some()),
            ("warnings", self.warnings.is_some()),
            ("webhooks", self.webhooks.is_some()),
            ("auditAnnotations", self.audit_annotations.is_some()),
            ("object", self.object.is_some()),
        ] {
            if is_written {
                fault(
                    path.field(field),
                    FaultKind::Forbidden,
                    ONLY_FOR_REVIEWS.to_owned(),
                );
            }
        }
        let Some(written) = self.decision else {
            let message = "write `allow`, `deny` or `noOpinion`".to_owned();
            fault(path.field("decision"), FaultKind::Required, message);
            return None;
        };
        let decision = decision_of(&written);
        if decision.is_none() {
            let message = unsupported_value(&written, &["allow", "deny", "noOpinion"]);
            fault(path.field("decision"), FaultKind::NotSupported, message);
        }
        validate_cause(self.cause.as_deref(), path, fault);
        Some(Expectation {
            decision: decision?,
            cause: self.cause,
            rule: self.rule,
            reason: self.reason,
            shadow: self.shadow,
        })
    }

    fn of_admission(self, path: &FieldPath, fault: RecordFault<'_>) -> Option<AdmissionExpectation> {
        for (field, is_written) in [
            ("decision", self.decision.is_some()),
            ("shadow", self.shadow.is_some()),
        ] {
            if is_written {
                let message = "is for a `request`".to_owned();
                fault(path.field(field), FaultKind::Forbidden, message);
            }
        }
        let Some(allowed) = self.allowed else {
            let message = "write `true` or `false`".to_owned();
            fault(path.field("allowed"), FaultKind::Required, message);
            return None;
        };
        validate_cause(self.cause.as_deref(), path, fault);
        Some(AdmissionExpectation {
            allowed,
            message: self.message,
            reason: self.reason,
            code: self.code,
            cause: self.cause,
            rule: self.rule,
            warnings: self.warnings,
            webhooks: self.webhooks,
            audit_annotations: self.audit_annotations.unwrap_or_default(),
            object: self.object,
        })
    }
}

/// Checks that the kind in `cause` is one that can decide.
fn validate_cause(cause: Option<&str>, path: &FieldPath, fault: RecordFault<'_>) {
    let Some(kind) = cause
        .and_then(|cause| cause.split('/').next())
        .filter(|kind| !kind.is_empty())
    else {
        return;
    };
    let known = CauseKind::ALL.map(CauseKind::as_str);
    if !known.contains(&kind) {
        let message = unsupported_value(kind, &known);
        fault(path.field("cause"), FaultKind::NotSupported, message);
    }
}

#[cfg(test)]
mod tests;
