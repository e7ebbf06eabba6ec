//! Manifests watched from API servers.
//!
//! ```text
//!  API server ── watch, one per kind ──▶ Store ── valid objects ──▶ reload: Snapshot
//!                                        ▲   │
//!                    cache file ─────────┘   └──▶ saved, once complete and when changed
//! ```
//!
//! A gateway starts with the saved objects and does not wait for an API server, since the API
//! server may be waiting for it. Deleted objects are removed; while an API server is unreachable,
//! the objects known so far stay in force. Only this module uses the kube crate.

mod bounded;
mod client;
mod condition;
mod contents;
mod definition;
mod follow;
mod kind;
mod live;
mod memory;
mod object;
mod reach;
mod reporter;
mod requests;
mod saved;
mod served;
mod split;
mod store;
mod watch;
mod weight;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{io, ptr};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::task::AbortHandle;

use crate::config::kubeconfig::client::{Context, of_context};
use crate::config::limits::{ASSUMED_MEMORY, memory_of_process};
use crate::config::{AdmissionEvidence, ClusterEntry, Config};
use crate::state::{
    ManifestSource, Snapshot, SourceFiles, SourceStatus, Trigger, UnsyncedCluster, WatchedObjects,
};
use contents::SharedContents;
use follow::{ClusterJob, FollowedKinds, Restoration};
use kind::{MAX_PARAMETER_KINDS, WatchedKind, WatchedParameters};
pub use live::{
    ListedPlace, LiveCluster, LiveError, LivePolicies, LivePurpose, ServedResource, ServerAddress,
};
use memory::{ClusterMemory, WatchedMemory};
use portcullis_cel::Version;
use portcullis_policy::admission::AdmissionSet;
use portcullis_policy::field::{Fault, FaultKind, Faults};
use reporter::{Reporter, Signal};
use store::Store;

/// The number of threads that read responses of API servers. While expressions are compiled for a
/// cluster, another thread takes over (`reach::CompileTurn`).
const WORKERS: usize = 2;

/// How long requests wait until something is known about a cluster that was added.
const MAX_AWAITED: Duration = Duration::from_secs(30);

/// How long the start, or a reload that adds clusters or changes the version of CEL, waits until
/// the objects of clusters are compiled. If it takes longer, another reload follows.
const MAX_COMPILING: Duration = Duration::from_secs(5);

/// The API servers of a configuration.
///
/// Until [`start`](ManifestSource::start), only the saved objects are known.
#[derive(Default)]
pub struct Clusters {
    signal: Arc<Signal>,
    runtime: OnceLock<Runtime>,
    known: Mutex<FollowedClusters>,
    /// The clusters for which an administrator confirms that objects missing at the start were
    /// deleted.
    absence_accepted: BTreeSet<String>,
}

#[derive(Default)]
struct FollowedClusters {
    /// The contents of the objects of all clusters.
    contents: Arc<SharedContents>,
    /// The memory for these objects.
    memory: WatchedMemory,
    /// The configuration that was followed last.
    config: Option<Arc<Config>>,
    clusters: BTreeMap<String, FollowedCluster>,
}

struct FollowedCluster {
    store: Arc<Store>,
    reporter: Reporter,
    /// How requests are handled while nothing is known about the cluster.
    unsynced: UnsyncedCluster,
    /// Closed when the saved objects are restored.
    restoring: Receiver<()>,
    /// Whether something was known when the objects were last queried.
    was_known: bool,
    followed: Option<WatchTask>,
    /// The admission set whose parameters are followed.
    parameters_of: Weak<AdmissionSet>,
}

/// The settings of a running task.
struct WatchTask {
    entry: ClusterEntry,
    fetches_token_keys: bool,
    context: Arc<Context>,
    wanted: Sender<BTreeSet<WatchedKind>>,
    task: AbortHandle,
}

// === impl Clusters ===

impl Clusters {
    /// No cluster is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Like [`new`](Self::new), but objects that are missing in these clusters at the start count
    /// as deleted.
    #[must_use]
    pub fn accepting_absence(clusters: BTreeSet<String>) -> Self {
        let mut new = Self::default();
        new.absence_accepted = clusters;
        new
    }

