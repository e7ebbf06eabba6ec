//! Who may take steps, and what one of them is allowed: where, and about which names.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::authorization::access::SubjectScope;
use crate::authorization::{Role, RoleKind, ServiceAccount};

/// The ClusterRole that allows everything on each API server.
pub(crate) const CLUSTER_ADMIN: &str = "cluster-admin";

/// Some of the namespaces that are known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Area {
    /// All of them; for what is in no namespace, too.
    Everywhere,
    /// These, by number.
    In(Rc<BTreeSet<usize>>),
}

/// Some names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Names {
    /// All but these.
    Except(Rc<BTreeSet<String>>),
    /// This.
    Only(String),
}

/// Something that is allowed, or would be but for Deny policies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reach {
    pub(crate) is_refuted: bool,
    /// Whether there are limits besides namespace and name.
    pub(crate) is_limited: bool,
    pub(crate) names: Names,
    pub(crate) area: Area,
}

/// Somebody who may take steps.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Actor {
    /// A subject of a binding or policy.
    Subject(SubjectScope),
    /// The holder of a role by a binding of their own making; with no name, one that allows everything.
    Holder(HeldRole),
}

/// A role and where it is had.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HeldRole {
    /// The namespace of a Role; `None` of a ClusterRole.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    /// `None`: by a ClusterRoleBinding.
    pub(crate) within: Option<Area>,
}

// === impl Area ===

impl Area {
    pub(crate) fn one(namespace: usize) -> Self {
        Self::In(Rc::new([namespace].into()))
    }

    pub(crate) fn contains(&self, namespace: usize) -> bool {
        match self {
            Self::Everywhere => true,
            Self::In(some) => some.contains(&namespace),
        }
    }

    /// What is in both; `None` where nothing is.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Everywhere, area) | (area, Self::Everywhere) => Some(area.clone()),
            (Self::In(some), Self::In(others)) => {
                let both: BTreeSet<usize> = some.intersection(others).copied().collect();
                (!both.is_empty()).then(|| Self::In(Rc::new(both)))
            }
        }
    }

    pub(crate) fn or(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Everywhere, _) | (_, Self::Everywhere) => Self::Everywhere,
            (Self::In(some), Self::In(others)) => Self::In(Rc::new(some.union(others).copied().collect())),
        }
    }
}

// === impl Names ===

impl Names {
    pub(crate) fn all() -> Self {
        Self::Except(Rc::default())
    }

    pub(crate) fn all_but(name: &str) -> Self {
        Self::Except(Rc::new([name.to_owned()].into()))
    }

    pub(crate) fn include(&self, name: &str) -> bool {
        match self {
            Self::Except(others) => !others.contains(name),
            Self::Only(only) => only == name,
        }
    }

    /// What is in both; `None` where nothing is.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Except(some), Self::Except(others)) => {
                Some(Self::Except(Rc::new(some.union(others).cloned().collect())))
            }
            (Self::Only(name), names) | (names, Self::Only(name)) => {
                names.include(name).then(|| Self::Only(name.clone()))
            }
        }
    }
}

// === impl Actor ===

impl Actor {
    /// Whom API servers allow everything that they are asked.
    pub(crate) fn cluster_admin() -> Self {
        Self::Holder(HeldRole::cluster_admin())
    }

    pub(crate) fn account(namespace: &str, name: &str) -> Self {
        let account = ServiceAccount {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        Self::Subject(SubjectScope::User(account.user_name()))
    }

    pub(crate) fn into_subject(self) -> Option<SubjectScope> {
        match self {
            Self::Subject(scope) => Some(scope),
            Self::Holder(_) => None,
        }
    }

    /// For Deny policies: who has a role may be anybody.
    pub(crate) fn scope(&self) -> SubjectScope {
        match self {
            Self::Subject(scope) => scope.clone(),
            Self::Holder(_) => SubjectScope::Group("system:authenticated".to_owned()),
        }
    }
}

// === impl Reach ===

impl Reach {
    /// What both allow.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        Some(Self {
            is_refuted: self.is_refuted || other.is_refuted,
            is_limited: self.is_limited || other.is_limited,
            names: self.names.and(&other.names)?,
            area: self.area.and(&other.area)?,
        })
    }
}

// === impl HeldRole ===

impl HeldRole {
    pub(crate) fn cluster_admin() -> Self {
        Self {
            namespace: None,
            name: CLUSTER_ADMIN.to_owned(),
            within: None,
        }
    }

    /// Whether it is that of each API server that allows everything.
    pub(crate) fn is_everything(&self) -> bool {
        self.namespace.is_none() && self.name == CLUSTER_ADMIN
    }

    pub(crate) fn is(&self, role: &Role) -> bool {
        role.name == self.name && role.namespace == self.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) const fn kind(&self) -> RoleKind {
        match self.namespace {
            Some(_) => RoleKind::Role,
            None => RoleKind::ClusterRole,
        }
    }
}
