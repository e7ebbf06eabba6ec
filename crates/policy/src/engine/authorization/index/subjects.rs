//! Users and groups as numbers.

use crate::engine::User;
use crate::engine::authorization::{Subject, SubjectKind};

use super::Ids;
use super::symbols::{Prefixes, next_number};
use super::texts::NumberedTexts;

/// The subjects of all bindings and policies, numbered. A service account is a user.
#[derive(Debug, Clone, Default)]
pub(crate) struct Subjects {
    users: NumberedTexts,
    groups: NumberedTexts,
    user_prefixes: Prefixes,
    group_prefixes: Prefixes,
    count: u32,
}

/// Whom a policy's subject stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// Every request.
    Anyone,
    /// Those found under this number.
    Id(u32),
    /// Nobody: a service account without namespace, which no manifest has.
    Nobody,
}

impl Subjects {
    /// The number of a binding's subject; `None` for a service account of no namespace,
    /// who is nobody.
    pub(super) fn bound(&mut self, subject: &Subject, namespace: &str) -> Option<u32> {
        match subject.kind {
            SubjectKind::User => Some(self.user(&subject.name)),
            SubjectKind::Group => Some(self.group(&subject.name)),
            SubjectKind::ServiceAccount => {
                let namespace = if subject.namespace.is_empty() {
                    namespace
                } else {
                    &subject.namespace
                };
                let name = format!("system:serviceaccount:{namespace}:{}", subject.name);
                (!namespace.is_empty()).then(|| self.user(&name))
            }
        }
    }

    /// Whom a policy's subject stands for, in which a `*` at the end is any text.
    pub(super) fn matched(&mut self, subject: &Subject) -> Named {
        let prefix = subject.name.strip_suffix('*');
        match (subject.kind, prefix) {
            (SubjectKind::User | SubjectKind::Group, Some("")) => Named::Anyone,
            (SubjectKind::User, Some(prefix)) => {
                let count = &mut self.count;
                Named::Id(self.user_prefixes.intern(prefix, || next_number(count)))
            }
            (SubjectKind::Group, Some(prefix)) => {
                let count = &mut self.count;
                Named::Id(self.group_prefixes.intern(prefix, || next_number(count)))
            }
            (_, None) | (SubjectKind::ServiceAccount, Some(_)) => {
                self.bound(subject, "").map_or(Named::Nobody, Named::Id)
            }
        }
    }

    /// The numbers under which `user` is found: one look-up for the name and
    /// each group, and for each length of prefix.
    pub(crate) fn find(&self, user: &User<'_>) -> Ids {
        let mut ids = Ids::default();
        if let Some(id) = self.users.get(user.name.as_ref()) {
            ids.push(id);
        }
        self.user_prefixes.each(&user.name, |id| ids.push(id));
        for group in &user.groups {
            if let Some(id) = self.groups.get(group.as_ref()) {
                ids.push(id);
            }
            self.group_prefixes.each(group, |id| ids.push(id));
        }
        ids
    }

    /// From now on what there is is shared by clones.
    pub(in crate::engine::authorization) fn share(&mut self) {
        self.users.share();
        self.groups.share();
        self.user_prefixes.share();
        self.group_prefixes.share();
    }

    /// The same, for the set of one cluster over the set that all share.
    pub(in crate::engine::authorization) fn over(&self) -> Self {
        Self {
            users: self.users.over(),
            groups: self.groups.over(),
            user_prefixes: self.user_prefixes.over(),
            group_prefixes: self.group_prefixes.over(),
            count: self.count,
        }
    }

    /// How many subjects came since.
    pub(in crate::engine::authorization) fn added(&self) -> usize {
        let prefixes = self.user_prefixes.added() + self.group_prefixes.added();
        self.users.added() + self.groups.added() + prefixes
    }

    fn user(&mut self, name: &str) -> u32 {
        let count = &mut self.count;
        self.users.intern(name, || next_number(count))
    }

    fn group(&mut self, name: &str) -> u32 {
        let count = &mut self.count;
        self.groups.intern(name, || next_number(count))
    }
}
