//! How much is taken of what an API server has.

use super::{Store, StoredKinds};
use crate::cluster::kind::WatchedKind;
use crate::cluster::object::ReceivedObject;

/// How many bytes the objects of a cluster may have together, as JSON: 500,000 bindings and
/// more, or many parameters.
pub(super) const OBJECT_BYTES: usize = 256 << 20;

/// The API server has more than is taken from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the objects of the cluster have more than {0} bytes as JSON: there must be fewer, or fewer kinds of parameters"
)]
pub(in crate::cluster) struct TooMuch(usize);

// === impl Store ===

impl Store {
    /// From now on its objects may have so many bytes together. What is held stays.
    #[cfg(test)]
    pub(in crate::cluster) fn limit(&self, most: usize) {
        self.known().most = most;
    }

    /// A list of `kind` has so many bytes so far. What is held of the kind meanwhile counts only
    /// as far as it has more.
    ///
    /// # Errors
    ///
    /// With what is held and listed of the other kinds that is too much.
    pub(in crate::cluster) fn lists(&self, kind: &WatchedKind, bytes: usize) -> Result<(), TooMuch> {
        let mut known = self.known();
        known.has_room(kind, bytes)?;
        if let Some(objects) = known.kinds.get_mut(kind) {
            objects.listing = bytes;
        }
        Ok(())
    }

    /// No list of `kind` is being read.
    pub(in crate::cluster) fn lists_no_more(&self, kind: &WatchedKind) {
        if let Some(objects) = self.known().kinds.get_mut(kind) {
            objects.listing = 0;
        }
    }

    /// Takes an object that is new or changed. Whether what holds changed.
    ///
    /// # Errors
    ///
    /// With it there would be too much.
    pub(in crate::cluster) fn apply_within(
        &self,
        kind: &WatchedKind,
        received: ReceivedObject,
    ) -> Result<bool, TooMuch> {
        {
            let known = self.known();
            let of_kind = known.kinds.get(kind).map(|kind| &kind.objects);
            let others = of_kind.map_or(0, |objects| objects.bytes() - objects.bytes_of(&received.name));
            known.has_room(kind, others.saturating_add(received.bytes()))?;
        }
        Ok(self.apply(kind, received))
    }
}

// === impl StoredKinds ===

impl StoredKinds {
    /// Whether `kind` may have so many bytes, beside the other kinds.
    fn has_room(&self, kind: &WatchedKind, bytes: usize) -> Result<(), TooMuch> {
        let others = self.kinds.iter().filter(|(other, _)| *other != kind);
        let all = others
            .map(|(_, objects)| objects.objects.bytes().max(objects.listing))
            .fold(bytes, usize::saturating_add);
        (all <= self.most).then_some(()).ok_or(TooMuch(self.most))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::kind::WatchPurpose;
    use portcullis_cel::Version;

    fn kind(name: &str) -> WatchedKind {
        WatchedKind {
            group: "example.com".to_owned(),
            kind: name.to_owned(),
            versions: vec!["v1".to_owned()],
            role: WatchPurpose::Parameter,
        }
    }

    /// Of some 1,000 bytes.
    fn object(kind: &WatchedKind, name: &str) -> ReceivedObject {
        let text = format!(
            r#"{{"apiVersion":"example.com/v1","kind":"{}","metadata":{{"name":"{name}"}},"padding":"{}"}}"#,
            kind.kind,
            "x".repeat(900)
        );
        ReceivedObject::new(kind, "example.com/v1", (String::new(), name.to_owned()), &text)
    }

    #[test]
    fn what_is_listed_and_held_of_all_kinds_is_bounded_together() {
        let store = Arc::new(Store::new("east", None, Version::NEWEST));
        let [one, other] = ["One", "Other"].map(kind);
        store.keep(&[one.clone(), other.clone()].into());
        store.limit(3_900);
        assert!(store.lists(&one, 3_000).is_ok());
        assert_eq!(
            store.lists(&other, 1_500),
            Err(TooMuch(3_900)),
            "beside the other list"
        );
        store.lists_no_more(&one);
        assert!(store.lists(&other, 3_500).is_ok());
        store.replace(&other, vec![object(&other, "a"), object(&other, "b")]);
        assert!(
            store.lists(&one, 1_500).is_ok(),
            "that list is whole, and smaller"
        );
        assert_eq!(
            store.lists(&one, 3_000),
            Err(TooMuch(3_900)),
            "beside what is held"
        );
        store.lists_no_more(&one);
        assert!(store.apply_within(&one, object(&one, "a")).is_ok());
        assert!(
            store.apply_within(&one, object(&one, "a")).is_ok(),
            "in place of it"
        );
        assert_eq!(store.apply_within(&one, object(&one, "b")), Err(TooMuch(3_900)));
        assert!(store.delete(&other, &(String::new(), "a".to_owned())));
        assert!(store.apply_within(&one, object(&one, "b")).is_ok());
        assert!(
            store.lists(&one, 2_500).is_ok(),
            "its own objects are those that are listed anew"
        );
    }
}
