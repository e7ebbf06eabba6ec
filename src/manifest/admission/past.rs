//! What `admissionregistration.k8s.io/v1alpha1` was in Kubernetes 1.7:
//! InitializerConfiguration and ExternalAdmissionHookConfiguration.
//!
//! `pkg/apis/admissionregistration/validation/validation.go` of Kubernetes 1.8.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::metadata::{self, Scope};
use super::super::names;
use super::super::report::Report;
use super::super::v1alpha1::nullable;
use super::rules::{one_of, validate_resources, wildcard_alone};
use crate::document::Document;
use crate::engine::admission as engine;
use crate::field::{FaultKind, Faults, FieldPath};

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::manifest) struct InitializerConfiguration {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub(super) initializers: Vec<Initializer>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Initializer {
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) rules: Vec<Rule>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rule {
    /// Of hooks only.
    #[serde(deserialize_with = "nullable")]
    pub(super) operations: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) api_groups: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) api_versions: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) resources: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::manifest) struct ExternalAdmissionHookConfiguration {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub(super) external_admission_hooks: Vec<Hook>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Hook {
    #[serde(deserialize_with = "nullable")]
    name: String,
    #[serde(deserialize_with = "nullable")]
    client_config: ClientConfig,
    #[serde(deserialize_with = "nullable")]
    rules: Vec<Rule>,
    failure_policy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClientConfig {
    #[serde(deserialize_with = "nullable")]
    service: Service,
    ca_bundle: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Service {
    #[serde(deserialize_with = "nullable")]
    namespace: String,
    #[serde(deserialize_with = "nullable")]
    name: String,
}

// === initializers ===

/// Reads the configuration; `None` if anything is wrong with it.
pub(in crate::manifest) fn read_initializers(
    document: &Document,
    faults: &mut Faults,
) -> Option<InitializerConfiguration> {
    let configuration: InitializerConfiguration = document.decode(faults)?;
    let mut report = Report::new(document, faults);
    metadata::validate(
        &configuration.metadata,
        Scope::Cluster,
        names::dns_subdomain,
        &mut report,
    );
    let path = FieldPath::root().field("initializers");
    for (index, initializer) in configuration.initializers.iter().enumerate() {
        let path = path.index(index);
        validate_name(&initializer.name, &path.field("name"), &mut report);
        if initializer.rules.is_empty() {
            report.required(&path.field("rules"), "what the initializer is for");
        }
        for (index, rule) in initializer.rules.iter().enumerate() {
            let path = path.field("rules").index(index);
            if !rule.operations.is_empty() {
                report.forbidden(&path.field("operations"), "initializers are for `CREATE` alone");
            }
            validate_rule(rule, &path, &mut report);
            if rule.resources.iter().any(|resource| resource.contains('/')) {
                let message = "initializers are not for subresources";
                report.fault(FaultKind::Invalid, &path.field("resources"), message);
            }
        }
    }
    report.sound().then_some(configuration)
}

/// The name is that of a domain, and of the policy that is to run.
fn validate_name(name: &str, path: &FieldPath, report: &mut Report<'_>) {
    report.syntax(path, name, names::dns_subdomain(name));
    if name.split('.').count() < 3 {
        report.invalid(
            path,
            name,
            "must be a domain of at least three parts, such as `a.example.com`",
        );
    }
}

fn validate_rule(rule: &Rule, path: &FieldPath, report: &mut Report<'_>) {
    let lists = [
        (&rule.api_groups, "apiGroups"),
        (&rule.api_versions, "apiVersions"),
    ];
    for (list, field) in lists {
        let path = path.field(field);
        if list.is_empty() {
            report.required(&path, "name at least one, or `*`");
        }
        wildcard_alone(list, &path, field, report);
    }
    validate_resources(&rule.resources, &path.field("resources"), report);
}

/// The configuration as the engine has it.
pub(super) fn compile(written: InitializerConfiguration) -> engine::InitializerConfiguration {
    let rule = |rule: Rule| engine::InitializerRule {
        api_groups: rule.api_groups,
        api_versions: rule.api_versions,
        resources: rule.resources,
    };
    let initializer = |one: Initializer| engine::Initializer {
        name: one.name,
        rules: one.rules.into_iter().map(rule).collect(),
    };
    engine::InitializerConfiguration {
        name: written.metadata.name.unwrap_or_default(),
        initializers: written.initializers.into_iter().map(initializer).collect(),
    }
}

// === hooks ===

/// Reads the configuration; `None` if anything is wrong with it.
pub(in crate::manifest) fn read_hooks(
    document: &Document,
    faults: &mut Faults,
) -> Option<ExternalAdmissionHookConfiguration> {
    let configuration: ExternalAdmissionHookConfiguration = document.decode(faults)?;
    let mut report = Report::new(document, faults);
    metadata::validate(
        &configuration.metadata,
        Scope::Cluster,
        names::dns_subdomain,
        &mut report,
    );
    let path = FieldPath::root().field("externalAdmissionHooks");
    for (index, hook) in configuration.external_admission_hooks.iter().enumerate() {
        let path = path.index(index);
        validate_name(&hook.name, &path.field("name"), &mut report);
        validate_hook(hook, &path, &mut report);
    }
    report.sound().then_some(configuration)
}

fn validate_hook(hook: &Hook, path: &FieldPath, report: &mut Report<'_>) {
    let service = path.field("clientConfig").field("service");
    let Service { namespace, name } = &hook.client_config.service;
    for (text, field) in [(namespace, "namespace"), (name, "name")] {
        if text.is_empty() {
            report.required(&service.field(field), "the service that answers");
        }
    }
    for (index, rule) in hook.rules.iter().enumerate() {
        let path = path.field("rules").index(index);
        let operations = path.field("operations");
        if rule.operations.is_empty() {
            report.required(&operations, "name at least one operation, or `*`");
        }
        wildcard_alone(&rule.operations, &operations, "operations", report);
        for (index, operation) in rule.operations.iter().enumerate() {
            one_of(operation, &OPERATIONS, &operations.index(index), report);
        }
        validate_rule(rule, &path, report);
    }
    if let Some(policy) = &hook.failure_policy {
        one_of(policy, &FAILURE_POLICIES, &path.field("failurePolicy"), report);
    }
}

impl ExternalAdmissionHookConfiguration {
    /// The ValidatingWebhookConfiguration that it became, with what held then
    /// where it says nothing. A hook of then said nothing of dry runs, so it
    /// is taken to have no side effects only on these.
    pub(super) fn modern(&self) -> Value {
        let rule = |rule: &Rule| {
            json!({
                "operations": rule.operations, "apiGroups": rule.api_groups,
                "apiVersions": rule.api_versions, "resources": rule.resources,
            })
        };
        let webhook = |hook: &Hook| {
            let mut client = json!({"service": {
                "namespace": hook.client_config.service.namespace,
                "name": hook.client_config.service.name,
            }});
            if let (Some(bundle), Some(client)) = (&hook.client_config.ca_bundle, client.as_object_mut()) {
                client.insert("caBundle".to_owned(), json!(bundle));
            }
            json!({
                "name": hook.name,
                "clientConfig": client,
                "rules": hook.rules.iter().map(rule).collect::<Vec<_>>(),
                "failurePolicy": hook.failure_policy.as_deref().unwrap_or("Ignore"),
                "matchPolicy": "Exact",
                "timeoutSeconds": 30,
                "sideEffects": "NoneOnDryRun",
                "admissionReviewVersions": ["v1", "v1beta1"],
            })
        };
        let webhooks: Vec<_> = self.external_admission_hooks.iter().map(webhook).collect();
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": self.metadata.name},
            "webhooks": webhooks,
        })
    }
}
