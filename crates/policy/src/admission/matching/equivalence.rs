//! Equivalent resources: `matchPolicy: Equivalent`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::admission::{GroupVersionKind, GroupVersionResource};
use crate::model::groups;
use portcullis_cel::json::Node;

/// The known equivalent resources (`EquivalentResourceRegistry` of
/// `apimachinery/pkg/runtime/mapper.go`).
///
/// The versions of one resource are equivalent, and so are resources of different groups that the
/// API server stores as one.
#[derive(Debug, Clone, Default)]
pub struct Equivalents {
    /// Sorted, so that the first match is always the same.
    classes: BTreeMap<String, Vec<RegisteredResource>>,
    /// The class of each group and resource.
    class_of: HashMap<(String, String), String>,
    custom: CustomResources,
}

#[derive(Debug, Clone)]
struct RegisteredResource {
    resource: GroupVersionResource<'static>,
    subresource: String,
    kind: GroupVersionKind<'static>,
}

// === impl Equivalents ===

impl Equivalents {
    /// Creates an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a resource. Resources of one `class` are equivalent; an empty string means the class of
    /// all versions of the resource in its group.
    pub fn register(
        &mut self,
        class: &str,
        resource: GroupVersionResource<'static>,
        subresource: &str,
        kind: GroupVersionKind<'static>,
    ) {
        let class = match class {
            "" => format!("{}/{}", resource.group, resource.resource),
            class => class.to_owned(),
        };
        let names = (resource.group.to_string(), resource.resource.to_string());
        self.class_of.insert(names, class.clone());
        let registered = RegisteredResource {
            resource,
            subresource: subresource.to_owned(),
            kind,
        };
        self.classes.entry(class).or_default().push(registered);
    }

    /// Returns the registry with these custom resources.
    #[must_use]
    pub fn with(&self, custom: CustomResources) -> Self {
        Self {
            custom,
            ..self.clone()
        }
    }

    pub(crate) const fn custom(&self) -> &CustomResources {
        &self.custom
    }

    /// The equivalents of a resource with its subresource, including itself, in the order of
    /// registration, with their kinds. `None` if the resource is not known.
    pub(crate) fn of(
        &self,
        resource: &GroupVersionResource<'_>,
        subresource: &str,
    ) -> Option<Vec<ResourceAndKind<'_>>> {
        let Some(class) = self.class(&resource.group, &resource.resource) else {
            return match is_built_in_version(resource) {
                true => Some(Vec::new()),
                false => self.custom.named(resource, subresource),
            };
        };
        let same = class.iter().filter(|one| one.subresource == subresource);
        Some(same.map(|one| (one.resource.clone(), one.kind.clone())).collect())
    }

    /// Whether the resource with its subresource is known in this version.
    pub(crate) fn has(&self, resource: &GroupVersionResource<'_>, subresource: &str) -> bool {
        let of = self.of(resource, subresource);
        of.is_some_and(|all| all.iter().any(|(one, _)| one == resource) || is_built_in_version(resource))
    }

    /// The groups and versions of each class of equivalent resources that `resource` of `group`
    /// belongs to; for `*`, of each resource of the group. Empty for resources with only one name,
    /// and for unknown ones.
    pub fn names(
        &self,
        group: &str,
        resource: &str,
    ) -> impl Iterator<Item = Vec<GroupVersionResource<'static>>> {
        let classes = self.classes_of(group, resource).into_iter();
        classes.map(|class| {
            let whole = class.iter().filter(|one| one.subresource.is_empty());
            whole.map(|one| one.resource.clone()).collect()
        })
    }

    /// The equivalents in other groups of `resource` of `group`; for `*`, of each resource of the
    /// group.
    pub(crate) fn in_other_groups(&self, group: &str, resource: &str) -> BTreeSet<(&str, &str)> {
        let meant = self.classes_of(group, resource).into_iter().flatten();
        let others = meant.filter(|one| one.resource.group != group);
        others
            .map(|one| (one.resource.group.as_ref(), one.resource.resource.as_ref()))
            .collect()
    }

    /// The classes of `resource` of `group`; `*` means each resource of the group.
    fn classes_of(&self, group: &str, resource: &str) -> Vec<&[RegisteredResource]> {
        if resource != "*" {
            return self.class(group, resource).into_iter().collect();
        }
        let classes = self.classes.values().map(Vec::as_slice);
        classes
            .filter(|class| class.iter().any(|one| one.resource.group == group))
            .collect()
    }

    fn class(&self, group: &str, resource: &str) -> Option<&[RegisteredResource]> {
        let names = (group.to_owned(), resource.to_owned());
        // `register` adds to both maps, so the class exists.
        let class = self.class_of.get(&names)?;
        self.classes.get(class).map(Vec::as_slice)
    }
}

// The built-in resources that have more than one name, as API servers of version 1.36 and 1.37
// register them (their `api/openapi-spec/swagger.json`, and
// `pkg/kubeapiserver/default_storage_factory_builder.go` for groups that share storage).

