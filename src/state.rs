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
//! holds back only those.

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
mod source;
mod watch;
mod watched;
mod writable;

use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use arc_swap::{ArcSwap, Guard};

use crate::telemetry::per_worker::{WorkerRef, WorkerRefs};

use portcullis_policy::field::Faults;

use last_good::Saver;

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
pub use source::{FilesAlone, LeftOutCounts, ManifestSource, Origin, SourceFiles, SourceStatus};
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

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) mod fixtures;
}
