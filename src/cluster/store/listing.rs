//! A list of one kind while it is read, and how far it is believed at its end.
//!
//! No object of a list is in force before its end, because a grant on the first page must not take
//! effect while a denial on the last page is still missing. Objects that are already held are only
//! marked, so a list takes memory only for changed objects.

use std::collections::{BTreeMap, BTreeSet};

use super::super::definition::{MAX_DEFINITIONS, ReadDefinition};
use super::held::ReadObject;
use super::views::{Doubt, Store, StoredKinds, SyncProgress};
use crate::cluster::kind::{Name, WatchPurpose, WatchedKind};
use crate::cluster::object::ReceivedObject;
use crate::cluster::weight::{LeftOutObjects, LeftOutReason, log_new_left_out};
use portcullis_cel::Version;

/// A list that is being read.
#[derive(Default)]
pub(crate) struct Listing {
    /// Held objects that are listed get this mark.
    mark: u32,
    changed: BTreeMap<Name, ReadObject>,
    left_out: LeftOutObjects,
    definitions: BTreeMap<Name, ReadDefinition>,
    /// The version for which expressions are compiled.
    cel_version: Version,
    /// The number of objects so far, including those that were left out.
    pub(crate) objects: usize,
}

/// What is known about a list besides its objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListEvidence {
    /// Its resource version, if it is a number.
    pub(crate) version: Option<u64>,
    /// Why the server that responded is not an API server, if the list is empty although objects
    /// are known.
    pub(crate) no_server: Option<String>,
}

/// The result of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListOutcome {
    /// The listed objects are in force. If there is a doubt, so are the missing ones. `changed`
    /// tells whether objects in force changed.
    Taken { changed: bool, doubt: Option<Doubt> },
    /// The list is ignored, because it is older than the known one, or not from an API server. The
    /// known objects stay in force.
    Unconfirmed(Doubt),
}

// === impl Listing ===

impl Listing {
    /// Whether the list contains the object of this name, which has this mark if it is held.
    pub(crate) fn has(&self, name: &Name, mark: u32) -> bool {
        mark == self.mark
            || self.changed.contains_key(name)
            || self.definitions.contains_key(name)
            || self.left_out.has(name)
    }
}

impl Listing {
    /// Whether this version was already listed.
    fn is_unchanged_since(&self, received: &ReceivedObject) -> bool {
        let listed = self.changed.get(&received.name);
        listed.is_some_and(|listed| listed.digest == received.digest)
    }
}

#[cfg(test)]
impl Listing {
    /// Whether all listed objects are held with the same version.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.changed.is_empty()
    }
}

// === impl Store ===

impl Store {
    /// Starts a list of `kind`.
    pub(crate) fn begin_list(&self, kind: &WatchedKind) -> Listing {
        let mut known = self.lock();
        let cel_version = known.cel_version;
        let objects = known.kinds.entry(kind.clone()).or_default();
        objects.lists = objects.lists.wrapping_add(1).max(1);
        Listing {
            mark: objects.lists,
            cel_version,
            ..Listing::default()
        }
    }

    /// Adds an object of a list. Blocks while its expressions are compiled.
    pub(crate) fn add_listed(
        &self,
        kind: &WatchedKind,
        listing: &mut Listing,
        name: Name,
        received: Result<ReceivedObject, LeftOutReason>,
    ) {
        listing.objects += 1;
        let received = match received {
            Ok(received) if kind.purpose == WatchPurpose::Definition => {
                if listing.definitions.len() < MAX_DEFINITIONS {
                    match self.read_definition(&received) {
                        Ok(read) => drop(listing.definitions.insert(name, read)),
                        Err(reason) => listing.left_out.note(name, reason),
                    }
                }
                return;
            }
            Ok(received) if self.mark_known(kind, &received, Some(listing.mark)) => {
                listing.changed.remove(&name);
                return;
            }
            Ok(received) if listing.is_unchanged_since(&received) => return,
            received => received,
        };
        drop(listing.changed.remove(&name));
        let before = self.bytes_of(kind, &name);
        match received.and_then(|received| self.read(kind, received, before)) {
            Ok(read) => {
                listing.changed.insert(name, read);
            }
            Err(reason) => listing.left_out.note(name, reason),
        }
    }

