//! Assembles a snapshot from files and other sources; and tries what would be in force with
//! additional manifests.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use super::ManifestSource;
use super::files::{FaultsByCluster, ManifestFiles, Revision};
use super::held_back::{self, EarlierClusterFiles, UsableFiles};
use super::index::{GatewayContext, SnapshotIndex, options};
use super::inventory::FileContents;
use super::last_good::PendingSave;
use super::snapshot::{LoadedManifests, Snapshot};
use super::watched::{GatewayIdentity, UnknownClusters, with_published_keys};
use super::writable;
use crate::bundle;
use crate::config::{self, Config, Disk, HeldBack};
use crate::identity::certificates::Expiry;
use crate::identity::tls::TlsContext;
use crate::identity::{Authenticator, certificates};
use crate::webhooks::authorizers::Authorizers;
use crate::webhooks::{self, Upstreams};
use portcullis_policy::admission::AdmissionPolicies;
use portcullis_policy::authorization::ClusterPolicySets;
use portcullis_policy::field::{Fault, Faults};
use portcullis_policy::manifest::{self, Compilation, ObjectIdentity, ObjectSet, Source, SourceObjects};
use portcullis_policy::model::Deadline;

/// The faults found while loading.
#[derive(Default)]
pub(crate) struct LoadFaults {
    /// Faults of everything else. If one is an error, nothing takes effect.
    pub(crate) faults: Faults,
    /// Faults of the files of single clusters, which are held back.
    pub(crate) held: HeldBack,
    /// Faults of single objects in other files. These objects are held back if the rest can be in
    /// force without them.
    pub(crate) held_objects: Faults,
}

/// The manifests that were read, with earlier ones that can replace those of a cluster.
#[derive(Default)]
pub(crate) struct ReadParts<'e> {
    pub(crate) files: ManifestFiles,
    pub(crate) unreadable: FaultsByCluster,
    pub(crate) earlier: Option<&'e EarlierClusterFiles>,
    /// The clusters whose entries in the configuration are unknown.
    pub(crate) unknown: BTreeSet<String>,
    /// The faults in the entries of clusters.
    pub(crate) held_entries: HeldBack,
}

/// Everything but manifests that the configuration names, as far as it could be built.
struct BuiltSettings {
    authenticator: Authenticator,
    upstreams: Upstreams,
    authorizers: Authorizers,
    tls: Option<TlsContext>,
    console_tls: Option<TlsContext>,
    expiries: Vec<Expiry>,
}

/// Indexes `manifests` and the objects of `source`. Also returns the revision of both.
pub(crate) fn index(
    config: &Config,
    manifests: &LoadedManifests,
    source: &dyn ManifestSource,
    identity: GatewayIdentity<'_>,
    unknown: &UnknownClusters,
    previous: Option<&Snapshot>,
) -> (Arc<str>, SnapshotIndex) {
    let watched = source.objects(config);
    let revision = manifests.revision.clone().with(&watched).name();
    let own_user = |cluster: &str| source.own_user(cluster);
    let gateway = Some(GatewayContext::new(&own_user, identity));
    let earlier = previous.map(Into::into);
    let mut indexed = SnapshotIndex::new(config, &manifests.objects, watched, gateway, earlier);
    unknown.delay_requests(&mut indexed.index_inputs.unsynced, own_user);
    (revision, indexed)
}

/// Assembles a snapshot. Each part is built even if another has failed, so that one run reports all
/// faults.
pub(crate) fn assemble(
    mut config: Config,
    parts: ReadParts<'_>,
    source: &dyn ManifestSource,
    previous: Option<&Snapshot>,
    now: SystemTime,
    found: &mut LoadFaults,
) -> Option<Snapshot> {
    found.faults.append(writable::unwritable_faults(&config));
    found.faults.append(bundle::file_faults(&config));
    found.faults.append(writable::key_folder_faults(&config));
    let mut unknown = UnknownClusters {
        faulty: parts.unknown.clone(),
        unreachable: BTreeSet::new(),
    };
    let usable = usable_files(&config, parts, previous, now, found);
    unknown.faulty.extend(usable.missing);
    let built = BuiltSettings::new(&config, previous, now, found);
    found.faults.append(config::authorizers::warnings_next_to(
        &config.file,
        config.admission.cel_version,
    ));
    found
        .faults
        .append(built.authenticator.webhook_configuration_warnings(&config.file));
    let of_source = source.check(&config);
    found.faults.append(of_source.faults);
    let mut read = of_source.files;
    read.extend(built.files(&config));
    let faults = writable::prevent_overwriting(&mut config, &read, &mut found.held);
    found.faults.append(faults);
    unknown.unreachable = of_source.cluster_faults.keys().cloned().collect();
    found.add_held(of_source.cluster_faults);
    if unknown.affects_all_callers(&config) {
        found.hold_nothing_back();
    }
    let objects = usable.objects?;
    if found.faults.has_errors() {
        return None;
    }
    // Changes of the configuration are reported by its fields, not as a file.
    read.retain(|file| *file != config.file);
    let of_clusters = config.cluster_folder.as_ref().map(|folder| folder.path.as_path());
    let file_contents = FileContents::of(read, of_clusters).into();
    let manifests = LoadedManifests {
        revision: Revision::of_files(config.contents(), &usable.files),
        objects,
        files: usable.files,
    };
    let snapshot = snapshot(config, built, manifests, source, (unknown, previous), now)?;
    found.faults.append(snapshot.upstreams.warnings(&snapshot.config));
    Some(Snapshot {
        file_contents,
        held_back: Arc::new(found.held.clone()),
        held_objects: Arc::new(found.held_objects.clone()),
        ..snapshot
    })
}

