//! Decides a review offline, in one phase or both, and records the trace.
//!
//! ```text
//! review ─▶ mutate ─▶ the review with the object changed ─▶ validate ─▶ one reply
//!             └── webhooks: recorded responses ────────────────┘
//! ```
//!
//! No webhook is called. If there is no recorded response for a call, the run ends without a
//! decision.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::admission::chain::{Comparison, shadow_result};
use crate::admission::exceptions::NotExcused;
use crate::admission::run::{MatchFinding, PolicyExpression, Recorder, TraceStep, to_json};
use crate::admission::webhook::{Call, Verdict, WebhookCallResult, WebhookResult};
use crate::admission::{
    Chain, GrantReview, GroupVersionResource, Outcome, Phase, Progress, Request, RunOptions,
};
use crate::api::{AdmissionReview, AdmissionReviewError};
use crate::explain::LoadedPolicies;
use crate::explain::recorded::{AnswerSequence, RecordedAnswers};
use crate::manifest::ValidationContext;
use crate::model::{CauseKind, Deadline, Time};
use portcullis_cel::json::{Document, ObjectWriter, patch, write_list};
use portcullis_cel::{EvalError, Value};

/// The context for deciding reviews offline.
#[derive(Clone, Copy)]
pub struct OfflineReview<'a> {
    pub loaded: &'a LoadedPolicies,
    pub cluster: &'a str,
    pub phases: &'a [Phase],
    /// Evaluates only the policy or webhook configuration of this name.
    pub only: Option<&'a str>,
    /// The time as of which reviews are decided.
    pub now: Time,
    /// The clock for the durations of steps.
    pub clock: fn() -> Instant,
    /// The responses of webhooks.
    pub answers: &'a RecordedAnswers,
    /// See [`RunOptions::requester_unknown`].
    pub requester_unknown: bool,
    /// The deadline, after which the result is meaningless; `None` for no deadline.
    pub deadline: Option<Deadline<'a>>,
    /// Records the steps, instead of the trace of the result.
    pub recorder: Option<&'a dyn Recorder>,
}

/// The result of a review.
pub struct OfflineReviewResult {
    pub decided: Result<OfflineDecision, MissingAnswers>,
    /// The webhooks that would be called, in order, as `configuration/webhook`.
    pub asked: Vec<String>,
    pub trace: Vec<TracedStep>,
}

/// The decision of all phases together.
pub struct OfflineDecision {
    pub outcome: Outcome,
    /// The response as it is sent over the network.
    pub reply: String,
    /// The object after the mutations; `None` if the review has no object.
    pub object: Option<String>,
}

/// The decision depends on webhooks without a recorded response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it depends on the responses of {}, which are not recorded", webhooks.join(", "))]
pub struct MissingAnswers {
    /// The webhooks as `configuration/webhook`.
    pub webhooks: Vec<String>,
}

/// A run of all phases.
struct OfflineRun<'a> {
    asked: OfflineReview<'a>,
    answering: AnswerSequence<'a>,
    webhooks: Vec<String>,
    trace: Vec<TracedStep>,
}

/// Why a review cannot be decided.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("{0}")]
    Review(#[from] AdmissionReviewError),
    #[error("the changed object cannot be encoded: {0}")]
    Patch(#[from] patch::PatchError),
}

impl OfflineReview<'_> {
    /// Decides the review in `body`.
    ///
    /// # Errors
    ///
    /// `body` is not an AdmissionReview, or a patch cannot be applied to it.
    pub fn answer(&self, body: &[u8]) -> Result<OfflineReviewResult, ReviewError> {
        let received = Document::parse_bytes(body).map_err(AdmissionReviewError::from)?;
        let review = AdmissionReview::decode(&received)?;
        let mut running = OfflineRun {
            asked: *self,
            answering: AnswerSequence::new(self.answers),
            webhooks: Vec::new(),
            trace: Vec::new(),
        };
        let decided = running.all(&received, &review)?;
        Ok(OfflineReviewResult {
            decided,
            asked: running.webhooks,
            trace: running.trace,
        })
    }
}

/// A recorder that keeps the steps.
pub struct StepRecorder {
    phase: Phase,
    steps: RefCell<Vec<TracedStep>>,
    clock: fn() -> Instant,
    begun: Cell<Instant>,
}

