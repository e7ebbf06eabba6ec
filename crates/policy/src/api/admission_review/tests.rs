pub(crate) mod fixtures;

use serde_json::{Value, json};

use super::*;
use crate::admission::{Denial, StatusCause, StatusDetails};
use crate::model::StatusReason;

const POD: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1",
    "kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},
    "requestKind":{"group":"","version":"v1","kind":"Pod"},
    "requestResource":{"group":"","version":"v1","resource":"pods"},
    "name":"p","namespace":"ns","operation":"CREATE",
    "userInfo":{"username":"alice","groups":["devs"],"extra":{"K":["v"],"empty":[],"null":null}},
    "object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}},"oldObject":null,"dryRun":true,
    "options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}"#;

fn replied(body: &str, outcome: &Outcome) -> Value {
    let document = Document::parse(body).unwrap();
    let review = AdmissionReview::decode(&document).unwrap();
    let reply = review.reply(&review.within_version(outcome.clone()));
    serde_json::from_slice(&reply).unwrap()
}

fn refused() -> Outcome {
    let denial = Denial {
        status: Denial::FAILURE.into(),
        reason: StatusReason::Invalid.as_str().into(),
        code: 422,
        message: "no \"such\" thing".into(),
        details: StatusDetails {
            name: "p".into(),
            kind: "pods".into(),
            causes: vec![StatusCause::of("no")],
            ..StatusDetails::default()
        },
    };
    Outcome {
        denial: Some(denial),
        ..Outcome::default()
    }
}

#[test]
fn reads_what_an_api_server_sends() {
    let document = Document::parse(POD).unwrap();
    let AdmissionReview { version, request } = AdmissionReview::decode(&document).unwrap();
    assert_eq!(version, ReviewVersion::V1);
    assert_eq!(request.uid, "u-1");
    assert_eq!(request.kind.kind, "Pod");
    assert_eq!(request.request_resource.resource, "pods");
    assert_eq!((request.name.as_ref(), request.namespace.as_ref()), ("p", "ns"));
    assert_eq!(request.operation, Operation::Create);
    assert_eq!(request.user.groups, ["devs"]);
    assert_eq!(request.user.extra.len(), 3);
    assert!(request.dry_run && request.old_object.is_none());
    assert!(
        request
            .object
            .unwrap()
            .get("metadata")
            .unwrap()
            .get("name")
            .unwrap()
            .is_str("p")
    );
}

#[test]
fn an_allowed_request_is_answered_in_its_version() {
    assert_eq!(
        replied(POD, &Outcome::default()),
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
               "response": {"uid": "u-1", "allowed": true}})
    );
    let beta = POD.replace("admission.k8s.io/v1\"", "admission.k8s.io/v1beta1\"");
    assert_eq!(
        replied(&beta, &Outcome::default())["apiVersion"],
        "admission.k8s.io/v1beta1"
    );
}

#[test]
fn a_refusal_carries_a_status() {
    let reply = replied(POD, &refused());
    assert_eq!(
        reply["response"],
        json!({"uid": "u-1", "allowed": false, "status": {"metadata": {}, "status": "Failure",
               "message": "no \"such\" thing", "reason": "Invalid", "code": 422,
               "details": {"name": "p", "kind": "pods", "causes": [{"message": "no"}]}}})
    );
}

#[test]
fn a_patch_goes_with_its_type_and_never_with_a_refusal() {
    let patch = r#"[{"op":"add","path":"/a","value":1}]"#.to_owned();
    let outcome = Outcome {
        patch,
        ..Outcome::default()
    };
    let response = &replied(POD, &outcome)["response"];
    assert_eq!(response["patchType"], "JSONPatch");
    let bytes = base64::Engine::decode(
        &base64::engine::general_purpose::STANDARD,
        response["patch"].as_str().unwrap(),
    );
    assert_eq!(bytes.unwrap(), outcome.patch.as_bytes());
    let both = Outcome {
        denial: refused().denial,
        ..outcome
    };
    assert_eq!(replied(POD, &both)["response"].get("patch"), None);
}

