//! The sets of each cluster after a change, made of those before it.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Sorted, sorted};
use crate::engine::authorization::{Binding, Policies, PolicySet, PolicySetChange};
use crate::manifest::object::Content;
use crate::manifest::validated::ValidatedObject;
use crate::manifest::{Options, Scope, SetDifference};

/// What a change makes of [`Manifests`](crate::manifest::Manifests).
pub struct ChangedManifests {
    /// What decides requests. Sets of clusters that the change is not about are those of before.
    pub policies: Policies,
    /// What admission uses, for every cluster and for each; `None` where it is as before.
    pub scopes: Option<(Scope, BTreeMap<String, Scope>)>,
}

/// What [`assemble`](super::assemble) makes of `all` objects, where `earlier` is what it made of
/// those before `difference`, at the price of that. `None` where they must be assembled from
/// nothing: a cluster has its first object or lost its last, or the options changed.
///
/// `all` is called only where more than bindings changed, or much did.
#[must_use]
pub fn assemble_changed<'o>(
    earlier: &Policies,
    difference: &SetDifference<'o>,
    all: impl Fn() -> Vec<&'o Arc<ValidatedObject>>,
    options: &Options,
) -> Option<ChangedManifests> {
    let all = LazyCell::new(all);
    let changes = Changes::new(difference);
    if earlier.shared.never_deny() != &options.never_deny
        || !changes.keep_clusters(earlier, options, || LazyCell::force(&all))
    {
        return None;
    }
    let none = ChangedObjects::default();
    let everywhere = changes.of.get(&None).unwrap_or(&none);
    let scope = |cluster: Option<&str>, set: &Arc<PolicySet>| {
        let own = changes
            .of
            .get(&cluster)
            .filter(|_| cluster.is_some())
            .unwrap_or(&none);
        let scope = ChangedScope {
            cluster,
            changes: [everywhere, own],
            options,
        };
        scope.after(set, || LazyCell::force(&all))
    };
    let clusters = earlier.clusters.iter();
    let policies = Policies {
        shared: scope(None, &earlier.shared),
        clusters: clusters
            .map(|(name, set)| (name.clone(), scope(Some(name), set)))
            .collect(),
    };
    let scopes = changes.is_about_admission.then(|| {
        let (shared, clusters) = sorted(all.iter().copied(), options);
        let clusters = clusters
            .into_iter()
            .map(|(cluster, sorted)| (cluster, sorted.scope));
        (shared.scope, clusters.collect())
    });
    Some(ChangedManifests { policies, scopes })
}

/// A difference, by the cluster that its objects are for.
struct Changes<'o> {
    of: HashMap<Option<&'o str>, ChangedObjects<'o>>,
    is_about_admission: bool,
}

/// What decides requests, as far as it came or went.
#[derive(Default)]
struct ChangedObjects<'o> {
    added: Vec<&'o Arc<ValidatedObject>>,
    removed: Vec<&'o Arc<ValidatedObject>>,
}

/// What changes for one cluster, or where there is none.
struct ChangedScope<'c> {
    cluster: Option<&'c str>,
    changes: [&'c ChangedObjects<'c>; 2],
    options: &'c Options,
}

// === impl Changes ===

impl<'o> Changes<'o> {
    fn new(difference: &SetDifference<'o>) -> Self {
        let mut changes = Self {
            of: HashMap::new(),
            is_about_admission: false,
        };
        for object in &difference.added {
            if let Some(of) = changes.note(object) {
                of.added.push(object);
            }
        }
        for object in &difference.removed {
            if let Some(of) = changes.note(object) {
                of.removed.push(object);
            }
        }
        changes
    }

