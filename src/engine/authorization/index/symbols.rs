//! Interned texts: strings as numbers.

use crate::engine::authorization::rbac::PathPattern;

use super::Ids;
use super::texts::NumberedTexts;

/// The texts that rules contain, numbered.
#[derive(Debug, Clone)]
pub(crate) struct Symbols {
    exact: NumberedTexts,
    prefixes: Prefixes,
}

/// Texts that stand for everything that begins with them, numbered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prefixes {
    by_text: NumberedTexts,
    /// Each length there is, ascending.
    lengths: Vec<usize>,
}

/// Set in the numbers of prefixes, so that they differ from those of texts.
const PREFIX: u32 = 1 << 31;

// === impl Symbols ===

impl Symbols {
    /// The number of `*`.
    pub(super) const STAR: u32 = 0;
    /// The number of a text that no rule contains. No rule has it.
    pub(super) const UNKNOWN: u32 = u32::MAX;

    pub(super) fn intern(&mut self, text: &str) -> u32 {
        self.exact.intern(text, numbered)
    }

    /// The number of everything that begins with `prefix`.
    pub(super) fn intern_prefix(&mut self, prefix: &str) -> u32 {
        self.prefixes.intern(prefix, numbered) | PREFIX
    }

    /// The number of a path, or of all that begin so: they differ, so that one list holds
    /// both.
    pub(super) fn intern_path(&mut self, pattern: &PathPattern) -> u32 {
        match pattern.prefix() {
            Some(prefix) => self.intern_prefix(prefix),
            None => self.intern(pattern.text()),
        }
    }

    /// The number of a text; [`Symbols::UNKNOWN`] of one that no rule has.
    pub(super) fn find(&self, text: &str) -> u32 {
        self.exact.get(text).unwrap_or(Self::UNKNOWN)
    }

    /// From now on what there is is shared by clones.
    pub(in crate::engine::authorization) fn share(&mut self) {
        self.exact.share();
        self.prefixes.share();
    }

    /// The same, for the set of one cluster over the set that all share.
    pub(in crate::engine::authorization) fn over(&self) -> Self {
        Self {
            exact: self.exact.over(),
            prefixes: self.prefixes.over(),
        }
    }

    /// How many texts came since.
    pub(in crate::engine::authorization) fn added(&self) -> usize {
        self.exact.added() + self.prefixes.added()
    }

    /// The numbers of the prefixes of `text`.
    pub(super) fn find_prefixes(&self, text: &str) -> Ids {
        let mut ids = Ids::default();
        self.prefixes.each(text, |id| ids.push(id | PREFIX));
        ids
    }
}

impl Default for Symbols {
    fn default() -> Self {
        let mut symbols = Self {
            exact: NumberedTexts::default(),
            prefixes: Prefixes::default(),
        };
        let star = symbols.intern("*");
        debug_assert_eq!(star, Self::STAR);
        symbols
    }
}

// === impl Prefixes ===

impl Prefixes {
    /// The number of `prefix`; a new one gets what `number` makes of how many there are.
    pub(super) fn intern(&mut self, prefix: &str, number: impl FnOnce(usize) -> u32) -> u32 {
        if let Err(place) = self.lengths.binary_search(&prefix.len()) {
            self.lengths.insert(place, prefix.len());
        }
        self.by_text.intern(prefix, number)
    }

    pub(super) fn share(&mut self) {
        self.by_text.share();
    }

    pub(super) fn over(&self) -> Self {
        Self {
            by_text: self.by_text.over(),
            lengths: self.lengths.clone(),
        }
    }

    pub(super) fn added(&self) -> usize {
        self.by_text.added()
    }

    /// Calls `found` with the number of each prefix of `text`: one look-up for
    /// each length there is.
    pub(super) fn each(&self, text: &str, mut found: impl FnMut(u32)) {
        for &length in self.lengths.iter().take_while(|&&length| length <= text.len()) {
            // Within a character there is no prefix.
            if let Some(id) = text.get(..length).and_then(|prefix| self.by_text.get(prefix)) {
                found(id);
            }
        }
    }
}

/// The number of the next of so many texts.
fn numbered(count: usize) -> u32 {
    // No process has memory for 2^31 texts.
    u32::try_from(count).unwrap_or(PREFIX).min(PREFIX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_numbered_once_and_prefixes_apart() {
        let mut symbols = Symbols::default();
        assert_eq!(symbols.intern("*"), Symbols::STAR);
        let pods = symbols.intern("pods");
        assert_eq!((symbols.intern("pods"), symbols.find("pods")), (pods, pods));
        assert_eq!(symbols.find("nodes"), Symbols::UNKNOWN);
        let (all, team) = (symbols.intern_prefix(""), symbols.intern_prefix("team-"));
        let found = |text: &str| symbols.find_prefixes(text).as_slice().to_vec();
        assert_eq!(found("team-a"), [all, team]);
        assert_eq!(found("team-"), [all, team]);
        assert_eq!(found("tea"), [all]);
        assert_eq!(found("teäm-a"), [all]);
        assert!(all != team && all != pods);
    }
}