/// The files that can be in force, with earlier ones in place of those that cannot.
fn usable_files(
    config: &Config,
    parts: ReadParts<'_>,
    previous: Option<&Snapshot>,
    now: SystemTime,
    found: &mut LoadFaults,
) -> UsableFiles {
    let known = previous.map(|previous| &previous.manifests.objects);
    let options = options(config, Some(now));
    let mut usable = held_back::usable_files(
        &parts.files,
        parts.unreadable,
        (parts.earlier, known),
        &options,
        &mut found.held,
    );
    if config.reload.refuses_lock_outs {
        let earlier = parts.earlier.map(|earlier| &earlier.manifests);
        let held = (&mut found.held, &mut found.held_objects);
        usable = usable.without_lock_outs((earlier, known), &options, held);
    }
    found.faults.append(std::mem::take(&mut usable.faults));
    found.add_held(parts.held_entries);
    usable
}

/// Builds a snapshot of parts without faults; `None` without certificates of the listener.
fn snapshot(
    config: Config,
    built: BuiltSettings,
    manifests: LoadedManifests,
    source: &dyn ManifestSource,
    (unknown, previous): (UnknownClusters, Option<&Snapshot>),
    now: SystemTime,
) -> Option<Snapshot> {
    let tls = built.tls?;
    let authenticator = Arc::new(built.authenticator);
    let identity = GatewayIdentity {
        tls: &tls,
        authenticator: &authenticator,
        now,
    };
    let (revision, indexed) = index(&config, &manifests, source, identity, &unknown, previous);
    let authenticator = with_published_keys(&authenticator, &indexed.index_inputs.watched, &[]);
    let earlier = previous.map(|previous| &previous.upstreams);
    let upstreams = built.upstreams.with(indexed.index_inputs.webhooks(), earlier);
    Some(Snapshot {
        unsaved: PendingSave::new(&config, manifests.files.sources(), &unknown.faulty, &revision),
        revision,
        policies: indexed.policies,
        admission: indexed.admission,
        index_inputs: indexed.index_inputs,
        config: Arc::new(config),
        authenticator,
        upstreams,
        authorizers: built.authorizers,
        tls,
        console_tls: built.console_tls,
        expiries: built.expiries.into(),
        unknown: Arc::new(unknown),
        manifests: Arc::new(manifests),
        held_back: Arc::default(),
        held_objects: Arc::default(),
        file_contents: Arc::default(),
    })
}

// === impl LoadFaults ===

impl LoadFaults {
    /// All faults in one list.
    pub(crate) fn together(mut self) -> Faults {
        self.faults.append(self.held_objects);
        for of_cluster in self.held.into_values() {
            self.faults.append(of_cluster);
        }
        self.faults
    }

    /// Adds faults of single clusters.
    fn add_held(&mut self, found: HeldBack) {
        for (cluster, found) in found {
            self.held.entry(cluster).or_default().append(found);
        }
    }

    /// Holds nothing back: the faults of single clusters become faults of the whole set.
    fn hold_nothing_back(&mut self) {
        for of_cluster in std::mem::take(&mut self.held).into_values() {
            self.faults.append(of_cluster);
        }
    }

    /// The TLS settings of a listener, unless they have faults.
    fn certificates(&mut self, built: Result<TlsContext, Faults>) -> Option<TlsContext> {
        let known = &mut self.faults;
        built
            .map_err(|found| {
                // Faults of the client CA have already been reported with those of callers.
                let new = |fault: &Fault| !known.iter().any(|known| known == fault);
                let found: Vec<Fault> = found.into_iter().filter(new).collect();
                known.extend(found);
            })
            .ok()
    }
}

// === impl BuiltSettings ===

impl BuiltSettings {
    fn new(config: &Config, previous: Option<&Snapshot>, now: SystemTime, found: &mut LoadFaults) -> Self {
        let earlier = previous.map(|previous| &*previous.authenticator);
        let (authenticator, faults) = Authenticator::build(config, earlier, now);
        found.faults.append(faults);
        let earlier = previous.map(|previous| &previous.upstreams);
        let (upstreams, faults) = Upstreams::read(config, earlier, &mut found.held);
        found.faults.append(faults);
        let earlier = previous.map(|previous| &previous.authorizers);
        let (authorizers, faults) = Authorizers::build(config, &Disk, earlier);
        found.faults.append(faults);
        let tls = found.certificates(TlsContext::build(&config.server.tls));
        let console_tls = config.console.as_ref().and_then(|console| console.tls.as_ref());
        let console_tls = console_tls.and_then(|tls| found.certificates(TlsContext::build_for_console(tls)));
        let expiries = certificates::of_configuration(config, &Disk);
        found.faults.append(certificates::warnings(&expiries, now));
        found.faults.append(certificates::host_warnings(config, &Disk));
        Self {
            authenticator,
            upstreams,
            authorizers,
            tls,
            console_tls,
            expiries,
        }
    }

