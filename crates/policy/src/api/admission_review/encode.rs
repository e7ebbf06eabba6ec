//! Writes the AdmissionReview for a webhook behind the gateway, as the API server would
//! (`CreateV1AdmissionReview` and `CreateV1beta1AdmissionReview` of
//! `apiserver/pkg/admission/plugin/webhook/request/admissionreview.go`; `admissionReviewSpec` of
//! `plugin/pkg/admission/webhook` of Kubernetes 1.7).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::ReviewVersion;
use crate::admission::webhook::Call;
use crate::admission::{Denial, GroupVersionKind, GroupVersionResource, Outcome, Request, StatusDetails};
use crate::model::{StatusReason, User};
use portcullis_cel::json::{Node, ObjectWriter, write_string};

/// The usual size of a review without its objects, in bytes.
const ENVELOPE_BYTES: usize = 1024;

/// Encodes the AdmissionReview that asks the webhook of `call` about `request`. The reply has to
/// repeat `uid`.
///
/// Objects are copied byte for byte as they were received. The kind and resource are those that the
/// webhook's rules match; `requestKind` and `requestResource` are those of the user's request.
/// `v1alpha1` has no fields for the latter, the uid, the options and `dryRun`.
#[must_use]
pub fn encode_review(call: &Call, request: &Request<'_>, uid: &str) -> Vec<u8> {
    let object = call
        .object
        .as_ref()
        .map(|object| object.root())
        .or(request.object);
    let objects = [object, request.old_object, request.options];
    let length: usize = objects.iter().flatten().map(|node| node.raw().len()).sum();
    let mut out = String::with_capacity(ENVELOPE_BYTES + length);
    ObjectWriter::write(&mut out, |review| {
        review.text("kind", "AdmissionReview");
        review.text("apiVersion", call.version.api_version());
        match call.version {
            ReviewVersion::V1 | ReviewVersion::V1beta1 => {
                review.object("request", |fields| {
                    write_request(fields, call, request, uid, object)
                });
            }
            ReviewVersion::V1alpha1 => {
                review.object("spec", |fields| write_spec(fields, call, request, object));
                review.object("status", |status| status.flag("allowed", false));
            }
        }
    });
    request.restored(out)
}

// Fields are in the order of the Go types.

fn write_request(
    fields: &mut ObjectWriter<'_>,
    call: &Call,
    request: &Request<'_>,
    uid: &str,
    object: Option<Node<'_>>,
) {
    fields.text("uid", uid);
    write_kind(fields, "kind", &call.kind);
    write_resource(fields, "resource", &call.resource);
    fields.text_if_any("subResource", &request.subresource);
    write_kind(fields, "requestKind", &request.request_kind);
    write_resource(fields, "requestResource", &request.request_resource);
    fields.text_if_any("requestSubResource", &request.subresource);
    fields.text_if_any("name", &request.name);
    fields.text_if_any("namespace", &request.namespace);
    fields.text("operation", request.operation.as_str());
    write_user(fields, &request.user);
    fields.json("object", as_received(object));
    fields.json("oldObject", as_received(request.old_object));
    fields.flag("dryRun", request.dry_run);
    fields.json("options", as_received(request.options));
}

fn write_spec(fields: &mut ObjectWriter<'_>, call: &Call, request: &Request<'_>, object: Option<Node<'_>>) {
    write_kind(fields, "kind", &call.kind);
    fields.json("object", as_received(object));
    fields.json("oldObject", as_received(request.old_object));
    fields.text("operation", request.operation.as_str());
    fields.text_if_any("name", &request.name);
    fields.text_if_any("namespace", &request.namespace);
    write_resource(fields, "resource", &call.resource);
    fields.text_if_any("subResource", &request.subresource);
    write_user(fields, &request.user);
}

