//! The objects of one kind as they are given to readers, in parts: a change rebuilds its part alone.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Instant;

use openssl::sha::Sha256;

use super::{HeldObject, KindObjects, Store, StoredKinds};
use crate::cluster::contents::ValidObject;
use crate::cluster::kind::{WatchPurpose, WatchedKind};
use crate::cluster::memory::RoomPurpose;
use crate::cluster::object::Name;
use crate::cluster::saved::{SavedChanges, SavedKind, SavedObjects, UnsavedObjects};
use crate::config::Selector;
use crate::reload::{LeftOutCounts, Origin, SourceStatus, WatchedObjects, WatchedPart};
use portcullis_policy::engine::admission::UnknownObjects;
use portcullis_policy::field::Faults;

/// How many faults are reported in detail.
const TOLD: usize = 10;

/// What was given to the last that asked.
pub(crate) struct LastWatched {
    version: u64,
    selector: Option<Selector>,
    accept_exceptions: bool,
    watched: Arc<WatchedObjects>,
}

// === impl LastWatched ===

impl LastWatched {
    /// Whether an object that must be selected was.
    pub(crate) fn selects(&self, good: &ValidObject) -> bool {
        selects(self.selector.as_ref(), good)
    }
}

// === impl Store ===

impl Store {
    /// What holds, of what must be selected as far as `selector` selects it, and
    /// with AdmissionExceptions only where they are wanted.
    ///
    /// As long as nothing changes, it is the same.
    pub(crate) fn watched(
        &self,
        selector: Option<&Selector>,
        accept_exceptions: bool,
    ) -> Arc<WatchedObjects> {
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
    ) -> WatchedObjects {
        let mut watched = WatchedObjects {
            cluster: self.cluster.to_string(),
            ..WatchedObjects::default()
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
            objects.note_unknown(kind, &mut watched.unknown);
            // What was saved may be of a time when more was wanted.
            let is_wanted = |good: &ValidObject| match kind.role {
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
        digest.update(watched.unknown.to_string().as_bytes());
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
    pub(crate) fn unsaved(&self, wants_all: bool) -> UnsavedObjects {
        let mut known = self.known();
        let mut is_all = wants_all | std::mem::take(&mut known.is_kind_unsaved);
        let mut changes = SavedChanges::default();
        let kinds = known.kinds.iter_mut().filter(|(kind, _)| !kind.is_optional());
        for (kind, objects) in kinds {
            changes.note(objects.saved_kind(kind), &mut objects.saved);
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

    pub(crate) fn status(&self) -> SourceStatus {
        let known = self.known();
        let held = || known.kinds.values().flat_map(|kind| kind.objects.values());
        let mut faults = known.left_out_faults(&self.cluster);
        faults.append(&mut known.definitions.faults(&self.cluster));
        let mut faulty = faults.len();
        for (kind, objects) in &known.kinds {
            let named = objects.objects.iter();
            let bad: BTreeMap<_, _> = named.filter(|(_, held)| held.has_faults()).collect();
            faulty += bad.len();
            let told = bad.into_iter().take(TOLD.saturating_sub(faults.len()));
            faults.extend(told.filter_map(|(name, held)| held.newest.faults(&self.cluster, kind, name)));
        }
        faults.truncate(TOLD);
        let doubts = known.kinds.iter();
        let doubts =
            doubts.filter_map(|(kind, objects)| Some(format!("{kind}: {}", objects.doubt.as_ref()?)));
        SourceStatus {
            cluster: self.cluster.to_string(),
            origin: known.origin,
            objects: held().filter(|held| held.good.is_some()).count(),
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
    /// What holds, as it is saved.
    fn saved(&self) -> SavedObjects {
        let kinds = || self.kinds.iter().filter(|(kind, _)| !kind.is_optional());
        let mut saved = SavedObjects::new(kinds().filter_map(|(kind, objects)| objects.saved_kind(kind)));
        let held = kinds().flat_map(|(_, kind)| kind.objects.values());
        for good in held.filter_map(|held| held.good.as_ref()) {
            saved.add(&good.content.text.get());
        }
        saved
    }

    /// How many objects were left out.
    fn left_out(&self) -> LeftOutCounts {
        let mut counts = LeftOutCounts::default();
        for (kind, objects) in &self.kinds {
            let count = match kind.room() {
                RoomPurpose::Rbac => &mut counts.rbac,
                RoomPurpose::Policies => &mut counts.policies,
                RoomPurpose::Parameters => &mut counts.parameters,
            };
            *count += objects.left_out.len();
        }
        counts
    }

    /// Some of what was left out, what restricts first.
    fn left_out_faults(&self, cluster: &Arc<str>) -> Vec<Faults> {
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_by_key(|(kind, _)| match kind.room() {
            RoomPurpose::Policies => 0,
            RoomPurpose::Parameters => 1,
            RoomPurpose::Rbac => 2,
        });
        let faults = kinds
            .into_iter()
            .flat_map(|(kind, objects)| objects.left_out.faults(cluster, kind));
        faults.take(TOLD).collect()
    }
}

// === impl KindObjects ===

impl KindObjects {
    /// What is not known of the kind, as far as it matters that it is not.
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
            let unread = self.objects.iter().filter(|(_, held)| held.good.is_none());
            names.extend(unread.map(|(name, _)| name.clone()));
            unknown.parameters.insert(parameters, names);
        }
    }

    /// What is saved of the kind besides its objects; `None` where that is nothing.
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

fn selects(selector: Option<&Selector>, good: &ValidObject) -> bool {
    selector.is_some_and(|selector| selector.labels.matches(|key| good.content.labels.get(key)))
}

/// How many parts a kind has: of 100,000 objects, one has some 1,600.
const PARTS: u64 = 64;

/// What is held of each object, by name.
#[derive(Default)]
pub(crate) struct HeldObjects {
    /// None until there is an object, so that a kind without any costs nothing.
    parts: Vec<HeldPart>,
    unsaved: UnsavedNames,
}

/// Of which objects another version may hold than is saved.
#[derive(Default)]
pub(crate) enum UnsavedNames {
    /// Of so many that it does not matter which.
    #[default]
    Any,
    /// Of these.
    Some(BTreeSet<Name>),
}

/// Where more than so many objects changed, all are saved.
const FEW: usize = 1_000;

/// The objects whose names have one hash.
#[derive(Default)]
struct HeldPart {
    objects: BTreeMap<Name, Box<HeldObject>>,
    /// What was given of it last, if nothing changed since.
    given: Option<Arc<WatchedPart>>,
}

// === impl HeldObjects ===

impl HeldObjects {
    pub(crate) fn get(&self, name: &Name) -> Option<&HeldObject> {
        Some(self.parts.get(place(name))?.objects.get(name)?)
    }

    /// To be changed; a new one if there is none of this name.
    pub(crate) fn entry(&mut self, name: Name) -> &mut HeldObject {
        if self.parts.is_empty() {
            self.parts
                .resize_with(usize::try_from(PARTS).unwrap_or_default(), HeldPart::default);
        }
        self.unsaved.note(&name);
        #[expect(
            clippy::indexing_slicing,
            reason = "a place is less than PARTS, and there are as many"
        )]
        let part = &mut self.parts[place(&name)];
        part.changing().entry(name).or_default()
    }

    pub(crate) fn remove(&mut self, name: &Name) -> Option<Box<HeldObject>> {
        let gone = self.parts.get_mut(place(name))?.changing().remove(name)?;
        self.unsaved.note(name);
        Some(gone)
    }

    /// Of which objects another version may hold than when this was asked for last.
    pub(crate) fn take_unsaved(&mut self) -> UnsavedNames {
        std::mem::replace(&mut self.unsaved, UnsavedNames::Some(BTreeSet::new()))
    }

    /// To be changed where that changes nothing of what holds.
    pub(crate) fn peek_mut(&mut self, name: &Name) -> Option<&mut HeldObject> {
        let part = self.parts.get_mut(place(name))?;
        Some(part.objects.get_mut(name)?)
    }

    /// Keeps those whose names and marks `is_kept` takes. Whether any went.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&Name, u32) -> bool) -> bool {
        let mut changed = false;
        for part in &mut self.parts {
            if !part.objects.iter().all(|(name, held)| is_kept(name, held.listed)) {
                let unsaved = &mut self.unsaved;
                part.changing().retain(|name, held| {
                    let is_kept = is_kept(name, held.listed);
                    if !is_kept {
                        unsaved.note(name);
                    }
                    is_kept
                });
                changed = true;
            }
        }
        changed
    }

    /// The last version of the object of this name is not taken: what let requests pass goes, and
    /// what restricts holds on. Whether what holds changed.
    pub(crate) fn leave_out(&mut self, name: &Name) -> bool {
        let restricts = |held: &HeldObject| {
            let good = held.good.as_ref();
            good.is_some_and(|good| good.object.restricts())
        };
        if self.get(name).is_none_or(restricts) {
            return false;
        }
        self.remove(name).is_some_and(|gone| gone.good.is_some())
    }

    /// In the order of their names.
    pub(crate) fn by_name(&self) -> impl Iterator<Item = (&Name, &HeldObject)> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all.into_iter()
    }

    /// In an order of its own.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &HeldObject)> {
        let objects = self.parts.iter().flat_map(|part| &part.objects);
        objects.map(|(name, held)| (name, &**held))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &HeldObject> {
        self.iter().map(|(_, held)| held)
    }

    /// To be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Name, &mut HeldObject)> {
        self.unsaved = UnsavedNames::Any;
        let objects = self.parts.iter_mut().flat_map(HeldPart::changing);
        objects.map(|(name, held)| (name, &mut **held))
    }

    /// What was given may be asked for otherwise from now on.
    pub(crate) fn forget_given(&mut self) {
        self.parts.iter_mut().for_each(|part| part.given = None);
    }

    /// What holds of it and `is_wanted`, part by part; parts in which nothing changed are the
    /// very ones that were given last.
    pub(crate) fn give(
        &mut self,
        is_wanted: impl Fn(&ValidObject) -> bool,
    ) -> impl Iterator<Item = Arc<WatchedPart>> {
        let given = self.parts.iter_mut().map(move |part| part.give(&is_wanted));
        given.filter(|part| !part.objects.is_empty())
    }
}

// === impl UnsavedNames ===

impl UnsavedNames {
    fn note(&mut self, name: &Name) {
        if let Self::Some(names) = self {
            names.insert(name.clone());
            if names.len() > FEW {
                *self = Self::Any;
            }
        }
    }
}

// === impl HeldPart ===

impl HeldPart {
    fn changing(&mut self) -> &mut BTreeMap<Name, Box<HeldObject>> {
        self.given = None;
        &mut self.objects
    }

    fn give(&mut self, is_wanted: impl Fn(&ValidObject) -> bool) -> Arc<WatchedPart> {
        let given = self.given.get_or_insert_with(|| {
            let good = self.objects.values().filter_map(|held| held.good.as_ref());
            let (mut digest, mut objects) = (Sha256::new(), Vec::new());
            for good in good.filter(|good| is_wanted(good)) {
                digest.update(&good.content.digest);
                objects.push(Arc::clone(&good.object));
            }
            Arc::new(WatchedPart {
                objects,
                digest: digest.finish(),
            })
        });
        Arc::clone(given)
    }
}

fn place(name: &Name) -> usize {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    usize::try_from(hasher.finish() % PARTS).unwrap_or_default()
}
