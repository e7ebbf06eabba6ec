//! Assembles validated objects into the sets of each cluster: all sets, or only those that changed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::object_set::{self, SetDifference};
use super::source::{Options, Source};
use super::validated::{Content, ValidatedObject};
use crate::admission::{AdmissionObjects, AdmissionPolicies, AdmissionSet, AdmissionSettings};
use crate::authorization::{
    Binding, ChangedPolicies, ClusterPolicySets, PolicySet, PolicySetChange, SharedObjects,
};
use crate::field::Faults;

/// The assembled objects of all sources.
#[derive(Debug, Clone)]
pub struct Manifests {
    /// The policy sets, which decide authorization requests.
    pub policies: ClusterPolicySets,
    /// The admission objects for every cluster.
    pub shared: AdmissionScope,
    /// The admission objects for one cluster each, in addition to the shared ones.
    pub clusters: BTreeMap<String, AdmissionScope>,
}

/// The admission objects that apply to one cluster, or to all.
#[derive(Debug, Clone, Default)]
pub struct AdmissionScope {
    /// Policies, bindings, and the objects that these use.
    pub admission: AdmissionObjects,
}

/// Reads, validates and assembles `sources`.
///
/// All errors and warnings of all sources are returned. If there is an error, there are no
/// manifests; warnings are also returned with valid manifests.
#[must_use]
pub fn load(sources: &[Source], options: &Options) -> (Option<Manifests>, Faults) {
    let (set, faults) = object_set::read(sources, options);
    (set.map(|set| assemble(set.objects(), options)), faults)
}

/// Sorts `objects` by cluster and kind, and indexes policies.
///
/// There must be no duplicates, that is, objects of one identity that apply to the same cluster.
#[must_use]
pub fn assemble<'o>(
    objects: impl IntoIterator<Item = &'o Arc<ValidatedObject>>,
    options: &Options,
) -> Manifests {
    let (shared, mut clusters) = sorted(objects, options);
    Manifests {
        policies: policies(shared.objects, &mut clusters, options),
        shared: shared.scope,
        clusters: clusters
            .into_iter()
            .map(|(cluster, sorted)| (cluster, sorted.scope))
            .collect(),
    }
}

fn sorted<'o>(
    objects: impl IntoIterator<Item = &'o Arc<ValidatedObject>>,
    options: &Options,
) -> (ScopedObjects, BTreeMap<String, ScopedObjects>) {
    let (mut shared, mut clusters) = (ScopedObjects::default(), BTreeMap::<String, ScopedObjects>::new());
    let known = options.cluster_scoped.keys().chain(options.reviewed.keys());
    for cluster in known.chain(options.access_requests.keys()) {
        clusters.entry(cluster.clone()).or_default();
    }
    for object in objects {
        match &object.cluster {
            None => shared.add(object),
            Some(cluster) => clusters.entry(cluster.to_string()).or_default().add(object),
        }
    }
    (shared, clusters)
}

/// Creates the policy sets. A cluster without policy objects of its own uses the shared set.
fn policies(
    shared: SharedObjects,
    clusters: &mut BTreeMap<String, ScopedObjects>,
    options: &Options,
) -> ClusterPolicySets {
    let set_of_all = PolicySet::new(shared.clone(), &options.never_deny);
    let mut own = HashMap::new();
    for (cluster, sorted) in clusters {
        let mut objects = std::mem::take(&mut sorted.objects);
        objects.cluster_scoped = options.scoped(cluster).clone();
        let reviewed = options.reviewed.get(cluster).cloned();
        let trust = options.access_requests.get(cluster).copied();
        if !is_empty(&objects) || reviewed.is_some() || trust.is_some() {
            let has_policies = !objects.policies.is_empty() || !objects.invariants.is_empty();
            let set = policy_set(
                &set_of_all,
                merge_policy_objects(shared.clone(), objects),
                has_policies,
            );
            own.insert(
                cluster.clone(),
                Arc::new(
                    set.with_reviewed_resources(reviewed)
                        .with_access_request_trust(trust),
                ),
            );
        }
    }
    ClusterPolicySets {
        shared: Arc::new(set_of_all),
        clusters: own,
    }
}

