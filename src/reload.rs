//! Reload: watches files and swaps the snapshot as a whole.
//!
//! ```text
//!  watch, poll, SIGHUP --> files: what is there now? --(changed)--> load: read, check, build aside
//!                                                                       |
//!            State::current() <-- one pointer --- Snapshot <--(no fault)-'--(faults)--> log, count, keep
//!                                                                       |
//!                              ManifestSource: objects of clusters -----'
//! ```
//!
//! A request takes [`ReloadState::current`] once and uses it until the end: it sees one
//! set of manifests, callers and certificates, whose revision is in its decision log
//! line. If any file of a set has a fault, the set is not used at all.

mod files;
#[cfg(test)]
pub(crate) mod fixtures;
mod held_back;
mod index;
mod inventory;
mod job;
mod last_good;
mod load;
mod source;
mod watch;
mod writable;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use arc_swap::{ArcSwap, Guard};

use crate::authentication::Authenticator;
use crate::authorizers::Authorizers;
use crate::certificates::Expiry;
use crate::config::{Config, HeldBack};
use crate::tls::TlsContext;
use crate::upstream::Upstreams;
use portcullis_policy::authorization::Policies;
use portcullis_policy::document::Document;
use portcullis_policy::engine::admission::AdmissionPolicies;
use portcullis_policy::field::Faults;
use portcullis_policy::manifest::{ObjectIdentity, ObjectSet, ValidatedObject};

use files::{ManifestFiles, Revision};
use index::IndexBasis;
use last_good::{PendingSave, Saver};

pub use files::{applied_manifests, read_manifest, read_manifests};
pub use inventory::{Change, LoadedObjects, Restriction};
pub use job::Trial;
pub use last_good::LastGoodError;
pub use load::{admission_settings, check, last_good, load, policies};
pub use source::{
    AwaitedAnswer, AwaitedCluster, FilesAlone, LeftOutCounts, ManifestSource, Origin, SourceFiles,
    SourceStatus, WatchedObjects, WatchedPart,
};
pub use watch::{RELOAD_TIMEOUT, ReloadAttempt, ReloadObserver, Reloader, Trigger, log};

/// Everything that a request is judged by, as it was at one moment.
pub struct Snapshot {
    /// Names the content of configuration and manifests, those of clusters too: equal text, equal
    /// revision, on every replica. Twelve hexadecimal digits.
    pub revision: Arc<str>,
    /// The configuration.
    pub config: Arc<Config>,
    /// What decides authorization, by cluster.
    pub policies: Policies,
    /// What decides admission, by cluster.
    pub admission: AdmissionPolicies,
    /// Who may call.
    pub authenticator: Arc<Authenticator>,
    /// Whom admission asks.
    pub upstreams: Upstreams,
    /// Other authorizers, asked where `policies` have no opinion.
    pub authorizers: Authorizers,
    /// What new connections are accepted with.
    pub tls: TlsContext,
    /// The same of the console, where it has TLS.
    pub console_tls: Option<TlsContext>,
    /// When the certificates end that the configuration names.
    pub expiries: Arc<[Expiry]>,
    /// The clusters whose own files are not in force as they are, with what is wrong with them.
    pub held_back: Arc<HeldBack>,
    basis: IndexBasis,
    base: Arc<Base>,
    /// To be saved once it is in force.
    unsaved: Option<PendingSave>,
}

/// What the files said, for when only what is outside of them changes.
struct Base {
    revision: Revision,
    files: ManifestFiles,
    objects: ObjectSet,
}

/// The snapshot in force, and how the last attempt to replace it went.
pub struct ReloadState {
    current: ArcSwap<Snapshot>,
    source: Arc<dyn ManifestSource>,
    last: Mutex<LastReload>,
    saver: Saver,
    observers: Mutex<Vec<SnapshotObserver>>,
}

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
            current: ArcSwap::from_pointee(snapshot),
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

    /// The snapshot in force. Take it once for each request.
    #[must_use]
    pub fn current(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
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
    pub fn follow(&self, trigger: Trigger) -> io::Result<()> {
        self.source.start(trigger)?;
        self.source.follow(&self.current());
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
        self.current.store(snapshot);
        drop(observers);
        self.source.follow(&self.current());
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

impl Snapshot {
    /// Saves the set as the last good one, once, where the configuration wants that.
    fn save(&mut self) {
        if let Some(unsaved) = self.unsaved.take() {
            unsaved.save();
        }
    }

    /// What putting this in force in place of `before` changes.
    fn since(&self, before: &Self) -> Change {
        Change {
            vanished: self.vanished(before),
            ..Change::of(&self.base.objects.since(&before.base.objects))
        }
    }

    /// The names of the policies, exceptions and webhook configurations in files.
    pub fn policies_of_files(&self) -> impl Iterator<Item = &str> {
        let identities = self.base.objects.others().map(|object| object.identity());
        let policies = identities.filter(|identity| {
            let kind = identity.kind();
            kind.ends_with("Policy") || kind.ends_with("Configuration") || kind == "AdmissionException"
        });
        policies.map(ObjectIdentity::name)
    }

    /// The AuthorizationPolicies and AdmissionExceptions of files that hold for `cluster`.
    #[must_use]
    pub fn own_kinds_of_files(&self, cluster: &str) -> BTreeSet<ObjectIdentity> {
        let own = self.base.objects.others().filter(|object| {
            let is_own = object.authorization_policy().is_some() || object.admission_exception().is_some();
            is_own && object.cluster().is_none_or(|of| of == cluster)
        });
        own.map(|object| object.identity().clone()).collect()
    }

    /// `cluster`, where nothing is known of it yet.
    #[must_use]
    pub fn awaited(&self, cluster: &str) -> Option<&AwaitedCluster> {
        self.basis.awaited.get(cluster)
    }

    /// Every object of files and clusters; one that is in both is in force as the files have it.
    pub fn objects_in_force(&self) -> impl Iterator<Item = &Arc<ValidatedObject>> {
        let watched = self.basis.watched.iter().flat_map(|watched| watched.objects());
        self.base.objects.objects().chain(watched)
    }

    /// The policies, bindings, exceptions and configurations of webhooks in files, as written. None
    /// of them holds a secret; other objects, which may, are left out.
    pub fn documents_of_policies(&self) -> impl Iterator<Item = (&Arc<ValidatedObject>, &Document)> {
        self.base.objects.documents_of_policies()
    }

    /// Each cluster that has files of its own, with how many faults these have for which its last
    /// good ones are in force.
    pub fn file_faults(&self) -> BTreeMap<&str, usize> {
        let of_manifests = self
            .config
            .manifests
            .iter()
            .filter_map(|entry| entry.cluster.as_deref());
        let of_clusters = self.config.clusters.iter().filter(|entry| entry.is_tenants());
        let named = of_manifests.chain(of_clusters.map(|entry| entry.name.as_str()));
        let mut faults: BTreeMap<&str, usize> = named.map(|cluster| (cluster, 0)).collect();
        faults.extend(
            self.held_back
                .iter()
                .map(|(cluster, held)| (cluster.as_str(), held.len())),
        );
        faults
    }

    /// The role or binding of RBAC of this kind, namespace and name in files, as it is written.
    pub fn documents_of_rbac(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> impl Iterator<Item = (&Arc<ValidatedObject>, Document)> {
        self.base.objects.documents_of_rbac(kind, namespace, name)
    }

    /// What refused requests in `before` and does so no more.
    fn vanished(&self, before: &Self) -> Vec<Restriction> {
        inventory::vanished(
            (&before.policies, &before.admission),
            (&self.policies, &self.admission),
        )
    }
}
