//! The store of one cluster: its objects, each with the last valid version.
//!
//! ```text
//!             .--(valid)---> the version in force
//!  apply --> read --(withheld)--> reported once; the previous version stays in force
//!             '--(faulty)-------> the same
//! ```
//!
//! A grant or an exception is withheld until it is known that the API server stores every field
//! that may limit it (`held`).
//!
//! No object of a cluster takes effect before every kind has been listed once, or a saved set has
//! been read, because grants must not take effect while denials are still missing.

mod absence;
mod held;
mod in_force;
mod listing;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::contents::{SharedContents, ValidObject};
use super::definition::{Definitions, HeldDefinition, MAX_DEFINITIONS, ReadDefinition, SchemaState};
use super::kind::{Name, WatchPurpose, WatchedKind};
use super::memory::{Charge, ClusterMemory, ClusterRoom, RoomOwner};
use super::object::{FaultyObject, ReceivedObject};
use super::saved::RestoredSet;
use super::weight::{LeftOutReason, log_left_out};
use crate::state::Origin;
use held::{HeldObject, ReadObject, log_faults};
use portcullis_cel::Version;
use portcullis_policy::model::groups::PORTCULLIS;
use views::{Doubt, InForceVersions, KindObjects, StoredKinds, SyncProgress};

pub(crate) use absence::AbsenceEvidence;
pub(crate) use in_force::DesiredCondition;
pub(crate) use listing::{ListEvidence, ListOutcome, Listing};
pub(crate) use views::Store;

/// The memory of a kind besides its objects: some of its tables are as large for one object as for
/// thousands.
const KIND_BYTES: usize = 3 << 10;

// === impl Store ===

impl Store {
    /// A store that shares nothing with others: see [`sharing`](Self::sharing).
    #[cfg(test)]
    pub(crate) fn new(cluster: &str, saved: Option<RestoredSet>, cel_version: Version) -> Self {
        let memory = super::memory::WatchedMemory::default().cluster();
        let store = Self::sharing(&Arc::default(), memory, cluster, cel_version);
        if let Some(saved) = saved {
            store.restore(saved);
        }
        store
    }

    /// A store without objects. It compiles expressions for `cel_version`, and charges objects to
    /// the `memory` of its cluster. Their contents are kept in `contents`, once for all stores.
    pub(crate) fn sharing(
        contents: &Arc<SharedContents>,
        memory: ClusterMemory,
        cluster: &str,
        cel_version: Version,
    ) -> Self {
        Self {
            cluster: cluster.into(),
            contents: Arc::clone(contents),
            memory,
            known: Mutex::new(StoredKinds {
                kinds: BTreeMap::new(),
                origin: Origin::None,
                lacks_changes: false,
                definitions: Definitions::default(),
                token_keys: None,
                in_force_versions: InForceVersions::default(),
                cel_version,
                version: 0,
                last: None,
                is_kind_unsaved: false,
                accepts_absence: false,
            }),
            #[cfg(test)]
            compiling: Mutex::new(()),
        }
    }

    /// Blocks all access to the store until the result is dropped.
    #[cfg(test)]
    pub(crate) fn delay_requests(&self) -> impl Sized {
        self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, StoredKinds> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the store for a change of the objects in force.
    fn lock_for_change(&self) -> MutexGuard<'_, StoredKinds> {
        let mut known = self.lock();
        known.version += 1;
        known
    }

    /// From now on exactly `kinds` are watched; the objects of other kinds are dropped. Returns
    /// whether objects in force changed.
    pub(crate) fn set_kinds(&self, kinds: &BTreeSet<WatchedKind>) -> bool {
        let mut known = self.lock_for_change();
        let before = known.kinds.len();
        known.kinds.retain(|kind, _| kinds.contains(kind));
        let dropped = known.kinds.len() != before;
        known.is_kind_unsaved |= dropped;
        for kind in kinds {
            let objects = known.kinds.entry(kind.clone()).or_default();
            if kind.purpose == WatchPurpose::Parameter {
                let room = self.memory.room(kind.room());
                objects
                    .charge
                    .get_or_insert_with(|| room.charge_unconditionally(KIND_BYTES));
            }
        }
        dropped
    }

