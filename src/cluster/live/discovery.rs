//! What an API server serves (aggregated discovery, `apidiscovery.k8s.io`).

use serde::Deserialize;

use super::ListedPlace;
use super::access::{ApiAccess, LiveError};
use crate::cluster::discovered::{ACCEPT, DiscoveredGroup, DiscoveredGroups};

/// A resource in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind of its objects.
    pub kind: String,
    /// The resource, in the plural.
    pub resource: String,
    /// Whether its objects live in namespaces.
    pub is_namespaced: bool,
    /// What may be done.
    pub verbs: Vec<String>,
}

/// What an API server says of its version (`version.Info`).
#[derive(Deserialize)]
struct ServerVersion {
    /// Such as `37`; some distributions write `37+`.
    minor: String,
}

/// The minor version of the API server; `None` where it says none, or not to this user.
pub(crate) async fn minor_version(access: &ApiAccess) -> Option<u32> {
    let version: ServerVersion = access.get("/version", "application/json").await.ok()?;
    let digits = version
        .minor
        .trim_end_matches(|character: char| !character.is_ascii_digit());
    digits.parse().ok()
}

/// Everything that is served, the versions of a group in its order of preference.
pub(crate) async fn resources(access: &ApiAccess) -> Result<Vec<ServedResource>, LiveError> {
    let mut all = Vec::new();
    for path in ["/api", "/apis"] {
        let list: DiscoveredGroups = access
            .get(path, ACCEPT)
            .await
            .map_err(|error| error.asking("what it serves"))?;
        let groups = list.at(path).map_err(|why| LiveError::Failed {
            what: "cannot ask the API server for what it serves".to_owned(),
            why,
        })?;
        all.extend(groups.into_iter().flat_map(DiscoveredGroup::resources));
    }
    Ok(all)
}

impl DiscoveredGroup {
    fn resources(self) -> impl Iterator<Item = ServedResource> {
        let group = self.metadata.name;
        self.versions.into_iter().flat_map(move |version| {
            let group = group.clone();
            let resources = version.resources.into_iter();
            resources.filter_map(move |resource| {
                Some(ServedResource {
                    group: group.clone(),
                    version: version.version.clone(),
                    kind: resource.response_kind?.kind,
                    resource: resource.resource,
                    is_namespaced: resource.scope == "Namespaced",
                    verbs: resource.verbs,
                })
            })
        })
    }
}

// === impl ServedResource ===

impl ServedResource {
    /// Such as `v1` or `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Such as `pods` or `deployments.apps`.
    #[must_use]
    pub fn name(&self) -> String {
        match self.group.as_str() {
            "" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        }
    }

    /// Whether all of these may be done.
    #[must_use]
    pub fn has_verbs(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|own| own == verb))
    }

    pub(crate) fn is(&self, api_version: &str, kind: &str) -> bool {
        self.kind == kind && self.api_version() == api_version && self.has_verbs(&["list"])
    }

    /// Where its objects are; those without namespace are in the same place everywhere.
    pub(crate) fn path(&self, place: ListedPlace<'_>) -> String {
        let version = match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match place {
            ListedPlace::Namespace(namespace) if self.is_namespaced => {
                format!("{version}/namespaces/{namespace}/{}", self.resource)
            }
            _ => format!("{version}/{}", self.resource),
        }
    }
}
