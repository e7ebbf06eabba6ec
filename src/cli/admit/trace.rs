//! The steps of a run, kept with the time that each expression took.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::value::RawValue;

use crate::cel::{EvalError, Value};
use crate::engine::CauseKind;
use crate::engine::admission::Phase;
use crate::engine::admission::exceptions::NotExcused;
use crate::engine::admission::trace::{Finding, Part, Recorder, Step, to_json};
use crate::engine::admission::webhook::{Verdict, WebhookResult};
use crate::engine::admission::{GroupVersionResource, trace};

/// Keeps what it hears.
pub(super) struct Tape {
    phase: Phase,
    steps: RefCell<Vec<Traced>>,
    begun: Cell<Instant>,
}

/// A step, for people and programs.
#[derive(Debug, Serialize)]
#[serde(tag = "step", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(in crate::cli) enum Traced {
    /// Policies of the phase are asked; once more, where others changed the object.
    Phase { phase: &'static str, again: bool },
    /// A policy applies or not.
    Policy {
        kind: CauseKind,
        name: String,
        #[serde(flatten)]
        finding: Found,
    },
    /// A binding of it does or does not.
    Binding {
        name: String,
        #[serde(flatten)]
        finding: Found,
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
        result: Outcome,
    },
    /// An expression.
    Expression {
        part: String,
        expression: String,
        #[serde(flatten)]
        result: Outcome,
        cost: u64,
        #[serde(serialize_with = "seconds", rename = "durationSeconds")]
        took: Duration,
    },
    /// A mutation or webhook changed the object.
    Changed {
        patch: Box<RawValue>,
        /// What an API server may leave out before the next mutation.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        empty: Vec<String>,
    },
    /// A webhook applies or not.
    Webhook {
        configuration: String,
        name: String,
        #[serde(flatten)]
        finding: Found,
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
pub(in crate::cli) enum Found {
    Match { resource: String },
    NoMatch { why: &'static str },
    Error { why: String },
}

/// What an expression came to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) enum Outcome {
    Value(Box<RawValue>),
    Error(String),
}

// === impl Tape ===

impl Tape {
    pub(super) fn new(phase: Phase) -> Self {
        let start = Traced::Phase {
            phase: phase.as_str(),
            again: false,
        };
        Self {
            phase,
            steps: RefCell::new(vec![start]),
            begun: Cell::new(Instant::now()),
        }
    }

    pub(super) fn into_steps(self) -> Vec<Traced> {
        self.steps.into_inner()
    }
}

impl Recorder for Tape {
    fn begin(&self) {
        self.begun.set(Instant::now());
    }

    fn record(&self, step: Step<'_>) {
        let took = self.begun.get().elapsed();
        let traced = match step {
            Step::Policy { kind, name, finding } => Traced::Policy {
                kind,
                name: name.to_owned(),
                finding: Found::from(finding),
            },
            Step::Binding { name, finding } => Traced::Binding {
                name: name.to_owned(),
                finding: Found::from(finding),
            },
            Step::Run {
                policy,
                binding,
                parameter,
            } => Traced::Run {
                policy: policy.to_owned(),
                binding: binding.to_owned(),
                parameter: parameter.map(|(namespace, name)| match namespace.as_str() {
                    "" => name,
                    namespace => format!("{namespace}/{name}"),
                }),
            },
            Step::Variable { name, result } => Traced::Variable {
                name: name.to_owned(),
                result: Outcome::from(result),
            },
            Step::Expression {
                part,
                text,
                result,
                cost,
            } => Traced::Expression {
                part: part_in_words(part),
                expression: text.to_owned(),
                result: Outcome::from(result),
                cost,
                took,
            },
            Step::Changed { patch, empty } => Traced::Changed {
                patch: raw(patch),
                empty,
            },
            Step::Again => Traced::Phase {
                phase: self.phase.as_str(),
                again: true,
            },
            Step::Webhook { webhook, finding } => Traced::Webhook {
                configuration: webhook.configuration.clone(),
                name: webhook.name.clone(),
                finding: Found::from(finding),
            },
            Step::Asked { call, is_shadow } => Traced::Asked {
                configuration: call.webhook.configuration.clone(),
                name: call.webhook.name.clone(),
                version: call.version.api_version(),
                shadow: is_shadow,
            },
            Step::Answered(result) => answered(result),
            Step::Exception { name, policy, found } => Traced::Exception {
                name: name.to_owned(),
                policy: policy.to_owned(),
                excuses: found.is_ok(),
                why: found.err().map(NotExcused::as_str),
            },
            Step::Initializer {
                configuration,
                name,
                is_there,
            } => Traced::Initializer {
                configuration: configuration.to_owned(),
                name: name.to_owned(),
                policy: is_there,
            },
        };
        self.steps.borrow_mut().push(traced);
    }
}

fn answered(result: &WebhookResult) -> Traced {
    let (verdict, message) = match &result.verdict {
        Verdict::Allowed => ("allow", ""),
        Verdict::Denied(message) => ("deny", message.as_str()),
        Verdict::Failed { message, is_ignored } => {
            (if *is_ignored { "ignored" } else { "error" }, message.as_str())
        }
    };
    Traced::Answered {
        configuration: result.webhook.configuration.clone(),
        name: result.webhook.name.clone(),
        verdict,
        message: message.to_owned(),
    }
}

fn part_in_words(part: Part<'_>) -> String {
    match part {
        Part::Condition(name) => format!("matchCondition {name}"),
        Part::Validation(index) => format!("validation {index}"),
        Part::Message(index) => format!("messageExpression {index}"),
        Part::Annotation(key) => format!("auditAnnotation {key}"),
        Part::Mutation(index) => format!("mutation {index}"),
    }
}

/// JSON that was written here is JSON.
fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).unwrap_or_default()
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

impl From<Finding<'_>> for Found {
    fn from(finding: Finding<'_>) -> Self {
        match finding {
            Finding::Applies { resource } => Self::Match {
                resource: resource_in_words(resource),
            },
            Finding::Misses(miss) => Self::NoMatch {
                why: trace::Miss::as_str(miss),
            },
            Finding::Fails(why) => Self::Error { why },
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

impl From<Result<&Value<'_>, &EvalError>> for Outcome {
    fn from(result: Result<&Value<'_>, &EvalError>) -> Self {
        match result {
            Ok(value) => Self::Value(raw(to_json(value))),
            Err(error) => Self::Error(error.to_string()),
        }
    }
}
