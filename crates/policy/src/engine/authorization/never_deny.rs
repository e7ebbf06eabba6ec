//! `neverDeny`: users, groups and paths that no Deny can stop.

use std::collections::HashSet;

use super::objects::ServiceAccount;
use super::rbac::AlwaysAllowPaths;
use super::{NeverDeny, Subject, SubjectKind};
use crate::engine::{Attributes, Target, User};

/// A group whose members must also be called so.
const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

type StringSet = HashSet<String, foldhash::fast::RandomState>;

#[derive(Debug, Default)]
pub(super) struct Protection {
    users: StringSet,
    groups: StringSet,
    paths: AlwaysAllowPaths,
}

impl Protection {
    pub(super) fn new(never_deny: &NeverDeny) -> Self {
        let service_accounts = never_deny.service_accounts.iter().map(ServiceAccount::user_name);
        Self {
            users: never_deny.users.iter().cloned().chain(service_accounts).collect(),
            groups: never_deny.groups.iter().cloned().collect(),
            paths: never_deny.paths.clone(),
        }
    }

    pub(super) fn covers(&self, attributes: &Attributes<'_>) -> bool {
        let path = match &attributes.target {
            Target::Resource(_) => false,
            Target::NonResource { path, .. } => self.paths.contains(path),
        };
        path || self.covers_user(&attributes.user)
    }

    pub(super) fn covers_user(&self, user: &User<'_>) -> bool {
        let counts = |group: &str| group != NODES || user.name.starts_with(NODE_PREFIX);
        self.users.contains(user.name.as_ref())
            || user
                .groups
                .iter()
                .any(|group| counts(group) && self.groups.contains(group.as_ref()))
    }
}

impl NeverDeny {
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
