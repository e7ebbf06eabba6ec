//! The bindings of a set, in the order in which they decide.
//!
//! ```text
//! place    1<<s     2<<s  (2<<s)+1  (2<<s)+2     3<<s
//! base       a        b       |         |          e        shared by the sets that came of it
//! added                       c         d
//! ```
//!
//! A place is a number that ascends in that order. The bindings of a set that is built from
//! nothing have places with a gap between each two; a changed set puts those that came into
//! gaps and leaves out those that went. So nothing else has to be numbered anew.

use std::sync::Arc;

use super::Binding;

/// The most bits of a gap.
const MOST_BITS: u32 = 12;

/// The bindings of a set.
#[derive(Debug, Clone)]
pub(super) struct BindingList {
    base: Arc<Vec<Arc<Binding>>>,
    places: BindingPlaces,
    /// The places in the base of those that are not in the set any more, ascending.
    removed: Vec<u32>,
    /// Those that are in no base, ascending.
    added: Vec<(u32, Arc<Binding>)>,
}

/// How places follow from ordinals.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BindingPlaces {
    /// The bits of a gap.
    bits: u32,
}

// === impl BindingList ===

impl BindingList {
    /// The list of `bindings` alone.
    pub(super) fn new(mut bindings: Vec<Arc<Binding>>) -> Self {
        bindings.sort_by(|one, other| key(one).cmp(&key(other)));
        Self {
            places: BindingPlaces::of(bindings.len()),
            base: Arc::new(bindings),
            removed: Vec::new(),
            added: Vec::new(),
        }
    }

    /// This list without `removed` and with `added`. `None` where so much changed since it was
    /// built that it is better built again, or where one of `removed` is not in it.
    pub(super) fn changed(&self, removed: &[Arc<Binding>], added: &[Arc<Binding>]) -> Option<Self> {
        let mut gone = self.removed.clone();
        let mut come: Vec<Arc<Binding>> = self
            .added
            .iter()
            .map(|(_, binding)| Arc::clone(binding))
            .collect();
        for binding in removed {
            match come.iter().position(|other| Arc::ptr_eq(other, binding)) {
                Some(place) => drop(come.swap_remove(place)),
                None => gone.push(self.place_in_base(binding)?),
            }
        }
        come.extend(added.iter().map(Arc::clone));
        if come.len() + gone.len() > self.places.most_changes(self.base.len()) {
            return None;
        }
        gone.sort_unstable();
        come.sort_by(|one, other| key(one).cmp(&key(other)));
        let mut last = 0;
        let place = |binding: Arc<Binding>| {
            let before = self.base.partition_point(|other| key(other) < key(&binding));
            last = self
                .places
                .of_base(before)
                .wrapping_sub(self.places.gap())
                .max(last)
                + 1;
            (last, binding)
        };
        Some(Self {
            base: Arc::clone(&self.base),
            places: self.places,
            removed: gone,
            added: come.into_iter().map(place).collect(),
        })
    }

    fn place_in_base(&self, binding: &Arc<Binding>) -> Option<u32> {
        let first = self.base.partition_point(|other| key(other) < key(binding));
        let rest = self.base.get(first..)?;
        let offset = rest
            .iter()
            .position(|other| Arc::ptr_eq(other, binding) || key(other) > key(binding))?;
        let found = rest.get(offset).is_some_and(|other| Arc::ptr_eq(other, binding));
        let place = found.then(|| self.places.of_base(first + offset))?;
        // What is gone cannot go again.
        self.removed.binary_search(&place).is_err().then_some(place)
    }

    /// The binding at `place`.
    pub(super) fn get(&self, place: u32) -> Option<&Binding> {
        match self.places.ordinal(place) {
            Some(ordinal) => self.base.get(ordinal).map(AsRef::as_ref),
            None => {
                let at = self
                    .added
                    .binary_search_by_key(&place, |(place, _)| *place)
                    .ok()?;
                self.added.get(at).map(|(_, binding)| &**binding)
            }
        }
    }

