//! Indexes the objects of files and of watched clusters. After a change, it updates only what the
//! change affects.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use super::watched::{self, GatewayIdentity, RegistrationsByCluster, UnsyncedCluster, WatchedObjects};
use crate::config::{self, AdmissionEvidence, ClusterEntry, Config};
use crate::webhooks::ConfiguredWebhook;
use portcullis_policy::admission::matching::CustomResources;
use portcullis_policy::admission::{AdmissionPolicies, AdmissionSet, AdmissionSettings};
use portcullis_policy::authorization::{
    AccessRequestTrust, ClusterPolicySets, ReviewKnowledge, ReviewedResources,
};
use portcullis_policy::manifest::{
    self, ObjectIdentity, ObjectSet, SetDifference, SourceObjects, ValidatedObject,
};
use portcullis_policy::model::{Time, groups};

/// The indexed policies, and their inputs.
pub(crate) struct SnapshotIndex {
    pub(crate) policies: ClusterPolicySets,
    pub(crate) admission: AdmissionPolicies,
    pub(crate) index_inputs: IndexInputs,
}

/// The inputs of an index other than the objects of files.
pub(crate) struct IndexInputs {
    webhooks: WebhooksByCluster,
    pub(crate) watched: Vec<Arc<WatchedObjects>>,
    /// What is known about webhook configurations, for clusters that are watched for this.
    pub(crate) registrations: RegistrationsByCluster,
    /// The clusters about which something is not known.
    pub(crate) unsynced: HashMap<String, UnsyncedCluster>,
    settings: AdmissionSettings,
}

/// An earlier index.
#[derive(Clone, Copy)]
pub(crate) struct EarlierIndex<'o> {
    pub(crate) policies: &'o ClusterPolicySets,
    pub(crate) admission: &'o AdmissionPolicies,
    pub(crate) index_inputs: &'o IndexInputs,
    pub(crate) file_objects: &'o ObjectSet,
}

/// The gateway for which objects are indexed: its users at the API servers, and its certificate.
#[derive(Clone, Copy)]
pub(crate) struct GatewayContext<'s> {
    own_user: &'s dyn Fn(&str) -> Option<String>,
    identity: GatewayIdentity<'s>,
}

impl<'s> GatewayContext<'s> {
    /// The context of an index that is put in force now. `own_user` returns the gateway's own user
    /// name at the API server of a cluster, if known.
    pub(crate) const fn new(
        own_user: &'s dyn Fn(&str) -> Option<String>,
        identity: GatewayIdentity<'s>,
    ) -> Self {
        Self { own_user, identity }
    }
}

/// The webhook configurations of each cluster, and under `None` those for all clusters.
type WebhooksByCluster = BTreeMap<Option<String>, Arc<[Arc<ValidatedObject>]>>;

impl SnapshotIndex {
    /// Indexes the objects in `own` and `watched`. If `earlier` is given, this takes time
    /// proportional to the difference, if possible. The result decides alike in both cases.
    ///
    /// `gateway` is `None` offline, and for objects on trial.
    ///
    /// Produces no warnings: the caller has reported them, or they were reported at the last
    /// reload.
    pub(crate) fn new(
        config: &Config,
        own: &ObjectSet,
        watched: Vec<Arc<WatchedObjects>>,
        gateway: Option<GatewayContext<'_>>,
        earlier: Option<EarlierIndex<'_>>,
    ) -> Self {
        let cluster_scoped = watched
            .iter()
            .map(|watched| (watched.cluster.clone(), watched.cluster_scoped.clone()));
        let before = earlier.map(|earlier| &earlier.index_inputs.registrations);
        let registrations = match gateway {
            Some(gateway) => watched::known(config, &watched, gateway.identity, before),
            None => before.cloned().unwrap_or_default(),
        };
        let reviewed = reviewed_resources(config, &watched, gateway, &registrations);
        let indexing = Indexer {
            options: manifest::Options {
                cluster_scoped: cluster_scoped.collect(),
                access_requests: access_request_trust(config, &reviewed),
                reviewed,
                ..options(config, None)
            },
            settings: admission_settings(config),
            own,
            own_by_cluster: OnceCell::new(),
            own_identities: OnceCell::new(),
            watched: &watched,
        };
        let parts = earlier.and_then(|earlier| indexing.update(earlier));
        let (mut policies, admission, webhooks) = parts.unwrap_or_else(|| indexing.rebuild());
        if let Some(gateway) = gateway {
            record_grant_history(
                &mut policies,
                earlier.map(|earlier| earlier.policies),
                gateway.identity.now.into(),
            );
        }
        let settings = indexing.settings;
        let unsynced = watched.iter();
        let unsynced =
            unsynced.filter_map(|watched| Some((watched.cluster.clone(), watched.unsynced.clone()?)));
        Self {
            policies,
            admission,
            index_inputs: IndexInputs {
                webhooks,
                unsynced: unsynced.collect(),
                registrations,
                watched,
                settings,
            },
        }
    }
}

