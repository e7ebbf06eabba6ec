//! The versions of Kubernetes' own groups, as API servers of version 1.36
//! and 1.37 serve them (their `api/openapi-spec/swagger.json`).

use crate::engine::admission::GroupVersionResource;

/// The groups and their versions. Of a version that is not here, such as one of
/// an older API server, nothing is known.
const VERSIONS: [(&str, &[&str]); 24] = [
    ("", &["v1"]),
    ("admissionregistration.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("apiextensions.k8s.io", &["v1"]),
    ("apiregistration.k8s.io", &["v1"]),
    ("apps", &["v1"]),
    ("authentication.k8s.io", &["v1"]),
    ("authorization.k8s.io", &["v1"]),
    ("autoscaling", &["v1", "v2"]),
    ("batch", &["v1"]),
    ("certificates.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("coordination.k8s.io", &["v1", "v1alpha2", "v1beta1"]),
    ("discovery.k8s.io", &["v1"]),
    ("events.k8s.io", &["v1"]),
    ("flowcontrol.apiserver.k8s.io", &["v1"]),
    ("internal.apiserver.k8s.io", &["v1alpha1"]),
    ("lifecycle.k8s.io", &["v1alpha1"]),
    ("networking.k8s.io", &["v1", "v1beta1"]),
    ("node.k8s.io", &["v1"]),
    ("policy", &["v1"]),
    ("rbac.authorization.k8s.io", &["v1"]),
    ("resource.k8s.io", &["v1", "v1alpha3", "v1beta1", "v1beta2"]),
    ("scheduling.k8s.io", &["v1", "v1alpha2", "v1alpha3", "v1beta1"]),
    ("storage.k8s.io", &["v1", "v1beta1"]),
    ("storagemigration.k8s.io", &["v1", "v1beta1"]),
];

/// Whether the group is one of Kubernetes' own, whose objects API servers decode into Go types.
pub(crate) fn is_own_group(group: &str) -> bool {
    VERSIONS.iter().any(|(own, _)| *own == group)
}

/// Whether Kubernetes itself has the resource under this name alone.
pub(crate) fn is_single(resource: &GroupVersionResource<'_>) -> bool {
    VERSIONS.iter().any(|(group, versions)| {
        *group == resource.group && versions.iter().any(|version| *version == resource.version)
    })
}
