//! AdmissionReviews over the wire.

mod costly;

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::h2::{Connection, block_on};
use crate::support::client::Response;
use crate::support::{Builder, Gateway, JANE_GETS, client, request, until, v1};

/// Pods need an owner; who has none in `trial` is warned and noted.
const POLICIES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: owner}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations:
  - {expression: "has(object.metadata.labels) && 'owner' in object.metadata.labels", message: name an owner, reason: Forbidden}
  auditAnnotations: [{key: owner-of-the-pod, valueExpression: "string(object.metadata.?labels.?owner.orValue('nobody'))"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: owner}
spec: {policyName: owner, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {stage: live}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: owner-trial}
spec: {policyName: owner, validationActions: [Warn, Audit], matchResources: {namespaceSelector: {matchLabels: {stage: trial}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: unbound}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "false"}]
---
{apiVersion: v1, kind: Namespace, metadata: {name: live, labels: {stage: live}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: trial, labels: {stage: trial}}}
"#;

fn gateway() -> Gateway {
    Builder::new().manifests(POLICIES).start()
}

/// The review of a pod that is made in `namespace`.
fn review(api_version: &str, namespace: &str, labels: &Value) -> String {
    let member = if api_version.ends_with("v1alpha1") {
        "spec"
    } else {
        "request"
    };
    json!({"kind": "AdmissionReview", "apiVersion": api_version, member: {
        "uid": "0d9f7c9e-1", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "p", "namespace": namespace, "operation": "CREATE",
        "userInfo": {"username": "jane", "uid": "u-1", "groups": ["devs"]},
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace, "labels": labels},
                   "spec": {"containers": [{"name": "secret-name", "image": "i"}]}},
    }})
    .to_string()
}

fn post(connection: &mut client::Connection, path: &str, body: &str) -> Response {
    let head = format!("POST {path} HTTP/1.1\r\nContent-Type: application/json");
    connection.request(&head, body.as_bytes())
}

#[test]
fn a_reply_is_in_the_version_asked_and_has_its_uid() {
    let gateway = gateway();
    let mut connection = gateway.connect();
    let message = "ValidatingAdmissionPolicy 'owner' with binding 'owner' denied request: name an owner";
    for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
        let response = post(
            &mut connection,
            "/validate?timeout=10s",
            &review(version, "live", &json!({})),
        );
        assert_eq!(response.status, 200);
        assert_eq!(
            response.json(),
            json!({"kind": "AdmissionReview", "apiVersion": version, "response": {
                "uid": "0d9f7c9e-1", "allowed": false,
                "status": {"metadata": {}, "status": "Failure", "message": message, "reason": "Forbidden", "code": 403,
                    "details": {"name": "p", "kind": "pods", "causes": [{"message": message}]}},
                "auditAnnotations": {"owner.owner-of-the-pod": "nobody"},
            }})
        );
    }
    let old = "admission.k8s.io/v1alpha1";
    let reply = post(&mut connection, "/validate", &review(old, "live", &json!({}))).json();
    assert_eq!(
        (&reply["apiVersion"], &reply["status"]["allowed"]),
        (&json!(old), &json!(false))
    );
    let reply = post(
        &mut connection,
        "/validate",
        &review(old, "live", &json!({"owner": "a"})),
    )
    .json();
    assert_eq!(
        reply,
        json!({"kind": "AdmissionReview", "apiVersion": old, "status": {"allowed": true}})
    );
}

