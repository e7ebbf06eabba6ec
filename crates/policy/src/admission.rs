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
mod denial;
mod environment;
pub mod exceptions;
mod initializers;
mod invocation;
pub mod matching;
pub mod mutating;
mod outcome;
mod parameters;
mod policy;
mod reauthorization;
mod registrations;
mod request;
mod run;
mod set;
pub mod trace;
pub mod validating;
mod variables;
pub mod webhook;

pub use access_requests::is_access_request_write;
pub(crate) use access_requests::validate as validate_access_request;
pub use authorizer::AccessChecker;
pub use chain::{Chain, Progress};
pub use changes::{ChangeError, ChangedObject, MAX_OBJECT, ObjectMemory, TakenMemory};
pub use denial::{Denial, StatusCause, StatusDetails};
pub use environment::{Expression, ExpressionEnvironment, may_read};
pub use initializers::{Initializer, InitializerConfiguration, InitializerRule};
pub use mutating::MutatingPolicy;
pub use outcome::{MissingGrants, Outcome, PolicyEvaluation, Warnings};
pub use parameters::{NotFound, ParamFault, ParamKind, ParamRef, ParamTarget, Parameters, UnknownObjects};
pub use policy::{
    Applicability, CompiledMatchCondition, FailurePolicy, PolicyBinding, STATIC_SUFFIX, ValidationAction,
};
pub use registrations::{Registration, Registrations};
pub use request::{CONNECT_VERBS, GroupVersionKind, GroupVersionResource, Operation, Request};
pub use run::{GrantReview, OwnKindValidator, Phase, RunOptions, ValidationReport};
pub use set::{AdmissionObjects, AdmissionPolicies, AdmissionSet, AdmissionSettings};
pub use validating::ValidatingPolicy;
pub use variables::{ExpressionResult, MatchConditions};
pub use webhook::Reinvocation;