/// Records since when each Allow with objectConditions exists, as of `now`. `before` are the
/// policies that `policies` replace.
fn record_grant_history(policies: &mut ClusterPolicySets, before: Option<&ClusterPolicySets>, now: Time) {
    for (cluster, set) in &mut policies.clusters {
        let before = before.and_then(|before| before.clusters.get(cluster));
        let is_same = before.is_some_and(|before| Arc::ptr_eq(before, set));
        if !is_same && set.has_grant_history(before.map(AsRef::as_ref)) {
            *set = Arc::new(set.with_history(before.map(AsRef::as_ref), now));
        }
    }
}

/// The namespace of a service account with this user name.
fn namespace_of(user: &str) -> Option<String> {
    let (namespace, _) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    Some(namespace.to_owned())
}

/// What `/validate` is known to see of the clusters that are watched.
fn reviewed_resources(
    config: &Config,
    watched: &[Arc<WatchedObjects>],
    gateway: Option<GatewayContext<'_>>,
    registrations: &RegistrationsByCluster,
) -> BTreeMap<String, ReviewedResources> {
    let entries = config.clusters.iter();
    let mut reviewed = entries
        .filter(|entry| entry.admission != AdmissionEvidence::None)
        .peekable();
    let asked: Arc<[_]> = match reviewed.peek() {
        Some(_) => config::authorizers::load_next_to(&config.file, config.admission.cel_version).into(),
        None => Arc::default(),
    };
    let own_user = |cluster: &str| gateway.and_then(|gateway| (gateway.own_user)(cluster));
    let of_entry = |entry: &ClusterEntry| {
        // Offline no cluster is watched: the files contain everything.
        let known = watched.iter().find(|one| one.cluster == entry.name);
        if gateway.is_some() && known.is_some_and(|one| one.unsynced.is_some()) {
            return None;
        }
        let custom = known.into_iter().flat_map(|one| one.custom_resources.iter());
        let custom = custom.map(|one| (one.group.clone(), one.resource.clone()));
        let reviewed = ReviewedResources {
            knowledge: match (registrations.get(&entry.name), entry.admission) {
                (Some(known), _) => known.into(),
                // Offline, the webhook configurations of `init` are assumed to be applied.
                (None, AdmissionEvidence::Watched) => ReviewKnowledge::Assumed,
                (None, AdmissionEvidence::Declared | AdmissionEvidence::None) => ReviewKnowledge::Declared,
            },
            custom: Arc::new(custom.collect()),
            own_namespace: own_user(&entry.name).as_deref().and_then(namespace_of),
            authorizers: Arc::clone(&asked),
        };
        Some((entry.name.clone(), reviewed))
    };
    reviewed.filter_map(of_entry).collect()
}

/// The clusters in which AccessRequests grant, and since when: those where `/mutate` and
/// `/validate` are known to see every write of an AccessRequest.
fn access_request_trust(
    config: &Config,
    reviewed: &BTreeMap<String, ReviewedResources>,
) -> BTreeMap<String, AccessRequestTrust> {
    let Some(settings) = config.authorization.access_requests else {
        return BTreeMap::new();
    };
    let trust = |(cluster, reviewed): (&String, &ReviewedResources)| {
        let since = reviewed.reviewed_since(groups::PORTCULLIS, "accessrequests")?;
        let trust = AccessRequestTrust {
            settings,
            since: Some(since),
        };
        Some((cluster.clone(), trust))
    };
    reviewed.iter().filter_map(trust).collect()
}

