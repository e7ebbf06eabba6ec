//! What the status of AuthorizationPolicies and AdmissionExceptions is to say.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::held::{HeldObject, LatestVersion};
use super::schema::SchemaState;
use super::state::{Store, StoredKinds};
use crate::cluster::condition::{InForceCondition, NotedCondition};
use crate::cluster::contents::ValidObject;
use crate::cluster::kind::{Name, WatchPurpose, WatchedKind};
use crate::cluster::object::{ReceivedObject, RefusedObject};
use crate::reload::Origin;
use portcullis_cel::Version;
use portcullis_policy::authorization::Mode;
use portcullis_policy::engine::{Time, Validity};
use portcullis_policy::field::{Fault, Faults};
use portcullis_policy::manifest::{ObjectIdentity, ValidatedObject};

/// The condition that an object is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DesiredCondition {
    pub(crate) kind: WatchedKind,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) condition: InForceCondition,
    /// What stands there.
    pub(crate) noted: Option<NotedCondition>,
}

// === impl Store ===

impl Store {
    /// What was offered last is in force, but for what is `in_files`.
    pub(crate) fn in_force(&self, in_files: BTreeSet<ObjectIdentity>) {
        let mut known = self.known();
        known.standing.in_force = known.standing.offered.clone();
        known.standing.in_files = in_files;
    }

    /// The condition of each object at `now`, and when that is to be asked again because
    /// of the time. Nothing is said of a version that is still on its way.
    pub(crate) fn conditions(&self, now: Time) -> (Vec<DesiredCondition>, Option<Time>) {
        let known = self.known();
        let (mut wanted, mut next) = (Vec::new(), None::<Time>);
        if known.origin != Origin::Live {
            return (wanted, next);
        }
        for (kind, objects) in known.kinds.iter().filter(|(kind, _)| kind.is_own()) {
            for (name, held) in objects.objects.by_name() {
                let Some(condition) = known.condition(kind, name, held, now) else {
                    continue;
                };
                next = next.into_iter().chain(held.changes_after(now)).min();
                wanted.push(DesiredCondition {
                    kind: kind.clone(),
                    name: name.1.clone(),
                    uid: held.noted().uid.clone(),
                    noted: held.noted().condition.clone(),
                    condition,
                });
            }
        }
        (wanted, next)
    }
}

// === impl StoredKinds ===

impl StoredKinds {
    /// What holds of Portcullis' own kinds is given to what puts it in force.
    pub(crate) fn offer(&mut self) {
        let own = self.kinds.iter().filter(|(kind, _)| kind.is_own());
        let versions = own.flat_map(|(kind, objects)| {
            let held = objects.objects.iter();
            held.filter_map(|(name, held)| {
                Some(((kind.clone(), name.clone()), held.good.as_ref()?.content.digest))
            })
        });
        self.standing.offered = versions.collect();
    }

    /// The condition of one object; `None` while its version is on its way.
    fn condition(
        &self,
        kind: &WatchedKind,
        name: &Name,
        held: &HeldObject,
        now: Time,
    ) -> Option<InForceCondition> {
        let (is_true, reason, message) = if kind.role == WatchPurpose::ReportedOnly {
            let message = "no AdmissionException of this API server is taken: `clusters[].acceptExceptions` of the \
                           gateway's configuration is not true";
            (false, "ExceptionsNotTaken", message.to_owned())
        } else {
            self.standing_of(kind, name, held, now)?
        };
        let generation = held.noted().generation;
        Some(InForceCondition::new(is_true, reason, message, generation))
    }

    fn standing_of(
        &self,
        kind: &WatchedKind,
        name: &Name,
        held: &HeldObject,
        now: Time,
    ) -> Option<(bool, &'static str, String)> {
        let but = if held.good.is_some() {
            "; the version before stays in force"
        } else {
            ""
        };
        match &held.newest {
            LatestVersion::Faulty(fault) => {
                return Some((false, "Faulty", format!("{}{but}", texts(&fault.refused.faults))));
            }
            LatestVersion::Withheld(withheld) => {
                return Some((false, "Withheld", format!("{}{but}", withheld.why()?)));
            }
            LatestVersion::Good => {}
        }
        let good = held.good.as_ref()?;
        if self.standing.in_files.contains(good.object.identity()) {
            let message = "the gateway's own files have the same object, which holds instead";
            return Some((false, "InFiles", message.to_owned()));
        }
        let key = (kind.clone(), name.clone());
        if self.standing.in_force.get(&key) != Some(&good.content.digest) {
            return None;
        }
        Some(standing_at(&good.object, now))
    }
}

