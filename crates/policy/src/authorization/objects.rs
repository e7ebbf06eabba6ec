//! RBAC objects and AuthorizationPolicies as plain owned data.
//!
//! Manifests are validated before they become objects, and their text is parsed once into
//! types. What has no meaning cannot be expressed; a missing role grants nothing.

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

/// All that decides for one cluster.
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
    /// AccessRequests of an API server.
    pub access_requests: Vec<AccessRequest>,
    /// The labels of Namespaces, by name, that of the name among them.
    pub namespaces: NamespaceLabels,
    /// The custom resources that are known to have no namespace.
    pub cluster_scoped: ClusterScoped,
}

/// The same, each shared with other sets that have it.
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
    /// As of [`Objects`].
    pub access_requests: Vec<Arc<AccessRequest>>,
    /// As of [`Objects`].
    pub namespaces: NamespaceLabels,
    /// As of [`Objects`].
    pub cluster_scoped: ClusterScoped,
}

/// A Role, or a ClusterRole where `namespace` is empty (`rbac.authorization.k8s.io/v1`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Role {
    /// The Role's namespace; empty for a ClusterRole.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`, by which ClusterRoles are aggregated.
    pub labels: BTreeMap<String, String>,
    /// `rules`. Where `aggregation` is present they are replaced by the aggregated ones.
    pub rules: RuleList,
    /// `aggregationRule.clusterRoleSelectors`, of a ClusterRole only.
    pub aggregation: Option<Vec<LabelSelector>>,
}

/// A RoleBinding, or a ClusterRoleBinding where `namespace` is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The RoleBinding's namespace; empty for a ClusterRoleBinding.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `roleRef`.
    pub role: RoleRef,
    /// `subjects`, in the order written: the first that applies is named in the reason.
    pub subjects: Vec<Subject>,
    /// Of what stands for an AccessRequest in force: when that ends. No manifest has it.
    pub until: Option<Time>,
}

/// `RoleRef` of `rbac.authorization.k8s.io/v1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RoleRef {
    /// `kind`.
    pub kind: RoleKind,
    /// The role's name; a Role is looked for in the namespace of the binding.
    pub name: String,
}

/// The kinds of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RoleKind {
    /// Of one namespace.
    Role,
    /// Of the cluster.
    ClusterRole,
}

/// Whom a binding or policy is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// `kind`.
    pub kind: SubjectKind,
    /// `name`. In an [`AuthorizationPolicy`], a `*` at the end
    /// of a User's or Group's name makes it a prefix; in a [`Binding`] it
    /// is a plain character.
    pub name: String,
    /// Of a ServiceAccount only. Empty in a RoleBinding: that of the binding.
    pub namespace: String,
}

/// The kinds of subjects that RBAC knows. Objects with another kind are refused when they are
/// read: a Deny for it would deny no one.
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

/// An AuthorizationPolicy (`portcullis.dev/v1alpha1`): what RBAC cannot say.
///
/// An [`Effect::Allow`] applies when the request lies wholly within a rule, an
/// [`Effect::Deny`] when it touches one, an [`Effect::Limit`] when it lies within none:
/// [`matching`](super::matching) says when.
#[derive(Debug, Clone)]
pub struct AuthorizationPolicy {
    /// `metadata.name`, by which policies are ordered.
    pub name: String,
    /// Whether it allows, denies or limits.
    pub effect: Effect,
    /// Whether its answer counts.
    pub mode: Mode,
    /// Whom it is about: any of them.
    pub subjects: Vec<Subject>,
    /// Whom it is not about: none of them.
    pub exclude_subjects: Vec<Subject>,
    /// Rules for requests for resources: any of them.
    pub resource_rules: Vec<ResourceRule>,
    /// Rules for requests for paths: any of them.
    pub non_resource_rules: Vec<NonResourceRule>,
    /// All must hold.
    pub conditions: Vec<Condition>,
    /// All must hold of the object, which `/validate` decides. Where there are some, an Allow grants at
    /// `/authorize` only where `/validate` is known to see the request, and a Deny nothing there.
    pub object_conditions: Vec<ObjectCondition>,
    /// Of a Deny or Limit: what a condition that errors does.
    pub failure_policy: FailurePolicy,
    /// Of a Deny or Limit: whether an AccessRequest that names it lifts it.
    pub liftable: bool,
    /// When it holds. At other times it is as if it were not there.
    pub validity: Validity,
    /// What to tell the person refused or allowed; may be empty.
    pub reason: String,
}

/// An AuthorizationInvariant (`portcullis.dev/v1alpha1`): what no policies may come to allow. It
/// decides no request.
#[derive(Debug, Clone)]
pub struct AuthorizationInvariant {
    /// What must not be allowed, as the Deny that would prevent it: the invariant holds where that
    /// Deny would change no Allow. Its `excludeSubjects` are those of `spec.only`.
    pub forbidden: AuthorizationPolicy,
    /// What becomes of a write that would break it.
    pub enforcement: Enforcement,
}

/// `spec.enforcement` of an AuthorizationInvariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Enforcement {
    /// It is refused.
    Refuse,
    /// It is answered with a warning.
    Warn,
}

