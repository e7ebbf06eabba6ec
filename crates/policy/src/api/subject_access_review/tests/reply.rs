use super::super::*;

fn encoded(
    version: SubjectAccessReviewVersion,
    decision: Decision,
    reason: &str,
    evaluation_error: &str,
) -> String {
    let mut out = String::new();
    SubjectAccessReviewReply {
        version,
        decision,
        reason: &reason.to_owned().into(),
        evaluation_error,
    }
    .encode(&mut out);
    out
}

#[test]
fn each_decision_in_the_version_asked() {
    assert_eq!(
        encoded(
            SubjectAccessReviewVersion::V1,
            Decision::Allow,
            "because \"x\"\n",
            ""
        ),
        r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true,"reason":"because \"x\"\n"}}"#
    );
    assert_eq!(
        encoded(
            SubjectAccessReviewVersion::V1beta1,
            Decision::Deny,
            "no",
            "role missing"
        ),
        r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","status":{"allowed":false,"denied":true,"reason":"no","evaluationError":"role missing"}}"#
    );
    assert_eq!(
        encoded(SubjectAccessReviewVersion::V1, Decision::NoOpinion, "", ""),
        r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}"#
    );
}
