//! Valid objects that are not taken.
//!
//! Where the API server's schema lacks a field, the API server may have dropped it from
//! what a user wrote, and with it a limit. That cannot be seen in what is left. So
//! while a definition lacks a field, or is not known, no AuthorizationPolicy that
//! allows and no AdmissionException is taken that was not in force before.
//!
//! Objects that are too large, or for which there is no room, are left out; the others of their kind are
//! taken. A grant that is left out grants nothing, whatever it granted before; what restricts holds on
//! as it was, if it was there. A policy that takes a parameter which was left out fails, and its
//! failurePolicy decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::schema::SchemaState;
use super::{HeldObject, LatestVersion, log_faults};
use crate::cluster::contents::ValidObject;
use crate::cluster::kind::WatchedKind;
use crate::cluster::memory::Charge;
use crate::cluster::object::{Name, ReceivedObject, RefusedObject, ServerMetadata};
use crate::cluster::weight::LeftOutReason;
use portcullis_cel::Version;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};

/// A version that is withheld.
pub(crate) struct WithheldVersion {
    good: ValidObject,
    noted: ServerMetadata,
    schema: SchemaState,
    /// Whether the API server may have dropped fields when it stored this version.
    may_lack_fields: bool,
}

// === impl HeldObject ===

impl HeldObject {
    /// Takes a valid version, or withholds it. Whether what holds changed.
    pub(crate) fn take(
        &mut self,
        cluster: &Arc<str>,
        kind: &WatchedKind,
        good: ValidObject,
        schema: &SchemaState,
    ) -> bool {
        let is_same = self
            .good
            .as_ref()
            .is_some_and(|held| held.content.digest == good.content.digest);
        if is_same || !good.object.lets_through() || *schema == SchemaState::Current {
            (self.good, self.newest) = (Some(good), LatestVersion::Good);
            return !is_same;
        }
        let withheld = WithheldVersion {
            may_lack_fields: schema.drops_fields(),
            schema: schema.clone(),
            noted: self.noted().clone(),
            good,
        };
        withheld.report(cluster, kind, self.good.is_some());
        self.newest = LatestVersion::Withheld(Box::new(withheld));
        false
    }

    /// The API server's schema of this kind is known again. Whether what holds changed.
    pub(crate) fn settle(&mut self, cluster: &Arc<str>, kind: &WatchedKind, schema: &SchemaState) -> bool {
        let mut withheld = match std::mem::take(&mut self.newest) {
            LatestVersion::Withheld(withheld) => withheld,
            newest => {
                self.newest = newest;
                return false;
            }
        };
        withheld.may_lack_fields |= schema.drops_fields();
        if *schema == SchemaState::Current && !withheld.may_lack_fields {
            self.good = Some(withheld.good);
            return true;
        }
        if withheld.schema != *schema {
            withheld.schema = schema.clone();
            withheld.report(cluster, kind, self.good.is_some());
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

    /// Whether it is this very version. One that may lack fields is another as soon as
    /// it is written again, whatever it says.
    pub(crate) fn is_of(&self, received: &ReceivedObject) -> bool {
        self.good.content.digest == received.digest
            && (!self.may_lack_fields || self.noted.is_as_written(&received.noted))
    }

    /// Its expressions, for another version of CEL.
    ///
    /// # Errors
    ///
    /// Every fault of the object, and its digest.
    pub(crate) fn compile_anew(
        &mut self,
        cluster: &Arc<str>,
        version: Version,
    ) -> Result<(), ([u8; 32], RefusedObject)> {
        let compiled = self.good.compile_anew(cluster, version);
        compiled.map_err(|refused| (self.good.content.digest, refused))
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

    /// Why it is withheld, for those who wrote it; `None` while that is not known.
    pub(crate) fn why(&self) -> Option<String> {
        self.schema.why().or_else(|| {
            let is_over = matches!(self.schema, SchemaState::Recent | SchemaState::Current);
            is_over.then(|| {
                "not taken: it was stored while the CustomResourceDefinition lacked fields, so the API server may \
                 have dropped a restriction: review it, and write it again with `kubectl replace --force`"
                    .to_owned()
            })
        })
    }
}

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
