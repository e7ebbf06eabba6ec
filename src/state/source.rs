//! Manifest sources other than files.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::snapshot::Snapshot;
use super::watch::schedule::Trigger;
use super::watched::WatchedObjects;
use crate::config::{Config, HeldBack};
use portcullis_policy::field::Faults;

/// Where objects come from besides the files, and change by themselves; those of a source that has no more
/// than [`objects`](Self::objects) stay as they are.
///
/// It reports a change by a [`Trigger`]. Its objects are
/// valid: a fault of one object affects no other.
pub trait ManifestSource: Send + Sync {
    /// Starts to follow its objects, and reports changes to the trigger. Called once.
    ///
    /// # Errors
    ///
    /// The operating system refused a thread.
    fn start(&self, _trigger: Trigger) -> io::Result<()> {
        Ok(())
    }

    /// The files that the configuration names for it, and what is wrong with them. Blocks.
    fn check(&self, _config: &Config) -> SourceFiles {
        SourceFiles::default()
    }

    /// What holds now for each cluster of `config`. Blocks where that must
    /// first be read from a disk; it waits for no server.
    fn objects(&self, config: &Config) -> Vec<Arc<WatchedObjects>>;

    /// The snapshot is in force: its configuration says what to follow, its
    /// policies which parameters they take. Called again with each snapshot.
    fn snapshot_applied(&self, _snapshot: &Snapshot) {}

    /// What the API server of `cluster` calls the gateway's own user, where the credentials say.
    fn own_user(&self, _cluster: &str) -> Option<String> {
        None
    }

    /// How it stands with each cluster, in the order of the configuration.
    fn status(&self) -> Vec<SourceStatus> {
        Vec::new()
    }
}

/// The files of a source.
#[derive(Debug, Default)]
pub struct SourceFiles {
    /// Every one.
    pub files: BTreeSet<PathBuf>,
    /// What is wrong with those that the gateway's administrator wrote.
    pub faults: Faults,
    /// What is wrong with those of a cluster, which is followed as before.
    pub of_clusters: HeldBack,
}

/// How it stands with one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceStatus {
    /// The cluster.
    pub cluster: String,
    /// What its objects are.
    pub origin: Origin,
    /// How many objects there are.
    pub objects: usize,
    /// How many have faults; of each the last good version holds, if there was one.
    pub faulty: usize,
    /// The faults of some of these.
    pub faults: Vec<Faults>,
    /// How many lists and watches have failed since the start.
    pub failures: u64,
    /// The kinds that are absent, or of which objects are, where that is not believed; each with
    /// the reason. What was known of them is in force.
    pub doubts: Vec<String>,
    /// The kinds of which something older may be in force than the API server has, each with the
    /// reason.
    pub outdated: Vec<String>,
    /// How many objects are too large to be taken, or have no room.
    pub left_out: LeftOutCounts,
}

/// How many objects of a cluster were left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOutCounts {
    /// Of RBAC, and Namespaces.
    pub rbac: usize,
    /// AuthorizationPolicies, policies and webhooks of admission, and the like.
    pub policies: usize,
    /// Parameters.
    pub parameters: usize,
    /// AccessRequests.
    pub access_requests: usize,
}

/// Where the objects of a cluster are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// There are none yet: the files alone hold.
    Nowhere,
    /// As they were when they were last saved.
    Saved,
    /// As the API server reports them.
    Live,
}

/// No such source: the files alone.
#[derive(Debug, Clone, Copy)]
pub struct FilesAlone;

// === impl FilesAlone ===

impl ManifestSource for FilesAlone {
    fn objects(&self, _: &Config) -> Vec<Arc<WatchedObjects>> {
        Vec::new()
    }
}
