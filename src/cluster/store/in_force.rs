//! The condition `InForce` in the status of Portcullis' own kinds.

use std::collections::BTreeSet;

use super::super::definition::SchemaState;
use super::held::{HeldObject, LatestVersion};
use super::views::{Store, StoredKinds};
use crate::cluster::condition::{InForceCondition, NotedCondition};
use crate::cluster::contents::ValidObject;
use crate::cluster::kind::{Name, WatchPurpose, WatchedKind};
use crate::cluster::object::{FaultyObject, ReadContent, ReceivedObject};
use crate::state::Origin;
use portcullis_cel::Version;
use portcullis_policy::authorization::{Effect, Mode};
use portcullis_policy::field::{Fault, Faults};
use portcullis_policy::manifest::{ObjectIdentity, ValidatedObject};
use portcullis_policy::model::{Time, Validity};

/// The condition that the status of an object should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DesiredCondition {
    pub(crate) kind: WatchedKind,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) condition: InForceCondition,
    /// The condition that it has now.
    pub(crate) noted: Option<NotedCondition>,
}

// === impl Store ===

impl Store {
    /// Notes that what was offered last is in force, except for objects that are `in_files`, too:
    /// those of the files are in force instead.
    pub(crate) fn record_in_force(&self, in_files: BTreeSet<ObjectIdentity>) {
        let mut known = self.lock();
        known.in_force_versions.in_force = known.in_force_versions.offered.clone();
        known.in_force_versions.in_files = in_files;
    }

