//! The users that a subject matches, with the groups that its name implies.

use crate::authorization::never_deny::NeverDenyMatcher;
use crate::authorization::{CONTROL_PLANE, NeverDeny, Subject, SubjectKind};
use crate::model::User;

/// The users that a subject of a binding or policy matches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SubjectScope {
    /// The members of this group.
    Group(String),
    /// The members of groups with this prefix. The empty prefix matches all users, even those
    /// without groups.
    GroupPrefix(String),
    /// The user of this name, which may be a service account.
    User(String),
    /// The users whose names have this prefix.
    UserPrefix(String),
}

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";
const ACCOUNTS: &str = "system:serviceaccounts";
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";
const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

impl SubjectScope {
    /// The users that the subject of a binding in `namespace` matches; `None` if no user can match.
    pub(crate) fn of_binding(subject: &Subject, namespace: &str) -> Option<Self> {
        match subject.kind {
            SubjectKind::User => Some(Self::User(subject.name.clone())),
            SubjectKind::Group => Some(Self::Group(subject.name.clone())),
            SubjectKind::ServiceAccount => {
                let own = [subject.namespace.as_str(), namespace];
                let namespace = own.into_iter().find(|one| !one.is_empty())?;
                Some(Self::User(format!(
                    "{ACCOUNT_PREFIX}{namespace}:{}",
                    subject.name
                )))
            }
        }
    }

    /// The users that the subject of a policy matches; `None` if no user can match.
    pub(crate) fn of_policy(subject: &Subject) -> Option<Self> {
        match (subject.kind, subject.name.strip_suffix('*')) {
            (SubjectKind::User, Some(prefix)) => Some(Self::UserPrefix(prefix.to_owned())),
            (SubjectKind::Group, Some(prefix)) => Some(Self::GroupPrefix(prefix.to_owned())),
            _ => Self::of_binding(subject, ""),
        }
    }

    /// The subject, and whether its name is a pattern.
    pub(crate) fn subject(&self) -> (Subject, bool) {
        match self {
            Self::Group(name) => (Subject::group(name), false),
            Self::GroupPrefix(prefix) => (Subject::group(format!("{prefix}*")), true),
            Self::UserPrefix(prefix) => (Subject::user(format!("{prefix}*")), true),
            Self::User(name) => {
                let account = name
                    .strip_prefix(ACCOUNT_PREFIX)
                    .and_then(|rest| rest.split_once(':'));
                let subject = match account {
                    Some((namespace, name)) => Subject::service_account(namespace, name),
                    None => Subject::user(name),
                };
                (subject, false)
            }
        }
    }

    /// Whether it is the group to which an API server allows everything, without calling an
    /// authorizer.
    pub(crate) fn is_masters(&self) -> bool {
        *self == Self::masters()
    }

    /// The group to which an API server allows everything, without calling an authorizer.
    pub(crate) fn masters() -> Self {
        Self::Group("system:masters".to_owned())
    }

    /// Whether a policy's subject matches all of these users.
    pub(crate) fn is_matched_by(&self, subject: &Subject) -> bool {
        let Some(other) = Self::of_policy(subject) else {
            return false;
        };
        match (&other, self) {
            (Self::UserPrefix(prefix) | Self::GroupPrefix(prefix), _) if prefix.is_empty() => true,
            (Self::User(name), Self::User(own)) => name == own,
            (Self::UserPrefix(prefix), Self::User(own) | Self::UserPrefix(own)) => own.starts_with(prefix),
            (Self::User(_) | Self::UserPrefix(_), _) => false,
            (Self::Group(name), _) => self.implied_groups().iter().any(|group| group == name),
            (Self::GroupPrefix(prefix), _) => {
                matches!(self, Self::GroupPrefix(own) if own.starts_with(prefix))
                    || self
                        .implied_groups()
                        .iter()
                        .any(|group| group.starts_with(prefix))
            }
        }
    }

    /// Whether a policy's subject may match some of these users. A user may be in any group, but a
    /// service account only in those that its name implies.
    pub(crate) fn may_match(&self, subject: &Subject) -> bool {
        match (Self::of_policy(subject), self) {
            (None, _) => false,
            (Some(Self::User(name)), Self::User(own)) => name == *own,
            (Some(Self::User(name)), Self::UserPrefix(own)) => name.starts_with(own),
            (Some(Self::UserPrefix(prefix)), Self::User(own)) => own.starts_with(&prefix),
            (Some(Self::UserPrefix(prefix)), Self::UserPrefix(own)) => {
                prefix.starts_with(own) || own.starts_with(&prefix)
            }
            (Some(users @ (Self::User(_) | Self::UserPrefix(_))), Self::Group(_) | Self::GroupPrefix(_)) => {
                !users.are_accounts() || self.may_have_accounts(&users)
            }
            (Some(groups), Self::User(_) | Self::UserPrefix(_)) if self.are_accounts() => {
                groups.may_have_accounts(self)
            }
            _ => true,
        }
    }

