//! AdmissionReviews: the questions that an API server asks, read, and asked of webhooks in turn.

use std::sync::Arc;
use std::time::Duration;

use portcullis_cel::json::{Document, Node};
use portcullis_policy::admission::Reinvocation;
use portcullis_policy::admission::matching::Constraints;
use portcullis_policy::admission::webhook::{
    Call, ClientConfig, SideEffects, Webhook, WebhookReply, WebhookTarget,
};
use portcullis_policy::admission::{
    Denial, FailurePolicy, GroupVersionKind, GroupVersionResource, Phase, Request,
};
use portcullis_policy::api::{AdmissionReview, ReviewVersion, encode_review, verify, verify_decoded};
use portcullis_policy::manifest::{Options, load};
use serde_json::{Value, json};

use crate::harness::{Case, Mismatch, Table};
use crate::validation::source;

pub(crate) const REQUESTS: Table = &[("requestWire", wire), ("requestBody", body)];
pub(crate) const REPLIES: Table = &[("verifyResponse", verified), ("rejectionStatus", rejected)];

// === questions ===

fn wire(case: &Case<'_>) -> Result<(), Mismatch> {
    if case.expect()["error"] == true {
        return no_version(case);
    }
    reads(case, &case.expect()["body"])
}

/// Where the API server would find no version to ask in, there is no such webhook.
fn no_version(case: &Case<'_>) -> Result<(), Mismatch> {
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hooks"},
        "webhooks": [{
            "name": "hook.example.com", "clientConfig": {"url": "https://hook.example.com/"}, "sideEffects": "None",
            "admissionReviewVersions": case.input()["admissionReviewVersions"],
        }],
    });
    let (_, faults) = load(&[source(&[configuration])], &Options::default());
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let is_told = faults
        .iter()
        .any(|fault| fault.contains("admissionReviewVersions"));
    case.same("told", &(is_told, faults.len()), &(true, 1))
}

fn body(case: &Case<'_>) -> Result<(), Mismatch> {
    for version in case.input()["admissionReviewVersions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let version = version.as_str().unwrap();
        let review = json!({
            "apiVersion": format!("admission.k8s.io/{version}"), "kind": "AdmissionReview",
            "request": case.expect()["request"],
        });
        reads(case, &review)?;
    }
    Ok(())
}

/// What is read of a body says again what the body says.
fn reads(case: &Case<'_>, body: &Value) -> Result<(), Mismatch> {
    let document = Document::parse(body.to_string()).unwrap();
    let review = AdmissionReview::decode(&document).map_err(|error| Mismatch::new(error.to_string()))?;
    case.same(
        "version",
        &json!(review.version.api_version()),
        &body["apiVersion"],
    )?;
    let mut expected = body["request"].clone();
    // Text of the request that is empty is left out, the objects that are not there are null.
    let fields = expected.as_object_mut().unwrap();
    for name in ["object", "oldObject", "options"] {
        fields.entry(name).or_insert(Value::Null);
    }
    fields.entry("dryRun").or_insert(Value::Bool(false));
    case.same("request", &shown(&review.request), &expected)?;
    asks(case, &review, &expected)
}

/// What a webhook is asked about it, under the same uid, is the same.
fn asks(case: &Case<'_>, review: &AdmissionReview<'_>, expected: &Value) -> Result<(), Mismatch> {
    let AdmissionReview { version, request } = review;
    let call = Call {
        kind: request.kind.clone().into_owned(),
        resource: request.resource.clone().into_owned(),
        ..call(*version, "hook.example.com")
    };
    let asked: Value = serde_json::from_slice(&encode_review(&call, request, &request.uid)).unwrap();
    let expected =
        json!({"kind": "AdmissionReview", "apiVersion": version.api_version(), "request": expected});
    case.same("question", &asked, &expected)
}

/// A call of a webhook of this name.
fn call(version: ReviewVersion, name: &str) -> Call {
    let webhook = Webhook {
        configuration: "test-webhooks".to_owned(),
        name: name.to_owned(),
        client: ClientConfig {
            target: WebhookTarget::Url("https://hook.example.com".to_owned()),
            ca_bundle: Vec::new(),
        },
        constraints: Constraints::default(),
        match_conditions: Vec::new(),
        failure_policy: FailurePolicy::Fail,
        timeout: Duration::from_secs(10),
        side_effects: Some(SideEffects::None),
        version: Some(version),
        reinvocation: Reinvocation::Never,
    };
    Call {
        webhook: Arc::new(webhook),
        version,
        kind: GroupVersionKind::default(),
        resource: GroupVersionResource::default(),
        object: None,
    }
}

