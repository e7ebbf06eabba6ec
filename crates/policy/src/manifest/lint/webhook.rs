//! Warnings about webhook configurations.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::super::report::Lint;
use super::left_out;
use super::left_out::RuleOwner;
use crate::admission::matching::{Equivalents, MatchPolicy, MatchRule, RuleTarget};
use crate::admission::webhook::{SideEffects, Webhook, WebhookConfiguration, WebhookTarget};
use crate::admission::{FailurePolicy, GroupVersionResource, Operation};
use crate::document::Value;
use crate::field::FieldPath;
use crate::manifest::namespace::NAME_LABEL;
use crate::manifest::validated::{Content, ManifestObject};
use portcullis_cel::UrlValue;

/// The `timeoutSeconds` of the gateway's own webhook configuration, as `portcullis init` writes it.
const USUAL_DEADLINE: Duration = Duration::from_secs(10);

const KUBE_SYSTEM: &str = "kube-system";
/// The namespaces of the leases of the control plane and of nodes.
const NAMESPACES_OF_LEASES: [&str; 2] = [KUBE_SYSTEM, "kube-node-lease"];

/// The labels of the namespaces that have manifests.
pub(crate) struct KnownNamespaces<'o>(Vec<(Option<&'o str>, &'o BTreeMap<String, String>)>);

pub(crate) fn lint(
    configuration: &WebhookConfiguration,
    cluster: Option<&str>,
    namespaces: &KnownNamespaces<'_>,
    lint: &mut Lint<'_>,
) {
    let list = match lint.document().text("kind") {
        Some("ExternalAdmissionHookConfiguration") => "externalAdmissionHooks",
        _ => "webhooks",
    };
    for (index, webhook) in configuration.webhooks.iter().enumerate() {
        let path = FieldPath::root().field(list).index(index);
        let selects = |namespace: &str| namespaces.selects(webhook, cluster, namespace);
        if webhook.failure_policy == FailurePolicy::Fail {
            everything(webhook, selects, &path, lint);
            leases(webhook, selects, &path, lint);
            own_pods(webhook, selects, &path, lint);
        }
        let (rules, is_static) = (&webhook.constraints.rules, configuration.is_static);
        left_out::lint_excluded(rules, RuleOwner::Webhook, is_static, &path.field("rules"), lint);
        loopback(webhook, &path, lint);
        dry_runs(webhook, &path, lint);
        slowness(webhook, &path, lint);
        lint_versions(webhook, &path, lint);
        lint_bundle(&webhook.client.ca_bundle, &path, lint);
    }
}

// === writes that fail while a webhook fails ===

/// Warns if the webhook matches every resource in the control plane's namespace.
fn everything(webhook: &Webhook, selects: impl Fn(&str) -> bool, path: &FieldPath, lint: &mut Lint<'_>) {
    let rules = &webhook.constraints.rules;
    if selects(KUBE_SYSTEM)
        && !says(webhook, "namespace")
        && let Some(index) = rules.iter().position(is_wildcard)
    {
        let message = "while this webhook fails, nothing can be written in `kube-system` either, \
                       not even what would repair it: exclude it with a `namespaceSelector`, such \
                       as `{matchExpressions: [{key: kubernetes.io/metadata.name, operator: \
                       NotIn, values: [kube-system]}]}`";
        lint.suspicious(&path.field("rules").index(index), message);
    }
}

fn is_wildcard(rule: &MatchRule) -> bool {
    let all = |resource: &String| resource == "*" || resource == "*/*";
    rule.api_groups.iter().any(|group| group == "*") && rule.resources.iter().any(all)
}

/// Warns if the webhook matches the leases that the control plane and nodes renew continuously.
fn leases(webhook: &Webhook, selects: impl Fn(&str) -> bool, path: &FieldPath, lint: &mut Lint<'_>) {
    let rules = &webhook.constraints.rules;
    let renews = |rule: &MatchRule, namespace: &str| {
        let resource = ("coordination.k8s.io", "leases");
        matches(rule, resource, Operation::Update, namespace)
    };
    for namespace in NAMESPACES_OF_LEASES.into_iter().filter(|one| selects(one)) {
        if !says(webhook, "leases")
            && let Some(index) = rules.iter().position(|rule| renews(rule, namespace))
        {
            let message = format!(
                "while this webhook fails, no lease in `{namespace}` is renewed, and nodes or \
                 controllers are considered lost: exclude leases with `matchConditions`, such as \
                 `!(request.resource.group == 'coordination.k8s.io' && request.resource.resource \
                 == 'leases')`"
            );
            return lint.suspicious(&path.field("rules").index(index), message);
        }
    }
}

