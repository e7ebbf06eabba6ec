//! `neverDeny`: users, groups and paths that no Deny can stop.

use std::collections::HashSet;

use super::rbac::AlwaysAllowPaths;
use super::{ServiceAccount, Subject, SubjectKind};
use crate::model::{Attributes, Target, User};

/// The group that an API server allows everything, before it asks anybody.
pub(crate) const MASTERS: &str = "system:masters";
/// A group whose members must also be called so.
pub(crate) const NODES: &str = "system:nodes";
pub(crate) const NODE_PREFIX: &str = "system:node:";

type StringSet = HashSet<String, foldhash::fast::RandomState>;

/// Subjects and paths that no Deny can hold up (`authorization.neverDeny`).
///
/// [`Default`] is what holds where the configuration says nothing; [`NeverDeny::nobody`]
/// is `{}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeverDeny {
    /// Exact group names. `system:nodes` counts only for users `system:node:…`.
    pub groups: Vec<String>,
    /// Exact user names.
    pub users: Vec<String>,
    /// Service accounts.
    pub service_accounts: Vec<ServiceAccount>,
    /// As kube-apiserver's `--authorization-always-allow-paths`.
    pub paths: AlwaysAllowPaths,
}

/// Tells who is in [`NeverDeny`], by one look-up for each name and group.
#[derive(Debug)]
pub(crate) struct NeverDenyMatcher {
    configured: NeverDeny,
    /// Service accounts too.
    users: StringSet,
    groups: StringSet,
}

/// The identities that a cluster cannot do without: each was seen, in the audit log of a
/// kube-apiserver, to change something while Deployments and Jobs ran, a namespace was
/// deleted, tokens were made, garbage was collected and ClusterRoles were aggregated; and
/// the one that kubelets ask about. A name that ends in `*` is a prefix.
///
/// A test against a real control plane compares its audit log with this list
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

    /// Whether everyone whom `subject` of a policy means is protected, so that a
    /// Deny for it never holds. `system:nodes` does not count: its members may
    /// be called anything.
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
                // As whom an API server calls kubelets, which ask about it.
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
