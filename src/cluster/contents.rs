//! What objects say, once for all clusters that have the same.
//!
//! Clusters of one fleet have much in common: the roles and bindings that every API server creates,
//! and those that one repository gives to all. Each is kept once, and is read and checked once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::object::{Good, GoodContent, ReceivedObject, RefusedObject};
use portcullis_cel::Version;

/// The contents that the objects of some clusters have, as long as one of them has them. None of
/// them has expressions.
#[derive(Debug, Default)]
pub(super) struct SharedContents(Mutex<KnownContents>);

#[derive(Debug, Default)]
struct KnownContents {
    /// By the first bytes of their digests. Of two that have these in common, the newer is known.
    contents: HashMap<u64, Weak<GoodContent>>,
    /// How many there were when those were taken out that nobody has any more.
    swept: usize,
}

/// So many more than twice those that were left there may be before it is looked again which of
/// them nobody has.
const FEW: usize = 1_000;

// === impl SharedContents ===

impl SharedContents {
    fn known(&self) -> MutexGuard<'_, KnownContents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads and checks what `cluster` sent, unless another cluster has the same.
    ///
    /// # Errors
    ///
    /// Every fault of the object.
    pub(super) fn read(
        &self,
        received: ReceivedObject,
        cluster: &Arc<str>,
        version: Version,
    ) -> Result<Good, RefusedObject> {
        let known = self.known().find(&received);
        if let Some(content) = known
            && let Some(object) = &content.object
        {
            return Ok(Good {
                object: Arc::new(object.of_cluster(Arc::clone(cluster))),
                content,
            });
        }
        let good = received.read(cluster, version)?;
        if good.content.object.is_some() {
            self.known().note(&good.content);
        }
        Ok(good)
    }
}

// === impl KnownContents ===

impl KnownContents {
    fn find(&self, received: &ReceivedObject) -> Option<Arc<GoodContent>> {
        let known = self.contents.get(&key(&received.digest))?.upgrade();
        known.filter(|known| known.digest == received.digest && known.name == received.name)
    }

    fn note(&mut self, content: &Arc<GoodContent>) {
        self.contents
            .insert(key(&content.digest), Arc::downgrade(content));
        if self.contents.len() > 2 * self.swept + FEW {
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

    fn received(name: &str, user: &str) -> ReceivedObject {
        let kind = WatchedKind::of_object("rbac.authorization.k8s.io/v1", "RoleBinding");
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"team"}},
                "roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"edit"}},
                "subjects":[{{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"{user}"}}]}}"#
        );
        let name = ("team".to_owned(), name.to_owned());
        ReceivedObject::new(&kind, "rbac.authorization.k8s.io/v1", name, &text)
    }

    fn read(contents: &SharedContents, cluster: &str, received: ReceivedObject) -> Good {
        let good = contents.read(received, &cluster.into(), Version::NEWEST);
        good.unwrap_or_else(|refused| panic!("{}", refused.faults))
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
        // As if it were read alone.
        let alone = received("a", "joe")
            .read(&"west".into(), Version::NEWEST)
            .unwrap();
        assert_eq!(format!("{:?}", alone.object), format!("{:?}", west.object));
        assert_eq!(alone.content.text.get(), west.content.text.get());
    }

    #[test]
    fn what_nobody_has_any_more_is_not_kept() {
        let contents = SharedContents::default();
        for number in 0..3 * FEW {
            read(&contents, "east", received("a", &format!("user-{number}")));
        }
        assert!(contents.known().contents.len() <= FEW + 1);
    }
}
