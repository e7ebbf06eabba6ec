//! Whom a binding, policy or exception is about.

use std::fmt;

/// Whom a binding or policy is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// `kind`.
    pub kind: SubjectKind,
    /// `name`. In an [`AuthorizationPolicy`](super::AuthorizationPolicy), a `*` at the end
    /// of a User's or Group's name makes it a prefix; in a [`Binding`](super::Binding) it
    /// is a plain character.
    pub name: String,
    /// Of a ServiceAccount only. Empty in a RoleBinding: that of the binding.
    pub namespace: String,
}

/// The kinds of subjects that RBAC knows. Another is no kind: who reads an object that
/// has one refuses the object, lest a Deny for it denies nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SubjectKind {
    /// A user by name.
    User,
    /// All users of a group.
    Group,
    /// A service account, which is the user `system:serviceaccount:NAMESPACE:NAME`.
    ServiceAccount,
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

impl fmt::Display for SubjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
