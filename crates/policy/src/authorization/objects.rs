//! RBAC objects and AuthorizationPolicies as plain owned data.
//!
//! Manifests are validated and parsed into these types once, when they are read. Values without
//! meaning cannot be expressed, and a missing role grants nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::condition::{Condition, ObjectCondition};
use super::matching::{ClusterScoped, NamespacePattern, ResourcePattern};
use super::rbac::{PathPattern, RuleList, WildcardSet};
use crate::model::{CauseKind, Decision, LabelSelector, Selectors, Time, Validity};

/// The labels of namespaces, by name.
pub type NamespaceLabels = BTreeMap<String, Arc<BTreeMap<String, String>>>;

/// All objects that decide for one cluster.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    /// Roles and ClusterRoles.
    pub roles: Vec<Role>,
    /// RoleBindings and ClusterRoleBindings.
    pub bindings: Vec<Binding>,
    /// AuthorizationPolicies.
    pub policies: Vec<AuthorizationPolicy>,
    /// AuthorizationInvariants.
    pub invariants: Vec<AuthorizationInvariant>,
    /// AccessRequests, which are read from an API server only.
    pub access_requests: Vec<AccessRequest>,
    /// The labels of Namespaces, including `kubernetes.io/metadata.name`, by the name of the
    /// Namespace.
    pub namespaces: NamespaceLabels,
    /// The custom resources that are known to be cluster-scoped.
    pub cluster_scoped: ClusterScoped,
}

/// [`Objects`], each shared with the other sets that contain it.
#[derive(Debug, Clone, Default)]
pub struct SharedObjects {
    /// Roles and ClusterRoles.
    pub roles: Vec<Arc<Role>>,
    /// RoleBindings and ClusterRoleBindings.
    pub bindings: Vec<Arc<Binding>>,
    /// AuthorizationPolicies.
    pub policies: Vec<Arc<AuthorizationPolicy>>,
    /// AuthorizationInvariants.
    pub invariants: Vec<Arc<AuthorizationInvariant>>,
    /// Like [`Objects::access_requests`].
    pub access_requests: Vec<Arc<AccessRequest>>,
    /// Like [`Objects::namespaces`].
    pub namespaces: NamespaceLabels,
    /// Like [`Objects::cluster_scoped`].
    pub cluster_scoped: ClusterScoped,
}

/// A Role, or a ClusterRole if `namespace` is empty (`rbac.authorization.k8s.io/v1`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Role {
    /// The Role's namespace; empty for a ClusterRole.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`, by which ClusterRoles are aggregated.
    pub labels: BTreeMap<String, String>,
    /// `rules`. If `aggregation` is present, they are replaced by the aggregated rules.
    pub rules: RuleList,
    /// `aggregationRule.clusterRoleSelectors`, of a ClusterRole only.
    pub aggregation: Option<Vec<LabelSelector>>,
}

/// A RoleBinding, or a ClusterRoleBinding if `namespace` is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The RoleBinding's namespace; empty for a ClusterRoleBinding.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `roleRef`.
    pub role: RoleRef,
    /// `subjects`, in the order written: the reason names the first that applies.
    pub subjects: Vec<Subject>,
    /// The end of the AccessRequest that this binding stands for; `None` for bindings of manifests.
    pub until: Option<Time>,
}

/// `RoleRef` of `rbac.authorization.k8s.io/v1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RoleRef {
    /// `kind`.
    pub kind: RoleKind,
    /// The role's name. A Role is in the namespace of the binding.
    pub name: String,
}

/// The kinds of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RoleKind {
    /// A role of one namespace.
    Role,
    /// A role of the whole cluster.
    ClusterRole,
}

/// A subject of a binding or policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// `kind`.
    pub kind: SubjectKind,
    /// `name`. In an [`AuthorizationPolicy`], a `*` at the end of a User's or Group's name makes it
    /// a prefix; in a [`Binding`] it is an ordinary character.
    pub name: String,
    /// The namespace of a ServiceAccount. If it is empty in a RoleBinding, the binding's namespace
    /// applies.
    pub namespace: String,
}

/// The kinds of subjects that RBAC knows. Objects with another kind are rejected when they are
/// read, because a Deny for an unknown kind would deny no one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SubjectKind {
    /// A user by name.
    User,
    /// All users of a group.
    Group,
    /// A service account, which is the user `system:serviceaccount:NAMESPACE:NAME`.
    ServiceAccount,
}

