//! Requests by their selectors.

use std::sync::Arc;

use crate::authorization::matching::Narrowness;
use crate::engine::Selectors;

/// Requests by their selectors: those at least as narrow as each of some, and as none of others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectorSet {
    /// At least as narrow as each of these.
    pub within: Vec<Arc<Selectors<'static>>>,
    /// Not as narrow as any of these.
    pub not_within: Vec<Arc<Selectors<'static>>>,
}

// === impl SelectorSet ===

impl SelectorSet {
    pub(crate) fn of(selectors: &Arc<Selectors<'static>>, is_within: bool) -> Self {
        let (mut within, mut not_within) = (Vec::new(), Vec::new());
        let list = if is_within { &mut within } else { &mut not_within };
        list.push(Arc::clone(selectors));
        Self { within, not_within }
    }

    pub(crate) fn literals(&self) -> impl Iterator<Item = (&Arc<Selectors<'static>>, bool)> {
        let within = self.within.iter().map(|selectors| (selectors, true));
        within.chain(self.not_within.iter().map(|selectors| (selectors, false)))
    }

    /// The widest request that is within all: what it does not imply, others need not either.
    pub(crate) fn widest(&self) -> Selectors<'static> {
        let mut widest = Selectors::default();
        for selectors in &self.within {
            widest.field.extend(selectors.field.iter().cloned());
            widest.label.extend(selectors.label.iter().cloned());
        }
        widest
    }

    /// `None` where no selectors are in both.
    pub(crate) fn intersection(&self, other: &Self) -> Option<Self> {
        if other.within.is_empty() && other.not_within.is_empty() {
            return Some(self.clone());
        }
        let mut both = self.clone();
        for (selectors, is_within) in other.literals() {
            let list = if is_within {
                &mut both.within
            } else {
                &mut both.not_within
            };
            if !list.contains(selectors) {
                list.push(Arc::clone(selectors));
            }
        }
        let widest = both.widest();
        let narrowness = Narrowness::new(&widest);
        let is_possible = both.within.iter().all(|selectors| narrowness.implies(selectors))
            && !both
                .not_within
                .iter()
                .any(|selectors| narrowness.implies(selectors));
        is_possible.then_some(both)
    }

    /// Whether `other`, which is possible, surely holds nothing else.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        if self.within.is_empty() && self.not_within.is_empty() {
            return true;
        }
        let widest = other.widest();
        let narrowness = Narrowness::new(&widest);
        let is_not = |selectors: &Arc<Selectors<'static>>| {
            // What is as narrow as this is as narrow as one that the other does not hold.
            let narrowness = Narrowness::new(selectors);
            other
                .not_within
                .iter()
                .any(|not| not == selectors || narrowness.implies(not))
        };
        self.within.iter().all(|selectors| narrowness.implies(selectors))
            && self.not_within.iter().all(is_not)
    }
}
