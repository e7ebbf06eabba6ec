//! Kubernetes wire types: SubjectAccessReview, AdmissionReview, Status.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
