//! The CustomResourceDefinitions of a cluster: which of its resources have no namespace, which
//! versions they have, and whether it keeps every field of Portcullis' own kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Store, StoredKinds, SyncProgress, log_faults};
use crate::cluster::definition::{CustomDefinition, MissingFields};
use crate::cluster::kind::WatchedKind;
use crate::cluster::memory::{Charge, ContentCharge};
use crate::cluster::object::{Name, ReceivedObject};
use crate::cluster::weight::LeftOutReason;
use portcullis_policy::authorization::matching::ClusterScoped;
use portcullis_policy::engine::admission::matching::CustomResources;
use portcullis_policy::engine::groups::PORTCULLIS;
use portcullis_policy::field::{Fault, FaultKind, Faults, Place};

/// How long an API server may go on storing by a definition that was replaced: twice what
/// Kubernetes itself allows its servers before it calls a new one established.
const TAKES_EFFECT: Duration = Duration::from_secs(10);

/// How many definitions of custom resources are taken. Of those beyond, nothing is known.
pub(crate) const MAX_DEFINITIONS: usize = 10_000;

/// The definitions that are known, by name.
pub(crate) struct Definitions {
    known: BTreeMap<Name, HeldDefinition>,
    /// When one that drops fields was known last, by kind.
    dropped: BTreeMap<String, Instant>,
    /// [`TAKES_EFFECT`].
    pub(crate) takes_effect: Duration,
}

/// A definition, and the memory that it takes.
pub(crate) struct HeldDefinition {
    definition: CustomDefinition,
    charge: Charge,
    _content: ContentCharge,
}

/// What was received as a definition.
pub(crate) enum ReadDefinition {
    /// What is known of it already.
    Same,
    New(Box<HeldDefinition>),
    /// It is none.
    Invalid,
}

/// What is known of the API server's schema of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SchemaState {
    /// The definitions are yet to be listed.
    Awaited,
    /// They may not be listed.
    Refused,
    /// There is none of this kind.
    Undefined,
    /// It lacks fields.
    Lacks(Arc<MissingFields>, String),
    /// It lacks none, but did so just before, and the API server may not have noticed.
    Recent,
    /// It has every field that this program knows.
    Current,
}

// === impl SchemaState ===

impl SchemaState {
    pub(crate) fn drops_fields(&self) -> bool {
        match self {
            Self::Lacks(missing, _) => missing.are_dropped,
            state => *state == Self::Recent,
        }
    }

    /// Why nothing is taken that lets requests through; `None` while that is not known, and
    /// where it is taken.
    pub(crate) fn why(&self) -> Option<String> {
        match self {
            Self::Awaited | Self::Recent | Self::Current => None,
            Self::Refused => Some(
                "not taken: the gateway may not list customresourcedefinitions, so the API server may drop \
                 restrictions: apply config/cluster/gateway.yaml"
                    .to_owned(),
            ),
            Self::Undefined => Some(
                "not taken: the API server has no CustomResourceDefinition of its kind, so it may drop restrictions: \
                 apply config/crd/"
                    .to_owned(),
            ),
            Self::Lacks(missing, file) => Some(format!(
                "not taken: its CustomResourceDefinition lacks {}, so the API server may drop restrictions: apply \
                 config/crd/{file}.yaml of the gateway's version",
                missing.names()
            )),
        }
    }
}

/// The resources without namespace among those of `definitions`.
fn cluster_scoped<'d>(definitions: impl IntoIterator<Item = &'d CustomDefinition>) -> ClusterScoped {
    let mut scoped = ClusterScoped::default();
    for definition in definitions {
        if definition.resource.is_cluster_scoped {
            scoped.add(&definition.resource.group, &definition.resource.resource);
        }
    }
    scoped
}

// === impl Definitions ===

impl Default for Definitions {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            dropped: BTreeMap::new(),
            takes_effect: TAKES_EFFECT,
        }
    }
}

impl Definitions {
    /// Those that are known.
    fn iter(&self) -> impl Iterator<Item = &CustomDefinition> {
        self.known.values().map(|held| &held.definition)
    }

    fn insert(&mut self, name: Name, held: HeldDefinition) {
        let drops = |one: &HeldDefinition| {
            let missing = one.definition.missing.as_ref();
            missing.is_some_and(|missing| missing.are_dropped)
        };
        let kind = held.definition.resource.kind.clone();
        let before = self.known.insert(name, held);
        if before.is_some_and(|before| drops(&before)) {
            self.dropped.insert(kind, Instant::now());
        }
    }

    /// The names of all that are known.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.known.keys()
    }

    /// The resources without namespace.
    pub(crate) fn cluster_scoped(&self) -> ClusterScoped {
        cluster_scoped(self.iter())
    }

    /// What all of them say.
    pub(crate) fn custom_resources(&self) -> CustomResources {
        self.iter()
            .map(|definition| Arc::clone(&definition.resource))
            .collect()
    }

    fn schema(&self, kind: &WatchedKind) -> SchemaState {
        let dropped = self.dropped.get(&kind.kind);
        let is_recent = dropped.is_some_and(|at| at.elapsed() < self.takes_effect);
        let mut definitions = self.iter();
        let own = definitions.find(|one| one.resource.group == kind.group && one.resource.kind == kind.kind);
        match own {
            None => SchemaState::Undefined,
            Some(CustomDefinition { missing: None, .. }) if is_recent => SchemaState::Recent,
            Some(CustomDefinition { missing: None, .. }) => SchemaState::Current,
            Some(CustomDefinition {
                missing: Some(missing),
                resource,
            }) => SchemaState::Lacks(Arc::clone(missing), resource.resource.clone()),
        }
    }

    /// What is wrong with those of Portcullis' own kinds.
    pub(crate) fn faults(&self, cluster: &Arc<str>) -> Vec<Faults> {
        let faulty = self.known.iter();
        faulty
            .filter_map(|(name, held)| held.definition.faults(cluster, name))
            .collect()
    }
}

