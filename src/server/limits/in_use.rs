//! The amounts in use of one part of a limit, and the rate of its callers.
//!
//! Limits hold exactly, although workers rarely write to a shared counter: each takes a little more
//! than it needs and keeps the rest as its reserve, which counts as held. If an amount does not
//! fit, all reserves are released before it is refused: a refused amount does not fit next to what
//! is in use or what other workers take at that moment.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::telemetry::per_worker::{CacheAligned, PerWorker};

/// The resources that are limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    Requests,
    Bytes,
    /// Bytes of copies.
    Copied,
    /// Bytes of replies that are not written yet, with the overhead of each.
    Replies,
    /// Bytes of memory derived from bodies.
    Derived,
    /// Calls to webhooks.
    Calls,
}

/// An amount of each resource.
#[derive(Debug, Default)]
struct Amounts {
    requests: AtomicUsize,
    bytes: AtomicUsize,
    copied: AtomicUsize,
    replies: AtomicUsize,
    made: AtomicUsize,
    calls: AtomicUsize,
}

/// The amounts in use of one part of a limit.
#[derive(Debug, Default)]
pub(crate) struct InUse {
    /// The amounts held, including reserves.
    held: CacheAligned<Amounts>,
    /// The amount that a worker takes in addition to its need as a reserve.
    reserve_target: CacheAligned<Amounts>,
    reserves: PerWorker<Amounts>,
    pub(crate) rate: CacheAligned<TokenBucket>,
}

/// The interval at the highest rate of callers with a path token: 1,000 requests a second, more
/// than a cluster of thousands of nodes writes.
const REQUEST_INTERVAL: Duration = Duration::from_millis(1);

/// How often reserves are released before an amount is refused: meanwhile another worker may take a
/// new reserve, or may not have released its own yet.
const MAX_ATTEMPTS: usize = 8;

/// The time whose requests may arrive as one burst.
const MAX_BURST_TIME: Duration = Duration::from_secs(2);

/// Limits the rate of requests, with a burst.
#[derive(Debug, Default)]
pub(crate) struct TokenBucket {
    start: OnceLock<Instant>,
    /// The theoretical arrival time of the generic cell rate algorithm, in nanoseconds since
    /// [`MAX_BURST_TIME`] before the start: the earliest time that no request has used.
    free: AtomicU64,
}

// === impl Amounts ===

impl Amounts {
    const fn of(&self, resource: Resource) -> &AtomicUsize {
        match resource {
            Resource::Requests => &self.requests,
            Resource::Bytes => &self.bytes,
            Resource::Copied => &self.copied,
            Resource::Replies => &self.replies,
            Resource::Derived => &self.made,
            Resource::Calls => &self.calls,
        }
    }
}

// === impl InUse ===

impl InUse {
    /// Takes `amount`, unless more than `most` would be held.
    pub(crate) fn take(&self, resource: Resource, amount: usize, most: usize) -> bool {
        self.take_of_reserve(resource, amount, most)
            || (0..MAX_ATTEMPTS).any(|_| {
                self.give_back_reserves(resource);
                self.hold(resource, amount, most)
            })
    }

    /// Takes as much of `amount` as fits into `most`, and returns how much that was.
    pub(crate) fn take_some(&self, resource: Resource, amount: usize, most: usize) -> usize {
        if self.take_of_reserve(resource, amount, most) {
            return amount;
        }
        self.give_back_reserves(resource);
        let fitting = |held: usize| amount.min(most.saturating_sub(held));
        let taken = self
            .held
            .0
            .of(resource)
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
                Some(held + fitting(held))
            });
        taken.map_or(0, fitting)
    }

    /// Takes `amount` from this worker's reserve, or together with a new reserve.
    fn take_of_reserve(&self, resource: Resource, amount: usize, most: usize) -> bool {
        if amount == 0 {
            return true;
        }
        let reserve = self.reserves.own().of(resource);
        let left = |reserve: usize| reserve.checked_sub(amount);
        if self.held.0.of(resource).load(Ordering::Acquire) <= most
            && reserve
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, left)
                .is_ok()
        {
            return true;
        }
        // All reserves together are at most half of the limit.
        let more = most / 2 / self.reserves.len();
        let kept = self.reserve_target.0.of(resource);
        if kept.load(Ordering::Relaxed) != more {
            kept.store(more, Ordering::Relaxed);
        }
        let is_held = amount
            .checked_add(more)
            .is_some_and(|all| self.hold(resource, all, most));
        if is_held {
            reserve.fetch_add(more, Ordering::AcqRel);
        }
        is_held
    }

    pub(crate) fn release(&self, resource: Resource, amount: usize) {
        if amount == 0 {
            return;
        }
        let reserve = self.reserves.own().of(resource);
        let kept = self.reserve_target.0.of(resource).load(Ordering::Relaxed);
        let sum = reserve.fetch_add(amount, Ordering::AcqRel) + amount;
        // Twice the reserve, so that a worker does not alternate between releasing and taking.
        if sum > kept.saturating_mul(2) {
            self.shrink_reserve(resource, reserve, kept);
        }
    }

    /// The amount in use, without reserves, at some moment during this call.
    pub(crate) fn in_use(&self, resource: Resource) -> usize {
        self.give_back_reserves(resource);
        self.held(resource)
    }

    /// The amount held, including reserves, which never exceeds the limit.
    pub(crate) fn held(&self, resource: Resource) -> usize {
        self.held.0.of(resource).load(Ordering::Acquire)
    }

    fn give_back_reserves(&self, resource: Resource) {
        for reserve in self.reserves.all() {
            self.shrink_reserve(resource, reserve.of(resource), 0);
        }
    }

    /// Releases the part of a reserve that exceeds `kept`.
    fn shrink_reserve(&self, resource: Resource, reserve: &AtomicUsize, kept: usize) {
        let shrunk = |reserve: usize| (reserve > kept).then_some(kept);
        if let Ok(before) = reserve.fetch_update(Ordering::AcqRel, Ordering::Acquire, shrunk) {
            self.held
                .0
                .of(resource)
                .fetch_sub(before - kept, Ordering::AcqRel);
        }
    }

    /// Adds `amount` to the amount held, unless the sum exceeds `most`.
    fn hold(&self, resource: Resource, amount: usize, most: usize) -> bool {
        let fits = |held: usize| held.checked_add(amount).filter(|sum| *sum <= most);
        amount == 0
            || self
                .held
                .0
                .of(resource)
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, fits)
                .is_ok()
    }
}

// === impl TokenBucket ===

impl TokenBucket {
    /// Takes the time of one request that arrived `now`; `false` if the rate is exceeded.
    pub(crate) fn take(&self, now: Instant) -> bool {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let since = now.saturating_duration_since(*self.start.get_or_init(|| now));
        let now = nanoseconds(since + MAX_BURST_TIME);
        let oldest = now.saturating_sub(nanoseconds(MAX_BURST_TIME));
        let next = |free: u64| {
            let free = free.max(oldest);
            (free < now).then(|| free.saturating_add(nanoseconds(REQUEST_INTERVAL)))
        };
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.is_ok()
    }
}
