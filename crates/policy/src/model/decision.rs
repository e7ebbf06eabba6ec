//! The decision, and its cause.

use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};

/// The three possible decisions of an authorizer. None is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The request may proceed; no later authorizer is asked.
    Allow,
    /// The request is denied; no later authorizer is asked.
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
    /// The kind of the object.
    pub kind: CauseKind,
    /// The namespace of the object; empty for cluster-scoped kinds.
    pub namespace: Cow<'a, str>,
    /// The name of the object.
    pub name: Cow<'a, str>,
    /// An index: into the rules of the role for a binding; into the resource rules followed by the
    /// non-resource rules for a policy; into the webhooks for a webhook configuration.
    pub rule: Option<usize>,
}

/// The kinds of objects that can decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CauseKind {
    /// `rbac.authorization.k8s.io` RoleBinding.
    RoleBinding,
    /// `rbac.authorization.k8s.io` ClusterRoleBinding.
    ClusterRoleBinding,
    /// `portcullis.dev` AuthorizationPolicy.
    AuthorizationPolicy,
    /// `portcullis.dev` AccessRequest.
    AccessRequest,
    /// `portcullis.dev` AdmissionException.
    AdmissionException,
    /// `admissionregistration.k8s.io` ValidatingAdmissionPolicy.
    ValidatingAdmissionPolicy,
    /// `admissionregistration.k8s.io` MutatingAdmissionPolicy.
    MutatingAdmissionPolicy,
    /// An authorization webhook of the configuration (`authorization.webhooks`).
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
    /// The same cause with owned strings.
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
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::RoleBinding,
        Self::ClusterRoleBinding,
        Self::AuthorizationPolicy,
        Self::AccessRequest,
        Self::AdmissionException,
        Self::ValidatingAdmissionPolicy,
        Self::MutatingAdmissionPolicy,
        Self::Webhook,
        Self::ValidatingWebhookConfiguration,
        Self::MutatingWebhookConfiguration,
        Self::ExternalAdmissionHookConfiguration,
    ];

    /// The kind as manifests spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
            Self::AuthorizationPolicy => "AuthorizationPolicy",
            Self::AccessRequest => "AccessRequest",
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

/// For example `RoleBinding/prod/dev, rule 1`.
impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_ref() {
            "" => write!(f, "{}/{}", self.kind, self.name)?,
            namespace => write!(f, "{}/{namespace}/{}", self.kind, self.name)?,
        }
        match self.rule {
            Some(rule) => write!(f, ", rule {rule}"),
            None => Ok(()),
        }
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

/// The result of evaluating a policy, as metrics count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyResult {
    /// The policy applies and is enforced.
    Match,
    /// The policy was considered and does not apply.
    NoMatch,
    /// A condition could not be evaluated.
    Error,
    /// The policy is in Shadow mode and would allow.
    ShadowAllow,
    /// The policy is in Shadow mode and would deny.
    ShadowDeny,
}

impl PolicyResult {
    /// Every result.
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

// Why an HTTP request is rejected or an object is denied, in Kubernetes' terms.

/// The values of `metav1.StatusReason` that are used here, with their codes from
/// `apimachinery/pkg/apis/meta/v1/types.go`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatusReason {
    /// 400: the request cannot be understood.
    BadRequest,
    /// 401: no credential, or an invalid one.
    Unauthorized,
    /// 403: the user is known, and may not do this.
    Forbidden,
    /// 404: no such path.
    NotFound,
    /// 405: the path does not support the method.
    MethodNotAllowed,
    /// 413: the body is larger than allowed.
    RequestEntityTooLarge,
    /// 415: the content type is not JSON.
    UnsupportedMediaType,
    /// 422: the object cannot be stored as it is.
    Invalid,
    /// 429: too many requests are in flight.
    TooManyRequests,
    /// 500: an error of this program.
    InternalError,
    /// 503: temporarily unavailable.
    ServiceUnavailable,
    /// 504: the caller's deadline passed.
    Timeout,
}

impl StatusReason {
    /// The HTTP status code.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
            Self::InternalError => 500,
            Self::ServiceUnavailable => 503,
            Self::Timeout => 504,
        }
    }

    /// The reason as Kubernetes spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::Invalid => "Invalid",
            Self::TooManyRequests => "TooManyRequests",
            Self::InternalError => "InternalError",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::Timeout => "Timeout",
        }
    }

    /// Parses the `reason` of a validation, for which policies may use four of the reasons.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Unauthorized" => Some(Self::Unauthorized),
            "Forbidden" => Some(Self::Forbidden),
            "Invalid" => Some(Self::Invalid),
            "RequestEntityTooLarge" => Some(Self::RequestEntityTooLarge),
            _ => None,
        }
    }
}

impl Serialize for StatusReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