/// A service account's namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// An AuthorizationPolicy (`portcullis.dev/v1alpha1`): rules that RBAC cannot express.
///
/// An [`Effect::Allow`] applies to a request that lies wholly within a rule, an [`Effect::Deny`] to
/// one that touches a rule, and an [`Effect::Limit`] to one that lies within none of its rules.
/// [`matching`](super::matching) defines both relations.
#[derive(Debug, Clone)]
pub struct AuthorizationPolicy {
    /// `metadata.name`, by which policies are ordered.
    pub name: String,
    /// Whether it allows, denies or limits.
    pub effect: Effect,
    /// Whether its decision is enforced.
    pub mode: Mode,
    /// The subjects to which it applies: the user must be one of them.
    pub subjects: Vec<Subject>,
    /// The subjects to which it does not apply.
    pub exclude_subjects: Vec<Subject>,
    /// Rules for resource requests, of which any may apply.
    pub resource_rules: Vec<ResourceRule>,
    /// Rules for non-resource requests, of which any may apply.
    pub non_resource_rules: Vec<NonResourceRule>,
    /// Conditions on the request, which must all hold.
    pub conditions: Vec<Condition>,
    /// Conditions on the object, which must all hold. Only `/validate` sees the object. At
    /// `/authorize`, an Allow with such conditions grants only requests that `/validate` is known
    /// to see, and a Deny has no effect.
    pub object_conditions: Vec<ObjectCondition>,
    /// The effect of a Deny or Limit whose condition cannot be evaluated.
    pub failure_policy: FailurePolicy,
    /// Whether AccessRequests may lift it, if it is a Deny or Limit.
    pub liftable: bool,
    /// When it is in force. At other times it has no effect.
    pub validity: Validity,
    /// The explanation for the user who is allowed or denied; may be empty.
    pub reason: String,
}

/// An AuthorizationInvariant (`portcullis.dev/v1alpha1`): what must never be allowed, whatever the
/// policies are. It decides no request.
#[derive(Debug, Clone)]
pub struct AuthorizationInvariant {
    /// What must not be allowed, as the Deny that would prevent it: the invariant holds if this
    /// Deny would change no Allow. The Deny's `excludeSubjects` are those of `spec.only`.
    pub forbidden: AuthorizationPolicy,
    /// What happens to a write that would break it.
    pub enforcement: Enforcement,
}

/// `spec.enforcement` of an AuthorizationInvariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Enforcement {
    /// The write is refused.
    Refuse,
    /// The write is allowed with a warning.
    Warn,
}

/// An AccessRequest (`portcullis.dev/v1alpha1`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRequest {
    /// `metadata.name`.
    pub name: String,
    /// The requested ClusterRole.
    pub role: String,
    /// The namespaces in which it is requested; empty for the whole cluster.
    pub namespaces: Vec<String>,
    /// The requested duration.
    pub duration_seconds: i64,
    /// Why the role is requested.
    pub reason: String,
    /// The AuthorizationPolicies to lift.
    pub lifts: Vec<String>,
    /// The user who requests it.
    pub requester: AccessRequester,
    /// The complete entries of `status.approvals`, in their order: an entry without user or time
    /// does not count.
    pub approvals: Vec<AccessEntry>,
    /// Whether `status.denied` is present, whatever its content.
    pub is_denied: bool,
    /// Whether `status.withdrawn` is present, whatever its content, or the object is being deleted.
    pub is_withdrawn: bool,
    /// `metadata.creationTimestamp`, if an API server has set it.
    pub created: Option<Time>,
}

/// `spec.requester`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessRequester {
    /// The user's name.
    pub username: String,
    /// The user's uid; empty for users without one.
    pub uid: String,
    /// The user's groups when the AccessRequest was created.
    pub groups: Vec<String>,
}

/// An approval: by whom, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessEntry {
    /// The user's name.
    pub username: String,
    /// The time of the approval.
    pub time: Time,
}

/// `spec.effect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Effect {
    /// Allows requests that lie wholly within a rule.
    Allow,
    /// Denies requests that touch a rule.
    Deny,
    /// Denies requests that lie wholly within none of its rules, whatever grants them. A policy
    /// without resource rules does not limit resource requests, and one without non-resource rules
    /// does not limit non-resource requests.
    Limit,
}