/// Warns if the webhook matches the creation of its own pods.
fn own_pods(webhook: &Webhook, selects: impl Fn(&str) -> bool, path: &FieldPath, lint: &mut Lint<'_>) {
    let WebhookTarget::Service { namespace, .. } = &webhook.client.target else {
        return;
    };
    let rules = &webhook.constraints.rules;
    let starts = |rule: &MatchRule| matches(rule, ("", "pods"), Operation::Create, namespace);
    if selects(namespace)
        && webhook.constraints.object_selector.is_empty()
        && !says(webhook, "namespace")
        && let Some(index) = rules.iter().position(starts)
    {
        let message = format!(
            "the webhook matches pods in `{namespace}`, where its own service is, so once it is down \
             its pods cannot be created again: exclude `{namespace}` with a `namespaceSelector`"
        );
        lint.suspicious(&path.field("rules").index(index), message);
    }
}

fn matches(rule: &MatchRule, (group, resource): (&str, &str), operation: Operation, namespace: &str) -> bool {
    rule.matches(RuleTarget {
        resource: &GroupVersionResource {
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
        },
        subresource: "",
        namespace,
        name: "",
        operation,
    })
}

/// Whether a match condition contains `word`. It may then exclude the requests in question, so
/// there is no warning.
fn says(webhook: &Webhook, word: &str) -> bool {
    let mut conditions = webhook.match_conditions.iter();
    conditions.any(|condition| condition.expression.text().contains(word))
}

impl<'o> KnownNamespaces<'o> {
    pub(crate) fn new(objects: &[&'o ManifestObject]) -> Self {
        let labels = objects.iter().filter_map(|object| match &object.content {
            Content::Namespace(labels) => Some((object.cluster.as_deref(), &**labels)),
            _ => None,
        });
        Self(labels.collect())
    }

    /// Whether the webhook's `namespaceSelector` selects `namespace` of `cluster`. An unknown
    /// namespace is assumed to have only the label with its name.
    fn selects(&self, webhook: &Webhook, cluster: Option<&str>, namespace: &str) -> bool {
        let mut all = self.0.iter();
        let known = all.find(|(of, labels)| {
            (of.is_none() || *of == cluster) && labels.get(NAME_LABEL).map(String::as_str) == Some(namespace)
        });
        let selector = &webhook.constraints.namespace_selector;
        selector.matches(|key| match known {
            Some((_, labels)) => labels.get(key).map(String::as_str),
            None => (key == NAME_LABEL).then_some(namespace),
        })
    }
}

// === settings with which calls fail or are late ===

fn loopback(webhook: &Webhook, path: &FieldPath, lint: &mut Lint<'_>) {
    let WebhookTarget::Url(url) = &webhook.client.target else {
        return;
    };
    let Ok(url) = UrlValue::parse_reference(url) else {
        return;
    };
    let host = url.hostname();
    let address = host.parse::<std::net::IpAddr>();
    if host == "localhost" || address.is_ok_and(|address| address.is_loopback()) {
        let message = format!(
            "`{host}` is a different machine for every gateway: use a host that all of them can \
             reach, unless the webhook runs on each machine"
        );
        lint.suspicious(&path.field("clientConfig").field("url"), message);
    }
}

fn dry_runs(webhook: &Webhook, path: &FieldPath, lint: &mut Lint<'_>) {
    if matches!(
        webhook.side_effects,
        Some(SideEffects::Some | SideEffects::Unknown)
    ) {
        let message = "dry-run requests that this webhook matches are refused, because it may have \
                       side effects: if it has none, write `None`, or `NoneOnDryRun` if it respects \
                       `dryRun`, in a v1 configuration";
        lint.suspicious(&path.field("sideEffects"), message);
    }
}

/// Warns about a long timeout only if it is written: the default of v1beta1 is 30 seconds, which
/// the author did not choose.
fn slowness(webhook: &Webhook, path: &FieldPath, lint: &mut Lint<'_>) {
    let path = path.field("timeoutSeconds");
    if webhook.timeout > USUAL_DEADLINE && matches!(lint.document().nearest(&path).value, Value::Number(_)) {
        let message = "the API server waits 10 seconds for the gateway, including all webhooks, \
                       unless the gateway's own webhook configuration has another `timeoutSeconds`: use 10 or \
                       less, or raise it there";
        lint.suspicious(&path, message);
    }
}

// Warnings about a `caBundle` without a certificate.

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";
/// The first byte of every certificate in DER: the tag of a sequence.
const SEQUENCE: u8 = 0x30;

pub(crate) fn lint_bundle(bundle: &[u8], path: &FieldPath, lint: &mut Lint<'_>) {
    if !bundle.is_empty() && !has_certificate(bundle) {
        let message = "it contains no certificate, so every call fails: set it to the base64 of the \
                       CA's PEM file, as written by `base64 -w0 ca.crt`";
        lint.suspicious(&path.field("clientConfig").field("caBundle"), message);
    }
}

/// Whether at least one PEM block looks like a certificate.
fn has_certificate(bundle: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bundle);
    let mut blocks = text.split(BEGIN).skip(1);
    blocks.any(|block| block.split_once(END).is_some_and(|(inner, _)| is_der(inner)))
}

