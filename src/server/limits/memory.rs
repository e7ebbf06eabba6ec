//! Memory for what is made of reviews: the indexes of their texts and of replies, and objects
//! after changes.
//!
//! Users decide what their objects are like, and an index may take ten times the bytes that it
//! is of. So this memory is counted like the bodies, with a bound of its own and a share for
//! each cluster. One user may have a quarter of what there is for the cluster, unless for a
//! single review, and what is large leaves a quarter to what is small.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::in_use::Resource;
use super::{Limiter, PartNumber, Permit, ShareUse, Shares};
use crate::telemetry::per_worker::WorkerRef;
use portcullis_policy::admission::{ObjectMemory, TakenMemory};

/// Which part one user may have.
const USER_PARTS: usize = 4;

/// From how many bytes on something is large.
const LARGE_BYTES: usize = 256 << 10;

/// Memory for what is made of one review.
#[derive(Debug, Clone)]
pub(crate) struct ReviewMemory {
    limiter: WorkerRef<Limiter>,
    own: Option<PartNumber>,
    shares: Shares,
    user: u64,
    /// What this review has.
    taken: Arc<AtomicUsize>,
}

/// Bytes that are counted as long as this lives.
#[derive(Debug)]
pub(crate) struct MadeBytes {
    limiter: WorkerRef<Limiter>,
    own: Option<PartNumber>,
    held: ShareUse,
}

/// The same, for a user.
struct TakenBytes {
    bytes: MadeBytes,
    user: u64,
    /// What the review has.
    taken: Arc<AtomicUsize>,
}

// === impl Permit ===

impl Permit {
    /// Memory for what is made of the review, of `user` in its cluster.
    pub(crate) fn memory(&self, cluster: &str, user: &str) -> ReviewMemory {
        ReviewMemory {
            limiter: self.limiter.clone(),
            own: self.own,
            shares: self.memory,
            user: self.limiter.users.key(cluster, user),
            taken: Arc::default(),
        }
    }

    /// Memory for so many bytes while it is not known whose they are.
    pub(crate) fn make(&self, bytes: usize) -> Option<MadeBytes> {
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
    fn take(&self, bytes: usize) -> Option<TakenMemory> {
        self.take_bytes(bytes).map(|bytes| TakenMemory(Box::new(bytes)))
    }
}

// === impl MadeBytes ===

impl MadeBytes {
    fn take(
        limiter: &WorkerRef<Limiter>,
        own: Option<PartNumber>,
        shares: Shares,
        bytes: usize,
    ) -> Option<Self> {
        let shares = if bytes > LARGE_BYTES {
            shares.three_quarters()
        } else {
            shares
        };
        let held = limiter.take(own, Resource::Made, shares, bytes)?;
        Some(Self {
            limiter: limiter.clone(),
            own,
            held,
        })
    }
}

impl Drop for MadeBytes {
    fn drop(&mut self) {
        self.limiter.give_back(self.own, Resource::Made, self.held);
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
            // As one with what the user has, so that a review is known to be alone.
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::server::limits::{Capacity, ShareKey};
    use crate::telemetry::per_worker::{WorkerGauge, WorkerRefs};

    const MIB: usize = 1 << 20;

    /// A permit of a cluster among these, where there are 64 MiB.
    fn permit(limiter: &WorkerRefs<Limiter>, cluster: &str, clusters: &[&str]) -> Permit {
        let clusters: BTreeSet<Arc<str>> = clusters.iter().copied().map(Arc::from).collect();
        let key = ShareKey {
            share: &Arc::from(cluster),
            shares: &clusters,
        };
        let capacity = Capacity {
            requests: 100,
            bytes: 1,
            memory: 64 * MIB,
            calls: 0,
        };
        let gauge = WorkerGauge::default();
        limiter.own().enter(capacity, Some(key), 0, &gauge).unwrap()
    }

    fn taken(memory: &ReviewMemory, bytes: usize) -> Vec<TakenMemory> {
        std::iter::from_fn(|| memory.take(bytes)).collect()
    }

    #[test]
    fn one_user_has_a_quarter_unless_for_a_single_review() {
        let limiter = WorkerRefs::default();
        let permit = permit(&limiter, "east", &["east"]);
        let memory = |user| permit.memory("east", user);
        let (first, second) = (memory("mallory"), memory("mallory"));
        let alone = taken(&first, 4 * MIB);
        assert_eq!(alone.len(), 12, "three quarters, of what is large");
        drop(alone);
        let held = first.take(12 * MIB).unwrap();
        assert_eq!(taken(&second, 4 * MIB).len(), 1);
        let small = second.take(4 * MIB).unwrap();
        assert!(
            first.take(1).is_none() && second.take(1).is_none(),
            "they count together"
        );
        assert_eq!(taken(&memory("jane"), 4 * MIB).len(), 8, "others have the rest");
        drop((held, small));
        assert!(limiter.shared().users.lock().is_empty());
        assert_eq!(limiter.shared().common.in_use(Resource::Made), 0);
    }

    #[test]
    fn what_is_large_leaves_a_quarter_to_what_is_small() {
        let limiter = WorkerRefs::default();
        let permit = permit(&limiter, "east", &["east"]);
        let large: Vec<_> = std::iter::from_fn(|| permit.make(MIB)).collect();
        assert_eq!(large.len(), 48);
        let small: Vec<_> = std::iter::from_fn(|| permit.make(LARGE_BYTES)).collect();
        assert_eq!(small.len(), 16 * MIB / LARGE_BYTES);
    }

    #[test]
    fn one_cluster_leaves_the_others_their_share() {
        let limiter = WorkerRefs::default();
        let of = |cluster| permit(&limiter, cluster, &["east", "west"]);
        let (east, west) = (of("east"), of("west"));
        let all: Vec<_> = std::iter::from_fn(|| east.make(LARGE_BYTES)).collect();
        assert_eq!(
            all.len(),
            48 * MIB / LARGE_BYTES,
            "its quarter and the common half"
        );
        assert!(west.memory("west", "jane").take(12 * MIB).is_some());
    }
}
