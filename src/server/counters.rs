//! Metrics of the snapshot in force: policies and certificates.

use std::collections::HashMap;
use std::sync::Arc;

use crate::engine::admission::AdmissionSet;
use crate::engine::authorization::PolicySet;
use crate::engine::{CauseKind, PolicyResult};
use crate::reload::Snapshot;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::PolicyCounters;

/// The counters of the policies of one snapshot.
pub(super) struct Counters {
    revision: Arc<str>,
    sets: HashMap<usize, Set>,
    admission: HashMap<usize, AdmissionCounters>,
}

/// The counters of one set, in the order of its policies. The set is held so
/// that its address is not used again.
struct Set {
    _policies: Arc<PolicySet>,
    counters: Vec<PolicyCounters>,
}

/// The counters of what one cluster's admission is decided by.
struct AdmissionCounters {
    _policies: Arc<AdmissionSet>,
    validating: Vec<PolicyCounters>,
    mutating: Vec<PolicyCounters>,
}

// === impl Counters ===

impl Counters {
    /// Begins the series of `snapshot` and ends those of what it no longer has.
    pub(super) fn new(snapshot: &Snapshot, metrics: &Metrics) -> Self {
        metrics.certificates(snapshot.expiries.iter().map(|expiry| {
            let labels = [
                expiry.file.to_string_lossy(),
                expiry.name.as_str().into(),
                expiry.used_for.as_str().into(),
            ];
            (labels, expiry.at)
        }));
        let authorizers = &snapshot.authorizers;
        authorizers.record_to(snapshot.upstreams.observe(metrics, authorizers.names()));
        let policies = &snapshot.policies;
        let sets: Vec<_> = [&policies.shared]
            .into_iter()
            .chain(policies.clusters.values())
            .collect();
        let admission: Vec<_> = [&snapshot.admission.shared]
            .into_iter()
            .chain(snapshot.admission.clusters.values())
            .collect();
        let ends = sets.iter().flat_map(|set| set.ends());
        let ends = ends.map(|(name, end)| (CauseKind::AuthorizationPolicy, name, end));
        let exceptions = admission.iter().flat_map(|set| set.exception_ends());
        let exceptions = exceptions.map(|(name, end)| (CauseKind::AdmissionException, name, end));
        metrics.policies_ending(ends.chain(exceptions));
        let names = sets.iter().flat_map(|set| set.policies());
        let names = names.map(|(kind, name)| (kind, name.as_ref()));
        let mut counters = metrics
            .policies(names.chain(admission.iter().flat_map(|set| bound(set))))
            .into_iter();
        let mut set_of = |policies: &Arc<PolicySet>| Set {
            _policies: Arc::clone(policies),
            counters: counters.by_ref().take(policies.policies().len()).collect(),
        };
        let sets = sets
            .into_iter()
            .map(|policies| (address(policies), set_of(policies)))
            .collect();
        let admission = admission
            .into_iter()
            .map(|policies| {
                let mut take = |count: usize| -> Vec<_> { counters.by_ref().take(count).collect() };
                let of_set = AdmissionCounters {
                    _policies: Arc::clone(policies),
                    validating: take(policies.validating_policies().count()),
                    mutating: take(policies.mutating_policies().count()),
                };
                (Arc::as_ptr(policies).addr(), of_set)
            })
            .collect();
        Self {
            revision: Arc::clone(&snapshot.revision),
            sets,
            admission,
        }
    }

    /// Whether they are those of `snapshot`.
    pub(super) fn are_of(&self, snapshot: &Snapshot) -> bool {
        Arc::ptr_eq(&self.revision, &snapshot.revision)
    }

    /// Counts what the policy at `index` of `policies` came to.
    pub(super) fn evaluated(&self, policies: &Arc<PolicySet>, index: usize, evaluation: PolicyResult) {
        let set = self.sets.get(&address(policies));
        if let Some(counters) = set.and_then(|set| set.counters.get(index)) {
            counters.record(evaluation);
        }
    }

    /// Counts what the policy of this kind at `place` came to.
    pub(super) fn admission_evaluated(
        &self,
        policies: &Arc<AdmissionSet>,
        kind: CauseKind,
        place: usize,
        evaluation: PolicyResult,
    ) {
        let set = self.admission.get(&Arc::as_ptr(policies).addr());
        let counters = set.and_then(|set| match kind {
            CauseKind::ValidatingAdmissionPolicy => set.validating.get(place),
            CauseKind::MutatingAdmissionPolicy => set.mutating.get(place),
            _ => None,
        });
        if let Some(counters) = counters {
            counters.record(evaluation);
        }
    }
}

/// The policies of a set that can apply, by kind and place.
fn bound(policies: &AdmissionSet) -> impl Iterator<Item = (CauseKind, &str)> {
    let validating = policies.validating_policies();
    let mutating = policies.mutating_policies();
    validating
        .map(|name| (CauseKind::ValidatingAdmissionPolicy, name))
        .chain(mutating.map(|name| (CauseKind::MutatingAdmissionPolicy, name)))
}

fn address(policies: &Arc<PolicySet>) -> usize {
    Arc::as_ptr(policies).addr()
}