/// Creates the set of one cluster from shared objects and its own; `shared` is the set of the
/// shared objects. If the cluster has no AuthorizationPolicy or AuthorizationInvariant of its own,
/// it shares their index.
fn policy_set(shared: &PolicySet, objects: SharedObjects, has_own_policies: bool) -> PolicySet {
    if has_own_policies {
        PolicySet::new(objects, shared.never_deny())
    } else {
        shared.with_same_policies(objects)
    }
}

/// Returns the admission objects among `objects`, which all apply to one cluster, or to all.
pub fn scope<'o>(objects: impl IntoIterator<Item = &'o Arc<ValidatedObject>>) -> AdmissionScope {
    let mut sorted = ScopedObjects::default();
    objects.into_iter().for_each(|object| sorted.add(object));
    sorted.scope
}

fn is_empty(objects: &SharedObjects) -> bool {
    objects.roles.is_empty()
        && objects.bindings.is_empty()
        && objects.policies.is_empty()
        && objects.invariants.is_empty()
        && objects.access_requests.is_empty()
        && objects.namespaces.is_empty()
        && objects.cluster_scoped.is_empty()
}

fn merge_policy_objects(mut one: SharedObjects, other: SharedObjects) -> SharedObjects {
    one.roles.extend(other.roles);
    one.bindings.extend(other.bindings);
    one.policies.extend(other.policies);
    one.invariants.extend(other.invariants);
    one.access_requests.extend(other.access_requests);
    one.namespaces.extend(other.namespaces);
    one.cluster_scoped.extend(other.cluster_scoped);
    one
}

/// The objects of one cluster, or of all.
#[derive(Default)]
struct ScopedObjects {
    objects: SharedObjects,
    scope: AdmissionScope,
}

impl ScopedObjects {
    fn add(&mut self, object: &ValidatedObject) {
        match &object.content {
            Content::Role(role) => self.objects.roles.push(Arc::clone(role)),
            Content::Binding(binding) => self.objects.bindings.push(Arc::clone(binding)),
            Content::Policy(policy) => self.objects.policies.push(Arc::clone(policy)),
            Content::Invariant(invariant) => self.objects.invariants.push(Arc::clone(invariant)),
            Content::AccessRequest(request) if object.is_watched => {
                self.objects.access_requests.push(Arc::clone(request));
            }
            // AccessRequests in files grant nothing; files can grant directly.
            Content::AccessRequest(_) => {}
            Content::Namespace(labels) => {
                self.scope.admission.namespaces.extend(object.json.clone());
                if let Some(name) = labels.get(super::namespace::NAME_LABEL).cloned() {
                    self.objects.namespaces.insert(name, Arc::clone(labels));
                }
            }
            Content::Exception(exception) => {
                let exceptions = &mut self.scope.admission.exceptions;
                if object.is_watched {
                    exceptions.watched.push(Arc::clone(exception));
                } else {
                    exceptions.of_files.push(Arc::clone(exception));
                }
            }
            Content::Admission(admission) => {
                if object.is_watched {
                    let watched = &mut self.scope.admission.exceptions.watched_policies;
                    watched.extend(admission.excusable());
                }
                admission.clone().add_to(&mut self.scope.admission);
            }
            Content::Parameter => self.scope.admission.parameters.extend(object.json.clone()),
        }
    }
}

// Updates the sets of each cluster after a change, reusing the sets before it.

impl Manifests {
    /// Creates the admission sets of all clusters. The set of a cluster with manifests of its own
    /// contains these and the shared ones.
    #[must_use]
    pub fn admission(&self, settings: &AdmissionSettings) -> AdmissionPolicies {
        let shared = Arc::new(AdmissionSet::new(self.shared.admission.clone(), settings));
        let clusters = self.clusters.iter();
        AdmissionPolicies {
            clusters: clusters
                .map(|(name, scope)| (name.clone(), scope.admission_set(&self.shared, &shared, settings)))
                .collect(),
            shared,
        }
    }
}

impl AdmissionScope {
    /// Creates the admission set of the cluster of these objects and of `shared` ones, whose set is
    /// `set`.
    #[must_use]
    pub fn admission_set(
        &self,
        shared: &Self,
        set: &AdmissionSet,
        settings: &AdmissionSettings,
    ) -> Arc<AdmissionSet> {
        let objects = merge_admission_objects(shared.admission.clone(), self);
        Arc::new(set.for_cluster_with(&self.admission, objects, settings))
    }
}

