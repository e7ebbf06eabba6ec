//! Namespaces, parameters and selected policies of the API server, as the
//! gateway's admission sees them.
//!
//! The API server runs the policies that it stores, too; so the gateway is asked
//! directly here.

use super::servers::{self, LABEL, Servers};
use crate::harness::eventually;
use serde_json::{Value, json};

/// What an endpoint of the gateway says of a ConfigMap in a namespace.
pub(super) fn ask(servers: &Servers, endpoint: &str, namespace: &str, data: &Value) -> Value {
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "object", "namespace": namespace},
        "data": data,
    });
    let review = crate::harness::reviews::admission(&json!({
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "object",
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "carol"},
        "object": object,
    }));
    let response = servers.gateway.client().post(endpoint, &review).unwrap();
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()["response"].clone()
}

fn wait_until(servers: &Servers, namespace: &str, data: &Value, allowed: bool) -> Value {
    let mut last = Value::Null;
    let heard = eventually(|| {
        last = ask(servers, "/validate", namespace, data);
        last["allowed"] == allowed
    });
    assert!(heard, "{namespace} {data}: {last}");
    last
}

/// A policy of this name for ConfigMaps, and its binding, whose labels are these.
fn policy(name: &str, labels: &Value, spec: &Value, binding: &Value) -> String {
    let mut spec = spec.clone();
    spec["matchConstraints"] = json!({"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
    ]});
    let mut binding = binding.clone();
    binding["policyName"] = name.into();
    binding["validationActions"] = json!(["Deny"]);
    let object = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        })
    };
    let objects = [
        object("ValidatingAdmissionPolicy", spec),
        object("ValidatingAdmissionPolicyBinding", binding),
    ];
    objects.map(|object| object.to_string()).join("\n---\n")
}

/// The labels of what is meant for the gateway.
pub(super) fn selected() -> Value {
    json!({LABEL.0: LABEL.1})
}

pub(crate) fn only_selected_policies_are_run_for_namespaces_as_they_are_labelled() {
    let Some(servers) = servers::shared() else { return };
    let spec = json!({"validations": [{"expression": "false", "message": "never"}]});
    let binding =
        |value: &str| json!({"matchResources": {"namespaceSelector": {"matchLabels": {"guarded": value}}}});
    servers.cluster.create_namespace("guarded");
    servers.apply(
        "unselected.yaml",
        &policy("unselected", &json!({}), &spec, &binding("no")),
    );
    servers.apply(
        "guard.yaml",
        &policy("guard", &selected(), &spec, &binding("yes")),
    );
    wait_until(&servers, "guarded", &json!({}), true);
    servers.kubectl(&["label", "namespace", "guarded", "guarded=yes"]);
    let refused = wait_until(&servers, "guarded", &json!({}), false);
    assert!(
        refused["status"]["message"].as_str().unwrap().ends_with("never"),
        "{refused}"
    );
    servers.kubectl(&["label", "--overwrite", "namespace", "guarded", "guarded=no"]);
    wait_until(&servers, "guarded", &json!({}), true);

    // What loses its label is the API server's alone.
    servers.kubectl(&["label", "--overwrite", "namespace", "guarded", "guarded=yes"]);
    wait_until(&servers, "guarded", &json!({}), false);
    servers.kubectl(&[
        "label",
        "validatingadmissionpolicybinding",
        "guard",
        &format!("{}-", LABEL.0),
    ]);
    wait_until(&servers, "guarded", &json!({}), true);
    for name in ["guard", "unselected"] {
        servers.kubectl(&[
            "delete",
            "validatingadmissionpolicy,validatingadmissionpolicybinding",
            name,
        ]);
    }
}

pub(crate) fn parameters_are_followed_as_soon_as_a_policy_takes_them() {
    let Some(servers) = servers::shared() else { return };
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "object.data.size == params.data.size"}],
    });
    let binding = json!({
        "paramRef": {"name": "limits", "namespace": "parameters", "parameterNotFoundAction": "Allow"},
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "parameters"}}},
    });
    let limits = |size: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: limits, namespace: parameters}}, data: {{size: {size}}}}}"
        )
    };
    servers.cluster.create_namespace("parameters");
    servers.apply("limits.yaml", &limits("small"));
    servers.apply(
        "parameters.yaml",
        &policy("parameters", &selected(), &spec, &binding),
    );

    // As long as they may not be listed, nobody knows what they say.
    let refused = wait_until(&servers, "parameters", &json!({"size": "small"}), false);
    let message = refused["status"]["message"].as_str().unwrap();
    assert!(
        message.ends_with("paramKind kind `/v1, Kind=ConfigMap` not yet synced to use for admission"),
        "{message}"
    );

    servers.kubectl(&[
        "create",
        "clusterrole",
        "reads-configmaps",
        "--verb=list,watch",
        "--resource=configmaps",
    ]);
    servers.kubectl(&[
        "create",
        "clusterrolebinding",
        "reads-configmaps",
        "--clusterrole=reads-configmaps",
        "--user=portcullis",
    ]);
    wait_until(&servers, "parameters", &json!({"size": "small"}), true);
    wait_until(&servers, "parameters", &json!({"size": "large"}), false);
    servers.apply("limits.yaml", &limits("large"));
    wait_until(&servers, "parameters", &json!({"size": "large"}), true);
    wait_until(&servers, "parameters", &json!({"size": "small"}), false);
    servers.kubectl(&["-n", "parameters", "delete", "configmap", "limits"]);
    wait_until(&servers, "parameters", &json!({"size": "small"}), true);
    servers.kubectl(&[
        "delete",
        "validatingadmissionpolicy,validatingadmissionpolicybinding",
        "parameters",
    ]);
    let before = servers.metric("cluster_objects");
    assert!(before > 0.0);
}
