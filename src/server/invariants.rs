//! The background check of AuthorizationInvariants: whether those in force hold, repeated after
//! each change. It finds breaches that the validation of writes missed, because no gateway was
//! available or two writes were concurrent. An invariant that is broken or undecided is reported in
//! metrics and the log, and holds nothing back.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use portcullis_policy::authorization::proof::{InvariantStatus, WorkLimit};
use portcullis_policy::authorization::{AuthorizationInvariant, PolicySet};
use portcullis_policy::explain::invariants::{CheckedInvariant, checked_invariants};
use portcullis_policy::model::{Deadline, Time};

use crate::config::DEFAULT_CLUSTER;
use crate::state::{ReloadState, Snapshot};
use crate::telemetry::Metrics;

/// The most time for the proofs of one cluster, so that other clusters do not wait longer for
/// theirs.
const MAX_TIME_PER_CLUSTER: Duration = Duration::from_secs(10);
/// The most parts into which the requests that an invariant forbids may be split.
const MAX_PARTS: usize = 20_000;
/// After its proofs, a cluster pauses for this many times as long as they took, so that frequent
/// changes in one cluster do not delay the checks of others for long.
const PAUSE_FACTOR: u32 = 9;
/// The pause after each proof, for all clusters, as a multiple of its time: proofs take half of a
/// processor at most.
const OVERALL_PAUSE_FACTOR: u32 = 1;
/// The interval of checks without a change, because policies start and expire with time.
const RECHECK_AFTER: Duration = Duration::from_secs(600);

/// The latest results.
struct InvariantCheck {
    metrics: Arc<Metrics>,
    /// By cluster.
    clusters: BTreeMap<String, CheckedSet>,
}

/// A policy set and the status of its invariants.
struct CheckedSet {
    set: Weak<PolicySet>,
    invariants: Vec<CheckedInvariant>,
    /// When they were checked, and how long that took.
    checked: Instant,
    took: Duration,
    /// How long after the check the first cause of a breach expires.
    ends: Option<Duration>,
}

/// Checks the snapshot in force in `state`, now and after each change, on a thread that ends with
/// `state`.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start(state: &ReloadState, metrics: Arc<Metrics>) -> io::Result<()> {
    let (changed, changes) = sync_channel(1);
    let latest = Arc::new(Mutex::new(Weak::new()));
    let current = Arc::clone(&latest);
    thread::Builder::new()
        .name("invariants".to_owned())
        .spawn(move || run(&changes, &current, InvariantCheck::new(metrics)))?;
    state.observe(move |snapshot| {
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(snapshot);
        // If the channel is full, the pending notification covers this snapshot too.
        let _ = changed.try_send(());
    });
    Ok(())
}

fn run(changes: &Receiver<()>, latest: &Mutex<Weak<Snapshot>>, mut check: InvariantCheck) {
    let mut due = Instant::now() + RECHECK_AFTER;
    loop {
        let wait = due.saturating_duration_since(Instant::now());
        if let Err(RecvTimeoutError::Disconnected) = changes.recv_timeout(wait) {
            return;
        }
        let snapshot = latest.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let next = snapshot.and_then(|snapshot| check.check(&snapshot));
        due = next.unwrap_or_else(|| Instant::now() + RECHECK_AFTER);
    }
}

// === impl InvariantCheck ===

impl InvariantCheck {
    const fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            clusters: BTreeMap::new(),
        }
    }

    /// Checks the clusters of `snapshot` that are due, and returns when the next one will be.
    fn check(&mut self, snapshot: &Snapshot) -> Option<Instant> {
        let policies = &snapshot.policies;
        let of_clusters = policies.clusters.iter();
        let mut sets: BTreeMap<&str, &Arc<PolicySet>> =
            of_clusters.map(|(name, set)| (name.as_str(), set)).collect();
        sets.entry(DEFAULT_CLUSTER).or_insert(&policies.shared);
        self.clusters
            .retain(|cluster, _| sets.contains_key(cluster.as_str()));
        for (cluster, set) in &sets {
            let before = self.clusters.get(*cluster);
            if before.is_none_or(|before| before.due(set) <= Instant::now()) {
                let checked = CheckedSet::new(set, cluster, before.map_or(&[], |before| &before.invariants));
                let took = checked.took;
                self.clusters.insert((*cluster).to_owned(), checked);
                thread::sleep(took * OVERALL_PAUSE_FACTOR);
            }
        }
        self.publish_status();
        let due = sets
            .iter()
            .filter_map(|(cluster, set)| Some(self.clusters.get(*cluster)?.due(set)));
        due.min()
    }

    fn publish_status(&self) {
        let all = self.clusters.values().flat_map(|checked| &checked.invariants);
        let known = all.map(|one| {
            let holds = match one.status {
                InvariantStatus::Holds => Some(true),
                InvariantStatus::Broken(_) => Some(false),
                InvariantStatus::Undecided(_) | InvariantStatus::Unproven(_) => None,
            };
            (one.name.as_str(), holds)
        });
        self.metrics.invariants(known);
    }
}

