//! How many calls one webhook has at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit of calls at once. Clones count together.
#[derive(Debug, Clone)]
pub(super) struct InFlight {
    limit: usize,
    count: Arc<AtomicUsize>,
}

/// A call that counts as long as this lives.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

// === impl InFlight ===

impl InFlight {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            count: Arc::default(),
        }
    }

    /// The same calls under another limit.
    pub(super) fn with_limit(&self, limit: usize) -> Self {
        Self {
            limit,
            count: Arc::clone(&self.count),
        }
    }

    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    /// A place for one call more, unless there are enough.
    pub(super) fn enter(&self) -> Option<Place> {
        let more = |count: usize| (count < self.limit).then_some(count + 1);
        self.count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()
            .map(|_| Place(Arc::clone(&self.count)))
    }
}

// === impl Place ===

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_over_the_limit_is_turned_away_until_one_ends() {
        let calls = InFlight::new(2);
        let first = calls.enter().unwrap();
        let _second = calls.enter().unwrap();
        assert!(calls.enter().is_none());
        let _third = calls.with_limit(3).enter().unwrap();
        assert!(calls.enter().is_none(), "they count together");
        drop(first);
        assert!(calls.enter().is_none(), "two are left of two");
        assert!(calls.with_limit(3).enter().is_some());
    }
}
