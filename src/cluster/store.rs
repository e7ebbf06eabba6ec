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

mod held_objects;
mod in_force;
mod recompile;
mod room;
mod schema;
mod views;
mod withheld;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::contents::SharedContents;
use super::kind::{WatchPurpose, WatchedKind};
use super::object::{Good, Name, Noted, ReceivedObject, RefusedObject};
use crate::reload::Origin;
use held_objects::HeldObjects;
use portcullis_cel::Version;
use portcullis_policy::field::Faults;
use schema::Definitions;
use views::LastWatched;
use withheld::Withheld;

pub(super) use in_force::{Standing, Wanted};
pub(super) use room::TooMuch;

/// What is known of one cluster. Shared by its watches and whoever reads it.
pub(super) struct Store {
    cluster: Arc<str>,
    contents: Arc<SharedContents>,
    known: Mutex<StoredKinds>,
}

struct StoredKinds {
    kinds: BTreeMap<WatchedKind, KindObjects>,
    origin: Origin,
    definitions: Definitions,
    standing: Standing,
    /// What expressions are compiled for.
    cel_version: Version,
    /// A number that grows with each change of what may hold.
    version: u64,
    /// What was asked for last.
    last: Option<LastWatched>,
    /// Whether a kind was dropped that is saved.
    is_kind_unsaved: bool,
    /// How many bytes its objects may have together, as JSON.
    most: usize,
}

/// The objects of one kind.
#[derive(Default)]
struct KindObjects {
    progress: SyncProgress,
    /// Whether all of them were listed before, or saved.
    known: bool,
    objects: HeldObjects,
    /// How many bytes a list of them has so far that is not at its end.
    listing: usize,
}

/// How far a kind is known since the start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum SyncProgress {
    /// Its list is awaited.
    #[default]
    Awaited,
    /// The API server refuses to list it.
    Refused,
    /// It was listed.
    Listed,
}

/// What is held of one object.
#[derive(Default)]
struct HeldObject {
    good: Option<Good>,
    newest: Newest,
    /// None where nothing is.
    noted: Option<Box<Noted>>,
    /// Of the last version received, as JSON.
    bytes: usize,
}

/// What became of the last version received.
#[derive(Default)]
enum Newest {
    /// It holds.
    #[default]
    Good,
    Faulty(Box<ObjectFault>),
    Withheld(Box<Withheld>),
}

/// Why the last version received does not hold.
struct ObjectFault {
    /// Of that version.
    digest: [u8; 32],
    refused: RefusedObject,
}

// === impl Store ===

impl Store {
    /// A store that shares nothing with another: see [`sharing`](Self::sharing).
    #[cfg(test)]
    pub(super) fn new(
        cluster: &str,
        saved: Option<Vec<(WatchedKind, ReceivedObject)>>,
        cel_version: Version,
    ) -> Self {
        Self::sharing(&Arc::default(), cluster, saved, cel_version)
    }

