//! The store of one cluster: the objects known so far, and their last valid
//! versions.
//!
//! ```text
//!             .--(valid)---> the version in force
//!  apply --> read --(withheld)--> reported once; the previous version stays in force
//!             '--(faulty)-------> the same
//! ```
//!
//! A grant or an exception is withheld as long as it is not known that the API server
//! keeps every field that may limit it (`withheld`).
//!
//! No object of a cluster takes effect before every kind has been listed once, or a saved
//! set has been read: grants must not take effect while denials are still on their way.

mod absence;
mod in_force;
mod listing;
mod schema;
mod views;
mod withheld;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::contents::{SharedContents, ValidObject};
use super::kind::{WatchPurpose, WatchedKind};
use super::memory::{Charge, ClusterMemory, ClusterRoom};
use super::object::{Name, ReceivedObject, RefusedObject, ServerMetadata};
use super::saved::{RestoredSet, SavedKind};
use super::weight::LeftOutReason;
use crate::reload::Origin;
use absence::{Doubt, StaleSince};
use portcullis_cel::Version;
use portcullis_policy::field::Faults;
use schema::Definitions;
use views::{HeldObjects, LastWatched};
use withheld::{LeftOutObjects, WithheldVersion};

pub(crate) use absence::{AbsenceEvidence, ListEvidence};
pub(crate) use in_force::{DesiredCondition, InForceVersions};
pub(crate) use listing::{ListOutcome, Listing};

/// What is known of one cluster. Shared by its watches and its readers.
pub(crate) struct Store {
    cluster: Arc<str>,
    contents: Arc<SharedContents>,
    memory: ClusterMemory,
    known: Mutex<StoredKinds>,
}

struct StoredKinds {
    kinds: BTreeMap<WatchedKind, KindObjects>,
    origin: Origin,
    definitions: Definitions,
    standing: InForceVersions,
    /// What expressions are compiled for.
    cel_version: Version,
    /// A number that grows with each change of what may hold.
    version: u64,
    /// What was asked for last.
    last: Option<LastWatched>,
    /// Whether a kind was dropped that is saved.
    is_kind_unsaved: bool,
    /// Whether an administrator says that what is absent is gone, until every kind was listed.
    accepts_absence: bool,
}

/// The objects of one kind.
#[derive(Default)]
struct KindObjects {
    progress: SyncProgress,
    /// Whether all of them were listed before, or saved.
    known: bool,
    objects: HeldObjects,
    left_out: LeftOutObjects,
    /// The newest version that was seen of the kind.
    newest: Option<u64>,
    /// Why what is not listed holds all the same.
    doubt: Option<Doubt>,
    /// Since when what holds may not be what the API server has.
    outdated: Option<StaleSince>,
    /// How many lists were begun.
    lists: u32,
    /// What was saved of it besides its objects.
    saved: Option<SavedKind>,
}

/// How far a kind is known since the start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum SyncProgress {
    /// Its list is awaited.
    #[default]
    Awaited,
    /// The API server refuses to list it, or does not serve it.
    Refused,
    /// It was listed.
    Listed,
}

/// What is held of one object.
#[derive(Default)]
struct HeldObject {
    good: Option<ValidObject>,
    newest: LatestVersion,
    /// None where nothing is.
    noted: Option<Box<ServerMetadata>>,
    /// The last list that had it.
    listed: u32,
}

/// What became of the last version received.
#[derive(Default)]
enum LatestVersion {
    /// It holds.
    #[default]
    Good,
    Faulty(Box<ObjectFault>),
    Withheld(Box<WithheldVersion>),
}

/// Why the last version received does not hold.
struct ObjectFault {
    /// Of that version.
    digest: [u8; 32],
    refused: RefusedObject,
    /// `None` where it is the version that holds.
    charge: Option<Charge>,
}

/// An object that was read.
struct ReadObject {
    outcome: Result<ValidObject, (RefusedObject, Charge)>,
    digest: [u8; 32],
    noted: ServerMetadata,
}

// === impl Store ===

impl Store {
    /// A store that shares nothing with another: see [`sharing`](Self::sharing).
    #[cfg(test)]
    pub(crate) fn new(cluster: &str, saved: Option<RestoredSet>, cel_version: Version) -> Self {
        let memory = super::memory::WatchedMemory::default().cluster();
        let store = Self::sharing(&Arc::default(), memory, cluster, cel_version);
        if let Some(saved) = saved {
            store.restore(saved);
        }
        store
    }

