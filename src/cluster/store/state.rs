//! What is known of one cluster, for all that reads and changes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::super::definition::Definitions;
use super::held::HeldObjects;
use crate::cluster::contents::{SharedContents, ValidObject};
use crate::cluster::kind::{Name, WatchedKind};
use crate::cluster::memory::{Charge, ClusterMemory};
use crate::cluster::saved::SavedKind;
use crate::cluster::weight::LeftOutObjects;
use crate::config::Selector;
use crate::state::{Origin, WatchedObjects};
use portcullis_cel::Version;
use portcullis_policy::manifest::ObjectIdentity;

/// What is known of one cluster. Shared by its watches and its readers.
pub(crate) struct Store {
    pub(crate) cluster: Arc<str>,
    pub(crate) contents: Arc<SharedContents>,
    pub(crate) memory: ClusterMemory,
    pub(crate) known: Mutex<StoredKinds>,
    /// Held by a test while nothing is to be compiled again.
    #[cfg(test)]
    pub(crate) compiling: Mutex<()>,
}

pub(crate) struct StoredKinds {
    pub(crate) kinds: BTreeMap<WatchedKind, KindObjects>,
    pub(crate) origin: Origin,
    /// Whether changes to what was saved are lost, until every kind was listed.
    pub(crate) lacks_changes: bool,
    pub(crate) definitions: Definitions,
    /// The public keys of its tokens.
    pub(crate) token_keys: Option<Arc<[u8]>>,
    pub(crate) standing: InForceVersions,
    /// What expressions are compiled for.
    pub(crate) cel_version: Version,
    /// A number that grows with each change of what may hold.
    pub(crate) version: u64,
    /// What was asked for last.
    pub(crate) last: Option<LastWatched>,
    /// Whether a kind was dropped that is saved.
    pub(crate) is_kind_unsaved: bool,
    /// Whether an administrator says that what is absent is gone, until every kind was listed.
    pub(crate) accepts_absence: bool,
}

/// The objects of one kind.
#[derive(Default)]
pub(crate) struct KindObjects {
    pub(crate) progress: SyncProgress,
    /// Whether all of them were listed before, or saved.
    pub(crate) known: bool,
    pub(crate) objects: HeldObjects,
    pub(crate) left_out: LeftOutObjects,
    /// The newest version that was seen of the kind.
    pub(crate) newest: Option<u64>,
    /// Why what is not listed holds all the same.
    pub(crate) doubt: Option<Doubt>,
    /// Since when what holds may not be what the API server has.
    pub(crate) outdated: Option<StaleSince>,
    /// How many lists were begun.
    pub(crate) lists: u32,
    /// What was saved of it besides its objects.
    pub(crate) saved: Option<SavedKind>,
    /// What it takes itself, where users decide how many kinds there are.
    pub(crate) charge: Option<Charge>,
}

/// How far a kind is known since the start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncProgress {
    /// Its list is awaited.
    #[default]
    NotListed,
    /// The API server refuses to list it, or does not serve it.
    Refused,
    /// It was listed.
    Listed,
}

/// Why it is not believed that objects are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doubt(pub(crate) String);

/// Since when a kind may be another in the API server, and why.
#[derive(Debug, Clone)]
pub(crate) struct StaleSince {
    pub(crate) since: Instant,
    pub(crate) why: String,
}

/// Which versions of Portcullis' own kinds decide requests.
#[derive(Default)]
pub(crate) struct InForceVersions {
    /// Those that were given to the last that asked.
    pub(crate) offered: BTreeMap<(WatchedKind, Name), [u8; 32]>,
    /// Those that are in force.
    pub(crate) in_force: BTreeMap<(WatchedKind, Name), [u8; 32]>,
    /// Those of which the gateway's files have the same object, which holds instead.
    pub(crate) in_files: BTreeSet<ObjectIdentity>,
}

/// What was given to the last that asked.
pub(crate) struct LastWatched {
    pub(crate) version: u64,
    pub(crate) selector: Option<Selector>,
    pub(crate) accept_exceptions: bool,
    pub(crate) watched: Arc<WatchedObjects>,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl LastWatched ===

impl LastWatched {
    /// Whether an object that must be selected was.
    pub(crate) fn selects(&self, good: &ValidObject) -> bool {
        selects(self.selector.as_ref(), good)
    }
}

pub(crate) fn selects(selector: Option<&Selector>, good: &ValidObject) -> bool {
    selector.is_some_and(|selector| selector.labels.matches(|key| good.content.labels.get(key)))
}