fn shown(request: &Request<'_>) -> Value {
    let mut shown = json!({
        "uid": request.uid,
        "kind": kind(&request.kind),
        "resource": resource(&request.resource),
        "requestKind": kind(&request.request_kind),
        "requestResource": resource(&request.request_resource),
        "operation": request.operation.as_str(),
        "object": object(request.object),
        "oldObject": object(request.old_object),
        "options": object(request.options),
        "dryRun": request.dry_run,
        "userInfo": {},
    });
    let mut put = |parent: Option<&str>, name: &str, value: Value| {
        let parent = match parent {
            Some(parent) => &mut shown[parent],
            None => &mut shown,
        };
        if value != "" && value != json!([]) && value != json!({}) {
            parent[name] = value;
        }
    };
    put(None, "name", json!(request.name));
    put(None, "namespace", json!(request.namespace));
    put(None, "subResource", json!(request.subresource));
    put(None, "requestSubResource", json!(request.subresource));
    let user = &request.user;
    let extra: serde_json::Map<String, Value> = user
        .extra
        .iter()
        .map(|(key, values)| (key.to_string(), json!(values)))
        .collect();
    put(Some("userInfo"), "username", json!(user.name));
    put(Some("userInfo"), "uid", json!(user.uid));
    put(Some("userInfo"), "groups", json!(user.groups));
    put(Some("userInfo"), "extra", Value::Object(extra));
    shown
}

fn kind(kind: &GroupVersionKind<'_>) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

fn resource(resource: &GroupVersionResource<'_>) -> Value {
    json!({"group": resource.group, "version": resource.version, "resource": resource.resource})
}

fn object(object: Option<Node<'_>>) -> Value {
    object.map_or(Value::Null, |object| serde_json::from_str(object.raw()).unwrap())
}

// === replies ===

fn verified(case: &Case<'_>) -> Result<(), Mismatch> {
    let (input, expect) = (case.input(), case.expect());
    let version = match input["requestVersion"].as_str().unwrap() {
        "v1" => ReviewVersion::V1,
        "v1beta1" => ReviewVersion::V1beta1,
        other => return Err(Mismatch::new(format!("unknown version {other}"))),
    };
    let phase = if input["mutating"] == true {
        Phase::Mutate
    } else {
        Phase::Validate
    };
    let uid = input["requestUID"].as_str().unwrap();
    // Upstream's function gets what was decoded before; `dispatchResponse` has the decoder too.
    let review = Document::parse(input["review"].to_string()).unwrap();
    let reply = match verify_decoded(&call(version, "foo"), uid, phase, review.root()) {
        Ok(reply) => reply,
        Err(failure) => {
            let part = expect["errorContains"].as_str().unwrap_or_default();
            let is_told = failure.to_string().contains(part);
            return case.same("an error", &(true, is_told), &(expect["error"] == true, true));
        }
    };
    believed(case, &reply)
}

fn believed(case: &Case<'_>, reply: &WebhookReply) -> Result<(), Mismatch> {
    let text = |bytes: &std::sync::Arc<[u8]>| String::from_utf8(bytes.to_vec()).unwrap();
    let given = |value: Value, is_absent: bool| if is_absent { Value::Null } else { value };
    let shown = json!({
        "allowed": reply.denial.is_none(),
        "patch": reply.patch.as_ref().map(text),
        "patchType": given(json!(reply.patch_type), reply.patch_type.is_empty()),
        "auditAnnotations": given(json!(reply.audit_annotations), reply.audit_annotations.is_empty()),
        "result": null,
    });
    let mut expected = case.expect().clone();
    // The Status of a reply is kept as the refusal that it becomes.
    let result = expected["result"].take();
    if let Some(denial) = &reply.denial {
        let message = result["message"].as_str().unwrap_or_default();
        case.same("message kept", &denial.message.contains(message), &true)?;
        if let Some(code) = result["code"].as_i64().filter(|code| *code >= 400) {
            case.same("code", &i64::from(denial.code), &code)?;
        }
    }
    case.same("reply", &shown, &expected)
}

/// The refusal that a Status becomes in the mouth of a webhook.
fn rejected(case: &Case<'_>) -> Result<(), Mismatch> {
    let name = case.input()["webhookName"].as_str().unwrap();
    let body = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
                      "response": {"uid": "u", "allowed": false, "status": case.input()["result"]}});
    let body = body.to_string();
    let reply = verify(
        &call(ReviewVersion::V1, name),
        "u",
        Phase::Validate,
        body.as_bytes(),
    );
    let denial = reply
        .map_err(|failure| Mismatch::new(failure.to_string()))?
        .denial;
    let Denial {
        status,
        code,
        message,
        ..
    } = denial.ok_or_else(|| Mismatch::new("allowed"))?;
    let shown = json!({"status": status, "code": code, "message": message});
    case.same("status", &shown, case.expect())
}
