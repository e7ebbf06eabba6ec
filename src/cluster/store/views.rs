//! The state of one cluster, and how it is passed to readers: in parts, so that a change rebuilds
//! only the parts that it affects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use openssl::sha::Sha256;

use super::super::definition::Definitions;
use super::held::{HeldObjects, UnsavedNames};
use crate::cluster::contents::{SharedContents, ValidObject};
use crate::cluster::kind::{Name, WatchPurpose, WatchedKind};
use crate::cluster::memory::{Charge, ClusterMemory, RoomPurpose};
use crate::cluster::saved::{SavedChanges, SavedKind, SavedObjects, UnsavedObjects};
use crate::cluster::weight::LeftOutObjects;
use crate::config::Selector;
use crate::state::{LeftOutCounts, Origin, SourceStatus, WatchedObjects};
use portcullis_cel::Version;
use portcullis_policy::admission::UnknownObjects;
use portcullis_policy::field::Faults;
use portcullis_policy::manifest::ObjectIdentity;

/// The state of one cluster, which its watches and its readers share.
pub(crate) struct Store {
    pub(crate) cluster: Arc<str>,
    pub(crate) contents: Arc<SharedContents>,
    pub(crate) memory: ClusterMemory,
    pub(crate) known: Mutex<StoredKinds>,
    /// Locked by a test to delay compilations.
    #[cfg(test)]
    pub(crate) compiling: Mutex<()>,
}

pub(crate) struct StoredKinds {
    pub(crate) kinds: BTreeMap<WatchedKind, KindObjects>,
    pub(crate) origin: Origin,
    /// Whether changes of the saved set were lost. Reset when every kind has been listed.
    pub(crate) lacks_changes: bool,
    pub(crate) definitions: Definitions,
    /// The public keys of the API server's tokens.
    pub(crate) token_keys: Option<Arc<[u8]>>,
    pub(crate) in_force_versions: InForceVersions,
    /// The version for which expressions are compiled.
    pub(crate) cel_version: Version,
    /// Incremented with each change that may affect the objects in force.
    pub(crate) version: u64,
    /// The objects that were returned last.
    pub(crate) last: Option<LastWatched>,
    /// Whether a kind was dropped that is still saved.
    pub(crate) is_kind_unsaved: bool,
    /// Whether missing objects count as deleted, because an administrator has confirmed this. Reset
    /// when every kind has been listed.
    pub(crate) accepts_absence: bool,
}

/// The objects of one kind.
#[derive(Default)]
pub(crate) struct KindObjects {
    pub(crate) progress: SyncProgress,
    /// Whether all objects were once listed, or saved.
    pub(crate) known: bool,
    pub(crate) objects: HeldObjects,
    pub(crate) left_out: LeftOutObjects,
    /// The newest resource version of the kind that was seen.
    pub(crate) newest: Option<u64>,
    /// Why objects that were not listed stay in force.
    pub(crate) doubt: Option<Doubt>,
    /// Since when the objects may be out of date.
    pub(crate) outdated: Option<StaleSince>,
    /// The number of lists that were started.
    pub(crate) lists: u32,
    /// The saved state of the kind, besides its objects.
    pub(crate) saved: Option<SavedKind>,
    /// The memory of the kind itself, if users determine how many kinds there are.
    pub(crate) charge: Option<Charge>,
}

/// The progress of a kind since the start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncProgress {
    /// It has not been listed yet.
    #[default]
    NotListed,
    /// The gateway may not list it, or it is not served.
    Refused,
    Listed,
}

/// Why it is not believed that objects were deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doubt(pub(crate) String);

/// Since when a kind may be out of date, and why.
#[derive(Debug, Clone)]
pub(crate) struct StaleSince {
    pub(crate) since: Instant,
    pub(crate) why: String,
}

/// The versions of Portcullis' own kinds that are in force.
#[derive(Default)]
pub(crate) struct InForceVersions {
    /// The versions that were returned last.
    pub(crate) offered: BTreeMap<(WatchedKind, Name), [u8; 32]>,
    /// The versions that are in force.
    pub(crate) in_force: BTreeMap<(WatchedKind, Name), [u8; 32]>,
    /// The objects that the gateway's files also contain, which take precedence.
    pub(crate) in_files: BTreeSet<ObjectIdentity>,
}

