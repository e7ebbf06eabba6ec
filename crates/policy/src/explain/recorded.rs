//! Recorded responses of webhooks, for offline runs.
//!
//! ```yaml
//! configuration/webhook:          # one response for every call,
//!   response: {allowed: true}
//! other/hook.example.com:         # or a list, whose last one is for all further calls
//! - response: {allowed: true, patch: [{op: add, path: /metadata/labels/a, value: b}]}
//! - failure: connection refused
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::authorization::object;
use crate::admission::webhook::{Call, CallFailure, ReviewVersion, WebhookCallResult};
use crate::admission::{AdmissionSet, Outcome, Phase};
use crate::api;
use crate::authorization::Authorization;
use crate::document::{self, Document};
use crate::field::{Fault, FaultKind, Faults, FieldPath};
use crate::model::{Cause, Decision, Target};

/// The recorded responses of each webhook, by `configuration/webhook`, or by
/// `KIND/configuration/webhook` if configurations of both kinds have that name.
#[derive(Debug, Default)]
pub struct RecordedAnswers(BTreeMap<String, Vec<RecordedAnswer>>);

/// A recorded response.
#[derive(Debug)]
enum RecordedAnswer {
    /// `response` of the webhook's AdmissionReview.
    Response(Map<String, Value>),
    /// The call failed, with this message.
    Failure(String),
}

/// Returns the recorded responses of each webhook in sequence.
#[derive(Debug)]
pub struct AnswerSequence<'a> {
    answers: &'a RecordedAnswers,
    given: BTreeMap<String, usize>,
}

/// The kind of webhook configurations for `phase`.
pub const fn configuration_kind(phase: Phase) -> &'static str {
    match phase {
        Phase::Mutate => "MutatingWebhookConfiguration",
        Phase::Validate => "ValidatingWebhookConfiguration",
    }
}

/// The uid of recorded responses, which fit any call.
const UID: &str = "recorded";

// === impl RecordedAnswers ===

impl RecordedAnswers {
    /// Parses the `text` of `file`, in YAML or JSON.
    ///
    /// # Errors
    ///
    /// The text is not a mapping to recorded responses.
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

    /// The names of webhooks that `policies` does not contain.
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

    /// Reads the responses at `path`, without invalid ones.
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
                match RecordedAnswer::read(one) {
                    Ok(one) => recorded.push(one),
                    Err(message) => fault(path, message.to_owned()),
                }
            }
            answers.insert(webhook.clone(), recorded);
        }
        Self(answers)
    }
}

// === impl RecordedAnswer ===

impl RecordedAnswer {
    fn read(written: &Value) -> Result<Self, &'static str> {
        let one = written.as_object().filter(|written| written.len() == 1);
        match one.and_then(|written| written.iter().next()) {
            Some((name, Value::Object(response))) if name == "response" => {
                Ok(Self::Response(response.clone()))
            }
            Some((name, Value::String(why))) if name == "failure" => Ok(Self::Failure(why.clone())),
            _ => Err("write `response`, as in the webhook's AdmissionReview, or `failure` with a message"),
        }
    }

    /// The result of a call. The response is verified like one from the network.
    fn answer(&self, call: &Call, phase: Phase) -> WebhookCallResult {
        let result = match self {
            Self::Response(response) => {
                let body = review(call.version, response.clone()).to_string();
                api::verify(call, UID, phase, body.as_bytes())
            }
            Self::Failure(why) => Err(CallFailure::Failed(format!("failed to call webhook: {why}"))),
        };
        WebhookCallResult {
            result,
            took: Duration::ZERO,
        }
    }
}

/// The body of a response. A patch may also be written as a list.
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

// === impl AnswerSequence ===

impl<'a> AnswerSequence<'a> {
    pub const fn new(answers: &'a RecordedAnswers) -> Self {
        Self {
            answers,
            given: BTreeMap::new(),
        }
    }

