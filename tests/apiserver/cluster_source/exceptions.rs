//! AdmissionExceptions of an API server: taken where the configuration says so, for what is
//! watched too.
//!
//! The API server runs the policies that it stores, too; so the gateways are asked directly
//! here. `told_at_once` has one whose API server leaves that to the gateway.

use super::admission::selected;
use super::servers::{self, CLUSTER};
use crate::harness::client::Client;
use crate::harness::eventually;
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Setup};
use crate::harness::ports;
use crate::harness::relay::Relay;
use serde_json::{Value, json};
use std::fs;

const NAMESPACE: &str = "excused";

/// A policy that refuses every ConfigMap of the namespace, and its binding.
pub(super) fn refusing(name: &str, labels: &Value) -> String {
    let group = "admissionregistration.k8s.io/v1";
    let metadata = json!({"name": name, "labels": labels});
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]);
    let policy = json!({"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": {
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "false", "message": "never"}],
    }});
    let binding = json!({"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}},
    }});
    format!("{policy}\n---\n{binding}\n")
}

/// An exception for ConfigMaps of the namespace that have a label.
pub(super) fn exception(name: &str, policies: &[&str]) -> Value {
    json!({
        "apiVersion": "portcullis.dev/v1alpha1",
        "kind": "AdmissionException",
        "metadata": {"name": name},
        "spec": {
            "policies": policies,
            "match": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
                "objectSelector": {"matchLabels": {"legacy": "true"}},
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
                ],
            },
            "notAfter": "2999-01-01T00:00:00Z",
            "reason": "SEC-123",
        },
    })
}

/// What a gateway says of a ConfigMap that has the label, or has none.
pub(super) fn ask(gateway: &Client, is_legacy: bool) -> Value {
    let labels = if is_legacy {
        json!({"legacy": "true"})
    } else {
        json!({})
    };
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "resource": {"group": "", "version": "v1", "resource": "configmaps"},
            "name": "object",
            "namespace": NAMESPACE,
            "operation": "CREATE",
            "userInfo": {"username": "carol"},
            "object": {"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "object", "namespace": NAMESPACE, "labels": labels}},
        },
    });
    let response = gateway.post("/validate", &review).unwrap();
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()["response"].clone()
}

pub(crate) fn watched_exceptions_are_taken_where_the_configuration_says_so() {
    let Some(servers) = servers::shared() else { return };
    servers.cluster.create_namespace(NAMESPACE);
    let (folder, relay) = (Folder::new("cluster-exceptions"), Relay::new());
    relay.lead_to(servers.cluster.address());
    let mut entry = servers::entry(&folder, CLUSTER, &relay, &servers.authority);
    entry["acceptExceptions"] = true.into();
    let gateway = Gateway::start(&Setup {
        folder: &folder.path().join("gateway"),
        address: ports::free(),
        keys: &servers.keys,
        callers: Vec::new(),
        manifests: &[],
        more: json!({"clusters": [entry]}),
    });
    let (taking, not_taking) = (gateway.client(), servers.gateway.client());
    let allowed = |gateway: &Client, is_legacy: bool| ask(gateway, is_legacy)["allowed"] == true;
    servers.apply("excused.yaml", &refusing("excused", &selected()));
    let refused = || !allowed(&taking, true) && !allowed(&not_taking, true);
    assert!(eventually(refused), "{}", gateway.tail());

    let written = exception("excused", &["excused", "of-files"]);
    servers.apply("exception.yaml", &written.to_string());
    assert!(eventually(|| allowed(&taking, true)), "{}", gateway.tail());
    assert!(
        !allowed(&taking, false),
        "of what has no label nothing is excused"
    );
    let answer = ask(&taking, true);
    let annotation = answer["auditAnnotations"]["exceptions.portcullis.dev"]
        .as_str()
        .unwrap();
    let expected = json!([{"name": "excused", "policy": "excused", "reason": "SEC-123"}]);
    assert_eq!(serde_json::from_str::<Value>(annotation).unwrap(), expected);
    let logged = || {
        let decisions = gateway.decisions();
        let excused = decisions.iter().rfind(|line| line.get("exceptions").is_some());
        excused.map(|line| line["exceptions"].clone())
    };
    assert!(eventually(
        || logged() == Some(json!([{"name": "excused", "policy": "excused"}]))
    ));

    // Without `acceptExceptions: true` none is taken.
    assert!(!allowed(&not_taking, true));

    // Policies of files are never excused by what is watched.
    let file = gateway.manifests().join("files.yaml");
    fs::write(&file, refusing("of-files", &json!({}))).unwrap();
    let refusal = || ask(&taking, true)["status"]["message"].to_string();
    assert!(eventually(|| refusal().contains("'of-files'")), "{}", refusal());
    fs::remove_file(&file).unwrap();
    assert!(eventually(|| allowed(&taking, true)), "{}", refusal());

    servers.kubectl(&["delete", "admissionexception", "excused"]);
    assert!(eventually(|| !allowed(&taking, true)));
    servers.kubectl(&[
        "delete",
        "validatingadmissionpolicy,validatingadmissionpolicybinding",
        "excused",
    ]);
}

pub(crate) fn nobody_writes_exceptions_by_admin_or_edit() {
    let Some(servers) = servers::shared() else { return };
    let text = fs::read_to_string(servers::shipped("cluster/exceptions.yaml")).unwrap();
    let roles: Vec<Value> = portcullis_policy::document::parse(None, &text)
        .unwrap()
        .iter()
        .map(|document| document.root().to_json())
        .filter(|object| object["kind"] == "ClusterRole")
        .collect();
    let writes = |role: &Value| {
        let rules = role["rules"].as_array().unwrap();
        let verbs = rules.iter().flat_map(|rule| rule["verbs"].as_array().unwrap());
        verbs.clone().any(|verb| verb == "create") && verbs.clone().any(|verb| verb == "update")
    };
    let writers: Vec<&Value> = roles.iter().filter(|role| writes(role)).collect();
    assert_eq!(writers.len(), 1, "{text}");
    assert_eq!(writers[0]["metadata"]["name"], "portcullis-exception-writer");
    assert!(
        roles.iter().all(|role| role["metadata"].get("labels").is_none()),
        "no role aggregates it"
    );

    // As the API server aggregates them.
    for role in ["admin", "edit", "view"] {
        let rules = servers.kubectl(&["get", "clusterrole", role, "-o", "json"]);
        assert!(!rules.contains("portcullis.dev"), "{role}");
    }
}
