//! The objects of one kind, in parts: a change makes anew what is given of its part alone.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use openssl::sha::Sha256;

use super::HeldObject;
use crate::cluster::contents::Good;
use crate::cluster::object::Name;
use crate::reload::WatchedPart;

/// How many parts a kind has: of 100,000 objects, one has some 1,600.
const PARTS: u64 = 64;

/// What is held of each object, by name.
#[derive(Default)]
pub(crate) struct HeldObjects {
    /// None until there is an object, so that a kind without any costs nothing.
    parts: Vec<HeldPart>,
    unsaved: UnsavedNames,
}

/// Of which objects another version may hold than is saved.
#[derive(Default)]
pub(crate) enum UnsavedNames {
    /// Of so many that it does not matter which.
    #[default]
    Any,
    /// Of these.
    Some(BTreeSet<Name>),
}

/// Where more than so many objects changed, all are saved.
const FEW: usize = 1_000;

/// The objects whose names have one hash.
#[derive(Default)]
struct HeldPart {
    objects: BTreeMap<Name, Box<HeldObject>>,
    /// What was given of it last, if nothing changed since.
    given: Option<Arc<WatchedPart>>,
}

// === impl HeldObjects ===

impl HeldObjects {
    pub(crate) fn get(&self, name: &Name) -> Option<&HeldObject> {
        Some(self.parts.get(place(name))?.objects.get(name)?)
    }

    /// To be changed; a new one if there is none of this name.
    pub(crate) fn entry(&mut self, name: Name) -> &mut HeldObject {
        if self.parts.is_empty() {
            self.parts
                .resize_with(usize::try_from(PARTS).unwrap_or_default(), HeldPart::default);
        }
        self.unsaved.note(&name);
        #[expect(
            clippy::indexing_slicing,
            reason = "a place is less than PARTS, and there are as many"
        )]
        let part = &mut self.parts[place(&name)];
        part.changing().entry(name).or_default()
    }

    pub(crate) fn remove(&mut self, name: &Name) -> Option<Box<HeldObject>> {
        let gone = self.parts.get_mut(place(name))?.changing().remove(name)?;
        self.unsaved.note(name);
        Some(gone)
    }

    /// Of which objects another version may hold than when this was asked for last.
    pub(crate) fn take_unsaved(&mut self) -> UnsavedNames {
        std::mem::replace(&mut self.unsaved, UnsavedNames::Some(BTreeSet::new()))
    }

    /// To be changed where that changes nothing of what holds.
    pub(crate) fn peek_mut(&mut self, name: &Name) -> Option<&mut HeldObject> {
        let part = self.parts.get_mut(place(name))?;
        Some(part.objects.get_mut(name)?)
    }

    /// Keeps those whose names and marks `is_kept` takes. Whether any went.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&Name, u32) -> bool) -> bool {
        let mut changed = false;
        for part in &mut self.parts {
            if !part.objects.iter().all(|(name, held)| is_kept(name, held.listed)) {
                let unsaved = &mut self.unsaved;
                part.changing().retain(|name, held| {
                    let is_kept = is_kept(name, held.listed);
                    if !is_kept {
                        unsaved.note(name);
                    }
                    is_kept
                });
                changed = true;
            }
        }
        changed
    }

    /// The last version of the object of this name is not taken: what let requests pass goes, and
    /// what restricts holds on. Whether what holds changed.
    pub(crate) fn leave_out(&mut self, name: &Name) -> bool {
        let restricts = |held: &HeldObject| {
            let good = held.good.as_ref();
            good.is_some_and(|good| good.object.restricts())
        };
        if self.get(name).is_none_or(restricts) {
            return false;
        }
        self.remove(name).is_some_and(|gone| gone.good.is_some())
    }

    /// In the order of their names.
    pub(crate) fn by_name(&self) -> impl Iterator<Item = (&Name, &HeldObject)> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all.into_iter()
    }

    /// In an order of its own.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &HeldObject)> {
        let objects = self.parts.iter().flat_map(|part| &part.objects);
        objects.map(|(name, held)| (name, &**held))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &HeldObject> {
        self.iter().map(|(_, held)| held)
    }

    /// To be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Name, &mut HeldObject)> {
        self.unsaved = UnsavedNames::Any;
        let objects = self.parts.iter_mut().flat_map(HeldPart::changing);
        objects.map(|(name, held)| (name, &mut **held))
    }

    /// What was given may be asked for otherwise from now on.
    pub(crate) fn forget_given(&mut self) {
        self.parts.iter_mut().for_each(|part| part.given = None);
    }

    /// What holds of it and `is_wanted`, part by part; parts in which nothing changed are the
    /// very ones that were given last.
    pub(crate) fn give(
        &mut self,
        is_wanted: impl Fn(&Good) -> bool,
    ) -> impl Iterator<Item = Arc<WatchedPart>> {
        let given = self.parts.iter_mut().map(move |part| part.give(&is_wanted));
        given.filter(|part| !part.objects.is_empty())
    }
}

// === impl UnsavedNames ===

impl UnsavedNames {
    fn note(&mut self, name: &Name) {
        if let Self::Some(names) = self {
            names.insert(name.clone());
            if names.len() > FEW {
                *self = Self::Any;
            }
        }
    }
}

// === impl HeldPart ===

impl HeldPart {
    fn changing(&mut self) -> &mut BTreeMap<Name, Box<HeldObject>> {
        self.given = None;
        &mut self.objects
    }

    fn give(&mut self, is_wanted: impl Fn(&Good) -> bool) -> Arc<WatchedPart> {
        let given = self.given.get_or_insert_with(|| {
            let good = self.objects.values().filter_map(|held| held.good.as_ref());
            let (mut digest, mut objects) = (Sha256::new(), Vec::new());
            for good in good.filter(|good| is_wanted(good)) {
                digest.update(&good.content.digest);
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