    /// The next response of the webhook; `None` if none is recorded.
    pub fn answer(&mut self, call: &Call, phase: Phase) -> Option<WebhookCallResult> {
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

// Replay: requests that are decided again by other policies, what changes, and what is not known.

/// The result of deciding a recorded request again.
#[derive(Debug)]
pub enum ReplayDecision {
    Known(KnownDecision),
    /// Not known, because it depends on this.
    Unknown(String),
}

/// A known decision.
#[derive(Debug)]
pub struct KnownDecision {
    pub decision: Decision,
    pub reason: String,
    /// The object that decided, as `KIND/NAMESPACE/NAME`; empty if none did.
    pub cause: String,
    /// The JSON Patch of the response; empty if there is none, `None` if it is not known.
    pub patch: Option<String>,
}

/// The comparison of two decisions on a request. A change has its group and an example.
#[derive(Debug)]
pub enum ReviewComparison<E> {
    Same,
    Changed(ChangeGroup, E),
    /// It was denied, and whether it still is, is not known for this reason.
    UnknownDenial(ChangeGroup, String, E),
    /// Not known, for this reason.
    Unknown(String),
}

/// A group of changes with the same decisions and cause.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ChangeGroup {
    pub from: &'static str,
    pub to: &'static str,
    /// The object that decides now or, if none does, the one that decided before; `patch` if only
    /// the patch changed.
    pub cause: String,
    #[serde(skip)]
    pub is_gone: bool,
}

/// The summary of a replay.
#[derive(Debug)]
pub struct ReplaySummary<E> {
    /// The number of requests that were decided.
    pub decided: u64,
    pub unknown: u64,
    /// The number of changes in each group, and the first example.
    pub changes: BTreeMap<ChangeGroup, (u64, Option<E>)>,
    /// The number of unknown decisions for each reason.
    pub unknown_because: BTreeMap<String, u64>,
}

/// A reason for unknown decisions, with their number.
#[derive(Debug, Serialize)]
pub struct UnknownReason {
    pub reason: String,
    pub count: u64,
}

/// The new decision of a denial that may or may not still be one.
const UNKNOWN: &str = "unknown";

/// The most reasons that are counted.
const REASONS: usize = 100;

// === impl KnownDecision ===

impl KnownDecision {
    /// A decision of authorization, which has no patch.
    pub fn of_authorization(authorization: &Authorization<'_>) -> Self {
        Self {
            decision: authorization.decision,
            reason: authorization.reason.to_string(),
            cause: Self::cause_in_words(authorization.cause.as_ref()),
            patch: Some(String::new()),
        }
    }

    /// The decision of an admission run.
    pub fn of_admission(outcome: Outcome) -> Self {
        let (decision, reason) = match outcome.denial {
            None => (Decision::Allow, String::new()),
            Some(denial) => (Decision::Deny, denial.message),
        };
        Self {
            decision,
            reason,
            cause: Self::cause_in_words(outcome.cause.as_ref()),
            patch: Some(outcome.patch),
        }
    }

    /// `KIND/NAMESPACE/NAME`; empty if no object decided.
    fn cause_in_words(cause: Option<&Cause<'_>>) -> String {
        cause.map_or_else(String::new, |cause| {
            object(cause.kind, &cause.namespace, &cause.name)
        })
    }
}

// === impl ChangeGroup ===

impl ChangeGroup {
    pub fn of(before: &KnownDecision, now: &KnownDecision) -> Self {
        let is_gone = now.cause.is_empty();
        let cause = if is_gone { &before.cause } else { &now.cause };
        Self {
            from: before.decision.as_str(),
            to: now.decision.as_str(),
            cause: cause.clone(),
            is_gone,
        }
    }

    /// The group of a denial that may or may not still be one.
    pub fn lost(before: &KnownDecision) -> Self {
        Self {
            from: before.decision.as_str(),
            to: UNKNOWN,
            cause: before.cause.clone(),
            is_gone: true,
        }
    }

    /// Whether the new decision is not known.
    pub fn is_lost(&self) -> bool {
        self.to == UNKNOWN
    }

