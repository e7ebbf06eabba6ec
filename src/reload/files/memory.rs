//! How much memory the objects of manifest files may take.
//!
//! ```text
//! memory of the process ── 1/2  manifests: those for every cluster as much of it as they need,
//!                               at most a quarter of it, in equal parts, those of single clusters
//! ```
//!
//! A newer set is read while the one in force is kept, and objects of watched clusters may take half
//! of the memory: what single clusters write leaves the rest its room even then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use crate::config::ManifestPath;
use crate::config::memory::{LEAST_MEMORY, memory_of_process};
use portcullis_policy::manifest::{MemoryBudget, SourceLimits};

/// Has the long document that is read, of all files of the process.
static LONG_DOCUMENTS: Mutex<()> = Mutex::new(());

/// What manifests may take together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ManifestMemory {
    pub(crate) bytes: usize,
}

/// What those of each cluster may take, where those for every cluster are known.
#[derive(Debug)]
pub(crate) struct ClusterBudgets(BTreeMap<String, MemoryBudget>);

// === impl ManifestMemory ===

impl ManifestMemory {
    /// Of this process.
    pub(crate) fn of_process() -> Self {
        Self {
            bytes: memory_of_process().unwrap_or(LEAST_MEMORY) / 2,
        }
    }

    /// What the files for every cluster may take.
    pub(crate) const fn everywhere(self) -> MemoryBudget {
        MemoryBudget::new(self.bytes)
    }

    /// What each cluster that has some of `paths` may take where those for every cluster leave so
    /// many bytes.
    pub(crate) fn of_clusters(self, paths: &[ManifestPath], left: usize) -> ClusterBudgets {
        let clusters: BTreeSet<&String> = paths.iter().filter_map(|path| path.cluster.as_ref()).collect();
        let share = left.min(self.bytes / 4) / clusters.len().max(1);
        let budget = |cluster: &String| (cluster.clone(), MemoryBudget::new(share));
        ClusterBudgets(clusters.into_iter().map(budget).collect())
    }
}

// === impl ClusterBudgets ===

impl ClusterBudgets {
    /// That of a cluster.
    pub(crate) fn of(&self, cluster: &str) -> &MemoryBudget {
        static NONE: MemoryBudget = MemoryBudget::new(0);
        self.0.get(cluster).unwrap_or(&NONE)
    }
}

/// The limits of a source with this budget.
pub(crate) fn limits(memory: &MemoryBudget) -> SourceLimits<'_> {
    SourceLimits {
        memory,
        long_documents: &LONG_DOCUMENTS,
    }
}