fn is_der(text: &str) -> bool {
    let text: String = text.split_ascii_whitespace().collect();
    let bytes = STANDARD.decode(text).unwrap_or_default();
    bytes.first() == Some(&SEQUENCE)
}

// Warnings about versions that a webhook cannot be called with.

/// Warns about each rule for resources that Kubernetes also serves in versions that no rule names.
/// An API server converts objects for the webhooks that it calls itself; the gateway cannot.
pub(crate) fn lint_versions(webhook: &Webhook, path: &FieldPath, lint: &mut Lint<'_>) {
    let constraints = &webhook.constraints;
    if constraints.match_policy == MatchPolicy::Exact {
        return;
    }
    let equivalents = Equivalents::kubernetes();
    for (index, rule) in constraints.rules.iter().enumerate() {
        if let Some((asked, other)) = unspoken(rule, &constraints.rules, &equivalents) {
            let (asked, other) = (version(&asked), version(&other));
            let message = format!(
                "objects may arrive as `{other}` instead of `{asked}`, and only the API server can \
                 convert them: add `{other}` if the webhook supports it, or register the gateway \
                 only for `{asked}`, with `matchPolicy: Equivalent`"
            );
            lint.suspicious(&path.field("rules").index(index).field("apiVersions"), message);
        }
    }
}

type Resource = GroupVersionResource<'static>;

/// A resource that `rule` names, and the same resource in a version that none of `rules` names.
fn unspoken(
    rule: &MatchRule,
    rules: &[MatchRule],
    equivalents: &Equivalents,
) -> Option<(Resource, Resource)> {
    for group in &rule.api_groups {
        for resource in &rule.resources {
            let plain = resource.split('/').next().unwrap_or_default();
            for all in equivalents.names(group, plain) {
                let asked = all.iter().find(|one| speaks(rule, one, resource));
                let other = all
                    .iter()
                    .find(|one| !rules.iter().any(|rule| speaks(rule, one, resource)));
                if let (Some(asked), Some(other)) = (asked, other) {
                    return Some((asked.clone(), other.clone()));
                }
            }
        }
    }
    None
}

/// Whether `rule` contains `resource`, as written or by a wildcard, in the group and version of
/// `name`.
fn speaks(rule: &MatchRule, name: &Resource, resource: &str) -> bool {
    let has = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
    has(&rule.api_groups, &name.group)
        && has(&rule.api_versions, &name.version)
        && (has(&rule.resources, resource) || rule.resources.iter().any(|one| one == "*/*"))
}

fn version(name: &Resource) -> String {
    match name.group.as_ref() {
        "" => name.version.to_string(),
        group => format!("{group}/{}", name.version),
    }
}

#[cfg(test)]
mod tests;
