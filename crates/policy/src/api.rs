//! Kubernetes wire types: SubjectAccessReview, AdmissionReview, Status.
//!
//! ```text
//! bytes ──decode──▶ SubjectAccessReview { version, attributes } ──▶ engine
//! bytes ◀─encode── SubjectAccessReviewReply { decision, reason } ◀──┘
//!       ◀─encode── Status                        (what is not a review)
//! ```
//!
//! The versions differ only here: both convert into one internal type, and a reply has
//! the version of its request.

mod admission_review;
mod status;
mod subject_access_review;
#[cfg(test)]
mod tests;

pub use admission_review::{
    AdmissionReview, AdmissionReviewError, OwnedAdmissionReview, ReviewVersion, ask, verify, verify_decoded,
};
pub use status::Status;
pub use subject_access_review::{
    AuthorizerReply, ReplyError, SubjectAccessReview, SubjectAccessReviewError, SubjectAccessReviewReply,
};
