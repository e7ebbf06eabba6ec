//! How one limit is divided among clusters, and how many bytes the reviews of each user hold.
//!
//! ```text
//!           ┌──── half of the limit ────┬──────── what is left ────────┐
//! reserved: │ east │ west │ …  in equal │ common to all clusters       │
//!           └──────┴──────┴─────────────┴──────────────────────────────┘
//! ```
//!
//! A cluster uses its own part first. So the callers of one cluster cannot use the parts
//! of others, however many requests they send.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What may be held of a limit: of the part that is one cluster's, and in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) own: usize,
    pub(crate) common: usize,
}

/// What is held of either.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShareUse {
    own: usize,
    common: usize,
}

/// What is held in sum. The parts of the clusters are counted each for itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShareCounts<'c> {
    /// Of the one cluster; `None` where it has no part.
    pub(crate) own: Option<&'c AtomicUsize>,
    pub(crate) common: &'c AtomicUsize,
}

/// The time of each request at the highest rate of callers with a token in the path: 1,000 a second, which
/// is more than a cluster of thousands of nodes writes.
const REQUEST_INTERVAL: Duration = Duration::from_millis(1);

/// The time whose requests may come at once.
const MAX_BURST_TIME: Duration = Duration::from_secs(2);

/// Limits the rate of requests, with a burst.
#[derive(Debug, Default)]
pub(crate) struct TokenBucket {
    start: OnceLock<Instant>,
    /// The earliest time that no request has taken, in nanoseconds since [`MAX_BURST_TIME`] before the
    /// start: the theoretical arrival time of the generic cell rate algorithm.
    free: AtomicU64,
}

// === impl TokenBucket ===

impl TokenBucket {
    /// Takes the time of one request that came `now`, if there is some.
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

// === impl Shares ===

impl Shares {
    /// Those of a `limit` among so many `clusters`, of which each has `least` at least.
    /// A single one has all, in common.
    pub(crate) fn of(limit: usize, clusters: usize, least: usize) -> Self {
        if clusters <= 1 {
            return Self {
                own: 0,
                common: limit,
            };
        }
        let own = (limit / 2 / clusters).max(least);
        Self {
            own,
            common: limit.saturating_sub(own.saturating_mul(clusters)),
        }
    }

    /// Three quarters of them.
    pub(crate) const fn three_quarters(self) -> Self {
        Self {
            own: self.own / 4 * 3,
            common: self.common / 4 * 3,
        }
    }

    /// Takes `amount`, as much as there is of the cluster's own part; all or nothing.
    pub(crate) fn take(self, counts: ShareCounts<'_>, amount: usize) -> Option<ShareUse> {
        let own = counts.own.map_or(0, |held| take_some(held, amount, self.own));
        let held = ShareUse {
            own,
            common: amount - own,
        };
        if take(counts.common, held.common, self.common) {
            return Some(held);
        }
        ShareUse { common: 0, ..held }.give_back(counts);
        None
    }
}

// === impl ShareUse ===

impl ShareUse {
    pub(crate) fn amount(self) -> usize {
        self.own + self.common
    }

    pub(crate) fn and(self, more: Self) -> Self {
        Self {
            own: self.own + more.own,
            common: self.common + more.common,
        }
    }

    pub(crate) fn give_back(self, counts: ShareCounts<'_>) {
        if let Some(own) = counts.own {
            own.fetch_sub(self.own, Ordering::AcqRel);
        }
        counts.common.fetch_sub(self.common, Ordering::AcqRel);
    }
}

/// Adds `amount` unless that exceeds `most`.
fn take(count: &AtomicUsize, amount: usize, most: usize) -> bool {
    let fits = |held: usize| held.checked_add(amount).filter(|sum| *sum <= most);
    amount == 0
        || count
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, fits)
            .is_ok()
}

/// Adds as much of `amount` as does not exceed `most`; how much that was.
fn take_some(count: &AtomicUsize, amount: usize, most: usize) -> usize {
    let fitting = |held: usize| amount.min(most.saturating_sub(held));
    count
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
            Some(held + fitting(held))
        })
        .map_or(0, fitting)
}

