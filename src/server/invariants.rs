//! The running check of invariants: whether they hold of what is in force, once more after each
//! change. It finds what no write was refused for, because no gateway answered or two writes came at
//! once. An invariant that is broken, or of which that is not known, is told by metric and log, and holds
//! nothing back.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use portcullis_policy::authorization::proof::{InvariantStatus, WorkLimit};
use portcullis_policy::authorization::{AuthorizationInvariant, PolicySet};
use portcullis_policy::engine::Deadline;
use portcullis_policy::explain::invariants::{CheckedInvariant, checked_invariants};

use crate::config::DEFAULT_CLUSTER;
use crate::reload::{ReloadState, Snapshot};
use crate::telemetry::Metrics;

/// How long the proofs of one cluster may take, so that no other waits longer for its own.
const MAX_TIME_PER_CLUSTER: Duration = Duration::from_secs(10);
/// The most parts into which the requests that an invariant forbids may fall.
const MAX_PARTS: usize = 20_000;
/// After a check, this many times as long as it took belongs to others.
const PAUSES: u32 = 9;
/// Policies begin and end by themselves.
const RECHECK_AFTER: Duration = Duration::from_secs(600);

/// What was found last.
struct InvariantCheck {
    metrics: Arc<Metrics>,
    /// By cluster.
    clusters: BTreeMap<String, CheckedSet>,
}

/// A policy set and how its invariants stand.
struct CheckedSet {
    set: Weak<PolicySet>,
    invariants: Vec<CheckedInvariant>,
}

/// Checks what is in force in `state`, now and after each change, on a thread that ends with it.
///
/// # Errors
/// There is no thread.
pub(crate) fn start(state: &ReloadState, metrics: Arc<Metrics>) -> io::Result<()> {
    let (changed, changes) = sync_channel(1);
    let latest = Arc::new(Mutex::new(Weak::new()));
    let current = Arc::clone(&latest);
    thread::Builder::new()
        .name("invariants".to_owned())
        .spawn(move || run(&changes, &current, InvariantCheck::new(metrics)))?;
    state.observe(move |snapshot| {
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(snapshot);
        // Where one is waiting, that is for this snapshot too.
        let _ = changed.try_send(());
    });
    Ok(())
}

fn run(changes: &Receiver<()>, latest: &Mutex<Weak<Snapshot>>, mut check: InvariantCheck) {
    loop {
        match changes.recv_timeout(RECHECK_AFTER) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => check.clusters.values_mut().for_each(CheckedSet::forget),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let begin = Instant::now();
        let snapshot = latest.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(snapshot) = snapshot {
            check.look_at(&snapshot);
        }
        thread::sleep(begin.elapsed() * PAUSES);
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

    fn look_at(&mut self, snapshot: &Snapshot) {
        let policies = &snapshot.policies;
        let of_clusters = policies.clusters.iter();
        let mut sets: BTreeMap<&str, &Arc<PolicySet>> =
            of_clusters.map(|(name, set)| (name.as_str(), set)).collect();
        sets.entry(DEFAULT_CLUSTER).or_insert(&policies.shared);
        let mut before = std::mem::take(&mut self.clusters);
        for (cluster, set) in sets {
            let before = before.remove(cluster);
            let checked = match before {
                Some(before) if before.is_of(set) => before,
                before => CheckedSet::new(set, cluster, before.map(|before| before.invariants)),
            };
            self.clusters.insert(cluster.to_owned(), checked);
        }
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
    /// Proves the invariants of `set`, which decides for `cluster`, and logs what is not as before.
    fn new(set: &Arc<PolicySet>, cluster: &str, before: Option<Vec<CheckedInvariant>>) -> Self {
        let end = Instant::now() + MAX_TIME_PER_CLUSTER;
        let expired = || Instant::now() >= end;
        let limit = WorkLimit {
            parts: MAX_PARTS,
            deadline: Deadline::new(&expired),
        };
        let checked = checked_invariants(set, cluster, SystemTime::now().into(), limit);
        let invariants = checked.unwrap_or_else(|limit| {
            let unproven = |invariant: &Arc<AuthorizationInvariant>| CheckedInvariant {
                name: invariant.name().to_owned(),
                enforcement: invariant.enforcement,
                reason: invariant.forbidden.reason.clone(),
                status: InvariantStatus::Unproven(limit),
            };
            set.invariants().map(unproven).collect()
        });
        let before = before.unwrap_or_default();
        for one in &invariants {
            let earlier = before.iter().find(|earlier| earlier.name == one.name);
            let earlier = earlier.map(|earlier| earlier.status.as_str());
            if earlier != Some(one.status.as_str()) {
                log(cluster, one, earlier.is_some());
            }
        }
        Self {
            set: Arc::downgrade(set),
            invariants,
        }
    }

    fn is_of(&self, set: &Arc<PolicySet>) -> bool {
        std::ptr::eq(self.set.as_ptr(), Arc::as_ptr(set))
    }

    /// Has it proven once more.
    fn forget(&mut self) {
        self.set = Weak::new();
    }
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
