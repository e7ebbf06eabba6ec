//! What the tests stand on.

mod builder;
pub(crate) mod client;
pub(crate) mod frames;
pub(crate) mod gateway;
pub(crate) mod process;

pub(crate) use builder::{Builder, kubeconfig};
pub(crate) use client::{Client, get, request};
pub(crate) use gateway::{Gateway, by_time, until};

/// A v1 review of this spec.
pub(crate) fn v1(spec: &str) -> String {
    review("authorization.k8s.io/v1", spec)
}

/// A review of this spec in the version named.
pub(crate) fn review(api_version: &str, spec: &str) -> String {
    format!(
        r#"{{"kind":"SubjectAccessReview","apiVersion":"{api_version}","metadata":{{}},"spec":{spec},"status":{{"allowed":false}}}}"#
    )
}

/// Jane reads a pod: allowed by her binding.
pub(crate) const JANE_GETS: &str = r#"{"user":"jane","uid":"u-1","groups":["system:authenticated"],"resourceAttributes":{"verb":"get","version":"v1","resource":"pods","namespace":"ns","name":"p"}}"#;
