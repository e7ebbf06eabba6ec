//! `portcullis.dev/v1alpha1` as users write it. What is left out, `null` and
//! empty are the same.

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, MatchResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::{Deserialize, Deserializer};

/// What RBAC cannot say: a denial, or a grant with patterns and conditions.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AuthorizationPolicy {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub(super) spec: Spec,
}

/// What the policy decides, for whom, and when.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    /// `Allow` or `Deny`.
    #[serde(deserialize_with = "nullable")]
    pub(super) effect: String,
    /// `Enforce`, the default, or `Shadow`.
    #[serde(deserialize_with = "nullable")]
    pub(super) mode: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) subjects: Vec<Subject>,
    #[serde(deserialize_with = "nullable")]
    pub(super) exclude_subjects: Vec<Subject>,
    #[serde(deserialize_with = "nullable")]
    pub(super) resource_rules: Vec<ResourceRule>,
    #[serde(deserialize_with = "nullable")]
    pub(super) non_resource_rules: Vec<NonResourceRule>,
    #[serde(deserialize_with = "nullable")]
    pub(super) conditions: Vec<Condition>,
    /// For a Deny whose condition errors: `Deny`, the default, or `NoOpinion`.
    #[serde(deserialize_with = "nullable")]
    pub(super) failure_policy: String,
    /// RFC 3339: from then on the policy holds. An empty text is none.
    pub(super) not_before: Option<String>,
    /// RFC 3339: before then the policy holds.
    pub(super) not_after: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) reason: String,
}

/// What admission refuses may pass, for a while.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AdmissionException {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub(super) spec: ExceptionSpec,
}

/// Whose denials, of whose requests for which objects, until when, and why.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExceptionSpec {
    #[serde(deserialize_with = "nullable")]
    pub(super) policies: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) subjects: Vec<Subject>,
    #[serde(rename = "match")]
    pub(super) constraints: Option<MatchResources>,
    #[serde(deserialize_with = "nullable")]
    pub(super) match_conditions: Vec<MatchCondition>,
    /// RFC 3339.
    pub(super) not_after: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) reason: String,
}

/// RBAC's subject; the name of a User or Group may end in `*`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Subject {
    #[serde(deserialize_with = "nullable")]
    pub(super) kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) api_group: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) namespace: String,
}

/// Which requests for resources.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ResourceRule {
    #[serde(deserialize_with = "nullable")]
    pub(super) verbs: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) api_groups: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) resources: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) namespaces: Vec<String>,
    /// One that selects everything is a fault, not what is left out.
    pub(super) namespace_selector: Option<LabelSelector>,
    #[serde(deserialize_with = "nullable")]
    pub(super) names: Vec<String>,
    /// Allow only.
    #[serde(deserialize_with = "nullable")]
    pub(super) selectors: Selectors,
    /// Deny only.
    #[serde(deserialize_with = "nullable")]
    pub(super) unless_selectors: Selectors,
}

/// What a request must at least be narrowed by.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Selectors {
    #[serde(deserialize_with = "nullable")]
    pub(super) field: Vec<Requirement>,
    #[serde(deserialize_with = "nullable")]
    pub(super) label: Vec<Requirement>,
}

/// `key operator values`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Requirement {
    #[serde(deserialize_with = "nullable")]
    pub(super) key: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) operator: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) values: Vec<String>,
}

/// Which requests for paths outside the API.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NonResourceRule {
    #[serde(deserialize_with = "nullable")]
    pub(super) verbs: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) paths: Vec<String>,
}

/// A CEL expression over the review's spec.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) expression: String,
}

impl Selectors {
    pub(super) fn is_empty(&self) -> bool {
        self.field.is_empty() && self.label.is_empty()
    }
}

/// `null` is what is left out.
pub(super) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests;
