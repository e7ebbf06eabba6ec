//! Sets of groups, and what they say of service accounts.

use std::sync::Arc;

use super::text_set::{Patterns, TextSet};

/// What the user name of a service account begins with.
pub(crate) const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// The groups of a service account, besides that of its namespace.
const SERVICE_ACCOUNT_GROUPS: [&str; 2] = ["system:serviceaccounts", "system:authenticated"];
/// What the group of all service accounts of a namespace begins with.
const NAMESPACE_GROUP: &str = "system:serviceaccounts:";

/// Sets of groups: those that hold some, and not others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupSet {
    /// Each of these texts is a group, and a group begins with each of these prefixes.
    pub all: Patterns,
    /// None of the groups is one of these.
    pub none: Patterns,
}

// === impl GroupSet ===

/// A group, or what the names of groups begin with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GroupName<'g> {
    Exact(&'g Arc<str>),
    Prefix(&'g Arc<str>),
}

impl GroupSet {
    pub(crate) fn of(group: GroupName<'_>, is_member: bool) -> Self {
        let patterns = match group {
            GroupName::Exact(name) => Patterns::exact([Arc::clone(name)]),
            GroupName::Prefix(prefix) => Patterns::prefixes([Arc::clone(prefix)]),
        };
        let none = Patterns::default();
        let (all, none) = if is_member {
            (patterns, none)
        } else {
            (none, patterns)
        };
        Self { all, none }
    }

    /// Each group by itself, and whether it is to be there.
    pub(crate) fn literals(&self) -> impl Iterator<Item = (GroupName<'_>, bool)> {
        fn of(patterns: &Patterns) -> impl Iterator<Item = GroupName<'_>> {
            let exact = patterns.exact.iter().map(GroupName::Exact);
            exact.chain(patterns.prefixes.iter().map(GroupName::Prefix))
        }
        of(&self.all)
            .map(|group| (group, true))
            .chain(of(&self.none).map(|group| (group, false)))
    }

    /// `None` where no set of groups is in both.
    pub(crate) fn intersection(&self, other: &Self) -> Option<Self> {
        let both = Self {
            all: self.all.clone().or(other.all.clone()),
            none: self.none.clone().or(other.none.clone()),
        };
        let is_possible = both.all.exact.iter().all(|group| !both.none.contains(group))
            // Of those that begin so, there is always another than those named.
            && both.all.prefixes.iter().all(|prefix| !both.none.contains_prefix(prefix));
        is_possible.then_some(both)
    }

    /// Whether `other`, which is possible, holds nothing else.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let begins = |prefix: &Arc<str>| {
            let mut groups = other.all.exact.iter().chain(&other.all.prefixes);
            groups.any(|group| group.starts_with(&**prefix))
        };
        self.all.exact.iter().all(|group| other.all.exact.contains(group))
            && self.all.prefixes.iter().all(begins)
            && self.none.exact.iter().all(|group| other.none.contains(group))
            && self
                .none
                .prefixes
                .iter()
                .all(|prefix| other.none.contains_prefix(prefix))
    }

    /// The names of the service accounts with such groups.
    pub(crate) fn service_accounts(&self) -> TextSet {
        let mut accounts = TextSet::all();
        for (group, is_member) in self.literals() {
            let of_group = match group {
                GroupName::Exact(name) => accounts_of_group(name, true),
                GroupName::Prefix(prefix) => accounts_of_group(prefix, false),
            };
            let with = match is_member {
                true => TextSet::of(of_group),
                false => TextSet::all_but(of_group),
            };
            accounts = accounts.intersection(&with);
        }
        accounts
    }
}

/// The names of the service accounts with this group, or with one that begins so.
fn accounts_of_group(group: &str, is_whole: bool) -> Patterns {
    let is_one = |one: &str| {
        if is_whole {
            one == group
        } else {
            one.starts_with(group)
        }
    };
    if SERVICE_ACCOUNT_GROUPS.into_iter().any(is_one) {
        return Patterns::prefixes([SERVICE_ACCOUNT]);
    }
    match group.strip_prefix(NAMESPACE_GROUP) {
        Some(namespace) if namespace.contains(':') || is_whole && namespace.is_empty() => Patterns::default(),
        Some(namespace) => {
            let end = if is_whole { ":" } else { "" };
            Patterns::prefixes([format!("{SERVICE_ACCOUNT}{namespace}{end}")])
        }
        None => Patterns::default(),
    }
}

/// The groups that the name of a service account implies.
pub(crate) fn groups_of_account(user: &str) -> Option<[String; 3]> {
    let (namespace, _) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let [accounts, authenticated] = SERVICE_ACCOUNT_GROUPS.map(str::to_owned);
    Some([accounts, format!("{NAMESPACE_GROUP}{namespace}"), authenticated])
}
