//! In-flight limits: requests and bytes.
//!
//! Authorization and admission have a [`Limiter`] each, so that load on one does not
//! affect the other; within each, every cluster has a share, and its callers with a token in the path
//! another. A request is
//! admitted before its body is read, with the size that its `Content-Length` announces;
//! bytes of unknown length are counted as they arrive. Everything is released when the
//! request ends. Copies, such as requests to webhooks, are counted separately, with a limit of the
//! same size, and so are replies until they are written, and what is made of bodies ([`memory`]).
//!
//! How one limit is divided among clusters:
//!
//! ```text
//!           ┌──── half of the limit ────┬──────── what is left ────────┐
//! reserved: │ east │ west │ …  in equal │ common to all clusters       │
//!           └──────┴──────┴─────────────┴──────────────────────────────┘
//! ```
//!
//! A cluster uses its own part first. So the callers of one cluster cannot use the parts
//! of others, however many requests they send.

pub(crate) mod memory;

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use actix_web::web::Bytes;
use arc_swap::ArcSwap;

use crate::telemetry::metrics::IntGauge;

/// The requests of one sort that are being read or answered.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    /// What is held in common.
    common: InUse,
    /// What is held of the part of each cluster, by its name. Those that were
    /// named once stay: they are few.
    of_clusters: ArcSwap<HashMap<Arc<str>, Arc<InUse>>>,
    /// All requests.
    requests: AtomicUsize,
    users: UserBytes,
}

/// What is held of one part.
#[derive(Debug, Default)]
struct InUse {
    requests: AtomicUsize,
    bytes: AtomicUsize,
    /// Bytes of copies.
    copied: AtomicUsize,
    /// Bytes of replies that are not written yet, with what each takes besides.
    replies: AtomicUsize,
    /// Bytes of what is made of bodies.
    made: AtomicUsize,
    /// Calls to webhooks.
    calls: AtomicUsize,
    rate: TokenBucket,
}

/// How much may be held at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity {
    /// Requests.
    pub(crate) requests: usize,
    /// Bytes of their bodies.
    pub(crate) bytes: usize,
    /// Bytes of what is made of the bodies.
    pub(crate) memory: usize,
    /// Calls to webhooks.
    pub(crate) calls: usize,
}

/// For whom a request is let in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShareKey<'b> {
    /// That of its caller.
    pub(crate) share: &'b Arc<str>,
    /// Those of all callers.
    pub(crate) shares: &'b BTreeSet<Arc<str>>,
}

/// A request that was let in. It counts as long as this lives.
#[derive(Debug)]
pub(crate) struct Permit {
    limiter: Arc<Limiter>,
    /// The part of its cluster, if it has one.
    own: Option<Arc<InUse>>,
    shares: Shares,
    memory: Shares,
    calls: Shares,
    replies: Shares,
    request: ShareUse,
    bytes: ShareUse,
    gauge: IntGauge,
}

/// Bytes of a copy that count as long as this lives.
#[derive(Debug)]
pub(crate) struct CopyPermit {
    limiter: Arc<Limiter>,
    own: Option<Arc<InUse>>,
    bytes: ShareUse,
}

/// Room for the reply to a request, which is kept until the client has taken it, however long the
/// request has ended.
pub(crate) struct ReplyRoom {
    limiter: Arc<Limiter>,
    own: Option<Arc<InUse>>,
    shares: Shares,
}

/// A reply that counts as long as this lives.
struct CountedReply {
    body: Bytes,
    limiter: Arc<Limiter>,
    own: Option<Arc<InUse>>,
    bytes: ShareUse,
}

/// What a reply that is not written yet takes besides its body: its stream, and who sends it.
const REPLY_BYTES: usize = 8 << 10;

/// The least that replies may take together: those of hundreds of requests, whatever is configured.
const LEAST_REPLIES_BYTES: usize = 4 << 20;

/// A call to a webhook that counts as long as this lives.
#[derive(Debug)]
pub(crate) struct CallPermit {
    limiter: Arc<Limiter>,
    own: Option<Arc<InUse>>,
    call: ShareUse,
}

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

// === impl Limiter ===

impl Limiter {
    /// Lets a request in whose body has at least `bytes`, if there is room. Without a
    /// key all of it is common.
    pub(crate) fn enter(
        self: &Arc<Self>,
        capacity: Capacity,
        key: Option<ShareKey<'_>>,
        bytes: usize,
        gauge: &IntGauge,
    ) -> Option<Permit> {
        let clusters = key.map_or(1, |key| key.shares.len());
        let own = key.and_then(|key| self.part_of(key));
        let counts = counts(own.as_deref(), &self.common, |in_use| &in_use.requests);
        let request = Shares::of(capacity.requests, clusters, 1).take(counts, 1)?;
        self.requests.fetch_add(1, Ordering::AcqRel);
        gauge.inc();
        // From here on dropping the permit gives back what was taken.
        let mut permit = Permit {
            limiter: Arc::clone(self),
            own,
            shares: Shares::of(capacity.bytes, clusters, 0),
            memory: Shares::of(capacity.memory, clusters, 0),
            calls: Shares::of(capacity.calls, clusters, 1),
            replies: Shares::of(capacity.bytes.max(LEAST_REPLIES_BYTES), clusters, 0),
            request,
            bytes: ShareUse::default(),
            gauge: gauge.clone(),
        };
        permit.reserve_body(bytes).then_some(permit)
    }