    /// The watches start again: the objects stay in force until they have been listed.
    pub(crate) fn await_all(&self) {
        for objects in self.lock().kinds.values_mut() {
            objects.progress = SyncProgress::NotListed;
        }
    }

    /// The public keys of the API server's tokens, if they are known.
    pub(crate) fn token_keys(&self) -> Option<Arc<[u8]>> {
        self.lock().token_keys.clone()
    }

    /// Sets the public keys of the API server's tokens, or `None` if they are unknown. Returns
    /// whether they changed.
    pub(crate) fn set_token_keys(&self, keys: Option<Arc<[u8]>>) -> bool {
        if self.lock().token_keys == keys {
            return false;
        }
        self.lock_for_change().token_keys = keys;
        true
    }

    /// Notes that the gateway may not list this kind. Returns whether objects in force changed.
    pub(crate) fn refused(&self, kind: &WatchedKind) -> bool {
        let mut known = self.lock_for_change();
        if let Some(objects) = known.kinds.get_mut(kind) {
            objects.progress = SyncProgress::Refused;
        }
        known.take_withheld(&self.cluster);
        known.mark_live(&self.cluster)
    }

    /// Adds saved objects, which are in force whatever is known about the API server's schema.
    /// Nothing is known about the cluster until all are added. Blocks while their expressions are
    /// compiled. The API server's objects must come afterwards.
    pub(crate) fn restore(&self, saved: RestoredSet) {
        let cel_version = self.lock().cel_version;
        for (kind, name, received) in saved.objects {
            let read = received.and_then(|received| self.read(&kind, received, 0));
            let mut known = self.lock_for_change();
            let objects = known.kinds.entry(kind.clone()).or_default();
            // A saved kind is complete.
            objects.known = true;
            match read {
                Ok(read) => objects.objects.entry(name).restore(&self.cluster, read),
                Err(reason) => objects.left_out.note(name, reason),
            }
        }
        let mut known = self.lock_for_change();
        for (kind, saved) in saved.kinds {
            let objects = known.kinds.entry(kind).or_default();
            objects.newest = saved.resource_version;
            objects.known &= !saved.is_partial;
            objects.doubt = saved.doubt.map(Doubt);
        }
        if known.cel_version != cel_version {
            let outdated = known.with_expressions();
            drop(known);
            self.compile_again(outdated);
            known = self.lock_for_change();
        }
        known.origin = Origin::Saved;
        known.lacks_changes = saved.lacks_changes;
    }

    /// Applies an object that is new or changed. Returns whether objects in force changed. Blocks
    /// while its expressions are compiled.
    pub(crate) fn apply(
        &self,
        kind: &WatchedKind,
        name: Name,
        received: Result<ReceivedObject, LeftOutReason>,
    ) -> bool {
        let received = match received {
            Ok(received) if kind.purpose == WatchPurpose::Definition => {
                return match self.read_definition(&received) {
                    Ok(read) => self.lock_for_change().define(&self.cluster, &name, read),
                    Err(reason) => self.leave_out(kind, name, reason),
                };
            }
            Ok(received) if self.mark_known(kind, &received, None) => return false,
            received => received,
        };
        let cel_version = self.lock().cel_version;
        let before = self.bytes_of(kind, &name);
        match received.and_then(|received| self.read(kind, received, before)) {
            Ok(read) => self.insert_read(kind, name, read, cel_version),
            Err(reason) => self.leave_out(kind, name, reason),
        }
    }

    fn insert_read(&self, kind: &WatchedKind, name: Name, read: ReadObject, cel_version: Version) -> bool {
        let mut known = self.lock_for_change();
        let schema = known.schema(kind);
        let objects = known.kinds.entry(kind.clone()).or_default();
        let changed = objects.insert_read(&self.cluster, kind, name.clone(), read, &schema);
        let is_outdated = known.cel_version != cel_version;
        drop(known);
        if is_outdated {
            self.compile_again(vec![(kind.clone(), name)]);
        }
        changed | is_outdated
    }

