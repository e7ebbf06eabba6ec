//! AdmissionReviews: recorded answers of webhooks, patches, and what was redacted.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::lines;
use super::replay::{RECORDING, change, changes, end, folder, post, replay};
use crate::harness::pki::Authority;
use crate::harness::reviews::creation_of_pod;
use crate::harness::webhooks::{Review, Webhooks};
use crate::support::Builder;

/// The review of a new pod.
fn pod(name: &str) -> Value {
    creation_of_pod(
        "ns",
        &json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "labels": {"own": "x"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }),
    )
}

/// The review of a new ConfigMap.
fn config_map(data: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p"}});
    if !data.is_null() {
        object["data"] = data.clone();
    }
    let mut review = creation_of_pod("ns", &object);
    review["request"]["kind"]["kind"] = json!("ConfigMap");
    review["request"]["resource"]["resource"] = json!("configmaps");
    review
}

const POLICIES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: labelled}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  reinvocationPolicy: Never
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/metadata/labels/policy', value: 'first'}]"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: labelled}
spec: {policyName: labelled}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: named}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods, configmaps]}]}
  validations: [{expression: "object.metadata.name != 'forbidden'", message: "not this name"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: named}
spec: {policyName: named, validationActions: [Deny]}
"#;

/// The manifest of a configuration with one webhook for pods.
fn configuration(kind: &str, name: &str, webhooks: &Webhooks) -> String {
    let manifest = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "webhooks": [{
            "name": format!("{name}.hooks.example.com"),
            "clientConfig": webhooks.client_config(&format!("/{name}")),
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    });
    format!("---\n{manifest}\n")
}

#[test]
fn webhooks_answer_as_they_did_and_patches_are_compared() {
    let patch = json!([{"op": "add", "path": "/metadata/labels/hook", "value": "h"}]).to_string();
    let webhooks = Webhooks::of(&Authority::new("webhooks"), &[])
        .always(
            "/labels",
            Review::response(
                json!({"allowed": true, "patch": STANDARD.encode(patch), "patchType": "JSONPatch"}),
            ),
        )
        .always(
            "/judges",
            Review::response(
                json!({"allowed": false, "status": {"message": "not on a Monday", "code": 418}}),
            ),
        )
        .start();
    let manifests = [
        POLICIES.to_owned(),
        configuration("MutatingWebhookConfiguration", "labels", &webhooks),
        configuration("ValidatingWebhookConfiguration", "judges", &webhooks),
    ];
    let process = Builder::new()
        .manifests(manifests.concat())
        .recording(RECORDING)
        .spawn();
    let mut connection = process.connect();
    assert!(post(&mut connection, "/mutate", &pod("p"))["patch"].is_string());
    assert_eq!(post(&mut connection, "/validate", &pod("p"))["allowed"], false);
    assert_eq!(
        post(&mut connection, "/validate/named", &pod("p"))["allowed"],
        true
    );
    assert_eq!(
        post(&mut connection, "/validate/named", &pod("forbidden"))["allowed"],
        false
    );
    drop((connection, webhooks));
    let process = end(process);
    let folder = folder(&process);
    let recorded = lines(&process.file("recordings"));
    assert_eq!(
        recorded[0]["patch"].as_array().unwrap().len(),
        2,
        "{}",
        recorded[0]
    );
    assert_eq!(
        recorded[0]["webhooks"][0]["webhook"],
        "labels/labels.hooks.example.com"
    );
    let message = recorded[1]["webhooks"][0]["status"]["message"].as_str().unwrap();
    assert!(message.ends_with(": not on a Monday"), "{message}");
    assert_eq!(
        (&recorded[2]["name"], &recorded[2]["decision"]),
        (&json!("named"), &json!("allow"))
    );

    // The webhooks are gone: nobody is called.
    let again = || replay(&folder, &["--config", "config.yaml", "recordings"]);
    assert_eq!(again(), (json!({"decided": 4, "unknown": 0, "changes": []}), 0));

    // Another label changes what the mutating webhook was asked: its answer is of no use.
    change(&process, "policies/more.yaml", "'first'", "'second'");
    let (said, code) = again();
    assert_eq!(
        (&said["decided"], &said["unknown"], code),
        (&json!(3), &json!(1), 0),
        "{said}"
    );
    let because = said["unknownBecause"][0]["reason"].as_str().unwrap();
    assert!(because.contains("with an object that differs"), "{because}");
    // Of one that is asked about nothing else, it is.
    change(
        &process,
        "policies/more.yaml",
        "value: 'second'",
        "value: 'first'",
    );
    let text = fs::read_to_string(process.file("policies/more.yaml")).unwrap();
    let without_hook = text.replacen(
        &text[text.find("---\n{").unwrap()..text.rfind("---\n{").unwrap()],
        "",
        1,
    );
    fs::write(process.file("policies/more.yaml"), &without_hook).unwrap();
    let (said, code) = again();
    assert_eq!(
        changes(&said),
        [json!({"from": "allow", "to": "allow", "cause": "patch", "count": 1, "allowed": false})],
        "{said:#}"
    );
    assert_eq!((&said["unknown"], code), (&json!(0), 1));

    // A webhook that was not asked, and a policy that is no more.
    fs::write(
        process.file("policies/more.yaml"),
        text.replace("judges", "jurors")
            .replace("name: named", "name: called"),
    )
    .unwrap();
    let (said, _) = again();
    assert_eq!(said["unknown"], 3, "{said:#}");
    let because = said["unknownBecause"].to_string();
    for reason in [
        "the webhook jurors/jurors.hooks.example.com would be called, but no response is recorded",
        "there is no policy or webhook configuration `named` for its endpoint",
    ] {
        assert!(because.contains(reason), "{because}");
    }
    // What a policy decides changes by that policy.
    fs::write(
        process.file("policies/more.yaml"),
        text.replace("!= 'forbidden'", "!= 'p'"),
    )
    .unwrap();
    let (said, _) = again();
    let mut causes: Vec<String> = changes(&said)
        .iter()
        .map(|change| format!("{}->{} {}", change["from"], change["to"], change["cause"]))
        .collect();
    causes.sort();
    assert_eq!(
        causes,
        [
            r#""allow"->"deny" "ValidatingAdmissionPolicy/named""#,
            r#""deny"->"allow" "ValidatingAdmissionPolicy/named""#,
        ],
        "{said:#}"
    );
    // How that came about is told as `admit` tells it.
    for change in said["changes"].as_array().unwrap() {
        let considered = change["example"]["considered"].as_array().unwrap();
        let named = considered.iter().filter_map(Value::as_str);
        let named = named.filter(|line| line.contains("ValidatingAdmissionPolicy/named"));
        assert!(named.count() > 0, "{change:#}");
    }
}

#[test]
fn what_looks_at_something_redacted_is_unknown_and_the_rest_is_decided() {
    let process = Builder::new().manifests(POLICIES).recording(RECORDING).spawn();
    let mut connection = process.connect();
    assert_eq!(
        post(&mut connection, "/validate", &config_map(&json!({"a": "b"})))["allowed"],
        true
    );
    assert_eq!(
        post(&mut connection, "/validate", &config_map(&Value::Null))["allowed"],
        true
    );
    post(&mut connection, "/mutate", &config_map(&json!({"a": "b"})));
    drop(connection);
    let process = end(process);
    let folder = folder(&process);
    let recorded = lines(&process.file("recordings"));
    assert_eq!(recorded[0]["redacted"], json!(["/review/request/object/data"]));
    assert_eq!(recorded[1].get("redacted"), None);
    let by = |expression: &str| {
        let text = POLICIES.replace("object.metadata.name != 'forbidden'", expression);
        fs::write(process.file("policies/more.yaml"), text).unwrap();
        let (said, _) = replay(&folder, &["--config", "config.yaml", "recordings"]);
        let changed = said["changes"].as_array().unwrap().iter();
        let changed: u64 = changed.map(|change| change["count"].as_u64().unwrap()).sum();
        (said["unknown"].as_u64().unwrap(), changed)
    };
    assert_eq!(by("object.metadata.name != 'forbidden'"), (0, 0));
    assert_eq!(by("object.metadata.name == 'forbidden'"), (0, 2));
    // Whether it is there is known.
    assert_eq!(by("has(object.data)"), (0, 1));
    for expression in [
        "!has(object.data) || object.data['a'] == 'b'",
        "!has(object.data) || object.data.all(k, k != 'x')",
        "object != oldObject",
        "object.?data[?'a'].orValue('b') == 'b'",
        "variables.data.orValue({}).size() < 2",
    ] {
        let expression = expression.replace("variables.data", "object.?data");
        assert_eq!(by(&expression), (1, 0), "{expression}");
    }
    // Through a variable, in a match condition, and only in a message.
    let variable = POLICIES.replace(
        "validations: [{expression: \"object.metadata.name != 'forbidden'\", message: \"not this name\"}]",
        "variables: [{name: whole, expression: 'object'}]\n  validations: [{expression: \"variables.whole.?data.orValue({}).size() < 2\"}]",
    );
    let condition = POLICIES.replace(
        "validations:",
        "matchConditions: [{name: c, expression: \"object.?data.orValue({}).size() > 2\"}]\n  validations:",
    );
    let message = POLICIES.replace(
        "message: \"not this name\"",
        "messageExpression: \"string(object.data.size())\"",
    );
    for (text, expected) in [(variable, 1), (condition, 1), (message, 0)] {
        assert_ne!(text, POLICIES);
        fs::write(process.file("policies/more.yaml"), text).unwrap();
        let (said, _) = replay(&folder, &["--config", "config.yaml", "recordings"]);
        assert_eq!(
            (&said["unknown"], &said["changes"]),
            (&json!(expected), &json!([])),
            "{said:#}"
        );
    }
    // A mutation of what is not whole, too.
    fs::write(
        process.file("policies/more.yaml"),
        POLICIES.replace("resources: [pods]", "resources: [configmaps]"),
    )
    .unwrap();
    let (said, _) = replay(&folder, &["--config", "config.yaml", "recordings"]);
    assert_eq!(
        (&said["unknown"], &said["changes"]),
        (&json!(1), &json!([])),
        "{said:#}"
    );
}
