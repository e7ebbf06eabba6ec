//! Reload: watches files, and replaces the snapshot as a whole.
//!
//! ```text
//!  watch, poll, SIGHUP --> files: what is there now? --(changed)--> load: read, check, build
//!                                                                       |
//!            ReloadState::current() <-- one pointer --- Snapshot <--(no fault)-'--(faults)--> log, count, keep
//!                                                                       |
//!                              ManifestSource: objects of clusters -----'
//! ```
//!
//! A request takes [`ReloadState::current`] once and uses it until the end: it sees one set of
//! manifests, callers and certificates, whose revision is in its decision log line. A fault in a
//! file for all clusters rejects the whole set; a fault in the files of one cluster holds back only
//! those. A [`ManifestSource`] provides objects that are in no file.

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
    KnownWebhookConfigurations, UnsyncedCluster, UnsyncedResponse, WatchedObjects, WatchedPart,
    WatchedRegistration, WatchedText, WatchedWebhookConfigurations,
};

/// The snapshot in force, and the result of the last attempt to replace it.
pub struct ReloadState {
    current: ArcSwap<WorkerRefs<Snapshot>>,
    source: Arc<dyn ManifestSource>,
    last: Mutex<LastReload>,
    saver: Saver,
    observers: Mutex<Vec<SnapshotObserver>>,
}

/// The snapshot that was in force when it was taken.
pub struct CurrentSnapshot(Guard<Arc<WorkerRefs<Snapshot>>>);

/// Called with each snapshot just before it comes into force, so that its effects are complete when
/// the first request sees the snapshot.
type SnapshotObserver = Box<dyn Fn(&Arc<Snapshot>) + Send + Sync>;

/// The results of the last attempts to load newer files.
#[derive(Debug, Default)]
struct LastReload {
    failure: Option<ReloadFailure>,
    change: Option<Change>,
}

/// A reload that did not take effect, or not yet.
#[derive(Debug, Clone)]
pub struct ReloadFailure {
    /// When it was attempted.
    pub at: SystemTime,
    /// Why it did not take effect.
    pub faults: Arc<Faults>,
    /// Whether it is still running, and takes effect when it ends.
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
    /// Puts `snapshot` in force, which `source` may change later.
    #[must_use]
    pub fn new(snapshot: Snapshot, source: Arc<dyn ManifestSource>) -> Arc<Self> {
        Self::with_failure(None, snapshot, source)
    }

    /// Puts `snapshot` in force, which is the last good one because the current files failed to
    /// load.
    #[must_use]
    pub fn with_last_good(
        failure: ReloadFailure,
        snapshot: Snapshot,
        source: Arc<dyn ManifestSource>,
    ) -> Arc<Self> {
        Self::with_failure(Some(failure), snapshot, source)
    }

