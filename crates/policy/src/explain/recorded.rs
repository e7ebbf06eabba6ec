//! Recorded answers of webhooks, for offline runs.
//!
//! ```yaml
//! configuration/webhook:          # one answer for every call,
//!   response: {allowed: true}
//! other/hook.example.com:         # or one for each, the last for all that follow
//! - response: {allowed: true, patch: [{op: add, path: /metadata/labels/a, value: b}]}
//! - failure: connection refused
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::api;
use crate::document::{self, Document};
use crate::engine::admission::webhook::{Call, CallFailure, ReviewVersion, WebhookAnswer};
use crate::engine::admission::{AdmissionSet, Phase};
use crate::field::{Fault, FaultKind, Faults, FieldPath};

/// What each webhook answers, by `configuration/webhook`, or with the kind of the
/// configuration before it where both kinds have one of that name.
#[derive(Debug, Default)]
pub struct RecordedAnswers(BTreeMap<String, Vec<Recorded>>);

/// One answer.
#[derive(Debug)]
enum Recorded {
    /// `response` of the webhook's AdmissionReview.
    Response(Map<String, Value>),
    /// There was none, and why.
    Failure(String),
}

/// Answers that are being given, each in its turn.
#[derive(Debug)]
pub struct Answering<'a> {
    answers: &'a RecordedAnswers,
    given: BTreeMap<String, usize>,
}

/// The kind that registers webhooks for `phase`.
pub const fn configuration_kind(phase: Phase) -> &'static str {
    match phase {
        Phase::Mutate => "MutatingWebhookConfiguration",
        Phase::Validate => "ValidatingWebhookConfiguration",
    }
}

/// Recorded replies are to whatever is asked.
const UID: &str = "recorded";

// === impl RecordedAnswers ===

impl RecordedAnswers {
    /// The answers that the `text` of `file` has, in YAML or JSON.
    ///
    /// # Errors
    ///
    /// It says something else.
    pub fn of_text(file: &str, text: &str) -> Result<Self, Faults> {
        let (mut answers, mut faults) = (Self::default(), Faults::new());
        match document::parse(Some(file), text) {
            Err(fault) => faults.push(fault),
            Ok(documents) => {
                for document in documents {
                    answers.0.extend(Self::of_document(&document, &mut faults).0);
                }
            }
        }
        if faults.is_empty() {
            return Ok(answers);
        }
        Err(faults)
    }

    /// The names that are of no webhook there.
    pub fn foreign(&self, policies: &AdmissionSet) -> impl Iterator<Item = &str> {
        let names = |phase: Phase| {
            let webhooks = policies.webhooks(phase).map(|webhook| webhook.id());
            webhooks.flat_map(move |id| [format!("{}/{id}", configuration_kind(phase)), id])
        };
        let known: BTreeSet<String> = Phase::ALL.into_iter().flat_map(names).collect();
        let written = self.0.keys().map(String::as_str);
        written.filter(move |name| !known.contains(*name))
    }

    fn of_document(document: &Document, faults: &mut Faults) -> Self {
        let written = document.root().to_json();
        let mut fault = |path: FieldPath, message: String| {
            faults.push(Fault::error(document.place(path), FaultKind::Invalid, message));
        };
        Self::read(&written, &FieldPath::root(), &mut fault)
    }

    /// The answers at `path`, as far as they are without fault.
    pub fn read(written: &Value, path: &FieldPath, fault: &mut dyn FnMut(FieldPath, String)) -> Self {
        let Some(written) = written.as_object() else {
            fault(
                path.clone(),
                "must be a mapping from `configuration/webhook` to answers".to_owned(),
            );
            return Self::default();
        };
        let mut answers = BTreeMap::new();
        for (webhook, each) in written {
            let path = path.key(webhook);
            let each = match each.as_array() {
                Some(each) => each
                    .iter()
                    .enumerate()
                    .map(|(index, one)| (path.index(index), one))
                    .collect(),
                None => vec![(path.clone(), each)],
            };
            let mut recorded = Vec::new();
            for (path, one) in each {
                match Recorded::read(one) {
                    Ok(one) => recorded.push(one),
                    Err(message) => fault(path, message.to_owned()),
                }
            }
            answers.insert(webhook.clone(), recorded);
        }
        Self(answers)
    }
}

// === impl Recorded ===

impl Recorded {
    fn read(written: &Value) -> Result<Self, &'static str> {
        let one = written.as_object().filter(|written| written.len() == 1);
        match one.and_then(|written| written.iter().next()) {
            Some((name, Value::Object(response))) if name == "response" => {
                Ok(Self::Response(response.clone()))
            }
            Some((name, Value::String(why))) if name == "failure" => Ok(Self::Failure(why.clone())),
            _ => Err("write `response`, as in the webhook's AdmissionReview, or `failure` with a text"),
        }
    }

    /// The answer, which is trusted no more than one over a connection.
    fn answer(&self, call: &Call, phase: Phase) -> WebhookAnswer {
        let result = match self {
            Self::Response(response) => {
                let body = review(call.version, response.clone()).to_string();
                api::verify(call, UID, phase, body.as_bytes())
            }
            Self::Failure(why) => Err(CallFailure::Failed(format!("failed to call webhook: {why}"))),
        };
        WebhookAnswer {
            result,
            took: Duration::ZERO,
        }
    }
}

/// The body of a reply. A patch may be written as the list that it is.
fn review(version: ReviewVersion, mut response: Map<String, Value>) -> Value {
    let api_version = version.api_version();
    if version == ReviewVersion::V1alpha1 {
        return json!({"kind": "AdmissionReview", "apiVersion": api_version, "status": response});
    }
    if let Some(patch @ Value::Array(_)) = response.get("patch") {
        let patch = STANDARD.encode(patch.to_string());
        response.insert("patch".to_owned(), patch.into());
        response.entry("patchType").or_insert_with(|| "JSONPatch".into());
    }
    response.insert("uid".to_owned(), UID.into());
    json!({"kind": "AdmissionReview", "apiVersion": api_version, "response": response})
}

// === impl Answering ===

impl<'a> Answering<'a> {
    pub const fn new(answers: &'a RecordedAnswers) -> Self {
        Self {
            answers,
            given: BTreeMap::new(),
        }
    }

    /// The next answer of the webhook; `None` if none is recorded.
    pub fn answer(&mut self, call: &Call, phase: Phase) -> Option<WebhookAnswer> {
        let webhook = call.webhook.id();
        let of_kind = format!("{}/{webhook}", configuration_kind(phase));
        let (webhook, recorded) = [of_kind, webhook]
            .into_iter()
            .find_map(|name| Some((name.clone(), self.answers.0.get(&name)?)))?;
        let turn = self.given.entry(webhook).or_default();
        let recorded = recorded.get(*turn).or_else(|| recorded.last())?;
        *turn += 1;
        Some(recorded.answer(call, phase))
    }
}
