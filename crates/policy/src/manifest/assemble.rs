//! Assembles validated objects into the sets of each cluster.

mod changed;

pub use changed::{ChangedManifests, assemble_changed};

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::object::Content;
use super::validated::ValidatedObject;
use super::{Manifests, Options, Scope};
use crate::authorization::{Policies, PolicySet, SharedObjects};

/// Sorts `objects` by cluster and kind, and indexes what decides.
///
/// No two of them may be the same object of one cluster.
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
) -> (Sorted, BTreeMap<String, Sorted>) {
    let (mut shared, mut clusters) = (Sorted::default(), BTreeMap::<String, Sorted>::new());
    for cluster in options.cluster_scoped.keys() {
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

/// Where a cluster has no objects of its own that decide, the shared index serves it too.
fn policies(shared: SharedObjects, clusters: &mut BTreeMap<String, Sorted>, options: &Options) -> Policies {
    let set_of_all = PolicySet::new(shared.clone(), &options.never_deny);
    let mut own = HashMap::new();
    for (cluster, sorted) in clusters {
        let mut objects = std::mem::take(&mut sorted.objects);
        objects.cluster_scoped = options.scoped(cluster).clone();
        if !is_empty(&objects) {
            let has_policies = !objects.policies.is_empty();
            let set = policy_set(&set_of_all, together(shared.clone(), objects), has_policies);
            own.insert(cluster.clone(), Arc::new(set));
        }
    }
    Policies {
        shared: Arc::new(set_of_all),
        clusters: own,
    }
}

/// The set of one cluster, of the objects that all clusters share and its own, beside the set of
/// those alone. Where none of its own is an AuthorizationPolicy, their index exists once.
fn policy_set(shared: &PolicySet, objects: SharedObjects, has_own_policies: bool) -> PolicySet {
    if has_own_policies {
        PolicySet::new(objects, shared.never_deny())
    } else {
        shared.with_same_policies(objects)
    }
}

/// What admission uses of `objects`, which all hold for one cluster, or for all.
pub fn scope<'o>(objects: impl IntoIterator<Item = &'o Arc<ValidatedObject>>) -> Scope {
    let mut sorted = Sorted::default();
    objects.into_iter().for_each(|object| sorted.add(object));
    sorted.scope
}

fn is_empty(objects: &SharedObjects) -> bool {
    objects.roles.is_empty()
        && objects.bindings.is_empty()
        && objects.policies.is_empty()
        && objects.namespaces.is_empty()
        && objects.cluster_scoped.is_empty()
}

fn together(mut one: SharedObjects, other: SharedObjects) -> SharedObjects {
    one.roles.extend(other.roles);
    one.bindings.extend(other.bindings);
    one.policies.extend(other.policies);
    one.namespaces.extend(other.namespaces);
    one.cluster_scoped.extend(other.cluster_scoped);
    one
}

/// The objects of one cluster, or of all.
#[derive(Default)]
struct Sorted {
    objects: SharedObjects,
    scope: Scope,
}

impl Sorted {
    fn add(&mut self, object: &ValidatedObject) {
        match &object.content {
            Content::Role(role) => self.objects.roles.push(Arc::clone(role)),
            Content::Binding(binding) => self.objects.bindings.push(Arc::clone(binding)),
            Content::Policy(policy) => self.objects.policies.push(Arc::clone(policy)),
            Content::Namespace(labels) => {
                self.scope.admission.namespaces.extend(object.json.clone());
                if let Some(name) = labels.get(super::namespace::NAME_LABEL).cloned() {
                    self.objects.namespaces.insert(name, BTreeMap::clone(labels));
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
