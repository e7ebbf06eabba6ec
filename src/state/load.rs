//! Loads a snapshot from files, and reports every fault.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use super::files::{self, FaultsByCluster, FileTimes, ManifestFiles, Revision};
use super::held_back::{self, StandIns, UsableFiles};
use super::index::{GatewayContext, SnapshotIndex, options};
use super::inventory::FileContents;
use super::last_good::{self, LastGoodSet, PendingSave};
use super::registrations::GatewayIdentity;
use super::snapshot::{LoadedManifests, Snapshot, removal_faults};
use super::source::ManifestSource;
use super::watched::UnknownClusters;
use super::writable;
use crate::bundle;
use crate::config::{self, Config, ConfigBeside, Disk, HeldBack, ManifestPath};
use crate::identity::tls::TlsContext;
use crate::identity::{Authenticator, certificates};
use crate::webhooks::authorizers::Authorizers;
use crate::webhooks::{self, Upstreams};
use portcullis_policy::admission::AdmissionPolicies;
use portcullis_policy::authorization::ClusterPolicySets;
use portcullis_policy::field::{Fault, Faults};
use portcullis_policy::manifest::{self, ObjectSet};

/// Builds a snapshot from the configuration at `path` and what `source` has
/// beside it, aside from any in force.
///
/// Credentials that `previous` accepted and a newer one replaced stay accepted
/// for a while (see [`Authenticator`]). There is a snapshot only where no fault
/// is an error; warnings come beside it. Blocks: it reads files and compiles
/// policies.
#[must_use]
pub fn load(
    path: &Path,
    source: &dyn ManifestSource,
    previous: Option<&Snapshot>,
    now: SystemTime,
) -> (Option<Snapshot>, Faults) {
    on_own_thread(|| load_here(path, source, previous, None, (FileTimes::Believed, now)))
}

/// The same where `candidate`, a bundle, is read from its path in place of the one that is kept.
pub(crate) fn load_candidate(
    path: &Path,
    source: &dyn ManifestSource,
    previous: Option<&Snapshot>,
    candidate: &ManifestPath,
    now: SystemTime,
) -> (Option<Snapshot>, Faults) {
    let times = (FileTimes::Believed, now);
    on_own_thread(|| load_here(path, source, previous, Some(candidate), times))
}

/// The same in place of `previous`, where the times of files tell which of them were written
/// since, or every file is read.
pub(crate) fn reload(
    path: &Path,
    source: &dyn ManifestSource,
    previous: &Snapshot,
    times: FileTimes,
    now: SystemTime,
) -> (Option<Snapshot>, Faults) {
    on_own_thread(|| load_here(path, source, Some(previous), None, (times, now)))
}

fn load_here(
    path: &Path,
    source: &dyn ManifestSource,
    previous: Option<&Snapshot>,
    candidate: Option<&ManifestPath>,
    (times, now): (FileTimes, SystemTime),
) -> (Option<Snapshot>, Faults) {
    let path_and = (path, candidate);
    let load = |stand_ins: &StandIns, held: HeldBack| {
        load_with_fallback(path_and, source, (previous, stand_ins), held, (times, now))
    };
    if let Some(previous) = previous {
        let stand_ins = StandIns::of(previous);
        return load_bounded(Some(previous), |held| load(&stand_ins, held));
    }
    let loaded = load(&StandIns::default(), HeldBack::new());
    let needs_saved =
        |snapshot: &Snapshot| snapshot.config.reload.max_removed.is_some() || !snapshot.is_as_written();
    if loaded.0.as_ref().is_some_and(|snapshot| !needs_saved(snapshot)) {
        return loaded;
    }
    // At the start, what was saved is what was in force before.
    let saved = config::last_good(path).ok().flatten();
    let Some(saved) = saved.and_then(|file| last_good::read(&file).ok()) else {
        return loaded;
    };
    let config = parse_saved(path, &saved).0;
    let stand_ins = StandIns::saved(saved, config.as_ref());
    let before = last_good_here(path, source, now).ok();
    load_bounded(before.as_ref(), |held| load(&stand_ins, held))
}

fn parse_saved(path: &Path, saved: &LastGoodSet) -> (Option<Config>, Faults) {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = absolute.parent().unwrap_or(&absolute);
    config::parse_saved(path, &saved.configuration, folder, &saved.cluster_files)
}

/// What `load` loads, unless it takes away more than it may of what was in force `before`. The
/// files of a cluster that do so are held back.
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