/// A step of the trace, for text and JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "step", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum TracedStep {
    /// The policies of the phase are evaluated; `again` for the second pass, after changes of the
    /// object.
    Phase { phase: &'static str, again: bool },
    /// Whether a policy applies.
    Policy {
        kind: CauseKind,
        name: String,
        #[serde(flatten)]
        finding: TracedMatch,
    },
    /// Whether a binding of the policy applies.
    Binding {
        name: String,
        #[serde(flatten)]
        finding: TracedMatch,
    },
    /// The policy is evaluated.
    Run {
        policy: String,
        binding: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        parameter: Option<String>,
    },
    /// A variable was evaluated, because an expression used it.
    Variable {
        name: String,
        #[serde(flatten)]
        result: TracedValue,
    },
    /// An expression was evaluated.
    Expression {
        part: String,
        expression: String,
        #[serde(flatten)]
        result: TracedValue,
        cost: u64,
        #[serde(serialize_with = "seconds", rename = "durationSeconds")]
        took: Duration,
    },
    /// A mutation or webhook changed the object.
    Changed { patch: Box<RawValue> },
    /// Whether a webhook applies.
    Webhook {
        configuration: String,
        name: String,
        #[serde(flatten)]
        finding: TracedMatch,
    },
    /// The webhook is called.
    Asked {
        configuration: String,
        name: String,
        version: &'static str,
        shadow: bool,
    },
    /// The result of a call.
    Answered {
        configuration: String,
        name: String,
        verdict: &'static str,
        #[serde(skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// Whether an AdmissionException excuses a denial.
    Exception {
        name: String,
        policy: String,
        excuses: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<&'static str>,
    },
    /// An initializer is applied.
    Initializer {
        configuration: String,
        name: String,
        policy: bool,
    },
}

/// Whether something applies.
#[derive(Debug, Serialize)]
#[serde(tag = "result", rename_all = "camelCase")]
pub enum TracedMatch {
    Match { resource: String },
    NoMatch { why: &'static str },
    Error { why: String },
}

/// The result of an expression.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum TracedValue {
    Value(Box<RawValue>),
    Error(String),
}

// === impl OfflineRun ===

impl OfflineRun<'_> {
    fn all(
        &mut self,
        received: &Document<'_>,
        review: &AdmissionReview<'_>,
    ) -> Result<Result<OfflineDecision, MissingAnswers>, ReviewError> {
        let (mut outcome, mut changed) = (Outcome::default(), None);
        for phase in self.asked.phases {
            let document: &Document<'_> = changed.as_ref().unwrap_or(received);
            let of_phase = match self.run(*phase, &AdmissionReview::decode(document)?) {
                Ok(of_phase) => of_phase,
                Err(unknown) => return Ok(Err(unknown)),
            };
            if !of_phase.patch.is_empty() {
                changed = Some(with_patch(document, &of_phase.patch)?);
            }
            merge(&mut outcome, of_phase);
            if outcome.denial.is_some() {
                break;
            }
        }
        let outcome = review.within_version(outcome);
        let object = AdmissionReview::decode(changed.as_ref().unwrap_or(received))?
            .request
            .object
            .map(|object| object.raw().to_owned());
        Ok(Ok(OfflineDecision {
            reply: String::from_utf8(review.reply(&outcome)).unwrap_or_default(),
            outcome,
            object,
        }))
    }

    fn run(&mut self, phase: Phase, review: &AdmissionReview<'_>) -> Result<Outcome, MissingAnswers> {
        let OfflineReview {
            loaded,
            cluster,
            only,
            now,
            clock,
            requester_unknown,
            deadline,
            recorder,
            ..
        } = self.asked;
        let tape = StepRecorder::new(phase, clock);
        let validation = ValidationContext::new(
            loaded.policies.for_cluster(cluster),
            loaded.admission.for_cluster(cluster),
        );
        let unlimited = RunOptions::new(&**loaded.policies.for_cluster(cluster), now);
        let run = RunOptions {
            only,
            requester_unknown,
            deadline: deadline.unwrap_or(unlimited.deadline),
            recorder: Some(recorder.unwrap_or(&tape)),
            reauthorization: Some(GrantReview {
                policies: loaded.policies.for_cluster(cluster),
                is_allowed_elsewhere: false,
            }),
            own_kinds: Some(&validation),
            ..unlimited
        };
        let policies = loaded.admission.for_cluster(cluster);
        let (mut chain, mut answers) = (Chain::new(phase), Ok(Vec::new()));
        let outcome = loop {
            let given = match answers {
                Ok(given) => given,
                Err(unknown) => break Err(unknown),
            };
            match chain.advance(policies, &review.request, run, given) {
                Progress::Done(outcome) => {
                    self.compare(&outcome.shadows, phase, &review.request, &tape);
                    break Ok(*outcome);
                }
                Progress::Calls(calls) => answers = self.ask(&calls, phase),
            }
        };
        self.trace.extend(tape.into_steps());
        outcome
    }

    /// Records the verdicts of webhooks in shadow mode, if their responses are recorded.
    fn compare(&mut self, shadows: &[Call], phase: Phase, request: &Request<'_>, tape: &StepRecorder) {
        for call in shadows {
            let Some(answer) = self.answering.answer(call, phase) else {
                continue;
            };
            let Comparison {
                webhook,
                verdict,
                changed,
                ..
            } = shadow_result(call, request, answer, None);
            tape.record(TraceStep::CallCompleted(&WebhookResult {
                webhook,
                round: 0,
                index: 0,
                verdict,
                changed,
                took: None,
            }));
        }
    }

    fn ask(&mut self, calls: &[Call], phase: Phase) -> Result<Vec<WebhookCallResult>, MissingAnswers> {
        let (mut answers, mut missing) = (Vec::new(), Vec::new());
        for call in calls {
            let answer = self.answering.answer(call, phase);
            self.webhooks.push(call.webhook.id());
            match answer {
                Some(answer) => answers.push(answer),
                None => missing.push(call.webhook.id()),
            }
        }
        if missing.is_empty() {
            Ok(answers)
        } else {
            Err(MissingAnswers { webhooks: missing })
        }
    }
}

