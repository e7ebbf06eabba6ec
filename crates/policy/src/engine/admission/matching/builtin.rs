//! The resources of Kubernetes itself that have more than one name, as API
//! servers of version 1.36 and 1.37 register them (their `api/openapi-spec/swagger.json`,
//! and `pkg/kubeapiserver/default_storage_factory_builder.go` for groups that
//! share what is stored).

use super::Equivalents;
use crate::engine::admission::{GroupVersionKind, GroupVersionResource};
use crate::engine::groups;

/// Resources with more than one version: group, resource, kind, versions,
/// and whether there is a `status` of each.
const SEVERAL: [(&str, &str, &str, &[&str], bool); 19] = [
    (
        groups::ADMISSION,
        "mutatingadmissionpolicies",
        "MutatingAdmissionPolicy",
        POLICY,
        false,
    ),
    (
        groups::ADMISSION,
        "mutatingadmissionpolicybindings",
        "MutatingAdmissionPolicyBinding",
        POLICY,
        false,
    ),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        &["v1", "v2"],
        true,
    ),
    (
        "certificates.k8s.io",
        "clustertrustbundles",
        "ClusterTrustBundle",
        POLICY,
        false,
    ),
    (
        "certificates.k8s.io",
        "podcertificaterequests",
        "PodCertificateRequest",
        BETA,
        true,
    ),
    (
        "coordination.k8s.io",
        "leasecandidates",
        "LeaseCandidate",
        &["v1alpha2", "v1beta1"],
        false,
    ),
    ("networking.k8s.io", "ipaddresses", "IPAddress", BETA, false),
    ("networking.k8s.io", "servicecidrs", "ServiceCIDR", BETA, true),
    ("resource.k8s.io", "deviceclasses", "DeviceClass", DEVICES, false),
    (
        "resource.k8s.io",
        "resourceclaims",
        "ResourceClaim",
        DEVICES,
        true,
    ),
    (
        "resource.k8s.io",
        "resourceclaimtemplates",
        "ResourceClaimTemplate",
        DEVICES,
        false,
    ),
    (
        "resource.k8s.io",
        "resourceslices",
        "ResourceSlice",
        DEVICES,
        false,
    ),
    (
        "resource.k8s.io",
        "devicetaintrules",
        "DeviceTaintRule",
        &["v1", "v1alpha3", "v1beta2"],
        true,
    ),
    ("scheduling.k8s.io", "podgroups", "PodGroup", GROUPS, true),
    ("scheduling.k8s.io", "workloads", "Workload", GROUPS, false),
    (
        "storage.k8s.io",
        "volumeattributesclasses",
        "VolumeAttributesClass",
        BETA,
        false,
    ),
    (
        "storagemigration.k8s.io",
        "storageversionmigrations",
        "StorageVersionMigration",
        BETA,
        true,
    ),
    ("", "events", "Event", &["v1"], false),
    ("events.k8s.io", "events", "Event", &["v1"], false),
];

const GROUPS: &[&str] = &["v1alpha2", "v1alpha3", "v1beta1"];
const POLICY: &[&str] = &["v1", "v1alpha1", "v1beta1"];
const BETA: &[&str] = &["v1", "v1beta1"];
const DEVICES: &[&str] = &["v1", "v1beta1", "v1beta2"];

impl Equivalents {
    /// Those of Kubernetes itself.
    #[must_use]
    pub fn kubernetes() -> Self {
        let mut equivalents = Self::new();
        for (group, resource, kind, versions, has_status) in SEVERAL {
            // Events of both groups are stored as one.
            let class = if resource == "events" { resource } else { "" };
            for version in versions {
                for subresource in if has_status { &["", "status"][..] } else { &[""] } {
                    let resource = GroupVersionResource {
                        group: group.into(),
                        version: (*version).into(),
                        resource: resource.into(),
                    };
                    let kind = GroupVersionKind {
                        group: group.into(),
                        version: (*version).into(),
                        kind: kind.into(),
                    };
                    equivalents.register(class, resource, subresource, kind);
                }
            }
        }
        equivalents
    }
}
