//! The options of a run of admission, the context that its parts share, and the steps of its trace.
//!
//! Recording does not influence the run: a recorder only observes its steps.

use super::authorizer::{AccessChecker, AuthorizerVariables};
use super::changes::{self, ChangeLimits, ObjectMemory};
use super::exceptions::{Exception, NotExcused};
use super::matching::Mismatch;
use super::outcome::ValidationDecision;
use super::request::Request;
use super::webhook::{Call, Webhook, WebhookResult};
use super::{GroupVersionResource, StatusCause, ValidationAction};
use crate::authorization::PolicySet;
use crate::model::{CauseKind, Deadline, Time};
use portcullis_cel::json::write_string;
use portcullis_cel::{Activation, EvalError, Program, Value};

/// Observes each step of a run, in order.
pub trait Recorder {
    /// Called before an expression is evaluated. The next step has its result.
    fn begin(&self) {}

    /// Called for each step.
    fn record(&self, step: TraceStep<'_>);
}

/// One step of a run.
#[derive(Debug)]
pub enum TraceStep<'s> {
    /// A policy was matched against the request.
    Policy {
        /// Its kind.
        kind: CauseKind,
        /// Its name.
        name: &'s str,
        /// Whether it applies.
        finding: MatchFinding<'s>,
    },
    /// A binding of that policy was matched against the request.
    Binding {
        /// Its name.
        name: &'s str,
        /// Whether it applies.
        finding: MatchFinding<'s>,
    },
    /// The policy is evaluated for one binding, and for one parameter if it has a `paramKind`.
    Run {
        /// The name of the policy.
        policy: &'s str,
        /// The name of the binding.
        binding: &'s str,
        /// Namespace and name of the parameter; the namespace is empty for cluster-scoped objects.
        parameter: Option<(String, String)>,
    },
    /// A variable was evaluated, because an expression used it.
    Variable {
        /// Its name.
        name: &'s str,
        /// Its expression, compiled.
        program: &'s Program,
        /// Its value, or why it has none.
        result: Result<&'s Value<'s>, &'s EvalError>,
    },
    /// An expression was evaluated.
    Expression {
        /// Where in the policy it is.
        part: PolicyExpression<'s>,
        /// Its text, as written.
        text: &'s str,
        /// Its compiled form.
        program: &'s Program,
        /// Its value, or why it has none.
        result: Result<&'s Value<'s>, &'s EvalError>,
        /// The field of the object that it selected last.
        read: LastSelectedField<'s>,
        /// Its CEL cost, including the variables that were evaluated for it.
        cost: u64,
    },
    /// The result of one validation, or an error of the whole policy, and the actions of the
    /// binding.
    Decided(BindingDecision<'s>),
    /// A mutation changed the object.
    Changed {
        /// The difference as a JSON Patch.
        patch: String,
    },
    /// Policies and webhooks with `reinvocationPolicy: IfNeeded` run again, because the object
    /// changed after them.
    Reinvocation,
    /// A webhook was matched against the request. Its match conditions follow, if it has any.
    Webhook {
        /// The webhook.
        webhook: &'s Webhook,
        /// Whether it applies.
        finding: MatchFinding<'s>,
    },
    /// That webhook is to be called.
    Called {
        /// The call.
        call: &'s Call,
        /// Whether its response is only compared, after the reply has been sent.
        is_shadow: bool,
    },
    /// The result of a call: a response or a failure. The changes that the webhook made follow.
    CallCompleted(&'s WebhookResult),
    /// An AdmissionException that names the denying policy or webhook was checked.
    Exception {
        /// Its name.
        name: &'s str,
        /// The policy, or `configuration/webhook`.
        policy: &'s str,
        /// Whether it excuses the denial, or why not.
        found: Result<(), NotExcused>,
    },
    /// An initializer has to be applied.
    Initializer {
        /// The name of its configuration.
        configuration: &'s str,
        /// The name of the initializer, which is also that of its MutatingAdmissionPolicy.
        name: &'s str,
        /// Whether that policy exists.
        is_there: bool,
    },
}

/// The field of the object that an expression selected last.
#[derive(Debug, Clone, Copy)]
pub struct LastSelectedField<'s>(pub(crate) &'s Activation<'s>);

impl LastSelectedField<'_> {
    /// The field as a JSON Pointer; `None` if the expression selected nothing of the object. See
    /// [`Activation::last_read`].
    #[must_use]
    pub fn pointer(&self) -> Option<String> {
        self.0.last_read()
    }
}

/// One decision of a ValidatingAdmissionPolicy, and what its binding does with it.
#[derive(Debug, Clone, Copy)]
pub struct BindingDecision<'s> {
    /// The name of the policy.
    pub policy: &'s str,
    /// The name of the binding; `None` for an error that concerns all bindings.
    pub binding: Option<&'s str>,
    /// The index of the validation in `spec.validations`; `None` for an error that concerns all
    /// validations.
    pub index: Option<usize>,
    /// The decision.
    pub decision: &'s ValidationDecision,
    /// The `validationActions` of the binding, which take effect unless the decision admits.
    pub actions: &'s [ValidationAction],
    /// The exception that excuses the denial, if any.
    pub exception: Option<&'s Exception>,
}

