//! Metrics of the snapshot in force: policies and certificates.

use std::collections::{HashMap, HashSet};
use std::ptr;
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, Guard};

use crate::state::Snapshot;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::PolicyCounters;
use portcullis_policy::admission::{AdmissionSet, PolicyEvaluation};
use portcullis_policy::authorization::{Observer, PolicySet};
use portcullis_policy::model::{CauseKind, PolicyResult};

/// The counters of the snapshot in force, made before it is, and of those before it
/// by which requests are still judged.
pub(crate) struct CountersInForce {
    metrics: Arc<Metrics>,
    generations: ArcSwap<CounterGenerations>,
}

/// The newest first. Each is found by its snapshot, and kept as long as that may be.
#[derive(Default)]
pub(crate) struct CounterGenerations(Vec<(Weak<Snapshot>, Arc<Counters>)>);

/// The counters of the policies of one snapshot, by the address of the policies.
pub(crate) struct Counters {
    sets: HashMap<usize, Vec<PolicyCounters>>,
    admission: HashMap<usize, AdmissionCounters>,
}

/// The counters of what one cluster's admission is decided by, in the order of the policies.
struct AdmissionCounters {
    validating: Vec<PolicyCounters>,
    mutating: Vec<PolicyCounters>,
}

/// Counts what is decided by one set of policies.
pub(crate) struct CountingObserver<'c> {
    /// `None`: nothing is counted.
    pub(crate) counters: Option<&'c Counters>,
    pub(crate) policies: &'c Arc<PolicySet>,
    /// Whether what is decided now is in vain: it is decided again.
    pub(crate) is_in_vain: &'c dyn Fn() -> bool,
    /// How much was counted when the same was decided before.
    pub(crate) before: usize,
    /// How much was counted, with that.
    pub(crate) counted: usize,
}

// === impl CountersInForce ===

impl CountersInForce {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            generations: ArcSwap::default(),
        }
    }

    /// Counts for `snapshot`, which is about to come into force.
    pub(crate) fn begin(&self, snapshot: &Arc<Snapshot>) {
        let counters = Arc::new(Counters::new(snapshot, &self.metrics));
        let before = self.generations.load();
        let in_use = before.0.iter().filter(|(of, _)| of.strong_count() > 0);
        let mut generations = vec![(Arc::downgrade(snapshot), counters)];
        generations.extend(in_use.cloned());
        self.generations.store(Arc::new(CounterGenerations(generations)));
    }

    pub(crate) fn load(&self) -> Guard<Arc<CounterGenerations>> {
        self.generations.load()
    }
}

// === impl CounterGenerations ===

impl CounterGenerations {
    /// The counters of `snapshot`, which is or was in force.
    pub(crate) fn of(&self, snapshot: &Arc<Snapshot>) -> Option<&Counters> {
        let mut generations = self.0.iter();
        let found = generations.find(|(of, _)| ptr::eq(of.as_ptr(), Arc::as_ptr(snapshot)));
        found.map(|(_, counters)| counters.as_ref())
    }
}

// === impl Counters ===

impl Counters {
    /// Begins the series of `snapshot` and ends those of what it no longer has.
    fn new(snapshot: &Snapshot, metrics: &Metrics) -> Self {
        metrics.configuration(&snapshot.revision);
        metrics.certificates(snapshot.expiries.iter().map(|expiry| {
            let labels = [
                expiry.file.to_string_lossy(),
                expiry.name.as_str().into(),
                expiry.used_for.as_str().into(),
            ];
            (labels, expiry.at)
        }));
        metrics.bundles(snapshot.config.bundles().map(|(source, _)| source.name.as_str()));
        let file_faults = snapshot.file_faults();
        let unknown = snapshot.unknown_clusters();
        let named = file_faults
            .keys()
            .copied()
            .chain(unknown.iter().map(String::as_str));
        metrics.cluster_unknown_policies(named.map(|cluster| (cluster, unknown.contains(cluster))));
        metrics.cluster_files(file_faults);
        let authorizers = &snapshot.authorizers;
        metrics.configured(configured_names(snapshot));
        authorizers.record_to(snapshot.upstreams.observe(metrics, authorizers.names()));
        let policies = &snapshot.policies;
        // What clusters share is counted once.
        let mut seen = HashSet::new();
        let sets: Vec<_> = [&policies.shared]
            .into_iter()
            .chain(policies.clusters.values())
            .filter(|set| seen.insert(set.policies_address()))
            .collect();
        seen.clear();
        let admission: Vec<_> = [&snapshot.admission.shared]
            .into_iter()
            .chain(snapshot.admission.clusters.values())
            .filter(|set| seen.insert(set.policies_address()))
            .collect();
        let shadows = admission.iter().flat_map(|set| set.shadow_webhooks());
        metrics.shadow_webhooks(shadows.map(|webhook| webhook.id()));
        let ends = sets.iter().flat_map(|set| set.ends());
        let ends = ends.map(|(name, end)| (CauseKind::AuthorizationPolicy, name, end));
        let exceptions = admission.iter().flat_map(|set| set.exception_ends());
        let exceptions = exceptions.map(|(name, end)| (CauseKind::AdmissionException, name, end));
        metrics.policy_expirations(ends.chain(exceptions));
        let names = sets.iter().flat_map(|set| set.policies());
        let names = names.map(|(kind, name)| (kind, name.as_ref()));
        let mut counters = metrics
            .policies(names.chain(admission.iter().flat_map(|set| bound(set))))
            .into_iter();
        let mut of_set = |policies: &PolicySet| counters.by_ref().take(policies.policies().len()).collect();
        let sets = sets
            .into_iter()
            .map(|policies| (policies.policies_address(), of_set(policies)))
            .collect();
        let admission = admission
            .into_iter()
            .map(|policies| {
                let mut take = |count: usize| -> Vec<_> { counters.by_ref().take(count).collect() };
                let of_set = AdmissionCounters {
                    validating: take(policies.validating_policies().count()),
                    mutating: take(policies.mutating_policies().count()),
                };
                (policies.policies_address(), of_set)
            })
            .collect();
        Self { sets, admission }
    }

