//! A suite as written, and as meant.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::find::API_VERSION;
use crate::cli::request::Request;
use crate::config::DEFAULT_CLUSTER;
use crate::document::Document;
use crate::engine::{Attributes, Decision};
use crate::field::{Fault, FaultKind, Faults, FieldPath};

/// Cases, and what they are decided by.
pub(super) struct Suite {
    /// The file that it stands in.
    pub(super) file: String,
    pub(super) policies: PoliciesFrom,
    pub(super) cases: Vec<Case>,
}

/// Where the policies of a suite are.
pub(super) enum PoliciesFrom {
    /// Files and folders.
    Manifests(Vec<PathBuf>),
    /// What a GatewayConfiguration names.
    Configuration(PathBuf),
}

/// A question and its answer.
pub(super) struct Case {
    pub(super) name: String,
    /// Where it begins in the file.
    pub(super) line: u32,
    pub(super) cluster: String,
    pub(super) attributes: Attributes<'static>,
    pub(super) expect: Expectation,
}

/// What is to be decided; what is `None` may be anything.
pub(super) struct Expectation {
    pub(super) decision: Decision,
    /// `Kind/name` or `Kind/namespace/name`.
    pub(super) cause: Option<String>,
    pub(super) rule: Option<usize>,
    pub(super) reason: Option<String>,
    /// `Kind/name: decision` of each policy in Shadow that would have decided.
    pub(super) shadow: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenSuite {
    api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: Option<WrittenMetadata>,
    #[serde(default)]
    config: Option<PathBuf>,
    #[serde(default)]
    manifests: Vec<PathBuf>,
    cases: Vec<WrittenCase>,
}

#[derive(Deserialize)]
struct WrittenMetadata {
    #[serde(default, rename = "name")]
    _name: Option<String>,
}

#[derive(Deserialize)]
struct WrittenCase {
    name: String,
    #[serde(default)]
    cluster: Option<String>,
    request: Request,
    expect: WrittenExpectation,
}

#[derive(Deserialize)]
struct WrittenExpectation {
    decision: String,
    #[serde(default)]
    cause: Option<String>,
    #[serde(default)]
    rule: Option<usize>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    shadow: Option<Vec<String>>,
}

/// Reads a suite; with a fault in it there is none.
pub(super) fn read(document: &Document, faults: &mut Faults) -> Option<Suite> {
    let written: WrittenSuite = document.decode(faults)?;
    let mut found = Faults::new();
    let root = FieldPath::root();
    let mut fault =
        |path, kind, message: String| found.push(Fault::error(document.place(path), kind, message));
    if written.api_version != API_VERSION {
        let message = format!("`{}`: write `{API_VERSION}`", written.api_version);
        fault(root.field("apiVersion"), FaultKind::NotSupported, message);
    }
    let file = document.file().map(ToString::to_string).unwrap_or_default();
    let folder = Path::new(&file).parent().unwrap_or(Path::new(""));
    let policies = match (written.config, written.manifests) {
        (Some(config), manifests) if manifests.is_empty() => PoliciesFrom::Configuration(folder.join(config)),
        (None, manifests) if !manifests.is_empty() => {
            PoliciesFrom::Manifests(manifests.iter().map(|path| folder.join(path)).collect())
        }
        _ => {
            let message = "name either `manifests` or a `config`".to_owned();
            fault(root.field("manifests"), FaultKind::Required, message);
            PoliciesFrom::Manifests(Vec::new())
        }
    };
    let cases = written
        .cases
        .into_iter()
        .enumerate()
        .filter_map(|(index, case)| read_case(document, &root.field("cases").index(index), case, &mut fault))
        .collect();
    let sound = found.is_empty();
    faults.append(found);
    sound.then_some(Suite {
        file,
        policies,
        cases,
    })
}

fn read_case(
    document: &Document,
    path: &FieldPath,
    written: WrittenCase,
    fault: &mut impl FnMut(FieldPath, FaultKind, String),
) -> Option<Case> {
    let attributes = written.request.attributes();
    for misfit in attributes.as_ref().err().into_iter().flatten() {
        fault(
            path.field("request").field(misfit.field),
            FaultKind::Invalid,
            misfit.message.clone(),
        );
    }
    let decision = decision(&written.expect.decision);
    if decision.is_none() {
        let message = format!(
            "`{}` is none of `allow`, `deny`, `noOpinion`",
            written.expect.decision
        );
        fault(
            path.field("expect").field("decision"),
            FaultKind::NotSupported,
            message,
        );
    }
    Some(Case {
        name: written.name,
        line: document.place(path.clone()).line,
        cluster: written.cluster.unwrap_or_else(|| DEFAULT_CLUSTER.to_owned()),
        attributes: attributes.ok()?,
        expect: Expectation {
            decision: decision?,
            cause: written.expect.cause,
            rule: written.expect.rule,
            reason: written.expect.reason,
            shadow: written.expect.shadow,
        },
    })
}

fn decision(text: &str) -> Option<Decision> {
    [Decision::Allow, Decision::Deny, Decision::NoOpinion]
        .into_iter()
        .find(|decision| decision.as_str() == text)
}