impl IndexInputs {
    /// All webhooks: for each cluster first those of files, then the others in the order in which
    /// an API server calls them.
    pub(crate) fn webhooks(&self) -> impl Iterator<Item = ConfiguredWebhook<'_>> {
        let configurations = self
            .webhooks
            .values()
            .flat_map(|configurations| configurations.iter());
        configurations.flat_map(|configuration| {
            configuration.webhooks().iter().map(|webhook| ConfiguredWebhook {
                webhook,
                cluster: configuration.cluster(),
                is_watched: configuration.is_watched(),
            })
        })
    }
}

type IndexParts = (ClusterPolicySets, AdmissionPolicies, WebhooksByCluster);

/// The inputs of an index.
struct Indexer<'o> {
    options: manifest::Options,
    settings: AdmissionSettings,
    own: &'o ObjectSet,
    own_by_cluster: OnceCell<HashMap<Option<&'o str>, Vec<&'o Arc<SourceObjects>>>>,
    own_identities: OnceCell<HashSet<(Option<&'o str>, &'o ObjectIdentity)>>,
    watched: &'o [Arc<WatchedObjects>],
}

/// The differences in files and watched clusters.
struct IndexDifference<'o> {
    objects: SetDifference<'o>,
    /// The watched clusters that were added or removed, or whose unknown objects or custom
    /// resources changed.
    clusters: BTreeSet<&'o str>,
}

impl<'o> Indexer<'o> {
    fn rebuild(&self) -> IndexParts {
        let objects = self.all();
        let webhooks = webhooks_by_cluster(&objects);
        let mut manifests = manifest::assemble(objects, &self.options);
        for watched in self.watched {
            let scope = manifests.clusters.entry(watched.cluster.clone()).or_default();
            scope.admission.custom_resources = watched.custom_resources.clone();
            scope.admission.unknown = Some(watched.unknown.clone());
        }
        let admission = manifests.admission(&self.settings);
        (manifests.policies, admission, webhooks)
    }

    /// Updates `earlier`; `None` if it is simpler to index everything.
    fn update(&self, earlier: EarlierIndex<'o>) -> Option<IndexParts> {
        if !self.has_same_settings(&earlier.index_inputs.settings) {
            return None;
        }
        let difference = self.difference(earlier)?;
        let all = |cluster: Option<&str>| self.objects(cluster);
        let changed = manifest::assemble_changed(earlier.policies, &difference.objects, all, &self.options)?;
        let mut touched = changed.admission;
        touched.extend(difference.clusters.iter().copied().map(Some));
        let (admission, webhooks) = self.admission_after(earlier, &touched);
        Some((changed.policies, admission, webhooks))
    }

    /// Updates the policies of admission, when only the objects or parameters of the `touched`
    /// clusters have changed; `None` among these stands for objects for all clusters.
    fn admission_after(
        &self,
        earlier: EarlierIndex<'_>,
        touched: &BTreeSet<Option<&str>>,
    ) -> (AdmissionPolicies, WebhooksByCluster) {
        let (mut admission, mut by_cluster) =
            (earlier.admission.clone(), earlier.index_inputs.webhooks.clone());
        if touched.is_empty() {
            return (admission, by_cluster);
        }
        let mut note = |cluster: Option<&str>, objects: &[&Arc<ValidatedObject>]| {
            by_cluster.remove(&cluster.map(str::to_owned));
            by_cluster.extend(webhooks_by_cluster(objects));
        };
        let of_all = self.objects(None);
        let shared = manifest::scope(of_all.iter().copied());
        let mut clusters: BTreeSet<String> = touched
            .iter()
            .flatten()
            .map(|cluster| (*cluster).to_owned())
            .collect();
        if touched.contains(&None) {
            admission.shared = Arc::new(AdmissionSet::new(shared.admission.clone(), &self.settings));
            note(None, &of_all);
            clusters.extend(admission.clusters.keys().cloned());
        }
        for cluster in clusters {
            let objects = self.objects(Some(&cluster));
            let mut scope = manifest::scope(objects.iter().copied());
            let watched = self.watched.iter().find(|watched| watched.cluster == cluster);
            scope.admission.custom_resources = watched.map_or_else(CustomResources::default, |watched| {
                watched.custom_resources.clone()
            });
            scope.admission.unknown = watched.map(|watched| watched.unknown.clone());
            note(Some(&cluster), &objects);
            if watched.is_none() && scope.admission.is_empty() {
                admission.clusters.remove(&cluster);
            } else {
                let set = scope.admission_set(&shared, &admission.shared, &self.settings);
                admission.clusters.insert(cluster, set);
            }
        }
        (admission, by_cluster)
    }

