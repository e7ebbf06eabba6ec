//! What is never written.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::replay::post;
use super::{files, recorded};
use crate::harness::pki::Authority;
use crate::harness::reviews::admission;
use crate::harness::webhooks::{Review, Webhooks};
use crate::support::{Builder, until};

/// Puts the secret elsewhere, and says it aloud.
const POLICIES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: copied}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [secrets]}]}
  reinvocationPolicy: Never
  mutations:
  - {patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'copy': string(object.data.p), 'other': 'o'}}]"}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: copied}
spec: {policyName: copied}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: loud}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [secrets]}]}
  validations: [{expression: "false", messageExpression: "'bad password: ' + object.data.p"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: loud}
spec: {policyName: loud, validationActions: [Deny]}
"#;

const SECRET: &str = "hunter2-is-the-password";
const NEWER: &str = "hunter3-is-the-next-one";

fn review(group: &str, resource: &str, kind: &str, object: &Value) -> Value {
    admission(&json!({
        "uid": "u", "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "name": "n", "namespace": "ns", "operation": "UPDATE", "userInfo": {"username": "jane"},
        "object": object, "oldObject": object, "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
    }))
}

#[test]
fn no_secret_is_in_any_file_whichever_way_it_went() {
    let patch = json!([
        {"op": "replace", "path": "/data/p", "value": STANDARD.encode(NEWER)},
        {"op": "add", "path": "/metadata/annotations", "value": {"was": SECRET}},
    ]);
    let response = json!({"allowed": true, "patch": STANDARD.encode(patch.to_string()), "patchType": "JSONPatch",
        "warnings": [format!("it is {SECRET}")], "auditAnnotations": {"k": STANDARD.encode(SECRET)}});
    let refusal = json!({"allowed": false, "status": {"message": format!("{SECRET} is no password"), "reason": SECRET}});
    let webhooks = Webhooks::of(&Authority::new("webhooks"), &[])
        .always("/mutating", Review::response(response))
        .always("/validating", Review::response(refusal))
        .start();
    let configuration = |kind: &str, path: &str, resources: &[&str]| {
        let manifest = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "hooks"},
            "webhooks": [{
                "name": "hook.example.com", "clientConfig": webhooks.client_config(path),
                "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": resources}],
                "sideEffects": "None", "admissionReviewVersions": ["v1"],
            }],
        });
        format!("---\n{manifest}\n")
    };
    let manifests = [
        POLICIES.to_owned(),
        configuration("MutatingWebhookConfiguration", "/mutating", &["secrets"]),
        configuration(
            "ValidatingWebhookConfiguration",
            "/validating",
            &["secrets", "widgets"],
        ),
    ];
    let gateway = Builder::new()
        .manifests(manifests.concat())
        .recording("{folder: recordings, redact: ['widgets.example.com:.spec.token']}")
        .start();
    let secret = json!({"kind": "Secret", "apiVersion": "v1", "type": "Opaque",
        "metadata": {"name": "n", "namespace": "ns", "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": json!({"stringData": {"p": SECRET}}).to_string()}},
        "data": {"p": STANDARD.encode(SECRET)}});
    let widget = json!({"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "n", "namespace": "ns"},
        "spec": {"token": SECRET, "items": [secret]}});
    let token =
        json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": SECRET}});
    let requests = [
        review("", "secrets", "Secret", &secret),
        review("example.com", "widgets", "Widget", &widget),
        review("authentication.k8s.io", "tokenreviews", "TokenReview", &token),
    ];
    let mut connection = gateway.connect();
    for request in &requests {
        for path in ["/mutate", "/validate"] {
            post(&mut connection, path, request);
        }
    }
    let lines = recorded(&gateway, 6);
    let log = || fs::read_to_string(gateway.file("decisions.log")).unwrap();
    until("every line is written", || log().lines().count() == 6);
    let log = log();
    assert!(log.contains("<redacted>"), "{log}");
    for hidden in [
        SECRET.to_owned(),
        NEWER.to_owned(),
        STANDARD.encode(SECRET),
        STANDARD.encode(NEWER),
    ] {
        assert!(!log.contains(&hidden), "{hidden} is in {log}");
        for file in files(&gateway.file("recordings")) {
            let text = fs::read_to_string(file).unwrap();
            let line = text.lines().find(|line| line.contains(&hidden));
            assert_eq!(line, None, "{hidden} is written");
        }
    }
    // It went these ways indeed, and what is harmless is there.
    let mutated = &lines[0];
    assert_eq!(mutated["decision"], "allow", "{mutated}");
    assert!(
        mutated["patch"].to_string().contains("\"other\":\"o\""),
        "{mutated}"
    );
    assert_eq!(
        mutated["webhooks"][0]["patch"][0]["value"], "<redacted>",
        "{mutated}"
    );
    assert_eq!(lines[1]["reason"], "<redacted>", "{}", lines[1]);
    assert_eq!(lines[1]["review"]["request"]["object"]["type"], "Opaque");
    assert_eq!(
        lines[3]["webhooks"][0]["status"]["message"], "<redacted>",
        "{}",
        lines[3]
    );
    assert_eq!(
        lines[4]["review"]["request"]["object"]["spec"]["token"],
        "<redacted>"
    );
}
