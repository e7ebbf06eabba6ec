//! Records the steps of a run, with the time that each expression took.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::engine::CauseKind;
use crate::engine::admission::GroupVersionResource;
use crate::engine::admission::Phase;
use crate::engine::admission::exceptions::NotExcused;
use crate::engine::admission::trace::{MatchFinding, PolicyExpression, Recorder, TraceStep, to_json};
use crate::engine::admission::webhook::{Verdict, WebhookResult};
use portcullis_cel::{EvalError, Value};

/// Keeps the steps that it observes.
pub struct StepRecorder {
    phase: Phase,
    steps: RefCell<Vec<TracedStep>>,
    clock: fn() -> Instant,
    begun: Cell<Instant>,
}

/// A step, for people and programs.
#[derive(Debug, Serialize)]
#[serde(tag = "step", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum TracedStep {
    /// Policies of the phase are asked; once more, where others changed the object.
    Phase { phase: &'static str, again: bool },
    /// A policy applies or not.
    Policy {
        kind: CauseKind,
        name: String,
        #[serde(flatten)]
        finding: TracedMatch,
    },
    /// A binding of it does or does not.
    Binding {
        name: String,
        #[serde(flatten)]
        finding: TracedMatch,
    },
    /// The policy runs.
    Run {
        policy: String,
        binding: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        parameter: Option<String>,
    },
    /// A variable that an expression needed.
    Variable {
        name: String,
        #[serde(flatten)]
        result: TracedValue,
    },
    /// An expression.
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
    /// A webhook applies or not.
    Webhook {
        configuration: String,
        name: String,
        #[serde(flatten)]
        finding: TracedMatch,
    },
    /// That webhook is asked.
    Asked {
        configuration: String,
        name: String,
        version: &'static str,
        shadow: bool,
    },
    /// It answered, or there is no answer.
    Answered {
        configuration: String,
        name: String,
        verdict: &'static str,
        #[serde(skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// An AdmissionException that names what denies excuses that, or not.
    Exception {
        name: String,
        policy: String,
        excuses: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<&'static str>,
    },
    /// An initializer is passed.
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

/// What an expression came to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum TracedValue {
    Value(Box<RawValue>),
    Error(String),
}

// === impl StepRecorder ===

impl StepRecorder {
    /// `clock` tells how long each step takes.
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
            // Its expressions say the same.
            TraceStep::Decided(_) => return,
            TraceStep::Changed { patch } => TracedStep::Changed { patch: raw(patch) },
            TraceStep::Again => TracedStep::Phase {
                phase: self.phase.as_str(),
                again: true,
            },
            TraceStep::Webhook { webhook, finding } => TracedStep::Webhook {
                configuration: webhook.configuration.clone(),
                name: webhook.name.clone(),
                finding: TracedMatch::from(finding),
            },
            TraceStep::Asked { call, is_shadow } => TracedStep::Asked {
                configuration: call.webhook.configuration.clone(),
                name: call.webhook.name.clone(),
                version: call.version.api_version(),
                shadow: is_shadow,
            },
            TraceStep::Answered(result) => answered(result),
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
        PolicyExpression::Validation(index) => format!("validation {index}"),
        PolicyExpression::Message(index) => format!("messageExpression {index}"),
        PolicyExpression::Annotation(key) => format!("auditAnnotation {key}"),
        PolicyExpression::Mutation(index) => format!("mutation {index}"),
    }
}

/// JSON that was written here is JSON.
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