/// The objects that were returned last, and for which request.
pub(crate) struct LastWatched {
    pub(crate) version: u64,
    pub(crate) selector: Option<Selector>,
    pub(crate) accept_exceptions: bool,
    pub(crate) watched: Arc<WatchedObjects>,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The maximum number of faults that are reported in detail.
const MAX_REPORTED_FAULTS: usize = 10;

// === impl LastWatched ===

impl LastWatched {
    /// Whether an object of a selected kind was selected.
    pub(crate) fn selects(&self, good: &ValidObject) -> bool {
        selects(self.selector.as_ref(), good)
    }
}

pub(crate) fn selects(selector: Option<&Selector>, good: &ValidObject) -> bool {
    selector.is_some_and(|selector| selector.labels.matches(|key| good.content.labels.get(key)))
}

// === impl Store ===

impl Store {
    /// The objects in force. `selector` applies to the kinds that are selected, and
    /// AdmissionExceptions are included if `accept_exceptions`.
    ///
    /// The result is shared as long as nothing changes.
    pub(crate) fn watched(
        &self,
        selector: Option<&Selector>,
        accept_exceptions: bool,
    ) -> Arc<WatchedObjects> {
        let mut known = self.lock();
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
        if known.origin != Origin::None {
            known.offer();
        }
        watched
    }

    fn watched_of(
        &self,
        known: &mut StoredKinds,
        selector: Option<&Selector>,
        accept_exceptions: bool,
    ) -> WatchedObjects {
        let mut watched = WatchedObjects {
            cluster: self.cluster.to_string(),
            ..WatchedObjects::default()
        };
        if known.origin == Origin::None {
            return watched;
        }
        let is_asked_as_before = known.last.as_ref().is_some_and(|last| {
            last.selector.as_ref() == selector && last.accept_exceptions == accept_exceptions
        });
        let mut digest = Sha256::new();
        for (kind, objects) in &mut known.kinds {
            if kind.purpose == WatchPurpose::Registration {
                continue;
            }
            if !is_asked_as_before {
                objects.objects.forget_given();
            }
            objects.note_unknown(kind, &mut watched.unknown);
            // The saved objects may include some that are not wanted any more.
            let is_wanted = |good: &ValidObject| match kind.purpose {
                WatchPurpose::Selected => selects(selector, good),
                WatchPurpose::Exception => accept_exceptions,
                WatchPurpose::ReportedOnly | WatchPurpose::Definition | WatchPurpose::Registration => false,
                WatchPurpose::Base
                | WatchPurpose::Invariant
                | WatchPurpose::AccessRequest
                | WatchPurpose::Parameter => true,
            };
            for part in objects.objects.take_parts(is_wanted) {
                digest.update(&part.digest);
                watched.parts.push(part);
            }
        }
        digest.update(watched.unknown.to_string().as_bytes());
        watched.cluster_scoped = known.definitions.cluster_scoped();
        for (group, resource) in watched.cluster_scoped.iter() {
            digest.update(format!("{resource}.{group}\n").as_bytes());
        }
        watched.custom_resources = known.definitions.custom_resources();
        for resource in watched.custom_resources.iter() {
            digest.update(format!("{resource:?}\n").as_bytes());
        }
        watched.token_keys.clone_from(&known.token_keys);
        watched.registrations = known.registrations(Instant::now());
        if let Some(registrations) = &watched.registrations {
            digest.update(registrations.to_string().as_bytes());
        }
        watched.digest = digest.finish();
        watched
    }

