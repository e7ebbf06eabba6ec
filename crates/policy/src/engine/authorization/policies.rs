//! The policy sets of every cluster.

use std::collections::HashMap;
use std::sync::Arc;

use super::PolicySet;

/// The shared policies, and for each cluster that has manifests of its own the
/// shared ones together with those.
#[derive(Debug, Clone)]
pub struct Policies {
    /// What holds for a cluster without manifests of its own.
    pub shared: Arc<PolicySet>,
    /// What holds for the clusters that have some, shared manifests included.
    pub clusters: HashMap<String, Arc<PolicySet>>,
}

impl Policies {
    /// What decides for `cluster`.
    #[must_use]
    pub fn for_cluster(&self, cluster: &str) -> &Arc<PolicySet> {
        self.clusters.get(cluster).unwrap_or(&self.shared)
    }
}
