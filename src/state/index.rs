//! What the files and the source say together, indexed; after a change, at its price.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use super::watched::{self, GatewayIdentity, RegistrationsByCluster, UnsyncedCluster, WatchedObjects};
use crate::config::{self, AdmissionKnowledge, ClusterEntry, Config};
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

/// What decides, and what it was made of.
pub(crate) struct SnapshotIndex {
    pub(crate) policies: ClusterPolicySets,
    pub(crate) admission: AdmissionPolicies,
    pub(crate) index_inputs: IndexInputs,
}

/// What a set was made of, besides the objects of files.
pub(crate) struct IndexInputs {
    webhooks: WebhooksByCluster,
    pub(crate) watched: Vec<Arc<WatchedObjects>>,
    /// What is known of the registrations of clusters that are watched for it.
    pub(crate) registrations: RegistrationsByCluster,
    /// The clusters of which something is not known.
    pub(crate) unsynced: HashMap<String, UnsyncedCluster>,
    settings: AdmissionSettings,
}

/// What was indexed before.
#[derive(Clone, Copy)]
pub(crate) struct EarlierIndex<'o> {
    pub(crate) policies: &'o ClusterPolicySets,
    pub(crate) admission: &'o AdmissionPolicies,
    pub(crate) index_inputs: &'o IndexInputs,
    pub(crate) own: &'o ObjectSet,
}

/// The gateway for which a set is indexed: who it is to its clusters, and its certificate.
#[derive(Clone, Copy)]
pub(crate) struct GatewayContext<'s> {
    own_user: &'s dyn Fn(&str) -> Option<String>,
    identity: GatewayIdentity<'s>,
}

impl<'s> GatewayContext<'s> {
    /// One that puts an index in force now; `own_user` says what the API server of a cluster calls the
    /// gateway, where that is known.
    pub(crate) const fn new(
        own_user: &'s dyn Fn(&str) -> Option<String>,
        identity: GatewayIdentity<'s>,
    ) -> Self {
        Self { own_user, identity }
    }
}

/// The configurations of webhooks of each cluster, and under `None` those of all.
type WebhooksByCluster = BTreeMap<Option<String>, Arc<[Arc<ValidatedObject>]>>;

impl SnapshotIndex {
    /// Of `own` objects and those that are `watched`; where that is known, at the price of what
    /// became different since `earlier`. It decides the same in either case.
    ///
    /// `gateway` is what serves by it; nobody does offline, or where it is on trial.
    ///
    /// Without warnings: the caller has reported them, or they are those of the last
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
        let parts = earlier.and_then(|earlier| indexing.after(earlier));
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

/// Notes since when, as of `now`, each Allow with objectConditions is there, where `policies` follow
/// `before`.
fn record_grant_history(policies: &mut ClusterPolicySets, before: Option<&ClusterPolicySets>, now: Time) {
    for (cluster, set) in &mut policies.clusters {
        let before = before.and_then(|before| before.clusters.get(cluster));
        let is_same = before.is_some_and(|before| Arc::ptr_eq(before, set));
        if !is_same && set.has_grant_history(before.map(AsRef::as_ref)) {
            *set = Arc::new(set.following(before.map(AsRef::as_ref), now));
        }
    }
}

/// The namespace of a service account, by its user name.
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
        .filter(|entry| entry.admission != AdmissionKnowledge::None)
        .peekable();
    let asked: Arc<[_]> = match reviewed.peek() {
        Some(_) => config::authorizers::next_to(&config.file, config.admission.cel_version).into(),
        None => Arc::default(),
    };
    let own_user = |cluster: &str| gateway.and_then(|gateway| (gateway.own_user)(cluster));
    let of_entry = |entry: &ClusterEntry| {
        // Offline nothing is watched: files say what there is.
        let known = watched.iter().find(|one| one.cluster == entry.name);
        if gateway.is_some() && known.is_some_and(|one| one.unsynced.is_some()) {
            return None;
        }
        let custom = known.into_iter().flat_map(|one| one.custom_resources.iter());
        let custom = custom.map(|one| (one.group.clone(), one.resource.clone()));
        let reviewed = ReviewedResources {
            knowledge: match (registrations.get(&entry.name), entry.admission) {
                (Some(known), _) => known.into(),
                // Offline it is as if those of `init` were applied.
                (None, AdmissionKnowledge::Watched) => ReviewKnowledge::Assumed,
                (None, AdmissionKnowledge::Declared | AdmissionKnowledge::None) => ReviewKnowledge::Declared,
            },
            custom: Arc::new(custom.collect()),
            own_namespace: own_user(&entry.name).as_deref().and_then(namespace_of),
            asked: Arc::clone(&asked),
        };
        Some((entry.name.clone(), reviewed))
    };
    reviewed.filter_map(of_entry).collect()
}