    /// All objects of the files, and the watched objects that are not in the files.
    fn all(&self) -> Vec<&'o Arc<ValidatedObject>> {
        let watched = || self.watched.iter().flat_map(|watched| watched.objects());
        let mut all: Vec<_> = self.own.objects().collect();
        all.extend(watched().filter(|object| !self.is_in_files(object)));
        let in_files = self.own.objects().count() + watched().count() - all.len();
        if in_files > 0 {
            tracing::debug!(
                in_files,
                "objects are both in files and in a cluster: using those of the files"
            );
        }
        all
    }

    /// All objects for this cluster only or, if it is `None`, for all clusters.
    fn objects(&self, cluster: Option<&str>) -> Vec<&'o Arc<ValidatedObject>> {
        let own = self.own_by_cluster.get_or_init(|| {
            let mut by_cluster: HashMap<_, Vec<_>> = HashMap::new();
            for source in self.own.sources() {
                by_cluster.entry(source.cluster()).or_default().push(source);
            }
            by_cluster
        });
        let own = own.get(&cluster).into_iter().flatten();
        let mut objects: Vec<_> = own.flat_map(|source| source.valid()).collect();
        let watched = self
            .watched
            .iter()
            .filter(|watched| Some(watched.cluster.as_str()) == cluster);
        for watched in watched {
            objects.extend(watched.objects().filter(|object| !self.is_in_files(object)));
        }
        objects
    }

    /// Whether the files contain the same object, which then takes precedence over the watched one:
    /// users who may write to the API server must not override the gateway's own files.
    fn is_in_files(&self, object: &ValidatedObject) -> bool {
        let own = self.own_identities.get_or_init(|| {
            let own = self.own.objects();
            own.map(|object| (object.cluster(), object.identity())).collect()
        });
        own.contains(&(None, object.identity())) || own.contains(&(object.cluster(), object.identity()))
    }

    /// `None` if files changed and contain an object that is also watched, so that precedence may
    /// have changed.
    fn difference(&self, earlier: EarlierIndex<'o>) -> Option<IndexDifference<'o>> {
        let mut of_files = self.own.since(earlier.file_objects);
        let is_of_files = !of_files.added.is_empty() || !of_files.removed.is_empty();
        let (mut beside, clusters) = self.watched_difference(&earlier.index_inputs.watched);
        let of_beside = identities(&beside);
        if self.own.may_have(&of_beside) || earlier.file_objects.may_have(&of_beside) {
            if is_of_files {
                return None;
            }
            // The objects of files stay in force.
            beside.added.retain(|object| !self.is_in_files(object));
            beside.removed.retain(|object| !self.is_in_files(object));
        }
        let in_files = identities(&of_files);
        let watched = self.watched.iter().chain(&earlier.index_inputs.watched);
        let mut watched = watched.flat_map(|watched| watched.objects());
        if is_of_files && watched.any(|object| in_files.contains(&object.identity().digest())) {
            return None;
        }
        of_files.added.append(&mut beside.added);
        of_files.removed.append(&mut beside.removed);
        Some(IndexDifference {
            objects: of_files,
            clusters,
        })
    }

    /// The differences between the watched objects and those in `before`, and the clusters in which
    /// more than objects changed.
    fn watched_difference(
        &self,
        before: &'o [Arc<WatchedObjects>],
    ) -> (SetDifference<'o>, BTreeSet<&'o str>) {
        let (mut difference, mut clusters) = (SetDifference::default(), BTreeSet::new());
        let mut gone: HashMap<&str, &Arc<WatchedObjects>> = HashMap::new();
        gone.extend(before.iter().map(|before| (before.cluster.as_str(), before)));
        for now in self.watched {
            let Some(before) = gone.remove(now.cluster.as_str()) else {
                difference.added.extend(now.objects());
                clusters.insert(now.cluster.as_str());
                continue;
            };
            if now.digest != before.digest {
                let (added, removed) = now.difference(before);
                difference.added.extend(added);
                difference.removed.extend(removed);
                let is_as_before = now.custom_resources == before.custom_resources;
                if now.unknown != before.unknown || !is_as_before {
                    clusters.insert(now.cluster.as_str());
                }
            }
        }
        for before in gone.into_values() {
            difference.removed.extend(before.objects());
            clusters.insert(before.cluster.as_str());
        }
        (difference, clusters)
    }

    fn has_same_settings(&self, before: &AdmissionSettings) -> bool {
        let AdmissionSettings {
            missing_namespace,
            failure_policy,
            enforces_authorization,
            shadow_webhooks,
            // Watched objects were compiled for one version.
            cel_version,
            // These are built in.
            equivalents: _,
        } = &self.settings;
        *missing_namespace == before.missing_namespace
            && *failure_policy == before.failure_policy
            && *enforces_authorization == before.enforces_authorization
            && *cel_version == before.cel_version
            && *shadow_webhooks == before.shadow_webhooks
    }
}