/// Loads what the files say where `earlier` ones stand in for those of a cluster that are faulty.
fn load_with_fallback(
    (path, candidate): (&Path, Option<&ManifestPath>),
    source: &dyn ManifestSource,
    (previous, earlier): (Option<&Snapshot>, &StandIns),
    mut held: HeldBack,
    (times, now): (FileTimes, SystemTime),
) -> (Option<Snapshot>, Faults) {
    let ConfigBeside {
        config,
        mut faults,
        held_back,
        unknown,
    } = config::load_with_fallback(path, &earlier.cluster_files);
    let Some(mut config) = config else {
        return (None, faults);
    };
    if let Some(candidate) = candidate {
        config.replace_bundle(candidate);
    }
    faults.extend(config.require_callers().err());
    let known = previous.map(|previous| &previous.manifests.files);
    let (files, unreadable) = ManifestFiles::read(&config, known, times, now);
    let parts = ReadParts {
        files,
        unreadable,
        earlier: Some(earlier),
        unknown: earlier.unknown_clusters(&unknown, &config),
        held_entries: held_back::by_cluster(&config, held_back),
    };
    let mut refused = Faults::new();
    let found = (&mut faults, &mut held, &mut refused);
    let snapshot = assemble(config, parts, source, previous, now, found);
    let snapshot = snapshot.filter(|_| !faults.has_errors());
    faults.append(refused);
    held.into_values()
        .for_each(|of_cluster| faults.append(of_cluster));
    (snapshot, faults)
}

/// Manifests that were read, with what may stand in for those of a cluster.
#[derive(Default)]
struct ReadParts<'e> {
    files: ManifestFiles,
    unreadable: FaultsByCluster,
    earlier: Option<&'e StandIns>,
    /// The clusters of whose entries nothing is known.
    unknown: BTreeSet<String>,
    /// What is wrong with the entries of clusters.
    held_entries: HeldBack,
}

// === impl ReadParts ===

impl From<ManifestFiles> for ReadParts<'_> {
    /// Where nothing stands in for any.
    fn from(files: ManifestFiles) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }
}

/// The set that was last in force, where the configuration at `path` names a file for it in
/// `reload.lastGood`. Certificates, keys and credentials are those of now. Blocks, as [`load`] does.
///
/// # Errors
///
/// Why there is none to serve.
pub fn last_good(
    path: &Path,
    source: &dyn ManifestSource,
    now: SystemTime,
) -> Result<Snapshot, last_good::LastGoodError> {
    on_own_thread(|| last_good_here(path, source, now))
}

