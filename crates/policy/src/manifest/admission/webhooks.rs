//! ValidatingWebhookConfiguration and MutatingWebhookConfiguration: defaults, validation and
//! compilation.
//!
//! Follows `validateValidatingWebhook`, `validateMutatingWebhook` and
//! `validateAdmissionReviewVersions` of `pkg/apis/admissionregistration/validation/validation.go`
//! of Kubernetes; its `v1/defaults.go` and `v1beta1/defaults.go`; for `clientConfig`
//! `apiserver/pkg/util/webhook/validation.go`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;

use super::super::names;
use super::super::report::{ObjectCompilation, Report};
use super::policy;
use super::rules::{self, MATCH_POLICIES, compile_rule, compile_selector, match_policy, one_of};
use crate::admission::matching::{Constraints, NoRules};
use crate::admission::webhook::{
    self, ClientConfig, ReviewVersion, SideEffects, WebhookConfiguration, WebhookTarget,
};
use crate::admission::{FailurePolicy, Reinvocation};
use crate::document::Document;
use crate::field::{FaultKind, Faults, FieldPath};
use crate::manifest::v1alpha1::nullable;
use portcullis_cel::UrlValue;

const REINVOCATIONS: [&str; 2] = ["IfNeeded", "Never"];

/// The kind of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigurationKind {
    Validating,
    Mutating,
}

/// The defaults and allowed values of one version of the API.
#[derive(Debug)]
pub(crate) struct VersionDefaults {
    failure_policy: &'static str,
    match_policy: &'static str,
    timeout_seconds: i32,
    /// The default; `None` if the field is required.
    side_effects: Option<&'static str>,
    all_side_effects: &'static [&'static str],
    /// The default of `admissionReviewVersions`; empty if the field is required.
    versions: &'static [&'static str],
    /// The supported versions of AdmissionReview.
    supported_reviews: &'static [(&'static str, ReviewVersion)],
}

const V1: VersionDefaults = VersionDefaults {
    failure_policy: "Fail",
    match_policy: "Equivalent",
    timeout_seconds: 10,
    side_effects: None,
    all_side_effects: &["None", "NoneOnDryRun"],
    versions: &[],
    supported_reviews: &[("v1", ReviewVersion::V1), ("v1beta1", ReviewVersion::V1beta1)],
};

const V1BETA1: VersionDefaults = VersionDefaults {
    failure_policy: "Ignore",
    match_policy: "Exact",
    timeout_seconds: 30,
    side_effects: Some("Unknown"),
    all_side_effects: &["None", "NoneOnDryRun", "Some", "Unknown"],
    versions: &["v1beta1"],
    ..V1
};

/// The legacy kinds, whose reviews have no `dryRun`.
pub(crate) const V1ALPHA1: VersionDefaults = VersionDefaults {
    versions: &["v1alpha1"],
    supported_reviews: &[("v1alpha1", ReviewVersion::V1alpha1)],
    ..V1BETA1
};

/// Reads the configuration; `None` if it is invalid.
pub(crate) fn read(
    document: &Document,
    kind: ConfigurationKind,
    compilation: &ObjectCompilation<'_>,
    faults: &mut Faults,
) -> Option<WebhookConfiguration> {
    let configuration: Configuration = document.decode(faults)?;
    let dialect = match document.text("apiVersion") {
        Some("admissionregistration.k8s.io/v1beta1") => V1BETA1,
        _ => V1,
    };
    let mut report = Report::new(document, faults).compiling(compilation);
    let report = &mut report;
    let metadata = configuration.metadata;
    names::validate_cluster_scoped(&metadata, report);
    let name = metadata.name.unwrap_or_default();
    let path = FieldPath::root().field("webhooks");
    if kind == ConfigurationKind::Validating {
        refuse_reinvocation(&configuration.webhooks, &path, report);
    }
    let webhooks = read_webhooks(&name, configuration.webhooks, &dialect, &path, report);
    let configuration = WebhookConfiguration {
        name,
        is_static: false,
        webhooks,
    };
    report.is_valid().then_some(configuration)
}

