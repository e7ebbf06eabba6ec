//! A list of one kind while it is read, and what is believed of it at its end.
//!
//! Nothing of a list holds before its end: a grant on its first page must not take effect while a
//! denial on its last one is still to come. What it has in common with what is held already is
//! only marked, so a list takes memory for what changed alone.

use std::collections::{BTreeMap, BTreeSet};

use super::super::definition::{MAX_DEFINITIONS, ReadDefinition};
use super::held::ReadObject;
use super::views::{Doubt, Store, StoredKinds, SyncProgress};
use crate::cluster::kind::{Name, WatchPurpose, WatchedKind};
use crate::cluster::object::ReceivedObject;
use crate::cluster::weight::{LeftOutObjects, LeftOutReason, log_new_left_out};
use portcullis_cel::Version;

/// A list that is not at its end.
#[derive(Default)]
pub(crate) struct Listing {
    /// What is held has this mark where it is listed.
    mark: u32,
    changed: BTreeMap<Name, ReadObject>,
    left_out: LeftOutObjects,
    definitions: BTreeMap<Name, ReadDefinition>,
    /// What its expressions are compiled for.
    cel_version: Version,
    /// How many objects it has so far, those that were left out too.
    pub(crate) objects: usize,
}

/// What is known of a list besides its objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListEvidence {
    /// Of which version it is, where versions can be compared.
    pub(crate) version: Option<u64>,
    /// Why the server that answered is no API server, where the list is empty and objects are known.
    pub(crate) no_server: Option<String>,
}

/// What was done with a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListOutcome {
    /// What it says holds, and where there is a doubt what it lacks does too; whether that changed
    /// anything.
    Taken { changed: bool, doubt: Option<Doubt> },
    /// What was known before holds, and nothing of it: it is older, or of no API server.
    NotBelieved(Doubt),
}

// === impl Listing ===

impl Listing {
    /// Whether it has the object of this name, which has this mark where it is held.
    pub(crate) fn has(&self, name: &Name, mark: u32) -> bool {
        mark == self.mark
            || self.changed.contains_key(name)
            || self.definitions.contains_key(name)
            || self.left_out.has(name)
    }
}

impl Listing {
    /// Whether this very version was listed already.
    fn is_unchanged_since(&self, received: &ReceivedObject) -> bool {
        let listed = self.changed.get(&received.name);
        listed.is_some_and(|listed| listed.digest == received.digest)
    }
}

#[cfg(test)]
impl Listing {
    /// Whether all of it is held as it is listed.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.changed.is_empty()
    }
}

// === impl Store ===

impl Store {
    /// A list of `kind` begins.
    pub(crate) fn begin_list(&self, kind: &WatchedKind) -> Listing {
        let mut known = self.known();
        let cel_version = known.cel_version;
        let objects = known.kinds.entry(kind.clone()).or_default();
        objects.lists = objects.lists.wrapping_add(1).max(1);
        Listing {
            mark: objects.lists,
            cel_version,
            ..Listing::default()
        }
    }

    /// Takes one object of a list. Blocks for as long as its expressions take to compile.
    pub(crate) fn list(
        &self,
        kind: &WatchedKind,
        listing: &mut Listing,
        name: Name,
        received: Result<ReceivedObject, LeftOutReason>,
    ) {
        listing.objects += 1;
        let received = match received {
            Ok(received) if kind.role == WatchPurpose::Definition => {
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

    /// A list of `kind` is at its end: what it does not have is gone, where that is believed.
    pub(crate) fn end_list(
        &self,
        kind: &WatchedKind,
        listing: Listing,
        evidence: &ListEvidence,
    ) -> ListOutcome {
        let mut known = self.changing();
        let accepts = known.accepts_absence;
        let newest = known.kinds.get(kind).and_then(|objects| objects.newest);
        if let (Some(newest), Some(version)) = (newest, evidence.version)
            && version < newest
            && !accepts
        {
            let older = format!("the list is of version {version}, and {newest} is known");
            return known.do_not_believe(kind, Doubt(older));
        }
        let doubt = known.doubt_about(kind, &listing, evidence);
        let doubt = match doubt {
            Some(doubt) if evidence.no_server.is_some() => return known.do_not_believe(kind, doubt),
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
            (known, changed) = (self.changing(), true);
        }
        changed |= known.is_live_from_now(&self.cluster);
        ListOutcome::Taken { changed, doubt }
    }

    /// Takes what is listed; what is not is gone where that `is_whole`. Whether what holds changed.
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
        changed |= kind.counts_when_unknown()
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
    /// Nothing of a list of `kind` holds, not even its version.
    fn do_not_believe(&mut self, kind: &WatchedKind, doubt: Doubt) -> ListOutcome {
        let objects = self.kinds.entry(kind.clone()).or_default();
        objects.doubt = Some(doubt.clone());
        objects.known &= !kind.counts_when_unknown();
        ListOutcome::NotBelieved(doubt)
    }

    /// The same of definitions.
    fn take_definitions(
        &mut self,
        cluster: &std::sync::Arc<str>,
        kind: &WatchedKind,
        listing: &mut Listing,
        is_whole: bool,
    ) -> bool {
        if kind.role != WatchPurpose::Definition {
            return false;
        }
        let definitions = std::mem::take(&mut listing.definitions);
        let names: BTreeSet<Name> = definitions.keys().cloned().collect();
        // First, so that what goes makes room for what comes.
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