/// In which clusters AccessRequests grant, and since when: where `/mutate` and `/validate` are known to see every
/// write of one.
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
    /// Every webhook: of a cluster first those of files, then in the order in which an API server
    /// asks them.
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

/// What is indexed.
struct Indexer<'o> {
    options: manifest::Options,
    settings: AdmissionSettings,
    own: &'o ObjectSet,
    own_by_cluster: OnceCell<HashMap<Option<&'o str>, Vec<&'o Arc<SourceObjects>>>>,
    own_identities: OnceCell<HashSet<(Option<&'o str>, &'o ObjectIdentity)>>,
    watched: &'o [Arc<WatchedObjects>],
}

/// What became different in files and outside of them.
struct IndexDifference<'o> {
    objects: SetDifference<'o>,
    /// The watched clusters that came or went, or of which other objects are not known.
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

    /// `None` where it is simpler to index everything.
    fn after(&self, earlier: EarlierIndex<'o>) -> Option<IndexParts> {
        if !self.has_settings(&earlier.index_inputs.settings) {
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

    /// What decides admission where only these clusters have other objects or parameters, or,
    /// with `None`, all may.
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
                let set = scope.beside(&shared, &admission.shared, &self.settings);
                admission.clusters.insert(cluster, set);
            }
        }
        (admission, by_cluster)
    }

    /// Every object of the files, and of those that are watched each that is not in the files too.
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

    /// Every object that holds for this cluster alone, or, for `None`, for all.
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

    /// Whether files have the same object, which holds in place of one that is watched: users who
    /// may write to the API server must not take away what the gateway's own files say.
    fn is_in_files(&self, object: &ValidatedObject) -> bool {
        let own = self.own_identities.get_or_init(|| {
            let own = self.own.objects();
            own.map(|object| (object.cluster(), object.identity())).collect()
        });
        own.contains(&(None, object.identity())) || own.contains(&(object.cluster(), object.identity()))
    }

    /// `None` where files changed and have an object that is outside of them too, so that it matters
    /// which of them holds.
    fn difference(&self, earlier: EarlierIndex<'o>) -> Option<IndexDifference<'o>> {
        let mut of_files = self.own.since(earlier.own);
        let is_of_files = !of_files.added.is_empty() || !of_files.removed.is_empty();
        let (mut beside, clusters) = self.watched_difference(&earlier.index_inputs.watched);
        let of_beside = identities(&beside);
        if self.own.may_have(&of_beside) || earlier.own.may_have(&of_beside) {
            if is_of_files {
                return None;
            }
            // Those of files hold on.
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

    /// What became different since `before` in what is watched, and in which clusters more than
    /// objects did.
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
                let (added, removed) = now.unlike(before);
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

    fn has_settings(&self, before: &AdmissionSettings) -> bool {
        let AdmissionSettings {
            missing_namespace,
            failure_policy,
            enforces_authorization,
            shadow_webhooks,
            // What was watched before was compiled for another.
            cel_version,
            // Those that come with the program.
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

/// Those of `objects` that are configurations of webhooks.
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

/// Files come first: who may write to the API server must not take away what they say. Mutating
/// webhooks are asked first, and configurations in the order of their names.
fn place_in_order(configuration: &ValidatedObject) -> (bool, &str, &str) {
    let identity = configuration.identity();
    (configuration.is_watched(), identity.kind(), identity.name())
}

/// With a `now`, warnings are found: for these alone the AuthorizationConfiguration is read.
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
            config::authorizers::next_to(&config.file, config.admission.cel_version)
        }),
    }
}

/// What `admission` of the configuration says, in the engine's terms.
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
