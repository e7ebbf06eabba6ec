//! The kinds of `admissionregistration.k8s.io/v1alpha1` in Kubernetes 1.7: InitializerConfiguration
//! and ExternalAdmissionHookConfiguration.
//!
//! Follows `pkg/apis/admissionregistration/validation/validation.go` of Kubernetes 1.8.

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::webhooks::{V1ALPHA1, WrittenWebhook, read_webhooks, validate_name};
use super::{rules, webhooks};
use crate::admission as engine;
use crate::admission::webhook::WebhookConfiguration;
use crate::document::Document;
use crate::field::{FaultKind, Faults, FieldPath};
use crate::manifest::names;
use crate::manifest::report::Report;
use crate::manifest::source::{Source, documents};
use crate::manifest::v1alpha1::nullable;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenInitializerConfiguration {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub(crate) initializers: Vec<WrittenInitializer>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WrittenInitializer {
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) rules: Vec<LegacyRule>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LegacyRule {
    /// Only rules of hooks have it.
    #[serde(deserialize_with = "nullable")]
    pub(crate) operations: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) api_groups: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) api_versions: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) resources: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ExternalAdmissionHookConfiguration {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "nullable")]
    pub(crate) external_admission_hooks: Vec<Hook>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Hook {
    #[serde(deserialize_with = "nullable")]
    name: String,
    #[serde(deserialize_with = "nullable")]
    client_config: LegacyClientConfig,
    #[serde(deserialize_with = "nullable")]
    rules: Vec<LegacyRule>,
    failure_policy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LegacyClientConfig {
    #[serde(deserialize_with = "nullable")]
    service: LegacyService,
    ca_bundle: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LegacyService {
    #[serde(deserialize_with = "nullable")]
    namespace: String,
    #[serde(deserialize_with = "nullable")]
    name: String,
}

// === initializers ===

/// Reads the configuration; `None` if it is invalid.
pub(crate) fn read_initializers(
    document: &Document,
    faults: &mut Faults,
) -> Option<WrittenInitializerConfiguration> {
    let configuration: WrittenInitializerConfiguration = document.decode(faults)?;
    let mut report = Report::new(document, faults);
    names::validate_cluster_scoped(&configuration.metadata, &mut report);
    let path = FieldPath::root().field("initializers");
    for (index, initializer) in configuration.initializers.iter().enumerate() {
        let path = path.index(index);
        // The name is also that of the policy.
        validate_name(&initializer.name, &path.field("name"), &mut report);
        if initializer.rules.is_empty() {
            report.required(&path.field("rules"), "what the initializer is for");
        }
        for (index, rule) in initializer.rules.iter().enumerate() {
            let path = path.field("rules").index(index);
            if !rule.operations.is_empty() {
                report.forbidden(&path.field("operations"), "initializers run only for `CREATE`");
            }
            rules::validate_rule((&rule.modern()).into(), &path, &mut report);
            if rule.resources.iter().any(|resource| resource.contains('/')) {
                let message = "initializers do not run for subresources";
                report.fault(FaultKind::Invalid, &path.field("resources"), message);
            }
        }
    }
    report.is_valid().then_some(configuration)
}

/// Compiles the configuration.
pub(crate) fn compile(written: WrittenInitializerConfiguration) -> engine::InitializerConfiguration {
    let rule = |rule: LegacyRule| engine::InitializerRule {
        api_groups: rule.api_groups,
        api_versions: rule.api_versions,
        resources: rule.resources,
    };
    let initializer = |one: WrittenInitializer| engine::Initializer {
        name: one.name,
        rules: one.rules.into_iter().map(rule).collect(),
    };
    engine::InitializerConfiguration {
        name: written.metadata.name.unwrap_or_default(),
        initializers: written.initializers.into_iter().map(initializer).collect(),
    }
}

// === hooks ===

/// Reads and compiles the configuration, and returns both forms; `None` if it is invalid.
pub(crate) fn read_hooks(
    document: &Document,
    faults: &mut Faults,
) -> Option<(ExternalAdmissionHookConfiguration, WebhookConfiguration)> {
    let configuration: ExternalAdmissionHookConfiguration = document.decode(faults)?;
    let mut report = Report::new(document, faults);
    names::validate_cluster_scoped(&configuration.metadata, &mut report);
    let name = configuration.metadata.name.clone().unwrap_or_default();
    let hooks = configuration.external_admission_hooks.iter();
    let path = FieldPath::root().field("externalAdmissionHooks");
    let webhooks = read_webhooks(
        &name,
        hooks.map(Hook::webhook).collect(),
        &V1ALPHA1,
        &path,
        &mut report,
    );
    let compiled = WebhookConfiguration {
        name,
        is_static: false,
        webhooks,
    };
    report.is_valid().then_some((configuration, compiled))
}

impl Hook {
    /// The equivalent webhook of a ValidatingWebhookConfiguration. Other fields have their
    /// defaults.
    fn webhook(&self) -> WrittenWebhook {
        let LegacyService { namespace, name } = self.client_config.service.clone();
        WrittenWebhook {
            name: self.name.clone(),
            client_config: webhooks::WrittenClientConfig {
                service: Some(webhooks::WrittenService {
                    namespace,
                    name,
                    ..webhooks::WrittenService::default()
                }),
                ca_bundle: self.client_config.ca_bundle.clone(),
                ..webhooks::WrittenClientConfig::default()
            },
            rules: self.rules.iter().map(LegacyRule::modern).collect(),
            failure_policy: self.failure_policy.clone(),
            ..WrittenWebhook::default()
        }
    }
}

impl LegacyRule {
    /// The rule in its modern form.
    fn modern(&self) -> RuleWithOperations {
        RuleWithOperations {
            operations: Some(self.operations.clone()),
            api_groups: Some(self.api_groups.clone()),
            api_versions: Some(self.api_versions.clone()),
            resources: Some(self.resources.clone()),
            scope: None,
        }
    }
}

impl ExternalAdmissionHookConfiguration {
    /// The equivalent ValidatingWebhookConfiguration, with the former defaults. Hooks did not
    /// declare side effects, so `NoneOnDryRun` is assumed.
    pub(crate) fn modern(&self) -> Value {
        let rule = |rule: &LegacyRule| {
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

// Conversion of legacy kinds to their modern equivalents.

/// The modern equivalent of a legacy object.
#[derive(Debug, Clone, PartialEq)]
pub struct MigratedObject {
    /// The origin of the object, and what to check before using it.
    pub remarks: Vec<String>,
    /// The object; `None` if the legacy object had no effect.
    pub object: Option<Value>,
}

/// Converts every InitializerConfiguration and ExternalAdmissionHookConfiguration in `sources`, in
/// the order written. Other objects are ignored.
#[must_use]
pub fn migrate(sources: &[Source]) -> (Vec<MigratedObject>, Faults) {
    let (mut migrated, mut faults) = (Vec::new(), Faults::new());
    for source in sources {
        for document in documents(source, &mut faults) {
            if document.text("apiVersion") == Some("admissionregistration.k8s.io/v1alpha1") {
                of_document(&document, &mut migrated, &mut faults);
            }
        }
    }
    (migrated, faults)
}

fn of_document(document: &Document, migrated: &mut Vec<MigratedObject>, faults: &mut Faults) {
    match document.text("kind") {
        Some("InitializerConfiguration") => {
            let configuration = read_initializers(document, faults);
            migrated.extend(configuration.iter().flat_map(bindings));
        }
        Some("ExternalAdmissionHookConfiguration") => {
            migrated.extend(
                read_hooks(document, faults).map(|(configuration, _)| MigratedObject {
                    remarks: vec![
                        format!("from {}", document.object()),
                        "its webhooks must support AdmissionReviews of v1 or v1beta1, without side \
                             effects on dry runs"
                            .to_owned(),
                    ],
                    object: Some(configuration.modern()),
                }),
            );
        }
        _ => {}
    }
}

/// For each initializer, a binding that applies its policy to the same objects.
fn bindings(configuration: &WrittenInitializerConfiguration) -> impl Iterator<Item = MigratedObject> {
    let name = configuration.metadata.name.as_deref().unwrap_or_default();
    configuration
        .initializers
        .iter()
        .map(move |initializer| binding(name, initializer))
}

fn binding(configuration: &str, initializer: &WrittenInitializer) -> MigratedObject {
    let name = &initializer.name;
    let from = format!("from InitializerConfiguration/{configuration}, the initializer {name}");
    let Some(rule) = intersection(&initializer.rules) else {
        let remark = "no resource matches all of its rules, so it never ran".to_owned();
        return MigratedObject {
            remarks: vec![from, remark],
            object: None,
        };
    };
    let remarks = vec![
        from,
        format!("requires the MutatingAdmissionPolicy {name}; policies run in order of their names"),
        "initializers skipped mirror pods; exempt them in the policy if necessary".to_owned(),
    ];
    let object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": format!("{configuration}.{name}")},
        "spec": {
            "policyName": name,
            "matchResources": {
                "matchPolicy": "Exact",
                "resourceRules": [{
                    "operations": ["CREATE"],
                    "apiGroups": rule.api_groups,
                    "apiVersions": rule.api_versions,
                    "resources": rule.resources,
                }],
            },
        },
    });
    MigratedObject {
        remarks,
        object: Some(object),
    }
}

/// The rule that matches what all of `rules` match; `None` if nothing does.
fn intersection(rules: &[LegacyRule]) -> Option<LegacyRule> {
    let common = |field: fn(&LegacyRule) -> &Vec<String>| {
        let lists = rules.iter().map(field).filter(|list| !is_wildcard(list));
        let common = lists.fold(None, |common: Option<Vec<String>>, list| {
            Some(match common {
                None => list.iter().filter(|item| *item != "*").cloned().collect(),
                Some(common) => common.into_iter().filter(|item| list.contains(item)).collect(),
            })
        });
        let common = common.unwrap_or_else(|| vec!["*".to_owned()]);
        (!common.is_empty()).then_some(common)
    };
    Some(LegacyRule {
        operations: Vec::new(),
        api_groups: common(|rule| &rule.api_groups)?,
        api_versions: common(|rule| &rule.api_versions)?,
        resources: common(|rule| &rule.resources)?,
    })
}

/// `*` is a wildcard only as the first item.
fn is_wildcard(list: &[String]) -> bool {
    list.first().is_some_and(|first| first == "*")
}
