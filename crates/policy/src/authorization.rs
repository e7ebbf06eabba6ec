//! Authorization: may this user do that? RBAC, AuthorizationPolicies, and the
//! authorizers asked where neither decides.
//!
//! ```text
//! Objects ─▶ PolicySet ──▶ walk: Denies, Limits ─▶ RBAC ─▶ Allows ─▶ AccessRequests ─▶ Authorization
//!             └ index: which rules could apply   └ rbac, matching: whether one does
//! ```

mod access;
mod access_request;
mod answer;
pub mod authorizer;
pub mod condition;
mod conditional;
mod escalations;
mod index;
mod interner;
pub mod matching;
mod never_deny;
mod objects;
mod policy_set;
pub mod proof;
pub mod rbac;
mod reviewed_resources;
mod rule_match;
mod walk;

pub use access::{AllowedShare, Grantee, OpenRequest, OpenResource, OpenTarget, Permission, Via, Within};
pub(crate) use access_request::AccessGrant;
pub use access_request::{AccessRequestSettings, AccessRequestState, AccessRequestTrust};
pub use answer::{Authorization, AuthorizationReason, NearMisses, Shadow};
pub use answer::{Finding, Observer, Trace, TraceEntry};
pub use authorizer::SubjectAccessReviewVersion;
pub use condition::{Condition, ConditionError, ObjectCondition};
pub(crate) use conditional::{ConditionalPolicy, conditions_of};
pub(crate) use escalations::RUNS;
pub use escalations::{
    EscalationPath, EscalationQuery, EscalationStep, EscalationTarget, Escalations, Identity, NeededWorkload,
    ObjectName, STEP_KINDS, StepKind, WorkloadAdmission,
};
pub(crate) use never_deny::MASTERS;
pub use never_deny::{CONTROL_PLANE, NeverDeny};
pub use objects::{
    AccessEntry, AccessRequest, AccessRequester, AuthorizationInvariant, AuthorizationPolicy, Binding,
    Effect, Enforcement, FailurePolicy, Mode, NamespaceLabels, NonResourceRule, Objects, ResourceRule, Role,
    RoleKind, RoleRef, ServiceAccount, SharedObjects, Subject, SubjectKind,
};
pub use policy_set::{ChangedPolicies, ClusterPolicySets, ObjectWrite, PolicySet, PolicySetChange};
pub use rbac::Rule;
pub(crate) use reviewed_resources::is_left_out;
pub use reviewed_resources::{
    AdmissionCoverage, FORMER_GRANT_RETENTION_SECONDS, NEW_GRANT_DELAY_SECONDS, NotGranted, ReviewKnowledge,
    ReviewedResources,
};
pub use rule_match::{Criterion, RuleMatch};

#[cfg(test)]
use tests::fixtures;

#[cfg(test)]
mod tests {
    pub(crate) mod fixtures;
}
