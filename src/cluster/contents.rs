//! The contents of objects, each once for all clusters that share it.
//!
//! The clusters of a fleet have much in common: the roles and bindings that every API server
//! creates, and those that one repository deploys to all clusters. Each is decoded, validated and
//! kept once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::Value;

use super::kind::Name;
use super::memory::{Charge, ClusterRoom, ContentCharge};
use super::object::{FaultyObject, ReadContent, ReceivedObject, StoredText};
use crate::state::WatchedText;
use portcullis_cel::Version;
use portcullis_policy::manifest::ValidatedObject;

/// A valid object of one cluster.
#[derive(Debug)]
pub(crate) struct ValidObject {
    pub(crate) content: Arc<SharedContent>,
    pub(crate) object: Arc<ValidatedObject>,
    pub(crate) charge: Charge,
}

/// The content of a valid object, which clusters share if their objects have the same.
#[derive(Debug)]
pub(crate) struct SharedContent {
    pub(crate) name: Name,
    /// The text for the cache file.
    pub(crate) text: StoredText,
    pub(crate) digest: [u8; 32],
    /// Only kept if the object must be selected by its labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// The object of the first cluster with this content, if it has no expressions.
    object: Option<Arc<ValidatedObject>>,
    _charge: ContentCharge,
}

/// The contents that objects of any cluster have. Contents with expressions are not shared.
#[derive(Debug, Default)]
pub(crate) struct SharedContents(Mutex<KnownContents>);

#[derive(Debug, Default)]
struct KnownContents {
    /// By the first bytes of their digests. If two have these in common, only the newer is found.
    contents: HashMap<u64, Weak<SharedContent>>,
    /// The number of contents after the last sweep of unused ones.
    swept: usize,
}

/// A sweep is due when the contents exceed twice the number after the last sweep by more than this.
const SWEEP_AFTER_OBJECTS: usize = 1_000;

// === impl SharedContents ===

impl SharedContents {
    fn known(&self) -> MutexGuard<'_, KnownContents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another cluster has the content of `received`.
    pub(crate) fn has(&self, received: &ReceivedObject) -> bool {
        self.known().find(received).is_some()
    }

    /// Decodes and validates an object of `cluster`, unless another cluster has the same content.
    /// Its memory is taken from `room`, where `charge` has been reserved for it.
    ///
    /// # Errors
    ///
    /// The faults of the object.
    pub(crate) fn read(
        &self,
        received: ReceivedObject,
        cluster: &Arc<str>,
        version: Version,
        (room, charge): (&ClusterRoom, Charge),
    ) -> Result<ValidObject, (FaultyObject, Charge)> {
        let known = self.known().find(&received);
        if let Some(content) = known
            && let Some(object) = &content.object
        {
            return Ok(ValidObject {
                object: Arc::new(object.of_cluster(Arc::clone(cluster))),
                content,
                charge,
            });
        }
        match received.read(cluster, version) {
            Ok(read) => Ok(self.keep(read, (room, charge))),
            Err(mut refused) => {
                refused.content = Some(room.take_content(charge.content_bytes()));
                Err((refused, charge))
            }
        }
    }

    /// Keeps an object that was read, with its `charge` to `room`.
    pub(crate) fn keep(&self, read: ReadContent, (room, charge): (&ClusterRoom, Charge)) -> ValidObject {
        let object = Arc::clone(&read.object);
        let content = SharedContent::new(read, room.take_content(charge.content_bytes()));
        let content = Arc::new(content);
        if content.object.is_some() {
            self.known().note(&content);
        }
        ValidObject {
            content,
            object,
            charge,
        }
    }
}

// === impl ValidObject ===

impl ValidObject {
    /// Also charges its compiled expressions, even if there is no room: objects that are known
    /// already stay.
    pub(crate) fn take_compiled(&mut self) {
        self.charge.charge_derived(self.object.compiled_bytes());
    }
}

// === impl SharedContent ===

impl SharedContent {
    fn new(read: ReadContent, charge: ContentCharge) -> Self {
        Self {
            name: read.name,
            text: read.text,
            digest: read.digest,
            labels: read.labels,
            object: (!read.object.has_expressions()).then_some(read.object),
            _charge: charge,
        }
    }
}

impl WatchedText for SharedContent {
    fn to_json(&self) -> Value {
        serde_json::from_str(&self.text.get()).unwrap_or_default()
    }
}