/// An AccessRequest (`portcullis.dev/v1alpha1`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRequest {
    /// `metadata.name`.
    pub name: String,
    /// The ClusterRole asked for.
    pub role: String,
    /// Where; empty: in the whole cluster.
    pub namespaces: Vec<String>,
    /// For how long.
    pub duration_seconds: i64,
    /// Why.
    pub reason: String,
    /// The AuthorizationPolicies that it is to lift.
    pub lifts: Vec<String>,
    /// Who asked.
    pub requester: AccessRequester,
    /// `status.approvals` that say who and when, in their order.
    pub approvals: Vec<AccessEntry>,
    /// `status.denied`, whatever it says.
    pub is_denied: bool,
    /// `status.withdrawn`, whatever it says, or that it is being deleted.
    pub is_withdrawn: bool,
    /// `metadata.creationTimestamp`, where an API server wrote one.
    pub created: Option<Time>,
}

/// `spec.requester`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessRequester {
    /// The user's name.
    pub username: String,
    /// The user's uid; empty for users without.
    pub uid: String,
    /// The user's groups when it was asked.
    pub groups: Vec<String>,
}

/// Who approved, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessEntry {
    /// The user's name.
    pub username: String,
    /// When.
    pub time: Time,
}

/// `spec.effect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum Effect {
    /// Requests that lie wholly within a rule may proceed.
    Allow,
    /// Requests that touch a rule are refused.
    Deny,
    /// Requests that lie wholly within no rule are refused, whatever grants them. A policy without
    /// rules for resources does not limit requests for these, and so for paths.
    Limit,
}

/// `spec.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
pub enum Mode {
    /// The answer counts.
    #[default]
    Enforce,
    /// Decided, logged and counted; never changes the answer.
    Shadow,
}

/// `spec.failurePolicy` of a Deny or Limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FailurePolicy {
    /// As if the condition held: refused.
    #[default]
    Deny,
    /// As if the policy did not match.
    NoOpinion,
}

/// One of `spec.resourceRules`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceRule {
    /// Exact verbs, or `*`.
    pub verbs: WildcardSet,
    /// Exact groups, or `*`.
    pub api_groups: WildcardSet,
    /// `*`, `pods` (without subresources), `pods/log`, `pods/*` (its subresources alone), `*/scale`.
    pub resources: Vec<ResourcePattern>,
    /// Empty: all, cluster scope too.
    pub namespaces: Vec<NamespacePattern>,
    /// Not these of `namespaces`. A request over all namespaces touches a Deny whatever it
    /// excludes, and lies within no Allow or Limit that excludes any.
    pub exclude_namespaces: Vec<NamespacePattern>,
    /// Namespaces by their labels, and within `namespaces`; never empty.
    pub namespace_selector: Option<LabelSelector>,
    /// Exact names; empty for any.
    pub names: Vec<String>,
    /// Of an Allow or Limit, `selectors`: only for requests at least this narrow. Of a
    /// Deny, `unlessSelectors`: not for requests at least this narrow. Empty:
    /// the rule does not ask.
    pub selectors: Selectors<'static>,
}

/// One of `spec.nonResourceRules`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NonResourceRule {
    /// Exact verbs, or `*`.
    pub verbs: WildcardSet,
    /// As RBAC's `nonResourceURLs`.
    pub paths: Vec<PathPattern>,
}

// === impl ResourceRule ===

impl ResourceRule {
    /// Whether it depends on the namespace of a request.
    pub(crate) fn asks_for_namespaces(&self) -> bool {
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
    /// Its namespace and name.
    #[must_use]
    pub fn key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }
}

// === impl Binding ===

impl Binding {
    /// Namespace and name of its role; the namespace of a ClusterRole is empty.
    #[must_use]
    pub fn role_key(&self) -> (&str, &str) {
        match self.role.kind {
            RoleKind::Role => (&self.namespace, &self.role.name),
            RoleKind::ClusterRole => ("", &self.role.name),
        }
    }

    /// RoleBinding or ClusterRoleBinding, or what it stands for.
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
    /// The kind that manifests spell so, case-sensitive; `None` where there is no such.
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

    /// The name of the user or group that requests have; `None` for a service account without
    /// namespace, which is no user. `namespace` is that of the binding, empty where there is none.
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
    /// As manifests spell them.
    pub const NAMES: [&str; 3] = ["ServiceAccount", "User", "Group"];

    /// The kind that manifests spell so, case-sensitive; `None` where there is no such.
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

/// `Group dev`, `ServiceAccount ci/deployer`.
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
    /// What a policy of this effect decides when it applies.
    #[must_use]
    pub const fn decision(self) -> Decision {
        match self {
            Self::Allow => Decision::Allow,
            Self::Deny | Self::Limit => Decision::Deny,
        }
    }

    /// Whether a policy of this effect refuses requests.
    #[must_use]
    pub const fn refuses(self) -> bool {
        matches!(self, Self::Deny | Self::Limit)
    }
}

/// As manifests spell it.
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
    /// Whether what it says depends on requests by nothing but its subjects and rules.
    #[must_use]
    pub fn is_unconditional(&self) -> bool {
        self.conditions.is_empty() && self.object_conditions.is_empty()
    }

    /// Whether it is a Limit for requests of this sort: for paths, or for resources.
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

    /// The user name under which it asks.
    #[must_use]
    pub fn user_name(&self) -> String {
        service_account_user_name(&self.namespace, &self.name)
    }
}

/// As `MakeUsername` of `apiserver/pkg/authentication/serviceaccount`.
fn service_account_user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