fn write_user(fields: &mut ObjectWriter<'_>, user: &User<'_>) {
    fields.object("userInfo", |info| {
        info.text_if_any("username", &user.name);
        info.text_if_any("uid", &user.uid);
        info.texts_if_any("groups", &user.groups);
        if !user.extra.is_empty() {
            info.object("extra", |extra| {
                for (key, values) in &user.extra {
                    extra.texts(key, values);
                }
            });
        }
    });
}

fn write_kind(fields: &mut ObjectWriter<'_>, name: &str, kind: &GroupVersionKind<'_>) {
    fields.object(name, |fields| {
        fields.text("group", &kind.group);
        fields.text("version", &kind.version);
        fields.text("kind", &kind.kind);
    });
}

fn write_resource(fields: &mut ObjectWriter<'_>, name: &str, resource: &GroupVersionResource<'_>) {
    fields.object(name, |fields| {
        fields.text("group", &resource.group);
        fields.text("version", &resource.version);
        fields.text("resource", &resource.resource);
    });
}

/// An object as it was received, or `null`.
fn as_received(object: Option<Node<'_>>) -> &str {
    object.map_or("null", Node::raw)
}

// Writes the reply to an AdmissionReview for the API server's webhook client
// (`apiserver/pkg/admission/plugin/webhook/request/admissionreview.go`).

/// The longest key of an audit annotation, in bytes. The API server prepends the webhook's name and
/// a slash, and drops a key that is then not a qualified name.
const KEY_BYTES: usize = 63;

pub(crate) fn encode(version: ReviewVersion, request: &Request<'_>, outcome: &Outcome) -> Vec<u8> {
    let mut out = String::with_capacity(256 + outcome.patch.len() * 4 / 3);
    ObjectWriter::write(&mut out, |review| {
        review.text("kind", "AdmissionReview");
        review.text("apiVersion", version.api_version());
        match version {
            ReviewVersion::V1 | ReviewVersion::V1beta1 => review.object("response", |response| {
                response.text("uid", &request.uid);
                verdict(response, outcome.denial.as_ref());
                if outcome.denial.is_none() && !outcome.patch.is_empty() {
                    patch(response, request.restored(outcome.patch.clone()));
                }
                annotations(response, &outcome.audit_annotations);
                warnings(response, outcome);
            }),
            ReviewVersion::V1alpha1 => {
                review.object("status", |status| verdict(status, outcome.denial.as_ref()));
            }
        }
    });
    out.into_bytes()
}

/// Returns the outcome, or a denial if the version has no field for its patch.
pub(crate) fn within_version(version: ReviewVersion, mut outcome: Outcome) -> Outcome {
    let is_without_patch = version == ReviewVersion::V1alpha1 && !outcome.patch.is_empty();
    if is_without_patch && outcome.denial.is_none() {
        outcome.denial = Some(Denial {
            status: Denial::FAILURE.into(),
            reason: StatusReason::InternalError.as_str().into(),
            code: StatusReason::InternalError.code().into(),
            message: "the object would have to be changed, but an AdmissionReview of \
                      admission.k8s.io/v1alpha1 has no field for a patch"
                .to_owned(),
            details: StatusDetails::default(),
        });
    }
    outcome
}

fn verdict(response: &mut ObjectWriter<'_>, denial: Option<&Denial>) {
    response.flag("allowed", denial.is_none());
    let Some(denial) = denial else { return };
    response.object("status", |status| {
        status.object("metadata", |_| {});
        status.text("status", &denial.status);
        status.text("message", &denial.message);
        status.text_if_any("reason", &denial.reason);
        if !denial.details.is_empty() {
            status.object("details", |fields| details(fields, &denial.details));
        }
        status.json("code", &denial.code.to_string());
    });
}

