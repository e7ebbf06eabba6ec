//! Expressions compiled anew, for another version of CEL.

use std::sync::Arc;

use super::schema::SchemaState;
use super::{HeldObject, LatestVersion, Store, StoredKinds};
use crate::cluster::contents::ValidObject;
use crate::cluster::kind::WatchedKind;
use crate::cluster::object::{Name, ReceivedObject, RefusedObject};
use portcullis_cel::Version;

// === impl Store ===

impl Store {
    /// From now on expressions are compiled for `version`, and those of what is held anew. An
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
