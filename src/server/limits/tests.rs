mod memory;

use super::in_use::TokenBucket;
use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::telemetry::per_worker::{become_worker, worker_count};
use proptest::prelude::*;

fn limiter() -> WorkerRef<Limiter> {
    WorkerRef::new(Arc::default())
}

fn gauge() -> WorkerGauge {
    WorkerGauge::default()
}

#[test]
fn a_limiter_is_full_at_its_requests_and_has_room_again_after_one_ends() {
    let (limiter, gauge) = (limiter(), gauge());
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
    let (limiter, gauge) = (limiter(), gauge());
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
    let bytes = limiter.common.in_use(Resource::Bytes);
    assert_eq!((bytes, gauge.get()), (0, 0));
}

#[test]
fn copies_of_all_requests_have_as_much_room_as_their_bodies() {
    let (limiter, gauge) = (limiter(), gauge());
    let capacity = Capacity {
        requests: 10,
        bytes: 100,
        memory: 0,
        calls: 0,
    };
    let first = limiter.enter(capacity, None, 50, &gauge).unwrap();
    let second = limiter.enter(capacity, None, 50, &gauge).unwrap();
    let copied = first.reserve_copy(60).unwrap();
    assert!(second.reserve_copy(41).is_none());
    let _other = second.reserve_copy(40).unwrap();
    drop(copied);
    assert!(second.reserve_copy(60).is_some());
}

#[test]
fn a_reply_takes_room_until_it_is_dropped_however_it_is_parted() {
    let (limiter, gauge) = (limiter(), gauge());
    let capacity = Capacity {
        requests: 10,
        bytes: 100,
        memory: 0,
        calls: 0,
    };
    let request = limiter.enter(capacity, None, 90, &gauge).unwrap();
    let hold = |bytes| request.reply_room().reserve(vec![b'a'; bytes].into());
    let most = LEAST_REPLIES_BYTES - REPLY_OVERHEAD_BYTES;
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
    let limiter = limiter();
    let capacity = Capacity {
        requests: 10,
        bytes: usize::MAX,
        memory: 0,
        calls: 0,
    };
    let _one = limiter.enter(capacity, None, 1, &gauge()).unwrap();
    assert!(limiter.enter(capacity, None, usize::MAX, &gauge()).is_none());
    assert_eq!(limiter.common.in_use(Resource::Requests), 1);
}

#[test]
fn one_cluster_leaves_the_others_their_part_of_requests_and_bytes() {
    let limiter = limiter();
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
    assert!(of_west[0].reserve_copy(200).is_some() && of_west[0].reserve_copy(601).is_none());
    drop(all_of_east);
    assert!(enter(&gone, 100).is_some(), "what is common is for everybody");
    drop(of_west);
    assert!(limiter.is_empty());
}

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
        let shares = PartLimits::of(limit, clusters, 1);
        assert_eq!((shares.own, shares.common), expected, "{limit} {clusters}");
    }
    assert_eq!(PartLimits::of(3, 2, 0).own, 0, "bytes have no least part");
}

#[test]
fn what_other_workers_keep_is_given_back_before_anything_is_refused() {
    let (limiter, gauge) = (limiter(), gauge());
    let capacity = Capacity {
        requests: 64,
        bytes: 6400,
        memory: 0,
        calls: 0,
    };
    let fill = || -> Vec<Permit> {
        let enter = || limiter.enter(capacity, None, 100, &gauge);
        std::iter::from_fn(enter).collect()
    };
    for worker in 0..worker_count() {
        thread::scope(|scope| {
            scope.spawn(|| {
                become_worker(worker);
                assert_eq!(fill().len(), 64, "others have none in use");
            });
        });
    }
    let (of_this, held) = (fill(), limiter.common.held(Resource::Requests));
    assert_eq!((of_this.len(), held), (64, 64));
    drop(of_this);
    assert!(limiter.is_empty());
}

#[test]
fn a_limit_holds_while_threads_take_from_each_other() {
    let (limiter, gauge) = (limiter(), gauge());
    let capacity = Capacity {
        requests: 24,
        bytes: usize::MAX,
        memory: 0,
        calls: 0,
    };
    let (in_flight, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let ask = |worker| {
        become_worker(worker);
        for _ in 0..2_000 {
            let enter = || limiter.enter(capacity, None, 1, &gauge);
            let permits: Vec<_> = std::iter::from_fn(enter).take(6).collect();
            let now = in_flight.fetch_add(permits.len(), Ordering::AcqRel) + permits.len();
            most.fetch_max(now, Ordering::Relaxed);
            thread::yield_now();
            in_flight.fetch_sub(permits.len(), Ordering::AcqRel);
        }
    };
    thread::scope(|scope| {
        let ask = &ask;
        (0..8).for_each(|number| drop(scope.spawn(move || ask(number % 3))));
    });
    let most = most.into_inner();
    assert!((1..=24).contains(&most), "{most} in flight");
    assert!(limiter.is_empty());
    assert_eq!(gauge.get(), 0);
}

proptest! {
    #[test]
    fn the_parts_are_never_more_than_the_limit_but_for_one_each(limit in 0..5000usize, clusters in 0..50usize) {
        let shares = PartLimits::of(limit, clusters, 1);
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
        let shares = PartLimits::of(limit, clusters, 1);
        let resource = Resource::Requests;
        let common = InUse::default();
        let own: Vec<InUse> = (0..clusters).map(|_| InUse::default()).collect();
        let mut held: Vec<(usize, ShareUse)> = Vec::new();
        for (cluster, amount, gives_back) in steps {
            let counts = |cluster: usize| ShareCounts { own: own.get(cluster), common: &common, resource };
            if gives_back && !held.is_empty() {
                let (cluster, part) = held.swap_remove(amount % held.len());
                part.give_back(counts(cluster));
                continue;
            }
            // One that has no part is among them, too.
            let free = own.get(cluster).map_or(0, |own| shares.own - own.in_use(resource));
            let free_in_common = shares.common - common.in_use(resource);
            let taken = shares.take(counts(cluster), amount);
            prop_assert_eq!(taken.is_some(), amount <= free + free_in_common);
            if let Some(taken) = taken {
                prop_assert_eq!(taken.amount(), amount);
                prop_assert_eq!(taken.own, amount.min(free), "its own part first");
                held.push((cluster, taken));
            }
            prop_assert!(own.iter().all(|own| own.in_use(resource) <= shares.own));
            prop_assert!(common.in_use(resource) <= shares.common);
        }
        for (cluster, part) in held {
            part.give_back(ShareCounts { own: own.get(cluster), common: &common, resource });
        }
        prop_assert_eq!(common.in_use(resource), 0);
        prop_assert!(own.iter().all(|own| own.in_use(resource) == 0));
    }
}
