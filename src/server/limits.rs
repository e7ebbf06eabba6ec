//! In-flight limits: requests and bytes.
//!
//! Authorization and admission have a [`Limiter`] each, so that load on one does not
//! affect the other; within each, every cluster has a share, and its callers with a token in the path
//! another ([`shares`]). A request is
//! admitted before its body is read, with the size that its `Content-Length` announces;
//! bytes of unknown length are counted as they arrive. Everything is released when the
//! request ends. Copies, such as requests to webhooks, are counted separately, with a limit of the
//! same size, and so are replies until they are written, and what is made of bodies ([`memory`]).

pub(crate) mod memory;
pub(crate) mod shares;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use actix_web::web::Bytes;
use arc_swap::ArcSwap;

use crate::telemetry::metrics::IntGauge;
use shares::{ShareCounts, ShareUse, Shares, TokenBucket, UserBytes};

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

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge() -> IntGauge {
        IntGauge::new("in_flight", "requests").unwrap()
    }

    #[test]
    fn a_limiter_is_full_at_its_requests_and_has_room_again_after_one_ends() {
        let (limiter, gauge) = (Arc::new(Limiter::default()), gauge());
        let capacity = Capacity {
            requests: 2,
            bytes: 100,
            memory: 0,
            calls: 0,
        };
        let first = limiter.enter(capacity, None, 0, &gauge).unwrap();
        let _second = limiter.enter(capacity, None, 0, &gauge).unwrap();
        assert!(limiter.enter(capacity, None, 0, &gauge).is_none());
        assert_eq!(gauge.get(), 2);
        drop(first);
        assert!(limiter.enter(capacity, None, 0, &gauge).is_some());
        assert_eq!(gauge.get(), 1);
    }

    #[test]
    fn a_limiter_is_full_at_its_bytes_announced_or_not() {
        let (limiter, gauge) = (Arc::new(Limiter::default()), gauge());
        let capacity = Capacity {
            requests: 10,
            bytes: 100,
            memory: 0,
            calls: 0,
        };
        let mut first = limiter.enter(capacity, None, 60, &gauge).unwrap();
        assert!(limiter.enter(capacity, None, 41, &gauge).is_none());
        let mut second = limiter.enter(capacity, None, 0, &gauge).unwrap();
        assert!(first.reserve_body(60), "announced already");
        assert!(second.reserve_body(40));
        assert!(!second.reserve_body(41) && !first.reserve_body(61));
        drop(first);
        assert!(second.reserve_body(100));
        drop(second);
        assert!(limiter.is_empty());
        let bytes = limiter.common.bytes.load(Ordering::Relaxed);
        assert_eq!((bytes, gauge.get()), (0, 0));
    }

    #[test]
    fn copies_of_all_requests_have_as_much_room_as_their_bodies() {
        let (limiter, gauge) = (Arc::new(Limiter::default()), gauge());
        let capacity = Capacity {
            requests: 10,
            bytes: 100,
            memory: 0,
            calls: 0,
        };
        let first = limiter.enter(capacity, None, 50, &gauge).unwrap();
        let second = limiter.enter(capacity, None, 50, &gauge).unwrap();
        let copied = first.copy(60).unwrap();
        assert!(second.copy(41).is_none());
        let _other = second.copy(40).unwrap();
        drop(copied);
        assert!(second.copy(60).is_some());
    }

    #[test]
    fn a_reply_takes_room_until_it_is_dropped_however_it_is_parted() {
        let (limiter, gauge) = (Arc::new(Limiter::default()), gauge());
        let capacity = Capacity {
            requests: 10,
            bytes: 100,
            memory: 0,
            calls: 0,
        };
        let request = limiter.enter(capacity, None, 90, &gauge).unwrap();
        let hold = |bytes| request.reply_room().reserve(vec![b'a'; bytes].into());
        let most = LEAST_REPLIES_BYTES - REPLY_BYTES;
        let mut reply = hold(most).unwrap();
        assert!(hold(0).is_none(), "none takes nothing");
        let part = reply.split_to(10);
        drop(reply);
        assert!(hold(0).is_none(), "a part of it is still to be written");
        assert_eq!(part, [b'a'; 10].as_slice());
        let room = request.reply_room();
        drop((part, request));
        assert!(room.reserve(vec![b'a'; most].into()).is_some());
    }

    #[test]
    fn each_share_has_a_rate_of_its_own() {
        let limiter = Limiter::default();
        let [east, west] = ["east", "west"].map(Arc::<str>::from);
        let (both, now) = (
            BTreeSet::from([Arc::clone(&east), Arc::clone(&west)]),
            Instant::now(),
        );
        let is_within = |share, shares| limiter.is_within_rate(ShareKey { share, shares }, now);
        let passed = (0..10_000).filter(|_| is_within(&east, &both)).count();
        assert!((1..10_000).contains(&passed), "{passed}");
        assert!(!is_within(&east, &both) && is_within(&west, &both));
        let alone = BTreeSet::from([Arc::clone(&east)]);
        assert!(is_within(&east, &alone), "what is common has one, too");
    }

    #[test]
    fn an_amount_beyond_counting_does_not_fit() {
        let limiter = Arc::new(Limiter::default());
        let capacity = Capacity {
            requests: 10,
            bytes: usize::MAX,
            memory: 0,
            calls: 0,
        };
        let _one = limiter.enter(capacity, None, 1, &gauge()).unwrap();
        assert!(limiter.enter(capacity, None, usize::MAX, &gauge()).is_none());
        assert_eq!(limiter.requests.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn one_cluster_leaves_the_others_their_part_of_requests_and_bytes() {
        let limiter = Arc::new(Limiter::default());
        let [east, west, gone] = ["east", "west", "gone"].map(Arc::<str>::from);
        let clusters = BTreeSet::from([Arc::clone(&east), Arc::clone(&west)]);
        let capacity = Capacity {
            requests: 8,
            bytes: 800,
            memory: 0,
            calls: 0,
        };
        let enter = |cluster: &Arc<str>, bytes| {
            let key = ShareKey {
                share: cluster,
                shares: &clusters,
            };
            limiter.enter(capacity, Some(key), bytes, &gauge())
        };
        let all_of_east: Vec<_> = std::iter::from_fn(|| enter(&east, 100)).collect();
        assert_eq!(all_of_east.len(), 6, "its quarter and the common half");
        assert!(enter(&gone, 0).is_none(), "no caller names it any more");
        let of_west = [enter(&west, 100).unwrap(), enter(&west, 100).unwrap()];
        assert!(enter(&west, 0).is_none() && enter(&east, 0).is_none());
        assert!(of_west[0].copy(200).is_some() && of_west[0].copy(601).is_none());
        drop(all_of_east);
        assert!(enter(&gone, 100).is_some(), "what is common is for everybody");
        drop(of_west);
        assert!(limiter.is_empty());
    }
}
