//! Loads a snapshot from files, and reports every fault.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use super::ManifestSource;
use super::assemble::{LoadFaults, ReadParts, assemble, index};
use super::files::{self, FileTimes, ManifestFiles, Revision};
use super::held_back::{self, EarlierClusterFiles};
use super::index::{SnapshotIndex, options};
use super::last_good::{self, LastGoodSet, PendingSave};
use super::snapshot::{LoadedManifests, Snapshot, removal_faults};
use super::watched::{GatewayIdentity, with_published_keys};
use crate::config::{self, Config, ConfigWithFallback, HeldBack, ManifestPath};
use portcullis_policy::admission::AdmissionPolicies;
use portcullis_policy::authorization::ClusterPolicySets;
use portcullis_policy::field::Faults;
use portcullis_policy::manifest::{self, ObjectSet};

/// Builds a snapshot from the configuration at `path` and the objects of `source`, without putting
/// it in force.
///
/// Credentials that `previous` accepted and that have been replaced stay accepted for a while (see
/// [`Authenticator`](crate::identity::Authenticator)). Returns a snapshot only if no fault is an
/// error; warnings are returned along with it. Blocks: it reads files and compiles policies.
#[must_use]
pub fn load(
    path: &Path,
    source: &dyn ManifestSource,
    previous: Option<&Snapshot>,
    now: SystemTime,
) -> (Option<Snapshot>, Faults) {
    on_new_thread(|| load_on_this_thread(path, source, previous, None, (FileTimes::Trusted, now)))
}

/// Does the same with the bundle `candidate` in place of the one that is kept, which it reads from
/// its path.
pub(crate) fn load_candidate(
    path: &Path,
    source: &dyn ManifestSource,
    previous: Option<&Snapshot>,
    candidate: &ManifestPath,
    now: SystemTime,
) -> (Option<Snapshot>, Faults) {
    let times = (FileTimes::Trusted, now);
    on_new_thread(|| load_on_this_thread(path, source, previous, Some(candidate), times))
}

/// Does the same to replace `previous`. `times` determines whether files are skipped that have not
/// been modified since.
pub(crate) fn reload(
    path: &Path,
    source: &dyn ManifestSource,
    previous: &Snapshot,
    times: FileTimes,
    now: SystemTime,
) -> (Option<Snapshot>, Faults) {
    on_new_thread(|| load_on_this_thread(path, source, Some(previous), None, (times, now)))
}

fn load_on_this_thread(
    path: &Path,
    source: &dyn ManifestSource,
    previous: Option<&Snapshot>,
    candidate: Option<&ManifestPath>,
    (times, now): (FileTimes, SystemTime),
) -> (Option<Snapshot>, Faults) {
    let path_and = (path, candidate);
    let load = |stand_ins: &EarlierClusterFiles, held: HeldBack| {
        load_with_fallback(path_and, source, (previous, stand_ins), held, (times, now))
    };
    if let Some(previous) = previous {
        let stand_ins = EarlierClusterFiles::of(previous);
        return load_bounded(Some(previous), |held| load(&stand_ins, held));
    }
    let loaded = load(&EarlierClusterFiles::default(), HeldBack::new());
    let needs_saved =
        |snapshot: &Snapshot| snapshot.config.reload.max_removed.is_some() || !snapshot.is_as_written();
    if loaded.0.as_ref().is_some_and(|snapshot| !needs_saved(snapshot)) {
        return loaded;
    }
    // At the start, the saved set is what was last in force.
    let saved = config::last_good(path).ok().flatten();
    let Some(saved) = saved.and_then(|file| last_good::read(&file).ok()) else {
        return loaded;
    };
    let config = parse_saved(path, &saved).0;
    let stand_ins = EarlierClusterFiles::saved(saved, config.as_ref());
    let before = last_good_on_this_thread(path, source, now).ok();
    load_bounded(before.as_ref(), |held| load(&stand_ins, held))
}

