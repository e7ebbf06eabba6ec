//! Numbered texts, most of which sets share with those that they came from.

use std::sync::Arc;

use super::FastMap;

/// Texts and their numbers: those of the set that all clusters share, in sets of clusters;
/// those of a set that was built from nothing; and those that came with changes since.
#[derive(Debug, Clone, Default)]
pub(super) struct NumberedTexts {
    shared: Arc<FastMap<Box<str>, u32>>,
    base: Arc<FastMap<Box<str>, u32>>,
    added: FastMap<Box<str>, u32>,
}

impl NumberedTexts {
    pub(super) fn get(&self, text: &str) -> Option<u32> {
        // Where no set is shared, most texts are in the base: they are found at once.
        let own = self.base.get(text);
        let found = own.or_else(|| self.shared.get(text));
        found.or_else(|| self.added.get(text)).copied()
    }

    /// The number of `text`; a new one gets what `number` makes of how many there are.
    pub(super) fn intern(&mut self, text: &str, number: impl FnOnce(usize) -> u32) -> u32 {
        self.get(text).unwrap_or_else(|| {
            let id = number(self.shared.len() + self.base.len() + self.added.len());
            self.added.insert(text.into(), id);
            id
        })
    }

    /// From now on what there is is shared by clones.
    pub(super) fn share(&mut self) {
        if self.base.is_empty() {
            self.base = Arc::new(std::mem::take(&mut self.added));
        }
    }

    /// The same, of which a set of one cluster shares what it can.
    pub(super) fn over(&self) -> Self {
        if self.shared.is_empty() {
            Self {
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