fn identities(difference: &SetDifference<'_>) -> HashSet<u64> {
    let objects = difference.added.iter().chain(&difference.removed);
    objects.map(|object| object.identity().digest()).collect()
}

/// The webhook configurations among `objects`.
fn webhooks_by_cluster(objects: &[&Arc<ValidatedObject>]) -> WebhooksByCluster {
    let mut by_cluster: BTreeMap<Option<String>, Vec<Arc<ValidatedObject>>> = BTreeMap::new();
    for object in objects.iter().filter(|object| !object.webhooks().is_empty()) {
        let cluster = object.cluster().map(str::to_owned);
        by_cluster.entry(cluster).or_default().push(Arc::clone(object));
    }
    by_cluster
        .into_iter()
        .map(|(cluster, mut all)| {
            all.sort_by(|a, b| place_in_order(a).cmp(&place_in_order(b)));
            (cluster, all.into())
        })
        .collect()
}

/// Files come first: users who may write to the API server must not override them. Mutating
/// webhooks come before validating ones, and configurations are ordered by name.
fn place_in_order(configuration: &ValidatedObject) -> (bool, &str, &str) {
    let identity = configuration.identity();
    (configuration.is_watched(), identity.kind(), identity.name())
}

/// The options of reading manifests. With a `now`, warnings are reported; only these need the
/// AuthorizationConfiguration, which is read then.
pub(crate) fn options(config: &Config, now: Option<SystemTime>) -> manifest::Options {
    let reviewed = reviewed_resources(config, &[], None, &BTreeMap::new());
    manifest::Options {
        now: now.map(Time::from),
        clusters: config
            .callers
            .iter()
            .map(|caller| caller.cluster.clone())
            .collect(),
        watched: config.clusters.iter().map(|entry| entry.name.clone()).collect(),
        cluster_scoped: BTreeMap::new(),
        access_requests: access_request_trust(config, &reviewed),
        reviewed,
        never_deny: config.authorization.never_deny.clone(),
        missing_namespace: config.admission.missing_namespace,
        cel_version: config.admission.cel_version,
        enforce_authorization: config.admission.enforce_authorization,
        api_server_webhooks: now.map_or_else(Vec::new, |_| {
            config::authorizers::load_next_to(&config.file, config.admission.cel_version)
        }),
    }
}

/// Converts `admission` of the configuration for the engine.
#[must_use]
pub fn admission_settings(config: &Config) -> AdmissionSettings {
    AdmissionSettings {
        missing_namespace: config.admission.missing_namespace,
        failure_policy: config.admission.failure_policy,
        enforces_authorization: config.admission.enforce_authorization,
        cel_version: config.admission.cel_version,
        shadow_webhooks: config.upstreams.shadow.clone(),
        ..AdmissionSettings::default()
    }
}

#[cfg(test)]
mod tests;