fn parse_saved(path: &Path, saved: &LastGoodSet) -> (Option<Config>, Faults) {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = absolute.parent().unwrap_or(&absolute);
    config::parse_saved(path, &saved.configuration, folder, &saved.cluster_files)
}

/// Calls `load`, and rejects the result if it removes more restrictions that were in force `before`
/// than is allowed. If only the files of single clusters do so, these are held back, and `load` is
/// called again.
fn load_bounded(
    before: Option<&Snapshot>,
    load: impl Fn(HeldBack) -> (Option<Snapshot>, Faults),
) -> (Option<Snapshot>, Faults) {
    let beyond = |snapshot: &Snapshot| before.map(|before| removal_faults(before, snapshot));
    let (snapshot, mut faults) = load(HeldBack::new());
    let Some(mut found) = snapshot.as_ref().and_then(beyond) else {
        return (snapshot, faults);
    };
    let mut held = HeldBack::new();
    found.hold_back_clusters(&mut held);
    let found = found.together();
    if found.is_empty() && held.is_empty() {
        return (snapshot, faults);
    }
    if found.is_empty() {
        return load(held);
    }
    faults.append(found);
    (None, faults)
}

/// Loads the files. Those in `earlier` replace faulty files of a cluster.
fn load_with_fallback(
    (path, candidate): (&Path, Option<&ManifestPath>),
    source: &dyn ManifestSource,
    (previous, earlier): (Option<&Snapshot>, &EarlierClusterFiles),
    held: HeldBack,
    (times, now): (FileTimes, SystemTime),
) -> (Option<Snapshot>, Faults) {
    let ConfigWithFallback {
        config,
        faults,
        held_back,
        unknown,
    } = config::load_with_fallback(path, &earlier.cluster_files);
    let Some(mut config) = config else {
        return (None, faults);
    };
    if let Some(candidate) = candidate {
        config.replace_bundle(candidate);
    }
    let mut found = LoadFaults {
        faults,
        held,
        ..LoadFaults::default()
    };
    found.faults.extend(config.require_callers().err());
    let known = previous.map(|previous| &previous.manifests.files);
    let (files, unreadable) = ManifestFiles::read(&config, known, times, now);
    let parts = ReadParts {
        files,
        unreadable,
        earlier: Some(earlier),
        unknown: earlier.unknown_clusters(&unknown, &config),
        held_entries: held_back::by_cluster(&config, held_back),
    };
    let snapshot = assemble(config, parts, source, previous, now, &mut found);
    let snapshot = snapshot.filter(|_| !found.faults.has_errors());
    (snapshot, found.together())
}

/// Loads the set that was last in force, if the configuration at `path` names a file for it in
/// `reload.lastGood`. Certificates, keys and credentials are the current ones. Blocks, like
/// [`load`].
///
/// # Errors
///
/// The set cannot be used.
pub fn last_good(
    path: &Path,
    source: &dyn ManifestSource,
    now: SystemTime,
) -> Result<Snapshot, last_good::LastGoodError> {
    on_new_thread(|| last_good_on_this_thread(path, source, now))
}

fn last_good_on_this_thread(
    path: &Path,
    source: &dyn ManifestSource,
    now: SystemTime,
) -> Result<Snapshot, last_good::LastGoodError> {
    let unknown = |_| last_good::LastGoodError::Unknown {
        path: path.to_owned(),
    };
    let file = config::last_good(path)
        .map_err(unknown)?
        .ok_or(last_good::LastGoodError::NotConfigured)?;
    let saved = last_good::read(&file)?;
    let (config, mut faults) = parse_saved(path, &saved);
    let revision = saved.revision.clone();
    let snapshot = config.and_then(|config| {
        faults.extend(config.require_callers().err());
        // What was in force is never held back.
        let unknown = saved.unknown.clone();
        let earlier = EarlierClusterFiles::saved(saved, Some(&config));
        let parts = ReadParts {
            earlier: Some(&earlier),
            unknown,
            ..earlier.manifests.clone().into()
        };
        let mut found = LoadFaults {
            faults: std::mem::take(&mut faults),
            ..LoadFaults::default()
        };
        let snapshot = assemble(config, parts, source, None, now, &mut found);
        faults = found.faults;
        snapshot
    });
    match snapshot.filter(|_| !faults.has_errors()) {
        Some(snapshot) => {
            tracing::debug!(saved = revision, "serving the last good set");
            Ok(Snapshot {
                unsaved: None,
                ..snapshot
            })
        }
        None => Err(last_good::LastGoodError::Faulty { path: file, faults }),
    }
}

