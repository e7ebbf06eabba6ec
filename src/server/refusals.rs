//! Rate-limited logging of failed authentications.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::authentication::Refusal;

/// At most one line in this time: an unauthenticated client must not fill the log, nor have
/// answers wait for it.
const EVERY: Duration = Duration::from_secs(1);

/// Writes some refusals and counts the others.
pub(crate) struct Refusals {
    start: Instant,
    /// When the next one is written, in milliseconds from the start.
    next: AtomicU64,
    unwritten: AtomicU64,
}

// === impl Refusals ===

impl Refusals {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            next: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
        }
    }

    /// Writes why `peer` was refused, unless another was written just now.
    pub(crate) fn log(&self, refusal: &Refusal, peer: SocketAddr) {
        match self.due(self.start.elapsed()) {
            Some(unwritten) => {
                tracing::warn!(%refusal, %peer, unwritten, "authentication failed");
            }
            None => tracing::debug!(%refusal, %peer, "authentication failed"),
        }
    }

    /// Whether it is time to write, and then how many were not since the last time.
    fn due(&self, now: Duration) -> Option<u64> {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let next = self.next.load(Ordering::Relaxed);
        let due = milliseconds(now) >= next
            && self
                .next
                .compare_exchange(
                    next,
                    milliseconds(now + EVERY),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok();
        if due {
            return Some(self.unwritten.swap(0, Ordering::Relaxed));
        }
        self.unwritten.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_written_a_second_and_tells_of_the_others() {
        let refusals = Refusals::new();
        let at = Duration::from_millis;
        let due: Vec<_> = [0, 1, 999, 1000, 1500, 3000]
            .map(|time| refusals.due(at(time)))
            .into();
        assert_eq!(due, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
