//! Numbers for strings, so that a string of a request is hashed once, however many rules contain
//! it.
//!
//! Hashes have a random seed, so that no user can choose names that collide.

use std::collections::HashMap;

/// A map with a fast hash.
pub(crate) type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Strings and their numbers. The caller keeps the count, which several interners may share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interner {
    texts: FastMap<Box<str>, u32>,
    /// The number of the empty string, which most requests have in some field. It is not in the
    /// map, because comparing it would cost more than everything else: `memcmp` of zero bytes at a
    /// dangling address is slow on processors with AVX-512.
    empty: Option<u32>,
}

/// Prefixes and their numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct PrefixInterner {
    prefixes: Interner,
    /// The lengths of the prefixes, ascending and without duplicates.
    lengths: Vec<usize>,
}

// === impl Interner ===

impl Interner {
    /// The number of `text`. If it is new, its number is `count`, which is then incremented.
    pub(crate) fn intern(&mut self, text: &str, count: &mut u32) -> u32 {
        if let Some(number) = self.get(text) {
            return number;
        }
        let number = *count;
        // No process has memory for 2^32 strings.
        *count = count.saturating_add(1);
        if text.is_empty() {
            self.empty = Some(number);
        } else {
            self.texts.insert(text.into(), number);
        }
        number
    }

    #[inline]
    pub(crate) fn get(&self, text: &str) -> Option<u32> {
        if text.is_empty() {
            return self.empty;
        }
        self.texts.get(text).copied()
    }
}

// === impl PrefixInterner ===

impl PrefixInterner {
    /// The number of `prefix`. If it is new, its number is `count`, which is then incremented.
    pub(crate) fn intern(&mut self, prefix: &str, count: &mut u32) -> u32 {
        if let Err(place) = self.lengths.binary_search(&prefix.len()) {
            self.lengths.insert(place, prefix.len());
        }
        self.prefixes.intern(prefix, count)
    }

    /// The number of each prefix of `text`, with one lookup for each length.
    pub(crate) fn prefixes_of<'t>(&'t self, text: &'t str) -> impl Iterator<Item = u32> + 't {
        let lengths = self.lengths.iter().take_while(|&&length| length <= text.len());
        // No prefix ends within a character.
        lengths.filter_map(|&length| self.prefixes.get(text.get(..length)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_numbered_once_and_prefixes_apart() {
        let (mut texts, mut prefixes, mut count) = (Interner::default(), PrefixInterner::default(), 0);
        let pods = texts.intern("pods", &mut count);
        assert_eq!(
            (texts.intern("pods", &mut count), texts.get("pods")),
            (pods, Some(pods))
        );
        assert_eq!((texts.get("nodes"), texts.get("")), (None, None));
        let [all, team] = ["", "team-"].map(|prefix| prefixes.intern(prefix, &mut count));
        assert_eq!([pods, all, team], [0, 1, 2]);
        let found = |text: &str| prefixes.prefixes_of(text).collect::<Vec<_>>();
        assert_eq!(found("team-a"), [all, team]);
        assert_eq!(found("team-"), [all, team]);
        assert_eq!(found("tea"), [all]);
        assert_eq!(found("teäm-a"), [all]);
    }
}