/// That of a version that is in force, but for the time.
fn standing_at(object: &ValidatedObject, now: Time) -> (bool, &'static str, String) {
    let Validity {
        not_before,
        not_after,
    } = validity(object);
    if let Some(start) = not_before.filter(|start| now < *start) {
        return (false, "NotYetValid", format!("it holds from {start} on"));
    }
    if let Some(end) = not_after.filter(|end| *end <= now) {
        return (false, "Expired", format!("it held until {end}"));
    }
    let is_shadow = |object: &ValidatedObject| {
        let policy = object.authorization_policy();
        policy.is_some_and(|policy| policy.mode == Mode::Shadow)
    };
    if is_shadow(object) {
        let message = "it is evaluated, logged and counted, and changes no answer";
        return (true, "Shadow", message.to_owned());
    }
    match not_after {
        Some(end) => (true, "InForce", format!("it holds until {end}")),
        None => (true, "InForce", "it decides requests".to_owned()),
    }
}

fn validity(object: &ValidatedObject) -> Validity {
    let policy = object.authorization_policy().map(|policy| policy.validity);
    let exception = object.admission_exception().map(|exception| Validity {
        not_before: None,
        not_after: Some(exception.not_after),
    });
    policy.or(exception).unwrap_or_default()
}

/// Without what stands in every replica's own configuration: each says the same.
fn texts(faults: &Faults) -> String {
    let text = |fault: &Fault| {
        let said = format!("{}: {}", fault.kind.as_str(), fault.message);
        match fault.place.path.steps() {
            [] => said,
            _ => format!("{}: {said}", fault.place.path),
        }
    };
    faults.iter().map(text).collect::<Vec<_>>().join("; ")
}

// === impl HeldObject ===

impl HeldObject {
    /// The first time after `now` at which it begins or ends to hold.
    fn changes_after(&self, now: Time) -> Option<Time> {
        let Validity {
            not_before,
            not_after,
        } = validity(&self.good.as_ref()?.object);
        not_before
            .into_iter()
            .chain(not_after)
            .filter(|at| now < *at)
            .min()
    }
}

// Expressions compiled again, for another version of CEL.

// === impl Store ===

impl Store {
    /// From now on expressions are compiled for `version`, and those of what is held again. An
    /// object that has faults then holds on as it was, and they are reported; one that had faults
    /// and has none holds from now on. Blocks for as long as expressions take to compile.
    pub(crate) fn compile_for(&self, version: Version) {
        if self.known().cel_version == version {
            return;
        }
        let mut known = self.changing();
        known.cel_version = version;
        known.compile_anew(self);
    }
}

// === impl StoredKinds ===

impl StoredKinds {
    /// Whether what holds may have changed.
    pub(crate) fn compile_anew(&mut self, store: &Store) -> bool {
        let version = self.cel_version;
        let kinds: Vec<WatchedKind> = self.kinds.keys().cloned().collect();
        for kind in kinds {
            let schema = self.schema(&kind);
            let objects = self.kinds.get_mut(&kind).into_iter();
            for (name, held) in objects.flat_map(|objects| objects.objects.iter_mut()) {
                held.compile_anew(&store.cluster, version);
                held.take_mended(store, &kind, name, version, &schema);
            }
        }
        true
    }
}

// === impl HeldObject ===

impl HeldObject {
    /// Compiles what holds, and what is withheld.
    fn compile_anew(&mut self, cluster: &Arc<str>, version: Version) {
        let refused = self.good.as_mut().and_then(|good| {
            let digest = good.content.digest;
            Some((digest, good.compile_anew(cluster, version).err()?))
        });
        let refused = match &mut self.newest {
            LatestVersion::Good => refused,
            LatestVersion::Withheld(withheld) => withheld.compile_anew(cluster, version).err(),
            LatestVersion::Faulty(_) => None,
        };
        if let Some((digest, refused)) = refused {
            self.refuse(cluster, digest, refused, None);
        }
    }

    /// Takes what had faults and has none now.
    fn take_mended(
        &mut self,
        store: &Store,
        kind: &WatchedKind,
        name: &Name,
        version: Version,
        schema: &SchemaState,
    ) {
        let LatestVersion::Faulty(fault) = &mut self.newest else {
            return;
        };
        let Some(text) = fault.refused.text.as_deref() else {
            return;
        };
        let received = ReceivedObject::stored(name.clone(), fault.digest, text);
        match fault.charge.take() {
            // It is the version that holds.
            None => match received.read(&store.cluster, version) {
                Ok(_) => self.newest = LatestVersion::Good,
                Err(refused) => fault.refused = refused,
            },
            Some(charge) => match store.read_charged(kind, received, version, charge) {
                Ok(mut good) => {
                    good.take_compiled();
                    self.take(&store.cluster, kind, good, schema);
                }
                Err((refused, charge)) => (fault.refused, fault.charge) = (refused, Some(charge)),
            },
        }
    }
}

// === impl ValidObject ===

impl ValidObject {
    /// Stays as it is where it has faults.
    ///
    /// # Errors
    ///
    /// Every fault of the object.
    pub(crate) fn compile_anew(&mut self, cluster: &Arc<str>, version: Version) -> Result<(), RefusedObject> {
        if self.object.has_expressions() {
            let received = {
                let content = &self.content;
                ReceivedObject::stored(content.name.clone(), content.digest, &content.text.get())
            };
            self.object = received.read(cluster, version)?.object;
            self.take_compiled();
        }
        Ok(())
    }
}