/// `spec.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
pub enum Mode {
    /// The decision is enforced.
    #[default]
    Enforce,
    /// The policy is evaluated, logged and counted, but never changes the decision.
    Shadow,
}

/// `spec.failurePolicy` of a Deny or Limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FailurePolicy {
    /// The request is denied, as if the condition held.
    #[default]
    Deny,
    /// The policy does not apply.
    NoOpinion,
}

/// One of `spec.resourceRules`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceRule {
    /// Exact verbs, or `*`.
    pub verbs: WildcardSet,
    /// Exact groups, or `*`.
    pub api_groups: WildcardSet,
    /// `*`, `pods` (without subresources), `pods/log`, `pods/*` (only its subresources), `*/scale`.
    pub resources: Vec<ResourcePattern>,
    /// The namespaces; if empty, all namespaces and cluster-scoped requests.
    pub namespaces: Vec<NamespacePattern>,
    /// Exceptions from `namespaces`. A request for all namespaces touches a Deny regardless of its
    /// exceptions, and lies within no Allow or Limit that has any.
    pub exclude_namespaces: Vec<NamespacePattern>,
    /// Selects namespaces by their labels, among those of `namespaces`; never an empty selector.
    pub namespace_selector: Option<LabelSelector>,
    /// Exact names; empty for any.
    pub names: Vec<String>,
    /// `selectors` of an Allow or Limit: the rule is only for requests that select as narrowly.
    /// `unlessSelectors` of a Deny: the rule is not for such requests. If empty, there is no
    /// restriction.
    pub selectors: Selectors<'static>,
}

/// One of `spec.nonResourceRules`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NonResourceRule {
    /// Exact verbs, or `*`.
    pub verbs: WildcardSet,
    /// Paths, with the meaning of RBAC's `nonResourceURLs`.
    pub paths: Vec<PathPattern>,
}

// === impl ResourceRule ===

impl ResourceRule {
    /// Whether the rule depends on the namespace of a request.
    pub(crate) fn depends_on_namespace(&self) -> bool {
        !self.namespaces.is_empty()
            || !self.exclude_namespaces.is_empty()
            || self.namespace_selector.is_some()
    }
}

// === impl SharedObjects ===

impl From<Objects> for SharedObjects {
    fn from(objects: Objects) -> Self {
        Self {
            roles: objects.roles.into_iter().map(Arc::new).collect(),
            bindings: objects.bindings.into_iter().map(Arc::new).collect(),
            policies: objects.policies.into_iter().map(Arc::new).collect(),
            invariants: objects.invariants.into_iter().map(Arc::new).collect(),
            access_requests: objects.access_requests.into_iter().map(Arc::new).collect(),
            namespaces: objects.namespaces,
            cluster_scoped: objects.cluster_scoped,
        }
    }
}

// === impl Role ===

impl Role {
    /// The namespace and name.
    #[must_use]
    pub fn key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }
}

// === impl Binding ===

impl Binding {
    /// The namespace and name of the bound role; the namespace of a ClusterRole is empty.
    #[must_use]
    pub fn role_key(&self) -> (&str, &str) {
        match self.role.kind {
            RoleKind::Role => (&self.namespace, &self.role.name),
            RoleKind::ClusterRole => ("", &self.role.name),
        }
    }

    /// AccessRequest for a binding that stands for one, otherwise RoleBinding or
    /// ClusterRoleBinding.
    #[must_use]
    pub const fn kind(&self) -> CauseKind {
        if self.until.is_some() {
            CauseKind::AccessRequest
        } else if self.namespace.is_empty() {
            CauseKind::ClusterRoleBinding
        } else {
            CauseKind::RoleBinding
        }
    }

    /// Whether this is a ClusterRoleBinding.
    #[must_use]
    pub fn is_cluster_wide(&self) -> bool {
        self.namespace.is_empty()
    }
}

// === impl RoleKind ===

impl RoleKind {
    /// Parses the kind, case-sensitively; `None` for any other string.
    #[must_use]
    pub fn parse(kind: &str) -> Option<Self> {
        match kind {
            "Role" => Some(Self::Role),
            "ClusterRole" => Some(Self::ClusterRole),
            _ => None,
        }
    }

