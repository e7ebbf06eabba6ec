//! Metrics: their names, labels and all values of labels.
//!
//! Handles are created once and kept, so that recording does not look up labels. Every series whose
//! labels are known at the start exists from then on, with 0. The registry is not global, so that
//! one process can run several gateways.

mod counts;
mod families;
mod recorders;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use prometheus::process_collector::ProcessCollector;
use prometheus::{Encoder, IntCounterVec, IntGaugeVec, Registry, TextEncoder};

pub use counts::{
    DurationCounts, EndpointSample, MetricsSample, PolicyCounts, WebhookCounts, histogram_quantile,
};
pub use families::{
    AuthenticationMethod, Code, ConnectionState, Endpoint, Label, Outcome, Phase, PolicyResult,
    UpstreamRecorder,
};
pub use prometheus::{IntCounter, IntGauge};
pub use recorders::PolicyCounters;

use super::per_worker::{WorkerGauge, WorkerSeries};
use families::{ByLabel, ConfiguredNames, Families, OTHER, SeriesLabels, label_pairs, label_values};
use portcullis_policy::authorization::AccessRequestState;
use portcullis_policy::model::{CauseKind, Decision, Time};

/// The decisions of admission.
const ADMISSION_DECISIONS: [Decision; 2] = [Decision::Allow, Decision::Deny];

/// The metrics of one gateway.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// The counters for requests. The fields below contain their numbers.
    requests: WorkerSeries,
    http_requests: [ByLabel<Code, usize>; Endpoint::ALL.len()],
    /// For unknown paths.
    other_requests: ByLabel<Code, usize>,
    authorization_decisions: ByLabel<Decision, usize>,
    admission_decisions: [ByLabel<Decision, usize>; Phase::COUNT],
    authentication_attempts: [ByLabel<Outcome, usize>; AuthenticationMethod::COUNT],
    in_flight: [WorkerGauge; Endpoint::ALL.len()],
    shadow_in_flight: WorkerGauge,
    /// The counters of the policies of each snapshot in use.
    of_policies: Mutex<Vec<Weak<WorkerSeries>>>,
    reloads: ByLabel<Outcome, IntCounter>,
    families: Families,
    configured: ConfiguredNames,
    shadow_labels: Mutex<SeriesLabels>,
}

