//! In-flight limits: requests, bytes, and the memory of decoded reviews.
//!
//! Authorization and admission have a [`Limiter`] each, so that load on one does not affect the
//! other. Within each, every cluster has a share, and its callers with a path token have another. A
//! request is admitted before its body is read, with the size in its `Content-Length`; bytes of
//! unknown length are counted as they arrive. Everything is released when the request ends. Copies,
//! such as requests to webhooks, are counted separately with a limit of the same size, and so are
//! replies until they are written.
//!
//! Memory that is derived from reviews (the indexes of bodies, replies and changed objects) is
//! limited like the bodies, but separately: users control their objects, and an index may take ten
//! times the bytes of its text. One user may hold a quarter of the cluster's memory, or more for a
//! single review, and large allocations leave a quarter to small ones.
//!
//! How one limit is divided among clusters:
//!
//! ```text
//!           ┌──── half of the limit ────┬──────── what is left ────────┐
//! reserved: │ east │ west │ …  in equal │ common to all clusters       │
//!           └──────┴──────┴─────────────┴──────────────────────────────┘
//! ```
//!
//! A cluster uses its own part first. The callers of one cluster cannot use the parts of others,
//! however many requests they send.

mod in_use;

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use actix_web::web::Bytes;
use arc_swap::ArcSwap;

use crate::telemetry::per_worker::{Gauged, WorkerGauge, WorkerRef};
use in_use::{InUse, Resource};
use portcullis_policy::admission::{ObjectMemory, TakenMemory};

/// The limits of one endpoint, with the requests that are being read or answered.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    /// What is in use of the common part.
    common: InUse,
    of_clusters: ArcSwap<ShareParts>,
    users: UserBytes,
}

/// What is in use of the part of each cluster. Entries are never removed: there are few.
#[derive(Debug, Default, Clone)]
struct ShareParts {
    numbers: HashMap<Arc<str>, PartNumber>,
    parts: Vec<Arc<InUse>>,
}

/// The index of a cluster's part in [`ShareParts`].
type PartNumber = usize;

/// The limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity {
    pub(crate) requests: usize,
    /// Bytes of their bodies.
    pub(crate) bytes: usize,
    /// Bytes of memory derived from the bodies.
    pub(crate) memory: usize,
    /// Calls to webhooks.
    pub(crate) calls: usize,
}

/// The share in which a request counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShareKey<'b> {
    /// The share of its caller.
    pub(crate) share: &'b Arc<str>,
    /// The shares of all callers.
    pub(crate) shares: &'b BTreeSet<Arc<str>>,
}

/// An admitted request. It counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    limiter: WorkerRef<Limiter>,
    /// The part of its share; `None` if it has none.
    own: Option<PartNumber>,
    shares: PartLimits,
    memory: PartLimits,
    calls: PartLimits,
    replies: PartLimits,
    request: ShareUse,
    bytes: ShareUse,
    _gauged: Gauged,
}

/// A copy whose bytes count until this is dropped.
#[derive(Debug)]
pub(crate) struct CopyPermit {
    limiter: WorkerRef<Limiter>,
    own: Option<PartNumber>,
    bytes: ShareUse,
}

/// The memory for the reply to a request. It may outlive the request, until the client has read the
/// reply.
pub(crate) struct ReplyPermit {
    limiter: WorkerRef<Limiter>,
    own: Option<PartNumber>,
    shares: PartLimits,
}

/// A reply that counts until it is dropped.
struct CountedReply {
    body: Bytes,
    limiter: WorkerRef<Limiter>,
    own: Option<PartNumber>,
    bytes: ShareUse,
}

/// The bytes that count for a reply that is not written yet, besides its body: for its stream and
/// its task.
const REPLY_OVERHEAD_BYTES: usize = 8 << 10;

/// The least limit on replies, which suffices for hundreds of requests, even if less is configured.
const LEAST_REPLIES_BYTES: usize = 4 << 20;

