//! In which rules of a block each text of one field occurs.

use super::FastMap;
use super::rule_set::RuleSet;

/// In which rules of a block each text occurs. A text that no rule of the block has is in
/// none of its rules: to find nothing here is to know that no rule says so.
#[derive(Debug, Default)]
pub(crate) struct CandidateField {
    /// Rules that fit whatever is asked.
    any: RuleSet,
    sets: Vec<RuleSet>,
    /// The place of the set of each text, by its number; [`ABSENT`] of one that does not occur.
    places: Vec<u32>,
    /// The same, of texts whose numbers are much larger than there are texts: those that came
    /// with changes to a large set.
    scattered: FastMap<u32, u32>,
}

/// What is asked of one field.
#[derive(Clone, Copy)]
pub(crate) enum FieldQuery<'f> {
    /// Nothing: all rules fit.
    All,
    /// Rules that have one of these texts, or fit whatever is asked.
    OneOf(&'f CandidateField, &'f [u32]),
    /// These rules.
    Rules(&'f RuleSet),
}

/// In the place of a set: none.
const ABSENT: u32 = u32::MAX;

/// So much larger than the number of texts may a number be: beyond that it costs memory.
const MOST_SPARSE: usize = 4;
const MOST_SPARE: usize = 1024;

// === impl CandidateField ===

impl CandidateField {
    /// That `rule` fits whatever is asked; rules must ascend.
    pub(super) fn add_any(&mut self, rule: usize) {
        self.any.add(rule);
    }

    /// That the text `id` occurs in `rule`; rules must ascend.
    pub(super) fn add(&mut self, id: u32, rule: usize) {
        let found = self.place(id);
        let place = if found == ABSENT { self.push(id) } else { found };
        if let Some(set) = self.sets.get_mut(place as usize) {
            set.add(rule);
        }
    }

    fn push(&mut self, id: u32) -> u32 {
        let place = u32::try_from(self.sets.len()).unwrap_or(ABSENT);
        self.sets.push(RuleSet::default());
        let at = id as usize;
        if at >= self.places.len() && at <= self.sets.len() * MOST_SPARSE + MOST_SPARE {
            self.places.resize(at + 1, ABSENT);
        }
        match self.places.get_mut(at) {
            Some(slot) => *slot = place,
            None => drop(self.scattered.insert(id, place)),
        }
        place
    }

    #[inline]
    fn place(&self, id: u32) -> u32 {
        let place = self.places.get(id as usize).copied().unwrap_or(ABSENT);
        if place == ABSENT && !self.scattered.is_empty() {
            return self.scattered.get(&id).copied().unwrap_or(ABSENT);
        }
        place
    }

    #[inline]
    fn set(&self, id: u32) -> Option<&RuleSet> {
        self.sets.get(self.place(id) as usize)
    }
}

// === impl FieldQuery ===

impl FieldQuery<'_> {
    /// The words of the block in which there may be a rule.
    #[inline]
    pub(super) fn summary(&self) -> u64 {
        match *self {
            Self::All => u64::MAX,
            Self::Rules(rules) => rules.summary(),
            Self::OneOf(field, ids) => ids
                .iter()
                .filter_map(|&id| field.set(id))
                .fold(field.any.summary(), |all, set| all | set.summary()),
        }
    }

    /// The rules of one word.
    #[inline]
    pub(super) fn word(&self, word: usize) -> u64 {
        match *self {
            Self::All => u64::MAX,
            Self::Rules(rules) => rules.word(word),
            Self::OneOf(field, ids) => ids
                .iter()
                .filter_map(|&id| field.set(id))
                .fold(field.any.word(word), |all, set| all | set.word(word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_whatever_their_numbers() {
        let ids = [900_000, 3, 70, 5_000, u32::MAX - 1, 900_001, 0];
        let mut field = CandidateField::default();
        for (rule, &id) in ids.iter().enumerate() {
            field.add(id, rule);
            field.add(id, rule + 64 * ids.len());
        }
        for (rule, id) in ids.iter().enumerate() {
            let query = FieldQuery::OneOf(&field, std::slice::from_ref(id));
            assert_eq!((query.summary(), query.word(0)), (1 | 1 << 7, 1 << rule), "{id}");
        }
        let none = FieldQuery::OneOf(&field, &[1, 4, 5_001, u32::MAX]);
        assert_eq!((none.summary(), none.word(0)), (0, 0));
        assert!(field.places.len() <= 2048);
        // What was scattered stays so where there is room for it later.
        for id in 0..5_000 {
            field.add(id, 1000);
        }
        let query = FieldQuery::OneOf(&field, &[5_000, 3]);
        assert_eq!(query.word(0), 1 << 3 | 1 << 1);
        field.add_any(1000);
        assert_eq!(FieldQuery::OneOf(&field, &[9_999]).word(15), 1 << 40);
    }
}
