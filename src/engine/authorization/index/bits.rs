//! One bit for each rule of a block.

/// Which of [`Bits::COUNT`] rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bits([u64; Bits::WORDS]);

impl Bits {
    const WORDS: usize = 8;
    pub(super) const COUNT: usize = Self::WORDS * 64;
    pub(super) const ALL: Self = Self([u64::MAX; Self::WORDS]);

    #[expect(
        clippy::indexing_slicing,
        reason = "the place is below the number of words; no bit is passed over in silence"
    )]
    pub(super) const fn set(&mut self, bit: usize) {
        self.0[bit / 64 % Self::WORDS] |= 1 << (bit % 64);
    }

    #[expect(clippy::indexing_slicing, reason = "the place is below the number of words")]
    pub(super) const fn has(self, bit: usize) -> bool {
        self.0[bit / 64 % Self::WORDS] >> (bit % 64) & 1 == 1
    }

    #[inline]
    pub(super) fn and(mut self, other: Self) -> Self {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(word, other)| *word &= other);
        self
    }

    #[inline]
    pub(super) fn or(mut self, other: Self) -> Self {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(word, other)| *word |= other);
        self
    }

    #[inline]
    pub(super) fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// The bits that are set, ascending.
    pub(super) fn ones(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(place, mut word)| {
            std::iter::from_fn(move || {
                (word != 0).then(|| {
                    let bit = word.trailing_zeros() as usize;
                    word &= word - 1;
                    place * 64 + bit
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_kept_and_listed_in_order() {
        let mut bits = Bits::default();
        let set = [0, 1, 63, 64, 200, 511];
        set.iter().for_each(|&bit| bits.set(bit));
        assert_eq!(bits.ones().collect::<Vec<_>>(), set);
        assert!(bits.has(200) && !bits.has(201) && bits.not().has(201));
        assert!(bits.and(bits.not()).is_empty());
        assert_eq!(bits.or(bits.not()), Bits::ALL);
    }
}
