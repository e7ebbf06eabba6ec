//! Which resources are known to have no namespace.

/// The cluster-scoped resources that kube-apiserver 1.36 serves itself or by
/// its aggregator, by group, and those of Portcullis' own group. Other custom
/// resources are not known: nothing here says whether `widgets.example.com` has
/// namespaces.
const CLUSTER_SCOPED: [(&str, &[&str]); 18] = [
    (
        "",
        &["componentstatuses", "namespaces", "nodes", "persistentvolumes"],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "validatingwebhookconfigurations",
        ],
    ),
    ("apiextensions.k8s.io", &["customresourcedefinitions"]),
    ("apiregistration.k8s.io", &["apiservices"]),
    ("authentication.k8s.io", &["selfsubjectreviews", "tokenreviews"]),
    (
        "authorization.k8s.io",
        &[
            "selfsubjectaccessreviews",
            "selfsubjectrulesreviews",
            "subjectaccessreviews",
        ],
    ),
    (
        "certificates.k8s.io",
        &["certificatesigningrequests", "clustertrustbundles"],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        &["flowschemas", "prioritylevelconfigurations"],
    ),
    ("imagepolicy.k8s.io", &["imagereviews"]),
    ("internal.apiserver.k8s.io", &["storageversions"]),
    (
        "networking.k8s.io",
        &["ingressclasses", "ipaddresses", "servicecidrs"],
    ),
    ("node.k8s.io", &["runtimeclasses"]),
    (
        "portcullis.dev",
        &["admissionexceptions", "authorizationpolicies"],
    ),
    (
        "rbac.authorization.k8s.io",
        &["clusterrolebindings", "clusterroles"],
    ),
    (
        "resource.k8s.io",
        &[
            "deviceclasses",
            "devicetaintrules",
            "resourcepoolstatusrequests",
            "resourceslices",
        ],
    ),
    ("scheduling.k8s.io", &["priorityclasses"]),
    (
        "storage.k8s.io",
        &[
            "csidrivers",
            "csinodes",
            "storageclasses",
            "volumeattachments",
            "volumeattributesclasses",
        ],
    ),
    ("storagemigration.k8s.io", &["storageversionmigrations"]),
];

/// Whether `resource` of `group` is known to be cluster-scoped. A `*` is not.
#[must_use]
pub fn is_known_cluster_scoped(group: &str, resource: &str) -> bool {
    CLUSTER_SCOPED
        .iter()
        .any(|(known, resources)| *known == group && resources.contains(&resource))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_is_cluster_scoped() {
        for (group, resource) in [
            ("", "nodes"),
            ("", "namespaces"),
            ("storage.k8s.io", "csinodes"),
            ("portcullis.dev", "authorizationpolicies"),
            ("portcullis.dev", "admissionexceptions"),
        ] {
            assert!(is_known_cluster_scoped(group, resource), "{group}/{resource}");
        }
        for (group, resource) in [
            ("", "pods"),
            ("*", "nodes"),
            ("", "*"),
            ("example.com", "nodes"),
            ("apps", "deployments"),
        ] {
            assert!(!is_known_cluster_scoped(group, resource), "{group}/{resource}");
        }
    }
}
