//! Webhook configurations as users write them. What is left out and `null` are
//! the same.

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;

use crate::manifest::v1alpha1::nullable;

/// A ValidatingWebhookConfiguration or MutatingWebhookConfiguration, of v1 or
/// v1beta1: they differ in defaults alone.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Configuration {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub(crate) webhooks: Vec<WrittenWebhook>,
}

/// One of `webhooks`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenWebhook {
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) client_config: WrittenClientConfig,
    #[serde(deserialize_with = "nullable")]
    pub(crate) rules: Vec<RuleWithOperations>,
    pub(crate) failure_policy: Option<String>,
    pub(crate) match_policy: Option<String>,
    pub(crate) namespace_selector: Option<LabelSelector>,
    pub(crate) object_selector: Option<LabelSelector>,
    pub(crate) side_effects: Option<String>,
    pub(crate) timeout_seconds: Option<i32>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) admission_review_versions: Vec<String>,
    pub(crate) match_conditions: Option<Vec<MatchCondition>>,
    /// Of a mutating webhook alone.
    pub(crate) reinvocation_policy: Option<String>,
}

/// `clientConfig`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenClientConfig {
    pub(crate) url: Option<String>,
    pub(crate) service: Option<WrittenService>,
    /// In base64.
    pub(crate) ca_bundle: Option<String>,
}

/// `clientConfig.service`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenService {
    #[serde(deserialize_with = "nullable")]
    pub(crate) namespace: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    pub(crate) path: Option<String>,
    pub(crate) port: Option<i32>,
}
