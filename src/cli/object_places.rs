//! Where objects that decide who may do what stand in manifests.

use std::collections::HashMap;

use portcullis_policy::document::Document;
use portcullis_policy::engine::groups::RBAC;
use portcullis_policy::field::{FieldPath, Place};
use portcullis_policy::manifest::ObjectIdentity;

/// The objects of some manifests, by kind, namespace and name.
pub(crate) struct ObjectPlaces<'d>(HashMap<ObjectIdentity, &'d Document>);

impl<'d> ObjectPlaces<'d> {
    /// Those that `documents` are. Of two of one name, the first counts.
    pub(crate) fn new(documents: &'d [Document]) -> Self {
        let mut places = HashMap::new();
        for document in documents {
            places.entry(ObjectIdentity::of(document)).or_insert(document);
        }
        Self(places)
    }

    /// The object of RBAC or of this project that is called so.
    pub(crate) fn document(&self, [kind, namespace, name]: [&str; 3]) -> Option<&'d Document> {
        let groups = [RBAC, "portcullis.dev"].into_iter();
        let mut identities = groups.map(|group| ObjectIdentity::new(group, kind, namespace, name));
        identities.find_map(|identity| self.0.get(&identity).copied())
    }

    /// Where its field `path` stands; nowhere for an object that is in no manifest.
    pub(crate) fn place(&self, object: [&str; 3], path: FieldPath) -> Place {
        let document = self.document(object);
        document.map_or_else(Place::default, |document| document.place(path))
    }
}
