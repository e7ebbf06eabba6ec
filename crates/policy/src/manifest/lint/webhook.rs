//! Warnings about webhook configurations.

mod bundle;
#[cfg(test)]
mod tests;
mod versions;

use std::collections::BTreeMap;
use std::time::Duration;

use super::Lint;
use super::excluded::{self, RuleOwner};
use crate::document::Value;
use crate::engine::admission::matching::{MatchRule, RuleTarget};
use crate::engine::admission::webhook::{SideEffects, Webhook, WebhookConfiguration, WebhookTarget};
use crate::engine::admission::{FailurePolicy, GroupVersionResource, Operation};
use crate::field::FieldPath;
use crate::manifest::namespace::NAME_LABEL;
use crate::manifest::object::{Content, ManifestObject};
use portcullis_cel::UrlValue;

/// How long the registration of a gateway that `portcullis init` writes lets it take.
const USUAL_DEADLINE: Duration = Duration::from_secs(10);

const KUBE_SYSTEM: &str = "kube-system";
/// Where the API server and its controllers, and where nodes renew their leases.
const NAMESPACES_OF_LEASES: [&str; 2] = [KUBE_SYSTEM, "kube-node-lease"];

/// The labels of the namespaces that have manifests.
pub(crate) struct KnownNamespaces<'o>(Vec<(Option<&'o str>, &'o BTreeMap<String, String>)>);

pub(crate) fn lint(
    configuration: &WebhookConfiguration,
    cluster: Option<&str>,
    namespaces: &KnownNamespaces<'_>,
    lint: &mut Lint<'_>,
) {
    let list = match lint.document.get().text("kind") {
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
        excluded::lint(rules, RuleOwner::Webhook, is_static, &path.field("rules"), lint);
        loopback(webhook, &path, lint);
        dry_runs(webhook, &path, lint);
        slowness(webhook, &path, lint);
        versions::lint(webhook, &path, lint);
        bundle::lint(&webhook.client.ca_bundle, &path, lint);
    }
}

// === what stops with a webhook that fails ===

/// A wildcard over the control plane's own objects.
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

/// What the control plane and nodes renew all the time.
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

/// A webhook that stands between its own pods and the cluster.
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

/// Whether a match condition speaks of `word`, and so may well leave it out.
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

    /// Whether `namespace`, of `cluster` or of any, is within the webhook's selector.
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

// === what makes it hard to ask ===

fn loopback(webhook: &Webhook, path: &FieldPath, lint: &mut Lint<'_>) {
    let WebhookTarget::Url(url) = &webhook.client.target else {
        return;
    };
    let Ok(url) = UrlValue::read(url) else { return };
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

/// Only of what is written: the default of v1beta1 says nothing of the webhook.
fn slowness(webhook: &Webhook, path: &FieldPath, lint: &mut Lint<'_>) {
    let path = path.field("timeoutSeconds");
    if webhook.timeout > USUAL_DEADLINE
        && matches!(lint.document.get().nearest(&path).value, Value::Number(_))
    {
        let message = "the API server waits 10 seconds for the gateway, including all webhooks, \
                       unless the gateway's own registration has another `timeoutSeconds`: use 10 or \
                       less, or raise it there";
        lint.suspicious(&path, message);
    }
}
