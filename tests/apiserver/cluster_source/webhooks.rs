//! Webhook configurations that kubectl makes, changes and takes away.
//!
//! The API server calls the webhooks that it stores, too; so the gateway is
//! asked directly here, about a namespace in which nothing is created.

use super::admission::{ask, selected};
use super::servers::{self, Servers};
use crate::harness::eventually;
use crate::harness::pki::Authority;
use crate::harness::webhooks::{Review, Webhooks};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const NAMESPACE: &str = "hooked";

/// A configuration of one webhook for ConfigMaps.
fn configuration(kind: &str, name: &str, labels: &Value, hooks: &Webhooks, path: &str) -> String {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels},
        "webhooks": [{
            "name": format!("{name}.example.com"),
            "clientConfig": {"url": hooks.url(path), "caBundle": STANDARD.encode(hooks.authority())},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 30,
        }],
    })
    .to_string()
}

fn hooks() -> Webhooks {
    let label = |value: &str| {
        Review::patch(&json!([{"op": "add", "path": "/metadata/labels", "value": {"hook": value}}]))
    };
    Webhooks::of(&Authority::new("hooks"), &[])
        .always("/first", label("first"))
        .always("/second", label("second"))
        .always("/deny", Review::deny(403, "not here"))
        .always("/unselected", Review::deny(403, "never"))
        .start()
}

/// The label that the webhooks of the gateway give.
fn label(servers: &Servers) -> Option<String> {
    let response = ask(servers, "/mutate", NAMESPACE, &json!({}));
    let patch = STANDARD.decode(response["patch"].as_str()?).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    Some(patch[0]["value"]["hook"].as_str().unwrap().to_owned())
}

fn wait_for_label(servers: &Servers, expected: Option<&str>) {
    let mut last = None;
    let heard = eventually(|| {
        last = label(servers);
        last.as_deref() == expected
    });
    assert!(heard, "{last:?}, not {expected:?}");
}

pub(crate) fn kubectl_manages_the_webhooks_behind_the_gateway() {
    let Some(servers) = servers::shared() else { return };
    let hooks = hooks();
    servers.cluster.create_namespace(NAMESPACE);
    let (mutating, validating) = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration");
    let unselected = configuration(validating, "unselected", &json!({}), &hooks, "/unselected");
    servers.apply("unselected-hook.json", &unselected);
    wait_for_label(&servers, None);

    servers.apply(
        "hook.json",
        &configuration(mutating, "hook", &selected(), &hooks, "/first"),
    );
    wait_for_label(&servers, Some("first"));
    let listed = servers.kubectl(&["get", "mutatingwebhookconfigurations", "-o", "name"]);
    assert!(
        listed.contains("mutatingwebhookconfiguration.admissionregistration.k8s.io/hook"),
        "{listed}"
    );

    let url =
        json!([{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": hooks.url("/second")}]);
    servers.kubectl(&[
        "patch",
        "mutatingwebhookconfiguration",
        "hook",
        "--type=json",
        "-p",
        &url.to_string(),
    ]);
    wait_for_label(&servers, Some("second"));

    servers.apply(
        "deny.json",
        &configuration(validating, "deny", &selected(), &hooks, "/deny"),
    );
    let refused = || ask(&servers, "/validate", NAMESPACE, &json!({}))["status"]["message"].to_string();
    assert!(eventually(|| refused().contains("not here")), "{}", refused());

    // One by name, the other as a collection.
    servers.kubectl(&["delete", "validatingwebhookconfiguration", "deny"]);
    let allowed = || ask(&servers, "/validate", NAMESPACE, &json!({}))["allowed"] == true;
    assert!(eventually(allowed));
    let group = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let response = servers
        .cluster
        .admin()
        .delete(&format!("{group}?labelSelector=run-by%3Dgateway"))
        .unwrap();
    assert_eq!(response.status, 200, "{}", response.text());
    wait_for_label(&servers, None);
    assert_eq!(
        hooks.calls_at("/unselected").len(),
        0,
        "it is the API server's alone"
    );
    servers.kubectl(&["delete", "validatingwebhookconfiguration", "unselected"]);
}