fn merge_admission_objects(mut shared: AdmissionObjects, own: &AdmissionScope) -> AdmissionObjects {
    let own = own.admission.clone();
    shared.validating.extend(own.validating);
    shared.validating_bindings.extend(own.validating_bindings);
    shared.mutating.extend(own.mutating);
    shared.mutating_bindings.extend(own.mutating_bindings);
    shared.initializers.extend(own.initializers);
    shared.validating_webhooks.extend(own.validating_webhooks);
    shared.mutating_webhooks.extend(own.mutating_webhooks);
    shared.exceptions.extend(own.exceptions);
    shared.namespaces.extend(own.namespaces);
    shared.parameters.extend(own.parameters);
    shared.custom_resources = own.custom_resources;
    shared.unknown = own.unknown;
    shared
}

/// The result of a change of [`Manifests`].
pub struct ChangedManifests<'o> {
    /// The policy sets. Those of unaffected clusters are the ones before the change.
    pub policies: ClusterPolicySets,
    /// The clusters whose admission objects changed; `None` stands for every cluster.
    pub admission: BTreeSet<Option<&'o str>>,
}

/// Returns the same as [`assemble`] of all objects, at a cost that depends on `difference`;
/// `earlier` are the sets before the difference. Sets of unaffected clusters cost nothing. `None`
/// if everything has to be assembled because the options changed.
///
/// `all` returns the objects that apply only to one cluster or, for `None`, to every cluster. It is
/// called if anything other than bindings changed, or if much did.
#[must_use]
pub fn assemble_changed<'o>(
    earlier: &ClusterPolicySets,
    difference: &SetDifference<'o>,
    all: impl Fn(Option<&str>) -> Vec<&'o Arc<ValidatedObject>>,
    options: &'o Options,
) -> Option<ChangedManifests<'o>> {
    if earlier.shared.never_deny() != &options.never_deny {
        return None;
    }
    let changes = Changes::new(difference);
    let none = ChangedObjects::default();
    let of_all = ChangedScope {
        cluster: None,
        changes: [&changes.everywhere, &none],
        options,
        earlier,
        all: &all,
    };
    let shared = of_all.updated(&earlier.shared, &earlier.shared);
    let mut clusters = earlier.clusters.clone();
    for cluster in changes.clusters(earlier, options) {
        let scope = ChangedScope {
            cluster: Some(cluster),
            changes: [&changes.everywhere, changes.of.get(cluster).unwrap_or(&none)],
            ..of_all
        };
        match scope.of_cluster(&shared) {
            Some(set) => clusters.insert(cluster.to_owned(), set),
            None => clusters.remove(cluster),
        };
    }
    Some(ChangedManifests {
        policies: ClusterPolicySets { shared, clusters },
        admission: changes.admission,
    })
}

/// A difference, grouped by cluster.
struct Changes<'o> {
    everywhere: ChangedObjects<'o>,
    of: HashMap<&'o str, ChangedObjects<'o>>,
    admission: BTreeSet<Option<&'o str>>,
}

/// Policy objects that were added and removed.
#[derive(Default)]
struct ChangedObjects<'o> {
    added: Vec<&'o Arc<ValidatedObject>>,
    removed: Vec<&'o Arc<ValidatedObject>>,
}

/// The changes for one cluster, or for the shared set if `cluster` is `None`.
struct ChangedScope<'c, 'o, F> {
    cluster: Option<&'c str>,
    changes: [&'c ChangedObjects<'o>; 2],
    options: &'c Options,
    earlier: &'c ClusterPolicySets,
    all: &'c F,
}

// === impl Changes ===

impl<'o> Changes<'o> {
    fn new(difference: &SetDifference<'o>) -> Self {
        let mut changes = Self {
            everywhere: ChangedObjects::default(),
            of: HashMap::new(),
            admission: BTreeSet::new(),
        };
        for object in &difference.added {
            if let Some(of) = changes.group_of(object) {
                of.added.push(object);
            }
        }
        for object in &difference.removed {
            if let Some(of) = changes.group_of(object) {
                of.removed.push(object);
            }
        }
        changes
    }

