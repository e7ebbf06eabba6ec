//! Objects that are not taken, because they are too large or there is no room for them.
//!
//! The other objects of their kind are taken. A grant that is left out grants nothing, whatever it
//! granted before; what restricts holds on as it was, if it was there. A policy that takes a
//! parameter which was left out fails, and its failurePolicy decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::kind::WatchedKind;
use crate::cluster::object::Name;
use crate::cluster::weight::LeftOutReason;
use portcullis_policy::field::Faults;

/// How many are known by name.
const MAX_NAMED: usize = 1_000;

/// How many of a list are named in the log.
const MAX_LOGGED: usize = 10;

/// What was left out of one kind.
#[derive(Debug, Default)]
pub(crate) struct LeftOutObjects {
    named: BTreeMap<Name, LeftOutReason>,
    /// How many more there were.
    unnamed: usize,
}

// === impl LeftOutObjects ===

impl LeftOutObjects {
    pub(crate) fn note(&mut self, name: Name, reason: LeftOutReason) {
        if self.named.len() < MAX_NAMED || self.named.contains_key(&name) {
            self.named.insert(name, reason);
        } else {
            self.unnamed += 1;
        }
    }

    /// The object is taken, or gone. Whether it was left out.
    pub(crate) fn remove(&mut self, name: &Name) -> bool {
        self.named.remove(name).is_some()
    }

    pub(crate) fn has(&self, name: &Name) -> bool {
        self.named.contains_key(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.named.keys()
    }

    pub(crate) fn len(&self) -> usize {
        self.named.len() + self.unnamed
    }

    /// Which names are left out; `None` where not all of them are known.
    pub(crate) fn all(&self) -> Option<BTreeSet<Name>> {
        (self.unnamed == 0).then(|| self.named.keys().cloned().collect())
    }

    /// Those for which there was no room, each with the bytes that its content takes.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (&Name, usize)> {
        self.named.iter().filter_map(|(name, reason)| match reason {
            LeftOutReason::NoRoom { bytes } => Some((name, *bytes)),
            _ => None,
        })
    }

    /// What is wrong with each.
    pub(crate) fn faults(&self, cluster: &Arc<str>, kind: &WatchedKind) -> impl Iterator<Item = Faults> {
        let named = self.named.iter();
        named.map(move |(name, reason)| reason.faults(cluster, kind, name))
    }
}

/// Says that an object is left out.
pub(crate) fn log(cluster: &Arc<str>, kind: &WatchedKind, name: &Name, reason: LeftOutReason) {
    let fault = reason.faults(cluster, kind, name);
    tracing::error!(cluster = &**cluster, "{fault}");
}

/// Says which objects are left out that were not `before`.
pub(crate) fn log_new(cluster: &Arc<str>, kind: &WatchedKind, now: &LeftOutObjects, before: &LeftOutObjects) {
    let new = now.named.iter().filter(|(name, _)| !before.has(name));
    let mut count = 0;
    for (name, reason) in new.inspect(|_| count += 1).take(MAX_LOGGED) {
        log(cluster, kind, name, *reason);
    }
    if count == MAX_LOGGED {
        let objects = now.len();
        tracing::error!(cluster = &**cluster, %kind, objects, "objects are left out, more than are named here");
    }
}
