//! An allocator that counts allocations, and that takes the same number of instructions on every machine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many bytes are requested from the system at once.
const CHUNK: usize = 1 << 30;

/// A bump allocator that never frees memory: the program runs only briefly.
pub(crate) struct CountingAllocator {
    allocations: AtomicUsize,
    next: AtomicUsize,
    end: AtomicUsize,
}

// === impl CountingAllocator ===

impl CountingAllocator {
    pub(crate) const fn new() -> Self {
        Self {
            allocations: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
        }
    }

    /// The number of allocations so far.
    pub(crate) fn count(&self) -> usize {
        self.allocations.load(Ordering::Relaxed)
    }
}

// SAFETY: each piece is aligned, within a chunk of the system, and handed out once: this
// program has one thread.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.allocations.fetch_add(1, Ordering::Relaxed);
        let begin = self.next.load(Ordering::Relaxed).next_multiple_of(layout.align());
        let end = begin.saturating_add(layout.size());
        if end <= self.end.load(Ordering::Relaxed) {
            self.next.store(end, Ordering::Relaxed);
            return std::ptr::with_exposed_provenance_mut(begin);
        }
        // SAFETY: the chunk's layout has a size.
        let chunk = unsafe { System.alloc(Layout::from_size_align_unchecked(CHUNK, 4096)) };
        if chunk.is_null() || layout.size() > CHUNK {
            return std::ptr::null_mut();
        }
        let begin = chunk.expose_provenance();
        self.next.store(begin + layout.size(), Ordering::Relaxed);
        self.end.store(begin + CHUNK, Ordering::Relaxed);
        chunk
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}