    /// Notes an object that was added or removed. For a policy object, returns the group that it
    /// belongs to.
    fn group_of(&mut self, object: &'o ValidatedObject) -> Option<&mut ChangedObjects<'o>> {
        if is_about_admission(object) {
            self.admission.insert(object.cluster());
        }
        match object.cluster() {
            _ if !decides(object) => None,
            None => Some(&mut self.everywhere),
            Some(cluster) => Some(self.of.entry(cluster).or_default()),
        }
    }

    /// The clusters whose sets change; if a shared object changed, every cluster with a set of its
    /// own.
    fn clusters<'c>(&self, earlier: &'c ClusterPolicySets, options: &'c Options) -> BTreeSet<&'c str>
    where
        'o: 'c,
    {
        let is_for_all = !self.everywhere.added.is_empty() || !self.everywhere.removed.is_empty();
        let had = earlier.clusters.iter();
        let differ = had.filter(|(cluster, set)| is_for_all || !options.are_those_of(set, cluster));
        let changed = self.of.keys().copied();
        let scoped = options.cluster_scoped.iter();
        let scoped =
            scoped.filter(|(cluster, of)| !of.is_empty() && !earlier.clusters.contains_key(*cluster));
        let scoped = scoped.map(|(cluster, _)| cluster.as_str());
        let reviewed = options.reviewed.keys().chain(options.access_requests.keys());
        let reviewed = reviewed
            .map(String::as_str)
            .filter(|cluster| !earlier.clusters.contains_key(*cluster));
        let differ = differ.map(|(cluster, _)| cluster.as_str());
        differ.chain(changed).chain(scoped).chain(reviewed).collect()
    }
}

fn decides(object: &ValidatedObject) -> bool {
    matches!(
        object.content,
        Content::Role(_)
            | Content::Binding(_)
            | Content::Policy(_)
            | Content::Invariant(_)
            | Content::AccessRequest(_)
            | Content::Namespace(_)
    )
}

/// Whether the object is in the index of policies.
fn is_policy(object: &ValidatedObject) -> bool {
    matches!(object.content, Content::Policy(_) | Content::Invariant(_))
}

fn is_about_admission(object: &ValidatedObject) -> bool {
    matches!(
        object.content,
        Content::Namespace(_) | Content::Exception(_) | Content::Admission(_) | Content::Parameter
    )
}

// === impl ChangedScope ===

impl<'o, F> ChangedScope<'_, 'o, F>
where
    F: Fn(Option<&str>) -> Vec<&'o Arc<ValidatedObject>>,
{
    /// The set of this cluster; `None` if it uses the shared set.
    fn of_cluster(&self, shared: &Arc<PolicySet>) -> Option<Arc<PolicySet>> {
        let own = self.changes[1];
        let may_be_last = |before: &PolicySet| {
            let had_scopes = !before.cluster_scoped().is_empty()
                || before.reviewed().is_some()
                || before.access_request_trust().is_some();
            own.added.is_empty() && (had_scopes || !own.removed.is_empty())
        };
        let is_none_left = || !self.objects(self.cluster).iter().any(|object| decides(object));
        let has_scopes = self.cluster.is_some_and(|cluster| {
            !self.options.scoped(cluster).is_empty()
                || self.options.reviewed.contains_key(cluster)
                || self.options.access_requests.contains_key(cluster)
        });
        let before = self
            .cluster
            .and_then(|cluster| self.earlier.clusters.get(cluster));
        match before {
            Some(before) if !has_scopes && may_be_last(before) && is_none_left() => None,
            Some(before) => Some(self.updated(before, shared)),
            None if !has_scopes && is_none_left() => None,
            None => Some(self.rebuild(shared)),
        }
    }

    /// Updates the set `before`; `shared` is the updated shared set.
    fn updated(&self, before: &Arc<PolicySet>, shared: &Arc<PolicySet>) -> Arc<PolicySet> {
        let mut changed = self.changed();
        let has_scopes = self
            .cluster
            .is_none_or(|cluster| self.options.are_those_of(before, cluster));
        if changed.next().is_none() && has_scopes {
            return Arc::clone(before);
        }
        if !has_scopes {
            return self.rebuild(shared);
        }
        let changes_any = |is_wanted: fn(&ValidatedObject) -> bool| {
            let is_changed = self.changed().any(|object| is_wanted(object));
            is_changed.then(|| self.sorted(is_wanted))
        };
        let change = PolicySetChange {
            removed_bindings: bindings(self.changes.into_iter().flat_map(|of| &of.removed)),
            added_bindings: bindings(self.changes.into_iter().flat_map(|of| &of.added)),
            namespaces: changes_any(|object| matches!(object.content, Content::Namespace(_)))
                .map(|sorted| sorted.objects.namespaces),
            roles: changes_any(|object| matches!(object.content, Content::Role(_)))
                .map(|sorted| sorted.objects.roles),
            policies: self.changed_policies(before, shared),
            access_requests: changes_any(|object| object.access_request().is_some())
                .map(|sorted| sorted.objects.access_requests),
            cluster_scoped: before.cluster_scoped().clone(),
        };
        match before.with_change(change) {
            Some(set) => Arc::new(set),
            None => self.rebuild(shared),
        }
    }

    /// The policies, if any changed: those of the set before, without what was removed and with what was
    /// added. A cluster without policies of its own shares those of the shared set.
    fn changed_policies<'s>(&self, before: &PolicySet, shared: &'s PolicySet) -> Option<ChangedPolicies<'s>> {
        if !self.changed().any(|object| is_policy(object)) {
            None
        } else if self.cluster.is_some() && !self.has_own_policies() {
            Some(ChangedPolicies::SharedWith(shared))
        } else {
            let added = Self::policies_among(self.changes.iter().map(|of| &of.added));
            let removed = Self::policies_among(self.changes.iter().map(|of| &of.removed));
            let policies = before.policies.policies.iter().map(|indexed| &indexed.policy);
            let invariants = before.invariants();
            Some(ChangedPolicies::Objects(
                replaced(policies, &removed.policies, added.policies),
                replaced(invariants, &removed.invariants, added.invariants),
            ))
        }
    }

    fn policies_among<'c>(objects: impl Iterator<Item = &'c Vec<&'o Arc<ValidatedObject>>>) -> SharedObjects
    where
        'o: 'c,
    {
        let mut sorted = ScopedObjects::default();
        let objects = objects.flatten().filter(|object| is_policy(object));
        objects.for_each(|object| sorted.add(object));
        sorted.objects
    }

    fn has_own_policies(&self) -> bool {
        let own = self.objects(self.cluster);
        own.iter().any(|object| is_policy(object))
    }

    fn rebuild(&self, shared: &Arc<PolicySet>) -> Arc<PolicySet> {
        let mut sorted = self.sorted(decides);
        let Some(cluster) = self.cluster else {
            return Arc::new(PolicySet::new(sorted.objects, &self.options.never_deny));
        };
        sorted.objects.cluster_scoped = self.options.scoped(cluster).clone();
        let set = policy_set(shared, sorted.objects, self.has_own_policies());
        let set = set.with_reviewed_resources(self.options.reviewed.get(cluster).cloned());
        Arc::new(set.with_access_request_trust(self.options.access_requests.get(cluster).copied()))
    }

    fn changed(&self) -> impl Iterator<Item = &'o Arc<ValidatedObject>> {
        let changes = self.changes.into_iter();
        changes.flat_map(|of| of.added.iter().chain(&of.removed).copied())
    }

    fn objects(&self, cluster: Option<&str>) -> Vec<&'o Arc<ValidatedObject>> {
        (self.all)(cluster)
    }

    /// The wanted objects: first those for every cluster, then those for this one.
    fn sorted(&self, is_wanted: impl Fn(&ValidatedObject) -> bool) -> ScopedObjects {
        let mut sorted = ScopedObjects::default();
        let own = self.cluster.map(|_| self.objects(self.cluster));
        let objects = self.objects(None).into_iter().chain(own.into_iter().flatten());
        let wanted = objects.filter(|object| is_wanted(object));
        wanted.for_each(|object| sorted.add(object));
        sorted
    }
}

/// The objects `before` without those `removed`, which are compared by address, and with those `added`.
fn replaced<'b, T: 'b>(
    before: impl Iterator<Item = &'b Arc<T>>,
    removed: &[Arc<T>],
    added: Vec<Arc<T>>,
) -> Vec<Arc<T>> {
    let removed: HashSet<_> = removed.iter().map(Arc::as_ptr).collect();
    let kept = before.filter(|object| !removed.contains(&Arc::as_ptr(object)));
    kept.cloned().chain(added).collect()
}

fn bindings<'o>(objects: impl Iterator<Item = &'o &'o Arc<ValidatedObject>>) -> Vec<Arc<Binding>> {
    let binding = |object: &&Arc<ValidatedObject>| match &object.content {
        Content::Binding(binding) => Some(Arc::clone(binding)),
        _ => None,
    };
    objects.filter_map(binding).collect()
}
