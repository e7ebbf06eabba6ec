//! Authorization: may this user do that? RBAC, AuthorizationPolicies, and the
//! authorizers asked where neither decides.
//!
//! ```text
//! Objects ─▶ PolicySet ──▶ walk: Deny policies ─▶ RBAC ─▶ Allow policies ─▶ Authorization
//!             └ index: which rules could apply   └ rbac, matching: whether one does
//! ```

mod access;
mod answer;
mod authorize;
pub mod authorizer;
mod binding_list;
pub mod condition;
mod control_plane;
#[cfg(test)]
mod fixtures;
mod index;
mod listed_policy;
pub mod matching;
mod never_deny;
mod objects;
mod periods;
mod policies;
mod policy_set;
pub mod rbac;
mod reason;
mod role_ref;
mod rule_match;
mod subject;
mod trace;
mod version;
mod walk;

pub use access::{AllowedShare, Grantee, OpenRequest, OpenResource, OpenTarget, Permission, Via, Within};
pub use answer::{Authorization, Shadow, Unmatched};
pub use condition::{Condition, ConditionFault};
pub use control_plane::CONTROL_PLANE;
pub use objects::{
    AuthorizationPolicy, Binding, Effect, FailurePolicy, Mode, NamespaceLabels, NeverDeny, NonResourceRule,
    Objects, ResourceRule, Role, Rule, ServiceAccount, SharedObjects,
};
pub use policies::Policies;
pub use policy_set::{PolicySet, PolicySetChange};
pub use reason::AuthorizationReason;
pub use role_ref::{RoleKind, RoleRef};
pub use rule_match::RuleMatch;
pub use subject::{Subject, SubjectKind};
pub use trace::{Criterion, Event, Finding, Observer, Trace};
pub use version::SubjectAccessReviewVersion;
