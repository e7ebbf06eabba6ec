//! Admission: whether an object may be stored, and with which changes.
//!
//! ```text
//! Request ─▶ AdmissionSet ─▶ matching: which policies apply
//!                │               │
//!                │               ▼
//!                │           environment, variables: their expressions
//!                ▼               │
//!             Outcome ◀──────────┘  denial, warnings, audit annotations, patch
//!                ▲
//!                └── exceptions: single denials that somebody vouches for
//! ```

mod access_requests;
pub mod apply;
mod authorizer;
mod candidates;
pub mod chain;
mod changes;
mod environment;
pub mod exceptions;
mod initializers;
mod invocation;
pub mod matching;
pub mod mutating;
mod outcome;
mod parameters;
mod reauthorization;
mod registrations;
mod request;
pub mod run;
mod set;
pub mod validating;
mod variables;
pub mod webhook;

use std::borrow::Cow;

use crate::model::StatusReason;
use matching::Constraints;

pub use access_requests::is_access_request_write;
pub(crate) use access_requests::validate as validate_access_request;
pub use authorizer::AccessChecker;
pub use chain::{Chain, Progress};
pub use changes::{ChangeError, ChangedObject, MAX_OBJECT, ObjectMemory, TakenMemory};
pub use environment::{Expression, ExpressionEnvironment, may_read};
pub use initializers::{Initializer, InitializerConfiguration, InitializerRule};
pub use mutating::MutatingPolicy;
pub use outcome::{MissingGrants, Outcome, PolicyEvaluation, Warnings};
pub use parameters::{NotFound, ParamFault, ParamKind, ParamRef, ParamTarget, Parameters, UnknownObjects};
pub use registrations::{Registration, Registrations};
pub use request::{CONNECT_VERBS, GroupVersionKind, GroupVersionResource, Operation, Request};
pub use run::{GrantReview, OwnKindValidator, Phase, RunOptions, ValidationReport};
pub use set::{AdmissionObjects, AdmissionPolicies, AdmissionSet, AdmissionSettings};
pub use validating::ValidatingPolicy;
pub use variables::{ExpressionResult, MatchConditions};
pub use webhook::Reinvocation;

/// The end of the names of static policies, bindings and webhook configurations, which no API
/// server stores under such names: they come from files alone (KEP-5793).
pub const STATIC_SUFFIX: &str = ".static.k8s.io";

/// `FailurePolicyType`: what an error in a policy does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// The request is refused.
    #[default]
    Fail,
    /// As if the policy did not apply.
    Ignore,
}

/// The part of a policy that says when it applies.
#[derive(Debug)]
pub struct Applicability {
    /// `metadata.name`, by which policies are ordered.
    pub name: String,
    /// Whether it comes from a file under a name with [`STATIC_SUFFIX`]: it goes before
    /// others, and judges policies and bindings too, which others never see.
    pub is_static: bool,
    /// `spec.failurePolicy`.
    pub failure_policy: FailurePolicy,
    /// `spec.matchConstraints`.
    pub constraints: Constraints,
    /// `spec.matchConditions`: all must hold.
    pub match_conditions: Vec<CompiledMatchCondition>,
    /// `spec.paramKind`.
    pub param_kind: Option<ParamKind>,
}

/// One of `matchConditions`.
#[derive(Debug)]
pub struct CompiledMatchCondition {
    /// Its name.
    pub name: String,
    /// Of type bool.
    pub expression: Expression,
}

/// The part of a binding that both kinds have.
#[derive(Debug)]
pub struct PolicyBinding {
    /// `metadata.name`, by which the bindings of a policy are ordered.
    pub name: String,
    /// Whether it comes from a file under a name with [`STATIC_SUFFIX`]: only such a one
    /// has its policy judge policies and bindings.
    pub is_static: bool,
    /// `spec.policyName`.
    pub policy: String,
    /// `spec.paramRef`.
    pub param_ref: Option<ParamRef>,
    /// `spec.matchResources`, which narrows the policy's constraints.
    pub constraints: Option<Constraints>,
    /// `spec.validationActions`, in the order written; empty for a mutating policy's.
    pub actions: Vec<ValidationAction>,
}

/// `ValidationAction`: what a failed validation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValidationAction {
    /// Refuses the request.
    Deny,
    /// Warns the user.
    Warn,
    /// Writes into the audit log.
    Audit,
}

/// Why a request is refused, as a `metav1.Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// `Failure`, but webhooks give what they like.
    pub status: Cow<'static, str>,
    /// What sort of refusal: mostly one of [`StatusReason`], but webhooks give what they like.
    pub reason: Cow<'static, str>,
    /// The HTTP status code; mostly that of the reason.
    pub code: i32,
    /// What and why, for the user.
    pub message: String,
    /// What it is about.
    pub details: StatusDetails,
}

/// `metav1.StatusDetails`; what is empty is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusDetails {
    /// The name of the object.
    pub name: String,
    /// The group of the resource.
    pub group: String,
    /// The resource, which Kubernetes calls its kind here.
    pub kind: String,
    /// The uid of the object.
    pub uid: String,
    /// Each cause.
    pub causes: Vec<StatusCause>,
    /// After how many seconds to try again; 0 if nobody says.
    pub retry_after_seconds: i32,
}

/// `metav1.StatusCause`; what is empty is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusCause {
    /// What sort of cause.
    pub reason: String,
    /// What and why, for people.
    pub message: String,
    /// The field of the object.
    pub field: String,
}

// === impl ValidationAction ===

impl ValidationAction {
    /// As bindings spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Warn => "Warn",
            Self::Audit => "Audit",
        }
    }

    /// The action that a binding spells so.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Deny" => Some(Self::Deny),
            "Warn" => Some(Self::Warn),
            "Audit" => Some(Self::Audit),
            _ => None,
        }
    }
}

// === impl Denial ===

impl Denial {
    /// The `status` of a refusal.
    pub const FAILURE: &'static str = "Failure";

    /// A refusal of what could be stored and may not be.
    #[must_use]
    pub fn forbidden(message: String) -> Self {
        Self {
            status: Self::FAILURE.into(),
            reason: StatusReason::Forbidden.as_str().into(),
            code: StatusReason::Forbidden.code().into(),
            message,
            details: StatusDetails::default(),
        }
    }

    /// A refusal because too much is being reviewed.
    #[must_use]
    pub fn too_many_requests(message: String) -> Self {
        Self {
            status: Self::FAILURE.into(),
            reason: StatusReason::TooManyRequests.as_str().into(),
            code: StatusReason::TooManyRequests.code().into(),
            message,
            details: StatusDetails::default(),
        }
    }

    /// About how many bytes of memory it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let Self {
            status,
            reason,
            message,
            details,
            ..
        } = self;
        let own = [status.len(), reason.len(), message.len()];
        let about = [&details.name, &details.group, &details.kind, &details.uid].map(String::len);
        let causes = details.causes.iter().map(|cause| {
            size_of::<StatusCause>() + cause.reason.len() + cause.message.len() + cause.field.len()
        });
        size_of::<Self>() + own.into_iter().chain(about).chain(causes).sum::<usize>()
    }
}

// === impl StatusDetails ===

impl StatusDetails {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

// === impl StatusCause ===

impl StatusCause {
    /// A cause of which only the words are known.
    #[must_use]
    pub fn of(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }
}
