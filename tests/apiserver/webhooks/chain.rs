//! The webhooks of the chain: their registrations, and what they do. What an
//! object has in its annotations says what each of them does with it.

use crate::harness::pki::Authority;
use crate::harness::webhooks::{Answer, Builder, Called, Review, Webhooks};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The webhooks that mutate, in their order, and those that validate.
pub(super) const MUTATING: &[&str] = &["m1", "m2", "m3"];
pub(super) const VALIDATING: &[&str] = &["v1", "v2", "v3"];

/// What a mutating webhook may be told to do. None writes what is there already:
/// the API server takes the first such patch of a built-in type for a change, and
/// asks again, since the times of `managedFields` lose their fractions in it.
pub(super) const CHANGES: &[&str] = &[
    "label",
    "count",
    "grow",
    "rename-color",
    "drop-color",
    "move",
    "nothing",
    "empty",
    "warn",
    "annotate",
    "break",
    "odd-patch",
    "deny",
];

/// What a validating webhook may be told to do.
pub(super) const JUDGEMENTS: &[&str] = &[
    "deny",
    "deny-403",
    "deny-details",
    "deny-200",
    "deny-reason",
    "deny-silently",
    "deny-busy",
    "warn",
    "break",
];

/// The path of a webhook on either way.
pub(super) fn path(way: &str, webhook: &str) -> String {
    format!("/{way}/{webhook}")
}

/// Every webhook, on both ways. Paths are added by `more`.
pub(super) fn serve(authority: &Authority, more: impl FnOnce(Builder) -> Builder) -> Webhooks {
    let mut webhooks = Webhooks::of(authority, &["old.infra.svc"]);
    for way in ["direct", "behind"] {
        for &name in MUTATING {
            webhooks = webhooks.on(&path(way, name), move |called| mutate(name, called));
        }
        for &name in VALIDATING {
            webhooks = webhooks.on(&path(way, name), move |called| validate(name, called));
        }
    }
    more(webhooks).start()
}

/// The three configurations: of two mutating webhooks, of one, and of those
/// that validate; `selected` is their namespaceSelector.
pub(super) fn configurations(webhooks: &Webhooks, way: &str, selected: &Value) -> Vec<Value> {
    let webhook = |name: &str, more: Value| {
        let mut webhook = json!({
            "name": format!("{name}.example.com"),
            "clientConfig": {
                "url": webhooks.url(&path(way, name)),
                "caBundle": STANDARD.encode(webhooks.authority()),
            },
            "rules": rules(),
            "namespaceSelector": selected,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 10,
        });
        for (key, value) in more.as_object().unwrap() {
            webhook[key] = value.clone();
        }
        webhook
    };
    let skipped = json!({"matchExpressions": [{"key": "skip", "operator": "NotIn", "values": ["yes"]}]});
    let condition = json!([{"name": "wanted", "expression": "!has(object.metadata.labels) || !('skip' in object.metadata.labels)"}]);
    let first = [
        webhook("m1", json!({"reinvocationPolicy": "IfNeeded"})),
        webhook(
            "m2",
            json!({"failurePolicy": "Ignore", "admissionReviewVersions": ["v1beta1", "v1"]}),
        ),
    ];
    let last = [webhook(
        "m3",
        json!({"reinvocationPolicy": "IfNeeded", "objectSelector": skipped}),
    )];
    let validating = [
        webhook(
            "v1",
            json!({"rules": rules_with(&["CREATE", "UPDATE", "DELETE"])}),
        ),
        webhook(
            "v2",
            json!({"failurePolicy": "Ignore", "sideEffects": "NoneOnDryRun"}),
        ),
        webhook(
            "v3",
            json!({"matchConditions": condition, "admissionReviewVersions": ["v1beta1"]}),
        ),
    ];
    [
        configuration("Mutating", &format!("{way}-a"), &first),
        configuration("Mutating", &format!("{way}-b"), &last),
        configuration("Validating", way, &validating),
    ]
    .into()
}

pub(super) fn configuration(phase: &str, name: &str, webhooks: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": format!("{phase}WebhookConfiguration"),
        "metadata": {"name": name},
        "webhooks": webhooks,
    })
}

pub(super) fn rules() -> Value {
    rules_with(&["CREATE", "UPDATE"])
}

pub(super) fn rules_with(operations: &[&str]) -> Value {
    json!([{
        "operations": operations,
        "apiGroups": ["", "apps", "example.com"],
        "apiVersions": ["v1"],
        "resources": ["configmaps", "pods", "services", "deployments", "widgets"],
    }])
}

/// What the object tells a webhook to do.
fn reported(name: &str, called: &Called) -> String {
    let request = called.request();
    let object = match &request["object"] {
        Value::Null => &request["oldObject"],
        object => object,
    };
    let reported = object["metadata"]["annotations"][name].as_str();
    reported.unwrap_or("nothing").to_owned()
}