fn last_good_here(
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
        // What was in force is not held back.
        let unknown = saved.unknown.clone();
        let earlier = StandIns::saved(saved, Some(&config));
        let parts = ReadParts {
            earlier: Some(&earlier),
            unknown,
            ..earlier.manifests.clone().into()
        };
        let found = (&mut faults, &mut HeldBack::new(), &mut Faults::new());
        assemble(config, parts, source, None, now, found)
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

/// Every fault of the configuration at `path` and of all that it names, for
/// `source` too, and of `more` manifests together with its own. Blocks, as
/// [`load`] does.
#[must_use]
pub fn check(path: &Path, source: &dyn ManifestSource, more: &[ManifestPath], now: SystemTime) -> Faults {
    let (examined, mut faults) = config::examine(path);
    let manifests = [&examined.manifests, more].concat();
    let (sources, unreadable) = files::read_manifests(&manifests);
    faults.append(unreadable);
    match examined.config {
        Some(config) => {
            faults.extend(config.require_callers().err());
            let files = ManifestFiles::of_sources(sources.clone(), config.admission.cel_version);
            let options = options(&config, Some(now));
            let is_faulty = ObjectSet::new(files.objects(), &options, None).0.is_none();
            let (mut held, mut refused) = (HeldBack::new(), Faults::new());
            let found = (&mut faults, &mut held, &mut refused);
            assemble(config, files.into(), source, None, now, found);
            faults.append(refused);
            held.into_values()
                .for_each(|of_cluster| faults.append(of_cluster));
            if is_faulty {
                faults.append(manifest::hidden_faults(&sources, &options));
            }
        }
        // Too little is known for the rest, but the manifests can be judged.
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

/// What the manifests of `config` and `source` decide by, as [`load`] puts them
/// together. Keys, certificates and callers are not read. Blocks.
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

/// `current` with what `source` has now. What the files say is not read again.
/// `None` where its configuration names no source.
pub(crate) fn refresh(current: &Snapshot, source: &dyn ManifestSource, now: SystemTime) -> Option<Snapshot> {
    if current.config.clusters.is_empty() {
        return None;
    }
    let manifests = Arc::clone(&current.manifests);
    let snapshot = with_manifests(current, manifests, source, now);
    snapshot.upstreams.log_left_out(&current.upstreams);
    Some(snapshot)
}

/// `current` where the `files` of manifests, which are its own, say something else at `now`, and
/// no other file does. Of the set, no other file is read; what `source` has now counts too.
/// `None` where one of them cannot be read or has faults, or all of them together are too large.
/// Blocks, as [`load`] does.
pub(crate) fn reload_files(
    current: &Snapshot,
    source: &dyn ManifestSource,
    files: &BTreeSet<PathBuf>,
    now: SystemTime,
) -> Option<(Snapshot, Faults)> {
    let config = &current.config;
    let files = current.manifests.files.after(files, config, now)?;
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
    // Whose faults they are, and what stands in for him, is found by looking at everything.
    let objects = objects.filter(|_| !faults.has_errors())?;
    let manifests = LoadedManifests {
        revision: Revision::of_files(config.texts(), &files),
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

/// `current` with what `manifests` and `source` have in place of what it has of them.
fn with_manifests(
    current: &Snapshot,
    manifests: Arc<LoadedManifests>,
    source: &dyn ManifestSource,
    now: SystemTime,
) -> Snapshot {
    let watched = source.objects(&current.config);
    let revision = manifests.revision.clone().with(&watched).name();
    let own_user = |cluster: &str| source.own_user(cluster);
    let identity = GatewayIdentity {
        tls: &current.tls,
        authenticator: &current.authenticator,
        now,
    };
    let gateway = Some(GatewayContext::new(&own_user, identity));
    let earlier = Some(current.into());
    let mut indexed = SnapshotIndex::new(&current.config, &manifests.objects, watched, gateway, earlier);
    current
        .unknown
        .delay_requests(&mut indexed.index_inputs.awaited, |cluster| {
            source.own_user(cluster)
        });
    let upstreams = current
        .upstreams
        .with(indexed.index_inputs.webhooks(), Some(&current.upstreams));
    Snapshot {
        revision,
        policies: indexed.policies,
        admission: indexed.admission,
        index_inputs: indexed.index_inputs,
        config: Arc::clone(&current.config),
        authenticator: Arc::clone(&current.authenticator),
        upstreams,
        authorizers: current.authorizers.clone(),
        tls: current.tls.clone(),
        console_tls: current.console_tls.clone(),
        expiries: Arc::clone(&current.expiries),
        held_back: Arc::clone(&current.held_back),
        unknown: Arc::clone(&current.unknown),
        refused: Arc::clone(&current.refused),
        file_contents: Arc::clone(&current.file_contents),
        manifests,
        unsaved: None,
    }
}

/// Each part is built even where another has failed: one run reports all faults. What is wrong
/// with the files of one cluster goes to `held`, and objects of other files that are held back by
/// themselves go to `refused`, where the rest can be in force without them.
fn assemble(
    mut config: Config,
    parts: ReadParts<'_>,
    source: &dyn ManifestSource,
    previous: Option<&Snapshot>,
    now: SystemTime,
    (faults, held, refused): (&mut Faults, &mut HeldBack, &mut Faults),
) -> Option<Snapshot> {
    faults.append(writable::unwritable_faults(&config));
    faults.append(bundle::file_faults(&config));
    faults.append(writable::key_folder_faults(&config));
    let known = previous.map(|previous| &previous.manifests.objects);
    let options = options(&config, Some(now));
    let settled = held_back::settle(
        &parts.files,
        parts.unreadable,
        (parts.earlier, known),
        &options,
        held,
    );
    let settled = if config.reload.refuses_lock_outs {
        let earlier = parts.earlier.map(|earlier| &earlier.manifests);
        settled.without_lock_outs((earlier, known), &options, (held, refused))
    } else {
        settled
    };
    let UsableFiles {
        files,
        objects,
        faults: found,
        missing,
    } = settled;
    faults.append(found);
    for (cluster, found) in parts.held_entries {
        held.entry(cluster).or_default().append(found);
    }
    let earlier = previous.map(|previous| &*previous.authenticator);
    let (authenticator, found) = Authenticator::build(&config, earlier, now);
    faults.append(found);
    let (upstreams, found) = Upstreams::read(&config, previous.map(|previous| &previous.upstreams), held);
    faults.append(found);
    let (authorizers, found) =
        Authorizers::build(&config, &Disk, previous.map(|previous| &previous.authorizers));
    faults.append(found);
    let tls = of_listener(TlsContext::build(&config.server.tls), faults);
    let console_tls = config.console.as_ref().and_then(|console| console.tls.as_ref());
    let console_tls = console_tls.and_then(|tls| of_listener(TlsContext::build_for_console(tls), faults));
    let expiries = certificates::of_configuration(&config, &Disk);
    faults.append(certificates::warnings(&expiries, now));
    faults.append(certificates::misfits(&config, &Disk));
    faults.append(config::authorizers::warnings_beside(
        &config.file,
        config.admission.cel_version,
    ));
    faults.append(authenticator.registrations_beside(&config.file));
    let of_source = source.check(&config);
    faults.append(of_source.faults);
    let mut read = of_source.files;
    read.extend(authenticator.files().iter().cloned());
    read.extend(authorizers.files().iter().cloned());
    read.extend(webhooks::files(&config));
    read.extend(config.files());
    faults.append(writable::prevent_overwriting(&mut config, &read, held));
    let unknown = UnknownClusters {
        faulty: missing.union(&parts.unknown).cloned().collect(),
        unreachable: of_source.of_clusters.keys().cloned().collect(),
    };
    for (cluster, found) in of_source.of_clusters {
        held.entry(cluster).or_default().append(found);
    }
    if unknown.leaves_nobody(&config) {
        std::mem::take(held)
            .into_values()
            .for_each(|of_cluster| faults.append(of_cluster));
    }
    let (objects, tls) = (objects?, tls?);
    if faults.has_errors() {
        return None;
    }
    // The configuration's own fields are named instead.
    read.retain(|file| *file != config.file);
    let of_clusters = config.cluster_folder.as_ref().map(|folder| folder.path.as_path());
    let file_contents = FileContents::of(read, of_clusters).into();
    let watched = source.objects(&config);
    let manifests = LoadedManifests {
        revision: Revision::of_files(config.texts(), &files),
        objects,
        files,
    };
    let revision = manifests.revision.clone().with(&watched).name();
    let own_user = |cluster: &str| source.own_user(cluster);
    let identity = GatewayIdentity {
        tls: &tls,
        authenticator: &authenticator,
        now,
    };
    let gateway = Some(GatewayContext::new(&own_user, identity));
    let earlier = previous.map(Into::into);
    let mut indexed = SnapshotIndex::new(&config, &manifests.objects, watched, gateway, earlier);
    unknown.delay_requests(&mut indexed.index_inputs.awaited, |cluster| {
        source.own_user(cluster)
    });
    let upstreams = upstreams.with(
        indexed.index_inputs.webhooks(),
        previous.map(|previous| &previous.upstreams),
    );
    faults.append(upstreams.warnings(&config));
    Some(Snapshot {
        unsaved: PendingSave::new(&config, manifests.files.sources(), &unknown.faulty, &revision),
        revision,
        policies: indexed.policies,
        admission: indexed.admission,
        index_inputs: indexed.index_inputs,
        config: Arc::new(config),
        authenticator: Arc::new(authenticator),
        upstreams,
        authorizers,
        tls,
        console_tls,
        expiries: expiries.into(),
        held_back: Arc::new(held.clone()),
        unknown: Arc::new(unknown),
        refused: Arc::new(refused.clone()),
        file_contents,
        manifests: Arc::new(manifests),
    })
}

/// A listener's certificates, unless they have faults.
fn of_listener(built: Result<TlsContext, Faults>, faults: &mut Faults) -> Option<TlsContext> {
    built
        .map_err(|found| {
            // Of the client CA, callers have told.
            let new = |fault: &Fault| !faults.iter().any(|known| known == fault);
            let found: Vec<Fault> = found.into_iter().filter(new).collect();
            faults.extend(found);
        })
        .ok()
}

// Loads snapshots on separate threads, so that their memory is returned to the system.
//
// Loading needs many times the memory of its result. The allocator (mimalloc) keeps what
// a thread has freed for that thread, for a second after its end, and then returns a
// quarter of it whenever a thread ends. In an idle gateway no thread ends.

/// Longer than freed pages rest (`purge_delay`).
const PURGE_WAIT: Duration = Duration::from_millis(1500);

/// How many threads have to end after that.
const THREAD_ENDS: usize = 8;

/// What `load` gives; without a thread to be had, it is called here.
pub(crate) fn on_own_thread<T: Send>(load: impl Fn() -> T + Sync) -> T {
    let loaded = thread::scope(|scope| {
        let thread = thread::Builder::new().name("load".to_owned());
        match thread.spawn_scoped(scope, &load) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => load(),
        }
    });
    if let Err(error) = thread::Builder::new().name("tidy".to_owned()).spawn(tidy) {
        tracing::debug!(%error, "memory freed by the reload is returned later");
    }
    loaded
}

fn tidy() {
    thread::sleep(PURGE_WAIT);
    for _ in 0..THREAD_ENDS {
        // The end of a thread that has allocated nothing is none to the allocator.
        let ended = thread::Builder::new().spawn(|| drop(black_box(vec![0u8; 64])));
        // That it ended is all there is to know.
        let _ = ended.map(thread::JoinHandle::join);
    }
}

#[cfg(test)]
mod tests;
