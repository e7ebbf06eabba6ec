//! The versions of each object that are kept: the one in force, and the one received last.
//!
//! If the API server's schema lacks a field, the API server may have dropped it from an object, and
//! with it a restriction. The stored object does not show this. So while a definition lacks a
//! field, or is not known, AuthorizationPolicies that allow and AdmissionExceptions are withheld
//! unless they were in force before, and so are new versions of a Limit, whose rules may cover more
//! without that field.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use openssl::sha::Sha256;

use super::super::definition::SchemaState;
use crate::cluster::contents::ValidObject;
use crate::cluster::kind::{Name, WatchedKind};
use crate::cluster::memory::Charge;
use crate::cluster::object::{FaultyObject, ReceivedObject, ServerMetadata};
use crate::state::{WatchedPart, WatchedText};
use crate::telemetry::logging;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};

/// The versions of one object.
#[derive(Default)]
pub(crate) struct HeldObject {
    pub(crate) in_force: Option<ValidObject>,
    pub(crate) newest: LatestVersion,
    /// `None` if there is no metadata.
    pub(crate) noted: Option<Box<ServerMetadata>>,
    /// The mark of the last list that contained it.
    pub(crate) listed: u32,
}

/// The state of the last version received.
#[derive(Default)]
pub(crate) enum LatestVersion {
    /// It is in force.
    #[default]
    Good,
    Faulty(Box<ObjectFault>),
    Withheld(Box<WithheldVersion>),
}

/// Why the last version received is not in force.
pub(crate) struct ObjectFault {
    /// The digest of that version.
    pub(crate) digest: [u8; 32],
    pub(crate) refused: FaultyObject,
    /// `None` if it is the version in force.
    pub(crate) charge: Option<Charge>,
}

/// An object that was read.
pub(crate) struct ReadObject {
    pub(crate) outcome: Result<ValidObject, (FaultyObject, Charge)>,
    pub(crate) digest: [u8; 32],
    pub(crate) noted: ServerMetadata,
}

/// A version that is withheld.
pub(crate) struct WithheldVersion {
    pub(crate) good: ValidObject,
    noted: ServerMetadata,
    schema: SchemaState,
    /// Whether the API server may have dropped fields when it stored this version.
    may_lack_fields: bool,
}

// === impl HeldObject ===

impl HeldObject {
    /// Adds a saved version.
    pub(crate) fn restore(&mut self, cluster: &str, read: ReadObject) {
        match read.outcome {
            Ok(good) => self.in_force = Some(good),
            Err((refused, charge)) => {
                self.reject_version(cluster, read.digest, refused, Some(charge));
            }
        }
    }

    /// The memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let good = self.in_force.as_ref().map(|good| &good.charge);
        let newest = match &self.newest {
            LatestVersion::Good => None,
            LatestVersion::Faulty(fault) => fault.charge.as_ref(),
            LatestVersion::Withheld(withheld) => Some(withheld.charge()),
        };
        good.into_iter().chain(newest).map(Charge::bytes).sum()
    }

    /// Whether the last version received is faulty, or withheld for a known reason.
    pub(crate) fn has_faults(&self) -> bool {
        match &self.newest {
            LatestVersion::Good => false,
            LatestVersion::Faulty(_) => true,
            LatestVersion::Withheld(withheld) => withheld.why().is_some(),
        }
    }

    /// Whether `received` is the last version received.
    pub(crate) fn is_of(&self, received: &ReceivedObject) -> bool {
        match (&self.newest, &self.in_force) {
            (LatestVersion::Faulty(fault), _) => fault.digest == received.digest,
            (LatestVersion::Withheld(withheld), _) => withheld.is_of(received),
            (LatestVersion::Good, Some(good)) => good.content.digest == received.digest,
            (LatestVersion::Good, None) => false,
        }
    }

    pub(crate) fn note(&mut self, noted: ServerMetadata) {
        self.noted = (noted != ServerMetadata::NOTHING).then(|| Box::new(noted));
    }

    /// The metadata that the API server maintains.
    pub(crate) fn noted(&self) -> &ServerMetadata {
        static NOTHING: ServerMetadata = ServerMetadata::NOTHING;
        self.noted.as_deref().unwrap_or(&NOTHING)
    }

    /// Keeps the previous version, and notes the faults; but ends an AccessRequest, because its
    /// newest version may end what it grants. Returns whether objects in force changed.
    pub(crate) fn reject_version(
        &mut self,
        cluster: &str,
        digest: [u8; 32],
        refused: FaultyObject,
        charge: Option<Charge>,
    ) -> bool {
        let is_over = |good: &ValidObject| good.object.access_request().is_some();
        let ended = self.in_force.take_if(|good| is_over(good));
        log_faults(cluster, self.in_force.is_some(), &refused.faults);
        self.newest = LatestVersion::Faulty(Box::new(ObjectFault {
            digest,
            refused,
            charge,
        }));
        ended.is_some()
    }
}