fn mutate(name: &str, called: &Called) -> Answer {
    let object = &called.request()["object"];
    let metadata = &object["metadata"];
    let label = format!("/metadata/labels/{name}");
    match reported(name, called).as_str() {
        "label" => set(object, &label, json!("is-here")).into(),
        // Another answer once others have added theirs: what reinvocation is for.
        "count" => {
            let count = metadata["labels"].as_object().map_or(0, |labels| {
                labels.keys().filter(|key| *key != name).count()
            });
            set(object, &label, json!(format!("{count}-others"))).into()
        }
        "grow" => grow(name, object).into(),
        "sketch" if called.request()["object"]["spec"]["containers"].as_array().map(Vec::len) == Some(1) => {
            let container = json!({"name": "sketched", "image": "added:1", "nonsense": true});
            Review::patch(&json!([{"op": "add", "path": "/spec/containers/-", "value": container}])).into()
        }
        "rename-color" => set(object, "/metadata/annotations/color", json!(name)).into(),
        "drop-color" if metadata["annotations"]["color"].is_string() => {
            Review::patch(&json!([{"op": "remove", "path": "/metadata/annotations/color"}])).into()
        }
        "move" if metadata["annotations"]["color"].is_string() => Review::patch(&json!([
            {"op": "test", "path": "/metadata/annotations/color", "value": metadata["annotations"]["color"]},
            {"op": "move", "from": "/metadata/annotations/color", "path": format!("/metadata/annotations/{name}~1color")},
        ]))
        .into(),
        "empty" => Review::patch(&json!([])).into(),
        "warn" => Review::allow().warn(&format!("{name} warns")).into(),
        "annotate" => Review::allow().annotate("seen", "yes").into(),
        "break" => Answer::http(500, "broken"),
        // A failed call in v1; in v1beta1 every patch is a JSON Patch.
        "odd-patch" if metadata["labels"]["odd"].is_null() => {
            let patch = r#"[{"op":"add","path":"/metadata/labels/odd","value":"yes"}]"#;
            let response = json!({"allowed": true, "patchType": "Other", "patch": STANDARD.encode(patch)});
            Review::response(response).into()
        }
        "deny" => Review::deny(403, &format!("{name} mutates no such thing")).into(),
        _ => Review::allow().into(),
    }
}

/// Writes a value, unless it is there.
fn set(object: &Value, path: &str, value: Value) -> Review {
    if object.pointer(path) == Some(&value) {
        return Review::allow();
    }
    Review::patch(&json!([{"op": "add", "path": path, "value": value}]))
}

/// A container, key, port or item more, unless it is there.
fn grow(name: &str, object: &Value) -> Review {
    let list = |path: &str, item: Value| {
        let items = object.pointer(path).and_then(Value::as_array);
        let mut items = items.into_iter().flatten();
        if items.any(|present| present["name"] == name) {
            return Review::allow();
        }
        set(object, &format!("{path}/-"), item)
    };
    let container = json!({"name": name, "image": "added:1"});
    match object["kind"].as_str().unwrap() {
        "Pod" => list("/spec/containers", container),
        "Deployment" => list("/spec/template/spec/containers", container),
        "Service" => {
            let port = 1000 + u64::from(name.as_bytes()[1]);
            list("/spec/ports", json!({"name": name, "port": port}))
        }
        "Widget" => set(
            object,
            "/spec/rest",
            json!({"by": name, "large": 9_007_199_254_740_993_u64}),
        ),
        _ if object["data"].is_object() => set(object, &format!("/data/{name}"), json!("added")),
        _ => set(object, "/data", json!({name: "added"})),
    }
}

fn validate(name: &str, called: &Called) -> Answer {
    let refuse = |status: Value| Review::response(json!({"allowed": false, "status": status}));
    let why = format!("{name} knows no \"such\" thing");
    match reported(name, called).as_str() {
        "deny" => refuse(json!({"message": why})).into(),
        "deny-403" => Review::deny(403, &why).into(),
        "deny-details" => refuse(json!({"code": 422, "reason": "Invalid", "message": why, "details": {
            "name": "n", "kind": "k", "causes": [{"reason": "FieldValueInvalid", "message": "bad", "field": "spec.x"}]}}))
        .into(),
        "deny-200" => refuse(json!({"code": 200, "status": "Success", "message": why})).into(),
        "deny-reason" => refuse(json!({"code": 418, "reason": "Teapot"})).into(),
        "deny-silently" => Review::response(json!({"allowed": false})).warn(&format!("{name} denies")).into(),
        "deny-busy" => refuse(json!({"code": 409, "reason": "Conflict", "details": {"retryAfterSeconds": 1}, "message": why})).into(),
        "warn" => Review::allow().warn(&format!("{name} warns")).warn("all warn").into(),
        "break" => Answer::http(503, "broken"),
        _ => Review::allow().into(),
    }
}
