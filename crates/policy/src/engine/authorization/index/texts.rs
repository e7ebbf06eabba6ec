//! Numbered texts, most of which sets share with those that they came from.

use std::sync::Arc;

use foldhash::fast::RandomState;

use super::text_numbers::{HashedText, TextNumbers};

/// Texts and their numbers: those of the set that all clusters share, in sets of clusters;
/// those of a set that was built from nothing; and those that came with changes since.
///
/// All three have the same hashes, so that a text is hashed once wherever it is.
#[derive(Debug, Clone, Default)]
pub(super) struct NumberedTexts {
    hasher: RandomState,
    shared: Arc<TextNumbers>,
    base: Arc<TextNumbers>,
    added: TextNumbers,
}

impl NumberedTexts {
    #[inline]
    pub(super) fn get(&self, text: &str) -> Option<u32> {
        self.find(&HashedText::new(text, &self.hasher))
    }

    #[inline]
    fn find(&self, text: &HashedText<'_>) -> Option<u32> {
        // Where no set is shared, most texts are in the base: they are found at once.
        let own = self.base.get(text);
        if own.is_some() || self.shared.is_empty() && self.added.is_empty() {
            return own;
        }
        self.shared.get(text).or_else(|| self.added.get(text))
    }

    /// The number of `text`; a new one gets that which `number` gives.
    pub(super) fn intern(&mut self, text: &str, number: impl FnOnce() -> u32) -> u32 {
        let text = HashedText::new(text, &self.hasher);
        self.find(&text).unwrap_or_else(|| {
            let id = number();
            self.added.insert(&text, id, &self.hasher);
            id
        })
    }

    /// From now on what there is is shared by clones.
    pub(super) fn share(&mut self) {
        if self.base.is_empty() {
            let mut base = std::mem::take(&mut self.added);
            base.shrink();
            self.base = Arc::new(base);
        }
    }

    /// The same, of which a set of one cluster shares what it can.
    pub(super) fn over(&self) -> Self {
        if self.shared.is_empty() {
            Self {
                hasher: self.hasher.clone(),
                shared: Arc::clone(&self.base),
                base: Arc::default(),
                added: self.added.clone(),
            }
        } else {
            self.clone()
        }
    }

    /// How many came since.
    pub(super) fn added(&self) -> usize {
        self.added.len()
    }
}
