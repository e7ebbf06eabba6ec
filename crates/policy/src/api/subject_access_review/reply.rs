//! The answer to a SubjectAccessReview, as the API server's client reads it.
//!
//! The client uses only `status` (`apiserver/plugin/pkg/authorizer/webhook/webhook.go`);
//! kind and apiVersion, if present, must be those of its request.

use crate::authorization::{AuthorizationReason, SubjectAccessReviewVersion};
use crate::engine::Decision;
use portcullis_cel::json::{StringWriter, write_string};

/// What goes back for one review.
#[derive(Debug, Clone, Copy)]
pub struct SubjectAccessReviewReply<'a> {
    /// The version asked.
    pub version: SubjectAccessReviewVersion,
    /// `allowed` for Allow, `denied` for Deny, neither for NoOpinion; never both.
    pub decision: Decision,
    /// What decided; empty is left out.
    pub reason: &'a AuthorizationReason<'a>,
    /// What went wrong on the way without preventing an answer; empty is left out.
    pub evaluation_error: &'a str,
}

impl SubjectAccessReviewReply<'_> {
    /// Appends the JSON body.
    pub fn encode(&self, out: &mut String) {
        out.push_str(match self.version {
            SubjectAccessReviewVersion::V1 => {
                r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":"#
            }
            SubjectAccessReviewVersion::V1beta1 => {
                r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","status":{"allowed":"#
            }
        });
        out.push_str(match self.decision {
            Decision::Allow => "true",
            Decision::Deny => r#"false,"denied":true"#,
            Decision::NoOpinion => "false",
        });
        if !self.reason.is_empty() {
            out.push_str(r#","reason":""#);
            // Writing to a String cannot fail.
            let _infallible = self.reason.write(&mut StringWriter(out));
            out.push('"');
        }
        if !self.evaluation_error.is_empty() {
            out.push_str(r#","evaluationError":"#);
            write_string(out, self.evaluation_error);
        }
        out.push_str("}}");
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
}
