//! Resources that are nowhere stored: kube-apiserver from 1.37 on shows them to no webhook.

use crate::binaries;
use crate::harness::eventually;
use crate::harness::pki::Authority;
use crate::harness::webhooks::{Review, Webhooks};
use crate::scenario;
use serde_json::{Value, json};

const NAMESPACE: &str = "excluded";

/// One of each, which admin may create.
fn reviews() -> Vec<(&'static str, Value)> {
    let attributes = json!({"verb": "get", "resource": "pods", "namespace": NAMESPACE});
    let access = json!({"resourceAttributes": attributes});
    let of_user = json!({"user": "jane", "resourceAttributes": attributes});
    let (authentication, authorization) = ("authentication.k8s.io", "authorization.k8s.io");
    let review = |group: &str, kind: &str, spec: Value| json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec});
    let mut local = review(authorization, "LocalSubjectAccessReview", of_user.clone());
    local["metadata"] = json!({"namespace": NAMESPACE});
    vec![
        (
            "authentication.k8s.io/v1/tokenreviews",
            review(authentication, "TokenReview", json!({"token": "t"})),
        ),
        (
            "authentication.k8s.io/v1/selfsubjectreviews",
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
        ),
        (
            "authorization.k8s.io/v1/subjectaccessreviews",
            review(authorization, "SubjectAccessReview", of_user),
        ),
        (
            "authorization.k8s.io/v1/selfsubjectaccessreviews",
            review(authorization, "SelfSubjectAccessReview", access),
        ),
        (
            "authorization.k8s.io/v1/selfsubjectrulesreviews",
            review(
                authorization,
                "SelfSubjectRulesReview",
                json!({"namespace": NAMESPACE}),
            ),
        ),
        (
            "authorization.k8s.io/v1/namespaces/excluded/localsubjectaccessreviews",
            local,
        ),
    ]
}

pub(crate) fn token_and_access_reviews_come_to_no_webhook() {
    if binaries::since(1, 37).is_none() {
        return;
    }
    let Some(servers) = scenario::shared() else { return };
    let webhooks = Webhooks::of(&Authority::new("excluded"), &[])
        .always("/deny", Review::deny(403, "nothing passes"))
        .start();
    servers.cluster.create_namespace(NAMESPACE);
    let rule = |groups: Value, resources: Value| json!({"operations": ["*"], "apiGroups": groups, "apiVersions": ["*"], "resources": resources});
    let registration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "excluded"},
        "webhooks": [{
            "name": "excluded.portcullis.dev",
            "clientConfig": webhooks.client_config("/deny"),
            "rules": [
                rule(json!(["authentication.k8s.io", "authorization.k8s.io"]), json!(["*"])),
                rule(json!([""]), json!(["configmaps"])),
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }],
    });
    let collection = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    servers.cluster.create(collection, &registration);
    // It is in force, as what is stored shows.
    let admin = servers.cluster.admin();
    let stored = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "c-"}});
    let config_maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let is_refused = || admin.post(&config_maps, &stored).unwrap().status == 403;
    assert!(eventually(is_refused), "{}", servers.cluster.tails());

    for (path, review) in reviews() {
        let answered = admin.post(&format!("/apis/{path}"), &review).unwrap();
        assert_eq!(answered.status, 201, "{path}: {}", answered.text());
    }
    let kinds = webhooks.calls().into_iter();
    let kinds: Vec<Value> = kinds
        .map(|call| call.body["request"]["kind"]["kind"].clone())
        .collect();
    assert!(kinds.iter().all(|kind| kind == "ConfigMap"), "{kinds:?}");
}