// === impl LatestVersion ===

impl LatestVersion {
    /// Why it is not in force, if so.
    pub(crate) fn faults(&self, cluster: &Arc<str>, kind: &WatchedKind, name: &Name) -> Option<Faults> {
        match self {
            Self::Good => None,
            Self::Faulty(fault) => Some(fault.refused.faults.clone()),
            Self::Withheld(withheld) => withheld.faults(cluster, kind, name),
        }
    }
}

impl HeldObject {
    /// Puts a valid version in force, or withholds it. Returns whether objects in force changed.
    pub(crate) fn accept_version(
        &mut self,
        cluster: &Arc<str>,
        kind: &WatchedKind,
        good: ValidObject,
        schema: &SchemaState,
    ) -> bool {
        let is_same = self
            .in_force
            .as_ref()
            .is_some_and(|held| held.content.digest == good.content.digest);
        let widens = match self.in_force {
            Some(_) => good.object.may_widen(),
            None => good.object.lets_through(),
        };
        if is_same || !widens || *schema == SchemaState::Current {
            (self.in_force, self.newest) = (Some(good), LatestVersion::Good);
            return !is_same;
        }
        let withheld = WithheldVersion {
            may_lack_fields: schema.drops_fields(),
            schema: schema.clone(),
            noted: self.noted().clone(),
            good,
        };
        withheld.report(cluster, kind, self.in_force.is_some());
        self.newest = LatestVersion::Withheld(Box::new(withheld));
        false
    }

    /// Checks a withheld version again, because the API server's schema of this kind may have
    /// changed. Returns whether objects in force changed.
    pub(crate) fn recheck_schema(
        &mut self,
        cluster: &Arc<str>,
        kind: &WatchedKind,
        schema: &SchemaState,
    ) -> bool {
        let mut withheld = match std::mem::take(&mut self.newest) {
            LatestVersion::Withheld(withheld) => withheld,
            newest => {
                self.newest = newest;
                return false;
            }
        };
        withheld.may_lack_fields |= schema.drops_fields();
        if *schema == SchemaState::Current && !withheld.may_lack_fields {
            self.in_force = Some(withheld.good);
            return true;
        }
        if withheld.schema != *schema {
            withheld.schema = schema.clone();
            withheld.report(cluster, kind, self.in_force.is_some());
        }
        self.newest = LatestVersion::Withheld(withheld);
        false
    }
}

// === impl WithheldVersion ===

impl WithheldVersion {
    pub(crate) const fn charge(&self) -> &Charge {
        &self.good.charge
    }

    /// Whether this is the version `received`. A version that may lack fields differs from any
    /// later write, even with the same content.
    pub(crate) fn is_of(&self, received: &ReceivedObject) -> bool {
        self.good.content.digest == received.digest
            && (!self.may_lack_fields || self.noted.is_same_version(&received.server_metadata))
    }

    fn report(&self, cluster: &Arc<str>, kind: &WatchedKind, replaces: bool) {
        if let Some(faults) = self.faults(cluster, kind, &self.good.content.name) {
            log_faults(cluster, replaces, &faults);
        }
    }

    /// Why it is withheld; `None` while that is not known.
    pub(crate) fn faults(&self, cluster: &Arc<str>, kind: &WatchedKind, name: &Name) -> Option<Faults> {
        let place = Place {
            file: Some(format!("cluster {cluster}").into()),
            object: format!("{}/{}", kind.kind, name.1),
            ..Place::default()
        };
        let mut faults = Faults::new();
        faults.push(Fault::error(place, FaultKind::Forbidden, self.why()?));
        Some(faults)
    }

    /// Why it is withheld, for its author; `None` while that is not known.
    pub(crate) fn why(&self) -> Option<String> {
        self.schema.why().or_else(|| {
            let is_over = matches!(self.schema, SchemaState::Recent | SchemaState::Current);
            is_over.then(|| {
                "rejected: it was stored while the CustomResourceDefinition lacked fields, so the API server \
                may have dropped a restriction: review it, and write it again with `kubectl replace --force`"
                    .to_owned()
            })
        })
    }
}

/// The number of parts of a kind: of 100,000 objects, each has some 1,600.
const PARTS: u64 = 64;

/// The versions of all objects, by name.
#[derive(Default)]
pub(crate) struct HeldObjects {
    /// Empty until there is an object, so that a kind without objects costs nothing.
    parts: Vec<HeldPart>,
    unsaved: UnsavedNames,
}

/// The objects whose version in force may differ from the saved one.
#[derive(Default)]
pub(crate) enum UnsavedNames {
    /// So many that they are not tracked.
    #[default]
    Any,
    /// These objects.
    Some(BTreeSet<Name>),
}

