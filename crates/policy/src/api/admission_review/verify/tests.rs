mod hostile;

use serde_json::{Value, json};

use super::*;
use crate::admission::{Denial, StatusCause, StatusDetails};
use crate::api::admission_review::tests::fixtures;

/// `[{"op":"add","path":"/a","value":1}]`
const PATCH: &str = "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2EiLCJ2YWx1ZSI6MX1d";

fn body(version: ReviewVersion, response: &Value) -> String {
    json!({"kind": "AdmissionReview", "apiVersion": version.api_version(), "response": response}).to_string()
}

fn read(version: ReviewVersion, phase: Phase, body: impl AsRef<[u8]>) -> Result<WebhookReply, String> {
    verify(&fixtures::call(version), "u-1", phase, body.as_ref()).map_err(|failure| failure.to_string())
}

/// What a mutating webhook replies in v1.
fn v1(response: &Value) -> Result<WebhookReply, String> {
    read(
        ReviewVersion::V1,
        Phase::Mutate,
        body(ReviewVersion::V1, response),
    )
}

fn denied(status: &Value) -> Denial {
    let reply = v1(&json!({"uid": "u-1", "allowed": false, "status": status}));
    reply.unwrap().denial.unwrap()
}

#[test]
fn a_reply_says_verdict_patch_warnings_and_annotations() {
    let reply = v1(&json!({
        "uid": "u-1", "allowed": true, "patchType": "JSONPatch", "patch": PATCH,
        "warnings": ["mind", null], "auditAnnotations": {"k": "v", "empty": null},
        "status": {"message": "is not read"}, "unknown": [1],
    }));
    let expected = WebhookReply {
        denial: None,
        patch: Some(br#"[{"op":"add","path":"/a","value":1}]"#.as_slice().into()),
        patch_type: "JSONPatch".to_owned(),
        warnings: vec!["mind".to_owned(), String::new()],
        audit_annotations: [
            ("k".to_owned(), "v".to_owned()),
            ("empty".to_owned(), String::new()),
        ]
        .into(),
    };
    assert_eq!(reply, Ok(expected));
}

#[test]
fn in_v1_patch_and_patch_type_go_together_and_to_mutate_alone() {
    let cases = [
        (json!({}), Ok(None), Ok(None)),
        (json!({"patch": null, "patchType": null}), Ok(None), Ok(None)),
        (json!({"patch": ""}), Ok(None), Ok(None)),
        (json!({"patch": []}), Ok(None), Ok(None)),
        (
            json!({"patch": PATCH, "patchType": "Other"}),
            Ok(Some("Other")),
            Err("may not return response.patch"),
        ),
        (
            json!({"patch": PATCH}),
            Err("response.patch but not response.patchType"),
            Err("may not return response.patch"),
        ),
        (
            json!({"patchType": "JSONPatch"}),
            Err("response.patchType but not response.patch"),
            Err("may not return response.patchType"),
        ),
        (
            json!({"patch": PATCH, "patchType": ""}),
            Err("invalid response.patchType of \"\""),
            Err("may not return response.patch"),
        ),
    ];
    for (mut response, mutating, validating) in cases {
        response["uid"] = json!("u-1");
        response["allowed"] = json!(true);
        for (phase, expected) in [(Phase::Mutate, mutating), (Phase::Validate, validating)] {
            let reply = read(ReviewVersion::V1, phase, body(ReviewVersion::V1, &response));
            match (reply, expected) {
                (Ok(reply), Ok(patch_type)) => {
                    assert_eq!(reply.patch.is_some(), patch_type.is_some(), "{response}");
                    assert_eq!(reply.patch_type, patch_type.unwrap_or_default(), "{response}");
                }
                (Err(error), Err(part)) => assert!(error.contains(part), "{response}: {error}"),
                (reply, expected) => panic!("{response}: {reply:?}, not {expected:?}"),
            }
        }
    }
}

#[test]
fn in_v1beta1_every_patch_is_a_json_patch_and_uid_and_kind_may_be_missing() {
    for response in [
        json!({"allowed": true, "patch": PATCH}),
        json!({"uid": "other", "allowed": true, "patch": PATCH, "patchType": "MergePatch"}),
    ] {
        let body = json!({"response": response}).to_string();
        let mutating = read(ReviewVersion::V1beta1, Phase::Mutate, &body).unwrap();
        assert_eq!(mutating.patch_type, "JSONPatch");
        assert!(mutating.patch.is_some());
        let validating = read(ReviewVersion::V1beta1, Phase::Validate, &body).unwrap();
        assert_eq!(validating, WebhookReply::default());
    }
}

/// The outcomes are those of client-go's decoder for replies to a review in `v1beta1`.
#[test]
fn in_v1beta1_the_decoder_refuses_another_kind_or_version_and_the_verification_none() {
    let cases = [
        (json!({}), true),
        (json!({"kind": null, "apiVersion": null}), true),
        (json!({"kind": "AdmissionReview"}), true),
        (json!({"apiVersion": "admission.k8s.io/v1beta1"}), true),
        (json!({"apiVersion": "admission.k8s.io/v1"}), false),
        (json!({"apiVersion": "v1"}), false),
        (json!({"kind": "Other"}), false),
        (json!({"kind": "Status", "apiVersion": "v1"}), false),
        (
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}),
            false,
        ),
        (
            json!({"kind": "AdmissionReview", "apiVersion": "example.com/v1beta1"}),
            false,
        ),
        (
            json!({"kind": "Other", "apiVersion": "admission.k8s.io/v1beta1"}),
            false,
        ),
        (json!({"kind": "Other", "apiVersion": "example.com/v2"}), false),
    ];
    for (mut reply, is_believed) in cases {
        reply["response"] = json!({"uid": "u-1", "allowed": true});
        let body = reply.to_string();
        for phase in Phase::ALL {
            let read = read(ReviewVersion::V1beta1, phase, &body);
            assert_eq!(read.is_ok(), is_believed, "{body}");
            let document = Document::parse(body.as_str()).unwrap();
            let is_v1 = reply["kind"] == "AdmissionReview" && reply["apiVersion"] == "admission.k8s.io/v1";
            for (version, is_believed) in [(ReviewVersion::V1beta1, true), (ReviewVersion::V1, is_v1)] {
                let call = fixtures::call(version);
                let decoded = verify_decoded(&call, "u-1", phase, document.root());
                assert_eq!(decoded.is_ok(), is_believed, "{version:?} {body}");
            }
        }
    }
}