fn details(fields: &mut ObjectWriter<'_>, details: &StatusDetails) {
    fields.text_if_any("name", &details.name);
    fields.text_if_any("group", &details.group);
    fields.text_if_any("kind", &details.kind);
    fields.text_if_any("uid", &details.uid);
    if !details.causes.is_empty() {
        fields.list("causes", &details.causes, |out, cause| {
            ObjectWriter::write(out, |fields| {
                fields.text_if_any("reason", &cause.reason);
                fields.text_if_any("message", &cause.message);
                fields.text_if_any("field", &cause.field);
            });
        });
    }
    if details.retry_after_seconds != 0 {
        fields.json("retryAfterSeconds", &details.retry_after_seconds.to_string());
    }
}

fn patch(response: &mut ObjectWriter<'_>, patch: Vec<u8>) {
    let out = response.key("patch");
    out.push('"');
    STANDARD.encode_string(patch, out);
    out.push('"');
    response.text("patchType", "JSONPatch");
}

fn annotations(response: &mut ObjectWriter<'_>, annotations: &BTreeMap<String, String>) {
    // Keys that differ only in having a slash or a dot become the same; the first is kept.
    let mut keys: BTreeMap<String, &str> = BTreeMap::new();
    for (key, value) in annotations {
        keys.entry(annotation_key(key)).or_insert(value);
    }
    if !keys.is_empty() {
        response.object("auditAnnotations", |fields| {
            keys.iter().for_each(|(key, value)| fields.text(key, value));
        });
    }
}

fn warnings(response: &mut ObjectWriter<'_>, outcome: &Outcome) {
    if !outcome.warnings.is_empty() {
        response.list("warnings", outcome.warnings.iter(), write_string);
    }
}

/// The key with dots for slashes. If it is longer than [`KEY_BYTES`], its beginning, `-` and a hash
/// of the whole key.
fn annotation_key(key: &str) -> String {
    let key = key.replace('/', ".");
    if key.len() <= KEY_BYTES {
        return key;
    }
    let beginning = crate::model::truncate(&key, KEY_BYTES - 9);
    format!("{beginning}-{:08x}", fnv1a(key.as_bytes()))
}