    /// The kind as manifests spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Role => "Role",
            Self::ClusterRole => "ClusterRole",
        }
    }
}

impl fmt::Display for RoleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Subject ===

impl Subject {
    /// The user called `name`.
    pub fn user(name: impl Into<String>) -> Self {
        Self {
            kind: SubjectKind::User,
            name: name.into(),
            namespace: String::new(),
        }
    }

    /// All users of the group `name`.
    pub fn group(name: impl Into<String>) -> Self {
        Self {
            kind: SubjectKind::Group,
            name: name.into(),
            namespace: String::new(),
        }
    }

    /// The service account `name` of `namespace`.
    pub fn service_account(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind: SubjectKind::ServiceAccount,
            name: name.into(),
            namespace: namespace.into(),
        }
    }

    /// The user or group name that requests have; `None` for a service account without a namespace,
    /// which no user can be. `namespace` is the binding's, or empty.
    pub(crate) fn authenticated_name(&self, namespace: &str) -> Option<Cow<'_, str>> {
        match self.kind {
            SubjectKind::User | SubjectKind::Group => Some(Cow::Borrowed(&self.name)),
            SubjectKind::ServiceAccount => {
                let own = [self.namespace.as_str(), namespace];
                let namespace = own.into_iter().find(|one| !one.is_empty())?;
                Some(Cow::Owned(service_account_user_name(namespace, &self.name)))
            }
        }
    }
}

// === impl SubjectKind ===

impl SubjectKind {
    /// The names of the kinds, as manifests spell them.
    pub const NAMES: [&str; 3] = ["ServiceAccount", "User", "Group"];

    /// Parses the kind, case-sensitively; `None` for any other string.
    #[must_use]
    pub fn parse(kind: &str) -> Option<Self> {
        match kind {
            "User" => Some(Self::User),
            "Group" => Some(Self::Group),
            "ServiceAccount" => Some(Self::ServiceAccount),
            _ => None,
        }
    }

    /// The kind as manifests spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "User",
            Self::Group => "Group",
            Self::ServiceAccount => "ServiceAccount",
        }
    }
}

/// For example `Group dev` or `ServiceAccount ci/deployer`.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, namespace, name) = (self.kind, &self.namespace, &self.name);
        match kind {
            SubjectKind::ServiceAccount => write!(f, "{kind} {namespace}/{name}"),
            SubjectKind::User | SubjectKind::Group => write!(f, "{kind} {name}"),
        }
    }
}

impl fmt::Display for SubjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Effect ===

impl Effect {
    /// The decision of a policy with this effect that applies.
    #[must_use]
    pub const fn decision(self) -> Decision {
        match self {
            Self::Allow => Decision::Allow,
            Self::Deny | Self::Limit => Decision::Deny,
        }
    }

    /// Whether policies with this effect deny requests.
    #[must_use]
    pub const fn refuses(self) -> bool {
        matches!(self, Self::Deny | Self::Limit)
    }
}

/// The effect as manifests spell it.
impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "Allow",
            Self::Deny => "Deny",
            Self::Limit => "Limit",
        })
    }
}

// === impl AuthorizationPolicy ===

impl AuthorizationPolicy {
    /// Whether the policy has no conditions: only its subjects and rules determine whether it
    /// applies.
    #[must_use]
    pub fn is_unconditional(&self) -> bool {
        self.conditions.is_empty() && self.object_conditions.is_empty()
    }

    /// Whether the policy is a Limit with rules for non-resource requests (`for_paths`) or for
    /// resource requests.
    #[must_use]
    pub(crate) fn limits_requests(&self, for_paths: bool) -> bool {
        let has_rules = match for_paths {
            true => !self.non_resource_rules.is_empty(),
            false => !self.resource_rules.is_empty(),
        };
        self.effect == Effect::Limit && has_rules
    }
}

// === impl AuthorizationInvariant ===

impl AuthorizationInvariant {
    /// `metadata.name`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.forbidden.name
    }
}

// === impl ServiceAccount ===

impl ServiceAccount {
    /// The service account `name` of `namespace`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The name of the user that the service account is.
    #[must_use]
    pub fn user_name(&self) -> String {
        service_account_user_name(&self.namespace, &self.name)
    }
}

/// `MakeUsername` of `apiserver/pkg/authentication/serviceaccount`.
fn service_account_user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