    /// The key that `--allow-changes` matches.
    pub fn key(&self) -> String {
        format!("{}->{} {}", self.from, self.to, self.cause)
    }
}

// === impl ReviewComparison ===

impl<E> ReviewComparison<E> {
    /// The group, if this is a change.
    pub fn group(&self) -> Option<&ChangeGroup> {
        match self {
            Self::Changed(group, _) | Self::UnknownDenial(group, _, _) => Some(group),
            Self::Same | Self::Unknown(_) => None,
        }
    }

    /// Replaces the example.
    pub fn with_example<F>(&self, example: F) -> ReviewComparison<F> {
        match self {
            Self::Same => ReviewComparison::Same,
            Self::Changed(group, _) => ReviewComparison::Changed(group.clone(), example),
            Self::UnknownDenial(group, why, _) => {
                ReviewComparison::UnknownDenial(group.clone(), why.clone(), example)
            }
            Self::Unknown(why) => ReviewComparison::Unknown(why.clone()),
        }
    }
}

// === impl ReplaySummary ===

impl<E> Default for ReplaySummary<E> {
    fn default() -> Self {
        Self {
            decided: 0,
            unknown: 0,
            changes: BTreeMap::new(),
            unknown_because: BTreeMap::new(),
        }
    }
}

impl<E> ReplaySummary<E> {
    /// Adds a comparison. A group keeps its first example.
    pub fn add(&mut self, comparison: ReviewComparison<impl Into<Option<E>>>) {
        match comparison {
            ReviewComparison::Same => self.decided += 1,
            ReviewComparison::Changed(group, example) => {
                self.decided += 1;
                self.change(group, 1, example.into());
            }
            ReviewComparison::UnknownDenial(group, why, example) => {
                self.unknown(why);
                self.change(group, 1, example.into());
            }
            ReviewComparison::Unknown(why) => self.unknown(why),
        }
    }

    /// Adds the summary of later requests.
    pub fn append(&mut self, later: Self) {
        self.decided += later.decided;
        self.unknown += later.unknown;
        for (group, (more, example)) in later.changes {
            self.change(group, more, example);
        }
        for (why, count) in later.unknown_because {
            self.count_reason(why, count);
        }
    }

    fn change(&mut self, group: ChangeGroup, more: u64, example: Option<E>) {
        let (count, first) = self.changes.entry(group).or_default();
        *count += more;
        *first = first.take().or(example);
    }

    fn unknown(&mut self, why: String) {
        self.unknown += 1;
        self.count_reason(why, 1);
    }

    fn count_reason(&mut self, why: String, count: u64) {
        if self.unknown_because.len() < REASONS || self.unknown_because.contains_key(&why) {
            *self.unknown_because.entry(why).or_default() += count;
        }
    }

    /// The reasons for unknown decisions, the most frequent first.
    pub fn unknown_reasons(&self) -> Vec<UnknownReason> {
        let mut reasons: Vec<UnknownReason> = self
            .unknown_because
            .iter()
            .map(|(reason, count)| UnknownReason {
                reason: reason.clone(),
                count: *count,
            })
            .collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
        reasons
    }
}

/// A description of the request, such as `get pods db-0 in namespace shop`.
pub fn target_in_words(target: &Target<'_>) -> String {
    match target {
        Target::NonResource { path, verb } => format!("{verb} {path}"),
        Target::Resource(asked) => {
            let resource = qualified_resource(&asked.resource, &asked.subresource, &asked.group);
            request_in_words(&asked.verb, &resource, &asked.namespace, &asked.name)
        }
    }
}

/// `deployments.apps/scale`.
pub fn qualified_resource(resource: &str, subresource: &str, group: &str) -> String {
    let mut words = resource.to_owned();
    for (sign, part) in [('.', group), ('/', subresource)] {
        if !part.is_empty() {
            words.push(sign);
            words.push_str(part);
        }
    }
    words
}

/// `get pods db-0 in namespace shop`.
pub fn request_in_words(verb: &str, resource: &str, namespace: &str, name: &str) -> String {
    let mut words = format!("{verb} {resource}");
    for (before, part) in [(" ", name), (" in namespace ", namespace)] {
        if !part.is_empty() {
            words.push_str(before);
            words.push_str(part);
        }
    }
    words
}