    /// Adds the clusters that are new in `config`. Returns the saved sets to restore.
    fn add_new(&self, config: &Config) -> Vec<Restoration> {
        let mut known = self.known();
        let FollowedClusters {
            contents,
            memory,
            clusters,
            ..
        } = &mut *known;
        let max_bytes = watched_bytes(config);
        memory.limit(max_bytes);
        let mut restorations = Vec::new();
        for entry in &config.clusters {
            let Entry::Vacant(vacant) = clusters.entry(entry.name.clone()) else {
                continue;
            };
            let (new, restoring) = FollowedCluster::new(
                entry,
                config.admission.cel_version,
                &self.signal,
                (contents, memory.cluster_of(config.tenant_of(entry).as_deref())),
            );
            if self.absence_accepted.contains(&entry.name) {
                new.store.accept_absence();
            }
            restorations.extend(entry.cache_file.clone().map(|path| Restoration {
                file: (path, entry.scope.clone()),
                max_bytes,
                store: Arc::clone(&new.store),
                reporter: new.reporter.clone(),
                restoring,
            }));
            vacant.insert(new);
        }
        restorations
    }

    /// Jobs that compile expressions again for the version of CEL of `config`.
    fn recompile_jobs(&self, config: &Config) -> Vec<ClusterJob> {
        let (known, version) = (self.known(), config.admission.cel_version);
        let outdated = known
            .clusters
            .values()
            .filter(|cluster| !cluster.store.is_for(version));
        let job = |cluster: &FollowedCluster| -> ClusterJob {
            let (store, reporter) = (Arc::clone(&cluster.store), cluster.reporter.clone());
            Box::new(move || {
                store.compile_for(version);
                reporter.changed();
            })
        };
        outdated.map(job).collect()
    }

    fn known(&self) -> MutexGuard<'_, FollowedClusters> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ManifestSource for Clusters {
    fn start(&self, trigger: Trigger) -> io::Result<()> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("clusters")
            .enable_all()
            .build()?;
        self.signal.connect(trigger);
        let _first = self.runtime.set(runtime);
        if self.known().clusters.values().any(FollowedCluster::became_known) {
            self.signal.raise();
        }
        Ok(())
    }

    fn check(&self, config: &Config) -> SourceFiles {
        let mut checked = SourceFiles::default();
        for entry in &config.clusters {
            let (context, read, mut faults) = context_of(entry);
            let is_theirs = |file: &PathBuf| entry.scope.contains(file);
            checked.files.extend(read.into_iter().filter(is_theirs));
            let unusable = context.and_then(|context| client::config(&context).err());
            faults.extend(
                unusable
                    .map(|error| entry_fault(entry, "kubeconfig", FaultKind::Invalid, &error.to_string())),
            );
            faults.extend(no_folder(entry));
            if entry.is_written_by_tenant() && faults.has_errors() {
                checked.cluster_faults.insert(entry.name.clone(), faults);
            } else {
                checked.faults.append(faults);
            }
        }
        checked
    }

    fn objects(&self, config: &Config) -> Vec<Arc<WatchedObjects>> {
        self.signal.clear();
        let mut jobs = self.recompile_jobs(config);
        let restore = |new: Restoration| Box::new(move || new.run()) as ClusterJob;
        jobs.extend(self.add_new(config).into_iter().map(restore));
        if !jobs.is_empty()
            && let Err(error) = follow::run_concurrently(jobs, MAX_COMPILING)
        {
            tracing::error!(%error, "cannot compile the objects of clusters");
        }
        let mut known = self.known();
        let watched = |entry: &ClusterEntry| {
            let cluster = known.clusters.get_mut(&entry.name)?;
            Some(cluster.watched(entry))
        };
        config.clusters.iter().filter_map(watched).collect()
    }

    fn snapshot_applied(&self, snapshot: &Snapshot) {
        let Some(runtime) = self.runtime.get() else { return };
        let mut known = self.known();
        let same = known
            .config
            .as_ref()
            .is_some_and(|config| Arc::ptr_eq(config, &snapshot.config));
        let names: BTreeSet<&str> = snapshot
            .config
            .clusters
            .iter()
            .map(|entry| entry.name.as_str())
            .collect();
        known.clusters.retain(|name, _| names.contains(name.as_str()));
        for entry in &snapshot.config.clusters {
            let Some(cluster) = known.clusters.get_mut(&entry.name) else {
                continue;
            };
            if entry.writes_status {
                cluster
                    .store
                    .record_in_force(snapshot.own_kinds_of_files(&entry.name));
                cluster.reporter.conditions_changed();
            }
            let (shared, admission) = (
                snapshot.admission.shared(),
                snapshot.admission.for_cluster(&entry.name),
            );
            if same && ptr::eq(cluster.parameters_of.as_ptr(), Arc::as_ptr(admission)) {
                continue;
            }
            cluster.parameters_of = Arc::downgrade(admission);
            let parameters = WatchedParameters::new(shared.param_kinds(), admission.param_kinds());
            log_excess(&parameters, &cluster.reporter);
            if same {
                cluster.set_parameter_kinds(parameters.kinds);
            } else {
                let fetches_token_keys = snapshot.config.uses_published_keys(&entry.name);
                cluster.follow((entry, fetches_token_keys), parameters.kinds, runtime);
            }
        }
        known.config = Some(Arc::clone(&snapshot.config));
    }

    fn own_user(&self, cluster: &str) -> Option<String> {
        self.known().clusters.get(cluster)?.unsynced.own_user.clone()
    }

    fn status(&self) -> Vec<SourceStatus> {
        let known = self.known();
        let clusters = known.clusters.values();
        clusters
            .map(|cluster| SourceStatus {
                failures: cluster.reporter.failures(),
                ..cluster.store.status()
            })
            .collect()
    }
}

