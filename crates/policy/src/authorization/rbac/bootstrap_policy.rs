//! The RBAC objects that an API server makes by itself at its start
//! (`plugin/pkg/auth/authorizer/rbac/bootstrappolicy`).

use portcullis_cel::Version;

/// Their manifests as kube-apiserver of `version` has them, or of the nearest version that is known:
/// 1.36 and 1.37. Aggregated ClusterRoles have no rules of their own.
#[must_use]
pub const fn bootstrap_policy(version: Version) -> &'static str {
    if version.minor() < Version::NEWEST.minor() {
        include_str!("bootstrap_policy/1.36.yaml")
    } else {
        include_str!("bootstrap_policy/1.37.yaml")
    }
}