    /// A store that knows nothing yet. It compiles expressions for
    /// `cel_version`, and takes the `memory` of its cluster. What its objects say is kept among
    /// `contents`, once for all stores.
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
                origin: Origin::Nowhere,
                definitions: Definitions::default(),
                standing: InForceVersions::default(),
                cel_version,
                version: 0,
                last: None,
                is_kind_unsaved: false,
                accepts_absence: false,
            }),
        }
    }

    /// Nobody else gets at what is held until the result is dropped.
    #[cfg(test)]
    pub(crate) fn hold_up(&self) -> impl Sized {
        self.known()
    }

    fn known(&self) -> MutexGuard<'_, StoredKinds> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, to change what may hold.
    fn changing(&self) -> MutexGuard<'_, StoredKinds> {
        let mut known = self.known();
        known.version += 1;
        known
    }

    /// From now on exactly `kinds` are watched. What is held of others is dropped.
    /// Whether anything that holds changed.
    pub(crate) fn keep(&self, kinds: &BTreeSet<WatchedKind>) -> bool {
        let mut known = self.changing();
        let before = known.kinds.len();
        known.kinds.retain(|kind, _| kinds.contains(kind));
        let dropped = known.kinds.len() != before;
        known.is_kind_unsaved |= dropped;
        for kind in kinds {
            known.kinds.entry(kind.clone()).or_default();
        }
        dropped
    }

    /// The watches begin again: what is held holds on until they have listed it.
    pub(crate) fn await_all(&self) {
        for objects in self.known().kinds.values_mut() {
            objects.progress = SyncProgress::Awaited;
        }
    }

    /// The API server does not let this kind be listed. Whether what holds changed.
    pub(crate) fn refused(&self, kind: &WatchedKind) -> bool {
        let mut known = self.changing();
        if let Some(objects) = known.kinds.get_mut(kind) {
            objects.progress = SyncProgress::Refused;
        }
        known.settle(&self.cluster);
        known.is_live_from_now(&self.cluster)
    }

    /// Takes objects as they were saved: they hold, whatever is known of the API server's schema.
    /// Nothing is known of the cluster until all are taken. Blocks for as long as their
    /// expressions take to compile; the API server's objects come afterwards.
    pub(crate) fn restore(&self, saved: RestoredSet) {
        let cel_version = self.known().cel_version;
        for (kind, name, received) in saved.objects {
            let read = received.and_then(|received| self.read(&kind, received, 0));
            let mut known = self.changing();
            let objects = known.kinds.entry(kind.clone()).or_default();
            // What is saved is complete.
            objects.known = true;
            match read {
                Ok(read) => objects.objects.entry(name).restore(&self.cluster, read),
                Err(reason) => objects.left_out.note(name, reason),
            }
        }
        let mut known = self.changing();
        for (kind, saved) in saved.kinds {
            let objects = known.kinds.entry(kind).or_default();
            objects.newest = saved.resource_version;
            objects.known &= !saved.is_partial;
            objects.doubt = saved.doubt.map(Doubt);
        }
        if known.cel_version != cel_version {
            known.compile_anew(self);
        }
        known.origin = Origin::Saved;
    }

    /// Takes an object that is new or changed. Whether what holds changed. Blocks for as long as
    /// its expressions take to compile.
    pub(crate) fn apply(
        &self,
        kind: &WatchedKind,
        name: Name,
        received: Result<ReceivedObject, LeftOutReason>,
    ) -> bool {
        let received = match received {
            Ok(received) if kind.role == WatchPurpose::Definition => {
                return match self.read_definition(&received) {
                    Ok(read) => self.changing().define(&self.cluster, &name, read),
                    Err(reason) => self.leave_out(kind, name, reason),
                };
            }
            Ok(received) if self.mark_known(kind, &received, None) => return false,
            received => received,
        };
        let cel_version = self.known().cel_version;
        let before = self.bytes_of(kind, &name);
        match received.and_then(|received| self.read(kind, received, before)) {
            Ok(read) => self.hold(kind, name, read, cel_version),
            Err(reason) => self.leave_out(kind, name, reason),
        }
    }

    fn hold(&self, kind: &WatchedKind, name: Name, read: ReadObject, cel_version: Version) -> bool {
        let mut known = self.changing();
        let schema = known.schema(kind);
        let objects = known.kinds.entry(kind.clone()).or_default();
        let changed = objects.hold(&self.cluster, kind, name, read, &schema);
        // What was compiled meanwhile for another version is compiled again.
        changed | (known.cel_version != cel_version && known.compile_anew(self))
    }

    fn leave_out(&self, kind: &WatchedKind, name: Name, reason: LeftOutReason) -> bool {
        withheld::log(&self.cluster, kind, &name, reason);
        let mut known = self.changing();
        let was_defined = kind.role == WatchPurpose::Definition && known.undefine(&self.cluster, &name);
        let objects = known.kinds.entry(kind.clone()).or_default();
        let changed = was_defined | objects.objects.leave_out(&name);
        objects.left_out.note(name, reason);
        // What is not known of parameters decides too.
        changed | (kind.role == WatchPurpose::Parameter)
    }

    /// How much memory the object of this name takes.
    fn bytes_of(&self, kind: &WatchedKind, name: &Name) -> usize {
        let known = self.known();
        let held = known.kinds.get(kind).and_then(|kind| kind.objects.get(name));
        held.map_or(0, HeldObject::bytes)
    }

    /// Reads an object in place of one that takes `before` bytes, unless there is no room for it.
    fn read(
        &self,
        kind: &WatchedKind,
        received: ReceivedObject,
        before: usize,
    ) -> Result<ReadObject, LeftOutReason> {
        let room = self.memory.room(kind.room());
        let (bytes, is_shared) = (received.bytes, self.contents.has(&received));
        let namespace = kind.namespace_of(&received.name);
        let charge = room.try_take(namespace, bytes, is_shared, before);
        let charge = charge.ok_or(LeftOutReason::NoRoom { bytes })?;
        let cel_version = self.known().cel_version;
        let (digest, noted) = (received.digest, received.noted.clone());
        let mut outcome = self.read_charged(kind, received, cel_version, charge);
        if let Ok(good) = &mut outcome
            && !good.try_take_compiled(before)
        {
            let bytes = bytes + good.object.compiled_bytes();
            return Err(LeftOutReason::NoRoom { bytes });
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
    ) -> Result<ValidObject, (RefusedObject, Charge)> {
        let room: &ClusterRoom = self.memory.room(kind.room());
        self.contents
            .read(received, &self.cluster, version, (room, charge))
    }

    /// Whether this very version was read before, and is the last that was: then it is marked as
    /// listed. What the API server notes besides it is taken.
    fn mark_known(&self, kind: &WatchedKind, received: &ReceivedObject, mark: Option<u32>) -> bool {
        let mut known = self.known();
        let held = known
            .kinds
            .get_mut(kind)
            .and_then(|kind| kind.objects.peek_mut(&received.name));
        let Some(held) = held.filter(|held| held.is_of(received)) else {
            return false;
        };
        held.note(received.noted.clone());
        held.listed = mark.unwrap_or(held.listed);
        true
    }

    /// Forgets an object that is gone. Whether what holds changed.
    pub(crate) fn delete(&self, kind: &WatchedKind, name: &Name) -> bool {
        let mut known = self.changing();
        let was_defined = kind.role == WatchPurpose::Definition && known.undefine(&self.cluster, name);
        let Some(objects) = known.kinds.get_mut(kind) else {
            return was_defined;
        };
        let was_left_out = objects.left_out.remove(name);
        let gone = objects.objects.remove(name);
        was_defined | was_left_out | gone.is_some_and(|held| held.good.is_some())
    }

    /// Whether an object that was left out of this kind would be taken now.
    pub(crate) fn may_take_more(&self, kind: &WatchedKind) -> bool {
        let (known, room) = (self.known(), self.memory.room(kind.room()));
        let left_out = known.kinds.get(kind).into_iter();
        let mut waiting = left_out.flat_map(|kind| kind.left_out.waiting());
        waiting.any(|(name, bytes)| room.has_room(kind.namespace_of(name), bytes))
    }

    /// Whether nothing is known: neither what was saved nor what the API server has.
    pub(crate) fn is_unknown(&self) -> bool {
        self.known().origin == Origin::Nowhere
    }

    /// Whether every kind was listed, parameters included that may be: only then
    /// is the set worth saving.
    pub(crate) fn is_complete(&self) -> bool {
        self.known().is_complete()
    }
}