    /// Whether a request that came `now` is within the rate of a share that has one.
    pub(crate) fn is_within_rate(&self, key: ShareKey<'_>, now: Instant) -> bool {
        let own = self.part_of(key);
        own.as_deref().unwrap_or(&self.common).rate.take(now)
    }

    /// Whether no request is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.load(Ordering::Acquire) == 0
    }

    /// What is held of the share's part; `None` if it has none.
    fn part_of(&self, key: ShareKey<'_>) -> Option<Arc<InUse>> {
        let ShareKey { share, shares } = key;
        if shares.len() <= 1 || !shares.contains(share) {
            return None;
        }
        if let Some(part) = self.of_clusters.load().get(share) {
            return Some(Arc::clone(part));
        }
        let new = Arc::<InUse>::default();
        self.of_clusters.rcu(|parts| {
            let mut parts = HashMap::clone(parts);
            parts.entry(Arc::clone(share)).or_insert_with(|| Arc::clone(&new));
            parts
        });
        self.of_clusters.load().get(share).cloned()
    }
}

/// What is held of one resource.
fn counts<'c>(
    own: Option<&'c InUse>,
    common: &'c InUse,
    of: impl Fn(&'c InUse) -> &'c AtomicUsize,
) -> ShareCounts<'c> {
    ShareCounts {
        own: own.map(&of),
        common: of(common),
    }
}

// === impl Permit ===

impl Permit {
    /// Whether there is room for a body of `bytes`; more than was announced is taken now.
    pub(crate) fn reserve_body(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes.amount());
        let taken = self.shares.take(self.counts(|in_use| &in_use.bytes), more);
        if let Some(taken) = taken {
            self.bytes = self.bytes.and(taken);
        }
        taken.is_some()
    }

    /// Room for a copy of `bytes` beside the bodies, if there is any.
    pub(crate) fn copy(&self, bytes: usize) -> Option<CopyPermit> {
        let taken = self.shares.take(self.counts(|in_use| &in_use.copied), bytes)?;
        Some(CopyPermit {
            limiter: Arc::clone(&self.limiter),
            own: self.own.clone(),
            bytes: taken,
        })
    }

    /// Room for the reply.
    pub(crate) fn reply_room(&self) -> ReplyRoom {
        ReplyRoom {
            limiter: Arc::clone(&self.limiter),
            own: self.own.clone(),
            shares: self.replies,
        }
    }

    /// One more call, if there may be one.
    pub(crate) fn call(&self) -> Option<CallPermit> {
        let call = self.calls.take(self.counts(|in_use| &in_use.calls), 1)?;
        Some(CallPermit {
            limiter: Arc::clone(&self.limiter),
            own: self.own.clone(),
            call,
        })
    }

    fn counts<'c>(&'c self, of: impl Fn(&'c InUse) -> &'c AtomicUsize) -> ShareCounts<'c> {
        counts(self.own.as_deref(), &self.limiter.common, of)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gauge.dec();
        self.bytes.give_back(self.counts(|in_use| &in_use.bytes));
        self.request.give_back(self.counts(|in_use| &in_use.requests));
        self.limiter.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

// === impl ReplyRoom ===

impl ReplyRoom {
    /// The reply `body`, which counts until it is dropped, if there is room.
    pub(crate) fn reserve(self, body: Bytes) -> Option<Bytes> {
        let Self { limiter, own, shares } = self;
        let counts = counts(own.as_deref(), &limiter.common, |in_use| &in_use.replies);
        let bytes = shares.take(counts, body.len() + REPLY_BYTES)?;
        Some(Bytes::from_owner(CountedReply {
            body,
            limiter,
            own,
            bytes,
        }))
    }
}

// === impl CountedReply ===

impl AsRef<[u8]> for CountedReply {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for CountedReply {
    fn drop(&mut self) {
        let counts = counts(self.own.as_deref(), &self.limiter.common, |in_use| {
            &in_use.replies
        });
        self.bytes.give_back(counts);
    }
}

// === impl CallPermit ===

impl Drop for CallPermit {
    fn drop(&mut self) {
        let counts = counts(self.own.as_deref(), &self.limiter.common, |in_use| &in_use.calls);
        self.call.give_back(counts);
    }
}

// === impl CopyPermit ===

impl Drop for CopyPermit {
    fn drop(&mut self) {
        let counts = counts(self.own.as_deref(), &self.limiter.common, |in_use| &in_use.copied);
        self.bytes.give_back(counts);
    }
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
mod tests;
