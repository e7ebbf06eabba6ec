//! Interned texts: strings as numbers.

use crate::engine::authorization::rbac::PathPattern;

use super::Ids;
use super::texts::NumberedTexts;

/// The texts that rules contain, numbered.
#[derive(Debug, Clone)]
pub(crate) struct Symbols {
    exact: NumberedTexts,
    /// Of namespaces and of paths, apart: a request has one or the other.
    namespace_prefixes: Prefixes,
    path_prefixes: Prefixes,
    count: u32,
}

/// Texts that stand for everything that begins with them, numbered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prefixes {
    by_text: NumberedTexts,
    /// Each length there is, ascending.
    lengths: Vec<usize>,
}

// === impl Symbols ===

impl Symbols {
    /// The number of `*`.
    pub(super) const STAR: u32 = 0;
    /// The number of the empty text, which most requests have in some field.
    pub(super) const EMPTY: u32 = 1;
    /// The number of a text that no rule contains. No rule has it.
    pub(super) const UNKNOWN: u32 = u32::MAX;

    pub(super) fn intern(&mut self, text: &str) -> u32 {
        let count = &mut self.count;
        self.exact.intern(text, || next_number(count))
    }

    /// The number of every namespace that begins with `prefix`.
    pub(super) fn intern_namespace_prefix(&mut self, prefix: &str) -> u32 {
        let count = &mut self.count;
        self.namespace_prefixes.intern(prefix, || next_number(count))
    }

    /// The number of a path, or of all that begin so: they differ, so that one list holds
    /// both.
    pub(super) fn intern_path(&mut self, pattern: &PathPattern) -> u32 {
        match pattern.prefix() {
            Some(prefix) => {
                let count = &mut self.count;
                self.path_prefixes.intern(prefix, || next_number(count))
            }
            None => self.intern(pattern.text()),
        }
    }

    /// The number of a text; [`Symbols::UNKNOWN`] of one that no rule has.
    #[inline]
    pub(super) fn find(&self, text: &str) -> u32 {
        if text.is_empty() {
            return Self::EMPTY;
        }
        self.exact.get(text).unwrap_or(Self::UNKNOWN)
    }

    /// From now on what there is is shared by clones.
    pub(in crate::engine::authorization) fn share(&mut self) {
        self.exact.share();
        self.namespace_prefixes.share();
        self.path_prefixes.share();
    }

    /// The same, for the set of one cluster over the set that all share.
    pub(in crate::engine::authorization) fn over(&self) -> Self {
        Self {
            exact: self.exact.over(),
            namespace_prefixes: self.namespace_prefixes.over(),
            path_prefixes: self.path_prefixes.over(),
            count: self.count,
        }
    }

    /// How many texts came since.
    pub(in crate::engine::authorization) fn added(&self) -> usize {
        let prefixes = self.namespace_prefixes.added() + self.path_prefixes.added();
        self.exact.added() + prefixes
    }

    /// Adds the numbers of the prefixes of `namespace`.
    pub(super) fn find_namespace_prefixes(&self, namespace: &str, ids: &mut Ids) {
        self.namespace_prefixes.each(namespace, |id| ids.push(id));
    }

    /// Adds the numbers of the prefixes of `path`.
    pub(super) fn find_path_prefixes(&self, path: &str, ids: &mut Ids) {
        self.path_prefixes.each(path, |id| ids.push(id));
    }
}

impl Default for Symbols {
    fn default() -> Self {
        let mut symbols = Self {
            exact: NumberedTexts::default(),
            namespace_prefixes: Prefixes::default(),
            path_prefixes: Prefixes::default(),
            count: 0,
        };
        let (star, empty) = (symbols.intern("*"), symbols.intern(""));
        debug_assert_eq!((star, empty), (Self::STAR, Self::EMPTY));
        symbols
    }
}

// === impl Prefixes ===

impl Prefixes {
    /// The number of `prefix`; a new one gets that which `number` gives.
    pub(super) fn intern(&mut self, prefix: &str, number: impl FnOnce() -> u32) -> u32 {
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

/// The number of the next text.
pub(super) fn next_number(count: &mut u32) -> u32 {
    let id = *count;
    // No process has memory for 2^32 texts.
    *count = count.saturating_add(1);
    id
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
        let (all, team) = (
            symbols.intern_namespace_prefix(""),
            symbols.intern_namespace_prefix("team-"),
        );
        let path = symbols.intern_path(&"team-*".into());
        let found = |text: &str| {
            let mut ids = Ids::default();
            symbols.find_namespace_prefixes(text, &mut ids);
            ids.as_slice().to_vec()
        };
        assert_eq!(found("team-a"), [all, team]);
        assert_eq!(found("team-"), [all, team]);
        assert_eq!(found("tea"), [all]);
        assert_eq!(found("teäm-a"), [all]);
        assert!(all != team && all != pods && path != team);
        assert_eq!(
            (symbols.find(""), symbols.intern("")),
            (Symbols::EMPTY, Symbols::EMPTY)
        );
    }
}
