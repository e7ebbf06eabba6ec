//! The objects of one kind, in parts: a change makes anew what is given of its part alone.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use openssl::sha::Sha256;

use super::HeldObject;
use crate::cluster::object::{Good, Name};
use crate::reload::WatchedPart;

/// How many parts a kind has: of 100,000 objects, one has some 1,600.
const PARTS: u64 = 64;

/// What is held of each object, by name.
#[derive(Default)]
pub(super) struct HeldObjects {
    /// None until there is an object, so that a kind without any costs nothing.
    parts: Vec<HeldPart>,
}

/// The objects whose names have one hash.
#[derive(Default)]
struct HeldPart {
    objects: BTreeMap<Name, HeldObject>,
    /// What was given of it last, if nothing changed since.
    given: Option<Arc<WatchedPart>>,
}

// === impl HeldObjects ===

impl HeldObjects {
    /// To be changed.
    pub(super) fn get_mut(&mut self, name: &Name) -> Option<&mut HeldObject> {
        self.parts.get_mut(place(name))?.changing().get_mut(name)
    }

    /// To be changed; a new one if there is none of this name.
    pub(super) fn entry(&mut self, name: Name) -> &mut HeldObject {
        if self.parts.is_empty() {
            self.parts
                .resize_with(usize::try_from(PARTS).unwrap_or_default(), HeldPart::default);
        }
        #[expect(
            clippy::indexing_slicing,
            reason = "a place is less than PARTS, and there are as many"
        )]
        let part = &mut self.parts[place(&name)];
        part.changing().entry(name).or_default()
    }

    pub(super) fn remove(&mut self, name: &Name) -> Option<HeldObject> {
        self.parts.get_mut(place(name))?.changing().remove(name)
    }

    /// Keeps those whose names `is_kept` names. Whether any went.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&Name) -> bool) -> bool {
        let mut changed = false;
        for part in &mut self.parts {
            if !part.objects.keys().all(&is_kept) {
                part.changing().retain(|name, _| is_kept(name));
                changed = true;
            }
        }
        changed
    }

    /// In the order of their names.
    pub(super) fn by_name(&self) -> impl Iterator<Item = (&Name, &HeldObject)> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all.into_iter()
    }

    /// In an order of its own.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Name, &HeldObject)> {
        self.parts.iter().flat_map(|part| &part.objects)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &HeldObject> {
        self.iter().map(|(_, held)| held)
    }

    /// To be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Name, &mut HeldObject)> {
        self.parts.iter_mut().flat_map(HeldPart::changing)
    }

    /// What was given may be asked for otherwise from now on.
    pub(super) fn forget_given(&mut self) {
        self.parts.iter_mut().for_each(|part| part.given = None);
    }

    /// What holds of it and `is_wanted`, part by part; parts in which nothing changed are the
    /// very ones that were given last.
    pub(super) fn give(
        &mut self,
        is_wanted: impl Fn(&Good) -> bool,
    ) -> impl Iterator<Item = Arc<WatchedPart>> {
        let given = self.parts.iter_mut().map(move |part| part.give(&is_wanted));
        given.filter(|part| !part.objects.is_empty())
    }
}

// === impl HeldPart ===

impl HeldPart {
    fn changing(&mut self) -> &mut BTreeMap<Name, HeldObject> {
        self.given = None;
        &mut self.objects
    }

    fn give(&mut self, is_wanted: impl Fn(&Good) -> bool) -> Arc<WatchedPart> {
        let given = self.given.get_or_insert_with(|| {
            let good = self.objects.values().filter_map(|held| held.good.as_ref());
            let (mut digest, mut objects) = (Sha256::new(), Vec::new());
            for good in good.filter(|good| is_wanted(good)) {
                digest.update(&good.digest);
                objects.push(Arc::clone(&good.object));
            }
            Arc::new(WatchedPart {
                objects,
                digest: digest.finish(),
            })
        });
        Arc::clone(given)
    }
}

fn place(name: &Name) -> usize {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    usize::try_from(hasher.finish() % PARTS).unwrap_or_default()
}
