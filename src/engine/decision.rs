//! What is answered, and because of what.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::trace::Event;

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

/// The answer to one question, and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    /// The answer.
    pub decision: Decision,
    /// What decided, for the person who asked: at most [`Authorization::MAX_REASON_BYTES`].
    /// Empty without opinion; [`PolicySet::unmatched`](super::PolicySet::unmatched) says more.
    pub reason: String,
    /// The object that decided; `None` without opinion.
    pub cause: Option<Cause>,
    /// What policies in Shadow would have decided, by name. They changed nothing.
    pub shadow: Vec<Shadow>,
    /// How many rules of bindings and policies were compared with the request.
    pub visited: usize,
}

/// What a policy in Shadow would have decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadow {
    /// Its kind.
    pub kind: CauseKind,
    /// Its name.
    pub name: Arc<str>,
    /// Its answer; [`Decision::NoOpinion`] where a condition had no result.
    pub decision: Decision,
    /// Why a condition had no result.
    pub error: Option<String>,
}

/// Why nothing decided: for the log and the command line, not for the person refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unmatched {
    /// How many bindings apply to the user where the request is; of each of the
    /// user's names and groups at most 1,000 are counted.
    pub bindings: usize,
    /// How many AuthorizationPolicies there are.
    pub policies: usize,
    /// Roles that are bound to the user and cannot be found, in kube-apiserver's
    /// words, at most [`Unmatched::MAX_ERRORS`].
    pub errors: Vec<String>,
    /// The binding or policy that fits best, and what of it does not fit.
    pub nearest: Option<Event>,
}

/// The object that decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Its kind.
    pub kind: CauseKind,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The rule within it: an index into the rules of the role (for a binding)
    /// or into the resource rules, then non-resource rules, of a policy; of a
    /// webhook configuration, into its webhooks.
    pub rule: Option<usize>,
}

// === impl Authorization ===

impl Authorization {
    /// The longest reason, in bytes; a longer one is cut and ends in `…`.
    pub const MAX_REASON_BYTES: usize = 1024;
}

// === impl Unmatched ===

impl Unmatched {
    /// The most missing roles that are named.
    pub const MAX_ERRORS: usize = 10;
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

impl CauseKind {
    /// The kind as manifests spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
            Self::AuthorizationPolicy => "AuthorizationPolicy",
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
