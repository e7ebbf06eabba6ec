//! The wire types of aggregated discovery (`apidiscovery.k8s.io`), as far as they are read.

use serde::Deserialize;

/// The forms in which the lists of groups may come, best first.
pub(crate) const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                                 application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

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