#[test]
fn the_first_version_has_a_verdict_told_as_it_is() {
    let alpha = |status: Value| {
        let body = json!({"spec": {}, "status": status}).to_string();
        read(ReviewVersion::V1alpha1, Phase::Validate, body).map(|reply| {
            assert_eq!(
                WebhookReply {
                    denial: None,
                    ..reply.clone()
                },
                WebhookReply::default()
            );
            reply.denial.map(|denial| (denial.code, denial.message))
        })
    };
    let unexplained = r#"admission webhook "hook.example.com" denied the request without explanation"#;
    let status = json!({"code": 403, "message": "no"});
    assert_eq!(alpha(json!({"allowed": true, "status": status})), Ok(None));
    assert_eq!(alpha(json!({"status": status})), Ok(Some((403, "no".to_owned()))));
    assert_eq!(
        alpha(json!({"status": {"code": 200}})),
        Ok(Some((400, String::new())))
    );
    for silent in [json!({"allowed": false}), json!(null), json!({"status": null})] {
        assert_eq!(alpha(silent), Ok(Some((500, unexplained.to_owned()))));
    }
    assert!(alpha(json!([])).is_err());
}

#[test]
fn a_refusal_names_the_webhook_and_has_a_code_of_failure() {
    let start = r#"admission webhook "hook.example.com" denied the request"#;
    let cases = [
        (json!(null), 400, format!("{start} without explanation")),
        (json!({}), 400, format!("{start} without explanation")),
        (json!({"message": "m", "reason": "r"}), 400, format!("{start}: m")),
        (json!({"reason": "r", "code": 399}), 400, format!("{start}: r")),
        (
            json!({"code": -1, "status": "Success"}),
            400,
            format!("{start} without explanation"),
        ),
        (json!({"code": 700, "message": "m"}), 700, format!("{start}: m")),
    ];
    for (status, code, message) in cases {
        let denial = denied(&status);
        assert_eq!((denial.code, denial.message), (code, message), "{status}");
    }
}

#[test]
fn of_a_long_refusal_the_beginning_is_passed_on() {
    let start = r#"admission webhook "hook.example.com" denied the request: "#;
    let whole = "é".repeat(WebhookReply::MAX_TEXT_BYTES / 2);
    let longer = format!("{whole}é");
    let cut = format!("{whole}…");
    for (said, kept) in [(&whole, &whole), (&longer, &cut)] {
        let causes = json!([{"message": said}]);
        let denial = denied(&json!({"message": said, "details": {"name": said, "causes": causes}}));
        assert_eq!(denial.message, format!("{start}{kept}"));
        assert_eq!(
            (&denial.details.name, &denial.details.causes[0].message),
            (kept, kept)
        );
        assert_eq!(denied(&json!({"reason": said})).message, format!("{start}{kept}"));
    }
}

#[test]
fn a_refusal_passes_on_reason_and_details() {
    let denial = denied(&json!({
        "metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
        "details": {"name": "n", "group": "g", "kind": "k", "uid": "u", "retryAfterSeconds": 3,
                    "causes": [{"reason": "FieldValueInvalid", "message": "bad", "field": "spec.x"}, null]},
    }));
    let cause = StatusCause {
        reason: "FieldValueInvalid".to_owned(),
        message: "bad".to_owned(),
        field: "spec.x".to_owned(),
    };
    let details = StatusDetails {
        name: "n".to_owned(),
        group: "g".to_owned(),
        kind: "k".to_owned(),
        uid: "u".to_owned(),
        causes: vec![cause, StatusCause::default()],
        retry_after_seconds: 3,
    };
    assert_eq!((denial.reason.as_ref(), denial.details), ("Invalid", details));
}

