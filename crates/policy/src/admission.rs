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
//!                └── exceptions: excuse individual denials
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
pub use outcome::{AlternativeGrants, Outcome, PolicyEvaluation, Warnings};
pub use parameters::{NotFound, ParamError, ParamKind, ParamRef, ParamTarget, Parameters, UnknownObjects};
pub use registrations::{GatewayWebhooks, Registration};
pub use request::{CONNECT_VERBS, GroupVersionKind, GroupVersionResource, Operation, Request};
pub use run::{GrantReview, OwnKindValidator, Phase, RunOptions, ValidationReport};
pub use set::{AdmissionObjects, AdmissionPolicies, AdmissionSet, AdmissionSettings};
pub use validating::ValidatingPolicy;
pub use variables::{ExpressionResult, MatchConditions};
pub use webhook::Reinvocation;

/// The suffix of the names of static policies, bindings and webhook configurations (KEP-5793). They
/// come from files only: API servers store no objects with such names.
pub const STATIC_SUFFIX: &str = ".static.k8s.io";

/// `FailurePolicyType`: what an error in a policy does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// The request is rejected.
    #[default]
    Fail,
    /// The policy is treated as if it did not apply.
    Ignore,
}

/// The part of a policy that says when it applies.
#[derive(Debug)]
pub struct Applicability {
    /// `metadata.name`, by which policies are ordered.
    pub name: String,
    /// Whether it comes from a file and its name ends in [`STATIC_SUFFIX`]. Static policies are
    /// evaluated before others, and also for policies and bindings, which other policies never see.
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
    /// The expression, of type bool.
    pub expression: Expression,
}

/// A ValidatingAdmissionPolicyBinding or MutatingAdmissionPolicyBinding.
#[derive(Debug)]
pub struct PolicyBinding {
    /// `metadata.name`, by which the bindings of a policy are ordered.
    pub name: String,
    /// Whether it comes from a file and its name ends in [`STATIC_SUFFIX`]. Only static bindings
    /// apply their policy to policies and bindings.
    pub is_static: bool,
    /// `spec.policyName`.
    pub policy: String,
    /// `spec.paramRef`.
    pub param_ref: Option<ParamRef>,
    /// `spec.matchResources`, which narrows the policy's constraints.
    pub constraints: Option<Constraints>,
    /// `spec.validationActions`, in the order written; empty for a MutatingAdmissionPolicyBinding.
    pub actions: Vec<ValidationAction>,
}

/// `ValidationAction`: what a failed validation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValidationAction {
    /// Rejects the request.
    Deny,
    /// Warns the user.
    Warn,
    /// Adds an audit annotation.
    Audit,
}

/// Why a request is denied, as a `metav1.Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// `Failure`, unless a webhook sets another status.
    pub status: Cow<'static, str>,
    /// The machine-readable reason: one of [`StatusReason`], unless a webhook sets another one.
    pub reason: Cow<'static, str>,
    /// The HTTP status code: that of the reason, unless a webhook sets another one.
    pub code: i32,
    /// The message for the user.
    pub message: String,
    /// The object that the request is about.
    pub details: StatusDetails,
}

/// `metav1.StatusDetails`; empty fields are absent.
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
    /// The individual causes.
    pub causes: Vec<StatusCause>,
    /// After how many seconds to retry; 0 if not set.
    pub retry_after_seconds: i32,
}

/// `metav1.StatusCause`; empty fields are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusCause {
    /// The machine-readable reason.
    pub reason: String,
    /// The message for the user.
    pub message: String,
    /// The field of the object.
    pub field: String,
}

// === impl ValidationAction ===

impl ValidationAction {
    /// The value in `validationActions`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Warn => "Warn",
            Self::Audit => "Audit",
        }
    }

    /// Parses a value of `validationActions`.
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
    /// The `status` of a denial.
    pub const FAILURE: &'static str = "Failure";

    /// A denial with the reason Forbidden.
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

    /// A denial with the reason TooManyRequests: there is no capacity for another review.
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

    /// The approximate number of bytes that it occupies in memory.
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
    /// Whether no field is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

// === impl StatusCause ===

impl StatusCause {
    /// A cause with a message only.
    #[must_use]
    pub fn of(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }
}
