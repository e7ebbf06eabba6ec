//! Texts and their numbers, in a hash table.

use std::hash::{BuildHasher, Hasher as _};

/// A hash table of texts that only grows. Short texts, as most are, stand in their entries as
/// two numbers, so that they are compared without a look elsewhere; long ones stand one after
/// the other.
#[derive(Debug, Clone, Default)]
pub(super) struct TextNumbers {
    /// By hash, a power of two of them, some of which are vacant.
    slots: Vec<TextSlot>,
    entries: Vec<TextEntry>,
    /// The long texts.
    long: Vec<u8>,
}

/// A text that is looked for, and its hash.
#[derive(Clone, Copy)]
pub(super) struct HashedText<'t> {
    text: &'t str,
    ends: [u64; 2],
    hash: u64,
}

/// Where an entry is, and a part of the hash of its text.
#[derive(Debug, Clone, Copy)]
struct TextSlot {
    tag: u32,
    entry: u32,
}

#[derive(Debug, Clone, Copy)]
struct TextEntry {
    /// Of a short text, both ends; of a long one, where it starts.
    ends: [u64; 2],
    length: u32,
    number: u32,
}

/// No entry: no process has memory for so many.
const VACANT: TextSlot = TextSlot {
    tag: 0,
    entry: u32::MAX,
};

/// The slots of the smallest table.
const FEWEST_SLOTS: usize = 8;

/// The most bytes of a short text: two overlapping numbers are all of it.
const MAX_SHORT: usize = 16;

// === impl HashedText ===

impl<'t> HashedText<'t> {
    /// `text`, hashed by `hasher`.
    #[inline]
    pub(super) fn new(text: &'t str, hasher: &impl BuildHasher) -> Self {
        let bytes = text.as_bytes();
        let ends = ends(bytes);
        let hash = if bytes.len() > MAX_SHORT {
            let mut state = hasher.build_hasher();
            state.write(bytes);
            state.finish()
        } else {
            hash_of_short(ends, hasher)
        };
        Self { text, ends, hash }
    }
}

#[inline]
fn hash_of_short(ends: [u64; 2], hasher: &impl BuildHasher) -> u64 {
    let mut state = hasher.build_hasher();
    state.write_u128(u128::from(ends[0]) << 64 | u128::from(ends[1]));
    state.finish()
}

/// The first slot for a hash, and what is kept of it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the two halves of the hash are meant, each by itself"
)]
const fn parts(hash: u64) -> (usize, u32) {
    (hash as usize, (hash >> 32) as u32)
}

/// The first and the last bytes of a short text, which overlap: with its length, all of it.
#[inline]
fn ends(text: &[u8]) -> [u64; 2] {
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        if text.len() > MAX_SHORT {
            return [0, 0];
        }
        return [u64::from_ne_bytes(*first), u64::from_ne_bytes(*last)];
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return [first, last].map(|half| u32::from_ne_bytes(*half).into());
    }
    match *text {
        [one] => [u64::from(one), 0],
        [one, two] => [u64::from(one), u64::from(two)],
        [one, two, three] => [u64::from(one), u64::from(two) << 8 | u64::from(three)],
        _ => [0, 0],
    }
}

// === impl TextNumbers ===

impl TextNumbers {
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of `text`.
    #[inline]
    pub(super) fn get(&self, text: &HashedText<'_>) -> Option<u32> {
        let mask = self.slots.len().checked_sub(1)?;
        let (mut place, tag) = parts(text.hash);
        loop {
            // There is a vacant slot: the search ends.
            let slot = self.slots.get(place & mask)?;
            if slot.tag == tag
                && let Some(entry) = self.entries.get(slot.entry as usize)
                && self.is_of(entry, text)
            {
                return Some(entry.number);
            }
            if slot.entry == VACANT.entry {
                return None;
            }
            place = place.wrapping_add(1);
        }
    }

    #[inline]
    fn is_of(&self, entry: &TextEntry, text: &HashedText<'_>) -> bool {
        let length = entry.length as usize;
        if length != text.text.len() {
            false
        } else if length <= MAX_SHORT {
            entry.ends == text.ends
        } else {
            self.is_of_long(entry, text)
        }
    }

