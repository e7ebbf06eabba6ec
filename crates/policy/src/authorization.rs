//! Authorization: may this user do that? RBAC, AuthorizationPolicies, AccessRequests, and the other
//! authorizers that are called if none of these decides.
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
mod walk;

use std::fmt;

use serde::Serialize;
#[cfg(test)]
use tests::fixtures;

pub(crate) use access::SubjectScope;
pub use access::{AllowedShare, Grantee, OpenRequest, OpenResource, OpenTarget, Permission, Via, Within};
pub(crate) use access_request::AccessGrant;
pub use access_request::{AccessRequestSettings, AccessRequestState, AccessRequestTrust};
pub use answer::{
    Authorization, AuthorizationReason, Finding, NearMisses, Observer, Shadow, Trace, TraceEntry,
};
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
    AdmissionCoverage, NEW_GRANT_DELAY_SECONDS, NotGranted, REMOVED_GRANT_RETENTION_SECONDS, ReviewKnowledge,
    ReviewedResources,
};

/// Whether a rule applies to a request. There is no third result and no default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum RuleMatch {
    /// The rule applies.
    Match,
    /// The rule does not apply, because of this criterion: the first that is not met.
    Mismatch(Criterion),
}

/// The criteria of a rule, in the order in which a request is compared with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Criterion {
    /// None of the subjects is the user.
    Subjects,
    /// One of the excluded subjects is the user.
    ExcludeSubjects,
    /// The rule is for another type of request, resource or path.
    Target,
    /// The verb.
    Verbs,
    /// The API group.
    ApiGroups,
    /// The resource and subresource.
    Resources,
    /// The namespace.
    Namespaces,
    /// The namespace is excluded.
    ExcludeNamespaces,
    /// The labels of the namespace.
    NamespaceSelector,
    /// The object's name.
    Names,
    /// The request's selectors are wider than those that an Allow or Limit requires.
    Selectors,
    /// The request's selectors are as narrow as those that a Deny lets pass.
    UnlessSelectors,
    /// The path.
    Paths,
}

// === impl RuleMatch ===

impl RuleMatch {
    /// Whether the rule applies.
    #[must_use]
    pub const fn is_match(self) -> bool {
        matches!(self, Self::Match)
    }

    /// `Match` if `is_met`.
    pub(crate) const fn when(is_met: bool, criterion: Criterion) -> Self {
        if is_met {
            Self::Match
        } else {
            Self::Mismatch(criterion)
        }
    }
}

// === impl Criterion ===

impl Criterion {
    /// The field of a rule or policy that the criterion is about, as manifests spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Subjects => "subjects",
            Self::ExcludeSubjects => "excludeSubjects",
            Self::Target => "target",
            Self::Verbs => "verbs",
            Self::ApiGroups => "apiGroups",
            Self::Resources => "resources",
            Self::Namespaces => "namespaces",
            Self::ExcludeNamespaces => "excludeNamespaces",
            Self::NamespaceSelector => "namespaceSelector",
            Self::Names => "names",
            Self::Selectors => "selectors",
            Self::UnlessSelectors => "unlessSelectors",
            Self::Paths => "paths",
        }
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    pub(crate) mod fixtures;
}
