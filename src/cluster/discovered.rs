//! The wire types of aggregated discovery (`apidiscovery.k8s.io`), as far as they are read.

use serde::Deserialize;

/// The forms in which the lists of groups may come, best first.
pub(super) const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                                 application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

#[derive(Deserialize)]
pub(super) struct DiscoveredGroup {
    #[serde(default)]
    pub(super) metadata: GroupName,
    #[serde(default)]
    pub(super) versions: Vec<DiscoveredVersion>,
}

#[derive(Default, Deserialize)]
pub(super) struct GroupName {
    #[serde(default)]
    pub(super) name: String,
}

#[derive(Deserialize)]
pub(super) struct DiscoveredVersion {
    pub(super) version: String,
    #[serde(default)]
    pub(super) resources: Vec<DiscoveredResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DiscoveredResource {
    pub(super) resource: String,
    #[serde(default)]
    pub(super) response_kind: Option<DiscoveredKind>,
    #[serde(default)]
    pub(super) scope: String,
    #[serde(default)]
    pub(super) verbs: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct DiscoveredKind {
    pub(super) kind: String,
}
