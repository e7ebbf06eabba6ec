//! Random objects, and what becomes of them.

use super::policies::{self, COUNT, MUTATING, VALIDATING};
use super::{COLORS, NAMESPACE};
use crate::differential::random::Random;
use serde_json::{Value, json};

/// An object to be created at its collection's path.
pub(super) struct Created {
    pub(super) collection: String,
    pub(super) object: Value,
}

/// The object of that number.
pub(super) fn create(random: &mut Random, number: usize) -> Created {
    let name = format!("{}{number}", "n".repeat(1 + random.below(5)));
    let mut labels = json!({});
    if random.below(4) > 0 {
        labels[VALIDATING] = json!(policies::validating(random.below(COUNT)));
    }
    if random.below(3) > 0 {
        labels[MUTATING] = json!(policies::mutating(random.below(COUNT)));
    }
    let kind = *random.pick(&["ConfigMap", "Pod", "Widget", "Deployment", "Service"]);
    of_kind(random, kind, &name, labels)
}

/// An object of a kind, named and labelled so.
pub(super) fn of_kind(random: &mut Random, kind: &str, name: &str, labels: Value) -> Created {
    let (version, root, plural) = match kind {
        "Widget" => ("example.com/v1", "/apis/example.com/v1", "widgets"),
        "Deployment" => ("apps/v1", "/apis/apps/v1", "deployments"),
        "Pod" => ("v1", "/api/v1", "pods"),
        "Service" => ("v1", "/api/v1", "services"),
        _ => ("v1", "/api/v1", "configmaps"),
    };
    let metadata = json!({"name": name, "labels": labels, "annotations": annotations(random)});
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
    match kind {
        "Widget" => object["spec"] = widget(random),
        "Deployment" => {
            object["spec"] = json!({
                "replicas": 1,
                "selector": {"matchLabels": {"app": "a"}},
                "template": {"metadata": {"labels": {"app": "a"}}, "spec": pod(random)},
            });
        }
        "Pod" => object["spec"] = pod(random),
        "Service" => object["spec"] = service(random),
        _ if random.one_in(3) => {}
        _ => object["data"] = json!({"a": "1", "b": random.pick(COLORS)}),
    }
    Created {
        collection: format!("{root}/namespaces/{NAMESPACE}/{plural}"),
        object,
    }
}

/// Other annotations, and for widgets another spec, in an object as stored.
pub(super) fn change(random: &mut Random, stored: &mut Value) {
    stored["metadata"]["annotations"] = annotations(random);
    if stored["kind"] == "Widget" {
        let in_use = stored["spec"]["inUse"].clone();
        let size = stored["spec"]["size"].as_u64().unwrap();
        stored["spec"] = widget(random);
        stored["spec"]["inUse"] = in_use;
        stored["spec"]["size"] = json!(size + random.below(2) as u64);
    }
}

/// Never none, each perhaps missing.
fn annotations(random: &mut Random) -> Value {
    let mut annotations = json!({"own": "is there"});
    for (key, values) in [
        ("color", COLORS),
        ("count", &["1", "7", "12", "many", "-3", "99999999999999999999"]),
        ("memory", &["1Mi", "5Mi", "1Gi", "much", "100k"]),
        ("ip", &["10.1.2.3", "192.168.0.1", "::1", "10.1.2", "nowhere"]),
        ("version", &["1.2.3", "1.9.0-rc.1", "v1.2.3", "2"]),
    ] {
        if random.below(4) > 0 {
            annotations[key] = json!(random.pick(values));
        }
    }
    annotations
}

fn widget(random: &mut Random) -> Value {
    let mut spec = json!({"size": random.below(6)});
    match random.below(4) {
        0 => {}
        1 => spec["rest"] = json!({"list": ["one", 2]}),
        _ => {
            spec["rest"] =
                json!({"list": random.some(&[0, 1, 2, 5], 0, 4), "large": 9_007_199_254_740_993_i64})
        }
    }
    spec
}

fn pod(random: &mut Random) -> Value {
    let names = ["a", "bc", "longer"];
    let containers: Vec<Value> = (0..=random.below(3))
        .map(|place| json!({"name": names[place], "image": "cat:1", "ports": ports(random)}))
        .collect();
    json!({"containers": containers})
}

fn ports(random: &mut Random) -> Value {
    match random.below(3) {
        0 => json!([]),
        1 => json!([{"containerPort": 80}]),
        _ => json!([{"containerPort": 81, "protocol": "UDP"}, {"containerPort": 80, "name": "web"}]),
    }
}

/// One to which the API server gives no address, since that would be another
/// in either cluster.
fn service(random: &mut Random) -> Value {
    let mut ports = vec![json!({"port": 80, "name": "web"})];
    if random.one_in(2) {
        ports.insert(0, json!({"port": 81, "name": "other"}));
    }
    json!({"clusterIP": "None", "selector": {"app": "a"}, "ports": ports})
}