// === impl StoredKinds ===

impl StoredKinds {
    /// Whether every kind was listed, but for parameters: a policy whose
    /// parameters are not there fails by itself.
    fn is_listed(&self) -> bool {
        let mut kinds = self.kinds.iter();
        kinds.all(|(kind, objects)| match (kind.role, objects.progress) {
            (WatchPurpose::Parameter | WatchPurpose::ReportedOnly, _) => true,
            (WatchPurpose::Definition, progress) => progress != SyncProgress::Awaited,
            (_, progress) => progress == SyncProgress::Listed,
        })
    }

    fn is_complete(&self) -> bool {
        let awaited = |objects: &KindObjects| objects.progress == SyncProgress::Awaited;
        self.is_listed() && !self.kinds.values().any(awaited)
    }

    /// Whether everything is known that was not before.
    fn is_live_from_now(&mut self, cluster: &str) -> bool {
        // What is absent after this needs evidence again.
        self.accepts_absence &= !self.is_complete();
        let is_new = self.is_listed() && self.origin != Origin::Live;
        if is_new {
            tracing::info!(cluster, "all kinds of the cluster are listed");
            self.origin = Origin::Live;
        }
        is_new
    }
}

// === impl KindObjects ===

impl KindObjects {
    /// Takes an object that was read. Whether what holds changed.
    fn hold(
        &mut self,
        cluster: &Arc<str>,
        kind: &WatchedKind,
        name: Name,
        read: ReadObject,
        schema: &schema::SchemaState,
    ) -> bool {
        let was_left_out = self.left_out.remove(&name);
        let held = self.objects.entry(name);
        held.note(read.noted);
        let changed = match read.outcome {
            Ok(good) => held.take(cluster, kind, good, schema),
            Err((refused, charge)) => {
                held.refuse(cluster, read.digest, refused, Some(charge));
                false
            }
        };
        was_left_out | changed
    }
}

