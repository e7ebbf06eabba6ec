//! `clientConfig`: URL or service, and CA bundle.
//!
//! `apiserver/pkg/util/webhook/validation.go` of Kubernetes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;

use crate::engine::admission::webhook::{ClientConfig, WebhookTarget};
use crate::field::{FaultKind, FieldPath};
use crate::manifest::names;
use crate::manifest::report::Report;
use crate::manifest::v1alpha1::nullable;
use portcullis_cel::UrlValue;

const HTTPS: u16 = 443;

/// Reads the configuration at `path`; `None` if it names nobody.
pub(crate) fn read(
    written: &WrittenClientConfig,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<ClientConfig> {
    let target = match (&written.url, &written.service) {
        (Some(url), None) => {
            validate_url(url, &path.field("url"), report);
            Some(WebhookTarget::Url(url.clone()))
        }
        (None, Some(service)) => read_service(service, &path.field("service"), report),
        _ => {
            report.required(path, "exactly one of url or service is required");
            None
        }
    };
    let ca_bundle = read_ca_bundle(
        written.ca_bundle.as_deref().unwrap_or_default(),
        &path.field("caBundle"),
        report,
    );
    Some(ClientConfig {
        target: target?,
        ca_bundle,
    })
}

// === url ===

/// `ValidateWebhookURL`.
fn validate_url(text: &str, path: &FieldPath, report: &mut Report<'_>) {
    let Ok(url) = UrlValue::read(text) else {
        let message = format!("`{text}`: must be a URL of the form `https://host[/path]`");
        return report.required(path, message);
    };
    let has_no_host = url.host().is_empty();
    for (is_wrong, message) in [
        (
            url.scheme() != "https",
            "the scheme must be `https`, as in `https://host[/path]`",
        ),
        (
            has_no_host,
            "a host must be specified, as in `https://host[/path]`",
        ),
        (
            url.user().is_some(),
            "must not contain a user: credentials belong into the kubeconfig of `upstreams`",
        ),
        (!url.fragment().is_empty(), "must not have a fragment"),
        (
            url.raw_query().is_some_and(|query| !query.is_empty()),
            "must have no query",
        ),
    ] {
        if is_wrong {
            // Not the URL itself: there may be a password in it.
            report.fault(FaultKind::Invalid, path, message);
        }
    }
}

// === service ===

fn read_service(
    written: &WrittenService,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<WebhookTarget> {
    for (text, field) in [(&written.name, "name"), (&written.namespace, "namespace")] {
        if text.is_empty() {
            report.required(&path.field(field), "the service that answers");
        }
    }
    let port = written.port.map_or(Some(HTTPS), port);
    if port.is_none() {
        let message = format!(
            "`{}`: must be between 1 and 65535",
            written.port.unwrap_or_default()
        );
        report.fault(FaultKind::Invalid, &path.field("port"), message);
    }
    let root = written.path.as_deref().unwrap_or_default();
    validate_path(root, &path.field("path"), report);
    Some(WebhookTarget::Service {
        namespace: written.namespace.clone(),
        name: written.name.clone(),
        port: port?,
        path: if root.is_empty() { "/" } else { root }.to_owned(),
    })
}

fn port(written: i32) -> Option<u16> {
    u16::try_from(written).ok().filter(|port| *port > 0)
}

/// Of `ValidateWebhookService`.
fn validate_path(text: &str, path: &FieldPath, report: &mut Report<'_>) {
    if text.is_empty() || text == "/" {
        return;
    }
    if text == "//" {
        return report.invalid(path, text, "segment[0] may not be empty");
    }
    if !text.starts_with('/') {
        report.invalid(path, text, "must start with a `/`");
    }
    // The first byte, whatever it is.
    let rest = text.get(1..).unwrap_or(text);
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    for (index, segment) in rest.split('/').enumerate() {
        if segment.is_empty() {
            report.invalid(path, text, format!("segment[{index}] may not be empty"));
        } else if let Err(rule) = names::dns_subdomain(segment) {
            report.invalid(path, text, format!("segment[{index}] {rule}"));
        }
    }
}

// === caBundle ===

/// Base64 as Go reads it: line breaks do not matter. Whether it is a bundle is
/// for lint: the API server takes any bytes.
fn read_ca_bundle(text: &str, path: &FieldPath, report: &mut Report<'_>) -> Vec<u8> {
    let text: String = text.chars().filter(|one| !matches!(one, '\r' | '\n')).collect();
    STANDARD.decode(text).unwrap_or_else(|error| {
        report.fault(FaultKind::Invalid, path, format!("must be base64: {error}"));
        Vec::new()
    })
}

// Webhook configurations as users write them. What is left out and `null` are
// the same.

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