// === impl CheckedSet ===

impl CheckedSet {
    /// Proves the invariants of `set`, which decides for `cluster`, and logs the statuses that
    /// differ from `before`.
    fn new(set: &Arc<PolicySet>, cluster: &str, before: &[CheckedInvariant]) -> Self {
        let begin = Instant::now();
        let end = begin + MAX_TIME_PER_CLUSTER;
        let expired = || Instant::now() >= end;
        let limit = WorkLimit {
            parts: MAX_PARTS,
            deadline: Deadline::new(&expired),
        };
        let now: Time = SystemTime::now().into();
        let checked = checked_invariants(set, cluster, now, limit);
        let invariants = checked.unwrap_or_else(|limit| {
            let unproven = |invariant: &Arc<AuthorizationInvariant>| CheckedInvariant {
                name: invariant.name().to_owned(),
                enforcement: invariant.enforcement,
                reason: invariant.forbidden.reason.clone(),
                status: InvariantStatus::Unproven(limit),
            };
            set.invariants().map(unproven).collect()
        });
        for one in &invariants {
            let earlier = before.iter().find(|earlier| earlier.name == one.name);
            let earlier = earlier.map(|earlier| earlier.status.as_str());
            if earlier != Some(one.status.as_str()) {
                log(cluster, one, earlier.is_some());
            }
        }
        let checked = Instant::now();
        Self {
            set: Arc::downgrade(set),
            ends: end_of_breaches(&invariants, now),
            invariants,
            checked,
            took: checked - begin,
        }
    }

    /// When `set` has to be checked: soon if it is a new set, otherwise after a while.
    fn due(&self, set: &Arc<PolicySet>) -> Instant {
        let is_same = std::ptr::eq(self.set.as_ptr(), Arc::as_ptr(set));
        let pause = self.took * PAUSE_FACTOR;
        let recheck = self.ends.map_or(RECHECK_AFTER, |ends| ends.min(RECHECK_AFTER));
        self.checked + if is_same { pause.max(recheck) } else { pause }
    }
}

/// The time from `now` until the first cause of a breach of `invariants` expires, such as an
/// AccessRequest.
fn end_of_breaches(invariants: &[CheckedInvariant], now: Time) -> Option<Duration> {
    let breaches = invariants.iter().flat_map(|one| match &one.status {
        InvariantStatus::Broken(breaches) => breaches.as_slice(),
        _ => &[],
    });
    let end = breaches
        .filter_map(|breach| breach.region.period().not_after)
        .min()?;
    let seconds = end.as_seconds() - now.as_seconds();
    Duration::try_from_secs_f64(seconds.max(0.0).ceil()).ok()
}

fn log(cluster: &str, one: &CheckedInvariant, was_known: bool) {
    let invariant = one.name.as_str();
    let what = one.sentences().into_iter().next().unwrap_or_default();
    match one.status {
        InvariantStatus::Broken(_) => {
            tracing::warn!(
                cluster,
                invariant,
                "an AuthorizationInvariant does not hold: {what}"
            );
        }
        InvariantStatus::Holds if was_known => {
            tracing::info!(cluster, invariant, "an AuthorizationInvariant holds again");
        }
        InvariantStatus::Holds => {}
        InvariantStatus::Undecided(_) | InvariantStatus::Unproven(_) => {
            tracing::info!(cluster, invariant, "an AuthorizationInvariant is {what}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_whose_proofs_take_long_waits_for_its_own_alone() {
        let [set, other] = [(), ()].map(|()| Arc::new(PolicySet::default()));
        let checked = Instant::now();
        let until = |ends: Option<u64>, took: u64, now: &Arc<PolicySet>| {
            let known = CheckedSet {
                set: Arc::downgrade(&set),
                invariants: Vec::new(),
                checked,
                took: Duration::from_secs(took),
                ends: ends.map(Duration::from_secs),
            };
            (known.due(now) - checked).as_secs()
        };
        let after = |took, now: &_| until(None, took, now);
        assert_eq!([after(0, &other), after(10, &other)], [0, 90]);
        // Policies expire with time, without any change in other clusters.
        assert_eq!(
            [after(0, &set), after(10, &set), after(100, &set)],
            [600, 600, 900]
        );
        // The expiry of an AccessRequest is known in advance.
        assert_eq!(
            [
                until(Some(7), 0, &set),
                until(Some(7), 10, &set),
                until(Some(7_000), 0, &set)
            ],
            [7, 90, 600]
        );
    }
}