/// Whether a policy, binding or webhook applies, or why not.
#[derive(Debug)]
pub enum MatchFinding<'s> {
    /// It applies.
    Applies {
        /// The resource by which it matched.
        resource: &'s GroupVersionResource<'s>,
    },
    /// It does not apply.
    Misses(Mismatch),
    /// It could not be determined; the failure policy decides.
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
    /// The `messageExpression` of one of `validations`.
    Message(usize),
    /// The audit annotation of this key.
    Annotation(&'s str),
    /// One of `mutations`.
    Mutation(usize),
}

/// A value as JSON. A value that JSON cannot represent is written as its type in angle brackets.
#[must_use]
pub fn to_json(value: &Value<'_>) -> String {
    let mut text = String::new();
    if changes::write(&mut text, value).is_err() {
        text.clear();
        write_string(&mut text, &format!("<{}>", value.type_of()));
    }
    text
}

/// The options of a run.
#[derive(Clone, Copy)]
pub struct RunOptions<'r> {
    /// Evaluates only the policy of this name; all if `None`.
    pub only: Option<&'r str>,
    /// The deadline of the run.
    pub deadline: Deadline<'r>,
    /// The time as of which the request is decided.
    pub now: Time,
    /// Answers access checks of expressions.
    pub access: &'r dyn AccessChecker,
    /// For authorizing the request again at `/validate`, now that its object is known; `None`: it
    /// is not authorized again.
    pub reauthorization: Option<GrantReview<'r>>,
    /// The validator of Portcullis' own kinds, if any.
    pub own_kinds: Option<&'r dyn OwnKindValidator>,
    /// Set for an object that is stored already or only proposed, so that the requester and the
    /// former object are not known. Expressions that use `request.userInfo`, `authorizer` or
    /// `oldObject` have no value ([`EvalError::Unknown`]), and no exception with subjects applies.
    pub requester_unknown: bool,
    /// The memory budget of changed objects; `None`: unlimited.
    pub memory: Option<&'r dyn ObjectMemory>,
    /// Records each step.
    pub recorder: Option<&'r dyn Recorder>,
}

/// Decides at `/validate` whether the request, with its object, is authorized.
#[derive(Debug, Clone, Copy)]
pub struct GrantReview<'r> {
    /// The policies of the cluster.
    pub policies: &'r PolicySet,
    /// Whether another authorizer was asked and allows the request.
    pub is_allowed_elsewhere: bool,
}

/// The request and options that all parts of a run share.
#[derive(Clone, Copy)]
pub(crate) struct RunContext<'c> {
    pub(crate) request: &'c Request<'c>,
    pub(crate) access: &'c AuthorizerVariables<'c>,
    pub(crate) run: RunOptions<'c>,
}

impl<'c> RunContext<'c> {
    /// The limits for changes of the object.
    pub(crate) fn limits(&self) -> ChangeLimits<'c> {
        ChangeLimits::of(self.request, self.run.memory)
    }

    /// The same context without a recorder.
    pub(crate) const fn unrecorded(self) -> Self {
        let run = RunOptions {
            recorder: None,
            ..self.run
        };
        Self { run, ..self }
    }
}

impl<'r> RunOptions<'r> {
    /// All policies as of `now`, without a deadline.
    #[must_use]
    pub const fn new(access: &'r dyn AccessChecker, now: Time) -> Self {
        Self {
            only: None,
            deadline: Deadline::NEVER,
            now,
            access,
            reauthorization: None,
            own_kinds: None,
            requester_unknown: false,
            memory: None,
            recorder: None,
        }
    }

    /// Records a step, if there is a recorder.
    pub(crate) fn record<'s>(&self, step: impl FnOnce() -> TraceStep<'s>) {
        if let Some(recorder) = self.recorder {
            recorder.record(step());
        }
    }
}

// The phases of admission: validate and mutate.

/// The phase of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// `/validate`, in which requests may be rejected.
    Validate,
    /// `/mutate`, in which objects may be changed.
    Mutate,
}

impl Phase {
    /// The number of phases.
    pub const COUNT: usize = 2;
    /// All phases, in the order of [`index`](Self::index).
    pub const ALL: [Self; Self::COUNT] = [Self::Validate, Self::Mutate];

    /// The index in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in paths, metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validate => "validate",
            Self::Mutate => "mutate",
        }
    }
}

// Validation of Portcullis' own kinds when they are created or updated.

/// Validates writes of Portcullis' own kinds.
pub trait OwnKindValidator: Sync {
    /// Returns the errors of the object of `request` and of what it would grant; `None` if it is of
    /// another kind, or the operation is not validated. The result is meaningless once the deadline
    /// of `run` has passed.
    fn validate(&self, request: &Request<'_>, run: RunOptions<'_>) -> Option<ValidationReport>;
}

/// The errors and warnings that `check` would report for an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValidationReport {
    /// Errors in the object; empty if it is valid.
    pub faults: Vec<StatusCause>,
    /// Why the object may not be written although it is valid; empty if it may.
    pub forbidden: Vec<String>,
    /// Probable mistakes.
    pub warnings: Vec<String>,
    /// It is rejected because of an unknown role, whose creation may not have been observed yet.
    pub awaits_role: bool,
    /// It is rejected because there is no memory to read it.
    pub lacks_memory: bool,
}