/// A registration with `failurePolicy: Ignore` would let pass what is answered with 400.
#[test]
fn what_an_api_server_lets_through_is_judged_and_400_is_for_what_go_refuses() {
    let gateway = gateway();
    let sent = |image: &[u8], labels: &Value| {
        let review = review("admission.k8s.io/v1", "live", labels);
        let (before, after) = review.split_once("\"i\"").unwrap();
        let body = [before.as_bytes(), image, after.as_bytes()].concat();
        let head = "POST /validate HTTP/1.1\r\nContent-Type: application/json";
        gateway.connect().request(head, &body)
    };
    let deep = |pairs: usize| format!("{}1{}", r#"{"a":["#.repeat(pairs), "]}".repeat(pairs)).into_bytes();
    for image in [b"\"\xff\xe2\x82\"".to_vec(), deep(100), deep(4_990)] {
        let denied = sent(&image, &json!({}));
        assert_eq!(denied.status, 200);
        assert_eq!(denied.json()["response"]["allowed"], false);
        assert_eq!(
            sent(&image, &json!({"owner": "a"})).json()["response"]["allowed"],
            true
        );
    }
    for image in [b"\xff".to_vec(), b"\"\\\xff\"".to_vec(), deep(5_001)] {
        assert_eq!(sent(&image, &json!({})).status, 400);
    }
}

#[test]
fn warnings_and_failures_for_the_audit_log_come_with_what_is_allowed() {
    let gateway = gateway();
    let body = review("admission.k8s.io/v1", "trial", &json!({}));
    let reply = post(&mut gateway.connect(), "/validate", &body).json();
    let response = &reply["response"];
    assert_eq!(response["allowed"], true);
    assert_eq!(
        response["warnings"],
        json!([
            "Validation failed for ValidatingAdmissionPolicy 'owner' with binding 'owner-trial': name an owner"
        ])
    );
    let failures = &response["auditAnnotations"]["validation.policy.admission.k8s.io.validation_failure"];
    assert!(failures.as_str().unwrap().contains("owner-trial"), "{reply}");
}

#[test]
fn a_name_in_the_path_is_the_only_policy_asked() {
    let gateway = gateway();
    let mut connection = gateway.connect();
    let body = review("admission.k8s.io/v1", "live", &json!({}));
    let mut allowed = |path: &str| {
        let response = post(&mut connection, path, &body);
        assert_eq!(response.status, 200, "{path}");
        response.json()["response"]["allowed"].clone()
    };
    assert_eq!(allowed("/validate/owner?timeout=10s"), false);
    assert_eq!(allowed("/validate/unbound"), true);
    for path in [
        "/validate/nobody",
        "/validate/",
        "/validate/owner/x",
        "/mutate/owner",
    ] {
        let response = post(&mut connection, path, &body);
        assert_eq!(
            (response.status, &response.json()["reason"]),
            (404, &json!("NotFound")),
            "{path}"
        );
    }
}

#[test]
fn what_is_not_a_review_or_comes_from_the_wrong_caller_gets_a_status() {
    let gateway = gateway();
    let mut connection = gateway.connect();
    let valid = review("admission.k8s.io/v1", "live", &json!({}));
    for (line, body, code) in [
        ("POST /validate", "{", 400),
        ("POST /validate", v1(JANE_GETS).as_str(), 400),
        ("POST /mutate", &valid.replace("k8s.io/v1", "k8s.io/v3"), 400),
        ("POST /validate", &valid.replace("CREATE", "TOUCH"), 400),
        ("POST /validate?timeout=x", &valid, 400),
        ("POST /authorize", &valid, 400),
        ("GET /validate", "", 405),
        ("PUT /mutate/owner", &valid, 405),
    ] {
        let head = format!("{line} HTTP/1.1\r\nContent-Type: application/json");
        let response = connection.request(&head, body.as_bytes());
        assert_eq!(
            (response.status, &response.json()["kind"]),
            (code, &json!("Status")),
            "{line} {body}"
        );
    }
    let mut stranger = gateway.stranger().connect(gateway.addresses.server);
    for (token, code) in [("right-token", 403), ("admission-token", 200), ("wrong", 401)] {
        let head = format!("/validate HTTP/1.1\r\nAuthorization: Bearer {token}\r\nX-Rest: of");
        assert_eq!(post(&mut stranger, &head, &valid).status, code, "{token}");
    }
}

#[test]
fn a_decision_is_counted_once_and_has_a_line_without_the_object() {
    let gateway = gateway();
    let mut connection = gateway.connect();
    post(
        &mut connection,
        "/validate",
        &review("admission.k8s.io/v1", "live", &json!({})),
    );
    post(
        &mut connection,
        "/mutate",
        &review("admission.k8s.io/v1", "live", &json!({})),
    );
    for (series, value) in [
        (
            r#"portcullis_admission_decisions_total{decision="deny",phase="validate"}"#,
            1.0,
        ),
        (
            r#"portcullis_admission_decisions_total{decision="allow",phase="mutate"}"#,
            1.0,
        ),
        (
            r#"portcullis_policy_evaluations_total{kind="ValidatingAdmissionPolicy",name="owner",result="match"}"#,
            1.0,
        ),
        (
            r#"portcullis_policy_evaluations_total{kind="ValidatingAdmissionPolicy",name="owner",result="error"}"#,
            0.0,
        ),
        (
            r#"portcullis_decision_duration_seconds_count{endpoint="validate"}"#,
            1.0,
        ),
        (
            r#"portcullis_http_requests_total{code="200",endpoint="mutate"}"#,
            1.0,
        ),
        (r#"portcullis_in_flight_requests{endpoint="validate"}"#, 0.0),
    ] {
        assert_eq!(gateway.metric(series), value, "{series}");
    }
    let cost =
        gateway.metric(r#"portcullis_policy_cel_cost_total{kind="ValidatingAdmissionPolicy",name="owner"}"#);
    assert!(cost > 0.0 && cost < 1000.0, "{cost}");
    let read = || std::fs::read_to_string(gateway.file("decisions.log")).unwrap();
    until("the lines are written", || read().lines().count() == 2);
    assert!(!read().contains("secret-name"));
    let lines = read();
    let mut lines = lines.lines();
    let line = lines.find(|line| line.contains(r#""phase":"validate""#));
    let line: Value = serde_json::from_str(line.unwrap()).unwrap();
    for (name, value) in [
        ("cluster", json!("default")),
        ("endpoint", json!("validate")),
        ("phase", json!("validate")),
        ("uid", json!("0d9f7c9e-1")),
        ("user", json!("jane")),
        ("groups", json!(["devs"])),
        (
            "attributes",
            json!({"operation": "CREATE", "namespace": "live", "version": "v1", "resource": "pods", "name": "p", "kind": "Pod"}),
        ),
        ("decision", json!("deny")),
        (
            "cause",
            json!({"kind": "ValidatingAdmissionPolicy", "name": "owner", "rule": 0}),
        ),
        ("shadow", json!([])),
    ] {
        assert_eq!(line[name], value, "{name} of {line}");
    }
}

#[test]
fn the_gateway_s_own_kinds_are_judged_over_the_wire() {
    let gateway = gateway();
    let review = |effect: &str, verbs: &[&str]| {
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "uid": "u", "kind": {"group": "portcullis.dev", "version": "v1alpha1", "kind": "AuthorizationPolicy"},
            "resource": {"group": "portcullis.dev", "version": "v1alpha1", "resource": "authorizationpolicies"},
            "name": "p", "operation": "CREATE", "userInfo": {"username": "jane"},
            "object": {"apiVersion": "portcullis.dev/v1alpha1", "kind": "AuthorizationPolicy", "metadata": {"name": "p"}, "spec": {
                "effect": effect, "subjects": [{"kind": "User", "name": "jane"}],
                "resourceRules": [{"verbs": verbs, "apiGroups": [""], "resources": ["pods"], "namespaces": [""]}],
            }},
        }})
        .to_string()
    };
    let mut connection = gateway.connect();
    let faulty = post(&mut connection, "/validate", &review("Permit", &["get"])).json();
    assert_eq!(faulty["response"]["allowed"], false);
    let message = faulty["response"]["status"]["message"].as_str().unwrap();
    assert!(message.contains("spec.effect: Unsupported value"), "{message}");
    let warned = post(&mut connection, "/validate", &review("Allow", &["list"])).json();
    assert_eq!(warned["response"]["allowed"], true);
    let warning = warned["response"]["warnings"][0].as_str().unwrap();
    assert!(warning.contains("in all namespaces"), "{warning}");
}

#[test]
fn an_excused_denial_is_in_the_reply_the_log_and_the_metrics() {
    let exception = "---
apiVersion: portcullis.dev/v1alpha1
kind: AdmissionException
metadata: {name: legacy}
spec:
  policies: [owner]
  match:
    namespaceSelector: {matchLabels: {stage: live}}
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  notAfter: 2999-01-01T00:00:00Z
  reason: SEC-1
";
    let gateway = Builder::new().manifests(format!("{POLICIES}{exception}")).start();
    let body = review("admission.k8s.io/v1", "live", &json!({}));
    let reply = post(&mut gateway.connect(), "/validate", &body).json();
    assert_eq!(reply["response"]["allowed"], true, "{reply}");
    let noted = reply["response"]["auditAnnotations"]["exceptions.portcullis.dev"]
        .as_str()
        .unwrap();
    let expected = json!([{"name": "legacy", "policy": "owner", "reason": "SEC-1"}]);
    assert_eq!(serde_json::from_str::<Value>(noted).unwrap(), expected);
    let read = || std::fs::read_to_string(gateway.file("decisions.log")).unwrap();
    until("the line is written", || read().lines().count() == 1);
    let line: Value = serde_json::from_str(&read()).unwrap();
    assert_eq!(line["exceptions"], json!([{"name": "legacy", "policy": "owner"}]));
    let series = r#"portcullis_policy_expiration_timestamp_seconds{kind="AdmissionException",name="legacy"}"#;
    assert_eq!(gateway.metric(series), 32_472_144_000.0);
}