impl Drop for Clusters {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

// === impl FollowedCluster ===

impl FollowedCluster {
    /// A cluster about which nothing is known yet. The returned sender must be dropped when the
    /// saved objects are restored.
    fn new(
        entry: &ClusterEntry,
        cel_version: Version,
        signal: &Arc<Signal>,
        (contents, memory): (&Arc<SharedContents>, ClusterMemory),
    ) -> (Self, Sender<()>) {
        let store = Store::sharing(contents, memory, &entry.name, cel_version);
        let (sender, restoring) = channel(());
        let new = Self {
            store: Arc::new(store),
            reporter: Reporter::new(&entry.name, Arc::clone(signal)),
            unsynced: UnsyncedCluster {
                until: Some(Instant::now() + MAX_AWAITED),
                own_user: context_of(entry)
                    .0
                    .and_then(|context| reach::user_of_context(&context)),
            },
            restoring,
            was_known: false,
            followed: None,
            parameters_of: Weak::new(),
        };
        (new, sender)
    }

    /// Whether something is known that was unknown when the objects were last queried.
    fn became_known(&self) -> bool {
        !self.was_known && !self.store.is_unsynced()
    }

    /// The objects in force.
    fn watched(&mut self, entry: &ClusterEntry) -> Arc<WatchedObjects> {
        self.was_known = !self.store.is_unsynced();
        let watched = self
            .store
            .watched(entry.selector.as_ref(), entry.accept_exceptions);
        if self.was_known {
            return watched;
        }
        Arc::new(WatchedObjects {
            unsynced: Some(self.unsynced.clone()),
            ..WatchedObjects::clone(&watched)
        })
    }

    /// Follows the cluster of `entry`, and starts again if its settings differ from those being
    /// followed. Fetches the keys of the API server's tokens if `fetches_token_keys`.
    fn follow(
        &mut self,
        (entry, fetches_token_keys): (&ClusterEntry, bool),
        wanted: BTreeSet<WatchedKind>,
        runtime: &Runtime,
    ) {
        let Some(context) = context_of(entry).0 else {
            tracing::error!(
                cluster = entry.name,
                "cannot reread the kubeconfig of the cluster"
            );
            return self.set_parameter_kinds(wanted);
        };
        let as_before = |followed: &WatchTask| {
            *followed.context == context
                && followed.fetches_token_keys == fetches_token_keys
                && followed.follows(entry)
        };
        if self.followed.as_ref().is_some_and(as_before) {
            return self.set_parameter_kinds(wanted);
        }
        if let Err(error) = client::config(&context) {
            tracing::error!(cluster = entry.name, %error, "cannot use the kubeconfig of the cluster");
            return self.set_parameter_kinds(wanted);
        }
        let context = Arc::new(context);
        let following = FollowedKinds {
            context: Arc::clone(&context),
            accept_exceptions: entry.accept_exceptions,
            writes_status: entry.writes_status,
            watches_registrations: entry.admission == AdmissionEvidence::Watched,
            fetches_token_keys,
            labels: entry.selector.as_ref().map(|selector| selector.text.clone()),
            cache_file: entry.cache_file.clone().map(|path| (path, entry.scope.clone())),
            store: Arc::clone(&self.store),
            reporter: self.reporter.clone(),
        };
        let (wanted, receiver) = channel(wanted);
        let mut restoring = self.restoring.clone();
        let task = async move {
            // Saved objects are older than those of the API server, so they come first.
            while restoring.changed().await.is_ok() {}
            following.run(receiver).await;
        };
        // Ends the previous task first.
        self.followed = None;
        self.followed = Some(WatchTask {
            entry: entry.clone(),
            fetches_token_keys,
            context,
            wanted,
            task: runtime.spawn(task).abort_handle(),
        });
    }

