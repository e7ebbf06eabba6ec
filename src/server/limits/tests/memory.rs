//! How memory for what is made of reviews is divided.

use std::collections::BTreeSet;

use crate::server::limits::*;
use crate::telemetry::per_worker::WorkerRefs;

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
    std::iter::from_fn(|| memory.reserve(bytes)).collect()
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
    let held = first.reserve(12 * MIB).unwrap();
    assert_eq!(taken(&second, 4 * MIB).len(), 1);
    let small = second.reserve(4 * MIB).unwrap();
    assert!(
        first.reserve(1).is_none() && second.reserve(1).is_none(),
        "they count together"
    );
    assert_eq!(taken(&memory("jane"), 4 * MIB).len(), 8, "others have the rest");
    drop((held, small));
    assert!(limiter.shared().users.lock().is_empty());
    assert_eq!(limiter.shared().common.in_use(Resource::Derived), 0);
}

#[test]
fn what_is_large_leaves_a_quarter_to_what_is_small() {
    let limiter = WorkerRefs::default();
    let permit = permit(&limiter, "east", &["east"]);
    let large: Vec<_> = std::iter::from_fn(|| permit.reserve_derived(MIB)).collect();
    assert_eq!(large.len(), 48);
    let small: Vec<_> = std::iter::from_fn(|| permit.reserve_derived(LARGE_BYTES)).collect();
    assert_eq!(small.len(), 16 * MIB / LARGE_BYTES);
}

#[test]
fn one_cluster_leaves_the_others_their_share() {
    let limiter = WorkerRefs::default();
    let of = |cluster| permit(&limiter, cluster, &["east", "west"]);
    let (east, west) = (of("east"), of("west"));
    let all: Vec<_> = std::iter::from_fn(|| east.reserve_derived(LARGE_BYTES)).collect();
    assert_eq!(
        all.len(),
        48 * MIB / LARGE_BYTES,
        "its quarter and the common half"
    );
    assert!(west.memory("west", "jane").reserve(12 * MIB).is_some());
}