/// Bytes by a hash of cluster and user name, whose length then does not matter.
#[derive(Debug, Default)]
pub(crate) struct UserBytes {
    bytes: Mutex<HashMap<u64, usize>>,
    /// Has its own keys in each process, so that nobody can choose a name that shares a
    /// count with another's.
    hasher: RandomState,
}

impl UserBytes {
    pub(crate) fn key(&self, cluster: &str, user: &str) -> u64 {
        self.hasher.hash_one((cluster, user))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_rate_lets_a_burst_through_and_then_one_after_another() {
        let (rate, start) = (TokenBucket::default(), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let passed = |now| (0..5_000).filter(|_| rate.take(now)).count();
        assert_eq!(passed(at(0)), 2_000, "at once");
        assert_eq!(passed(at(0)), 0);
        assert_eq!(passed(at(10)), 10);
        assert_eq!(passed(at(1_010)), 1_000);
        assert_eq!(passed(at(60_000)), 2_000, "no more than a burst is saved up");
        assert_eq!(passed(at(0)), 0, "a clock that went back gives nothing");
    }

    #[test]
    fn half_is_reserved_in_equal_parts() {
        for (limit, clusters, expected) in [
            (1024, 0, (0, 1024)),
            (1024, 1, (0, 1024)),
            (1024, 2, (256, 512)),
            (1024, 3, (170, 514)),
            (10, 2, (2, 6)),
            // At least one each, even beyond the limit.
            (3, 2, (1, 1)),
            (2, 4, (1, 0)),
        ] {
            let shares = Shares::of(limit, clusters, 1);
            assert_eq!((shares.own, shares.common), expected, "{limit} {clusters}");
        }
        assert_eq!(Shares::of(3, 2, 0).own, 0, "bytes have no least part");
    }

    proptest! {
        #[test]
        fn the_parts_are_never_more_than_the_limit_but_for_one_each(limit in 0..5000usize, clusters in 0..50usize) {
            let shares = Shares::of(limit, clusters, 1);
            let all = shares.common + shares.own * clusters;
            prop_assert!(all <= limit.max(clusters));
            prop_assert!(all >= limit, "nothing is left over");
            if clusters > 1 {
                prop_assert!(shares.own >= 1);
                prop_assert!(shares.common * 2 + 2 * clusters >= limit, "half is common");
            }
        }

        /// Whatever the others hold, a cluster gets what is left of its part; a request is
        /// refused only where that and the common part are full; what is given back is all.
        #[test]
        fn no_cluster_uses_the_share_of_another(
            limit in 1..64usize,
            clusters in 2..5usize,
            steps in prop::collection::vec((0..5usize, 1..12usize, any::<bool>()), 0..200),
        ) {
            let shares = Shares::of(limit, clusters, 1);
            let common = AtomicUsize::new(0);
            let own: Vec<AtomicUsize> = (0..clusters).map(|_| AtomicUsize::new(0)).collect();
            let mut held: Vec<(usize, ShareUse)> = Vec::new();
            for (cluster, amount, gives_back) in steps {
                let counts = |cluster: usize| ShareCounts { own: own.get(cluster), common: &common };
                if gives_back && !held.is_empty() {
                    let (cluster, part) = held.swap_remove(amount % held.len());
                    part.give_back(counts(cluster));
                    continue;
                }
                // One that has no part is among them, too.
                let free = own.get(cluster).map_or(0, |own| shares.own - own.load(Ordering::Relaxed));
                let free_in_common = shares.common - common.load(Ordering::Relaxed);
                let taken = shares.take(counts(cluster), amount);
                prop_assert_eq!(taken.is_some(), amount <= free + free_in_common);
                if let Some(taken) = taken {
                    prop_assert_eq!(taken.amount(), amount);
                    prop_assert_eq!(taken.own, amount.min(free), "its own part first");
                    held.push((cluster, taken));
                }
                prop_assert!(own.iter().all(|own| own.load(Ordering::Relaxed) <= shares.own));
                prop_assert!(common.load(Ordering::Relaxed) <= shares.common);
            }
            for (cluster, part) in held {
                part.give_back(ShareCounts { own: own.get(cluster), common: &common });
            }
            prop_assert_eq!(common.load(Ordering::Relaxed), 0);
            prop_assert!(own.iter().all(|own| own.load(Ordering::Relaxed) == 0));
        }
    }
}
