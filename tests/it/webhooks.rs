//! Webhooks behind the gateway, from the API server's request to their calls and back.

mod dispatch;
mod endings;
mod memory;
mod shadow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness;
use crate::harness::pki::Authority;
use crate::harness::reviews::creation_of_pod;
use crate::harness::webhooks::{Review, Webhooks};
use crate::support::client::Connection;
use crate::support::{Builder, Gateway, until};

/// A policy that labels every pod.
const LABELLED: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: labelled}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  reinvocationPolicy: Never
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/metadata/labels/policy', value: 'a'}]"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: labelled}
spec: {policyName: labelled}
"#;

/// Webhooks of an authority of their own, also as `hook.infra.svc`.
fn webhooks() -> harness::webhooks::Builder {
    Webhooks::of(&Authority::new("webhooks"), &["hook.infra.svc"])
}

/// Answers by the path that is asked; elsewhere allows.
fn by_path(answers: &[(&str, &str)]) -> Webhooks {
    let allowing = webhooks().otherwise(|_| Review::allow().into());
    let add = |webhooks: harness::webhooks::Builder, (path, answer): &(&str, &str)| {
        let mut response: Value = serde_json::from_str(answer).unwrap();
        if let Some(patch) = response.get("patch") {
            response["patch"] = json!(STANDARD.encode(patch.to_string()));
            response["patchType"] = json!("JSONPatch");
        }
        webhooks.always(path, Review::response(response))
    };
    answers.iter().fold(allowing, add).start()
}

/// An entry of `webhooks` that leads to `path`, with some fields of its own.
fn entry(webhook: &Webhooks, path: &str, more: Value) -> Value {
    let mut entry = json!({
        "name": format!("{}.hooks.example.com", path.trim_start_matches('/')),
        "clientConfig": webhook.client_config(path),
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    });
    let more: serde_json::Map<String, Value> = serde_json::from_value(more).unwrap();
    entry.as_object_mut().unwrap().extend(more);
    entry
}

/// The manifest of a configuration.
fn configuration(kind: &str, name: &str, webhooks: &[Value]) -> String {
    let manifest = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": webhooks,
    });
    format!("---\n{manifest}\n")
}

fn mutating(name: &str, webhooks: &[Value]) -> String {
    configuration("MutatingWebhookConfiguration", name, webhooks)
}

fn validating(name: &str, webhooks: &[Value]) -> String {
    configuration("ValidatingWebhookConfiguration", name, webhooks)
}

fn gateway(manifests: String) -> Gateway {
    Builder::new().manifests(manifests).start()
}

/// The review of a new pod.
fn pod() -> Value {
    creation_of_pod(
        "ns",
        &json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns", "labels": {"own": "x"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }),
    )
}

fn post(connection: &mut Connection, path: &str, review: &Value) -> Value {
    let head = format!("POST {path} HTTP/1.1\r\nContent-Type: application/json");
    let response = connection.request(&head, review.to_string().as_bytes());
    assert_eq!(response.status, 200, "{}", response.body.escape_ascii());
    response.json()["response"].clone()
}

/// The patch of a reply.
fn patch(response: &Value) -> Value {
    let patch = response["patch"].as_str().unwrap_or_else(|| panic!("{response}"));
    serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap()
}

fn paths(webhook: &Webhooks) -> Vec<String> {
    webhook.calls().into_iter().map(|called| called.path).collect()
}

/// The lines of the decision log, once there are so many.
fn lines(gateway: &Gateway, count: usize) -> Vec<Value> {
    let read = || std::fs::read_to_string(gateway.file("decisions.log")).unwrap();
    until("the lines are written", || read().lines().count() >= count);
    read()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn each_webhook_sees_what_those_before_it_changed_and_the_reply_has_it_all() {
    let webhook = by_path(&[
        (
            "/first",
            r#"{"allowed": true, "patch": [{"op": "add", "path": "/metadata/labels/first", "value": "b"}]}"#,
        ),
        (
            "/second",
            r#"{"allowed": true, "patch": [{"op": "remove", "path": "/metadata/labels/own"}], "warnings": ["mind the gap"]}"#,
        ),
    ]);
    let manifests = LABELLED.to_owned()
        + &mutating("b", &[entry(&webhook, "/second", json!({}))])
        + &mutating("a", &[entry(&webhook, "/first", json!({"timeoutSeconds": 3}))]);
    let gateway = gateway(manifests);
    let response = post(&mut gateway.connect(), "/mutate?timeout=10s", &pod());
    assert_eq!(
        (&response["allowed"], &response["uid"], &response["warnings"]),
        (&json!(true), &json!("0d9f7c9e-1"), &json!(["mind the gap"]))
    );
    assert_eq!(
        patch(&response),
        json!([{"op": "replace", "path": "/metadata/labels", "value": {"policy": "a", "first": "b"}}])
    );
    let asked = webhook.calls();
    let targets: Vec<_> = asked
        .iter()
        .map(|called| format!("{}?{}", called.path, called.query))
        .collect();
    assert_eq!(targets, ["/first?timeout=3s", "/second?timeout=10s"]);
    assert_eq!(
        (
            &asked[0].object()["metadata"]["labels"],
            &asked[1].object()["metadata"]["labels"]
        ),
        (
            &json!({"own": "x", "policy": "a"}),
            &json!({"own": "x", "policy": "a", "first": "b"})
        )
    );
    let uids: Vec<&Value> = asked.iter().map(|called| &called.request()["uid"]).collect();
    assert!(
        uids[0] != uids[1] && !uids.contains(&&json!("0d9f7c9e-1")),
        "{uids:?}"
    );
    let lines = lines(&gateway, 1);
    let reported: Vec<_> = lines[0]["webhooks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reported| {
            (
                &reported["configuration"],
                &reported["webhook"],
                &reported["decision"],
                &reported["changed"],
            )
        })
        .collect();
    assert_eq!(
        reported,
        [
            (
                &json!("a"),
                &json!("first.hooks.example.com"),
                &json!("allow"),
                &json!(["/metadata/labels/first"])
            ),
            (
                &json!("b"),
                &json!("second.hooks.example.com"),
                &json!("allow"),
                &json!(["/metadata/labels/own"])
            ),
        ]
    );
}