/// A call to a webhook that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct CallPermit {
    limiter: WorkerRef<Limiter>,
    own: Option<PartNumber>,
    call: ShareUse,
}

/// A limit for one cluster: its own part and the common part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartLimits {
    pub(crate) own: usize,
    pub(crate) common: usize,
}

/// The amounts taken from the own and from the common part.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShareUse {
    own: usize,
    common: usize,
}

/// The counts of a resource: of one cluster and of the common part.
#[derive(Debug, Clone, Copy)]
struct ShareCounts<'c> {
    /// `None` if the cluster has no part of its own.
    own: Option<&'c InUse>,
    common: &'c InUse,
    resource: Resource,
}

// === impl Limiter ===

impl WorkerRef<Limiter> {
    /// Admits a request whose body has at least `bytes`, if the limits permit. Without a key,
    /// everything is taken from the common part.
    pub(crate) fn enter(
        &self,
        capacity: Capacity,
        key: Option<ShareKey<'_>>,
        bytes: usize,
        gauge: &WorkerGauge,
    ) -> Option<Permit> {
        let clusters = key.map_or(1, |key| key.shares.len());
        let own = key.and_then(|key| self.part_of(key));
        let request = self.take(
            own,
            Resource::Requests,
            PartLimits::of(capacity.requests, clusters, 1),
            1,
        )?;
        // From here on, dropping the permit releases what was taken.
        let mut permit = Permit {
            limiter: self.clone(),
            own,
            shares: PartLimits::of(capacity.bytes, clusters, 0),
            memory: PartLimits::of(capacity.memory, clusters, 0),
            calls: PartLimits::of(capacity.calls, clusters, 1),
            replies: PartLimits::of(capacity.bytes.max(LEAST_REPLIES_BYTES), clusters, 0),
            request,
            bytes: ShareUse::default(),
            _gauged: gauge.enter(),
        };
        permit.reserve_body(bytes).then_some(permit)
    }
}

impl Limiter {
    /// Whether a request that arrived `now` is within the rate limit of its share.
    pub(crate) fn is_within_rate(&self, key: ShareKey<'_>, now: Instant) -> bool {
        let own = self.part_of(key);
        self.with_part(own, |own| own.unwrap_or(&self.common).rate.0.take(now))
    }

    /// Whether no request is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        let parts = self.of_clusters.load();
        let mut all = parts.parts.iter().map(Arc::as_ref).chain([&self.common]);
        all.all(|in_use| in_use.in_use(Resource::Requests) == 0)
    }

    /// The index of the share's part; `None` if it has none.
    fn part_of(&self, key: ShareKey<'_>) -> Option<PartNumber> {
        let ShareKey { share, shares } = key;
        if shares.len() <= 1 || !shares.contains(share) {
            return None;
        }
        if let Some(number) = self.of_clusters.load().numbers.get(share) {
            return Some(*number);
        }
        let new = Arc::<InUse>::default();
        self.of_clusters.rcu(|parts| {
            let mut parts = ShareParts::clone(parts);
            if !parts.numbers.contains_key(share) {
                parts.numbers.insert(Arc::clone(share), parts.parts.len());
                parts.parts.push(Arc::clone(&new));
            }
            parts
        });
        self.of_clusters.load().numbers.get(share).copied()
    }

    fn with_part<T>(&self, own: Option<PartNumber>, with: impl FnOnce(Option<&InUse>) -> T) -> T {
        let Some(number) = own else { return with(None) };
        with(self.of_clusters.load().parts.get(number).map(Arc::as_ref))
    }

    /// Takes `amount` of a resource, from the cluster's own part first; all or nothing.
    fn take(
        &self,
        own: Option<PartNumber>,
        resource: Resource,
        shares: PartLimits,
        amount: usize,
    ) -> Option<ShareUse> {
        let common = &self.common;
        self.with_part(own, |own| {
            let counts = ShareCounts {
                own,
                common,
                resource,
            };
            shares.take(counts, amount)
        })
    }

    fn give_back(&self, own: Option<PartNumber>, resource: Resource, held: ShareUse) {
        let common = &self.common;
        self.with_part(own, |own| {
            held.give_back(ShareCounts {
                own,
                common,
                resource,
            });
        });
    }
}

