//! Random choices that a seed repeats.

/// A generator (SplitMix64): the same seed, the same choices.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Another generator, whose choices take none of this one's.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True once in `often` times.
    pub(crate) fn one_in(&mut self, often: usize) -> bool {
        self.below(often) == 0
    }

    /// One of these.
    pub(crate) fn pick<'c, C>(&mut self, choices: &'c [C]) -> &'c C {
        &choices[self.below(choices.len())]
    }

    /// From `least` to `most` of these, some perhaps twice.
    pub(crate) fn some<C: Clone>(&mut self, choices: &[C], least: usize, most: usize) -> Vec<C> {
        let count = least + self.below(most - least + 1);
        (0..count).map(|_| self.pick(choices).clone()).collect()
    }
}
