//! Reviews, as an API server sends them.

#![allow(dead_code, reason = "each test program uses its own part of the harness")]

use serde_json::{Value, json};

/// The AdmissionReview of a request, in v1.
pub(crate) fn admission(request: &Value) -> Value {
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
}

/// The creation of a pod called `p` in `namespace` by `jane`.
pub(crate) fn creation_of_pod(namespace: &str, pod: &Value) -> Value {
    admission(&json!({
        "uid": "0d9f7c9e-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "p", "namespace": namespace, "operation": "CREATE",
        "userInfo": {"username": "jane"},
        "object": pod, "oldObject": null, "dryRun": false,
    }))
}

/// The SubjectAccessReview of this spec, in v1.
pub(crate) fn authorization(spec: &Value) -> Value {
    json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": spec})
}

/// `value` with the fields of `more` in place of its own.
pub(crate) fn with(mut value: Value, more: &Value) -> Value {
    for (field, of_more) in more.as_object().into_iter().flatten() {
        value[field] = of_more.clone();
    }
    value
}