/// The state of one watched cluster.
#[derive(Debug, Clone, Copy)]
pub struct ClusterState<'a> {
    /// The name of the cluster in the configuration.
    pub cluster: &'a str,
    /// Whether all of its objects were listed.
    pub synced: bool,
    /// The number of objects in force.
    pub objects: usize,
    /// The number of faulty objects.
    pub faulty: usize,
    /// The number of lists and watches that failed so far.
    pub failures: u64,
    /// The number of kinds whose absence is not confirmed.
    pub unconfirmed_absences: usize,
    /// The number of kinds that are not up to date.
    pub outdated_kinds: usize,
    /// The number of objects that were left out, by purpose.
    pub left_out: [(&'static str, usize); 4],
}

// === impl Metrics ===

impl Metrics {
    /// Creates all metrics with the value 0.
    ///
    /// # Errors
    ///
    /// Two metrics have the same name, which the tests rule out.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        registry.register(Box::new(ProcessCollector::for_self()))?;
        let families = Families::new(&registry)?;
        families
            .build_info
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .set(1);
        // Create them with 0, so that the first occurrence counts as an increase.
        for kind in [
            CauseKind::AuthorizationPolicy.as_str(),
            CauseKind::ValidatingAdmissionPolicy.as_str(),
            "MutatingWebhookConfiguration",
            "ValidatingWebhookConfiguration",
        ] {
            families.restrictions_removed.with_label_values(&[kind]);
        }
        let mut series = Vec::new();
        let mut numbered = |counter: IntCounter| {
            series.push(counter);
            series.len() - 1
        };
        Ok(Self {
            http_requests: Endpoint::ALL.map(|endpoint| {
                let labels = |code: Code| [endpoint.as_str(), code.as_str()];
                by_label(&families.http_requests, labels).map(&mut numbered)
            }),
            other_requests: by_label(&families.http_requests, |code: Code| [OTHER, code.as_str()])
                .map(&mut numbered),
            authorization_decisions: by_label(&families.authorization_decisions, |decision: Decision| {
                [decision.as_str()]
            })
            .map(&mut numbered),
            admission_decisions: Phase::ALL.map(|phase| {
                let family = &families.admission_decisions;
                let counter =
                    |decision: Decision| family.with_label_values(&[phase.as_str(), decision.as_str()]);
                ByLabel::only(&ADMISSION_DECISIONS, counter).map(&mut numbered)
            }),
            authentication_attempts: AuthenticationMethod::ALL.map(|method| {
                let labels = |outcome: Outcome| [method.as_str(), outcome.as_str()];
                by_label(&families.authentication_attempts, labels).map(&mut numbered)
            }),
            requests: WorkerSeries::new(series),
            in_flight: Default::default(),
            shadow_in_flight: WorkerGauge::default(),
            of_policies: Mutex::default(),
            reloads: by_label(&families.reloads, |outcome: Outcome| [outcome.as_str()]),
            families,
            configured: ConfiguredNames::default(),
            shadow_labels: Mutex::default(),
            registry,
        })
    }

    /// Records a response with status `code`. `endpoint` is that of the path, if it has one.
    pub fn http_request(&self, endpoint: Option<Endpoint>, code: u16) {
        let codes = match endpoint {
            Some(endpoint) => self.http_requests.get(endpoint.index()),
            None => Some(&self.other_requests),
        };
        match (codes, Code::of(code)) {
            (Some(codes), Some(code)) => codes.record(code, |number| self.requests.add(*number, 1)),
            _ => self
                .families
                .http_requests
                .with_label_values(&[endpoint.map_or(OTHER, Endpoint::as_str), &code.to_string()])
                .inc(),
        }
    }

    /// Records a decision about a SubjectAccessReview. `took` is the time from the decoded review
    /// to the decision.
    pub fn authorization(&self, decision: Decision, took: Duration) {
        self.authorization_decisions
            .record(decision, |number| self.requests.add(*number, 1));
        self.families.decision_duration.observe(Endpoint::Authorize, took);
    }

    /// Records a decision about an AdmissionReview. `took` is the time from the decoded review to
    /// the decision.
    pub fn admission(&self, phase: Phase, allowed: bool, took: Duration) {
        let decision = if allowed { Decision::Allow } else { Decision::Deny };
        if let Some(decisions) = self.admission_decisions.get(phase.index()) {
            decisions.record(decision, |number| self.requests.add(*number, 1));
        }
        self.families.decision_duration.observe(phase.into(), took);
    }

    /// Records an authentication with a method.
    pub fn authentication(&self, method: AuthenticationMethod, outcome: Outcome) {
        if let Some(outcomes) = self.authentication_attempts.get(method.index()) {
            outcomes.record(outcome, |number| self.requests.add(*number, 1));
        }
    }

    /// Records that changed files were loaded, or have faults, at `now`.
    pub fn reload(&self, outcome: Outcome, now: SystemTime) {
        self.reloads.record(outcome, IntCounter::inc);
        match outcome {
            Outcome::Success => self.loaded(now),
            Outcome::Failure => self.not_loaded(),
        }
    }

    /// Records that a policy or webhook of this kind, which could deny requests, is no longer in
    /// force.
    pub fn restriction_removed(&self, kind: &str) {
        self.families
            .restrictions_removed
            .with_label_values(&[kind])
            .inc();
    }

    /// Records that the files on disk were loaded at `now` and are in force, without counting a
    /// reload.
    pub fn loaded(&self, now: SystemTime) {
        self.families.last_reload_success.set(seconds(now));
        self.families.last_reload_successful.set(1);
    }

    /// Records that the files on disk are not in force, but older ones.
    pub fn not_loaded(&self) {
        self.families.last_reload_successful.set(0);
    }

    /// Records an attempt to pull a bundle at `now`. `created` is the time at which the kept bundle
    /// was built; `None` if the attempt failed.
    pub fn bundle_pull(&self, bundle: &str, created: Option<Time>, now: SystemTime) {
        let families = &self.families;
        let outcome = created.map_or(Outcome::Failure, |_| Outcome::Success);
        families
            .bundle_pulls
            .with_label_values(&[bundle, outcome.as_str()])
            .inc();
        if let Some(created) = created {
            let success = families.last_bundle_pull_success.with_label_values(&[bundle]);
            success.set(seconds(now));
            let family = families.bundle_created.with_label_values(&[bundle]);
            family.set(created.as_seconds());
        }
    }

    /// Sets the bundles of the configuration: creates their series, and removes those of others.
    pub fn bundles<'b>(&self, bundles: impl IntoIterator<Item = &'b str>) {
        let families = &self.families;
        let bundles: HashSet<&str> = bundles.into_iter().collect();
        for bundle in &bundles {
            families.last_bundle_pull_success.with_label_values(&[bundle]);
            for outcome in [Outcome::Success, Outcome::Failure] {
                families
                    .bundle_pulls
                    .with_label_values(&[*bundle, outcome.as_str()]);
            }
        }
        for (bundle, outcome) in label_pairs(&families.bundle_pulls, "bundle", "result") {
            if !bundles.contains(bundle.as_str()) {
                // An error means that the series does not exist.
                let _gone = families.bundle_pulls.remove_label_values(&[&bundle, &outcome]);
                let _gone = families.last_bundle_pull_success.remove_label_values(&[&bundle]);
                let _gone = families.bundle_created.remove_label_values(&[&bundle]);
            }
        }
    }

    /// Sets the `revision` in force, and removes the series of the one before.
    pub fn configuration(&self, revision: &str) {
        let info = &self.families.configuration_info;
        info.with_label_values(&[revision]).set(1);
        for old in label_values(info, "revision") {
            if old != revision {
                // An error means that the series does not exist.
                let _gone = info.remove_label_values(&[&old]);
            }
        }
    }

    /// Sets the names in the configuration and its files, which have series of their own. Of other
    /// names, the first 1,000 in a family have series of their own, and the rest counts together as
    /// `other`.
    pub fn configured(&self, names: HashSet<String>) {
        self.configured.replace(names);
    }

    /// Returns the counters of each policy, in the given order, and removes the series of other
    /// policies.
    pub fn policies<'a>(
        &self,
        policies: impl IntoIterator<Item = (CauseKind, &'a str)>,
    ) -> Vec<PolicyCounters> {
        let policies: Vec<_> = policies.into_iter().collect();
        let labels = self.configured.labels(policies.iter().map(|(_, name)| *name));
        let mut names = HashSet::new();
        let mut series = Vec::with_capacity(policies.len() * PolicyCounters::COUNT);
        for (kind, name) in &policies {
            let (kind, name) = (kind.as_str(), labels.of(name));
            names.insert((kind, name));
            let results = PolicyResult::ALL.into_iter();
            series.extend(results.map(|result| {
                let family = &self.families.policy_evaluations;
                family.with_label_values(&[kind, name, result.as_str()])
            }));
            series.push(self.families.policy_cost.with_label_values(&[kind, name]));
        }
        let counts = Arc::new(WorkerSeries::new(series));
        let counters = PolicyCounters::of_all(&counts, policies.len());
        let mut of_policies = self.of_policies.lock().unwrap_or_else(PoisonError::into_inner);
        of_policies.retain(|counts| counts.strong_count() > 0);
        of_policies.push(Arc::downgrade(&counts));
        drop(of_policies);
        for (kind, name) in label_pairs(&self.families.policy_evaluations, "kind", "name") {
            if !names.contains(&(kind.as_str(), name.as_str())) {
                self.families.end_policy(&kind, &name);
            }
        }
        counters
    }

    /// Sets the expiry of the policies that have one, past or future. If several policies share a
    /// name or count together, the earliest expiry is used. Removes the series of others.
    pub fn policy_expirations<'a>(&self, policies: impl IntoIterator<Item = (CauseKind, &'a str, Time)>) {
        let policies: Vec<_> = policies.into_iter().collect();
        let labels = self.configured.labels(policies.iter().map(|(_, name, _)| *name));
        let mut ends: BTreeMap<(&str, &str), Time> = BTreeMap::new();
        for (kind, name, end) in policies {
            let first = ends.entry((kind.as_str(), labels.of(name))).or_insert(end);
            *first = end.min(*first);
        }
        self.families.policy_expirations.reset();
        for ((kind, name), end) in ends {
            let series = self.families.policy_expirations.with_label_values(&[kind, name]);
            series.set(end.as_seconds());
        }
    }

    /// Sets for each cluster whether an invariant, by name, holds; `None` if that is not known.
    /// Removes the series of others.
    pub fn invariants<'a>(&self, invariants: impl IntoIterator<Item = (&'a str, Option<bool>)>) {
        let invariants: Vec<_> = invariants.into_iter().collect();
        let labels = self.configured.labels(invariants.iter().map(|(name, _)| *name));
        let (mut broken, mut undecided) = (BTreeMap::new(), BTreeMap::new());
        for (name, holds) in invariants {
            let name = labels.of(name);
            *undecided.entry(name).or_default() += usize::from(holds.is_none());
            if let Some(holds) = holds {
                *broken.entry(name).or_default() += usize::from(!holds);
            }
        }
        set_all(&self.families.broken_invariants, &broken);
        set_all(&self.families.undecided_invariants, &undecided);
    }

    /// Returns the recorders of each webhook behind the gateway, in the given order, and removes
    /// the series of other webhooks.
    pub fn upstreams<'a>(&self, webhooks: impl IntoIterator<Item = &'a str>) -> Vec<UpstreamRecorder> {
        let families = &self.families;
        let webhooks: Vec<&str> = webhooks.into_iter().collect();
        let labels = self.configured.labels(webhooks.iter().copied());
        let mut names = HashSet::new();
        let recorder_of = |webhook: &'a str| {
            let webhook = labels.of(webhook);
            names.insert(webhook);
            UpstreamRecorder {
                requests: ByLabel::new(|outcome: Outcome| {
                    families
                        .upstream_requests
                        .with_label_values(&[webhook, outcome.as_str()])
                }),
                duration: families.upstream_duration.with_label_values(&[webhook]),
                breaker_open: families.upstream_breaker_open.with_label_values(&[webhook]),
            }
        };
        let recorders = webhooks.into_iter().map(recorder_of).collect();
        for (webhook, _) in label_pairs(&families.upstream_requests, "webhook", "result") {
            if !names.contains(webhook.as_str()) {
                families.end_upstream(&webhook);
            }
        }
        recorders
    }

    /// The number of requests of an endpoint that are being read or answered.
    #[must_use]
    pub(crate) const fn in_flight(&self, endpoint: Endpoint) -> &WorkerGauge {
        let [authorize, validate, mutate] = &self.in_flight;
        match endpoint {
            Endpoint::Authorize => authorize,
            Endpoint::Validate => validate,
            Endpoint::Mutate => mutate,
        }
    }

    /// The number of connections in each state, in the order of the states.
    #[must_use]
    pub fn connections(&self) -> [IntGauge; ConnectionState::COUNT] {
        let family = &self.families.connections;
        ConnectionState::ALL.map(|state| family.with_label_values(&[state.as_str()]))
    }

    /// The number of reviews for which webhooks in shadow are being called.
    #[must_use]
    pub(crate) const fn shadow_in_flight(&self) -> &WorkerGauge {
        &self.shadow_in_flight
    }

    /// Records that webhooks in shadow were not called for a review.
    pub fn shadow_dropped(&self) {
        self.families.shadow_dropped.inc();
    }

    /// Records the decision that a webhook in shadow would have made.
    pub fn shadow_webhook(&self, webhook: &str, decision: Decision) {
        let family = &self.families.shadow_webhooks;
        let labels = self.shadow_labels.lock().unwrap_or_else(PoisonError::into_inner);
        let webhook = labels.of(webhook);
        family.with_label_values(&[webhook, decision.as_str()]).inc();
    }

    /// Sets the webhooks that are in shadow: creates their series, and removes those of others.
    pub fn shadow_webhooks(&self, webhooks: impl IntoIterator<Item = String>) {
        let family = &self.families.shadow_webhooks;
        let webhooks: Vec<String> = webhooks.into_iter().collect();
        let labels = self.configured.labels(webhooks.iter().map(String::as_str));
        let names: HashSet<&str> = webhooks.iter().map(|webhook| labels.of(webhook)).collect();
        for webhook in &names {
            for decision in ADMISSION_DECISIONS {
                family.with_label_values(&[webhook, decision.as_str()]);
            }
        }
        for (webhook, decision) in label_pairs(family, "webhook", "decision") {
            if !names.contains(webhook.as_str()) {
                // An error means that the series does not exist.
                let _gone = family.remove_label_values(&[&webhook, &decision]);
            }
        }
        *self.shadow_labels.lock().unwrap_or_else(PoisonError::into_inner) = labels;
    }

    /// Counts lost lines of the log.
    #[must_use]
    pub fn log_dropped(&self) -> IntCounter {
        self.families.log_dropped.clone()
    }

    /// Counts lost lines of the decision log.
    #[must_use]
    pub fn decision_log_dropped(&self) -> IntCounter {
        self.families.decision_log_dropped.clone()
    }

    /// Counts reviews that were not recorded.
    #[must_use]
    pub fn recording_dropped(&self) -> IntCounter {
        self.families.recording_dropped.clone()
    }

    /// Counts decisions that are missing in the usage files.
    #[must_use]
    pub fn usage_dropped(&self) -> IntCounter {
        self.families.usage_dropped.clone()
    }

    /// Counts decisions that have no row of their own in the usage files.
    #[must_use]
    pub fn usage_other(&self) -> IntCounter {
        self.families.usage_other.clone()
    }

    /// Counts spans that were not sent.
    #[must_use]
    pub fn trace_spans_dropped(&self) -> IntCounter {
        self.families.trace_spans_dropped.clone()
    }

    /// Counts decisions that were not sent as log records.
    #[must_use]
    pub fn log_records_dropped(&self) -> IntCounter {
        self.families.log_records_dropped.clone()
    }

    /// Sets the expiry of each certificate in use, by file, name and use. Removes the series of
    /// others.
    pub fn certificates<T: AsRef<str>>(&self, expiries: impl IntoIterator<Item = ([T; 3], SystemTime)>) {
        self.families.certificate_expiry.reset();
        for (labels, expiry) in expiries {
            let labels: Vec<&str> = labels.iter().map(AsRef::as_ref).collect();
            self.families
                .certificate_expiry
                .with_label_values(&labels)
                .set(seconds(expiry));
        }
    }

    /// Sets the state of the watched clusters. Removes the series of others.
    pub fn clusters<'a>(&self, clusters: impl IntoIterator<Item = ClusterState<'a>>) {
        let families = &self.families;
        let gauges = [
            &families.cluster_synced,
            &families.cluster_objects,
            &families.cluster_invalid_objects,
            &families.cluster_unconfirmed_absences,
            &families.cluster_outdated_kinds,
        ];
        gauges.iter().for_each(|family| family.reset());
        families.cluster_watch_failures.reset();
        families.cluster_left_out_objects.reset();
        for state in clusters {
            let values = [
                usize::from(state.synced),
                state.objects,
                state.faulty,
                state.unconfirmed_absences,
                state.outdated_kinds,
            ];
            for (family, value) in gauges.iter().zip(values) {
                family.with_label_values(&[state.cluster]).set(gauged(value));
            }
            for (purpose, count) in state.left_out {
                let family = &families.cluster_left_out_objects;
                family
                    .with_label_values(&[state.cluster, purpose])
                    .set(gauged(count));
            }
            let failures = families
                .cluster_watch_failures
                .with_label_values(&[state.cluster]);
            failures.inc_by(state.failures);
        }
    }

    /// Sets the number of webhooks of a cluster that are not called because there are too many.
    /// Call it after [`clusters`](Self::clusters).
    pub fn cluster_webhooks_left_out<'a>(&self, left_out: impl IntoIterator<Item = (&'a str, usize)>) {
        let family = &self.families.cluster_left_out_objects;
        for (cluster, count) in left_out {
            family
                .with_label_values(&[cluster, "webhooks"])
                .set(gauged(count));
        }
    }

    /// Sets the number of faults in the files of each cluster. Removes the series of others.
    pub fn cluster_files<'a>(&self, faults: impl IntoIterator<Item = (&'a str, usize)>) {
        let family = &self.families.cluster_file_faults;
        family.reset();
        for (cluster, faults) in faults {
            let faults = i64::try_from(faults).unwrap_or(i64::MAX);
            family.with_label_values(&[cluster]).set(faults);
        }
    }

    /// Sets the number of AccessRequests in each state.
    pub fn access_requests(&self, states: impl IntoIterator<Item = AccessRequestState>) {
        let mut counts = AccessRequestState::ALL.map(|state| (state.as_str(), 0));
        for state in states {
            for (_, count) in counts.iter_mut().filter(|(name, _)| *name == state.as_str()) {
                *count += 1;
            }
        }
        set_all(&self.families.access_requests, &counts.into());
    }

    /// Sets for each cluster whether its requests are answered with 503 because of faults in its
    /// files. Removes the series of others.
    pub fn cluster_unknown_policies<'a>(&self, unknown: impl IntoIterator<Item = (&'a str, bool)>) {
        let family = &self.families.cluster_unknown_policies;
        family.reset();
        for (cluster, is_unknown) in unknown {
            family.with_label_values(&[cluster]).set(is_unknown.into());
        }
    }

    /// Encodes all metrics in Prometheus' text format, version 0.0.4.
    ///
    /// # Errors
    /// Only if a metric is inconsistent.
    pub fn encode(&self) -> Result<Vec<u8>, prometheus::Error> {
        self.gather();
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

/// A counter of `family` for each value of a label.
fn by_label<L: Label, const N: usize>(
    family: &IntCounterVec,
    values: impl Fn(L) -> [&'static str; N],
) -> ByLabel<L, IntCounter> {
    ByLabel::new(|label| family.with_label_values(&values(label)))
}

fn seconds(time: SystemTime) -> f64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}

/// Sets these series, and removes others.
fn set_all(family: &IntGaugeVec, counts: &BTreeMap<&str, usize>) {
    family.reset();
    for (name, count) in counts {
        family.with_label_values(&[name]).set(gauged(*count));
    }
}

fn gauged(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