    /// Whether all of these users are service accounts.
    fn are_accounts(&self) -> bool {
        matches!(self, Self::User(name) | Self::UserPrefix(name) if name.starts_with(ACCOUNT_PREFIX))
    }

    /// Whether some of `accounts` may be members of the group.
    fn may_have_accounts(&self, accounts: &Self) -> bool {
        let is_of_one = match self {
            Self::Group(group) => is_of_accounts(group),
            Self::GroupPrefix(prefix) => is_of_accounts(prefix),
            Self::User(_) | Self::UserPrefix(_) => false,
        };
        // With a pattern, the namespace may be any.
        is_of_one && matches!(accounts, Self::UserPrefix(_))
            || accounts
                .implied_groups()
                .iter()
                .any(|group| self.includes_group(group))
    }

    /// Whether `neverDeny` protects all of these users.
    pub(crate) fn is_protected(&self, matcher: &NeverDenyMatcher) -> bool {
        let name = match self {
            Self::User(name) => name.as_str(),
            _ => "",
        };
        let groups = self.implied_groups();
        matcher.matches_user(&User {
            name: name.into(),
            groups: groups.iter().map(|group| group.as_str().into()).collect(),
            ..User::default()
        })
    }

    /// Whether `neverDeny` may protect some of these users. The groups of the control plane's users
    /// are known; other users may be in any group.
    pub(crate) fn may_be_protected(&self, never_deny: &NeverDeny) -> bool {
        let accounts = never_deny
            .service_accounts
            .iter()
            .map(|account| account.user_name());
        let mut users = never_deny.users.iter().cloned().chain(accounts);
        users.any(|user| self.may_include(&user))
            || never_deny.groups.iter().any(|group| self.may_be_in(group))
    }

    fn may_include(&self, user: &str) -> bool {
        match self {
            Self::User(own) => own == user,
            Self::UserPrefix(prefix) => user.starts_with(prefix),
            Self::Group(_) | Self::GroupPrefix(_) if !CONTROL_PLANE.contains(&user) => true,
            Self::Group(_) | Self::GroupPrefix(_) => {
                let groups = Self::User(user.to_owned()).implied_groups();
                groups.iter().any(|group| self.includes_group(group))
            }
        }
    }

    fn may_be_in(&self, group: &str) -> bool {
        match self {
            _ if group != NODES => true,
            Self::User(name) => name.starts_with(NODE_PREFIX),
            Self::UserPrefix(prefix) => {
                prefix.starts_with(NODE_PREFIX) || NODE_PREFIX.starts_with(prefix.as_str())
            }
            Self::Group(_) | Self::GroupPrefix(_) => {
                self.includes_group(NODES) || self.includes_group(AUTHENTICATED)
            }
        }
    }

    fn includes_group(&self, group: &str) -> bool {
        match self {
            Self::Group(own) => own == group,
            Self::GroupPrefix(prefix) => group.starts_with(prefix),
            Self::User(_) | Self::UserPrefix(_) => false,
        }
    }

    /// The groups that contain all of these users: those that the name implies, that of all
    /// authenticated users, and the groups of service accounts.
    pub(crate) fn implied_groups(&self) -> Vec<String> {
        let mut groups = Vec::new();
        let is_authenticated = match self {
            Self::User(name) => name != ANONYMOUS,
            Self::UserPrefix(prefix) => !ANONYMOUS.starts_with(prefix.as_str()),
            Self::Group(name) => name != UNAUTHENTICATED,
            Self::GroupPrefix(prefix) => !UNAUTHENTICATED.starts_with(prefix.as_str()),
        };
        match self {
            Self::User(name) if name == ANONYMOUS => groups.push(UNAUTHENTICATED.to_owned()),
            Self::User(name) | Self::UserPrefix(name) => {
                if let Some(account) = name.strip_prefix(ACCOUNT_PREFIX) {
                    groups.push(ACCOUNTS.to_owned());
                    let namespace = account.split_once(':').map(|(namespace, _)| namespace);
                    groups.extend(namespace.map(|namespace| format!("{ACCOUNTS}:{namespace}")));
                }
            }
            Self::Group(name) => {
                groups.push(name.clone());
                groups.extend(is_of_accounts(name).then(|| ACCOUNTS.to_owned()));
            }
            Self::GroupPrefix(prefix) => {
                groups.extend(is_of_accounts(prefix).then(|| ACCOUNTS.to_owned()));
            }
        }
        groups.extend(is_authenticated.then(|| AUTHENTICATED.to_owned()));
        groups
    }
}

/// Whether `group` is the group of one namespace's service accounts, or a prefix of such groups.
fn is_of_accounts(group: &str) -> bool {
    group
        .strip_prefix(ACCOUNTS)
        .is_some_and(|rest| rest.starts_with(':'))
}