/// Returns every fault of the configuration at `path` and of all files that it names, including
/// those for `source`, and of the manifests in `more`. Blocks, like [`load`].
#[must_use]
pub fn check(path: &Path, source: &dyn ManifestSource, more: &[ManifestPath], now: SystemTime) -> Faults {
    let (examined, mut faults) = config::load_valid_parts(path);
    let manifests = [&examined.manifests, more].concat();
    let (sources, unreadable) = files::read_manifests(&manifests);
    faults.append(unreadable);
    match examined.config {
        Some(config) => {
            faults.extend(config.require_callers().err());
            let files = ManifestFiles::of_sources(sources.clone(), config.admission.cel_version);
            let options = options(&config, Some(now));
            let is_faulty = ObjectSet::new(files.objects(), &options, None).0.is_none();
            let mut found = LoadFaults {
                faults,
                ..LoadFaults::default()
            };
            assemble(config, files.into(), source, None, now, &mut found);
            faults = found.together();
            if is_faulty {
                faults.append(manifest::hidden_faults(&sources, &options));
            }
        }
        // Without a configuration, only the manifests can be checked.
        None => {
            let options = manifest::Options {
                now: Some(now.into()),
                ..manifest::Options::default()
            };
            let (objects, found) = manifest::read(&sources, &options);
            faults.append(found);
            if objects.is_none() {
                faults.append(manifest::hidden_faults(&sources, &options));
            }
        }
    }
    faults
}

/// Loads the policies in the manifests of `config` and `source`, combined as [`load`] does. Keys,
/// certificates and callers are not read. Blocks.
#[must_use]
pub fn policies(
    config: &Config,
    source: &dyn ManifestSource,
    now: SystemTime,
) -> (Option<(ClusterPolicySets, AdmissionPolicies)>, Faults) {
    let (sources, mut faults) = files::read_manifests(&config.manifests);
    let (objects, found) = manifest::read(&sources, &options(config, Some(now)));
    faults.append(found);
    let objects = objects.filter(|_| !faults.has_errors());
    let indexed = objects.map(|own| SnapshotIndex::new(config, &own, source.objects(config), None, None));
    (
        indexed.map(|indexed| (indexed.policies, indexed.admission)),
        faults,
    )
}

/// `current` with the objects that `source` has now. The files are not read again. `None` if the
/// configuration names no source.
pub(crate) fn refresh(current: &Snapshot, source: &dyn ManifestSource, now: SystemTime) -> Option<Snapshot> {
    if current.config.clusters.is_empty() {
        return None;
    }
    let manifests = Arc::clone(&current.manifests);
    let snapshot = with_manifests(current, manifests, source, now);
    snapshot.upstreams.log_left_out(&current.upstreams);
    Some(snapshot)
}