    fn leave_out(&self, kind: &WatchedKind, name: Name, reason: LeftOutReason) -> bool {
        log_left_out(&self.cluster, kind, &name, reason);
        let mut known = self.lock_for_change();
        let was_defined = kind.purpose == WatchPurpose::Definition && known.undefine(&self.cluster, &name);
        let objects = known.kinds.entry(kind.clone()).or_default();
        let changed = was_defined | objects.objects.leave_out(&name);
        objects.left_out.note(name, reason);
        // Unknown objects of these kinds also affect decisions.
        changed | kind.affects_decisions_when_unknown()
    }

    /// The memory of the object with this name.
    fn bytes_of(&self, kind: &WatchedKind, name: &Name) -> usize {
        let known = self.lock();
        let held = known.kinds.get(kind).and_then(|kind| kind.objects.get(name));
        held.map_or(0, HeldObject::bytes)
    }

    /// Decodes an object in place of one that takes `before` bytes, unless there is no room for it.
    fn read(
        &self,
        kind: &WatchedKind,
        received: ReceivedObject,
        before: usize,
    ) -> Result<ReadObject, LeftOutReason> {
        let room = self.memory.room(kind.room());
        let (bytes, is_shared) = (received.bytes, self.contents.has(&received));
        let requester = received.requester(kind);
        let share = requester
            .as_deref()
            .unwrap_or_else(|| kind.namespace_of(&received.name));
        let share = RoomOwner::of(share);
        let charge = room.try_take(share, bytes, is_shared, before);
        let charge = charge.ok_or(LeftOutReason::NoRoom { bytes, share })?;
        let cel_version = self.lock().cel_version;
        let (digest, noted) = (received.digest, received.server_metadata.clone());
        let mut outcome = self.read_charged(kind, received, cel_version, charge);
        let (charge, made) = match &mut outcome {
            Ok(good) => (&mut good.charge, good.object.compiled_bytes()),
            Err((refused, charge)) => (charge, refused.faults.memory_bytes()),
        };
        if made > 0 && !charge.try_take_made(made, before) {
            let bytes = bytes + made;
            return Err(LeftOutReason::NoRoom { bytes, share });
        }
        Ok(ReadObject {
            digest,
            noted,
            outcome,
        })
    }

    fn read_charged(
        &self,
        kind: &WatchedKind,
        received: ReceivedObject,
        version: Version,
        charge: Charge,
    ) -> Result<ValidObject, (FaultyObject, Charge)> {
        let room: &ClusterRoom = self.memory.room(kind.room());
        self.contents
            .read(received, &self.cluster, version, (room, charge))
    }

    /// If `received` is the last version that was read, marks the object as listed, updates its
    /// server metadata, and returns `true`.
    fn mark_known(&self, kind: &WatchedKind, received: &ReceivedObject, mark: Option<u32>) -> bool {
        let mut known = self.lock();
        let held = known
            .kinds
            .get_mut(kind)
            .and_then(|kind| kind.objects.peek_mut(&received.name));
        // Tokens of a webhook configuration become invalid when it is created again.
        let is_same = |held: &&mut HeldObject| {
            held.is_of(received)
                && held.noted().since == received.server_metadata.since
                && (kind.purpose != WatchPurpose::Registration
                    || held.noted().uid == received.server_metadata.uid)
        };
        let Some(held) = held.filter(is_same) else {
            return false;
        };
        held.note(received.server_metadata.clone());
        held.listed = mark.unwrap_or(held.listed);
        true
    }

