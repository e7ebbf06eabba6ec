//! The store of one cluster: the objects known so far, and their last valid
//! versions.
//!
//! ```text
//!             .--(sound)---> the version that holds
//!  apply --> read
//!             '--(faulty)--> told once; the version before holds on
//! ```
//!
//! Nothing of a cluster is shown before every kind was listed once, or a saved
//! set was read: grants must not hold while denials are still on their way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openssl::sha::Sha256;

use super::kind::{WatchPurpose, WatchedKind};
use super::object::{Good, Name, ReceivedObject};
use crate::config::Selector;
use crate::field::Faults;
use crate::reload::{Origin, SourceStatus, Watched};

/// How many faults are told in detail.
const TOLD: usize = 10;

/// What is known of one cluster. Shared by its watches and whoever reads it.
pub(super) struct Store {
    cluster: Arc<str>,
    known: Mutex<StoredKinds>,
}

struct StoredKinds {
    kinds: BTreeMap<WatchedKind, KindObjects>,
    origin: Origin,
}

/// The objects of one kind.
#[derive(Default)]
struct KindObjects {
    progress: SyncProgress,
    /// Whether all of them were listed before, or saved.
    known: bool,
    objects: BTreeMap<Name, HeldObject>,
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
    fault: Option<ObjectFault>,
}

/// Why the last version received does not hold.
struct ObjectFault {
    /// Of that version.
    digest: [u8; 32],
    faults: Faults,
}

// === impl Store ===

impl Store {
    /// A store that knows nothing yet, or what was `saved`.
    pub(super) fn new(cluster: &str, saved: Option<Vec<(WatchedKind, ReceivedObject)>>) -> Self {
        let origin = if saved.is_some() {
            Origin::Saved
        } else {
            Origin::Nowhere
        };
        let store = Self {
            cluster: cluster.into(),
            known: Mutex::new(StoredKinds {
                kinds: BTreeMap::new(),
                origin,
            }),
        };
        for (kind, received) in saved.into_iter().flatten() {
            store.apply(&kind, received);
            // What is saved is complete.
            store.known().kinds.entry(kind).or_default().known = true;
        }
        store
    }

    fn known(&self) -> MutexGuard<'_, StoredKinds> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on exactly `kinds` are watched. What is held of others is dropped.
    /// Whether anything that holds changed.
    pub(super) fn keep(&self, kinds: &BTreeSet<WatchedKind>) -> bool {
        let mut known = self.known();
        let before = known.kinds.len();
        known.kinds.retain(|kind, _| kinds.contains(kind));
        let dropped = known.kinds.len() != before;
        for kind in kinds {
            known.kinds.entry(kind.clone()).or_default();
        }
        dropped
    }

    /// The watches begin anew: what is held holds on until they have listed it.
    pub(super) fn await_all(&self) {
        for objects in self.known().kinds.values_mut() {
            objects.progress = SyncProgress::Awaited;
        }
    }

    /// The API server does not let this kind be listed.
    pub(super) fn refused(&self, kind: &WatchedKind) {
        if let Some(objects) = self.known().kinds.get_mut(kind) {
            objects.progress = SyncProgress::Refused;
        }
    }

    /// Takes an object that is new or changed. Whether what holds changed.
    pub(super) fn apply(&self, kind: &WatchedKind, received: ReceivedObject) -> bool {
        if self.knows(kind, &received) {
            return false;
        }
        let (name, digest) = (received.name.clone(), received.digest);
        let read = received.read(&self.cluster);
        let mut known = self.known();
        let objects = known.kinds.entry(kind.clone()).or_default();
        let held = objects.objects.entry(name).or_default();
        match read {
            Ok(good) => {
                let same = held.good.as_ref().is_some_and(|held| held.digest == digest);
                (held.good, held.fault) = (Some(good), None);
                !same
            }
            Err(faults) => {
                tell(&self.cluster, held.good.is_some(), &faults);
                held.fault = Some(ObjectFault { digest, faults });
                false
            }
        }
    }

    /// Whether this very version was read before, and is the last that was.
    fn knows(&self, kind: &WatchedKind, received: &ReceivedObject) -> bool {
        let known = self.known();
        let held = known
            .kinds
            .get(kind)
            .and_then(|kind| kind.objects.get(&received.name));
        held.is_some_and(|held| match (&held.fault, &held.good) {
            (Some(fault), _) => fault.digest == received.digest,
            (None, Some(good)) => good.digest == received.digest,
            (None, None) => false,
        })
    }

