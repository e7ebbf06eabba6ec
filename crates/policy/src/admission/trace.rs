//! The trace of a run: each step, for explanations.
//!
//! Recording does not change the run: a recorder only observes its steps.

use super::exceptions::{Exception, NotExcused};
use super::matching::Mismatch;
use super::outcome::ValidationDecision;
use super::policy::ValidationAction;
use super::webhook::{Call, Webhook, WebhookResult};
use super::{GroupVersionResource, changes};
use crate::model::CauseKind;
use portcullis_cel::json::write_string;
use portcullis_cel::{Activation, EvalError, Program, Value};

/// Observes each step of a run, in order.
pub trait Recorder {
    /// An expression is about to be evaluated; the next step has its result.
    fn begin(&self) {}

    /// One step.
    fn record(&self, step: TraceStep<'_>);
}

/// One step of a run.
#[derive(Debug)]
pub enum TraceStep<'s> {
    /// A policy was considered.
    Policy {
        /// Its kind.
        kind: CauseKind,
        /// Its name.
        name: &'s str,
        /// Whether it applies.
        finding: MatchFinding<'s>,
    },
    /// A binding of that policy was considered.
    Binding {
        /// Its name.
        name: &'s str,
        /// Whether it applies.
        finding: MatchFinding<'s>,
    },
    /// The policy runs, bound by the binding, with this parameter if it takes one.
    Run {
        /// The name of the policy.
        policy: &'s str,
        /// The name of the binding.
        binding: &'s str,
        /// Namespace and name of the parameter; no namespace is empty.
        parameter: Option<(String, String)>,
    },
    /// A variable was needed and evaluated.
    Variable {
        /// Its name.
        name: &'s str,
        /// Its expression, compiled.
        program: &'s Program,
        /// What it came to.
        result: Result<&'s Value<'s>, &'s EvalError>,
    },
    /// An expression was evaluated.
    Expression {
        /// Which one.
        part: PolicyExpression<'s>,
        /// As written.
        text: &'s str,
        /// It, compiled.
        program: &'s Program,
        /// What it came to.
        result: Result<&'s Value<'s>, &'s EvalError>,
        /// The part of the object that it selected last.
        read: LastRead<'s>,
        /// What it cost, the variables that it needed first included.
        cost: u64,
    },
    /// A binding acted on a validation of its policy, or on an error of the whole.
    Decided(BindingDecision<'s>),
    /// A mutation changed the object.
    Changed {
        /// What changed, as a JSON Patch.
        patch: String,
    },
    /// Policies and webhooks that want to see what others changed after them run once more.
    Again,
    /// A webhook was considered. Its match conditions follow, if it has any.
    Webhook {
        /// Which.
        webhook: &'s Webhook,
        /// Whether it applies.
        finding: MatchFinding<'s>,
    },
    /// That webhook is to be asked.
    Asked {
        /// How.
        call: &'s Call,
        /// Whether its answer is only compared, once the reply is on its way.
        is_shadow: bool,
    },
    /// A webhook answered, or there is no answer. What it changed follows.
    Answered(&'s WebhookResult),
    /// An AdmissionException was considered that names what denies the request.
    Exception {
        /// Its name.
        name: &'s str,
        /// The policy, or `configuration/webhook`.
        policy: &'s str,
        /// Whether it excuses the denial, or why not.
        found: Result<(), NotExcused>,
    },
    /// An initializer is to be passed.
    Initializer {
        /// The name of its configuration.
        configuration: &'s str,
        /// Its name, which is that of its policy.
        name: &'s str,
        /// Whether there is such a policy.
        is_there: bool,
    },
}

/// The part of the object that an expression selected last.
#[derive(Debug, Clone, Copy)]
pub struct LastRead<'s>(pub(crate) &'s Activation<'s>);

impl LastRead<'_> {
    /// It, as a JSON Pointer; `None` where the expression selected nothing of the object. See
    /// [`Activation::last_read`].
    #[must_use]
    pub fn pointer(&self) -> Option<String> {
        self.0.last_read()
    }
}

/// What a ValidatingAdmissionPolicy says, and what its binding makes of it.
#[derive(Debug, Clone, Copy)]
pub struct BindingDecision<'s> {
    /// The name of the policy.
    pub policy: &'s str,
    /// The name of the binding; none for an error that concerns all of them.
    pub binding: Option<&'s str>,
    /// The place of the validation among those of the policy, unless it is an error that
    /// concerns all of them.
    pub index: Option<usize>,
    /// What it says.
    pub decision: &'s ValidationDecision,
    /// What the binding does where that does not admit.
    pub actions: &'s [ValidationAction],
    /// What lets it pass nevertheless.
    pub exception: Option<&'s Exception>,
}

/// Whether a policy or binding applies, or why not.
#[derive(Debug)]
pub enum MatchFinding<'s> {
    /// It does.
    Applies {
        /// As which resource.
        resource: &'s GroupVersionResource<'s>,
    },
    /// It does not.
    Misses(Mismatch),
    /// It cannot be said; the failure policy decides.
    Fails(String),
}

/// A part of a policy that is an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyExpression<'s> {
    /// The match condition of this name.
    Condition(&'s str),
    /// The object condition of this name, of an AuthorizationPolicy.
    ObjectCondition(&'s str),
    /// One of `validations`.
    Validation(usize),
    /// The `messageExpression` of one of them.
    Message(usize),
    /// The audit annotation of this key.
    Annotation(&'s str),
    /// One of `mutations`.
    Mutation(usize),
}

/// A value as JSON; what is not JSON is named by its type, in angle brackets.
#[must_use]
pub fn to_json(value: &Value<'_>) -> String {
    let mut text = String::new();
    if changes::write(&mut text, value).is_err() {
        text.clear();
        write_string(&mut text, &format!("<{}>", value.type_of()));
    }
    text
}