    /// Reads a definition, unless there is no room for it.
    pub(crate) fn read_definition(&self, received: &ReceivedObject) -> Result<ReadDefinition, LeftOutReason> {
        let Some(definition) = received.definition() else {
            return Ok(ReadDefinition::Invalid);
        };
        let bytes = definition.bytes();
        let before = {
            let known = self.lock();
            let held = known.definitions.known.get(&received.name);
            if held.is_some_and(|held| held.definition == definition) {
                return Ok(ReadDefinition::Same);
            }
            held.map_or(0, |held| held.charge.bytes())
        };
        let room = self.memory.room(WatchedKind::definitions().room());
        let share = RoomOwner::NONE;
        let charge = room.try_take(share, bytes, false, before);
        Ok(ReadDefinition::New(Box::new(HeldDefinition {
            definition,
            charge: charge.ok_or(LeftOutReason::NoRoom { bytes, share })?,
            _content: room.take_content(bytes),
        })))
    }

    /// Deletes an object. Returns whether objects in force changed.
    pub(crate) fn delete(&self, kind: &WatchedKind, name: &Name) -> bool {
        let mut known = self.lock_for_change();
        let was_defined = kind.purpose == WatchPurpose::Definition && known.undefine(&self.cluster, name);
        let Some(objects) = known.kinds.get_mut(kind) else {
            return was_defined;
        };
        let was_left_out = objects.left_out.remove(name);
        let gone = objects.objects.remove(name);
        was_defined | was_left_out | gone.is_some_and(|held| held.in_force.is_some())
    }

    /// The shares with left-out objects of this kind for which there is room now.
    pub(crate) fn left_out_with_room(&self, kind: &WatchedKind) -> BTreeSet<RoomOwner> {
        let (known, room) = (self.lock(), self.memory.room(kind.room()));
        let left_out = known.kinds.get(kind).into_iter();
        let waiting = left_out.flat_map(|kind| kind.left_out.waiting());
        let fits = waiting.filter(|&(share, bytes)| room.has_room(share, bytes));
        fits.map(|(share, _)| share).collect()
    }

    /// Whether nothing is known, neither from the cache file nor from the API server; or the cache
    /// file lacks changes.
    pub(crate) fn is_unsynced(&self) -> bool {
        let known = self.lock();
        known.origin == Origin::None || known.lacks_changes
    }

    /// Whether every kind was listed, including parameters unless they may not be: only then is the
    /// set worth saving.
    pub(crate) fn is_complete(&self) -> bool {
        self.lock().is_complete()
    }
}

// === impl StoredKinds ===

impl StoredKinds {
    /// Whether every kind was listed except parameters: a policy whose parameters are missing fails
    /// by itself.
    fn is_listed(&self) -> bool {
        let mut kinds = self.kinds.iter();
        kinds.all(|(kind, objects)| match (kind.purpose, objects.progress) {
            (WatchPurpose::Parameter | WatchPurpose::ReportedOnly | WatchPurpose::Registration, _) => true,
            (WatchPurpose::Definition | WatchPurpose::Invariant | WatchPurpose::AccessRequest, progress) => {
                progress != SyncProgress::NotListed
            }
            (_, progress) => progress == SyncProgress::Listed,
        })
    }

    fn is_complete(&self) -> bool {
        let saved = self
            .kinds
            .iter()
            .filter(|(kind, _)| kind.purpose != WatchPurpose::Registration);
        let mut awaited = saved.filter(|(_, objects)| objects.progress == SyncProgress::NotListed);
        self.is_listed() && awaited.next().is_none()
    }

    /// What is known about the schema of `kind`.
    pub(crate) fn schema(&self, kind: &WatchedKind) -> SchemaState {
        let definitions = self.kinds.get(&WatchedKind::definitions());
        match definitions.map(|objects| (objects.progress, objects.known)) {
            Some((SyncProgress::Refused, _)) => SchemaState::Forbidden,
            None | Some((SyncProgress::NotListed, false)) => SchemaState::Awaited,
            Some(_) => self.definitions.schema(kind),
        }
    }