/// Reports `reinvocationPolicy`, a field that validating webhooks do not have.
fn refuse_reinvocation(webhooks: &[WrittenWebhook], path: &FieldPath, report: &mut Report<'_>) {
    for (index, webhook) in webhooks.iter().enumerate() {
        if webhook.reinvocation_policy.is_some() {
            let path = path.index(index).field("reinvocationPolicy");
            report.fault(
                FaultKind::NotSupported,
                &path,
                "unknown field `reinvocationPolicy`",
            );
        }
    }
}

/// Reads the webhooks at `path` of the configuration `name`.
pub(crate) fn read_webhooks(
    name: &str,
    written: Vec<WrittenWebhook>,
    dialect: &VersionDefaults,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Vec<Arc<webhook::Webhook>> {
    let mut seen = BTreeSet::new();
    let mut webhooks = Vec::with_capacity(written.len());
    for (index, written) in written.into_iter().enumerate() {
        let path = path.index(index);
        let webhook = read_webhook(name, &written, dialect, &path, report);
        if !written.name.is_empty() && !seen.insert(written.name.clone()) {
            let message = format!("`{}`", written.name);
            report.fault(FaultKind::Duplicate, &path.field("name"), message);
        }
        webhooks.extend(webhook.map(Arc::new));
    }
    webhooks
}

/// Reads one webhook. Errors are in the same order as those of the API server.
fn read_webhook(
    configuration: &str,
    written: &WrittenWebhook,
    dialect: &VersionDefaults,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<webhook::Webhook> {
    validate_name(&written.name, &path.field("name"), report);
    for (index, rule) in written.rules.iter().enumerate() {
        rules::validate(rule.into(), &path.field("rules").index(index), report);
    }
    let failure_policy = read_failure_policy(written, dialect, path, report);
    let match_policy_text = written.match_policy.as_deref().unwrap_or(dialect.match_policy);
    one_of(
        match_policy_text,
        &MATCH_POLICIES,
        &path.field("matchPolicy"),
        report,
    );
    let side_effects = read_side_effects(written, dialect, &path.field("sideEffects"), report);
    let timeout = read_timeout(written, dialect, &path.field("timeoutSeconds"), report);
    for (selector, field) in [
        (&written.namespace_selector, "namespaceSelector"),
        (&written.object_selector, "objectSelector"),
    ] {
        if let Some(selector) = selector {
            names::validate_selector(selector, &path.field(field), report);
        }
    }
    let reinvocation = read_reinvocation(written, &path.field("reinvocationPolicy"), report);
    let client = read_client_config(&written.client_config, &path.field("clientConfig"), report);
    let match_conditions = policy::conditions(
        written.match_conditions.as_deref(),
        &path.field("matchConditions"),
        false,
        report,
    );
    let version = read_versions(written, dialect, &path.field("admissionReviewVersions"), report);
    let constraints = compile_constraints(written, match_policy_text, path, report);
    Some(webhook::Webhook {
        configuration: configuration.to_owned(),
        name: written.name.clone(),
        client: client?,
        constraints,
        match_conditions,
        failure_policy,
        timeout,
        side_effects,
        version,
        reinvocation,
    })
}

/// `IsFullyQualifiedName`.
pub(crate) fn validate_name(name: &str, path: &FieldPath, report: &mut Report<'_>) {
    if name.is_empty() {
        report.required(path, "a domain of at least three parts, such as `a.example.com`");
    } else if let Err(rule) = names::dns_subdomain(name) {
        report.invalid(path, name, rule);
    } else if name.split('.').count() < 3 {
        let rule = "must be a domain of at least three parts, such as `a.example.com`";
        report.invalid(path, name, rule);
    }
}

fn read_failure_policy(
    written: &WrittenWebhook,
    dialect: &VersionDefaults,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> FailurePolicy {
    let text = written
        .failure_policy
        .as_deref()
        .unwrap_or(dialect.failure_policy);
    policy::failure_policy(Some(text), &path.field("failurePolicy"), report)
}

fn read_side_effects(
    written: &WrittenWebhook,
    dialect: &VersionDefaults,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<SideEffects> {
    let Some(text) = written.side_effects.as_deref().or(dialect.side_effects) else {
        let all = dialect.all_side_effects.join("` or `");
        report.required(path, format!("`{all}`"));
        return None;
    };
    one_of(text, dialect.all_side_effects, path, report);
    match text {
        "None" => Some(SideEffects::None),
        "NoneOnDryRun" => Some(SideEffects::NoneOnDryRun),
        "Some" => Some(SideEffects::Some),
        _ => Some(SideEffects::Unknown),
    }
}

fn read_timeout(
    written: &WrittenWebhook,
    dialect: &VersionDefaults,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Duration {
    let seconds = written.timeout_seconds.unwrap_or(dialect.timeout_seconds);
    if !(1..=30).contains(&seconds) {
        let message = format!("`{seconds}`: the timeout must be between 1 and 30 seconds");
        report.fault(FaultKind::Invalid, path, message);
    }
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

fn read_reinvocation(written: &WrittenWebhook, path: &FieldPath, report: &mut Report<'_>) -> Reinvocation {
    let text = written.reinvocation_policy.as_deref().unwrap_or("Never");
    one_of(text, &REINVOCATIONS, path, report);
    if text == "IfNeeded" {
        Reinvocation::IfNeeded
    } else {
        Reinvocation::Never
    }
}

/// Validates `admissionReviewVersions`, and returns the first supported one.
fn read_versions(
    written: &WrittenWebhook,
    dialect: &VersionDefaults,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<ReviewVersion> {
    let defaults = dialect.versions.iter().map(|version| (*version).to_owned());
    let versions = match written.admission_review_versions.as_slice() {
        [] => defaults.collect(),
        versions => versions.to_vec(),
    };
    let known = dialect
        .supported_reviews
        .iter()
        .map(|(name, _)| format!("`{name}`"))
        .collect::<Vec<_>>();
    let known = known.join(", ");
    if versions.is_empty() {
        report.required(path, format!("at least one of {known}"));
        return None;
    }
    let mut seen = BTreeSet::new();
    for (index, version) in versions.iter().enumerate() {
        let path = path.index(index);
        if seen.insert(version) {
            report.syntax(&path, version, names::dns_1035_label(version));
        } else {
            report.invalid(&path, version, "duplicate version");
        }
    }
    let spoken = |version: &String| dialect.supported_reviews.iter().find(|(name, _)| name == version);
    let first = versions.iter().find_map(spoken).map(|(_, version)| *version);
    if first.is_none() {
        let message = format!("must include at least one of {known}");
        report.fault(FaultKind::Invalid, path, message);
    }
    first
}

fn compile_constraints(
    written: &WrittenWebhook,
    policy: &str,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Constraints {
    Constraints {
        namespace_selector: compile_selector(
            written.namespace_selector.as_ref(),
            &path.field("namespaceSelector"),
            report,
        ),
        object_selector: compile_selector(
            written.object_selector.as_ref(),
            &path.field("objectSelector"),
            report,
        ),
        rules: written
            .rules
            .iter()
            .map(|rule| compile_rule(rule.into()))
            .collect(),
        no_rules: NoRules::Nothing,
        exclude_rules: Vec::new(),
        match_policy: match_policy(Some(policy)),
    }
}

const HTTPS: u16 = 443;

/// Reads the `clientConfig` at `path`; `None` if it has no valid target.
fn read_client_config(
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
    let Ok(url) = UrlValue::parse_reference(text) else {
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
            "must not contain a user: put credentials into the kubeconfig of `upstreams`",
        ),
        (!url.fragment().is_empty(), "must not have a fragment"),
        (
            url.raw_query().is_some_and(|query| !query.is_empty()),
            "must have no query",
        ),
    ] {
        if is_wrong {
            // The message does not contain the URL, which may have a password.
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

/// The part of `ValidateWebhookService` for paths.
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
    // As in Kubernetes, the first byte is skipped even if it is not a slash.
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

/// Decodes base64 as Go does, which ignores line breaks. Whether the bytes are a PEM bundle is
/// checked by lint, because the API server accepts any bytes.
fn read_ca_bundle(text: &str, path: &FieldPath, report: &mut Report<'_>) -> Vec<u8> {
    let text: String = text.chars().filter(|one| !matches!(one, '\r' | '\n')).collect();
    STANDARD.decode(text).unwrap_or_else(|error| {
        report.fault(FaultKind::Invalid, path, format!("must be base64: {error}"));
        Vec::new()
    })
}

// Webhook configurations as users write them. Absent fields and `null` are equivalent.

/// A ValidatingWebhookConfiguration or MutatingWebhookConfiguration of v1 or v1beta1, which have
/// the same fields.
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
    /// Only mutating webhooks have it.
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

#[cfg(test)]
mod tests;
