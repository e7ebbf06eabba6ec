//! The versions of SubjectAccessReview.

/// The versions of `authorization.k8s.io` in which SubjectAccessReviews
/// are asked and answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SubjectAccessReviewVersion {
    /// `authorization.k8s.io/v1`: groups under `groups`.
    V1,
    /// `authorization.k8s.io/v1beta1`: groups under `group`.
    V1beta1,
}
