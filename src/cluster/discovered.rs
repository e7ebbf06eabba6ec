//! The wire types of aggregated discovery (`apidiscovery.k8s.io`), as far as they are read.

use serde::Deserialize;

/// The forms in which the lists of groups may come, best first.
pub(crate) const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                                 application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// `APIGroupDiscoveryList`.
#[derive(Deserialize)]
pub(crate) struct DiscoveredGroups {
    kind: String,
    #[serde(default)]
    items: Vec<DiscoveredGroup>,
}

#[derive(Deserialize)]
pub(crate) struct DiscoveredGroup {
    #[serde(default)]
    pub(crate) metadata: GroupName,
    #[serde(default)]
    pub(crate) versions: Vec<DiscoveredVersion>,
}

#[derive(Default, Deserialize)]
pub(crate) struct GroupName {
    #[serde(default)]
    pub(crate) name: String,
}

#[derive(Deserialize)]
pub(crate) struct DiscoveredVersion {
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) resources: Vec<DiscoveredResource>,
    /// `Current`, or `Stale` where the server behind it does not answer.
    #[serde(default)]
    pub(crate) freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DiscoveredResource {
    pub(crate) resource: String,
    #[serde(default)]
    pub(crate) response_kind: Option<DiscoveredKind>,
    #[serde(default)]
    pub(crate) scope: String,
    #[serde(default)]
    pub(crate) verbs: Vec<String>,
}

#[derive(Deserialize)]
pub(crate) struct DiscoveredKind {
    pub(crate) kind: String,
}

// === impl DiscoveredGroups ===

impl DiscoveredGroups {
    /// The groups at `path`, or why it does not say what is in them.
    pub(crate) fn at(self, path: &str) -> Result<Vec<DiscoveredGroup>, String> {
        if self.kind == "APIGroupDiscoveryList" {
            return Ok(self.items);
        }
        Err(format!(
            "`{path}` is {} and no APIGroupDiscoveryList, as since Kubernetes 1.26",
            self.kind
        ))
    }
}
