//! What is held, for those who ask.

use std::collections::BTreeMap;
use std::sync::Arc;

use openssl::sha::Sha256;

use super::held_objects::UnsavedNames;
use super::{Good, Store, StoredKinds};
use crate::cluster::kind::WatchPurpose;
use crate::cluster::saved::{SavedChanges, SavedObjects, UnsavedObjects};
use crate::config::Selector;
use crate::reload::{Origin, SourceStatus, Watched};
use portcullis_policy::field::Faults;

/// How many faults are reported in detail.
const TOLD: usize = 10;

/// What was given to whoever asked last.
pub(super) struct LastWatched {
    version: u64,
    selector: Option<Selector>,
    accept_exceptions: bool,
    watched: Arc<Watched>,
}

// === impl Store ===

impl Store {
    /// What holds, of what must be selected as far as `selector` selects it, and
    /// with AdmissionExceptions only where they are wanted.
    ///
    /// As long as nothing changes, it is the same.
    pub(in crate::cluster) fn watched(
        &self,
        selector: Option<&Selector>,
        accept_exceptions: bool,
    ) -> Arc<Watched> {
        let mut known = self.known();
        let is_same = |last: &&LastWatched| {
            last.version == known.version
                && last.selector.as_ref() == selector
                && last.accept_exceptions == accept_exceptions
        };
        if let Some(last) = known.last.as_ref().filter(is_same) {
            return Arc::clone(&last.watched);
        }
        let watched = Arc::new(self.watched_of(&mut known, selector, accept_exceptions));
        known.last = Some(LastWatched {
            version: known.version,
            selector: selector.cloned(),
            accept_exceptions,
            watched: Arc::clone(&watched),
        });
        if known.origin != Origin::Nowhere {
            known.offer();
        }
        watched
    }

    fn watched_of(
        &self,
        known: &mut StoredKinds,
        selector: Option<&Selector>,
        accept_exceptions: bool,
    ) -> Watched {
        let mut watched = Watched {
            cluster: self.cluster.to_string(),
            ..Watched::default()
        };
        if known.origin == Origin::Nowhere {
            return watched;
        }
        let is_asked_as_before = known.last.as_ref().is_some_and(|last| {
            last.selector.as_ref() == selector && last.accept_exceptions == accept_exceptions
        });
        let mut digest = Sha256::new();
        for (kind, objects) in &mut known.kinds {
            if !is_asked_as_before {
                objects.objects.forget_given();
            }
            if let Some(parameters) = kind.param_kind().filter(|_| objects.known) {
                digest.update(parameters.to_string().as_bytes());
                watched.parameters.insert(parameters);
            }
            // What was saved may be of a time when more was wanted.
            let is_wanted = |good: &Good| match kind.role {
                WatchPurpose::Selected => selects(selector, good),
                WatchPurpose::Exception => accept_exceptions,
                WatchPurpose::ReportedOnly | WatchPurpose::Definition => false,
                WatchPurpose::Base | WatchPurpose::Parameter => true,
            };
            for part in objects.objects.give(is_wanted) {
                digest.update(&part.digest);
                watched.parts.push(part);
            }
        }
        watched.cluster_scoped = known.definitions.cluster_scoped();
        for (group, resource) in watched.cluster_scoped.iter() {
            digest.update(format!("{resource}.{group}\n").as_bytes());
        }
        watched.custom_resources = known.definitions.custom_resources();
        for resource in watched.custom_resources.iter() {
            digest.update(format!("{resource:?}\n").as_bytes());
        }
        watched.digest = digest.finish();
        watched
    }

    /// What holds and was not given by this before, or all of it where `wants_all`.
    pub(in crate::cluster) fn unsaved(&self, wants_all: bool) -> UnsavedObjects {
        let mut known = self.known();
        let mut is_all = wants_all | std::mem::take(&mut known.is_kind_unsaved);
        let mut changes = SavedChanges::default();
        let kinds = known.kinds.iter_mut().filter(|(kind, _)| !kind.is_optional());
        for (kind, objects) in kinds {
            match objects.objects.take_unsaved() {
                UnsavedNames::Any => is_all = true,
                UnsavedNames::Some(names) if !is_all => {
                    for name in names {
                        match objects.objects.get(&name).and_then(|held| held.good.as_ref()) {
                            Some(good) => changes.set(good.content.text.get().into_owned()),
                            None => changes.delete(kind, &name),
                        }
                    }
                }
                UnsavedNames::Some(_) => {}
            }
        }
        if is_all {
            UnsavedObjects::All(known.saved())
        } else {
            UnsavedObjects::Changed(changes)
        }
    }

    pub(in crate::cluster) fn status(&self) -> SourceStatus {
        let known = self.known();
        let held = || known.kinds.values().flat_map(|kind| kind.objects.values());
        let mut faults: Vec<Faults> = known.definitions.faults(&self.cluster);
        for (kind, objects) in &known.kinds {
            let named = objects.objects.iter();
            let faulty =
                named.filter_map(|(name, held)| Some((name, held.newest.faults(&self.cluster, kind, name)?)));
            let faulty: BTreeMap<_, _> = faulty.collect();
            faults.extend(faulty.into_values());
        }
        SourceStatus {
            cluster: self.cluster.to_string(),
            origin: known.origin,
            objects: held().filter(|held| held.good.is_some()).count(),
            faulty: faults.len(),
            failures: 0,
            faults: faults.into_iter().take(TOLD).collect(),
        }
    }
}

impl StoredKinds {
    /// What holds, as it is saved.
    fn saved(&self) -> SavedObjects {
        let kinds = self.kinds.iter().filter(|(kind, _)| !kind.is_optional());
        let held = kinds.flat_map(|(_, kind)| kind.objects.values());
        let mut objects = SavedObjects::default();
        for good in held.filter_map(|held| held.good.as_ref()) {
            objects.add(&good.content.text.get());
        }
        objects
    }
}

fn selects(selector: Option<&Selector>, good: &Good) -> bool {
    selector.is_some_and(|selector| selector.labels.matches(|key| good.content.labels.get(key)))
}
