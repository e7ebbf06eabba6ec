//! `portcullis.dev/v1alpha1` as users write it. Absent fields, `null` and empty values are
//! equivalent.

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, MatchResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::{Deserialize, Deserializer};

/// AuthorizationPolicy: denials and limits, and grants with patterns and conditions.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AuthorizationPolicy {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub(crate) spec: Spec,
}

/// The effect of a policy, and the subjects and requests that it applies to.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    /// `Allow`, `Deny` or `Limit`.
    #[serde(deserialize_with = "nullable")]
    pub(crate) effect: String,
    /// `Enforce`, the default, or `Shadow`.
    #[serde(deserialize_with = "nullable")]
    pub(crate) mode: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) subjects: Vec<Subject>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) exclude_subjects: Vec<Subject>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) resource_rules: Vec<ResourceRule>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) non_resource_rules: Vec<NonResourceRule>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) object_conditions: Vec<Condition>,
    /// The decision of a Deny or Limit whose condition fails: `Deny`, the default, or `NoOpinion`.
    #[serde(deserialize_with = "nullable")]
    pub(crate) failure_policy: String,
    /// Whether an AccessRequest may lift a Deny or Limit.
    #[serde(deserialize_with = "nullable")]
    pub(crate) liftable: bool,
    /// The start of the policy's validity (RFC 3339). An empty string is an error.
    pub(crate) not_before: Option<String>,
    /// The end of the policy's validity (RFC 3339), exclusive.
    pub(crate) not_after: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) reason: String,
}

/// AuthorizationInvariant: requests that no policies may allow.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AuthorizationInvariant {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub(crate) spec: InvariantSpec,
}

/// The only subjects that may make certain requests, and what happens to a write that would allow
/// others to.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct InvariantSpec {
    /// Required; an empty list means nobody.
    pub(crate) only: Option<Vec<Subject>>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) subjects: Vec<Subject>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) resource_rules: Vec<ResourceRule>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) non_resource_rules: Vec<NonResourceRule>,
    /// `Refuse` or `Warn`.
    #[serde(deserialize_with = "nullable")]
    pub(crate) enforcement: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) reason: String,
}

/// AdmissionException: denials of admission that are excused for a limited time.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AdmissionException {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub(crate) spec: ExceptionSpec,
}

/// The policies, users and objects of an exception, its end and its reason.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ExceptionSpec {
    #[serde(deserialize_with = "nullable")]
    pub(crate) policies: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) subjects: Vec<Subject>,
    #[serde(rename = "match")]
    pub(crate) constraints: Option<MatchResources>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) match_conditions: Vec<MatchCondition>,
    /// RFC 3339.
    pub(crate) not_after: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) reason: String,
}

/// AccessRequest: the request of a user to get a role for a limited time.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AccessRequest {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub(crate) spec: AccessRequestSpec,
    /// Read separately, because an invalid status does not make the object invalid.
    #[serde(rename = "status")]
    _status: serde_json::Value,
}

/// The role, its namespaces, the duration and the reason.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AccessRequestSpec {
    #[serde(deserialize_with = "nullable")]
    pub(crate) role: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) namespaces: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) duration: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) reason: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) lifts: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) requester: RequesterFields,
}

/// The requester, as set by `/mutate`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RequesterFields {
    #[serde(deserialize_with = "nullable")]
    pub(crate) username: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) uid: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) groups: Vec<String>,
}

/// A subject as in RBAC. The name of a User or Group may end in `*`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Subject {
    #[serde(deserialize_with = "nullable")]
    pub(crate) kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) api_group: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) namespace: String,
}

/// A rule for resource requests.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResourceRule {
    #[serde(deserialize_with = "nullable")]
    pub(crate) verbs: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) api_groups: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) resources: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) namespaces: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) exclude_namespaces: Vec<String>,
    /// Optional; an empty selector is an error.
    pub(crate) namespace_selector: Option<LabelSelector>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) names: Vec<String>,
    /// Only in an Allow or Limit.
    #[serde(deserialize_with = "nullable")]
    pub(crate) selectors: Selectors,
    /// Only in a Deny.
    #[serde(deserialize_with = "nullable")]
    pub(crate) unless_selectors: Selectors,
}

/// Field and label selectors that a request must have, or narrower ones.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Selectors {
    #[serde(deserialize_with = "nullable")]
    pub(crate) field: Vec<Requirement>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) label: Vec<Requirement>,
}

/// `key operator values`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Requirement {
    #[serde(deserialize_with = "nullable")]
    pub(crate) key: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) operator: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) values: Vec<String>,
}

/// A rule for non-resource requests.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NonResourceRule {
    #[serde(deserialize_with = "nullable")]
    pub(crate) verbs: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) paths: Vec<String>,
}

/// A named CEL expression, on the spec of the SubjectAccessReview or, in `objectConditions`, on the
/// object.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) expression: String,
}

impl AuthorizationPolicy {
    pub(crate) fn new(metadata: ObjectMeta, spec: Spec) -> Self {
        Self {
            metadata,
            spec,
            ..Self::default()
        }
    }
}

impl Selectors {
    pub(crate) fn is_empty(&self) -> bool {
        self.field.is_empty() && self.label.is_empty()
    }
}

/// Deserializes `null` like an absent field.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests;
