//! The AdmissionReview for a webhook behind the gateway, as the API server would send it
//! (`CreateV1AdmissionReview` and `CreateV1beta1AdmissionReview` of
//! `apiserver/pkg/admission/plugin/webhook/request/admissionreview.go`;
//! `admissionReviewSpec` of `plugin/pkg/admission/webhook` of Kubernetes 1.7).

use super::ReviewVersion;
use crate::engine::User;
use crate::engine::admission::webhook::Call;
use crate::engine::admission::{GroupVersionKind, GroupVersionResource, Request};
use portcullis_cel::json::{Node, ObjectWriter};

/// What a question takes beside its objects, mostly.
const ENVELOPE_BYTES: usize = 1024;

/// The AdmissionReview that asks the webhook of `call` about `request`, under
/// `uid`, which the reply is to repeat.
///
/// Objects are copied as they were received, byte by byte. They are given in the
/// kind and resource that the webhook's rules match; `requestKind` and
/// `requestResource` stay those that the user asked for. `v1alpha1` has room
/// neither for these nor for the uid, the options and `dryRun`.
#[must_use]
pub fn ask(call: &Call, request: &Request<'_>, uid: &str) -> Vec<u8> {
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

// In the order of the Go types.

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

/// An object as it was received; `null` where there is none.
fn as_received(object: Option<Node<'_>>) -> &str {
    object.map_or("null", Node::raw)
}

#[cfg(test)]
mod tests {
    use portcullis_cel::json::Document;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::AdmissionReview;
    use crate::api::admission_review::fixtures;
    use crate::engine::admission::ChangedObject;

    /// Spaces, a number beyond 2^53 and an escape, which must stay as they are.
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
        String::from_utf8(ask(call, &review.request, "ours")).unwrap()
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

    /// What a real kube-apiserver sent.
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
            let asked = ask(&call, &request, &request.uid);
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
}
