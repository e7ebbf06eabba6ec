//! Returns memory that was freed after a burst of requests to the operating system.
//!
//! The allocator (mimalloc) returns memory that has been free for a second, but checks
//! only when a page is freed. In an idle gateway no page is freed, and hundreds of
//! megabytes would stay resident.

use std::hint::black_box;
use std::time::Duration;

use tokio::time::sleep;

/// The time from one look to the next.
const EVERY: Duration = Duration::from_secs(3);

/// More than the allocator puts into a page with others.
const PAGE: usize = 16 << 20;

/// Has the allocator look every few seconds, for ever.
pub(crate) async fn give_back() {
    loop {
        sleep(EVERY).await;
        // Nothing is written to it, so no memory is taken for it.
        drop(black_box(Vec::<u8>::with_capacity(PAGE)));
    }
}
