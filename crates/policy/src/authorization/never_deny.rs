//! `neverDeny`: users, groups and paths that no Deny can stop.

use std::collections::HashSet;

use super::rbac::AlwaysAllowPaths;
use super::{ServiceAccount, Subject, SubjectKind};
use crate::model::{Attributes, Target, User};

/// The group to which an API server allows everything, without calling an authorizer.
pub(crate) const MASTERS: &str = "system:masters";
/// A group that counts only for users whose names begin with [`NODE_PREFIX`].
pub(crate) const NODES: &str = "system:nodes";
pub(crate) const NODE_PREFIX: &str = "system:node:";

type StringSet = HashSet<String, foldhash::fast::RandomState>;

/// Subjects and paths that no Deny can stop (`authorization.neverDeny`).
///
/// [`Default`] is the value if the configuration has none; [`NeverDeny::nobody`] is `{}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeverDeny {
    /// Exact group names. `system:nodes` counts only for users called `system:node:…`.
    pub groups: Vec<String>,
    /// Exact user names.
    pub users: Vec<String>,
    /// Service accounts.
    pub service_accounts: Vec<ServiceAccount>,
    /// Paths, like kube-apiserver's `--authorization-always-allow-paths`.
    pub paths: AlwaysAllowPaths,
}

/// Matches [`NeverDeny`] with one lookup for the user and for each group.
#[derive(Debug)]
pub(crate) struct NeverDenyMatcher {
    configured: NeverDeny,
    /// User names, including those of service accounts.
    users: StringSet,
    groups: StringSet,
}

/// The users that a cluster cannot do without: all that changed something, according to the audit
/// log of a kube-apiserver, while Deployments and Jobs ran, a namespace was deleted, tokens were
/// created, garbage was collected and ClusterRoles were aggregated; and the user of an API server's
/// requests to kubelets. A name that ends in `*` is a prefix.
///
/// A test with a real control plane compares its audit log with this list
/// (`the_users_that_check_protects_are_those_in_the_audit_log`).
pub const CONTROL_PLANE: &[&str] = &[
    "kube-apiserver-kubelet-client",
    "system:apiserver",
    "system:kube-controller-manager",
    "system:kube-scheduler",
    "system:node:*",
    "system:serviceaccount:kube-system:clusterrole-aggregation-controller",
    "system:serviceaccount:kube-system:deployment-controller",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:job-controller",
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:node-controller",
    "system:serviceaccount:kube-system:replicaset-controller",
    "system:serviceaccount:kube-system:root-ca-cert-publisher",
    "system:serviceaccount:kube-system:service-account-controller",
    "system:serviceaccount:kube-system:service-cidrs-controller",
    "system:serviceaccount:kube-system:ttl-controller",
];

// === impl NeverDenyMatcher ===

impl NeverDenyMatcher {
    pub(crate) fn new(configured: NeverDeny) -> Self {
        let service_accounts = configured.service_accounts.iter().map(ServiceAccount::user_name);
        Self {
            users: configured.users.iter().cloned().chain(service_accounts).collect(),
            groups: configured.groups.iter().cloned().collect(),
            configured,
        }
    }

    pub(crate) const fn configured(&self) -> &NeverDeny {
        &self.configured
    }

    pub(crate) fn matches(&self, attributes: &Attributes<'_>) -> bool {
        let is_path = match &attributes.target {
            Target::Resource(_) => false,
            Target::NonResource { path, .. } => self.configured.paths.contains(path),
        };
        is_path || self.matches_user(&attributes.user)
    }

    pub(crate) fn matches_user(&self, user: &User<'_>) -> bool {
        let counts = |group: &str| group != NODES || user.name.starts_with(NODE_PREFIX);
        let mut groups = user.groups.iter();
        self.users.contains(user.name.as_ref())
            || groups.any(|group| counts(group) && self.groups.contains(group.as_ref()))
    }
}

// === impl NeverDeny ===

impl NeverDeny {
    /// Protects nobody: `neverDeny: {}`.
    #[must_use]
    pub fn nobody() -> Self {
        Self {
            groups: Vec::new(),
            users: Vec::new(),
            service_accounts: Vec::new(),
            paths: AlwaysAllowPaths::default(),
        }
    }

    /// Whether every user that `subject` of a policy matches is protected, so that a Deny for it
    /// has no effect. `system:nodes` does not count, because it protects only members with certain
    /// names.
    #[must_use]
    pub fn covers_subject(&self, subject: &Subject) -> bool {
        let account = |account: &ServiceAccount| {
            let named = account.namespace == subject.namespace && account.name == subject.name;
            subject.kind == SubjectKind::ServiceAccount && named
                || subject.kind == SubjectKind::User && account.user_name() == subject.name
        };
        let user = |user: &String| match subject.kind {
            SubjectKind::User => *user == subject.name,
            SubjectKind::ServiceAccount => {
                ServiceAccount::new(&subject.namespace, &subject.name).user_name() == *user
            }
            SubjectKind::Group => false,
        };
        let group = |group: &String| {
            subject.kind == SubjectKind::Group && *group == subject.name && group.as_str() != NODES
        };
        self.users.iter().any(user)
            || self.groups.iter().any(group)
            || self.service_accounts.iter().any(account)
    }
}

impl Default for NeverDeny {
    fn default() -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Self {
            groups: owned(&["system:nodes"]),
            users: owned(&[
                "system:kube-controller-manager",
                "system:kube-scheduler",
                "system:apiserver",
                // The user with which an API server calls kubelets, which ask whether it may.
                "kube-apiserver-kubelet-client",
            ]),
            service_accounts: vec![
                ServiceAccount::new("kube-system", "namespace-controller"),
                ServiceAccount::new("kube-system", "generic-garbage-collector"),
            ],
            paths: AlwaysAllowPaths::new(
                &["/healthz", "/livez", "/readyz", "/version"],
                &["/healthz/", "/livez/", "/readyz/"],
            ),
        }
    }
}