/// Group, resource, kind, versions, and whether there is a `status` subresource.
const MULTI_VERSION_RESOURCES: [(&str, &str, &str, &[&str], bool); 19] = [
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
    /// The equivalents among built-in resources.
    #[must_use]
    pub fn kubernetes() -> Self {
        let mut equivalents = Self::new();
        for (group, resource, kind, versions, has_status) in MULTI_VERSION_RESOURCES {
            // Events of both groups share storage.
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

// The versions of Kubernetes' own groups, as API servers of version 1.36 and 1.37 serve them (their
// `api/openapi-spec/swagger.json`).

/// The groups and their versions. Other versions, such as those of an older API server, are not
/// known.
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

/// Whether the group and version are built in. A built-in resource that is not registered as
/// equivalent to others has only this name.
pub(crate) fn is_built_in_version(resource: &GroupVersionResource<'_>) -> bool {
    VERSIONS.iter().any(|(group, versions)| {
        *group == resource.group && versions.iter().any(|version| *version == resource.version)
    })
}

// Custom resources, from their CustomResourceDefinitions.

/// The resource that a CustomResourceDefinition defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomResource {
    /// The API group.
    pub group: String,
    /// The name of the resource: `spec.names.plural`.
    pub resource: String,
    /// The kind of its objects.
    pub kind: String,
    /// Whether its objects are cluster-scoped.
    pub is_cluster_scoped: bool,
    versions: Vec<CustomVersion>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CustomVersion {
    name: String,
    has_status: bool,
    has_scale: bool,
}

/// The known custom resources, sorted by group and name, without duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CustomResources(Arc<[Arc<CustomResource>]>);

/// A resource in one version, and the kind of its objects.
pub(crate) type ResourceAndKind<'c> = (GroupVersionResource<'c>, GroupVersionKind<'c>);

// === impl CustomResource ===

impl CustomResource {
    /// Reads a CustomResourceDefinition; `None` for any other object.
    #[must_use]
    pub fn of(definition: Node<'_>) -> Option<Self> {
        let text = |node: Node<'_>, field: &str| Some(node.get(field)?.as_str()?.into_owned());
        let spec = definition.get("spec")?;
        let names = spec.get("names")?;
        let version = |version: Node<'_>| {
            let has = |name: &str| {
                let subresource = version.get("subresources").and_then(|all| all.get(name));
                subresource.is_some_and(|subresource| !subresource.is_null())
            };
            Some(CustomVersion {
                name: text(version, "name")?,
                has_status: has("status"),
                has_scale: has("scale"),
            })
        };
        Some(Self {
            group: text(spec, "group")?,
            resource: text(names, "plural")?,
            kind: text(names, "kind")?,
            is_cluster_scoped: text(spec, "scope")? == "Cluster",
            versions: spec
                .get("versions")
                .into_iter()
                .flat_map(Node::items)
                .filter_map(version)
                .collect(),
        })
    }

    /// The versions, including those that are not served.
    pub fn versions(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().map(|version| version.name.as_str())
    }

    /// The resource in each version that has the subresource, including versions that are not
    /// served (`getOrCreateServingInfoFor` of
    /// `apiextensions-apiserver/pkg/apiserver/customresource_handler.go`).
    fn named(&self, subresource: &str) -> Vec<ResourceAndKind<'_>> {
        let has = |version: &&CustomVersion| match subresource {
            "" => true,
            "status" => version.has_status,
            "scale" => version.has_scale,
            _ => false,
        };
        let versions = self.versions.iter().filter(has);
        versions
            .map(|version| (self.resource_in(version), self.kind_in(version, subresource)))
            .collect()
    }

    fn resource_in<'c>(&'c self, version: &'c CustomVersion) -> GroupVersionResource<'c> {
        GroupVersionResource {
            group: self.group.as_str().into(),
            version: version.name.as_str().into(),
            resource: self.resource.as_str().into(),
        }
    }

    fn kind_in<'c>(&'c self, version: &'c CustomVersion, subresource: &str) -> GroupVersionKind<'c> {
        let (group, version, kind) = match subresource {
            "scale" => ("autoscaling", "v1", "Scale"),
            _ => (self.group.as_str(), version.name.as_str(), self.kind.as_str()),
        };
        GroupVersionKind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    fn name(&self) -> (&str, &str) {
        (&self.group, &self.resource)
    }
}

// === impl CustomResources ===

impl CustomResources {
    /// The resources, sorted by group and name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CustomResource>> {
        self.0.iter()
    }

    /// `resource` with its subresource in each version; `None` if it is not known.
    pub(crate) fn named(
        &self,
        resource: &GroupVersionResource<'_>,
        subresource: &str,
    ) -> Option<Vec<ResourceAndKind<'_>>> {
        let name = (resource.group.as_ref(), resource.resource.as_ref());
        let place = self.0.binary_search_by_key(&name, |one| one.name()).ok()?;
        Some(self.0.get(place)?.named(subresource))
    }
}

impl FromIterator<Arc<CustomResource>> for CustomResources {
    /// Of several resources with one name, the first is kept.
    fn from_iter<I: IntoIterator<Item = Arc<CustomResource>>>(all: I) -> Self {
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by(|one, other| one.name().cmp(&other.name()));
        all.dedup_by(|one, other| one.name() == other.name());
        Self(all.into())
    }
}
