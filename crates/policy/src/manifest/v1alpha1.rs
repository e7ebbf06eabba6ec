//! `portcullis.dev/v1alpha1` as users write it. What is left out, `null` and
//! empty are the same.

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, MatchResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::{Deserialize, Deserializer};

/// What RBAC cannot say: a denial, or a grant with patterns and conditions.
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

/// What the policy decides, for whom, and when.
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
    /// For a Deny or Limit whose condition errors: `Deny`, the default, or `NoOpinion`.
    #[serde(deserialize_with = "nullable")]
    pub(crate) failure_policy: String,
    /// Of a Deny or Limit: whether an AccessRequest may lift it.
    #[serde(deserialize_with = "nullable")]
    pub(crate) liftable: bool,
    /// RFC 3339: from then on the policy holds. An empty text is none.
    pub(crate) not_before: Option<String>,
    /// RFC 3339: before then the policy holds.
    pub(crate) not_after: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) reason: String,
}

/// What no policies may come to allow.
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

/// Who alone may do what, and what becomes of a write that would let others.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct InvariantSpec {
    /// What is left out is a fault; an empty list is nobody.
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

/// What admission refuses may pass, for a while.
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

/// Whose denials, of whose requests for which objects, until when, and why.
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

/// A role for a time.
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
    /// Read by itself: no status makes an object faulty.
    #[serde(rename = "status")]
    _status: serde_json::Value,
}

/// Which role, where, for how long, and why.
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

/// Who asked, as `/mutate` writes it.
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

/// RBAC's subject; the name of a User or Group may end in `*`.
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

/// Which requests for resources.
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
    /// One that selects everything is a fault, not what is left out.
    pub(crate) namespace_selector: Option<LabelSelector>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) names: Vec<String>,
    /// Allow only.
    #[serde(deserialize_with = "nullable")]
    pub(crate) selectors: Selectors,
    /// Deny only.
    #[serde(deserialize_with = "nullable")]
    pub(crate) unless_selectors: Selectors,
}

/// What a request must at least be narrowed by.
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

/// Which requests for paths outside the API.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NonResourceRule {
    #[serde(deserialize_with = "nullable")]
    pub(crate) verbs: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) paths: Vec<String>,
}

/// A CEL expression over the review's spec.
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

/// `null` is what is left out.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests;