/// FNV-1a, which is the same in every build: keys in an audit log must not change.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_cel::json::Document;
    use serde_json::{Value, json};

    use crate::admission::ChangedObject;
    use crate::api::AdmissionReview;
    use crate::api::admission_review::tests::fixtures;

    /// Spaces, a number beyond 2^53 and an escape, which must stay unchanged.
    const OBJECT: &str =
        r#"{ "kind":"Pod","metadata":{"name":"p"}, "n": 12345678901234567890.10, "t":"\u00e9" }"#;

    fn received() -> String {
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "uid": "theirs",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "subResource": "status", "requestSubResource": "status",
            "requestKind": {"group": "old", "version": "v0", "kind": "Pod"},
            "requestResource": {"group": "old", "version": "v0", "resource": "pods"},
            "name": "p", "namespace": "n\"s", "operation": "UPDATE",
            "userInfo": {"username": "alice", "uid": "1", "groups": ["devs"],
                         "extra": {"Key/x": ["v"], "empty": []}},
            "object": "OBJECT", "oldObject": {"kind": "Pod"}, "dryRun": true,
            "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"}}})
        .to_string()
        .replace("\"OBJECT\"", OBJECT)
    }

    fn asked(call: &Call, body: &str) -> String {
        let document = Document::parse(body).unwrap();
        let review = AdmissionReview::decode(&document).unwrap();
        String::from_utf8(encode_review(call, &review.request, "ours")).unwrap()
    }

    #[test]
    fn a_question_is_the_one_received_under_a_uid_of_its_own() {
        let body = asked(&fixtures::call(ReviewVersion::V1), &received());
        assert!(body.contains(OBJECT), "{body}");
        let mut expected: Value = serde_json::from_str(&received()).unwrap();
        expected["request"]["uid"] = json!("ours");
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expected);
        let beta = asked(&fixtures::call(ReviewVersion::V1beta1), &received());
        assert_eq!(
            beta,
            body.replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
        );
    }

    /// Reviews that a real kube-apiserver sent.
    const CAPTURED: [&str; 2] = [
        include_str!("../../../../../tests/captures/admission-v1.jsonl"),
        include_str!("../../../../../tests/captures/admission-v1beta1.jsonl"),
    ];

    #[test]
    fn what_an_api_server_asked_is_asked_byte_for_byte() {
        for line in CAPTURED.into_iter().flat_map(str::lines) {
            let line = Document::parse(line).unwrap();
            let body = line.root().get("body").unwrap().raw();
            let document = Document::parse(body).unwrap();
            let AdmissionReview { version, request } = AdmissionReview::decode(&document).unwrap();
            let call = Call {
                kind: request.kind.clone().into_owned(),
                resource: request.resource.clone().into_owned(),
                ..fixtures::call(version)
            };
            let asked = encode_review(&call, &request, &request.uid);
            assert_eq!(std::str::from_utf8(&asked).unwrap(), body);
        }
    }

    #[test]
    fn a_question_gives_the_object_as_changed_in_the_kind_of_the_rule() {
        let call = Call {
            object: Some(ChangedObject::new(
                Document::parse(r#"{"changed": true}"#).unwrap(),
            )),
            kind: GroupVersionKind {
                group: "new".into(),
                ..fixtures::call(ReviewVersion::V1).kind
            },
            ..fixtures::call(ReviewVersion::V1)
        };
        let body: Value = serde_json::from_str(&asked(&call, &received())).unwrap();
        assert_eq!(body["request"]["object"], json!({"changed": true}));
        assert_eq!(body["request"]["kind"]["group"], "new");
        assert_eq!(body["request"]["requestKind"]["group"], "old");
    }

    #[test]
    fn what_is_absent_is_null_or_left_out_as_upstream() {
        let mut bare: Value = serde_json::from_str(&received()).unwrap();
        for name in [
            "object",
            "oldObject",
            "options",
            "dryRun",
            "subResource",
            "name",
            "namespace",
        ] {
            bare["request"].as_object_mut().unwrap().remove(name);
        }
        bare["request"]["userInfo"] = json!({});
        let body: Value =
            serde_json::from_str(&asked(&fixtures::call(ReviewVersion::V1), &bare.to_string())).unwrap();
        let request = body["request"].as_object().unwrap();
        for name in ["object", "oldObject", "options"] {
            assert_eq!(request.get(name), Some(&Value::Null), "{name}");
        }
        assert_eq!(request["dryRun"], false);
        assert_eq!(request["userInfo"], json!({}));
        for name in ["subResource", "requestSubResource", "name", "namespace"] {
            assert_eq!(request.get(name), None, "{name}");
        }
    }

    #[test]
    fn the_first_version_asks_in_a_spec_without_uid() {
        let body = asked(&fixtures::call(ReviewVersion::V1alpha1), &received());
        let shown: Value = serde_json::from_str(&body.replace(OBJECT, "{}")).unwrap();
        assert_eq!(
            shown,
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1alpha1", "spec": {
                "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": {},
                "oldObject": {"kind": "Pod"}, "operation": "UPDATE", "name": "p", "namespace": "n\"s",
                "resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": "status",
                "userInfo": {"username": "alice", "uid": "1", "groups": ["devs"],
                             "extra": {"Key/x": ["v"], "empty": []}}},
                "status": {"allowed": false}})
        );
    }

    #[test]
    fn annotation_keys_have_one_part_and_a_bounded_length() {
        assert_eq!(
            annotation_key("validation.policy.admission.k8s.io/validation_failure"),
            "validation.policy.admission.k8s.io.validation_failure"
        );
        let long = annotation_key(&format!("{}/key", "p".repeat(100)));
        assert_eq!(long.len(), KEY_BYTES);
        assert!(
            long.starts_with(&"p".repeat(54)) && long.as_bytes()[54] == b'-',
            "{long}"
        );
        assert_ne!(long, annotation_key(&format!("{}/kez", "p".repeat(100))));
        assert_eq!(fnv1a(b"a"), 0xe40c_292c);
    }
}
