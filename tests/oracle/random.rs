//! Numbers that look random and depend on a seed alone.

use std::env;

/// How many cases a test generates, unless `PORTCULLIS_ORACLE_CASES` says it.
pub(crate) fn cases(usual: usize) -> usize {
    number("PORTCULLIS_ORACLE_CASES", usual)
}

fn number<T: std::str::FromStr>(name: &str, usual: T) -> T {
    let Ok(text) = env::var(name) else {
        return usual;
    };
    text.parse()
        .unwrap_or_else(|_| panic!("{name} is a number, not {text}"))
}

/// A generator (splitmix64).
pub(crate) struct Random(u64);

// === impl Random ===

impl Random {
    /// One that starts at the seed of this run; `stream` tells those of
    /// different tests apart.
    pub(crate) fn of(stream: u64) -> Self {
        let seed: u64 = number("PORTCULLIS_ORACLE_SEED", 1);
        Self(seed ^ stream.wrapping_mul(0xA076_1D64_78BD_642F))
    }

    /// Any number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// One of `items`.
    pub(crate) fn pick<'i, T: ?Sized>(&mut self, items: &[&'i T]) -> &'i T {
        items[self.below(items.len())]
    }
}
