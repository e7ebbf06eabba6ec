//! Webhooks behind the gateway, from the API server's request to their calls and back.

mod endings;
mod shadow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::client::Connection;
use crate::support::webhook::{Asked, Webhook};
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

/// Answers by the path that is asked.
fn by_path(answers: &'static [(&'static str, &'static str)]) -> Webhook {
    Webhook::start(move |asked: &Asked| {
        let answer = answers.iter().find(|(path, _)| *path == asked.at());
        serde_json::from_str(answer.map_or(r#"{"allowed": true}"#, |(_, answer)| answer)).unwrap()
    })
}

/// An entry of `webhooks` that leads to `path`, with some fields of its own.
fn entry(webhook: &Webhook, path: &str, more: Value) -> Value {
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
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "0d9f7c9e-1", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "p", "namespace": "ns", "operation": "CREATE", "userInfo": {"username": "jane"},
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns", "labels": {"own": "x"}},
                   "spec": {"containers": [{"name": "c", "image": "i"}]}},
        "oldObject": null, "dryRun": false,
    }})
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

fn paths(webhook: &Webhook) -> Vec<String> {
    webhook
        .asked()
        .iter()
        .map(|asked| asked.at().to_owned())
        .collect()
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
    let asked = webhook.asked();
    let queries: Vec<&str> = asked.iter().map(|asked| asked.path.as_str()).collect();
    assert_eq!(queries, ["/first?timeout=3s", "/second?timeout=10s"]);
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
    let uids: Vec<&Value> = asked
        .iter()
        .map(|asked| &asked.review["request"]["uid"])
        .collect();
    assert!(
        uids[0] != uids[1] && !uids.contains(&&json!("0d9f7c9e-1")),
        "{uids:?}"
    );
    let lines = lines(&gateway, 1);
    let told: Vec<_> = lines[0]["webhooks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|told| {
            (
                &told["configuration"],
                &told["webhook"],
                &told["decision"],
                &told["changed"],
            )
        })
        .collect();
    assert_eq!(
        told,
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
    assert_eq!(webhook.asked()[2].object()["metadata"]["labels"]["later"], "b");
    let rounds: Vec<Value> = lines(&gateway, 1)[0]["webhooks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|told| told["round"].clone())
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
        .map(|told| &told["decision"])
        .collect();
    assert_eq!(decisions, ["allow", "deny", "deny"]);
    let denied = r#"portcullis_admission_decisions_total{decision="deny",phase="validate"}"#;
    assert_eq!(gateway.metric(denied), 1.0);
}

#[test]
fn a_name_in_the_path_is_the_only_configuration_asked() {
    let webhook = by_path(&[]);
    let manifests = mutating("one", &[entry(&webhook, "/one", json!({}))])
        + &mutating("other", &[entry(&webhook, "/other", json!({}))]);
    let gateway = gateway(manifests);
    let mut connection = gateway.connect();
    assert_eq!(post(&mut connection, "/mutate/other", &pod())["allowed"], true);
    assert_eq!(paths(&webhook), ["/other"]);
    for path in ["/mutate/nobody", "/validate/other"] {
        let head = format!("POST {path} HTTP/1.1\r\nContent-Type: application/json");
        let response = connection.request(&head, pod().to_string().as_bytes());
        assert_eq!(response.status, 404, "{path}");
    }
}

#[test]
fn a_dry_run_is_refused_where_a_webhook_might_act_on_it() {
    let webhook = by_path(&[]);
    let unknown = entry(
        &webhook,
        "/acts",
        json!({"sideEffects": "Unknown", "failurePolicy": "Ignore"}),
    );
    let manifest = mutating("a", &[unknown]).replace(
        "admissionregistration.k8s.io/v1",
        "admissionregistration.k8s.io/v1beta1",
    );
    let gateway = gateway(manifest);
    let mut review = pod();
    review["request"]["dryRun"] = json!(true);
    let response = post(&mut gateway.connect(), "/mutate", &review);
    assert_eq!(
        (&response["allowed"], &response["status"]["code"]),
        (&json!(false), &json!(400))
    );
    assert!(
        response["status"]["message"]
            .as_str()
            .unwrap()
            .contains("does not support dry run"),
        "{response}"
    );
    assert!(webhook.asked().is_empty());
}

#[test]
fn a_webhook_that_is_added_is_asked_from_then_on() {
    let webhook = by_path(&[("/no", r#"{"allowed": false}"#)]);
    let gateway = gateway(String::new());
    let mut connection = gateway.connect();
    assert_eq!(post(&mut connection, "/validate", &pod())["allowed"], true);
    let added = validating("a", &[entry(&webhook, "/no", json!({}))]);
    gateway.reload(&[("policies/more.yaml", added.as_bytes())]);
    assert_eq!(post(&mut connection, "/validate", &pod())["allowed"], false);
    gateway.reload(&[("policies/more.yaml", b"")]);
    assert_eq!(post(&mut connection, "/validate", &pod())["allowed"], true);
    assert_eq!(webhook.asked().len(), 1);
}

#[test]
fn what_cannot_be_asked_does_what_its_failure_policy_says() {
    let webhook = Webhook::start(|_| json!({}));
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
    assert_eq!(webhook.asked()[0].object(), &review["request"]["object"]);
}

#[test]
fn hooks_of_the_past_are_asked_in_their_version_at_their_service() {
    let webhook = Webhook::start(|asked| {
        let is_pod = asked.review["spec"]["kind"]["kind"] == "Pod";
        json!({"allowed": !is_pod, "status": {"status": "Failure", "message": "no pods in 1.7", "code": 403}})
    });
    let manifest = json!({
        "apiVersion": "admissionregistration.k8s.io/v1alpha1", "kind": "ExternalAdmissionHookConfiguration",
        "metadata": {"name": "old"},
        "externalAdmissionHooks": [{
            "name": "old.hooks.example.com",
            "clientConfig": {"service": {"namespace": "infra", "name": "hook"}, "caBundle": webhook.ca_bundle()},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "failurePolicy": "Fail",
        }],
    });
    let gateway = Builder::new()
        .manifests(manifest.to_string())
        .upstreams(format!(
            "{{addresses: {{'hook.infra.svc:443': '{}'}}}}",
            webhook.address()
        ))
        .start();
    let response = post(&mut gateway.connect(), "/validate?timeout=10s", &pod());
    assert_eq!(response["allowed"], false);
    let message = response["status"]["message"].as_str().unwrap();
    assert!(message.ends_with("no pods in 1.7"), "{response}");
    let asked = &webhook.asked()[0];
    assert_eq!(
        (
            asked.at(),
            &asked.review["apiVersion"],
            &asked.review["spec"]["name"]
        ),
        ("/", &json!("admission.k8s.io/v1alpha1"), &json!("p"))
    );
}
