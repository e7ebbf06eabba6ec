//! Custom resources, whose kinds are unknown to the gateway.

use super::servers::{self, assert_denied, object, wait_until};
use crate::cluster::Cluster;
use serde_json::{Value, json};

pub(super) const POLICIES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: widgets}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [example.com], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [widgets]}
  validations:
  - {expression: "object.spec.size <= 10", message: this widget is too large}
  - expression: "oldObject == null || oldObject.spec.size <= object.spec.size"
    messageExpression: "'widgets do not shrink below ' + string(oldObject.spec.size)"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: widgets}
spec: {policyName: widgets, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: widgets-scale}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [example.com], apiVersions: [v1], operations: [UPDATE], resources: [widgets/scale]}
  validations:
  - {expression: "object.spec.replicas < 4", message: that is too many widgets}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: widgets-scale}
spec: {policyName: widgets-scale, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: widgets-in-use}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [example.com], apiVersions: [v1], operations: [DELETE], resources: [widgets]}
  validations:
  - {expression: "!oldObject.spec.inUse", message: this widget is in use}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: widgets-in-use}
spec: {policyName: widgets-in-use, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: widgets}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [example.com], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [widgets]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        has(object.spec.inUse) ? [] : [JSONPatch{op: 'add', path: '/spec/inUse', value: false}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: widgets}
spec: {policyName: widgets}
"#;

const WIDGETS: &str = "/apis/example.com/v1/namespaces/kittens/widgets";

/// Defines widgets, and waits until the API server serves them.
pub(crate) fn define(cluster: &Cluster) {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "replicas": {"type": "integer"},
            "inUse": {"type": "boolean"},
            "rest": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    }});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                }},
            }],
        },
    });
    cluster.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &definition,
    );
    wait_until("widgets are served", || cluster.status("admin", WIDGETS) == 200);
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

pub(crate) fn a_custom_resource_is_created_mutated_or_denied() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    let rest = json!({"large": 9_007_199_254_740_993_i64, "list": [1, "two", null], "a/b~c": {}});
    let wanted = widget("created", json!({"size": 10, "rest": rest}));
    object(&admin.post(WIDGETS, &wanted).unwrap(), 201);
    let stored = object(&admin.get(&format!("{WIDGETS}/created")).unwrap(), 200);
    assert_eq!(stored["spec"], json!({"size": 10, "rest": rest, "inUse": false}));

    let denied = admin
        .post(WIDGETS, &widget("denied", json!({"size": 11})))
        .unwrap();
    assert_denied(&denied, 422, "this widget is too large");
}

pub(crate) fn an_update_of_a_custom_resource_is_compared_with_the_old_one() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    let mut stored = object(
        &admin
            .post(WIDGETS, &widget("updated", json!({"size": 3})))
            .unwrap(),
        201,
    );
    let target = format!("{WIDGETS}/updated");
    stored["spec"]["size"] = json!(2);
    assert_denied(
        &admin.put(&target, &stored).unwrap(),
        422,
        "widgets do not shrink below 3",
    );
    stored["spec"]["size"] = json!(4);
    assert_eq!(
        object(&admin.put(&target, &stored).unwrap(), 200)["spec"]["size"],
        4
    );
}

pub(crate) fn a_custom_resource_is_scaled_or_not() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    let wanted = widget("scaled", json!({"size": 1, "replicas": 1}));
    object(&admin.post(WIDGETS, &wanted).unwrap(), 201);
    let scale = |replicas: u32| {
        let patch = json!({"spec": {"replicas": replicas}});
        let target = format!("{WIDGETS}/scaled/scale");
        admin
            .patch(&target, "application/merge-patch+json", &patch)
            .unwrap()
    };
    assert_eq!(object(&scale(3), 200)["spec"]["replicas"], 3);
    assert_denied(&scale(4), 422, "that is too many widgets");
}

pub(crate) fn a_custom_resource_is_deleted_or_kept() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    for (name, in_use) in [("used", true), ("unused", false)] {
        let wanted = widget(name, json!({"size": 1, "inUse": in_use}));
        object(&admin.post(WIDGETS, &wanted).unwrap(), 201);
    }
    assert_denied(
        &admin.delete(&format!("{WIDGETS}/used")).unwrap(),
        422,
        "this widget is in use",
    );
    object(&admin.delete(&format!("{WIDGETS}/unused")).unwrap(), 200);
}

pub(crate) fn a_custom_resource_is_applied_by_the_server_or_denied() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    let apply = |size: u32| {
        let target = format!("{WIDGETS}/applied?fieldManager=tests");
        let wanted = widget("applied", json!({"size": size}));
        admin
            .patch(&target, "application/apply-patch+yaml", &wanted)
            .unwrap()
    };
    assert_eq!(object(&apply(1), 201)["spec"], json!({"size": 1, "inUse": false}));
    assert_denied(&apply(11), 422, "this widget is too large");
    assert_eq!(object(&apply(2), 200)["spec"], json!({"size": 2, "inUse": false}));
}