// === impl KnownContents ===

impl KnownContents {
    fn find(&self, received: &ReceivedObject) -> Option<Arc<SharedContent>> {
        let known = self.contents.get(&key(&received.digest))?.upgrade();
        known.filter(|known| known.digest == received.digest && known.name == received.name)
    }

    fn note(&mut self, content: &Arc<SharedContent>) {
        self.contents
            .insert(key(&content.digest), Arc::downgrade(content));
        if self.contents.len() > 2 * self.swept + SWEEP_AFTER_OBJECTS {
            self.contents.retain(|_, content| content.strong_count() > 0);
            self.contents.shrink_to(2 * self.contents.len());
            self.swept = self.contents.len();
        }
    }
}

fn key(digest: &[u8; 32]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *digest;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::kind::WatchedKind;
    use crate::cluster::memory::{RoomOwner, RoomPurpose, WatchedMemory};

    fn received(name: &str, user: &str) -> ReceivedObject {
        let kind = WatchedKind::of_object("rbac.authorization.k8s.io/v1", "RoleBinding");
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"team"}},
                "roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"edit"}},
                "subjects":[{{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"{user}"}}]}}"#
        );
        let name = ("team".to_owned(), name.to_owned());
        ReceivedObject::new(&kind, "rbac.authorization.k8s.io/v1", name, text.as_bytes()).unwrap()
    }

    fn read(contents: &SharedContents, cluster: &str, received: ReceivedObject) -> ValidObject {
        let memory = WatchedMemory::default().cluster();
        let room = memory.room(RoomPurpose::Rbac);
        let charge = room.try_take(RoomOwner::NONE, received.bytes, false, 0).unwrap();
        let good = contents.read(received, &cluster.into(), Version::NEWEST, (room, charge));
        good.unwrap_or_else(|(refused, _)| panic!("{}", refused.faults))
    }

    #[test]
    fn what_two_clusters_say_is_kept_once_and_what_differs_is_not() {
        let contents = SharedContents::default();
        let [east, west] = ["east", "west"].map(|cluster| read(&contents, cluster, received("a", "joe")));
        assert!(Arc::ptr_eq(&east.content, &west.content));
        assert_eq!(
            (east.object.cluster(), west.object.cluster()),
            (Some("east"), Some("west"))
        );
        assert_eq!(east.object.identity(), west.object.identity());
        let others = [received("a", "jane"), received("b", "joe")];
        for other in others.map(|other| read(&contents, "west", other)) {
            assert!(!Arc::ptr_eq(&east.content, &other.content));
        }
        // The same object, decoded without sharing.
        let alone = received("a", "joe")
            .read(&"west".into(), Version::NEWEST)
            .unwrap();
        assert_eq!(format!("{:?}", alone.object), format!("{:?}", west.object));
        assert_eq!(alone.text.get(), west.content.text.get());
    }

    /// This is more than its text, which is all that is known when it is decoded again.
    #[test]
    fn a_content_takes_what_its_object_was_charged() {
        let room_left = |as_read_again: bool| {
            let memory = WatchedMemory::default();
            memory.limit(64 << 10);
            let memory = memory.cluster();
            let (room, new) = (memory.room(RoomPurpose::Rbac), received("a", "joe"));
            let charge = room.try_take(RoomOwner::NONE, new.bytes, false, 0).unwrap();
            let received = if as_read_again {
                let (name, digest) = (new.name.clone(), new.digest);
                let read = new.read(&"east".into(), Version::NEWEST).unwrap();
                ReceivedObject::stored(name, digest, &read.text.get())
            } else {
                new
            };
            let read =
                SharedContents::default().read(received, &"east".into(), Version::NEWEST, (room, charge));
            let _held = read.unwrap_or_else(|(refused, _)| panic!("{}", refused.faults));
            (0..)
                .take_while(|&content| room.has_room(RoomOwner::NONE, content))
                .count()
        };
        assert_eq!(room_left(true), room_left(false));
    }

    #[test]
    fn what_nobody_has_any_more_is_not_kept() {
        let contents = SharedContents::default();
        for number in 0..3 * SWEEP_AFTER_OBJECTS {
            read(&contents, "east", received("a", &format!("user-{number}")));
        }
        assert!(contents.known().contents.len() <= SWEEP_AFTER_OBJECTS + 1);
    }
}