/// Merges the outcome of a later phase.
fn merge(all: &mut Outcome, one: Outcome) {
    all.denial = one.denial;
    all.cause = one.cause;
    for warning in one.warnings.iter() {
        all.warnings.push(warning);
    }
    all.exceptions.extend(one.exceptions);
    for (key, value) in one.audit_annotations {
        all.audit_annotations.entry(key).or_insert(value);
    }
    if !one.patch.is_empty() {
        all.patch = one.patch;
    }
}

/// Applies the patch to the object of the review.
fn with_patch(review: &Document<'_>, changes: &str) -> Result<Document<'static>, ReviewError> {
    let read = |text: String| Document::parse(text).map_err(AdmissionReviewError::from);
    let member = ["request", "spec"]
        .into_iter()
        .find(|member| review.root().get(member).is_some())
        .unwrap_or_default();
    let pointer = format!("/{member}/object");
    let Some(object) = review.root().pointer(&pointer) else {
        return Ok(read(review.text().to_owned())?);
    };
    let changes = read(changes.to_owned())?;
    let object = patch::apply(object, patch::read(changes.root())?)?.to_text();
    let mut replace = String::new();
    write_list(&mut replace, [object], |out, object| {
        ObjectWriter::write(out, |operation| {
            operation.text("op", "replace");
            operation.text("path", &pointer);
            operation.json("value", &object);
        });
    });
    let replace = read(replace)?;
    let operations = patch::read(replace.root())?;
    Ok(read(patch::apply(review.root(), operations)?.to_text())?)
}

// === impl StepRecorder ===

impl StepRecorder {
    /// Creates a recorder. `clock` measures the duration of steps.
    pub fn new(phase: Phase, clock: fn() -> Instant) -> Self {
        let start = TracedStep::Phase {
            phase: phase.as_str(),
            again: false,
        };
        Self {
            phase,
            steps: RefCell::new(vec![start]),
            clock,
            begun: Cell::new(clock()),
        }
    }

    pub fn into_steps(self) -> Vec<TracedStep> {
        self.steps.into_inner()
    }
}

impl Recorder for StepRecorder {
    fn begin(&self) {
        self.begun.set((self.clock)());
    }

    fn record(&self, step: TraceStep<'_>) {
        let took = (self.clock)().duration_since(self.begun.get());
        let traced = match step {
            TraceStep::Policy { kind, name, finding } => TracedStep::Policy {
                kind,
                name: name.to_owned(),
                finding: TracedMatch::from(finding),
            },
            TraceStep::Binding { name, finding } => TracedStep::Binding {
                name: name.to_owned(),
                finding: TracedMatch::from(finding),
            },
            TraceStep::Run {
                policy,
                binding,
                parameter,
            } => TracedStep::Run {
                policy: policy.to_owned(),
                binding: binding.to_owned(),
                parameter: parameter.map(|(namespace, name)| match namespace.as_str() {
                    "" => name,
                    namespace => format!("{namespace}/{name}"),
                }),
            },
            TraceStep::Variable { name, result, .. } => TracedStep::Variable {
                name: name.to_owned(),
                result: TracedValue::from(result),
            },
            TraceStep::Expression {
                part,
                text,
                result,
                cost,
                ..
            } => TracedStep::Expression {
                part: part_in_words(part),
                expression: text.to_owned(),
                result: TracedValue::from(result),
                cost,
                took,
            },
            // The steps of its expressions contain the same information.
            TraceStep::Decided(_) => return,
            TraceStep::Changed { patch } => TracedStep::Changed { patch: raw(patch) },
            TraceStep::Reinvocation => TracedStep::Phase {
                phase: self.phase.as_str(),
                again: true,
            },
            TraceStep::Webhook { webhook, finding } => TracedStep::Webhook {
                configuration: webhook.configuration.clone(),
                name: webhook.name.clone(),
                finding: TracedMatch::from(finding),
            },
            TraceStep::Called { call, is_shadow } => TracedStep::Asked {
                configuration: call.webhook.configuration.clone(),
                name: call.webhook.name.clone(),
                version: call.version.api_version(),
                shadow: is_shadow,
            },
            TraceStep::CallCompleted(result) => answered(result),
            TraceStep::Exception { name, policy, found } => TracedStep::Exception {
                name: name.to_owned(),
                policy: policy.to_owned(),
                excuses: found.is_ok(),
                why: found.err().map(NotExcused::as_str),
            },
            TraceStep::Initializer {
                configuration,
                name,
                is_there,
            } => TracedStep::Initializer {
                configuration: configuration.to_owned(),
                name: name.to_owned(),
                policy: is_there,
            },
        };
        self.steps.borrow_mut().push(traced);
    }
}

fn answered(result: &WebhookResult) -> TracedStep {
    let (verdict, message) = match &result.verdict {
        Verdict::Allowed => ("allow", ""),
        Verdict::Denied(message) => ("deny", message.as_str()),
        Verdict::Failed { message, is_ignored } => {
            (if *is_ignored { "ignored" } else { "error" }, message.as_str())
        }
    };
    TracedStep::Answered {
        configuration: result.webhook.configuration.clone(),
        name: result.webhook.name.clone(),
        verdict,
        message: message.to_owned(),
    }
}

fn part_in_words(part: PolicyExpression<'_>) -> String {
    match part {
        PolicyExpression::Condition(name) => format!("matchCondition {name}"),
        PolicyExpression::ObjectCondition(name) => format!("objectCondition {name}"),
        PolicyExpression::Validation(index) => format!("validation {index}"),
        PolicyExpression::Message(index) => format!("messageExpression {index}"),
        PolicyExpression::Annotation(key) => format!("auditAnnotation {key}"),
        PolicyExpression::Mutation(index) => format!("mutation {index}"),
    }
}

/// The text is valid JSON, because it was written here.
fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).unwrap_or_default()
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

impl From<MatchFinding<'_>> for TracedMatch {
    fn from(finding: MatchFinding<'_>) -> Self {
        match finding {
            MatchFinding::Applies { resource } => Self::Match {
                resource: resource_in_words(resource),
            },
            MatchFinding::Misses(miss) => Self::NoMatch { why: miss.as_str() },
            MatchFinding::Fails(why) => Self::Error { why },
        }
    }
}

/// `deployments.v1.apps`
fn resource_in_words(resource: &GroupVersionResource<'_>) -> String {
    let GroupVersionResource {
        group,
        version,
        resource,
    } = resource;
    match group.as_ref() {
        "" => format!("{resource}.{version}"),
        group => format!("{resource}.{version}.{group}"),
    }
}

impl From<Result<&Value<'_>, &EvalError>> for TracedValue {
    fn from(result: Result<&Value<'_>, &EvalError>) -> Self {
        match result {
            Ok(value) => Self::Value(raw(to_json(value))),
            Err(error) => Self::Error(error.to_string()),
        }
    }
}
