//! Admission: what an API server may store, and with which changes.
//!
//! ```text
//! Request ─▶ AdmissionSet ─▶ matching: which policies apply
//!                │               │
//!                │               ▼
//!                │           environment, variables, evaluation: their expressions
//!                ▼               │
//!             Outcome ◀──────────┘  denial, warnings, audit annotations, patch
//! ```

mod admit;
pub mod apply;
mod authorizer;
pub mod conditions;
mod environment;
mod evaluation;
mod initializers;
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

pub use admit::Run;
pub use authorizer::Authority;
pub use environment::{Environment, Expression};
pub use evaluation::{Clock, Evaluated};
pub use initializers::{Initializer, InitializerConfiguration, InitializerRule};
pub use mutating::MutatingPolicy;
pub use outcome::{Denial, Outcome, Reason, Warnings};
pub use parameters::{NotFound, ParamFault, ParamKind, ParamRef, ParamTarget, Parameters};
pub use policy::{Action, Applicability, Binding, Condition, FailurePolicy};
pub use request::{GroupVersionKind, GroupVersionResource, Operation, Request};
pub use set::{AdmissionObjects, AdmissionPolicies, AdmissionSet, AdmissionSettings};
pub use validating::ValidatingPolicy;