// === impl Permit ===

impl Permit {
    /// Reserves room for a body of `bytes`, of which the announced bytes are reserved already.
    /// Returns whether there is room.
    pub(crate) fn reserve_body(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes.amount());
        let taken = self.limiter.take(self.own, Resource::Bytes, self.shares, more);
        if let Some(taken) = taken {
            self.bytes = self.bytes.and(taken);
        }
        taken.is_some()
    }

    /// Reserves a copy of `bytes`, which is counted separately from the bodies.
    pub(crate) fn reserve_copy(&self, bytes: usize) -> Option<CopyPermit> {
        let taken = self
            .limiter
            .take(self.own, Resource::Copied, self.shares, bytes)?;
        Some(CopyPermit {
            limiter: self.limiter.clone(),
            own: self.own,
            bytes: taken,
        })
    }

    /// The memory from which the reply is reserved.
    pub(crate) fn reply_room(&self) -> ReplyPermit {
        ReplyPermit {
            limiter: self.limiter.clone(),
            own: self.own,
            shares: self.replies,
        }
    }

    /// Reserves a call to a webhook.
    pub(crate) fn reserve_call(&self) -> Option<CallPermit> {
        let call = self.limiter.take(self.own, Resource::Calls, self.calls, 1)?;
        Some(CallPermit {
            limiter: self.limiter.clone(),
            own: self.own,
            call,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limiter.give_back(self.own, Resource::Bytes, self.bytes);
        self.limiter.give_back(self.own, Resource::Requests, self.request);
    }
}

// === impl ReplyPermit ===

impl ReplyPermit {
    /// Reserves the reply `body`, which counts until it is dropped; `None` if the limit is reached.
    pub(crate) fn reserve(self, body: Bytes) -> Option<Bytes> {
        let Self { limiter, own, shares } = self;
        let bytes = limiter.take(own, Resource::Replies, shares, body.len() + REPLY_OVERHEAD_BYTES)?;
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
        self.limiter.give_back(self.own, Resource::Replies, self.bytes);
    }
}

// === impl CallPermit ===

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.limiter.give_back(self.own, Resource::Calls, self.call);
    }
}

// === impl CopyPermit ===

impl Drop for CopyPermit {
    fn drop(&mut self) {
        self.limiter.give_back(self.own, Resource::Copied, self.bytes);
    }
}

// === impl PartLimits ===

impl PartLimits {
    /// Divides a `limit` among `clusters`, whose own parts are `least` at least. For a single
    /// cluster the whole limit is common.
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

    /// Three quarters of each part.
    pub(crate) const fn three_quarters(self) -> Self {
        Self {
            own: self.own / 4 * 3,
            common: self.common / 4 * 3,
        }
    }

