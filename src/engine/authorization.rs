//! Authorization: may this user do that? RBAC, AuthorizationPolicies, and the
//! authorizers asked where neither decides.
//!
//! ```text
//! Objects ─▶ PolicySet ──▶ walk: Deny policies ─▶ RBAC ─▶ Allow policies ─▶ Authorization
//!             └ index: which rules could apply   └ rbac, matching: whether one does
//! ```

mod answer;
mod authorize;
pub mod authorizer;
pub mod condition;
mod control_plane;
#[cfg(test)]
mod fixtures;
mod index;
pub mod matching;
mod never_deny;
mod objects;
mod periods;
mod policies;
mod policy_set;
pub mod rbac;
mod trace;
mod version;
mod walk;

pub use answer::{Authorization, Shadow, Unmatched};
pub use condition::{Condition, ConditionFault};
pub use control_plane::CONTROL_PLANE;
pub use objects::{
    AuthorizationPolicy, Binding, Effect, FailurePolicy, Mode, NamespaceLabels, NeverDeny, NonResourceRule,
    Objects, ResourceRule, Role, RoleRef, Rule, ServiceAccount, Subject, SubjectKind,
};
pub use policies::Policies;
pub use policy_set::PolicySet;
pub use trace::{Criterion, Event, Finding, Observer, Trace};
pub use version::SubjectAccessReviewVersion;
