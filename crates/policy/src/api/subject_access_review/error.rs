//! Errors of decoding a SubjectAccessReview.

use crate::field::Faults;
use portcullis_cel::json;

/// What is wrong with a review's bytes. Each is the sender's fault: HTTP 400.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubjectAccessReviewError {
    /// Not JSON, or a field of the wrong type.
    #[error("the body cannot be read as a SubjectAccessReview")]
    Malformed(#[from] json::Error),
    /// Another kind, or none.
    #[error("expected kind `SubjectAccessReview`, found `{found}`")]
    Kind {
        /// The kind in the body; cut when long.
        found: String,
    },
    /// A version that is not served, or none.
    #[error(
        "expected apiVersion `authorization.k8s.io/v1` or `authorization.k8s.io/v1beta1`, found `{found}`"
    )]
    Version {
        /// The apiVersion in the body; cut when long.
        found: String,
    },
    /// A review that the API server itself would refuse.
    #[error("{0}")]
    Refused(Faults),
}

impl SubjectAccessReviewError {
    /// The message for the sender: the error, and of malformed JSON also where and what.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Malformed(source) => format!("{self}: {source}"),
            _ => self.to_string(),
        }
    }
}