#[test]
fn bodies_are_read_as_go_reads_them() {
    let plain = body(ReviewVersion::V1, &json!({"uid": "u-1", "allowed": true}));
    let accepted = [
        format!("\u{feff} \n{plain}\t\n"),
        plain.replace(r#""allowed":true"#, r#""allowed":false,"allowed":true"#),
        plain.replace(r#""allowed":true"#, r#""Allowed":false,"allowed":true"#),
        plain.replace(
            r#""allowed":true"#,
            r#""allowed":true,"patch":null,"status":null"#,
        ),
        plain.replace(r#""allowed""#, r#""\u0061llowed""#),
    ];
    for body in accepted {
        let reply = read(ReviewVersion::V1, Phase::Mutate, &body);
        assert_eq!(reply, Ok(WebhookReply::default()), "{body}");
    }
    let lines = [
        json!("W3sib3AiOiJhZGQiLCJwYXRoIjoi\r\nL2EiLCJ2YWx1ZSI6MX1d\n"),
        json!(r#"[{"op":"add","path":"/a","value":1}]"#.as_bytes()),
    ];
    for patch in lines {
        let reply = v1(&json!({"uid": "u-1", "allowed": true, "patchType": "JSONPatch", "patch": patch}));
        assert!(reply.unwrap().patch.unwrap().starts_with(b"[{"), "{patch}");
    }
    let invalid = [plain.as_bytes(), b"\xff"].concat();
    assert!(read(ReviewVersion::V1, Phase::Mutate, invalid).is_err());
}

#[test]
fn what_is_no_reply_to_the_question_is_a_failed_call() {
    let plain = body(ReviewVersion::V1, &json!({"uid": "u-1", "allowed": true}));
    let cases = [
        (String::new(), "failed to call webhook: "),
        ("not json".to_owned(), "failed to call webhook: invalid JSON"),
        (format!("{plain}{plain}"), "failed to call webhook: "),
        (format!("[{plain}]"), "the reply: expected a map"),
        ("null".to_owned(), "the reply: expected a map"),
        (
            plain.replace("true", "\"true\""),
            "response.allowed: expected true or false",
        ),
        (plain.replace("\"u-1\"", "7"), "response.uid: expected text"),
        (
            plain.replace("\"response\"", "\"Response\""),
            "response was absent",
        ),
        (
            plain.replace("u-1", "u-2"),
            r#"received invalid webhook response: expected response.uid="u-1", got "u-2""#,
        ),
        (
            plain.replace("AdmissionReview", ""),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got",
        ),
        (
            plain.replace("/v1", "/v1beta1"),
            "got admission.k8s.io/v1beta1, Kind=AdmissionReview",
        ),
        (
            r#"{"kind":"Status","apiVersion":"v1","status":"Success"}"#.to_owned(),
            "got v1, Kind=Status",
        ),
        (
            plain.replace("true", "true,\"patch\":\"?\""),
            "response.patch: expected base64",
        ),
        (
            plain.replace("true", "true,\"patch\":{}"),
            "response.patch: expected base64",
        ),
        (
            plain.replace("true", "true,\"patch\":[256]"),
            "response.patch: expected base64",
        ),
        (
            plain.replace("true", "true,\"warnings\":\"w\""),
            "response.warnings: expected a list of strings",
        ),
        (
            plain.replace("true", "true,\"auditAnnotations\":{\"k\":1}"),
            "response.auditAnnotations",
        ),
        (
            plain.replace("true", "true,\"status\":{\"code\":400.0}"),
            "status.code",
        ),
        (
            plain.replace("true", "true,\"status\":{\"code\":2147483648}"),
            "status.code",
        ),
        (
            plain.replace("true", "true,\"status\":{\"details\":{\"causes\":[1]}}"),
            "status.details.causes",
        ),
        (
            plain.replace("\"response\"", "\"request\":1,\"response\""),
            "request: expected a map",
        ),
    ];
    for (body, part) in cases {
        let error = read(ReviewVersion::V1, Phase::Mutate, &body).unwrap_err();
        assert!(error.contains(part), "{body}: {error}");
    }
}

#[test]
fn what_a_reply_says_is_repeated_in_part() {
    let long = "x".repeat(10_000);
    for body in [
        body(ReviewVersion::V1, &json!({"uid": long, "allowed": true})),
        json!({"kind": long, "apiVersion": long, "response": {}}).to_string(),
    ] {
        let error = read(ReviewVersion::V1, Phase::Mutate, body).unwrap_err();
        assert!(error.len() < 400, "{error}");
    }
}
