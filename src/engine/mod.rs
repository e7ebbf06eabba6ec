//! The decision. No IO, clock, HTTP, YAML or wire types.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod admission;
mod attributes;
pub mod condition;
mod decision;
pub mod matching;
mod objects;
pub mod rbac;
mod trace;

pub use attributes::{Attributes, Operator, Requirement, ResourceAttributes, Selectors, Target, User};
pub use condition::Condition;
pub use decision::{Authorization, Cause, CauseKind, Decision, Shadow, Unmatched};
pub use objects::{
    AuthorizationPolicy, Binding, Effect, FailurePolicy, Mode, NeverDeny, NonResourceRule, Objects,
    ResourceRule, Role, RoleRef, Rule, ServiceAccount, Subject, SubjectKind,
};
pub use trace::{Criterion, Evaluation, Event, Finding, Observer, Trace};
