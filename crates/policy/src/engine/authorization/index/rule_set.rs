//! Which rules of a block: a bit for each.

/// A set of rules of one block, of which only the words that have a bit are kept.
///
/// A set is asked for its summary first: sets whose summaries have no word in common have
/// no rule in common, and most requests are refused by that alone.
#[derive(Debug, Default)]
pub(crate) struct RuleSet {
    /// A bit for each word of the block that has one.
    summary: u64,
    words: Vec<u64>,
}

impl RuleSet {
    /// How many rules a block has at most.
    pub(super) const MAX_RULES: usize = 64 * 64;

    /// Adds a rule; rules must ascend.
    pub(super) fn add(&mut self, rule: usize) {
        debug_assert!(rule < Self::MAX_RULES, "a block has no such rule");
        let (word, bit) = (1 << (rule / 64 % 64), 1 << (rule % 64));
        debug_assert!(self.summary < word << 1 || word == 1 << 63, "rules ascend");
        match self.words.last_mut() {
            Some(last) if self.summary & word != 0 => *last |= bit,
            _ => self.words.push(bit),
        }
        self.summary |= word;
    }

    /// The words in which there is a rule.
    pub(super) const fn summary(&self) -> u64 {
        self.summary
    }

    /// The rules of one word.
    #[inline]
    pub(super) fn word(&self, word: usize) -> u64 {
        let before = (1_u64 << (word % 64)) - 1;
        if self.summary >> (word % 64) & 1 == 0 {
            return 0;
        }
        let place = (self.summary & before).count_ones();
        self.words.get(place as usize).copied().unwrap_or_default()
    }
}

/// The bits that are set, ascending.
pub(super) fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            bit
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_kept_and_listed_in_order() {
        for rules in [
            vec![],
            vec![0],
            vec![0, 1, 63, 64, 200, 511, 4095],
            vec![64, 4032],
            vec![4095],
            (0..RuleSet::MAX_RULES).collect(),
        ] {
            let mut set = RuleSet::default();
            rules.iter().for_each(|&rule| set.add(rule));
            let listed = (0..64).flat_map(|word| ones(set.word(word)).map(move |bit| word * 64 + bit));
            assert_eq!(listed.collect::<Vec<_>>(), rules);
            let words = ones(set.summary()).collect::<Vec<_>>();
            assert!(words.iter().all(|&word| set.word(word) != 0));
            assert_eq!(words.len(), set.words.len());
        }
    }
}
