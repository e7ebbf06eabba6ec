//! What differs behind the gateway: between the webhooks of a chain the API
//! server fills in defaults and drops what it does not know. The gateway does not
//! know the defaults, and keeps what a newer API server may know.

use super::servers::{self, BEHIND, DIRECT, Servers};
use serde_json::{Value, json};

/// A pod to which the first webhook adds a container that says no more than it
/// must, and a field that no container has.
fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
           "metadata": {"name": "between", "labels": {"app": "a"}, "annotations": {"m1": "sketch"}},
           "spec": {"containers": [{"name": "own", "image": "cat:1"}]}})
}

/// The container that `m1` added, as the second webhook saw it, and as it is stored.
fn added(servers: &Servers, way: &str) -> (Value, Value) {
    let target = format!("/api/v1/namespaces/{way}/pods");
    let response = servers.cluster.admin().post(&target, &pod()).unwrap();
    assert_eq!(response.status, 201, "{}", response.text());
    let of = |object: &Value| object["spec"]["containers"][1].clone();
    let path = super::chain::path(way, "m2");
    let calls = servers
        .webhooks
        .take(|call| call.path == path && call.request()["name"] == "between");
    let seen = calls.last().unwrap();
    (of(&seen.request()["object"]), of(&response.json()))
}

pub(crate) fn between_webhooks_the_api_server_defaults_and_prunes_and_the_gateway_does_not() {
    let Some(servers) = servers::shared() else { return };
    let (seen, stored) = added(&servers, DIRECT);
    let (seen_behind, stored_behind) = added(&servers, BEHIND);
    assert_eq!(
        seen_behind,
        json!({"name": "sketched", "image": "added:1", "nonsense": true, "resources": {}}),
        "as the webhook before it wrote it, with what Go writes of any container"
    );
    assert_eq!(seen["imagePullPolicy"], "IfNotPresent", "{seen}");
    assert_eq!(seen.get("nonsense"), None, "{seen}");
    // In the end the API server does to the patch of the gateway what it does to any other.
    assert_eq!(stored["imagePullPolicy"], "IfNotPresent", "{stored}");
    assert_eq!(stored, stored_behind);
}
