//! The options of a run, the context that its parts share, and the steps that are recorded of it.
//!
//! Recording does not change the run: a recorder only observes its steps.

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

/// How to run the policies.
#[derive(Clone, Copy)]
pub struct RunOptions<'r> {
    /// Only the policy of this name; all if there is none.
    pub only: Option<&'r str>,
    /// When to give up.
    pub deadline: Deadline<'r>,
    /// The instant for which it is decided.
    pub now: Time,
    /// What answers the questions about access that expressions put.
    pub access: &'r dyn AccessChecker,
    /// By which policies requests were allowed that are validated; `None`: nobody asks again.
    pub grants: Option<GrantReview<'r>>,
    /// Who judges the gateway's own kinds, if anybody.
    pub own_kinds: Option<&'r dyn OwnKindValidator>,
    /// The object is there already, or only proposed: nobody knows who asks, nor what was there
    /// before. Expressions that look at `request.userInfo`, `authorizer` or `oldObject` have no
    /// value ([`EvalError::Unknown`]), and no exception with
    /// subjects applies.
    pub requester_unknown: bool,
    /// The memory that changed objects take; as much as there is, if nobody says.
    pub memory: Option<&'r dyn ObjectMemory>,
    /// The recorder of each step.
    pub recorder: Option<&'r dyn Recorder>,
}

/// What decides whether a request of `/validate` may have been allowed.
#[derive(Debug, Clone, Copy)]
pub struct GrantReview<'r> {
    /// The policies of the cluster.
    pub policies: &'r PolicySet,
    /// Whether another authorizer was asked, and allows the request.
    pub is_allowed_elsewhere: bool,
}

/// What all parts of a run have in common.
#[derive(Clone, Copy)]
pub(crate) struct RunContext<'c> {
    pub(crate) request: &'c Request<'c>,
    pub(crate) access: &'c AuthorizerVariables<'c>,
    pub(crate) run: RunOptions<'c>,
}

impl<'c> RunContext<'c> {
    /// What the object may become.
    pub(crate) fn limits(&self) -> ChangeLimits<'c> {
        ChangeLimits::of(self.request, self.run.memory)
    }

    /// The same, of which nothing is recorded.
    pub(crate) const fn unrecorded(self) -> Self {
        let run = RunOptions {
            recorder: None,
            ..self.run
        };
        Self { run, ..self }
    }
}

impl<'r> RunOptions<'r> {
    /// Every policy as at `now`, without a deadline.
    #[must_use]
    pub const fn new(access: &'r dyn AccessChecker, now: Time) -> Self {
        Self {
            only: None,
            deadline: Deadline::NEVER,
            now,
            access,
            grants: None,
            own_kinds: None,
            requester_unknown: false,
            memory: None,
            recorder: None,
        }
    }

    /// Records a step, if anybody wants a record.
    pub(crate) fn record<'s>(&self, step: impl FnOnce() -> TraceStep<'s>) {
        if let Some(recorder) = self.recorder {
            recorder.record(step());
        }
    }
}

// The phases of admission: validate and mutate.

/// Which half of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Who may refuse: `/validate`.
    Validate,
    /// Who may change: `/mutate`.
    Mutate,
}

impl Phase {
    /// How many there are.
    pub const COUNT: usize = 2;
    /// Each once, in the order of [`index`](Self::index).
    pub const ALL: [Self; Self::COUNT] = [Self::Validate, Self::Mutate];

    /// The place among all.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// As paths, metrics and logs spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validate => "validate",
            Self::Mutate => "mutate",
        }
    }
}

// Validation of the gateway's own kinds when they are created or updated.

/// Knows what may be written of the gateway's own kinds.
pub trait OwnKindValidator: Sync {
    /// What is wrong with the object of `request`, and with what it would grant; `None` where it is of
    /// another kind, or nothing that is judged is done to it. Once the deadline of `run` has passed,
    /// what is said means nothing.
    fn validate(&self, request: &Request<'_>, run: RunOptions<'_>) -> Option<ValidationReport>;
}

/// The errors and warnings that `check` would report for an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValidationReport {
    /// Why it cannot be used; empty where it can.
    pub faults: Vec<StatusCause>,
    /// Why it may not be written though it could be used; empty where it may.
    pub forbidden: Vec<String>,
    /// What it probably is not meant to do.
    pub warnings: Vec<String>,
    /// It is refused for a role that is not known, and that may have been written a moment ago.
    pub awaits_role: bool,
    /// It is refused, because there is no memory to read it.
    pub lacks_memory: bool,
}