    /// Counts what the policy at `index` of `policies` came to.
    fn evaluated(&self, policies: &Arc<PolicySet>, index: usize, evaluation: PolicyResult) {
        let set = self.sets.get(&policies.policies_address());
        if let Some(counters) = set.and_then(|set| set.get(index)) {
            counters.record(evaluation);
        }
    }

    /// Counts what the conditions of the policy at `index` of `policies` cost.
    fn spent(&self, policies: &Arc<PolicySet>, index: usize, cost: u64) {
        let set = self.sets.get(&policies.policies_address());
        if let Some(counters) = set.and_then(|set| set.get(index)) {
            counters.spent(cost);
        }
    }

    /// Counts what a policy of admission, or of authorization where that depends on an object, came to,
    /// and what that cost.
    pub(crate) fn admission_evaluated(
        &self,
        access: &Arc<PolicySet>,
        policies: &Arc<AdmissionSet>,
        evaluation: &PolicyEvaluation,
    ) {
        if evaluation.kind == CauseKind::AuthorizationPolicy {
            return self.evaluated(access, evaluation.place, evaluation.result);
        }
        let set = self.admission.get(&policies.policies_address());
        let counters = set.and_then(|set| match evaluation.kind {
            CauseKind::ValidatingAdmissionPolicy => set.validating.get(evaluation.place),
            CauseKind::MutatingAdmissionPolicy => set.mutating.get(evaluation.place),
            _ => None,
        });
        if let Some(counters) = counters {
            counters.record(evaluation.result);
            counters.spent(evaluation.cost);
        }
    }
}

// === impl CountingObserver ===

impl<'c> CountingObserver<'c> {
    /// Where the next result is counted, unless it was before or will be.
    fn next(&mut self) -> Option<&'c Counters> {
        if (self.is_in_vain)() {
            return None;
        }
        if self.before > 0 {
            self.before -= 1;
            return None;
        }
        self.counted += 1;
        self.counters
    }
}

impl Observer for CountingObserver<'_> {
    fn evaluated(&mut self, policy: usize, evaluation: PolicyResult) {
        if let Some(counters) = self.next() {
            counters.evaluated(self.policies, policy, evaluation);
        }
    }

    fn spent(&mut self, policy: usize, cost: u64) {
        if let Some(counters) = self.next() {
            counters.spent(self.policies, policy, cost);
        }
    }
}

/// What the configuration and its files name: who writes those runs the gateway.
fn configured_names(snapshot: &Snapshot) -> HashSet<String> {
    let names = snapshot.policies_of_files().chain(snapshot.authorizers.names());
    names.map(str::to_owned).collect()
}

/// The policies of a set that can apply, by kind and place.
fn bound(policies: &AdmissionSet) -> impl Iterator<Item = (CauseKind, &str)> {
    let validating = policies.validating_policies();
    let mutating = policies.mutating_policies();
    validating
        .map(|name| (CauseKind::ValidatingAdmissionPolicy, name))
        .chain(mutating.map(|name| (CauseKind::MutatingAdmissionPolicy, name)))
}