#[test]
fn warnings_and_annotations_go_along() {
    let mut outcome = Outcome::default();
    outcome.warnings.push("mind \"this\"");
    outcome
        .audit_annotations
        .insert("policy/key".into(), "value".into());
    outcome
        .audit_annotations
        .insert("policy.key".into(), "other".into());
    assert_eq!(
        replied(POD, &outcome)["response"],
        json!({"uid": "u-1", "allowed": true, "warnings": ["mind \"this\""],
               "auditAnnotations": {"policy.key": "other"}})
    );
}

const ALPHA: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1alpha1","spec":{
    "kind":{"group":"","version":"v1","kind":"Pod"},"object":{"kind":"Pod"},"oldObject":null,
    "operation":"CREATE","name":"p","namespace":"ns",
    "resource":{"group":"","version":"v1","resource":"pods"},"userInfo":{"username":"alice"}}}"#;

#[test]
fn the_first_version_is_answered_by_its_status() {
    let start = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1alpha1"});
    let mut expected = start.clone();
    expected["status"] = json!({"allowed": true});
    assert_eq!(replied(ALPHA, &Outcome::default()), expected);
    assert_eq!(replied(ALPHA, &refused())["status"]["status"]["code"], 422);
    let change = Outcome {
        patch: "[]".into(),
        ..Outcome::default()
    };
    assert_eq!(replied(ALPHA, &change)["status"]["allowed"], false);
}

#[test]
fn refuses_what_no_api_server_sends() {
    let cases = [
        (POD.replace("\"AdmissionReview\"", "\"Pod\""), "found `Pod`"),
        (
            POD.replace("admission.k8s.io/v1", "admission.k8s.io/v2"),
            "found `admission.k8s.io/v2`",
        ),
        (POD.replace("\"kind\":\"AdmissionReview\",", ""), "found ``"),
        (
            POD.replace("\"request\":", "\"spec\":"),
            "request: expected a map",
        ),
        (POD.replace("CREATE", "PATCH"), "request.operation"),
        (
            POD.replace("\"resource\":\"pods\"", "\"resource\":\"\""),
            "request.resource",
        ),
        (
            POD.replace("\"dryRun\":true", "\"dryRun\":\"yes\""),
            "request.dryRun",
        ),
        (POD.replace("[\"devs\"]", "[1]"), "request.userInfo.groups"),
        (
            POD.replace("\"oldObject\":null", "\"oldObject\":[]"),
            "request.oldObject",
        ),
        ("[]".to_owned(), "found ``"),
    ];
    for (body, expected) in cases {
        let document = Document::parse(body).unwrap();
        let error = AdmissionReview::decode(&document).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn whatever_status_a_webhook_gave_is_passed_on() {
    let mut outcome = refused();
    let denial = outcome.denial.as_mut().unwrap();
    denial.reason = "TeaTime".into();
    denial.code = 418;
    denial.details.uid = "u".into();
    denial.details.retry_after_seconds = 3;
    denial.details.causes = vec![
        StatusCause {
            reason: "FieldValueInvalid".into(),
            field: "spec.cup".into(),
            ..StatusCause::default()
        },
        StatusCause::of("no milk"),
    ];
    let status = &replied(POD, &outcome)["response"]["status"];
    assert_eq!(
        (&status["reason"], &status["code"]),
        (&json!("TeaTime"), &json!(418))
    );
    assert_eq!(
        status["details"],
        json!({
            "name": "p", "kind": "pods", "uid": "u", "retryAfterSeconds": 3,
            "causes": [{"reason": "FieldValueInvalid", "field": "spec.cup"}, {"message": "no milk"}],
        })
    );

    let denial = outcome.denial.as_mut().unwrap();
    denial.reason = "".into();
    denial.details = StatusDetails {
        retry_after_seconds: 1,
        ..StatusDetails::default()
    };
    let status = &replied(POD, &outcome)["response"]["status"];
    assert_eq!(status["details"], json!({"retryAfterSeconds": 1}));
    assert!(status.get("reason").is_none());
}