impl CustomDefinition {
    fn faults(&self, cluster: &Arc<str>, name: &Name) -> Option<Faults> {
        let missing = self.missing.as_ref()?;
        let place = Place {
            file: Some(format!("cluster {cluster}").into()),
            object: format!("CustomResourceDefinition/{}", name.1),
            ..Place::default()
        };
        let message = format!(
            "its schema lacks {}: until config/crd/{}.yaml of the gateway's version is applied, no new object \
             of this kind is taken that could let requests pass",
            missing.names(),
            self.resource.resource
        );
        let mut faults = Faults::new();
        faults.push(Fault::error(place, FaultKind::Required, message));
        Some(faults)
    }
}

// === impl HeldDefinition ===

impl HeldDefinition {
    /// Whether it is of one of Portcullis' own kinds, or of another in their group.
    fn is_own(&self) -> bool {
        self.definition.resource.group == PORTCULLIS
    }
}

// === impl Store ===

impl Store {
    /// Reads a definition, unless there is no room for it.
    pub(crate) fn read_definition(&self, received: &ReceivedObject) -> Result<ReadDefinition, LeftOutReason> {
        let Some(definition) = received.definition() else {
            return Ok(ReadDefinition::Invalid);
        };
        let bytes = definition.bytes();
        let before = {
            let known = self.known();
            let held = known.definitions.known.get(&received.name);
            if held.is_some_and(|held| held.definition == definition) {
                return Ok(ReadDefinition::Same);
            }
            held.map_or(0, |held| held.charge.bytes())
        };
        let room = self.memory.room(WatchedKind::definitions().room());
        let charge = room.try_take("", bytes, false, before);
        Ok(ReadDefinition::New(Box::new(HeldDefinition {
            definition,
            charge: charge.ok_or(LeftOutReason::NoRoom { bytes })?,
            _content: room.take_content(bytes),
        })))
    }
}

// === impl StoredKinds ===

impl StoredKinds {
    /// What is known of the schema of `kind`.
    pub(crate) fn schema(&self, kind: &WatchedKind) -> SchemaState {
        let definitions = self.kinds.get(&WatchedKind::definitions());
        match definitions.map(|objects| (objects.progress, objects.known)) {
            Some((SyncProgress::Refused, _)) => SchemaState::Refused,
            None | Some((SyncProgress::Awaited, false)) => SchemaState::Awaited,
            Some(_) => self.definitions.schema(kind),
        }
    }

    /// Takes a definition. Whether what holds changed.
    pub(crate) fn define(&mut self, cluster: &Arc<str>, name: &Name, read: ReadDefinition) -> bool {
        let kind = WatchedKind::definitions();
        let was_left_out = self
            .kinds
            .get_mut(&kind)
            .is_some_and(|objects| objects.left_out.remove(name));
        let held = match read {
            ReadDefinition::Same => return was_left_out,
            ReadDefinition::Invalid => return self.undefine(cluster, name),
            ReadDefinition::New(held) => held,
        };
        let definition = &held.definition;
        let before = self.definitions.known.get(name);
        if before.is_none() && self.definitions.known.len() >= MAX_DEFINITIONS {
            return was_left_out;
        }
        let is_new = before.map(|before| &before.definition.resource) != Some(&definition.resource);
        let is_own = definition.resource.group == PORTCULLIS || before.is_some_and(HeldDefinition::is_own);
        if let Some(faults) = definition.faults(cluster, name) {
            log_faults(cluster, true, &faults);
        }
        self.definitions.insert(name.clone(), *held);
        (is_own && self.settle(cluster)) | is_new
    }

    /// Forgets a definition that is gone. Whether what holds changed.
    pub(crate) fn undefine(&mut self, cluster: &Arc<str>, name: &Name) -> bool {
        let gone = self.definitions.known.remove(name);
        let is_own = gone.as_ref().is_some_and(HeldDefinition::is_own);
        (is_own && self.settle(cluster)) | gone.is_some()
    }

    /// Definitions but for `names` are gone. Whether there were any.
    pub(crate) fn keep_definitions(&mut self, names: &BTreeSet<Name>) -> bool {
        let before = self.definitions.known.len();
        self.definitions.known.retain(|name, _| names.contains(name));
        self.definitions.known.len() != before
    }

    /// Takes what was withheld, as far as it may be. Whether what holds changed.
    pub(crate) fn settle(&mut self, cluster: &Arc<str>) -> bool {
        let own = self.kinds.keys().filter(|kind| kind.is_own());
        let schemas: Vec<(WatchedKind, SchemaState)> =
            own.map(|kind| (kind.clone(), self.schema(kind))).collect();
        let mut changed = false;
        for (kind, schema) in schemas {
            let objects = self.kinds.get_mut(&kind).into_iter();
            for (_, held) in objects.flat_map(|objects| objects.objects.iter_mut()) {
                changed |= held.settle(cluster, &kind, &schema);
            }
        }
        changed
    }
}
