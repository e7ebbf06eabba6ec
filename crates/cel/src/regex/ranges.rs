//! Sets of characters.

use super::unicode;

/// The last character.
pub(crate) const LAST: u32 = 0x10_FFFF;

/// Ranges of characters, both ends included. Surrogates may be among them,
/// which no text has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<(u32, u32)>);

// === impl Ranges ===

impl Ranges {
    /// These ranges.
    pub(crate) fn new(ranges: impl IntoIterator<Item = (u32, u32)>) -> Self {
        Self(ranges.into_iter().collect())
    }

    /// How many ranges there are.
    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn as_slice(&self) -> &[(u32, u32)] {
        &self.0
    }

    pub(crate) fn add(&mut self, low: u32, high: u32) {
        if let Some((first, last)) = self.0.last_mut()
            && *first <= low
            && low <= last.saturating_add(1)
        {
            *last = high.max(*last);
            return;
        }
        self.0.push((low, high));
    }

    pub(crate) fn add_all(&mut self, ranges: &[(u32, u32)]) {
        for (low, high) in ranges {
            self.add(*low, *high);
        }
    }

    /// Adds a range and what case folding holds for the same as one of it.
    pub(crate) fn add_folded(&mut self, low: u32, high: u32) {
        self.add(low, high);
        for (character, orbit) in unicode::orbits_within(low, high) {
            for other in orbit {
                if *other != character {
                    self.add(*other, *other);
                }
            }
        }
    }

    /// In order, without overlaps.
    pub(crate) fn tidy(mut self) -> Self {
        self.0.sort_unstable();
        let mut tidy = Self::default();
        tidy.add_all(&self.0);
        tidy
    }

    /// Every other character; of a tidy set.
    pub(crate) fn negated(&self) -> Self {
        let mut negated = Self::default();
        let mut next = 0;
        for (low, high) in &self.0 {
            if next < *low {
                negated.add(next, low - 1);
            }
            next = high + 1;
        }
        if next <= LAST {
            negated.add(next, LAST);
        }
        negated
    }

    pub(crate) fn contains(&self, character: u32) -> bool {
        self.0
            .iter()
            .any(|(low, high)| (*low..=*high).contains(&character))
    }

    /// The ranges as characters that text can have: without surrogates.
    pub(crate) fn characters(&self) -> impl Iterator<Item = (char, char)> + '_ {
        let halves = |&(low, high): &(u32, u32)| {
            let below = (low, high.min(0xD7FF));
            let above = (low.max(0xE000), high);
            [below, above].into_iter().filter(|(low, high)| low <= high)
        };
        let ranges = self.0.iter().flat_map(halves);
        ranges.filter_map(|(low, high)| Some((char::from_u32(low)?, char::from_u32(high)?)))
    }
}