    /// The objects in force that have changed since the last call, or all if `wants_all`.
    pub(crate) fn unsaved(&self, wants_all: bool) -> UnsavedObjects {
        let mut known = self.lock();
        let mut is_all = wants_all | std::mem::take(&mut known.is_kind_unsaved);
        let mut changes = SavedChanges::default();
        let kinds = known.kinds.iter_mut().filter(|(kind, _)| !kind.is_optional());
        for (kind, objects) in kinds {
            changes.note(objects.saved_kind(kind), &mut objects.saved);
            match objects.objects.take_unsaved() {
                UnsavedNames::Any => is_all = true,
                UnsavedNames::Some(names) if !is_all => {
                    for name in names {
                        match objects.objects.get(&name).and_then(|held| held.in_force.as_ref()) {
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

    pub(crate) fn status(&self) -> SourceStatus {
        let known = self.lock();
        let held = || known.kinds.values().flat_map(|kind| kind.objects.values());
        let mut faults = known.left_out_faults(&self.cluster);
        faults.append(&mut known.definitions.faults(&self.cluster));
        let mut faulty = faults.len();
        for (kind, objects) in &known.kinds {
            let named = objects.objects.iter();
            let bad: BTreeMap<_, _> = named.filter(|(_, held)| held.has_faults()).collect();
            faulty += bad.len();
            let told = bad
                .into_iter()
                .take(MAX_REPORTED_FAULTS.saturating_sub(faults.len()));
            faults.extend(told.filter_map(|(name, held)| held.newest.faults(&self.cluster, kind, name)));
        }
        faults.truncate(MAX_REPORTED_FAULTS);
        let doubts = known.kinds.iter();
        let doubts =
            doubts.filter_map(|(kind, objects)| Some(format!("{kind}: {}", objects.doubt.as_ref()?)));
        SourceStatus {
            cluster: self.cluster.to_string(),
            origin: known.origin,
            objects: held().filter(|held| held.in_force.is_some()).count(),
            faulty,
            failures: 0,
            faults,
            doubts: doubts.collect(),
            outdated: known.outdated(Instant::now()),
            left_out: known.left_out(),
        }
    }
}

impl StoredKinds {
    /// All objects in force, in the form in which they are saved.
    fn saved(&self) -> SavedObjects {
        let kinds = || self.kinds.iter().filter(|(kind, _)| !kind.is_optional());
        let mut saved = SavedObjects::new(kinds().filter_map(|(kind, objects)| objects.saved_kind(kind)));
        let held = kinds().flat_map(|(_, kind)| kind.objects.values());
        for good in held.filter_map(|held| held.in_force.as_ref()) {
            saved.add(&good.content.text.get());
        }
        saved
    }

    /// The number of objects that were left out.
    fn left_out(&self) -> LeftOutCounts {
        let mut counts = LeftOutCounts::default();
        for (kind, objects) in &self.kinds {
            let count = match kind.room() {
                RoomPurpose::Rbac => &mut counts.rbac,
                RoomPurpose::Policies => &mut counts.policies,
                RoomPurpose::Parameters => &mut counts.parameters,
                RoomPurpose::AccessRequests => &mut counts.access_requests,
            };
            *count += objects.left_out.len();
        }
        counts
    }

    /// The faults of some left-out objects, with restrictions first.
    fn left_out_faults(&self, cluster: &Arc<str>) -> Vec<Faults> {
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_by_key(|(kind, _)| match kind.room() {
            RoomPurpose::Policies => 0,
            RoomPurpose::Parameters => 1,
            RoomPurpose::Rbac => 2,
            RoomPurpose::AccessRequests => 3,
        });
        let faults = kinds
            .into_iter()
            .flat_map(|(kind, objects)| objects.left_out.faults(cluster, kind));
        faults.take(MAX_REPORTED_FAULTS).collect()
    }
}

// === impl KindObjects ===

impl KindObjects {
    /// Adds the unknown objects of the kind, if they affect decisions.
    fn note_unknown(&self, kind: &WatchedKind, unknown: &mut UnknownObjects) {
        let left_out = self.left_out.all();
        if kind.is_namespace() {
            unknown.namespaces = left_out.map(|names| names.into_iter().map(|(_, name)| name).collect());
            return;
        }
        let Some(parameters) = kind.param_kind().filter(|_| self.known) else {
            return;
        };
        if let Some(mut names) = left_out {
            let unread = self.objects.iter().filter(|(_, held)| held.in_force.is_none());
            names.extend(unread.map(|(name, _)| name.clone()));
            unknown.unknown_of_known_kinds.insert(parameters, names);
        }
    }

    /// The saved state of the kind besides its objects; `None` if there is none.
    fn saved_kind(&self, kind: &WatchedKind) -> Option<SavedKind> {
        let is_partial = !self.known || self.left_out.len() > 0;
        SavedKind::new(
            kind,
            self.newest,
            is_partial,
            self.doubt.as_ref().map(ToString::to_string),
        )
    }
}