    fn is_of_long(&self, entry: &TextEntry, text: &HashedText<'_>) -> bool {
        let start = usize::try_from(entry.ends[0]).unwrap_or(usize::MAX);
        let rest = self.long.get(start..).unwrap_or_default();
        rest.get(..text.text.len()) == Some(text.text.as_bytes())
    }

    /// Adds a text that is not there. All of a table are hashed by one `hasher`.
    pub(super) fn insert(&mut self, text: &HashedText<'_>, number: u32, hasher: &impl BuildHasher) {
        // At most half are occupied: a text that is not there, as most groups of a user, is
        // known to be missing after few steps.
        if (self.entries.len() + 1) * 2 > self.slots.len() {
            let mut slots = vec![VACANT; (self.slots.len() * 2).max(FEWEST_SLOTS)];
            for (at, entry) in (0..).zip(&self.entries) {
                occupy(&mut slots, entry.hash(hasher), at);
            }
            self.slots = slots;
        }
        let mut ends = text.ends;
        if text.text.len() > MAX_SHORT {
            ends = [self.long.len() as u64, text.hash];
            self.long.extend_from_slice(text.text.as_bytes());
        }
        // No process has memory for so many texts, nor for so long a one.
        let at = u32::try_from(self.entries.len()).unwrap_or(VACANT.entry);
        self.entries.push(TextEntry {
            ends,
            length: u32::try_from(text.text.len()).unwrap_or(u32::MAX),
            number,
        });
        occupy(&mut self.slots, text.hash, at);
    }

    /// Gives back memory that is held for more texts.
    pub(super) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
        self.long.shrink_to_fit();
    }
}

// === impl TextEntry ===

impl TextEntry {
    fn hash(&self, hasher: &impl BuildHasher) -> u64 {
        if self.length as usize > MAX_SHORT {
            self.ends[1]
        } else {
            hash_of_short(self.ends, hasher)
        }
    }
}

fn occupy(slots: &mut [TextSlot], hash: u64, entry: u32) {
    let mask = slots.len() - 1;
    let (mut place, tag) = parts(hash);
    while let Some(slot) = slots.get_mut(place & mask) {
        if slot.entry == VACANT.entry {
            *slot = TextSlot { tag, entry };
            return;
        }
        place = place.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives few hashes.
    #[derive(Clone, Copy, Default)]
    struct Poor(u64);

    impl BuildHasher for Poor {
        type Hasher = Self;

        fn build_hasher(&self) -> Self {
            *self
        }
    }

    impl std::hash::Hasher for Poor {
        fn write(&mut self, bytes: &[u8]) {
            self.0 = bytes.iter().fold(0, |sum, &byte| sum + u64::from(byte)) % 3;
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }

    fn check(texts: &[String], hasher: &impl BuildHasher) {
        let mut table = TextNumbers::default();
        assert!(table.is_empty() && table.get(&HashedText::new("a", hasher)).is_none());
        for (number, text) in (0..).zip(texts) {
            let text = HashedText::new(text, hasher);
            assert_eq!(table.get(&text), None, "{}", text.text);
            table.insert(&text, number, hasher);
        }
        table.shrink();
        for (number, text) in (0..).zip(texts) {
            assert_eq!(table.get(&HashedText::new(text, hasher)), Some(number), "{text}");
        }
        assert_eq!(table.len(), texts.len());
    }

    #[test]
    fn each_text_has_its_own_number_whatever_the_hash() {
        let mut texts: Vec<String> = (0..600)
            .map(|at: usize| "é".repeat(at % 23) + &at.to_string())
            .collect();
        // They differ in length alone, or in one byte.
        for length in 0..40 {
            let text = "x".repeat(length);
            for place in 0..length {
                let mut other = text.clone();
                other.replace_range(place..=place, "y");
                texts.push(other);
            }
            texts.push(text);
        }
        check(&texts, &Poor::default());
        check(&texts, &foldhash::fast::RandomState::default());
    }
}