    /// The files that were read.
    fn files(&self, config: &Config) -> impl Iterator<Item = PathBuf> {
        let named = self.authenticator.files().iter().chain(self.authorizers.files());
        let named: Vec<PathBuf> = named.cloned().collect();
        named
            .into_iter()
            .chain(webhooks::files(config))
            .chain(config.files())
    }
}

// === impl ReadParts ===

impl From<ManifestFiles> for ReadParts<'_> {
    /// Parts without earlier manifests.
    fn from(files: ManifestFiles) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }
}

// Evaluates manifests on trial, together with those in force.

/// What would be in force with some manifests on trial.
pub struct Trial {
    /// The policies of authorization, by cluster.
    pub policies: ClusterPolicySets,
    /// The policies of admission, by cluster.
    pub admission: AdmissionPolicies,
    /// The objects on trial, in order.
    pub objects: Vec<ObjectIdentity>,
    /// The objects on trial that replace an object in force.
    pub replaced: Vec<ObjectIdentity>,
}

impl Snapshot {
    /// Returns what would be in force if the objects of `source` were in the files, where they
    /// replace the same objects, and the faults that `check` would report about them, but not those
    /// about others. Nothing is put in force. If `source` is for one cluster only, files and
    /// objects of other clusters are ignored.
    ///
    /// Takes as long as a reload in which these objects changed; for one cluster, as long as
    /// indexing that cluster. Expressions that are not compiled by the deadline are faults.
    #[must_use]
    pub fn trial(&self, source: &Source, now: SystemTime, deadline: Deadline<'_>) -> (Option<Trial>, Faults) {
        let only = source.cluster.as_deref();
        let options = options_for(&self.config, only, now);
        let options = held_back::options_without(&options, &self.unknown.faulty);
        let compilation = Compilation {
            version: options.cel_version,
            deadline,
        };
        let trial = Arc::new(SourceObjects::read(source, compilation, None));
        let objects: Vec<ObjectIdentity> = trial.valid().map(|object| object.identity().clone()).collect();
        let on_trial: HashSet<&ObjectIdentity> = objects.iter().collect();
        let own = &self.manifests.objects;
        let mut sources = own.without(&on_trial);
        sources.retain(|source| is_seen(source.cluster(), only));
        sources.push(trial);
        let (set, found) = ObjectSet::new(sources, &options, Some(own));
        let faults = of_source(source, &found);
        let Some(set) = set else {
            // Faults elsewhere are caused by the objects on trial.
            let faults = if faults.has_errors() { faults } else { found };
            return (None, faults);
        };
        let mut watched = self.index_inputs.watched.clone();
        watched.retain(|watched| is_seen(Some(&watched.cluster), only));
        let earlier = only.is_none().then(|| self.into());
        let indexed = SnapshotIndex::new(&self.config, &set, watched, None, earlier);
        let trial = Trial {
            policies: indexed.policies,
            admission: indexed.admission,
            replaced: self.replaced(&on_trial, only),
            objects,
        };
        (Some(trial), faults)
    }

    /// The objects `on_trial` that replace an object in force.
    fn replaced(&self, on_trial: &HashSet<&ObjectIdentity>, only: Option<&str>) -> Vec<ObjectIdentity> {
        let in_force = self
            .objects_in_force()
            .filter(|object| is_seen(object.cluster(), only));
        let mut replaced: Vec<ObjectIdentity> = in_force
            .filter(|object| on_trial.contains(object.identity()))
            .map(|object| object.identity().clone())
            .collect();
        replaced.sort();
        replaced.dedup();
        replaced
    }
}

/// Whether objects for `cluster`, or for all if it is `None`, take part in a trial for `only` one
/// cluster.
fn is_seen(cluster: Option<&str>, only: Option<&str>) -> bool {
    only.is_none() || cluster.is_none() || cluster == only
}

fn options_for(config: &Config, only: Option<&str>, now: SystemTime) -> manifest::Options {
    let mut options = options(config, Some(now));
    options.clusters.retain(|cluster| is_seen(Some(cluster), only));
    options.watched.retain(|cluster| is_seen(Some(cluster), only));
    options
}

/// The faults that are in `source`.
fn of_source(source: &Source, faults: &Faults) -> Faults {
    let is_own = |fault: &&Fault| fault.place.file.as_deref() == Some(source.file.as_str());
    let mut own = Faults::new();
    own.extend(faults.iter().filter(is_own).cloned());
    own
}

#[cfg(test)]
mod tests;
