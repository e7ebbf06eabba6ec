//! Reload: watches files and swaps the snapshot as a whole.
//!
//! ```text
//!  watch, poll, SIGHUP --> files: what is there now? --(changed)--> load: read, check, build aside
//!                                                                       |
//!            ReloadState::current() <-- one pointer --- Snapshot <--(no fault)-'--(faults)--> log, count, keep
//!                                                                       |
//!                              ManifestSource: objects of clusters -----'
//! ```
//!
//! A request takes [`ReloadState::current`] once and uses it until the end: it sees one
//! set of manifests, callers and certificates, whose revision is in its decision log
//! line. A fault in a file of all clusters rejects the whole set; a fault in the files of one cluster
//! holds back only those. A [`ManifestSource`] brings objects that are in no file.

mod assemble;
mod bundles;
mod changed_objects;
mod files;
mod held_back;
mod index;
mod inventory;
mod job;
mod last_good;
mod load;
mod snapshot;
mod watch;
mod watched;
mod writable;

use std::collections::BTreeSet;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use arc_swap::{ArcSwap, Guard};

use crate::config::{Config, HeldBack};
use crate::telemetry::per_worker::{WorkerRef, WorkerRefs};
use last_good::Saver;
use portcullis_policy::field::Faults;

pub use assemble::Trial;
pub use bundles::{BundleObserver, BundlePuller, PullResult, pull_bundles};
pub use changed_objects::{ChangedObjectKey, ObjectChange, ObjectChanges, WrittenObjects};
pub(crate) use files::manifest_files_at;
pub use files::{applied_manifests, read_manifest, read_manifests};
pub use index::admission_settings;
pub use inventory::{Change, ChangedSettings, LoadedObjects, Restriction};
pub use last_good::LastGoodError;
pub use load::{check, last_good, load, policies};
pub use snapshot::Snapshot;
pub use watch::{RELOAD_TIMEOUT, ReloadAttempt, ReloadObserver, Reloader, Trigger, log};
pub use watched::{
    ClusterRegistrations, UnsyncedAnswer, UnsyncedCluster, WatchedObjects, WatchedPart, WatchedRegistration,
    WatchedRegistrations, WatchedText,
};

/// The snapshot in force, and how the last attempt to replace it went.
pub struct ReloadState {
    current: ArcSwap<WorkerRefs<Snapshot>>,
    source: Arc<dyn ManifestSource>,
    last: Mutex<LastReload>,
    saver: Saver,
    observers: Mutex<Vec<SnapshotObserver>>,
}

/// The snapshot that was in force when it was asked for.
pub struct CurrentSnapshot(Guard<Arc<WorkerRefs<Snapshot>>>);

/// Told of each snapshot just before it comes into force: what this does is done when
/// the first request sees the snapshot.
type SnapshotObserver = Box<dyn Fn(&Arc<Snapshot>) + Send + Sync>;

/// How the last attempts to replace the files went.
#[derive(Debug, Default)]
struct LastReload {
    failure: Option<ReloadFailure>,
    change: Option<Change>,
}

/// A reload that changed nothing, so far.
#[derive(Debug, Clone)]
pub struct ReloadFailure {
    /// When it was tried.
    pub at: SystemTime,
    /// Why it was refused.
    pub faults: Arc<Faults>,
    /// It has not ended yet, and takes effect when it does.
    pub is_hanging: bool,
}

// === impl CurrentSnapshot ===

impl Deref for CurrentSnapshot {
    type Target = Arc<Snapshot>;

    fn deref(&self) -> &Arc<Snapshot> {
        self.0.shared()
    }
}

// === impl ReloadState ===

impl ReloadState {
    /// A state in which `snapshot` is in force, whose `source` may change it.
    #[must_use]
    pub fn new(snapshot: Snapshot, source: Arc<dyn ManifestSource>) -> Arc<Self> {
        Self::after(None, snapshot, source)
    }

    /// The same where `snapshot` is the last good one, and what the files say now failed to load.
    #[must_use]
    pub fn of_last_good(
        failure: ReloadFailure,
        snapshot: Snapshot,
        source: Arc<dyn ManifestSource>,
    ) -> Arc<Self> {
        Self::after(Some(failure), snapshot, source)
    }

    fn after(
        failure: Option<ReloadFailure>,
        mut snapshot: Snapshot,
        source: Arc<dyn ManifestSource>,
    ) -> Arc<Self> {
        snapshot.save();
        let last = LastReload {
            failure,
            change: None,
        };
        Arc::new(Self {
            current: ArcSwap::from_pointee(WorkerRefs::new(Arc::new(snapshot))),
            source,
            last: Mutex::new(last),
            saver: Saver::default(),
            observers: Mutex::default(),
        })
    }

    /// Where objects come from besides the files.
    #[must_use]
    pub fn source(&self) -> &dyn ManifestSource {
        &*self.source
    }

    /// The snapshot in force, for a short while.
    #[must_use]
    pub fn current(&self) -> CurrentSnapshot {
        CurrentSnapshot(self.current.load())
    }

    /// The same for a request, which takes it once. What is counted of its references is the worker's own.
    #[must_use]
    pub(crate) fn for_request(&self) -> WorkerRef<Snapshot> {
        self.current.load().own()
    }

    /// Has `observer` told of the snapshot in force, here and now, and then of each just
    /// before it comes into force. Reloads wait for it.
    pub fn observe(&self, observer: impl Fn(&Arc<Snapshot>) + Send + Sync + 'static) {
        let mut observers = self.observers();
        observer(&self.current());
        observers.push(Box::new(observer));
    }

    /// The failure of the last reload, where it failed; for readiness detail.
    #[must_use]
    pub fn last_failure(&self) -> Option<ReloadFailure> {
        self.last().failure.clone()
    }

    /// What the last reload that succeeded changed; `None` where there was none since the start.
    #[must_use]
    pub fn last_change(&self) -> Option<Change> {
        self.last().change.clone()
    }

    /// Starts to follow the sources other than files, which report changes to `trigger`.
    ///
    /// # Errors
    ///
    /// Those of [`ManifestSource::start`].
    pub fn start_source(&self, trigger: Trigger) -> io::Result<()> {
        self.source.start(trigger)?;
        self.source.snapshot_applied(&self.current());
        Ok(())
    }

    /// Puts `snapshot`, of files just read, in force for every request that begins after this.
    fn replace(&self, mut snapshot: Snapshot, change: Change) {
        if let Some(unsaved) = snapshot.unsaved.take() {
            self.saver.save(unsaved);
        }
        *self.last() = LastReload {
            failure: None,
            change: Some(change),
        };
        self.refresh(snapshot);
    }

    /// The same where the files are those of before: a failure to load newer ones still stands.
    fn refresh(&self, snapshot: Snapshot) {
        let (observers, snapshot) = (self.observers(), Arc::new(snapshot));
        observers.iter().for_each(|observer| observer(&snapshot));
        self.current.store(Arc::new(WorkerRefs::new(snapshot)));
        drop(observers);
        self.source.snapshot_applied(&self.current());
    }

    /// Keeps the snapshot in force and remembers why.
    fn keep(&self, failure: ReloadFailure) {
        self.last().failure = Some(failure);
    }

    /// Held while a snapshot is replaced, so that none comes into force unseen.
    fn observers(&self) -> MutexGuard<'_, Vec<SnapshotObserver>> {
        self.observers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> MutexGuard<'_, LastReload> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// Sources of manifests other than files.

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

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) mod fixtures;
}
