//! The options of a run, and the context that its parts share.

use super::authorizer::{AccessChecker, AuthorizerVariables};
use super::changes::{ChangeLimits, ObjectMemory};
use super::denial::StatusCause;
use super::request::Request;
use super::trace::{Recorder, TraceStep};
use crate::authorization::PolicySet;
use crate::model::{Deadline, Time};

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
    /// value ([`EvalError::Unknown`](portcullis_cel::EvalError::Unknown)), and no exception with
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
