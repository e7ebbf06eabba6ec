//! The answer to a SubjectAccessReview, as the API server's client reads it.
//!
//! The client uses only `status` (`apiserver/plugin/pkg/authorizer/webhook/webhook.go`);
//! kind and apiVersion, if present, must be those of its request.

use crate::engine::Decision;
use crate::engine::authorization::SubjectAccessReviewVersion;

/// What goes back for one review.
#[derive(Debug, Clone, Copy)]
pub struct SubjectAccessReviewReply<'a> {
    /// The version asked.
    pub version: SubjectAccessReviewVersion,
    /// `allowed` for Allow, `denied` for Deny, neither for NoOpinion; never both.
    pub decision: Decision,
    /// What decided; empty is left out.
    pub reason: &'a str,
    /// What went wrong on the way without preventing an answer; empty is left out.
    pub evaluation_error: &'a str,
}

impl SubjectAccessReviewReply<'_> {
    /// Appends the JSON body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.version {
            SubjectAccessReviewVersion::V1 => {
                br#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":"#
            }
            SubjectAccessReviewVersion::V1beta1 => {
                br#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","status":{"allowed":"#
            }
        });
        out.extend_from_slice(match self.decision {
            Decision::Allow => b"true",
            Decision::Deny => br#"false,"denied":true"#,
            Decision::NoOpinion => b"false",
        });
        member(out, br#","reason":"#, self.reason);
        member(out, br#","evaluationError":"#, self.evaluation_error);
        out.extend_from_slice(b"}}");
    }
}

/// Appends `name` and the text as a JSON string, unless the text is empty.
fn member(out: &mut Vec<u8>, name: &[u8], text: &str) {
    if text.is_empty() {
        return;
    }
    let start = out.len();
    out.extend_from_slice(name);
    if serde_json::to_writer(&mut *out, text).is_err() {
        // Writing text to memory does not fail; a half-written member must not stay.
        out.truncate(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(
        version: SubjectAccessReviewVersion,
        decision: Decision,
        reason: &str,
        evaluation_error: &str,
    ) -> String {
        let mut out = Vec::new();
        SubjectAccessReviewReply {
            version,
            decision,
            reason,
            evaluation_error,
        }
        .encode(&mut out);
        String::from_utf8(out).unwrap()
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
}