    /// Applies a definition. Returns whether objects in force changed.
    pub(crate) fn define(&mut self, cluster: &Arc<str>, name: &Name, read: ReadDefinition) -> bool {
        let kind = WatchedKind::definitions();
        let was_left_out = self
            .kinds
            .get_mut(&kind)
            .is_some_and(|objects| objects.left_out.remove(name));
        let held = match read {
            ReadDefinition::Same => return was_left_out,
            ReadDefinition::Invalid => return self.undefine(cluster, name),
            ReadDefinition::New(held) => held,
        };
        let definition = &held.definition;
        let before = self.definitions.known.get(name);
        if before.is_none() && self.definitions.known.len() >= MAX_DEFINITIONS {
            return was_left_out;
        }
        let is_new = before.map(|before| &before.definition.resource) != Some(&definition.resource);
        let is_own = definition.resource.group == PORTCULLIS || before.is_some_and(HeldDefinition::is_own);
        if let Some(faults) = definition.faults(cluster, name) {
            log_faults(cluster, true, &faults);
        }
        self.definitions.insert(name.clone(), *held);
        (is_own && self.take_withheld(cluster)) | is_new
    }

    /// Deletes a definition. Returns whether objects in force changed.
    pub(crate) fn undefine(&mut self, cluster: &Arc<str>, name: &Name) -> bool {
        let gone = self.definitions.known.remove(name);
        let is_own = gone.as_ref().is_some_and(HeldDefinition::is_own);
        (is_own && self.take_withheld(cluster)) | gone.is_some()
    }

    /// Deletes all definitions except `names`. Returns whether there were any.
    pub(crate) fn keep_definitions(&mut self, names: &BTreeSet<Name>) -> bool {
        let before = self.definitions.known.len();
        self.definitions.known.retain(|name, _| names.contains(name));
        self.definitions.known.len() != before
    }

    /// Puts withheld versions in force that no longer have to be withheld. Returns whether objects
    /// in force changed.
    pub(crate) fn take_withheld(&mut self, cluster: &Arc<str>) -> bool {
        let own = self.kinds.keys().filter(|kind| kind.is_own());
        let schemas: Vec<(WatchedKind, SchemaState)> =
            own.map(|kind| (kind.clone(), self.schema(kind))).collect();
        let mut changed = false;
        for (kind, schema) in schemas {
            let objects = self.kinds.get_mut(&kind).into_iter();
            for (_, held) in objects.flat_map(|objects| objects.objects.iter_mut()) {
                changed |= held.recheck_schema(cluster, &kind, &schema);
            }
        }
        changed
    }

    /// Marks the cluster as live, if every kind has been listed now. Returns whether it was not
    /// live before.
    fn mark_live(&mut self, cluster: &str) -> bool {
        // Objects that are missing after this need evidence again.
        self.accepts_absence &= !self.is_complete();
        let is_new = self.is_listed() && self.origin != Origin::Live;
        if is_new {
            tracing::info!(cluster, "all kinds of the cluster are listed");
            self.origin = Origin::Live;
            self.lacks_changes = false;
        }
        is_new
    }
}

// === impl KindObjects ===

impl KindObjects {
    /// Adds an object that was read. Returns whether objects in force changed.
    fn insert_read(
        &mut self,
        cluster: &Arc<str>,
        kind: &WatchedKind,
        name: Name,
        read: ReadObject,
        schema: &SchemaState,
    ) -> bool {
        let was_left_out = self.left_out.remove(&name);
        let held = self.objects.entry(name);
        let is_of_other_time = held.noted().since != read.noted.since;
        held.note(read.noted);
        let changed = match read.outcome {
            Ok(good) => held.accept_version(cluster, kind, good, schema),
            // An earlier version of a webhook configuration does not stay in force.
            Err((refused, charge)) => {
                held.reject_version(cluster, read.digest, refused, Some(charge))
                    | (kind.purpose == WatchPurpose::Registration)
            }
        };
        was_left_out | changed | is_of_other_time
    }
}

#[cfg(test)]
mod tests;