    /// The condition of each object at `now`, and the next time at which one changes. Objects whose
    /// version is not in force yet are left out.
    pub(crate) fn conditions(&self, now: Time) -> (Vec<DesiredCondition>, Option<Time>) {
        let known = self.lock();
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
    /// Notes the versions of Portcullis' own kinds that are now handed over to be put in force.
    pub(crate) fn offer(&mut self) {
        let own = self.kinds.iter().filter(|(kind, _)| kind.is_own());
        let versions = own.flat_map(|(kind, objects)| {
            let held = objects.objects.iter();
            held.filter_map(|(name, held)| {
                Some((
                    (kind.clone(), name.clone()),
                    held.in_force.as_ref()?.content.digest,
                ))
            })
        });
        self.in_force_versions.offered = versions.collect();
    }

    /// The condition of one object; `None` while its version is not in force yet.
    fn condition(
        &self,
        kind: &WatchedKind,
        name: &Name,
        held: &HeldObject,
        now: Time,
    ) -> Option<InForceCondition> {
        let (is_true, reason, message) = if kind.purpose == WatchPurpose::ReportedOnly {
            let message = "AdmissionExceptions of this API server are ignored: `clusters[].acceptExceptions` \
                of the gateway's configuration is not true";
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
        let but = if held.in_force.is_some() {
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
        let good = held.in_force.as_ref()?;
        if self.in_force_versions.in_files.contains(good.object.identity()) {
            let message = "the gateway's own files have the same object, which is used instead";
            return Some((false, "InFiles", message.to_owned()));
        }
        let key = (kind.clone(), name.clone());
        if self.in_force_versions.in_force.get(&key) != Some(&good.content.digest) {
            return None;
        }
        Some(standing_at(&good.object, now))
    }
}

/// The condition of a version that is in force, unless it has not begun or has expired.
fn standing_at(object: &ValidatedObject, now: Time) -> (bool, &'static str, String) {
    let Validity {
        not_before,
        not_after,
    } = validity(object);
    if let Some(start) = not_before.filter(|start| now < *start) {
        return (false, "NotYetValid", format!("it is in force from {start} on"));
    }
    if let Some(end) = not_after.filter(|end| *end <= now) {
        return (false, "Expired", format!("it was in force until {end}"));
    }
    if let Some(request) = object.access_request() {
        return match (request.is_withdrawn, request.is_denied) {
            (true, _) => (false, "Withdrawn", "it was withdrawn".to_owned()),
            (false, true) => (false, "Denied", "it was denied".to_owned()),
            (false, false) => {
                let message = "it grants its role from the last required approval, for its duration, if the \
                    gateway's configuration has `authorization.accessRequests`";
                (true, "InForce", message.to_owned())
            }
        };
    }
    if object.authorization_invariant().is_some() {
        let message = "policy changes and the policies in force are checked against it";
        return (true, "InForce", message.to_owned());
    }
    let is_shadow = |object: &ValidatedObject| {
        let policy = object.authorization_policy();
        policy.is_some_and(|policy| policy.mode == Mode::Shadow)
    };
    if is_shadow(object) {
        let message = "it is evaluated, logged and counted, but not enforced";
        return (true, "Shadow", message.to_owned());
    }
    let decides = match object.authorization_policy() {
        Some(policy) if !policy.object_conditions.is_empty() => match policy.effect {
            Effect::Allow => {
                "it grants if, by `clusters[].admission` of the gateway's configuration, /validate sees the \
                request"
            }
            Effect::Deny | Effect::Limit => "it is enforced at /validate",
        },
        _ => "it decides requests",
    };
    match not_after {
        Some(end) => (true, "InForce", format!("{decides}, and is in force until {end}")),
        None => (true, "InForce", decides.to_owned()),
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

/// The faults as text, without their files and names of clusters: these are from the replica's own
/// configuration, and all replicas must say the same.
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
    /// The first time after `now` at which its validity begins or ends.
    fn changes_after(&self, now: Time) -> Option<Time> {
        let Validity {
            not_before,
            not_after,
        } = validity(&self.in_force.as_ref()?.object);
        not_before
            .into_iter()
            .chain(not_after)
            .filter(|at| now < *at)
            .min()
    }
}

// Compiles expressions again, for another version of CEL. Nothing else has to wait for it: the
// store is locked only while an object is looked up, and while the result replaces what was
// compiled before.

/// The digest of an object, and the object compiled for another version.
type CompiledAgain = ([u8; 32], Result<ReadContent, FaultyObject>);

// === impl Store ===

impl Store {
    /// Whether expressions are compiled for `version`.
    pub(crate) fn is_for(&self, version: Version) -> bool {
        self.lock().cel_version == version
    }

    /// Compiles expressions for `version` from now on, and those of the stored objects again. An
    /// object with faults in that version stays in force as it was, and the faults are reported;
    /// one that had faults and has none comes into force. Blocks while expressions are compiled.
    pub(crate) fn compile_for(&self, version: Version) {
        let outdated = {
            let mut known = self.lock_for_change();
            if known.cel_version == version {
                return;
            }
            known.cel_version = version;
            known.with_expressions()
        };
        self.compile_again(outdated);
    }

    /// Compiles these objects for the current version, and ends if that changes.
    pub(crate) fn compile_again(&self, outdated: Vec<(WatchedKind, Name)>) {
        let version = self.lock().cel_version;
        for (kind, name) in outdated {
            let texts = {
                let known = self.lock();
                let held = known.kinds.get(&kind).and_then(|kind| kind.objects.get(&name));
                held.map(|held| held.texts(&name)).unwrap_or_default()
            };
            let [good, newest] = texts.map(|text| text.map(|text| self.compile(text, version)));
            let mut known = self.lock_for_change();
            if known.cel_version != version {
                return;
            }
            let schema = known.schema(&kind);
            let objects = known.kinds.get_mut(&kind).map(|kind| &mut kind.objects);
            let Some(held) = objects.and_then(|objects| objects.get_mut(&name)) else {
                continue;
            };
            if let Some(good) = good {
                held.take_compiled(&self.cluster, good);
            }
            if let Some(newest) = newest {
                held.take_newest_compiled(self, &kind, newest, &schema);
            }
        }
    }

    fn compile(&self, text: ReceivedObject, version: Version) -> CompiledAgain {
        #[cfg(test)]
        let _held_up = self.compiling.lock();
        (text.digest, text.read(&self.cluster, version))
    }
}

// === impl StoredKinds ===

impl StoredKinds {
    /// The objects that are compiled for one version, or have faults that they may not have in
    /// another one.
    pub(crate) fn with_expressions(&self) -> Vec<(WatchedKind, Name)> {
        let kinds = self.kinds.iter();
        let outdated = kinds.flat_map(|(kind, objects)| {
            let held = objects.objects.iter();
            let outdated = held.filter(|(_, held)| held.is_compiled());
            outdated.map(|(name, _)| (kind.clone(), name.clone()))
        });
        outdated.collect()
    }
}

// === impl HeldObject ===

impl HeldObject {
    fn is_compiled(&self) -> bool {
        let is_compiled = |good: &ValidObject| good.object.has_expressions();
        self.in_force.as_ref().is_some_and(is_compiled) || !matches!(self.newest, LatestVersion::Good)
    }

    /// The text of the version in force, and of the newest version if that is another one; each
    /// only if it is compiled.
    fn texts(&self, name: &Name) -> [Option<ReceivedObject>; 2] {
        let newest = match &self.newest {
            LatestVersion::Good => None,
            LatestVersion::Withheld(withheld) => withheld.good.compiled_text(),
            LatestVersion::Faulty(fault) => {
                let text = fault.refused.text.as_deref();
                text.filter(|_| fault.charge.is_some())
                    .map(|text| ReceivedObject::stored(name.clone(), fault.digest, text))
            }
        };
        [
            self.in_force.as_ref().and_then(ValidObject::compiled_text),
            newest,
        ]
    }

    /// Replaces what the version in force is compiled to. That stays as it is if the new result has
    /// faults.
    fn take_compiled(&mut self, cluster: &str, (digest, read): CompiledAgain) {
        let good = self
            .in_force
            .as_mut()
            .filter(|good| good.content.digest == digest);
        let Some(good) = good else { return };
        let is_newest = match &self.newest {
            LatestVersion::Good => true,
            LatestVersion::Faulty(fault) => fault.charge.is_none(),
            LatestVersion::Withheld(_) => false,
        };
        match read {
            Ok(read) => {
                good.replace_compiled(read);
                if is_newest {
                    self.newest = LatestVersion::Good;
                }
            }
            Err(mut refused) if is_newest => {
                // The version in force has the text already.
                refused.text = None;
                let made = good.object.compiled_bytes() + refused.faults.memory_bytes();
                good.charge.charge_derived(made);
                self.reject_version(cluster, digest, refused, None);
            }
            Err(_) => {}
        }
    }

    /// Does the same for a newest version that is not in force. If it had faults and has none now,
    /// it comes into force.
    fn take_newest_compiled(
        &mut self,
        store: &Store,
        kind: &WatchedKind,
        (digest, read): CompiledAgain,
        schema: &SchemaState,
    ) {
        let is_of_newest = match &self.newest {
            LatestVersion::Good => false,
            LatestVersion::Faulty(fault) => fault.digest == digest && fault.charge.is_some(),
            LatestVersion::Withheld(withheld) => withheld.good.content.digest == digest,
        };
        if !is_of_newest {
            return;
        }
        let charge = match std::mem::take(&mut self.newest) {
            LatestVersion::Good => return,
            LatestVersion::Faulty(fault) => fault.charge,
            LatestVersion::Withheld(mut withheld) => match read {
                Ok(read) => {
                    withheld.good.replace_compiled(read);
                    self.newest = LatestVersion::Withheld(withheld);
                    return;
                }
                Err(_) => Some(withheld.good.charge),
            },
        };
        match (read, charge) {
            (Ok(read), Some(charge)) => {
                let room = store.memory.room(kind.room());
                let mut good = store.contents.keep(read, (room, charge));
                good.take_compiled();
                self.accept_version(&store.cluster, kind, good, schema);
            }
            (Err(mut refused), Some(mut charge)) => {
                charge.charge_derived(refused.faults.memory_bytes());
                refused.content = Some(
                    store
                        .memory
                        .room(kind.room())
                        .take_content(charge.content_bytes()),
                );
                self.reject_version(&store.cluster, digest, refused, Some(charge));
            }
            (_, None) => {}
        }
    }
}

// === impl ValidObject ===

impl ValidObject {
    /// Its text, if it has expressions.
    fn compiled_text(&self) -> Option<ReceivedObject> {
        let content = &self.content;
        let text = || ReceivedObject::stored(content.name.clone(), content.digest, &content.text.get());
        self.object.has_expressions().then(text)
    }

    fn replace_compiled(&mut self, read: ReadContent) {
        self.object = read.object;
        self.take_compiled();
    }
}