/// `current` with the new content of `files`, which are some of its manifests, when no other file
/// has changed; and with the objects that `source` has now. Reads no other file. `None` if one of
/// these files cannot be read or has faults, or all manifests together are too large: then
/// everything has to be loaded. Blocks, like [`load`].
pub(crate) fn reload_files(
    current: &Snapshot,
    source: &dyn ManifestSource,
    files: &BTreeSet<PathBuf>,
    now: SystemTime,
) -> Option<(Snapshot, Faults)> {
    let config = &current.config;
    let files = current.manifests.files.with_modified(files, config, now)?;
    let never_deny = &config.authorization.never_deny;
    if config.reload.refuses_lock_outs
        && files
            .holding_back_lock_outs(Some(&current.manifests.files), never_deny)
            .is_some()
    {
        return None;
    }
    let earlier = Some(&current.manifests.objects);
    let (objects, mut faults) = ObjectSet::new(files.objects(), &options(config, Some(now)), earlier);
    // To find the cluster whose files are faulty, and what can replace them, everything has to be
    // loaded.
    let objects = objects.filter(|_| !faults.has_errors())?;
    let manifests = LoadedManifests {
        revision: Revision::of_files(config.contents(), &files),
        objects,
        files,
    };
    let snapshot = with_manifests(current, Arc::new(manifests), source, now);
    if !removal_faults(current, &snapshot).is_empty() {
        return None;
    }
    faults.append(snapshot.upstreams.warnings(config));
    let unknown = &snapshot.unknown.faulty;
    let unsaved = PendingSave::new(
        config,
        snapshot.manifests.files.sources(),
        unknown,
        &snapshot.revision,
    );
    Some((Snapshot { unsaved, ..snapshot }, faults))
}

/// `current` with these `manifests`, and with the objects that `source` has now.
fn with_manifests(
    current: &Snapshot,
    manifests: Arc<LoadedManifests>,
    source: &dyn ManifestSource,
    now: SystemTime,
) -> Snapshot {
    let config = &current.config;
    let identity = GatewayIdentity {
        tls: &current.tls,
        authenticator: &current.authenticator,
        now,
    };
    let (revision, indexed) = index(
        config,
        &manifests,
        source,
        identity,
        &current.unknown,
        Some(current),
    );
    let (watched, before) = (&indexed.index_inputs.watched, &current.index_inputs.watched);
    let authenticator = with_published_keys(&current.authenticator, watched, before);
    let upstreams = current
        .upstreams
        .with(indexed.index_inputs.webhooks(), Some(&current.upstreams));
    Snapshot {
        revision,
        policies: indexed.policies,
        admission: indexed.admission,
        index_inputs: indexed.index_inputs,
        config: Arc::clone(&current.config),
        authenticator,
        upstreams,
        authorizers: current.authorizers.clone(),
        tls: current.tls.clone(),
        console_tls: current.console_tls.clone(),
        expiries: Arc::clone(&current.expiries),
        held_back: Arc::clone(&current.held_back),
        unknown: Arc::clone(&current.unknown),
        held_objects: Arc::clone(&current.held_objects),
        file_contents: Arc::clone(&current.file_contents),
        manifests,
        unsaved: None,
    }
}

// Loads snapshots on separate threads, so that their memory is returned to the system.
//
// Loading needs many times the memory of its result. The allocator (mimalloc) keeps what a thread
// has freed for that thread, for a second after its end, and then returns a quarter of it whenever
// a thread ends. In an idle gateway no thread ends.

/// Longer than the time for which the allocator keeps freed pages (`purge_delay`).
const PURGE_WAIT: Duration = Duration::from_millis(1500);

/// The number of threads that must end after that.
const THREAD_ENDS: usize = 8;

/// Calls `load` on a new thread, or on this one if there is none to be had.
pub(crate) fn on_new_thread<T: Send>(load: impl Fn() -> T + Sync) -> T {
    let loaded = thread::scope(|scope| {
        let thread = thread::Builder::new().name("load".to_owned());
        match thread.spawn_scoped(scope, &load) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => load(),
        }
    });
    if let Err(error) = thread::Builder::new()
        .name("tidy".to_owned())
        .spawn(return_freed_memory)
    {
        tracing::debug!(%error, "memory freed by the reload is returned later");
    }
    loaded
}

fn return_freed_memory() {
    thread::sleep(PURGE_WAIT);
    for _ in 0..THREAD_ENDS {
        // The allocator ignores the end of a thread that has allocated nothing.
        let ended = thread::Builder::new().spawn(|| drop(black_box(vec![0u8; 64])));
        // The thread returns nothing.
        let _ = ended.map(thread::JoinHandle::join);
    }
}

#[cfg(test)]
mod tests;
