//! Which clusters somebody may see.

use std::sync::Arc;

/// The clusters that are shown to somebody.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VisibleClusters {
    /// Every one, and what they have in common.
    All,
    /// This one. Nothing of another is shown, nor counted among what is.
    One(Arc<str>),
}

// === impl VisibleClusters ===

impl VisibleClusters {
    /// Whether `cluster` is one of them.
    #[must_use]
    pub fn contains(&self, cluster: &str) -> bool {
        self.only().is_none_or(|only| only == cluster)
    }

    /// The one cluster that is shown, where not all are.
    #[must_use]
    pub fn only(&self) -> Option<&str> {
        match self {
            Self::All => None,
            Self::One(cluster) => Some(cluster),
        }
    }
}