#[test]
fn a_webhook_that_wants_to_is_asked_again_after_later_changes() {
    let webhook = by_path(&[(
        "/later",
        r#"{"allowed": true, "patch": [{"op": "add", "path": "/metadata/labels/later", "value": "b"}]}"#,
    )]);
    let gateway = gateway(mutating(
        "a",
        &[
            entry(&webhook, "/again", json!({"reinvocationPolicy": "IfNeeded"})),
            entry(&webhook, "/later", json!({})),
        ],
    ));
    post(&mut gateway.connect(), "/mutate?timeout=10s", &pod());
    assert_eq!(paths(&webhook), ["/again", "/later", "/again"]);
    assert_eq!(webhook.calls()[2].object()["metadata"]["labels"]["later"], "b");
    let rounds: Vec<Value> = lines(&gateway, 1)[0]["webhooks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reported| reported["round"].clone())
        .collect();
    assert_eq!(rounds, [0, 0, 1]);
}

#[test]
fn of_several_refusals_the_first_in_order_is_told_and_all_are_logged() {
    let webhook = by_path(&[
        (
            "/first",
            r#"{"allowed": true, "warnings": ["w"], "auditAnnotations": {"seen": "yes"}}"#,
        ),
        (
            "/second",
            r#"{"allowed": false, "status": {"message": "not here", "code": 418, "reason": "Teapot"}}"#,
        ),
        (
            "/third",
            r#"{"allowed": false, "status": {"message": "nor here"}}"#,
        ),
    ]);
    let hooks = ["/first", "/second", "/third"].map(|path| entry(&webhook, path, json!({})));
    let gateway = gateway(validating("a", &hooks));
    let response = post(&mut gateway.connect(), "/validate?timeout=10s", &pod());
    assert_eq!(response["allowed"], false);
    assert_eq!(
        (
            &response["status"]["code"],
            &response["status"]["reason"],
            &response["status"]["message"]
        ),
        (
            &json!(418),
            &json!("Teapot"),
            &json!(r#"admission webhook "second.hooks.example.com" denied the request: not here"#)
        )
    );
    assert_eq!(response["warnings"], json!(["w"]));
    assert_eq!(
        response["auditAnnotations"]["first.hooks.example.com.seen"], "yes",
        "{response}"
    );
    let line = &lines(&gateway, 1)[0];
    assert_eq!(
        line["cause"],
        json!({"kind": "ValidatingWebhookConfiguration", "name": "a", "rule": 1})
    );
    let decisions: Vec<&Value> = line["webhooks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reported| &reported["decision"])
        .collect();
    assert_eq!(decisions, ["allow", "deny", "deny"]);
    let denied = r#"portcullis_admission_decisions_total{decision="deny",phase="validate"}"#;
    assert_eq!(gateway.metric(denied), 1.0);
}

#[test]
fn what_cannot_be_asked_does_what_its_failure_policy_says() {
    let webhook = by_path(&[]);
    let refusing = json!({"url": "https://127.0.0.1:1/"});
    let hook = |policy: &str| {
        let more = json!({"failurePolicy": policy, "clientConfig": refusing});
        validating("a", &[entry(&webhook, "/gone", more)])
    };
    for (policy, allowed, decision) in [("Fail", false, "error"), ("Ignore", true, "ignored")] {
        let gateway = gateway(hook(policy));
        let response = post(&mut gateway.connect(), "/validate?timeout=10s", &pod());
        assert_eq!(response["allowed"], allowed, "{policy}");
        if !allowed {
            assert_eq!(response["status"]["code"], 500);
            let message = response["status"]["message"].as_str().unwrap();
            assert!(
                message.contains(r#"failed calling webhook "gone.hooks.example.com": "#),
                "{message}"
            );
        }
        assert_eq!(lines(&gateway, 1)[0]["webhooks"][0]["decision"], decision);
    }
}

/// Longer than what a worker reads itself.
#[test]
fn a_large_review_is_asked_about_whole() {
    let webhook = by_path(&[(
        "/label",
        r#"{"allowed": true, "patch": [{"op": "add", "path": "/metadata/labels/b", "value": "c"}]}"#,
    )]);
    let gateway = gateway(mutating("a", &[entry(&webhook, "/label", json!({}))]));
    let mut review = pod();
    review["request"]["object"]["metadata"]["annotations"] = json!({"long": "x".repeat(1 << 20)});
    let response = post(&mut gateway.connect(), "/mutate", &review);
    assert_eq!(
        patch(&response),
        json!([{"op": "add", "path": "/metadata/labels/b", "value": "c"}])
    );
    assert_eq!(webhook.calls()[0].object(), &review["request"]["object"]);
}
