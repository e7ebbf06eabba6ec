//! What patches may take.

use super::Error;
use crate::json::tree::Extent;

/// The most bytes that the `copy` operations of one patch may add, as the API server's
/// `JSONPatchMaxCopyBytes`.
pub const MAX_COPIED: usize = 3 << 20;

/// The most memory, in bytes, that patches may take for notes of what they change.
const MAX_NOTES: usize = 32 << 20;

/// The most notes that patches may shift and copy.
const MAX_SHIFTED: usize = 100_000_000;

/// What one note of a change takes, in bytes, with the map or list that it opens.
const NOTE: usize = 256;

/// What the patches to one object may still take, all of them together.
#[derive(Debug, Clone)]
pub struct PatchBudget {
    copied: usize,
    notes: usize,
    shifted: usize,
}

// === impl PatchBudget ===

impl PatchBudget {
    /// One of which nothing was taken yet. `copy` operations may add [`MAX_COPIED`] bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            copied: MAX_COPIED,
            notes: MAX_NOTES,
            shifted: MAX_SHIFTED,
        }
    }

    /// Takes the copy of a value.
    pub(crate) fn copy(&mut self, extent: Extent) -> Result<(), Error> {
        self.note(extent.notes)?;
        self.copied = left(self.copied, extent.bytes, "copy more than 3 MiB")?;
        Ok(())
    }

    /// Takes so many notes of changes.
    pub(crate) fn note(&mut self, notes: usize) -> Result<(), Error> {
        self.notes = left(self.notes, notes.saturating_mul(NOTE), "change so much")?;
        Ok(())
    }

    /// Takes the work of so many notes.
    pub(crate) fn shift(&mut self, notes: usize) -> Result<(), Error> {
        self.shifted = left(self.shifted, notes, "shift so many items")?;
        Ok(())
    }
}

impl Default for PatchBudget {
    fn default() -> Self {
        Self::new()
    }
}

fn left(of: usize, taken: usize, what: &'static str) -> Result<usize, Error> {
    of.checked_sub(taken).ok_or(Error::TooLarge { what })
}
