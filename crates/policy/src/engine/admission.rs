//! Admission: whether an object may be stored, and with which changes.
//!
//! ```text
//! Request ─▶ AdmissionSet ─▶ matching: which policies apply
//!                │               │
//!                │               ▼
//!                │           environment, variables, evaluation: their expressions
//!                ▼               │
//!             Outcome ◀──────────┘  denial, warnings, audit annotations, patch
//!                ▲
//!                └── exceptions: single denials that somebody vouches for
//! ```

pub mod apply;
mod authorizer;
mod bound;
pub mod chain;
mod changes;
pub mod conditions;
mod decision;
mod denial;
mod environment;
mod evaluation;
pub mod exceptions;
mod initializers;
mod invocation;
pub mod judge;
pub mod matching;
pub mod mutating;
mod namespace;
mod outcome;
mod parameters;
mod phase;
mod policy;
mod reads;
mod reinvocation;
mod request;
mod run;
mod set;
mod status;
mod to_json;
pub mod trace;
pub mod validating;
mod variables;
mod warnings;
pub mod webhook;
mod webhooks;

pub use authorizer::AccessChecker;
pub use chain::{Chain, Progress};
pub use changes::{ChangeError, ChangedObject, MAX_OBJECT, ObjectMemory, TakenMemory};
pub use denial::{Denial, StatusCause, StatusDetails};
pub use environment::{Expression, ExpressionEnvironment};
pub use evaluation::Evaluated;
pub use initializers::{Initializer, InitializerConfiguration, InitializerRule};
pub use mutating::MutatingPolicy;
pub use outcome::{Outcome, PolicyEvaluation};
pub use parameters::{NotFound, ParamFault, ParamKind, ParamRef, ParamTarget, Parameters, UnknownObjects};
pub use phase::Phase;
pub use policy::{
    Applicability, CompiledMatchCondition, FailurePolicy, PolicyBinding, STATIC_SUFFIX, ValidationAction,
};
pub use reads::may_read;
pub use reinvocation::Reinvocation;
pub use request::{GroupVersionKind, GroupVersionResource, Operation, Request};
pub use run::Run;
pub use set::{AdmissionObjects, AdmissionPolicies, AdmissionSet, AdmissionSettings};
pub use validating::ValidatingPolicy;
pub use warnings::Warnings;
