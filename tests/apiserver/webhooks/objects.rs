//! Random objects that tell the webhooks what to do with them.

use super::chain::{CHANGES, JUDGEMENTS, MUTATING, VALIDATING};
use crate::differential::random::Random;
use serde_json::{Value, json};

/// An object, and where its collection is in a namespace.
pub(super) struct Object {
    root: &'static str,
    plural: &'static str,
    pub(super) object: Value,
}

impl Object {
    pub(super) fn collection(&self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.root, self.plural)
    }

    pub(super) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap()
    }
}

/// The object of that number.
pub(super) fn create(random: &mut Random, number: usize) -> Object {
    let kind = *random.pick(&["ConfigMap", "ConfigMap", "Pod", "Deployment", "Service", "Widget"]);
    let mut labels = json!({"app": "a"});
    if random.one_in(8) {
        labels["skip"] = json!("yes");
    }
    let metadata = json!({"name": format!("o{number}"), "labels": labels, "annotations": orders(random)});
    of_kind(random, kind, metadata)
}

fn of_kind(random: &mut Random, kind: &str, metadata: Value) -> Object {
    let containers = json!([{"name": "own", "image": "cat:1"}]);
    let (version, root, plural, body) = match kind {
        "Pod" => (
            "v1",
            "/api/v1",
            "pods",
            json!({"spec": {"containers": containers}}),
        ),
        "Service" => {
            let ports = json!([{"name": "web", "port": 80}]);
            let spec = json!({"clusterIP": "None", "selector": {"app": "a"}, "ports": ports});
            ("v1", "/api/v1", "services", json!({"spec": spec}))
        }
        "Deployment" => {
            let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers}});
            let spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template});
            ("apps/v1", "/apis/apps/v1", "deployments", json!({"spec": spec}))
        }
        "Widget" => {
            let spec = json!({"size": random.below(9), "rest": {"list": [1, "two", null]}});
            (
                "example.com/v1",
                "/apis/example.com/v1",
                "widgets",
                json!({"spec": spec}),
            )
        }
        _ if random.one_in(3) => ("v1", "/api/v1", "configmaps", json!({})),
        _ => ("v1", "/api/v1", "configmaps", json!({"data": {"a": "1"}})),
    };
    let mut object = body;
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    object["metadata"] = metadata;
    Object { root, plural, object }
}

/// Annotations: what the mutating webhooks are to do, and at most one of those
/// that validate, since the API server tells of several refusals any.
pub(super) fn orders(random: &mut Random) -> Value {
    let mut orders = json!({"own": "is there"});
    if random.below(3) > 0 {
        orders["color"] = json!(random.pick(&["red", "green", "blue"]));
    }
    for name in MUTATING {
        // A refusal or a failure ends it all: not too often.
        let last = if random.one_in(8) {
            CHANGES.len()
        } else {
            CHANGES.len() - 3
        };
        if random.below(4) > 0 {
            orders[name] = json!(random.pick(&CHANGES[..last]));
        }
    }
    match random.below(4) {
        0 => orders[random.pick(VALIDATING)] = json!(random.pick(JUDGEMENTS)),
        1 => VALIDATING.iter().for_each(|name| orders[name] = json!("warn")),
        _ => {}
    }
    orders
}