    /// A store that knows nothing yet, or what was `saved`. It compiles expressions for
    /// `cel_version`. What its objects say is kept among `contents`, once for all stores.
    pub(super) fn sharing(
        contents: &Arc<SharedContents>,
        cluster: &str,
        saved: Option<Vec<(WatchedKind, ReceivedObject)>>,
        cel_version: Version,
    ) -> Self {
        let origin = if saved.is_some() {
            Origin::Saved
        } else {
            Origin::Nowhere
        };
        let store = Self {
            cluster: cluster.into(),
            contents: Arc::clone(contents),
            known: Mutex::new(StoredKinds {
                kinds: BTreeMap::new(),
                origin,
                definitions: Definitions::default(),
                standing: Standing::default(),
                cel_version,
                version: 0,
                last: None,
                is_kind_unsaved: false,
                most: room::OBJECT_BYTES,
            }),
        };
        for (kind, received) in saved.into_iter().flatten() {
            store.restore(kind, received);
        }
        store
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
    pub(super) fn keep(&self, kinds: &BTreeSet<WatchedKind>) -> bool {
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

    /// The watches begin anew: what is held holds on until they have listed it.
    pub(super) fn await_all(&self) {
        for objects in self.known().kinds.values_mut() {
            objects.progress = SyncProgress::Awaited;
            objects.listing = 0;
        }
    }

    /// The API server does not let this kind be listed. Whether what holds changed.
    pub(super) fn refused(&self, kind: &WatchedKind) -> bool {
        let mut known = self.changing();
        if let Some(objects) = known.kinds.get_mut(kind) {
            objects.progress = SyncProgress::Refused;
        }
        known.settle(&self.cluster);
        known.is_live_from_now(&self.cluster)
    }

    /// Takes an object as it was saved: it holds, whatever is known of the API server's schema.
    fn restore(&self, kind: WatchedKind, received: ReceivedObject) {
        let (name, digest, bytes) = (received.name.clone(), received.digest, received.bytes());
        let mut known = self.changing();
        let read = self.contents.read(received, &self.cluster, known.cel_version);
        let objects = known.kinds.entry(kind).or_default();
        // What is saved is complete.
        objects.known = true;
        let held = objects.objects.entry(name.clone());
        let bytes = bytes + read.as_ref().map_or(0, |good| good.object.compiled_bytes());
        match read {
            Ok(good) => held.good = Some(good),
            Err(refused) => held.refuse(&self.cluster, digest, refused),
        }
        objects.objects.set_bytes(&name, bytes);
    }

    /// Takes an object that is new or changed, without a bound. Whether what holds changed.
    fn apply(&self, kind: &WatchedKind, received: ReceivedObject) -> bool {
        if kind.role == WatchPurpose::Definition {
            return self.changing().define(&self.cluster, &received);
        }
        if self.knows(kind, &received) {
            return false;
        }
        let (name, digest, noted) = (received.name.clone(), received.digest, received.noted.clone());
        let bytes = received.bytes();
        let cel_version = self.known().cel_version;
        let read = self.contents.read(received, &self.cluster, cel_version);
        let mut known = self.changing();
        let schema = known.schema(kind);
        let objects = known.kinds.entry(kind.clone()).or_default();
        let held = objects.objects.entry(name.clone());
        held.note(noted);
        // What they are compiled to counts as well.
        let bytes = bytes + read.as_ref().map_or(0, |good| good.object.compiled_bytes());
        let changed = match read {
            Ok(good) => held.take(&self.cluster, kind, good, &schema),
            Err(refused) => {
                held.refuse(&self.cluster, digest, refused);
                false
            }
        };
        objects.objects.set_bytes(&name, bytes);
        // What was compiled meanwhile for another version is compiled again.
        changed | (known.cel_version != cel_version && known.compile_anew(&self.cluster))
    }

    /// Whether this very version was read before, and is the last that was. What the API
    /// server notes beside it is taken.
    fn knows(&self, kind: &WatchedKind, received: &ReceivedObject) -> bool {
        let mut known = self.known();
        let held = known
            .kinds
            .get_mut(kind)
            .and_then(|kind| kind.objects.get_mut(&received.name));
        let Some(held) = held else { return false };
        let is_same = match (&held.newest, &held.good) {
            (Newest::Faulty(fault), _) => fault.digest == received.digest,
            (Newest::Withheld(withheld), _) => withheld.is_of(received),
            (Newest::Good, Some(good)) => good.content.digest == received.digest,
            (Newest::Good, None) => false,
        };
        if is_same {
            held.note(received.noted.clone());
        }
        is_same
    }

    /// Forgets an object that is gone. Whether what holds changed.
    pub(super) fn delete(&self, kind: &WatchedKind, name: &Name) -> bool {
        let mut known = self.changing();
        if kind.role == WatchPurpose::Definition {
            return known.undefine(&self.cluster, name);
        }
        let gone = known
            .kinds
            .get_mut(kind)
            .and_then(|kind| kind.objects.remove(name));
        gone.is_some_and(|held| held.good.is_some())
    }

    /// Takes the whole of a kind: what is not in `all` is gone. Whether what holds changed.
    pub(super) fn replace(&self, kind: &WatchedKind, all: Vec<ReceivedObject>) -> bool {
        let names: BTreeSet<Name> = all.iter().map(|received| received.name.clone()).collect();
        let mut changed = false;
        for received in all {
            changed |= self.apply(kind, received);
        }
        let mut known = self.changing();
        let objects = known.kinds.entry(kind.clone()).or_default();
        changed |= objects.objects.retain(|name| names.contains(name));
        changed |= kind.role == WatchPurpose::Parameter && !objects.known;
        (objects.progress, objects.known, objects.listing) = (SyncProgress::Listed, true, 0);
        if kind.role == WatchPurpose::Definition {
            changed |= known.define_all(&self.cluster, &names);
        }
        changed | known.is_live_from_now(&self.cluster)
    }

    /// Whether every kind was listed, parameters included that may be: only then
    /// is the set worth saving.
    pub(super) fn is_complete(&self) -> bool {
        let known = self.known();
        let awaited = |objects: &KindObjects| objects.progress == SyncProgress::Awaited;
        known.is_listed() && !known.kinds.values().any(awaited)
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

    /// Whether everything is known that was not before.
    fn is_live_from_now(&mut self, cluster: &str) -> bool {
        let is_new = self.is_listed() && self.origin != Origin::Live;
        if is_new {
            tracing::info!(cluster, "all kinds of the cluster are listed");
            self.origin = Origin::Live;
        }
        is_new
    }
}

// === impl HeldObject ===

impl HeldObject {
    fn note(&mut self, noted: Noted) {
        self.noted = (noted != Noted::NOTHING).then(|| Box::new(noted));
    }

    /// What the API server notes beside it.
    fn noted(&self) -> &Noted {
        static NOTHING: Noted = Noted::NOTHING;
        self.noted.as_deref().unwrap_or(&NOTHING)
    }

    /// Keeps the version before, and why.
    fn refuse(&mut self, cluster: &str, digest: [u8; 32], refused: RefusedObject) {
        log_faults(cluster, self.good.is_some(), &refused.faults);
        self.newest = Newest::Faulty(Box::new(ObjectFault { digest, refused }));
    }
}

// === impl Newest ===

impl Newest {
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
