//! Grants and exceptions that are valid, and not taken all the same.
//!
//! Where the API server's schema lacks a field, the API server may have dropped it from
//! what somebody wrote, and with it a limit. Nobody can see that in what is left. So
//! while a definition lacks a field, or is not known, no AuthorizationPolicy that
//! allows and no AdmissionException is taken that was not in force before.

use std::sync::Arc;

use super::schema::SchemaState;
use super::{HeldObject, Newest, log_faults};
use crate::cluster::contents::Good;
use crate::cluster::kind::WatchedKind;
use crate::cluster::memory::Charge;
use crate::cluster::object::{Name, Noted, ReceivedObject, RefusedObject};
use portcullis_cel::Version;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};

/// A version that is withheld.
pub(crate) struct Withheld {
    good: Good,
    noted: Noted,
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
        good: Good,
        schema: &SchemaState,
    ) -> bool {
        let is_same = self
            .good
            .as_ref()
            .is_some_and(|held| held.content.digest == good.content.digest);
        if is_same || !good.object.lets_through() || *schema == SchemaState::Current {
            (self.good, self.newest) = (Some(good), Newest::Good);
            return !is_same;
        }
        let withheld = Withheld {
            may_lack_fields: schema.drops_fields(),
            schema: schema.clone(),
            noted: self.noted().clone(),
            good,
        };
        withheld.report(cluster, kind, self.good.is_some());
        self.newest = Newest::Withheld(Box::new(withheld));
        false
    }

    /// The API server's schema of this kind is known anew. Whether what holds changed.
    pub(crate) fn settle(&mut self, cluster: &Arc<str>, kind: &WatchedKind, schema: &SchemaState) -> bool {
        let mut withheld = match std::mem::take(&mut self.newest) {
            Newest::Withheld(withheld) => withheld,
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
        self.newest = Newest::Withheld(withheld);
        false
    }
}

// === impl Withheld ===

impl Withheld {
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