    /// Ends a list of `kind`: missing objects are removed, if that is believed.
    pub(crate) fn end_list(
        &self,
        kind: &WatchedKind,
        listing: Listing,
        evidence: &ListEvidence,
    ) -> ListOutcome {
        let mut known = self.lock_for_change();
        let accepts = known.accepts_absence;
        let newest = known.kinds.get(kind).and_then(|objects| objects.newest);
        if let (Some(newest), Some(version)) = (newest, evidence.version)
            && version < newest
            && !accepts
        {
            let older = format!("the list is of version {version}, and {newest} is known");
            return known.ignore_list(kind, Doubt(older));
        }
        let doubt = known.doubt_about(kind, &listing, evidence);
        let doubt = match doubt {
            Some(doubt) if evidence.no_server.is_some() => return known.ignore_list(kind, doubt),
            Some(doubt) if accepts => {
                let cluster = &*self.cluster;
                tracing::warn!(cluster, %kind, %doubt, "absence accepted");
                None
            }
            doubt => doubt,
        };
        let is_outdated = listing.cel_version != known.cel_version;
        let names = listing.changed.keys().filter(|_| is_outdated);
        let outdated: Vec<_> = names.map(|name| (kind.clone(), name.clone())).collect();
        let objects = known.kinds.entry(kind.clone()).or_default();
        objects.newest = match &doubt {
            Some(_) => evidence.version.or(objects.newest),
            None => evidence.version,
        };
        objects.doubt.clone_from(&doubt);
        let mut changed = self.take_list(&mut known, kind, listing, doubt.is_none());
        if !outdated.is_empty() {
            drop(known);
            self.compile_again(outdated);
            (known, changed) = (self.lock_for_change(), true);
        }
        changed |= known.mark_live(&self.cluster);
        ListOutcome::Taken { changed, doubt }
    }

    /// Puts the listed objects in force, and removes the missing ones if `is_whole`. Returns
    /// whether objects in force changed.
    fn take_list(
        &self,
        known: &mut StoredKinds,
        kind: &WatchedKind,
        mut listing: Listing,
        is_whole: bool,
    ) -> bool {
        let cluster = &self.cluster;
        let schema = known.schema(kind);
        let mut changed = known.take_definitions(cluster, kind, &mut listing, is_whole);
        let objects = known.kinds.entry(kind.clone()).or_default();
        if is_whole {
            changed |= objects.objects.retain(|name, mark| listing.has(name, mark));
        }
        let Listing {
            mark,
            changed: come,
            left_out,
            ..
        } = listing;
        changed |= kind.affects_decisions_when_unknown()
            && (!objects.known || !is_whole || left_out.all() != objects.left_out.all());
        log_new_left_out(cluster, kind, &left_out, &objects.left_out);
        for name in left_out.names() {
            changed |= objects.objects.leave_out(name);
        }
        objects.left_out = left_out;
        for (name, read) in come {
            changed |= objects.insert_read(cluster, kind, name.clone(), read, &schema);
            if let Some(held) = objects.objects.peek_mut(&name) {
                held.listed = mark;
            }
        }
        (objects.progress, objects.known) = (SyncProgress::Listed, is_whole);
        changed
    }
}

// === impl StoredKinds ===

impl StoredKinds {
    /// Ignores a list of `kind`, including its version.
    fn ignore_list(&mut self, kind: &WatchedKind, doubt: Doubt) -> ListOutcome {
        let objects = self.kinds.entry(kind.clone()).or_default();
        objects.doubt = Some(doubt.clone());
        objects.known &= !kind.affects_decisions_when_unknown();
        ListOutcome::Unconfirmed(doubt)
    }

    /// Does this for definitions.
    fn take_definitions(
        &mut self,
        cluster: &std::sync::Arc<str>,
        kind: &WatchedKind,
        listing: &mut Listing,
        is_whole: bool,
    ) -> bool {
        if kind.purpose != WatchPurpose::Definition {
            return false;
        }
        let definitions = std::mem::take(&mut listing.definitions);
        let names: BTreeSet<Name> = definitions.keys().cloned().collect();
        // Removes definitions first, to make room for new ones.
        let mut changed = is_whole && self.keep_definitions(&names);
        for (name, definition) in definitions {
            changed |= self.define(cluster, &name, definition);
        }
        if let Some(objects) = self.kinds.get_mut(kind) {
            (objects.progress, objects.known) = (SyncProgress::Listed, true);
        }
        changed | self.take_withheld(cluster)
    }
}