// === impl HeldObject ===

impl HeldObject {
    /// Takes a version as it was saved.
    fn restore(&mut self, cluster: &str, read: ReadObject) {
        match read.outcome {
            Ok(good) => self.good = Some(good),
            Err((refused, charge)) => self.refuse(cluster, read.digest, refused, Some(charge)),
        }
    }

    /// How much memory it takes.
    fn bytes(&self) -> usize {
        let good = self.good.as_ref().map(|good| &good.charge);
        let newest = match &self.newest {
            LatestVersion::Good => None,
            LatestVersion::Faulty(fault) => fault.charge.as_ref(),
            LatestVersion::Withheld(withheld) => Some(withheld.charge()),
        };
        good.into_iter().chain(newest).map(Charge::bytes).sum()
    }

    /// Whether the last version received does not hold.
    fn has_faults(&self) -> bool {
        match &self.newest {
            LatestVersion::Good => false,
            LatestVersion::Faulty(_) => true,
            LatestVersion::Withheld(withheld) => withheld.why().is_some(),
        }
    }

    /// Whether the last version received is this one.
    fn is_of(&self, received: &ReceivedObject) -> bool {
        match (&self.newest, &self.good) {
            (LatestVersion::Faulty(fault), _) => fault.digest == received.digest,
            (LatestVersion::Withheld(withheld), _) => withheld.is_of(received),
            (LatestVersion::Good, Some(good)) => good.content.digest == received.digest,
            (LatestVersion::Good, None) => false,
        }
    }

    fn note(&mut self, noted: ServerMetadata) {
        self.noted = (noted != ServerMetadata::NOTHING).then(|| Box::new(noted));
    }

    /// What the API server notes besides it.
    fn noted(&self) -> &ServerMetadata {
        static NOTHING: ServerMetadata = ServerMetadata::NOTHING;
        self.noted.as_deref().unwrap_or(&NOTHING)
    }

    /// Keeps the version before, and why.
    fn refuse(&mut self, cluster: &str, digest: [u8; 32], refused: RefusedObject, charge: Option<Charge>) {
        log_faults(cluster, self.good.is_some(), &refused.faults);
        self.newest = LatestVersion::Faulty(Box::new(ObjectFault {
            digest,
            refused,
            charge,
        }));
    }
}

// === impl LatestVersion ===

impl LatestVersion {
    /// Why it does not hold, if it does not.
    fn faults(&self, cluster: &Arc<str>, kind: &WatchedKind, name: &Name) -> Option<Faults> {
        match self {
            Self::Good => None,
            Self::Faulty(fault) => Some(fault.refused.faults.clone()),
            Self::Withheld(withheld) => withheld.faults(cluster, kind, name),
        }
    }
}

fn log_faults(cluster: &str, replaces: bool, faults: &Faults) {
    let held = if replaces {
        "the previous version stays in force"
    } else {
        "it is not in force"
    };
    for fault in faults.iter() {
        tracing::error!(cluster, "{fault}; {held}");
    }
}

#[cfg(test)]
mod tests;