    /// Forgets an object that is gone. Whether what holds changed.
    pub(super) fn delete(&self, kind: &WatchedKind, name: &Name) -> bool {
        let mut known = self.known();
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
        let mut known = self.known();
        let objects = known.kinds.entry(kind.clone()).or_default();
        let before = objects.objects.len();
        objects.objects.retain(|name, _| names.contains(name));
        changed |= objects.objects.len() != before;
        changed |= kind.role == WatchPurpose::Parameter && !objects.known;
        (objects.progress, objects.known) = (SyncProgress::Listed, true);
        if known.is_listed() && known.origin != Origin::Live {
            tracing::info!(cluster = &*self.cluster, "all kinds of the cluster are listed");
            known.origin = Origin::Live;
            changed = true;
        }
        changed
    }

    /// Whether every kind was listed, parameters included that may be: only then
    /// is the set worth saving.
    pub(super) fn is_complete(&self) -> bool {
        let known = self.known();
        let awaited = |objects: &KindObjects| objects.progress == SyncProgress::Awaited;
        known.is_listed() && !known.kinds.values().any(awaited)
    }

    /// What holds, of what must be selected as far as `selector` selects it, and
    /// with AdmissionExceptions only where they are wanted.
    pub(super) fn watched(&self, selector: Option<&Selector>, exceptions: bool) -> Watched {
        let known = self.known();
        let mut watched = Watched {
            cluster: self.cluster.to_string(),
            ..Watched::default()
        };
        if known.origin == Origin::Nowhere {
            return watched;
        }
        let mut digest = Sha256::new();
        for (kind, objects) in &known.kinds {
            if let Some(parameters) = kind.param_kind().filter(|_| objects.known) {
                digest.update(parameters.to_string().as_bytes());
                watched.parameters.insert(parameters);
            }
            for good in objects.objects.values().filter_map(|held| held.good.as_ref()) {
                // What was saved may be of a time when more was wanted.
                let is_wanted = match kind.role {
                    WatchPurpose::Selected => selects(selector, good),
                    WatchPurpose::Exception => exceptions,
                    WatchPurpose::Base | WatchPurpose::Parameter => true,
                };
                if !is_wanted {
                    continue;
                }
                digest.update(&good.digest);
                watched.objects.push(Arc::clone(&good.object));
            }
        }
        watched.digest = digest.finish();
        watched
    }

    /// What holds, as texts, and a digest of them.
    pub(super) fn texts(&self) -> ([u8; 32], Vec<Box<str>>) {
        let known = self.known();
        let held = known.kinds.values().flat_map(|kind| kind.objects.values());
        let mut digest = Sha256::new();
        let mut texts = Vec::new();
        for good in held.filter_map(|held| held.good.as_ref()) {
            digest.update(&good.digest);
            texts.push(good.text.clone());
        }
        (digest.finish(), texts)
    }

    pub(super) fn status(&self) -> SourceStatus {
        let known = self.known();
        let held = || known.kinds.values().flat_map(|kind| kind.objects.values());
        let faults = held().filter_map(|held| held.fault.as_ref());
        SourceStatus {
            cluster: self.cluster.to_string(),
            origin: known.origin,
            objects: held().filter(|held| held.good.is_some()).count(),
            faulty: faults.clone().count(),
            failures: 0,
            faults: faults.take(TOLD).map(|fault| fault.faults.clone()).collect(),
        }
    }
}

// === impl Known ===

impl StoredKinds {
    /// Whether every kind was listed, but for parameters: a policy whose
    /// parameters are not there fails by itself.
    fn is_listed(&self) -> bool {
        let listed = |objects: &KindObjects| objects.progress == SyncProgress::Listed;
        let mut kinds = self.kinds.iter();
        kinds.all(|(kind, objects)| kind.role == WatchPurpose::Parameter || listed(objects))
    }
}

fn selects(selector: Option<&Selector>, good: &Good) -> bool {
    selector.is_some_and(|selector| selector.labels.matches(|key| good.labels.get(key)))
}

fn tell(cluster: &str, replaces: bool, faults: &Faults) {
    let held = if replaces {
        "the version before holds on"
    } else {
        "it does not hold"
    };
    for fault in faults.iter() {
        tracing::error!(cluster, "{fault}; {held}");
    }
}

#[cfg(test)]
mod tests;
