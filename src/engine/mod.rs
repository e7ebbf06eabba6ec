//! The decision. No IO, clock, HTTP, YAML or wire types.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod admission;
mod attributes;
pub mod authorizer;
pub mod condition;
mod decision;
#[cfg(test)]
mod fixtures;
mod index;
pub mod matching;
mod never_deny;
mod objects;
mod policies;
mod policy_set;
pub mod rbac;
pub mod selector;
mod text;
mod trace;
mod walk;

pub use attributes::{Attributes, Operator, Requirement, ResourceAttributes, Selectors, Target, User};
pub use condition::{Condition, ConditionFault};
pub use decision::{Authorization, Cause, CauseKind, Decision, Shadow, Unmatched};
pub use objects::{
    AuthorizationPolicy, Binding, Effect, FailurePolicy, Mode, NeverDeny, NonResourceRule, Objects,
    ResourceRule, Role, RoleRef, Rule, ServiceAccount, Subject, SubjectKind,
};
pub use policies::Policies;
pub use policy_set::PolicySet;
pub use trace::{Criterion, Evaluation, Event, Finding, Observer, Trace};
