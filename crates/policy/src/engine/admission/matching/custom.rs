//! Custom resources, as their CustomResourceDefinitions have them.

use std::sync::Arc;

use crate::engine::admission::{GroupVersionKind, GroupVersionResource};
use portcullis_cel::json::Node;

/// What a CustomResourceDefinition says of its resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomResource {
    /// The API group.
    pub group: String,
    /// The name of the resource: `spec.names.plural`.
    pub resource: String,
    /// The kind of its objects.
    pub kind: String,
    /// Whether they live in no namespace.
    pub is_cluster_scoped: bool,
    versions: Vec<CustomVersion>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CustomVersion {
    name: String,
    has_status: bool,
    has_scale: bool,
}

/// The custom resources that are known, each once, by group and name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CustomResources(Arc<[Arc<CustomResource>]>);

/// A resource of one version, and the kind of its objects.
pub(crate) type Named<'c> = (GroupVersionResource<'c>, GroupVersionKind<'c>);

// === impl CustomResource ===

impl CustomResource {
    /// That of a CustomResourceDefinition; `None` of any other object.
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

    /// The versions, those too that are not served.
    pub fn versions(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().map(|version| version.name.as_str())
    }

    /// The same resource in each version that has the subresource, those too that are not served
    /// (`getOrCreateServingInfoFor` of `apiextensions-apiserver/pkg/apiserver/customresource_handler.go`).
    fn named(&self, subresource: &str) -> Vec<Named<'_>> {
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
    /// Each of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CustomResource>> {
        self.0.iter()
    }

    /// The names of `resource` with its subresource in each version; `None` where it is not known.
    pub(crate) fn named(
        &self,
        resource: &GroupVersionResource<'_>,
        subresource: &str,
    ) -> Option<Vec<Named<'_>>> {
        let name = (resource.group.as_ref(), resource.resource.as_ref());
        let place = self.0.binary_search_by_key(&name, |one| one.name()).ok()?;
        Some(self.0.get(place)?.named(subresource))
    }
}

impl FromIterator<Arc<CustomResource>> for CustomResources {
    /// Of several of one name, the first.
    fn from_iter<I: IntoIterator<Item = Arc<CustomResource>>>(all: I) -> Self {
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by(|one, other| one.name().cmp(&other.name()));
        all.dedup_by(|one, other| one.name() == other.name());
        Self(all.into())
    }
}
