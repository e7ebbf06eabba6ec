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
    AdmissionCoverage, FORMER_GRANT_RETENTION_SECONDS, NEW_GRANT_DELAY_SECONDS, NotGranted, ReviewKnowledge,
    ReviewedResources,
};

/// Whether a rule applies to a request. There is no third answer and no default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum RuleMatch {
    /// It applies.
    Match,
    /// It does not; the first thing for which it does not.
    Mismatch(Criterion),
}

/// What of a request must fit a rule, in the order in which it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Criterion {
    /// None of the subjects is the user.
    Subjects,
    /// One of the excluded subjects is the user.
    ExcludeSubjects,
    /// There is no rule for this type of request, resource or path.
    Target,
    /// The verb.
    Verbs,
    /// The API group.
    ApiGroups,
    /// The resource and subresource.
    Resources,
    /// The namespace.
    Namespaces,
    /// The namespace is one of those excluded.
    ExcludeNamespaces,
    /// The labels of the namespace.
    NamespaceSelector,
    /// The object's name.
    Names,
    /// The request is not as narrow as an Allow asks.
    Selectors,
    /// The request is as narrow as a Deny lets pass.
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
    /// The field of a rule or policy that it stands for, as manifests spell it.
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
