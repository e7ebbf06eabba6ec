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

/// The counters of the snapshot in force, and of earlier ones that requests still use. They are
/// created before their snapshot comes into force.
pub(crate) struct CountersInForce {
    metrics: Arc<Metrics>,
    generations: ArcSwap<SnapshotCounters>,
}

/// Counters by snapshot, the newest first. They are kept as long as their snapshot.
#[derive(Default)]
pub(crate) struct SnapshotCounters(Vec<(Weak<Snapshot>, Arc<Counters>)>);

/// The counters of the policies of one snapshot, by the address of their set.
pub(crate) struct Counters {
    sets: HashMap<usize, Vec<PolicyCounters>>,
    admission: HashMap<usize, AdmissionCounters>,
}

/// The counters of the admission policies of one cluster, in the order of the policies.
struct AdmissionCounters {
    validating: Vec<PolicyCounters>,
    mutating: Vec<PolicyCounters>,
}

/// Counts the results of one authorization decision.
pub(crate) struct CountingObserver<'c> {
    /// `None` if nothing is counted.
    pub(crate) counters: Option<&'c Counters>,
    pub(crate) policies: &'c Arc<PolicySet>,
    /// Whether the decision will be discarded and repeated.
    pub(crate) will_be_discarded: &'c dyn Fn() -> bool,
    /// The number of results still to skip, because an earlier attempt counted them.
    pub(crate) to_skip: usize,
    /// The number of results that were counted, by earlier attempts too.
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

    /// Creates the counters of `snapshot`, which is about to come into force.
    pub(crate) fn prepare(&self, snapshot: &Arc<Snapshot>) {
        let counters = Arc::new(Counters::new(snapshot, &self.metrics));
        let before = self.generations.load();
        let in_use = before.0.iter().filter(|(of, _)| of.strong_count() > 0);
        let mut generations = vec![(Arc::downgrade(snapshot), counters)];
        generations.extend(in_use.cloned());
        self.generations.store(Arc::new(SnapshotCounters(generations)));
    }

    pub(crate) fn load(&self) -> Guard<Arc<SnapshotCounters>> {
        self.generations.load()
    }
}

// === impl SnapshotCounters ===

impl SnapshotCounters {
    /// The counters of `snapshot`, which is or was in force.
    pub(crate) fn of(&self, snapshot: &Arc<Snapshot>) -> Option<&Counters> {
        let mut generations = self.0.iter();
        let found = generations.find(|(of, _)| ptr::eq(of.as_ptr(), Arc::as_ptr(snapshot)));
        found.map(|(_, counters)| counters.as_ref())
    }
}

// === impl Counters ===

impl Counters {
    /// Creates the series of `snapshot`, and removes those of objects that it no longer has.
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
        // A set that several clusters share is counted once.
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
            .policies(names.chain(admission.iter().flat_map(|set| policy_names(set))))
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

    /// Counts a result of the policy at `index` of `policies`.
    fn evaluated(&self, policies: &Arc<PolicySet>, index: usize, evaluation: PolicyResult) {
        let set = self.sets.get(&policies.policies_address());
        if let Some(counters) = set.and_then(|set| set.get(index)) {
            counters.record(evaluation);
        }
    }

    /// Adds the CEL cost of the conditions of the policy at `index` of `policies`.
    fn spent(&self, policies: &Arc<PolicySet>, index: usize, cost: u64) {
        let set = self.sets.get(&policies.policies_address());
        if let Some(counters) = set.and_then(|set| set.get(index)) {
            counters.spent(cost);
        }
    }

    /// Counts the result and the CEL cost of an admission policy, or of an AuthorizationPolicy with
    /// `objectConditions`.
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
    /// The counters for the next result; `None` if an earlier attempt counted it or a later one
    /// will.
    fn next(&mut self) -> Option<&'c Counters> {
        if (self.will_be_discarded)() {
            return None;
        }
        if self.to_skip > 0 {
            self.to_skip -= 1;
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

/// The names in the configuration and its files, which the operator of the gateway writes.
fn configured_names(snapshot: &Snapshot) -> HashSet<String> {
    let names = snapshot.policies_of_files().chain(snapshot.authorizers.names());
    names.map(str::to_owned).collect()
}

/// The kind and name of each admission policy in the set, in the order of the counters.
fn policy_names(policies: &AdmissionSet) -> impl Iterator<Item = (CauseKind, &str)> {
    let validating = policies.validating_policies();
    let mutating = policies.mutating_policies();
    validating
        .map(|name| (CauseKind::ValidatingAdmissionPolicy, name))
        .chain(mutating.map(|name| (CauseKind::MutatingAdmissionPolicy, name)))
}
