//! How much memory the objects of sources may take.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::validated::Content;
use crate::document::DocumentSize;
use crate::field::{Fault, FaultKind, Place};

/// What each object takes, whatever it says.
const OBJECT_BYTES: usize = 1_000;

/// What some sources may take together, which are read on any number of threads.
#[derive(Debug)]
pub struct MemoryBudget {
    bytes: usize,
    left: AtomicUsize,
}

/// What bounds the reading of a source.
#[derive(Debug, Clone, Copy)]
pub struct SourceLimits<'l> {
    /// What its objects may take, as long as they hold.
    pub memory: &'l MemoryBudget,
    /// Has the one long document that is read at a time, of those that need much memory for that.
    pub long_documents: &'l Mutex<()>,
}

// === impl MemoryBudget ===

impl MemoryBudget {
    /// A budget of so many bytes.
    #[must_use]
    pub const fn new(bytes: usize) -> Self {
        Self {
            bytes,
            left: AtomicUsize::new(bytes),
        }
    }

    /// What is not taken.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    /// Takes so many bytes. Where there are fewer, nothing is left: whether all of some objects fit
    /// does not depend on their order.
    #[must_use]
    pub fn take(&self, bytes: usize) -> bool {
        let take = |left: usize| Some(left.saturating_sub(bytes));
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok_and(|left| left >= bytes)
    }

    /// The fault of what does not fit, at `place`.
    pub(crate) fn fault(&self, place: Place, cluster: Option<&str>) -> Fault {
        let whose = cluster.map_or_else(String::new, |cluster| format!(" of the cluster `{cluster}`"));
        let message = format!(
            "with this, the manifests{whose} take more memory than the {} bytes that they may: remove what \
             is not needed, or let the process have more memory",
            self.bytes
        );
        Fault::error(place, FaultKind::TooLong, message)
    }
}

/// How many bytes of memory an object takes at most, besides what its expressions are compiled to.
/// The figures are upper bounds of what was measured, with what is indexed of each object.
pub(crate) fn kept_bytes(content: &Content, size: DocumentSize) -> usize {
    let (of_byte, of_value) = match content {
        // Rules of large roles are indexed by their words.
        Content::Role(_) if size.values > 64 => (4, 400),
        Content::Role(_) | Content::Binding(_) => (3, 60),
        Content::Namespace(_) | Content::Parameter => (3, 60),
        // Kept as they are written, too.
        Content::Policy(_) | Content::Exception(_) | Content::Admission(_) => (6, 300),
    };
    OBJECT_BYTES + of_byte * size.text_bytes + of_value * size.values
}
