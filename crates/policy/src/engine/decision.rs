//! The decision, and its cause.

use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};

/// The three answers of an authorizer. None is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The request may proceed; no later authorizer is asked.
    Allow,
    /// The request is refused; no later authorizer is asked.
    Deny,
    /// The next authorizer decides.
    NoOpinion,
}

impl Decision {
    /// The name used in logs, metrics and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::NoOpinion => "noOpinion",
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The object that decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause<'a> {
    /// Its kind.
    pub kind: CauseKind,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: Cow<'a, str>,
    /// Its name.
    pub name: Cow<'a, str>,
    /// The rule within it: an index into the rules of the role (for a binding)
    /// or into the resource rules, then non-resource rules, of a policy; of a
    /// webhook configuration, into its webhooks.
    pub rule: Option<usize>,
}

/// The kinds that can decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CauseKind {
    /// `rbac.authorization.k8s.io` RoleBinding.
    RoleBinding,
    /// `rbac.authorization.k8s.io` ClusterRoleBinding.
    ClusterRoleBinding,
    /// `portcullis.dev` AuthorizationPolicy.
    AuthorizationPolicy,
    /// `portcullis.dev` AdmissionException.
    AdmissionException,
    /// `admissionregistration.k8s.io` ValidatingAdmissionPolicy.
    ValidatingAdmissionPolicy,
    /// `admissionregistration.k8s.io` MutatingAdmissionPolicy.
    MutatingAdmissionPolicy,
    /// One of `authorization.webhooks`.
    Webhook,
    /// `admissionregistration.k8s.io` ValidatingWebhookConfiguration.
    ValidatingWebhookConfiguration,
    /// `admissionregistration.k8s.io` MutatingWebhookConfiguration.
    MutatingWebhookConfiguration,
    /// `admissionregistration.k8s.io` ExternalAdmissionHookConfiguration.
    ExternalAdmissionHookConfiguration,
}

// === impl Cause ===

impl Cause<'_> {
    /// The same, with names of its own.
    #[must_use]
    pub fn into_owned(self) -> Cause<'static> {
        Cause {
            kind: self.kind,
            namespace: Cow::Owned(self.namespace.into_owned()),
            name: Cow::Owned(self.name.into_owned()),
            rule: self.rule,
        }
    }
}

// === impl CauseKind ===

impl CauseKind {
    /// The kind as manifests spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
            Self::AuthorizationPolicy => "AuthorizationPolicy",
            Self::AdmissionException => "AdmissionException",
            Self::ValidatingAdmissionPolicy => "ValidatingAdmissionPolicy",
            Self::MutatingAdmissionPolicy => "MutatingAdmissionPolicy",
            Self::Webhook => "Webhook",
            Self::ValidatingWebhookConfiguration => "ValidatingWebhookConfiguration",
            Self::MutatingWebhookConfiguration => "MutatingWebhookConfiguration",
            Self::ExternalAdmissionHookConfiguration => "ExternalAdmissionHookConfiguration",
        }
    }
}

impl fmt::Display for CauseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for CauseKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

// The result of a policy, as metrics count it.

/// What an evaluated policy came to, as metrics count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyResult {
    /// It applies and is enforced.
    Match,
    /// It was looked at and does not apply.
    NoMatch,
    /// A condition has no result.
    Error,
    /// In Shadow it would allow.
    ShadowAllow,
    /// In Shadow it would deny.
    ShadowDeny,
}

impl PolicyResult {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Match,
        Self::NoMatch,
        Self::Error,
        Self::ShadowAllow,
        Self::ShadowDeny,
    ];

    /// The value of the metric's label `result`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::NoMatch => "noMatch",
            Self::Error => "error",
            Self::ShadowAllow => "shadowAllow",
            Self::ShadowDeny => "shadowDeny",
        }
    }
}

impl fmt::Display for PolicyResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
