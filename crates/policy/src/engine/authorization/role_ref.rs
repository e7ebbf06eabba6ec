//! Which role a binding grants.

use std::fmt;

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