    /// All of them, in order, each with its place.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Binding)> {
        let base = (0..)
            .zip(self.base.iter())
            .map(|(ordinal, binding)| (self.places.of_base(ordinal), binding));
        let mut base = base
            .filter(|(place, _)| self.removed.binary_search(place).is_err())
            .peekable();
        let mut added = self
            .added
            .iter()
            .map(|(place, binding)| (*place, binding))
            .peekable();
        std::iter::from_fn(move || {
            let next = added.peek().map_or(u32::MAX, |(place, _)| *place);
            base.next_if(|(place, _)| *place < next).or_else(|| added.next())
        })
        .map(|(place, binding)| (place, &**binding))
    }

    pub(super) fn len(&self) -> usize {
        self.base.len() - self.removed.len() + self.added.len()
    }

    pub(super) const fn places(&self) -> BindingPlaces {
        self.places
    }

    /// The places and bindings that went since the list was built.
    pub(super) fn removed(&self) -> impl Iterator<Item = (u32, &Binding)> {
        self.removed
            .iter()
            .filter_map(|&place| Some((place, self.get(place)?)))
    }

    /// Those that came.
    pub(super) fn added(&self) -> impl Iterator<Item = (u32, &Binding)> {
        self.added.iter().map(|(place, binding)| (*place, &**binding))
    }
}

/// ClusterRoleBindings come first: they have no namespace.
fn key(binding: &Binding) -> (&str, &str) {
    (&binding.namespace, &binding.name)
}

// === impl BindingPlaces ===

impl BindingPlaces {
    fn of(count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX).saturating_add(2);
        Self {
            bits: (u32::MAX / count).checked_ilog2().unwrap_or(0).min(MOST_BITS),
        }
    }

    const fn gap(self) -> u32 {
        1 << self.bits
    }

    /// How many may come or go before the list is built again: less than fit into one gap, and
    /// little beside what is shared.
    fn most_changes(self, base: usize) -> usize {
        let fit = (1_usize << self.bits) - 1;
        fit.min(64 + base / 256)
    }

    pub(super) fn of_base(self, ordinal: usize) -> u32 {
        // A list of 2^32 bindings fits into no memory.
        u32::try_from(ordinal + 1).unwrap_or(u32::MAX) << self.bits
    }

    /// The ordinal in the base; `None` of a place in a gap.
    pub(super) const fn ordinal(self, place: u32) -> Option<usize> {
        let ordinal = place >> self.bits;
        if ordinal << self.bits == place {
            Some((ordinal as usize).wrapping_sub(1))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::authorization::{RoleKind, RoleRef};

    fn mk(namespace: &str, name: &str) -> Arc<Binding> {
        Arc::new(Binding {
            namespace: namespace.into(),
            name: name.into(),
            role: RoleRef {
                kind: RoleKind::ClusterRole,
                name: "view".into(),
            },
            subjects: Vec::new(),
        })
    }

    fn names(list: &BindingList) -> String {
        let places: Vec<u32> = list.iter().map(|(place, _)| place).collect();
        assert!(places.is_sorted_by(|one, other| one < other), "{places:?}");
        for (place, binding) in list.iter() {
            assert!(std::ptr::eq(list.get(place).unwrap(), binding));
        }
        assert_eq!(list.len(), places.len());
        list.iter()
            .map(|(_, binding)| binding.name.as_str())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn what_comes_and_goes_is_in_its_place() {
        let [a, b, c] = ["a", "b", "c"].map(|name| mk("n", name));
        let list = BindingList::new(vec![Arc::clone(&c), Arc::clone(&a)]);
        assert_eq!(names(&list), "a c");
        let cluster = mk("", "z");
        let list = list
            .changed(&[], &[Arc::clone(&b), Arc::clone(&cluster), mk("n", "d")])
            .unwrap();
        assert_eq!(names(&list), "z a b c d");
        let list = list
            .changed(
                &[b, Arc::clone(&a)],
                &[mk("n", "bb"), mk("n", "ba"), mk("o", "a")],
            )
            .unwrap();
        assert_eq!(names(&list), "z ba bb c d a");
        assert_eq!(list.removed().count(), 1);
        // It is there again, as another object.
        let list = list
            .changed(&[cluster, c], &[mk("n", "a"), mk("n", "c")])
            .unwrap();
        assert_eq!(names(&list), "a ba bb c d a");
        assert!(list.changed(&[a], &[]).is_none(), "it is gone already");
        assert!(list.changed(&[mk("n", "bb")], &[]).is_none(), "another object");
    }

    #[test]
    fn after_many_changes_it_is_built_again() {
        let list = BindingList::new((0..100).map(|at| mk("n", &format!("{at:03}"))).collect());
        let some = |count: usize| -> Vec<_> { (0..count).map(|at| mk("n", &format!("050-{at}"))).collect() };
        assert_eq!(
            names(&list.changed(&[], &some(64)).unwrap()).split(' ').count(),
            164
        );
        assert!(list.changed(&[], &some(65)).is_none());
    }
}