    /// Sets the kinds of parameters that policies use.
    fn set_parameter_kinds(&self, kinds: BTreeSet<WatchedKind>) {
        let Some(followed) = &self.followed else { return };
        followed.wanted.send_if_modified(|wanted| {
            let modified = *wanted != kinds;
            *wanted = kinds;
            modified
        });
    }
}

// === impl WatchTask ===

impl WatchTask {
    fn follows(&self, entry: &ClusterEntry) -> bool {
        self.entry.selector == entry.selector
            && self.entry.cache_file == entry.cache_file
            && self.entry.accept_exceptions == entry.accept_exceptions
            && self.entry.writes_status == entry.writes_status
            && (self.entry.admission == AdmissionEvidence::Watched)
                == (entry.admission == AdmissionEvidence::Watched)
    }
}

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How to connect to the API server of `entry`, the files that were read for this, and their
/// faults.
fn context_of(entry: &ClusterEntry) -> (Option<Context>, Vec<PathBuf>, Faults) {
    let (mut context, files, found) = of_context(&entry.scope, &entry.kubeconfig);
    let missing = missing_credentials(entry);
    // Replaces the other faults: it says that the file is missing, and which command writes it.
    let faults = if missing.is_empty() { found } else { missing };
    let user = context.as_mut().and_then(|context| context.user.as_mut());
    if let Some(bearer) = user.and_then(|user| user.bearer.as_mut())
        && entry.is_written_by_tenant()
    {
        // Reading the file later would follow links out of the tenant's folder. A change of the
        // file causes a reload.
        bearer.file = None;
    }
    (context, files, faults)
}

/// Names the command that writes the kubeconfig of `entry`, if it belongs to a set-up of `init
/// --watch` and is missing.
fn missing_credentials(entry: &ClusterEntry) -> Faults {
    let mut faults = Faults::new();
    let set_up = entry.kubeconfig.ancestors().nth(2);
    let is_missing = entry.kubeconfig.symlink_metadata().is_err();
    if let Some(set_up) = set_up.filter(|_| is_missing && entry.kubeconfig.ends_with("cluster/kubeconfig")) {
        let message = format!(
            "`portcullis init {} --credentials` writes this file, after `kubectl apply -k {}`",
            set_up.display(),
            set_up.join("cluster").display()
        );
        faults.push(entry_fault(entry, "kubeconfig", FaultKind::NotFound, &message));
    }
    faults
}

fn log_excess(parameters: &WatchedParameters, reporter: &Reporter) {
    let Some(first) = parameters.excess.first() else {
        return;
    };
    let said = format!("{} {first}", parameters.excess.len());
    if reporter.is_news("paramKind", &said, Instant::now()) {
        tracing::error!(
            cluster = &**reporter.cluster(),
            unwatched = parameters.excess.len(),
            first = %first,
            "policies name more kinds as `paramKind` than are watched: those of the unwatched kinds fail, \
             and their `failurePolicy` applies; name at most {MAX_PARAMETER_KINDS} kinds"
        );
    }
}

/// The maximum number of bytes of memory for all watched objects.
fn watched_bytes(config: &Config) -> usize {
    let half = || memory_of_process().unwrap_or(ASSUMED_MEMORY) / 2;
    config.limits.watched_bytes.unwrap_or_else(half)
}

fn no_folder(entry: &ClusterEntry) -> Option<Fault> {
    let folder = entry.cache_file.as_deref()?.parent()?;
    let message = format!(
        "`{}` is not a folder: it must exist and be writable",
        folder.display()
    );
    (!folder.is_dir()).then(|| entry_fault(entry, "cacheFile", FaultKind::NotFound, &message))
}

fn entry_fault(entry: &ClusterEntry, field: &str, kind: FaultKind, message: &str) -> Fault {
    let place = entry.place.at(entry.place.path.field(field));
    Fault::error(place, kind, message)
}

#[cfg(test)]
mod tests;
