//! What the files and the source say together, indexed; after a change, at its price.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::Snapshot;
use super::load::{admission_settings, options};
use super::source::{self, Watched};
use crate::config::Config;
use crate::engine::admission::webhook::Webhook;
use crate::engine::admission::{AdmissionPolicies, AdmissionSettings};
use crate::engine::authorization::Policies;
use crate::manifest::{self, Manifests, ObjectSet, Scope, SetDifference};

/// What decides, and what it was made of.
pub(super) struct Indexed {
    pub(super) policies: Policies,
    pub(super) admission: AdmissionPolicies,
    pub(super) basis: IndexBasis,
}

/// What a set was made of, beside the objects of files.
pub(super) struct IndexBasis {
    pub(super) webhooks: Arc<[Arc<Webhook>]>,
    pub(super) watched: Vec<Arc<Watched>>,
    settings: AdmissionSettings,
}

impl Indexed {
    /// Of `own` objects and those that are `watched`; where that is known, at the price of what
    /// became different since `earlier`. It decides the same in either case.
    ///
    /// Warnings are not asked for: whoever calls has told them, or they are those of the last
    /// reload.
    pub(super) fn new(
        config: &Config,
        own: &ObjectSet,
        watched: Vec<Arc<Watched>>,
        earlier: Option<&Snapshot>,
    ) -> Self {
        let cluster_scoped = watched
            .iter()
            .map(|watched| (watched.cluster.clone(), watched.cluster_scoped.clone()));
        let indexing = Indexing {
            options: manifest::Options {
                cluster_scoped: cluster_scoped.collect(),
                ..options(config, None)
            },
            settings: admission_settings(config),
            own,
            watched: &watched,
        };
        let parts = earlier.and_then(|earlier| indexing.after(earlier));
        let (policies, admission, webhooks) = parts.unwrap_or_else(|| indexing.anew());
        let settings = indexing.settings;
        Self {
            policies,
            admission,
            basis: IndexBasis {
                webhooks,
                watched,
                settings,
            },
        }
    }
}

type IndexParts = (Policies, AdmissionPolicies, Arc<[Arc<Webhook>]>);

/// What is indexed.
struct Indexing<'o> {
    options: manifest::Options,
    settings: AdmissionSettings,
    own: &'o ObjectSet,
    watched: &'o [Arc<Watched>],
}

impl<'o> Indexing<'o> {
    fn anew(&self) -> IndexParts {
        let objects = source::together(self.own, self.watched);
        self.whole(manifest::assemble(objects, &self.options))
    }

    fn whole(&self, mut manifests: Manifests) -> IndexParts {
        for watched in self.watched {
            let scope = manifests.clusters.entry(watched.cluster.clone()).or_default();
            scope.admission.complete_parameters = Some(watched.parameters.clone());
        }
        let webhooks = webhooks(&manifests.shared, &manifests.clusters);
        let admission = manifests.admission(&self.settings);
        (manifests.policies, admission, webhooks)
    }

    /// `None` where it is simpler to index anew.
    fn after(&self, earlier: &'o Snapshot) -> Option<IndexParts> {
        let before = &earlier.basis;
        if !self.has_settings(&before.settings) || !self.has_parameters(&before.watched) {
            return None;
        }
        let difference = self.difference(earlier)?;
        let all = || source::together(self.own, self.watched);
        let changed = manifest::assemble_changed(&earlier.policies, &difference, all, &self.options)?;
        match changed.scopes {
            None => Some((
                changed.policies,
                earlier.admission.clone(),
                Arc::clone(&before.webhooks),
            )),
            Some((shared, clusters)) => Some(self.whole(Manifests {
                policies: changed.policies,
                shared,
                clusters,
            })),
        }
    }

    /// What became different in files and beside them. `None` where clusters came or went, or an
    /// object in one is also in the other, so that it matters which of them holds.
    fn difference(&self, earlier: &'o Snapshot) -> Option<SetDifference<'o>> {
        let before = &earlier.basis.watched;
        let same_clusters = self.watched.len() == before.len()
            && self
                .watched
                .iter()
                .zip(before)
                .all(|(now, before)| now.cluster == before.cluster);
        if !same_clusters {
            return None;
        }
        let mut of_files = self.own.since(&earlier.base.objects);
        let mut beside = SetDifference::default();
        for (now, before) in self
            .watched
            .iter()
            .zip(before)
            .filter(|(now, before)| now.digest != before.digest)
        {
            let (added, removed) = now.unlike(before);
            beside.added.extend(added);
            beside.removed.extend(removed);
        }
        if self.own.may_have(&identities(&beside)) || earlier.base.objects.may_have(&identities(&beside)) {
            return None;
        }
        let in_files = identities(&of_files);
        let watched = self
            .watched
            .iter()
            .chain(before)
            .flat_map(|watched| watched.objects());
        if !in_files.is_empty()
            && watched
                .into_iter()
                .any(|object| in_files.contains(&object.identity().digest()))
        {
            return None;
        }
        of_files.added.append(&mut beside.added);
        of_files.removed.append(&mut beside.removed);
        Some(of_files)
    }

    fn has_settings(&self, before: &AdmissionSettings) -> bool {
        let AdmissionSettings {
            missing_namespace,
            failure_policy,
            shadow_webhooks,
            // What was watched before was compiled for another.
            cel_version,
            // Those that come with the program.
            equivalents: _,
        } = &self.settings;
        *missing_namespace == before.missing_namespace
            && *failure_policy == before.failure_policy
            && *cel_version == before.cel_version
            && *shadow_webhooks == before.shadow_webhooks
    }

    fn has_parameters(&self, before: &[Arc<Watched>]) -> bool {
        let mut both = self.watched.iter().zip(before);
        both.all(|(now, before)| now.parameters == before.parameters)
    }
}

fn identities(difference: &SetDifference<'_>) -> HashSet<u64> {
    let objects = difference.added.iter().chain(&difference.removed);
    objects.map(|object| object.identity().digest()).collect()
}

fn webhooks(shared: &Scope, clusters: &BTreeMap<String, Scope>) -> Arc<[Arc<Webhook>]> {
    let scopes = std::iter::once(shared).chain(clusters.values());
    let configurations = scopes.flat_map(|scope| {
        let admission = &scope.admission;
        let mutating = admission.mutating_webhooks.iter();
        mutating.chain(&admission.validating_webhooks)
    });
    configurations
        .flat_map(|configuration| configuration.webhooks.iter().cloned())
        .collect()
}