    /// Takes `amount`, from the cluster's own part first; all or nothing.
    fn take(self, counts: ShareCounts<'_>, amount: usize) -> Option<ShareUse> {
        let own = counts
            .own
            .map_or(0, |own| own.take_some(counts.resource, amount, self.own));
        let held = ShareUse {
            own,
            common: amount - own,
        };
        if counts.common.take(counts.resource, held.common, self.common) {
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

    fn give_back(self, counts: ShareCounts<'_>) {
        if let Some(own) = counts.own {
            own.release(counts.resource, self.own);
        }
        counts.common.release(counts.resource, self.common);
    }
}

/// Bytes by a hash of cluster and user name, because names may be long.
#[derive(Debug, Default)]
pub(crate) struct UserBytes {
    bytes: Mutex<HashMap<u64, usize>>,
    /// Has random keys in each process, so that nobody can choose a user name whose hash collides
    /// with another.
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

// Memory derived from reviews.

/// One user may hold the cluster's memory divided by this.
const USER_PARTS: usize = 4;

/// The size from which an allocation counts as large.
const LARGE_BYTES: usize = 256 << 10;

/// The memory derived from one review, charged to its user.
#[derive(Debug, Clone)]
pub(crate) struct ReviewMemory {
    limiter: WorkerRef<Limiter>,
    own: Option<PartNumber>,
    shares: PartLimits,
    user: u64,
    /// The bytes that this review holds.
    taken: Arc<AtomicUsize>,
}

/// Bytes that count until this is dropped.
#[derive(Debug)]
pub(crate) struct MadeBytes {
    limiter: WorkerRef<Limiter>,
    own: Option<PartNumber>,
    held: ShareUse,
}

/// Bytes that also count for a user until this is dropped.
struct TakenBytes {
    bytes: MadeBytes,
    user: u64,
    /// The bytes that the review holds.
    taken: Arc<AtomicUsize>,
}

// === impl Permit ===

impl Permit {
    /// The account for memory derived from a review of `user` in its cluster.
    pub(crate) fn memory(&self, cluster: &str, user: &str) -> ReviewMemory {
        ReviewMemory {
            limiter: self.limiter.clone(),
            own: self.own,
            shares: self.memory,
            user: self.limiter.users.key(cluster, user),
            taken: Arc::default(),
        }
    }

    /// Reserves bytes for a review whose user is not known yet.
    pub(crate) fn reserve_derived(&self, bytes: usize) -> Option<MadeBytes> {
        MadeBytes::take(&self.limiter, self.own, self.memory, bytes)
    }
}

// === impl ReviewMemory ===

impl ReviewMemory {
    fn take_bytes(&self, bytes: usize) -> Option<TakenBytes> {
        let mut users = self.limiter.users.lock();
        let held = users.get(&self.user).copied().unwrap_or_default();
        let is_alone = held == self.taken.load(Ordering::Relaxed);
        let share = (self.shares.own + self.shares.common) / USER_PARTS;
        if !is_alone && held + bytes > share {
            return None;
        }
        let taken = MadeBytes::take(&self.limiter, self.own, self.shares, bytes)?;
        users.insert(self.user, held + bytes);
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        Some(TakenBytes {
            bytes: taken,
            user: self.user,
            taken: Arc::clone(&self.taken),
        })
    }
}

impl ObjectMemory for ReviewMemory {
    fn reserve(&self, bytes: usize) -> Option<TakenMemory> {
        self.take_bytes(bytes).map(|bytes| TakenMemory(Box::new(bytes)))
    }
}

// === impl MadeBytes ===

impl MadeBytes {
    fn take(
        limiter: &WorkerRef<Limiter>,
        own: Option<PartNumber>,
        shares: PartLimits,
        bytes: usize,
    ) -> Option<Self> {
        let shares = if bytes > LARGE_BYTES {
            shares.three_quarters()
        } else {
            shares
        };
        let held = limiter.take(own, Resource::Derived, shares, bytes)?;
        Some(Self {
            limiter: limiter.clone(),
            own,
            held,
        })
    }
}

impl Drop for MadeBytes {
    fn drop(&mut self) {
        self.limiter.give_back(self.own, Resource::Derived, self.held);
    }
}

// === impl TakenBytes ===

impl Drop for TakenBytes {
    fn drop(&mut self) {
        let bytes = self.bytes.held.amount();
        if let Entry::Occupied(mut held) = self.bytes.limiter.users.lock().entry(self.user) {
            *held.get_mut() -= bytes;
            if *held.get() == 0 {
                held.remove();
            }
            // Update both under the lock, so that [`ReviewMemory`] can tell whether the user has
            // only one review.
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