/// Up to this many changes are saved one by one; with more, all objects are saved.
const MAX_CHANGED_OBJECTS: usize = 1_000;

/// The objects whose names have the same hash.
#[derive(Default)]
struct HeldPart {
    objects: BTreeMap<Name, Box<HeldObject>>,
    /// The part that was returned last, if nothing has changed since.
    shared: Option<Arc<WatchedPart>>,
}

// === impl HeldObjects ===

impl HeldObjects {
    pub(crate) fn get(&self, name: &Name) -> Option<&HeldObject> {
        Some(self.parts.get(place(name))?.objects.get(name)?)
    }

    /// The object with this name for a change; a new one if there is none.
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

    /// The object with this name for a change, if there is one.
    pub(crate) fn get_mut(&mut self, name: &Name) -> Option<&mut HeldObject> {
        let held = self.parts.get_mut(place(name))?.changing().get_mut(name)?;
        self.unsaved.note(name);
        Some(held)
    }

    pub(crate) fn remove(&mut self, name: &Name) -> Option<Box<HeldObject>> {
        let gone = self.parts.get_mut(place(name))?.changing().remove(name)?;
        self.unsaved.note(name);
        Some(gone)
    }

    /// Takes the objects whose version in force may have changed since the last call.
    pub(crate) fn take_unsaved(&mut self) -> UnsavedNames {
        std::mem::replace(&mut self.unsaved, UnsavedNames::Some(BTreeSet::new()))
    }

    /// The object with this name, for changes that do not affect the version in force.
    pub(crate) fn peek_mut(&mut self, name: &Name) -> Option<&mut HeldObject> {
        let part = self.parts.get_mut(place(name))?;
        Some(part.objects.get_mut(name)?)
    }

    /// Keeps the objects for whose names and marks `is_kept` holds. Returns whether any was
    /// removed.
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

    /// Handles an object whose last version is left out: if it restricts, the previous version
    /// stays in force, otherwise it is removed. Returns whether objects in force changed.
    pub(crate) fn leave_out(&mut self, name: &Name) -> bool {
        let restricts = |held: &HeldObject| {
            let good = held.in_force.as_ref();
            good.is_some_and(|good| good.object.restricts())
        };
        if self.get(name).is_none_or(restricts) {
            return false;
        }
        self.remove(name).is_some_and(|gone| gone.in_force.is_some())
    }

    /// The objects in the order of their names.
    pub(crate) fn by_name(&self) -> impl Iterator<Item = (&Name, &HeldObject)> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all.into_iter()
    }

    /// The objects in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &HeldObject)> {
        let objects = self.parts.iter().flat_map(|part| &part.objects);
        objects.map(|(name, held)| (name, &**held))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &HeldObject> {
        self.iter().map(|(_, held)| held)
    }

    /// The objects for a change.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Name, &mut HeldObject)> {
        self.unsaved = UnsavedNames::Any;
        let objects = self.parts.iter_mut().flat_map(HeldPart::changing);
        objects.map(|(name, held)| (name, &mut **held))
    }

    /// Discards the parts returned last, because other objects may be wanted from now on.
    pub(crate) fn forget_given(&mut self) {
        self.parts.iter_mut().for_each(|part| part.shared = None);
    }

    /// The versions in force for which `is_wanted` holds, in parts. Unchanged parts are shared with
    /// the last call.
    pub(crate) fn take_parts(
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
            if names.len() > MAX_CHANGED_OBJECTS {
                *self = Self::Any;
            }
        }
    }
}

// === impl HeldPart ===

impl HeldPart {
    fn changing(&mut self) -> &mut BTreeMap<Name, Box<HeldObject>> {
        self.shared = None;
        &mut self.objects
    }

    fn give(&mut self, is_wanted: impl Fn(&ValidObject) -> bool) -> Arc<WatchedPart> {
        let given = self.shared.get_or_insert_with(|| {
            let good = self.objects.values().filter_map(|held| held.in_force.as_ref());
            let (mut digest, mut part) = (Sha256::new(), WatchedPart::default());
            for good in good.filter(|good| is_wanted(good)) {
                digest.update(&good.content.digest);
                part.objects.push(Arc::clone(&good.object));
                part.texts.push(Arc::clone(&good.content) as Arc<dyn WatchedText>);
            }
            part.digest = digest.finish();
            Arc::new(part)
        });
        Arc::clone(given)
    }
}

fn place(name: &Name) -> usize {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    usize::try_from(hasher.finish() % PARTS).unwrap_or_default()
}

pub(crate) fn log_faults(cluster: &str, replaces: bool, faults: &Faults) {
    let held = if replaces {
        "the previous version stays in force"
    } else {
        "it is not in force"
    };
    for fault in faults.iter() {
        if logging::allows_line(cluster) {
            tracing::error!(cluster, "{fault}; {held}");
        }
    }
}
