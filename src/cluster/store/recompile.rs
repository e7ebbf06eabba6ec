//! Expressions compiled anew, for another version of CEL.

use std::sync::Arc;

use super::schema::SchemaState;
use super::{HeldObject, Newest, Store, StoredKinds};
use crate::cluster::kind::WatchedKind;
use crate::cluster::object::{Good, Name, ReceivedObject, RefusedObject};
use portcullis_cel::Version;

// === impl Store ===

impl Store {
    /// From now on expressions are compiled for `version`, and those of what is held anew. An
    /// object that has faults then holds on as it was, and they are reported; one that had faults
    /// and has none holds from now on. Blocks for as long as expressions take to compile.
    pub(in crate::cluster) fn compile_for(&self, version: Version) {
        if self.known().cel_version == version {
            return;
        }
        let mut known = self.changing();
        known.cel_version = version;
        known.compile_anew(&self.cluster);
    }
}

// === impl StoredKinds ===

impl StoredKinds {
    /// Whether what holds may have changed.
    pub(super) fn compile_anew(&mut self, cluster: &Arc<str>) -> bool {
        let version = self.cel_version;
        let kinds: Vec<WatchedKind> = self.kinds.keys().cloned().collect();
        for kind in kinds {
            let schema = self.schema(&kind);
            let objects = self.kinds.get_mut(&kind).into_iter();
            for (name, held) in objects.flat_map(|objects| objects.objects.iter_mut()) {
                held.compile_anew(cluster, &kind, name, version, &schema);
            }
        }
        true
    }
}

// === impl HeldObject ===

impl HeldObject {
    fn compile_anew(
        &mut self,
        cluster: &Arc<str>,
        kind: &WatchedKind,
        name: &Name,
        version: Version,
        schema: &SchemaState,
    ) {
        let refused = self.good.as_mut().and_then(|good| {
            let digest = good.content.digest;
            Some((digest, good.compile_anew(cluster, version).err()?))
        });
        match (&mut self.newest, refused) {
            (Newest::Good, Some((digest, refused))) => self.refuse(cluster, digest, refused),
            (Newest::Good, None) => {}
            (Newest::Withheld(withheld), _) => {
                if let Err((digest, refused)) = withheld.compile_anew(cluster, version) {
                    self.refuse(cluster, digest, refused);
                }
            }
            (Newest::Faulty(fault), _) => {
                let digest = fault.digest;
                let Some(text) = fault.refused.text.as_deref() else {
                    return;
                };
                match ReceivedObject::of_text(name.clone(), digest, text).read(cluster, version) {
                    Ok(good) => {
                        self.take(cluster, kind, good, schema);
                    }
                    Err(refused) => fault.refused = refused,
                }
            }
        }
    }
}

// === impl Good ===

impl Good {
    /// Stays as it is where it has faults.
    ///
    /// # Errors
    ///
    /// Every fault of the object.
    pub(super) fn compile_anew(&mut self, cluster: &Arc<str>, version: Version) -> Result<(), RefusedObject> {
        if self.object.has_expressions() {
            let received = {
                let content = &self.content;
                ReceivedObject::of_text(content.name.clone(), content.digest, &content.text.get())
            };
            self.object = received.read(cluster, version)?.object;
        }
        Ok(())
    }
}
