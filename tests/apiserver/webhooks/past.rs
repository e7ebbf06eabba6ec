//! A webhook of Kubernetes 1.7, called with `v1alpha1` reviews.

use super::servers::{self, BEHIND};
use crate::harness::webhooks::{Builder, Review, Webhooks};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Where such a webhook is: it has a service, no URL.
pub(super) const HOST: &str = "old.infra.svc:443";

/// It judges the objects that name it.
pub(super) fn serve(webhooks: Builder) -> Builder {
    webhooks.on("/", |called| match called.request()["name"].as_str() {
        Some("unwanted-of-old") => {
            let status =
                json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "not in 1.7"});
            Review::response(json!({"allowed": false, "status": status})).into()
        }
        _ => Review::allow().into(),
    })
}

pub(super) fn configuration(webhooks: &Webhooks) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1alpha1",
        "kind": "ExternalAdmissionHookConfiguration",
        "metadata": {"name": "of-old"},
        "externalAdmissionHooks": [{
            "name": "old.example.com",
            "clientConfig": {
                "service": {"namespace": "infra", "name": "old"},
                "caBundle": STANDARD.encode(webhooks.authority()),
            },
            // Of what the other webhooks are not asked about: nobody said whether this one
            // takes dry runs, and so it takes none.
            "rules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"],
            }],
            "failurePolicy": "Fail",
        }],
    })
}

pub(crate) fn a_webhook_of_kubernetes_1_7_is_asked_in_v1alpha1() {
    let Some(servers) = servers::shared() else { return };
    let admin = servers.cluster.admin();
    let post = |name: &str| {
        let object =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"k": "dg=="}});
        admin
            .post(&format!("/api/v1/namespaces/{BEHIND}/secrets"), &object)
            .unwrap()
    };
    let wanted = post("wanted-of-old");
    assert_eq!(wanted.status, 201, "{}", wanted.text());
    let unwanted = post("unwanted-of-old");
    assert_eq!(unwanted.status, 403, "{}", unwanted.text());
    assert_eq!(
        unwanted.json()["message"],
        "admission webhook \"gateway.portcullis.dev\" denied the request: not in 1.7",
        "told as the webhook put it"
    );
    let calls = servers.webhooks.calls_at("/");
    let call = calls
        .iter()
        .find(|call| call.request()["name"] == "wanted-of-old")
        .unwrap();
    assert_eq!(call.body["apiVersion"], "admission.k8s.io/v1alpha1");
    assert_eq!(call.body["status"], json!({"allowed": false}));
    assert_eq!(call.tls.server_name.as_deref(), Some("old.infra.svc"));
    let spec = call.body["spec"].as_object().unwrap();
    let mut fields: Vec<&str> = spec.keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            "kind",
            "name",
            "namespace",
            "object",
            "oldObject",
            "operation",
            "resource",
            "userInfo"
        ]
    );
    assert_eq!(spec["object"]["data"], json!({"k": "dg=="}));
}
