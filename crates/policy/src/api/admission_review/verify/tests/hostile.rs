//! Property tests: no reply panics, and no incomplete reply is accepted.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::super::*;
use crate::api::admission_review::tests::fixtures;
use crate::api::tests::mutated;
use portcullis_cel::json::MAX_DEPTH;

/// A valid reply to begin with, that refuses.
const SEED: &str = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{},"response":{"uid":"u-1","allowed":false,"patchType":"JSONPatch","patch":"W3sib3AiOiJhZGQifV0=","warnings":["w",null],"auditAnnotations":{"k":"v","n":null},"status":{"metadata":{},"status":"Failure","message":"j\u00e9\ud83d\ude00","reason":"Invalid","code":422,"details":{"name":"n","retryAfterSeconds":3,"causes":[{"field":"f"},null]}}}}"#;

const VERSIONS: [ReviewVersion; 3] = [ReviewVersion::V1, ReviewVersion::V1beta1, ReviewVersion::V1alpha1];

fn read_all(bytes: &[u8]) -> Vec<Result<WebhookReply, CallFailure>> {
    let phases = [Phase::Mutate, Phase::Validate];
    VERSIONS
        .into_iter()
        .flat_map(|version| phases.map(|phase| (fixtures::call(version), phase)))
        .map(|(call, phase)| verify(&call, "u-1", phase, bytes))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_that_are_no_map_are_never_believed(bytes in vec(any::<u8>(), 0..200)) {
        prop_assume!(!bytes.trim_ascii_start().starts_with(b"{"));
        prop_assert!(read_all(&bytes).iter().all(Result::is_err));
    }

    #[test]
    fn mutated_input_never_makes_a_refusal_an_approval(bytes in mutated(SEED)) {
        let says_true = bytes.windows(4).any(|word| word == b"true");
        for reply in read_all(&bytes).into_iter().flatten() {
            prop_assert!(says_true || reply.denial.is_some());
            if let Some(denial) = reply.denial {
                prop_assert!(denial.code >= 400 && denial.status != "Success" && !denial.status.is_empty());
            }
        }
    }

    #[test]
    fn in_v1_only_the_uid_asked_is_believed(uid in any::<String>(), allowed in any::<bool>()) {
        let body = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
                          "response": {"uid": uid, "allowed": allowed}}).to_string();
        let call = fixtures::call(ReviewVersion::V1);
        prop_assert!(verify(&call, &uid, Phase::Mutate, body.as_bytes()).is_ok());
        let other = format!("{uid}x");
        prop_assert!(verify(&call, &other, Phase::Mutate, body.as_bytes()).is_err());
    }
}

#[test]
fn a_reply_that_nests_without_end_is_not_believed() {
    for open in ["[", r#"{"response":"#] {
        let deep = open.repeat(1 << 20);
        assert!(read_all(deep.as_bytes()).iter().all(Result::is_err));
    }
    let levels = MAX_DEPTH + 1;
    let ignored = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let body = SEED.replace("\"request\":{}", &format!("\"unknown\":{ignored}"));
    assert!(read_all(body.as_bytes()).iter().all(Result::is_err));
}