    fn with_failure(
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

    /// The source of objects other than the files.
    #[must_use]
    pub fn source(&self) -> &dyn ManifestSource {
        &*self.source
    }

    /// The snapshot in force. The guard must be held for a short time only.
    #[must_use]
    pub fn current(&self) -> CurrentSnapshot {
        CurrentSnapshot(self.current.load())
    }

    /// The snapshot in force, for a request, which takes it once. The reference is counted in the
    /// worker's own counter.
    #[must_use]
    pub(crate) fn for_request(&self) -> WorkerRef<Snapshot> {
        self.current.load().own()
    }

    /// Calls `observer` with the snapshot in force now, and later with each snapshot just before it
    /// comes into force. Reloads wait until it returns.
    pub fn observe(&self, observer: impl Fn(&Arc<Snapshot>) + Send + Sync + 'static) {
        let mut observers = self.observers();
        observer(&self.current());
        observers.push(Box::new(observer));
    }

    /// The failure of the last reload, if it failed, for the details of readiness.
    #[must_use]
    pub fn last_failure(&self) -> Option<ReloadFailure> {
        self.last().failure.clone()
    }

    /// What the last successful reload changed; `None` if there was none since the start.
    #[must_use]
    pub fn last_change(&self) -> Option<Change> {
        self.last().change.clone()
    }

    /// Starts to follow the source of objects other than files, which reports changes to `trigger`.
    ///
    /// # Errors
    ///
    /// Those of [`ManifestSource::start`].
    pub fn start_source(&self, trigger: Trigger) -> io::Result<()> {
        self.source.start(trigger)?;
        self.source.snapshot_applied(&self.current());
        Ok(())
    }

    /// Puts `snapshot`, which was loaded from files just now, in force for every request that
    /// begins after this.
    fn replace(&self, mut snapshot: Snapshot, change: Change) {
        if let Some(unsaved) = snapshot.unsaved.take() {
            self.saver.save(unsaved);
        }
        *self.last() = LastReload {
            failure: None,
            change: Some(change),
        };
        self.put_in_force(snapshot);
    }

    /// Notifies the observers and puts `snapshot` in force. The results of the last attempts to
    /// load files are not changed.
    fn put_in_force(&self, snapshot: Snapshot) {
        let (observers, snapshot) = (self.observers(), Arc::new(snapshot));
        observers.iter().for_each(|observer| observer(&snapshot));
        self.current.store(Arc::new(WorkerRefs::new(snapshot)));
        drop(observers);
        self.source.snapshot_applied(&self.current());
    }

    /// Keeps the snapshot in force, and remembers why.
    fn record_failure(&self, failure: ReloadFailure) {
        self.last().failure = Some(failure);
    }

    /// Locked while a snapshot is replaced, so that observers see every snapshot.
    fn observers(&self) -> MutexGuard<'_, Vec<SnapshotObserver>> {
        self.observers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> MutexGuard<'_, LastReload> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// Sources of manifests other than files.

/// A source of objects that are not in files and change by themselves. A source that only
/// implements [`objects`](Self::objects) does not change.
///
/// It reports changes to a [`Trigger`]. Its objects are valid: a fault in one object affects no
/// other.
pub trait ManifestSource: Send + Sync {
    /// Starts to follow its objects, and reports changes to the trigger. Called once.
    ///
    /// # Errors
    ///
    /// The operating system refuses a thread.
    fn start(&self, _trigger: Trigger) -> io::Result<()> {
        Ok(())
    }

    /// The files that the configuration names for the source, and their faults. Blocks.
    fn check(&self, _config: &Config) -> SourceFiles {
        SourceFiles::default()
    }

    /// The objects that are now in force in each cluster of `config`. Blocks if they must first be
    /// read from disk, but does not wait for a server.
    fn objects(&self, config: &Config) -> Vec<Arc<WatchedObjects>>;

    /// Called with each snapshot that comes into force: its configuration says what to follow, its
    /// policies which parameters they need.
    fn snapshot_applied(&self, _snapshot: &Snapshot) {}

    /// The gateway's own user name at the API server of `cluster`, if the credentials contain it.
    fn own_user(&self, _cluster: &str) -> Option<String> {
        None
    }

    /// The status of each cluster, in the order of the configuration.
    fn status(&self) -> Vec<SourceStatus> {
        Vec::new()
    }
}

/// The files of a source.
#[derive(Debug, Default)]
pub struct SourceFiles {
    /// All files.
    pub files: BTreeSet<PathBuf>,
    /// The faults of the files that the gateway's administrator wrote.
    pub faults: Faults,
    /// The faults of the files of single clusters, which are followed as before.
    pub cluster_faults: HeldBack,
}

/// The status of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceStatus {
    pub cluster: String,
    /// Where its objects come from.
    pub origin: Origin,
    /// The number of objects.
    pub objects: usize,
    /// The number of faulty objects. The last good version of each stays in force, if there was
    /// one.
    pub faulty: usize,
    /// The faults of some of these objects.
    pub faults: Vec<Faults>,
    /// The number of lists and watches that have failed since the start.
    pub failures: u64,
    /// The kinds that are missing, or of which objects are missing, although this is not believed;
    /// each with the reason. The known objects stay in force.
    pub doubts: Vec<String>,
    /// The kinds of which an older version may be in force than the API server has, each with the
    /// reason.
    pub outdated: Vec<String>,
    /// The objects that are too large, or for which there is no memory.
    pub left_out: LeftOutCounts,
}

/// The number of objects of a cluster that were left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOutCounts {
    /// RBAC objects and Namespaces.
    pub rbac: usize,
    /// AuthorizationPolicies, admission policies, webhook configurations, and the like.
    pub policies: usize,
    pub parameters: usize,
    pub access_requests: usize,
}

/// Where the objects of a cluster come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// There are none yet: only the files are in force.
    None,
    /// The cache file, as they were last saved.
    Saved,
    /// The API server.
    Live,
}

/// No source: only the files are in force.
#[derive(Debug, Clone, Copy)]
pub struct NoManifestSource;

// === impl NoManifestSource ===

impl ManifestSource for NoManifestSource {
    fn objects(&self, _: &Config) -> Vec<Arc<WatchedObjects>> {
        Vec::new()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) mod fixtures;
}
