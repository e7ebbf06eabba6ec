//! The CustomResourceDefinitions of a cluster: which of its resources have no namespace, which
//! versions they have, and whether it keeps every field of Portcullis' own kinds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cluster::definition::{CustomDefinition, MissingFields};
use crate::cluster::kind::{Name, WatchedKind};
use crate::cluster::memory::{Charge, ContentCharge};
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
    pub(crate) known: BTreeMap<Name, HeldDefinition>,
    /// When one that drops fields was known last, by kind.
    pub(crate) dropped: BTreeMap<String, Instant>,
    /// [`TAKES_EFFECT`].
    pub(crate) takes_effect: Duration,
}

/// A definition, and the memory that it takes.
pub(crate) struct HeldDefinition {
    pub(crate) definition: CustomDefinition,
    pub(crate) charge: Charge,
    pub(crate) _content: ContentCharge,
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
pub(crate) fn cluster_scoped<'d>(
    definitions: impl IntoIterator<Item = &'d CustomDefinition>,
) -> ClusterScoped {
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
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CustomDefinition> {
        self.known.values().map(|held| &held.definition)
    }

    pub(crate) fn insert(&mut self, name: Name, held: HeldDefinition) {
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

    pub(crate) fn schema(&self, kind: &WatchedKind) -> SchemaState {
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
    pub(crate) fn faults(&self, cluster: &Arc<str>, name: &Name) -> Option<Faults> {
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
    pub(crate) fn is_own(&self) -> bool {
        self.definition.resource.group == PORTCULLIS
    }
}
