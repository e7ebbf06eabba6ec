//! Memory that a burst of requests has freed goes back to the system.
//!
//! The allocator (mimalloc) gives back what was free for a second, but only
//! looks for it when a page of memory is freed. In a gateway that has nothing to
//! do none is, and hundreds of megabytes stay resident.

use std::hint::black_box;
use std::time::Duration;

use tokio::time::sleep;

/// The time from one look to the next.
const EVERY: Duration = Duration::from_secs(3);

/// More than the allocator puts into a page with others.
const PAGE: usize = 16 << 20;

/// Has the allocator look every few seconds, for ever.
pub(super) async fn give_back() {
    loop {
        sleep(EVERY).await;
        // Nothing is written to it, so no memory is taken for it.
        drop(black_box(Vec::<u8>::with_capacity(PAGE)));
    }
}
