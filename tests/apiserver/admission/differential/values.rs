//! What JSON the values of JSON patches are: literals, objects, and what is taken from the object.

use super::Comparison;
use super::policies::{MUTATING, PROBE, object};
use super::requests;
use crate::differential::random::Random;
use serde_json::{Value, json};

/// The kind of the object, the path of the one operation, its value, and whether that is JSON.
const VALUES: &[(&str, &str, &str, bool)] = &[
    ("Widget", "/spec/rest", "{'list': [1, 2], 'empty': []}", true),
    (
        "Widget",
        "/spec/rest",
        "{'n': dyn(null), 'x': dyn(1.5), 'y': dyn(1e21), 'z': dyn(-0.0)}",
        true,
    ),
    (
        "Widget",
        "/spec/rest",
        "{'t': timestamp('2020-01-01T00:00:00.5Z')}",
        true,
    ),
    (
        "Widget",
        "/spec/rest",
        "{'d': duration('90m'), 'e': duration('1.5s'), 'f': duration('-2ns')}",
        true,
    ),
    ("Widget", "/spec/rest", "{'b': b'abc'}", true),
    (
        "Widget",
        "/spec/rest",
        "{'m': {'k': {'l': [object.metadata.labels]}}}",
        true,
    ),
    ("Widget", "/spec/rest", "{'o': optional.of(1)}", true),
    ("Widget", "/spec/rest", "{'o': optional.none()}", false),
    ("Widget", "/spec/rest", "{1: 'a', 2: 'b'}", false),
    ("Widget", "/spec/rest", "{true: 'a', false: 'b'}", false),
    ("Widget", "/spec/rest", "{'q': quantity('1')}", false),
    ("Widget", "/spec/rest", "{'type': type(1)}", false),
    ("Widget", "/spec/rest", "Object.spec.rest{}", true),
    (
        "Widget",
        "/spec/rest",
        "Object.spec.rest{list: [1, 2], map: {'a': 1}, text: 'a', n: 1.5}",
        true,
    ),
    (
        "Widget",
        "/spec/rest",
        "Object.spec.rest{list: object.spec.rest.list}",
        true,
    ),
    (
        "Widget",
        "/spec/rest",
        "Object.spec.rest{list: object.spec.rest.list.map(i, i * 2)}",
        true,
    ),
    ("Widget", "/spec/rest", "Object.spec.rest{list: [1] + [2]}", true),
    (
        "Widget",
        "/spec/rest",
        "Object.spec.rest{items: [Object.spec.rest.items{a: 1}]}",
        true,
    ),
    (
        "Widget",
        "/spec/rest",
        "Object.spec.rest{item: Object.spec.rest.item{a: [1]}}",
        true,
    ),
    (
        "Widget",
        "/spec/rest",
        "Object.spec.rest{own: object.metadata.labels}",
        true,
    ),
    (
        "Widget",
        "/spec/rest",
        "Object.spec.rest{own: [object.metadata.labels]}",
        true,
    ),
    (
        "Widget",
        "/spec/rest",
        "Object.spec.rest{own: {'m': object.metadata.labels}}",
        true,
    ),
    (
        "Widget",
        "/spec/rest",
        "Object.spec.rest{l: [object.spec.rest.list]}",
        true,
    ),
    (
        "Widget",
        "/spec/rest",
        "Object.spec.rest{?a: optional.of(1), ?b: optional.none()}",
        true,
    ),
    ("Service", "/spec/ports", "object.spec.ports", true),
    ("Service", "/spec/ports", "object.spec.ports.map(p, p)", true),
    ("Service", "/spec/ports", "[object.spec.ports[0]]", true),
    ("Service", "/spec", "object.spec", true),
    ("Service", "/spec", "Object.spec{ports: object.spec.ports}", true),
    (
        "Service",
        "/spec",
        "Object.spec{ports: object.spec.ports, selector: {'a': 'b'}}",
        true,
    ),
    (
        "Service",
        "/spec",
        "Object.spec{ports: [Object.spec.ports{port: 81, name: 'x'}]}",
        true,
    ),
    (
        "Service",
        "/spec",
        "Object.spec{ports: object.spec.ports.map(p, Object.spec.ports{port: p.port, name: p.name})}",
        true,
    ),
    ("ConfigMap", "/metadata/labels", "object.metadata.labels", true),
    (
        "ConfigMap",
        "/metadata",
        "Object.metadata{name: object.metadata.name, namespace: object.metadata.namespace, \
      labels: object.metadata.labels, annotations: object.metadata.annotations}",
        true,
    ),
];

/// The name of the policy of that number.
fn name(number: usize) -> String {
    format!("value-{number}")
}

/// The policies with their bindings.
pub(super) fn policies() -> Vec<Value> {
    let mut objects = Vec::new();
    for (number, (_, path, value, _)) in VALUES.iter().enumerate() {
        let probing = "[JSONPatch{op: 'add', path: '/metadata/annotations/probed', value: 'yes'}]";
        let patch = format!("[JSONPatch{{op: 'add', path: '{path}', value: {value}}}]");
        let expression = format!("request.name == '{PROBE}' ? {probing} : {patch}");
        let spec = json!({
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "objectSelector": {"matchLabels": {MUTATING: name(number)}},
                "resourceRules": [{
                    "operations": ["CREATE"],
                    "apiGroups": ["", "example.com"],
                    "apiVersions": ["v1"],
                    "resources": ["configmaps", "services", "widgets"],
                }],
            },
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        });
        objects.push(object("MutatingAdmissionPolicy", &name(number), spec));
        let binding = json!({"policyName": name(number)});
        objects.push(object("MutatingAdmissionPolicyBinding", &name(number), binding));
    }
    objects
}

/// The names of the policies.
pub(super) fn names() -> impl Iterator<Item = String> {
    (0..VALUES.len()).map(name)
}

/// Sends an object to each policy, of which nothing is stored.
pub(super) fn compare(comparison: &mut Comparison<'_>) {
    for (number, (kind, path, value, is_json)) in VALUES.iter().enumerate() {
        let labels = json!({MUTATING: name(number)});
        let mut created = requests::of_kind(&mut Random::new(0), kind, &name(number), labels);
        match *kind {
            "Widget" => created.object["spec"] = json!({"size": 1, "rest": {"list": [1, 2]}}),
            "Service" => {
                created.object["spec"] =
                    json!({"ports": [{"name": "p", "port": 80}, {"name": "q", "port": 81}]});
            }
            _ => {}
        }
        comparison.dry_run(&created, &format!("{path}: {value}"), *is_json);
    }
}