    /// Where an object belongs that decides requests.
    fn note(&mut self, object: &'o ValidatedObject) -> Option<&mut ChangedObjects<'o>> {
        self.is_about_admission |= is_about_admission(object);
        decides(object).then(|| self.of.entry(object.cluster()).or_default())
    }

    /// Whether the clusters that have sets of their own are the same as before.
    fn keep_clusters<'a>(
        &self,
        earlier: &Policies,
        options: &Options,
        all: impl Fn() -> &'a Vec<&'a Arc<ValidatedObject>>,
    ) -> bool {
        let scoped = options
            .cluster_scoped
            .iter()
            .filter(|(_, scoped)| !scoped.is_empty());
        let mut needed = scoped
            .map(|(cluster, _)| cluster.as_str())
            .chain(self.of.keys().copied().flatten());
        if needed.any(|cluster| !earlier.clusters.contains_key(cluster)) {
            return false;
        }
        let scoped = |cluster: &str| options.cluster_scoped.get(cluster).cloned().unwrap_or_default();
        let mut sets = earlier.clusters.iter();
        if sets.any(|(cluster, set)| *set.cluster_scoped() != scoped(cluster)) {
            return false;
        }
        let lost_some = self
            .of
            .iter()
            .filter(|(_, of)| of.added.is_empty() && !of.removed.is_empty());
        lost_some.filter_map(|(cluster, _)| *cluster).all(|cluster| {
            let mut own = all().iter().filter(|object| object.cluster() == Some(cluster));
            own.any(|object| decides(object))
        })
    }
}

fn decides(object: &ValidatedObject) -> bool {
    matches!(
        object.content,
        Content::Role(_) | Content::Binding(_) | Content::Policy(_) | Content::Namespace(_)
    )
}

fn is_about_admission(object: &ValidatedObject) -> bool {
    matches!(
        object.content,
        Content::Namespace(_) | Content::Exception(_) | Content::Admission(_) | Content::Parameter
    )
}

// === impl ChangedScope ===

impl ChangedScope<'_> {
    /// The set that was `earlier`.
    fn after<'a>(
        &self,
        earlier: &Arc<PolicySet>,
        all: impl Fn() -> &'a Vec<&'a Arc<ValidatedObject>>,
    ) -> Arc<PolicySet> {
        let changed = || {
            self.changes
                .into_iter()
                .flat_map(|of| of.added.iter().chain(&of.removed))
        };
        if changed().next().is_none() {
            return Arc::clone(earlier);
        }
        if !changed().any(|object| matches!(object.content, Content::Role(_))) {
            let change = PolicySetChange {
                removed_bindings: bindings(self.changes.into_iter().flat_map(|of| &of.removed)),
                added_bindings: bindings(self.changes.into_iter().flat_map(|of| &of.added)),
                policies: changed()
                    .any(|object| !matches!(object.content, Content::Binding(_)))
                    .then(|| {
                        let objects =
                            self.objects(all(), |object| !matches!(object.content, Content::Binding(_)));
                        (objects.objects.policies, objects.objects.namespaces)
                    }),
                cluster_scoped: earlier.cluster_scoped().clone(),
            };
            if let Some(set) = earlier.changed(change) {
                return Arc::new(set);
            }
        }
        let mut objects = self.objects(all(), decides).objects;
        objects.cluster_scoped = earlier.cluster_scoped().clone();
        Arc::new(PolicySet::new(objects, &self.options.never_deny))
    }

    /// Those for every cluster, and then those for this one.
    fn objects(&self, all: &[&Arc<ValidatedObject>], is_wanted: impl Fn(&ValidatedObject) -> bool) -> Sorted {
        let mut sorted = Sorted::default();
        let shared = all.iter().filter(|object| object.cluster.is_none());
        let own = all
            .iter()
            .filter(|object| object.cluster.is_some() && object.cluster() == self.cluster);
        let wanted = shared.chain(own).filter(|object| is_wanted(object));
        wanted.for_each(|object| sorted.add(object));
        sorted
    }
}

fn bindings<'o>(objects: impl Iterator<Item = &'o &'o Arc<ValidatedObject>>) -> Vec<Arc<Binding>> {
    let binding = |object: &&Arc<ValidatedObject>| match &object.content {
        Content::Binding(binding) => Some(Arc::clone(binding)),
        _ => None,
    };
    objects.filter_map(binding).collect()
}
