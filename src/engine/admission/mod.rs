//! Admission: what an API server may store, and with which changes.
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

mod admit;
pub mod apply;
mod authorizer;
pub mod chain;
pub mod conditions;
mod environment;
mod evaluation;
pub mod exceptions;
mod initializers;
pub mod judge;
pub mod matching;
pub mod mutating;
mod outcome;
mod parameters;
mod policy;
mod request;
mod set;
pub mod trace;
pub mod validating;
mod variables;
pub mod webhook;
mod webhooks;

pub use admit::Run;
pub use authorizer::Authority;
pub use chain::{Chain, Phase, Progress};
pub use environment::{Environment, Expression};
pub use evaluation::{Clock, Evaluated};
pub use initializers::{Initializer, InitializerConfiguration, InitializerRule};
pub use mutating::MutatingPolicy;
pub use outcome::{Denial, Details, Outcome, Reason, StatusCause, Warnings};
pub use parameters::{NotFound, ParamFault, ParamKind, ParamRef, ParamTarget, Parameters};
pub use policy::{Action, Applicability, Binding, Condition, FailurePolicy};
pub use request::{GroupVersionKind, GroupVersionResource, Operation, Request};
pub use set::{AdmissionObjects, AdmissionPolicies, AdmissionSet, AdmissionSettings};
pub use validating::ValidatingPolicy;
