//! Metrics: names, labels and every value a label can take.
//!
//! Handles are created once and kept, so recording does not look up labels. Every series
//! whose labels are known at the start exists from then on with 0. The registry is not
//! global, so that one process can run several gateways.

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

/// The decisions that admission makes.
const ADMISSION_DECISIONS: [Decision; 2] = [Decision::Allow, Decision::Deny];

/// The recorders of one gateway.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// What requests count, by the numbers in the fields below.
    requests: WorkerSeries,
    http_requests: [ByLabel<Code, usize>; Endpoint::ALL.len()],
    /// Of paths that are no endpoint.
    other_requests: ByLabel<Code, usize>,
    authorization_decisions: ByLabel<Decision, usize>,
    admission_decisions: [ByLabel<Decision, usize>; Phase::COUNT],
    authentication_attempts: [ByLabel<Outcome, usize>; AuthenticationMethod::COUNT],
    in_flight: [WorkerGauge; Endpoint::ALL.len()],
    shadow_in_flight: WorkerGauge,
    /// The counters of policies, of each snapshot by which requests are decided.
    of_policies: Mutex<Vec<Weak<WorkerSeries>>>,
    reloads: ByLabel<Outcome, IntCounter>,
    families: Families,
    configured: ConfiguredNames,
    shadow_labels: Mutex<SeriesLabels>,
}

/// How it stands with one cluster whose objects are watched.
#[derive(Debug, Clone, Copy)]
pub struct ClusterState<'a> {
    /// Its name in the configuration.
    pub cluster: &'a str,
    /// Whether all of its objects were listed.
    pub synced: bool,
    /// How many hold.
    pub objects: usize,
    /// How many have faults.
    pub faulty: usize,
    /// How many lists and watches failed so far.
    pub failures: u64,
    /// Of how many kinds absence is not believed.
    pub unconfirmed_absences: usize,
    /// How many kinds are not up to date.
    pub outdated_kinds: usize,
    /// How many objects were left out, by what they are for.
    pub left_out: [(&'static str, usize); 4],
}

// === impl Metrics ===

impl Metrics {
    /// All recorders, at 0.
    ///
    /// # Errors
    /// Only if two metrics had one name, which the tests exclude.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        registry.register(Box::new(ProcessCollector::for_self()))?;
        let families = Families::new(&registry)?;
        families
            .build_info
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .set(1);
        // From 0 on, so that the first of each counts as an increase.
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

    /// A request was answered with `code`; its path was `endpoint`, or none.
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

    /// A SubjectAccessReview was answered; `took` from the decoded review to the decision.
    pub fn authorization(&self, decision: Decision, took: Duration) {
        self.authorization_decisions
            .record(decision, |number| self.requests.add(*number, 1));
        self.families.decision_duration.observe(Endpoint::Authorize, took);
    }

    /// An AdmissionReview was answered; `took` from the decoded review to the decision.
    pub fn admission(&self, phase: Phase, allowed: bool, took: Duration) {
        let decision = if allowed { Decision::Allow } else { Decision::Deny };
        if let Some(decisions) = self.admission_decisions.get(phase.index()) {
            decisions.record(decision, |number| self.requests.add(*number, 1));
        }
        self.families.decision_duration.observe(phase.into(), took);
    }

    /// A credential, or the lack of one, settled who calls.
    pub fn authentication(&self, method: AuthenticationMethod, outcome: Outcome) {
        if let Some(outcomes) = self.authentication_attempts.get(method.index()) {
            outcomes.record(outcome, |number| self.requests.add(*number, 1));
        }
    }

    /// Changed files were loaded, or found faulty, at `now`.
    pub fn reload(&self, outcome: Outcome, now: SystemTime) {
        self.reloads.record(outcome, IntCounter::inc);
        match outcome {
            Outcome::Success => self.loaded(now),
            Outcome::Failure => self.not_loaded(),
        }
    }

    /// A policy of this kind refused requests and does so no more.
    pub fn restriction_removed(&self, kind: &str) {
        self.families
            .restrictions_removed
            .with_label_values(&[kind])
            .inc();
    }

    /// The files on disk were loaded at `now` and are in force: at the start, which is no reload.
    pub fn loaded(&self, now: SystemTime) {
        self.families.last_reload_success.set(seconds(now));
        self.families.last_reload_successful.set(1);
    }

    /// The files on disk are not in force: older ones serve.
    pub fn not_loaded(&self) {
        self.families.last_reload_successful.set(0);
    }

    /// A bundle was pulled at `now`: the one that is kept was built then, or none was taken.
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

    /// These are the bundles of the configuration: their series exist, and those of others end.
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
                // An error means that the series is gone already.
                let _gone = families.bundle_pulls.remove_label_values(&[&bundle, &outcome]);
                let _gone = families.last_bundle_pull_success.remove_label_values(&[&bundle]);
                let _gone = families.bundle_created.remove_label_values(&[&bundle]);
            }
        }
    }

    /// `revision` names what is in force. The series of the one before ends.
    pub fn configuration(&self, revision: &str) {
        let info = &self.families.configuration_info;
        info.with_label_values(&[revision]).set(1);
        for old in label_values(info, "revision") {
            if old != revision {
                // An error means that the series is gone already.
                let _gone = info.remove_label_values(&[&old]);
            }
        }
    }

    /// From now on these names, of objects in files, have series of their own. Of all others the
    /// first 1,000 of a family have, and the rest counts together as `other`.
    pub fn configured(&self, names: HashSet<String>) {
        self.configured.replace(names);
    }

    /// The counters of each policy, in the order given. Series of policies that
    /// are not among them end.
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

    /// The policies that have an end, past or to come; of one that stands for
    /// several clusters, and of those that count together, the first end counts. Series of others
    /// end.
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

    /// For each cluster whether an invariant, by name, holds; `None` where that is not known. Series
    /// of others end.
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

    /// The recorders of each webhook behind the gateway, in the order given.
    /// Series of webhooks that are not among them end.
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

    /// How many requests of an endpoint are being read or answered.
    #[must_use]
    pub(crate) const fn in_flight(&self, endpoint: Endpoint) -> &WorkerGauge {
        let [authorize, validate, mutate] = &self.in_flight;
        match endpoint {
            Endpoint::Authorize => authorize,
            Endpoint::Validate => validate,
            Endpoint::Mutate => mutate,
        }
    }

    /// How many connections are in each state, in the order of the states.
    #[must_use]
    pub fn connections(&self) -> [IntGauge; ConnectionState::COUNT] {
        let family = &self.families.connections;
        ConnectionState::ALL.map(|state| family.with_label_values(&[state.as_str()]))
    }

    /// About how many reviews webhooks in shadow are being asked.
    #[must_use]
    pub(crate) const fn shadow_in_flight(&self) -> &WorkerGauge {
        &self.shadow_in_flight
    }

    /// Webhooks in shadow were not asked about a review.
    pub fn shadow_dropped(&self) {
        self.families.shadow_dropped.inc();
    }

    /// A webhook in shadow would have decided so.
    pub fn shadow_webhook(&self, webhook: &str, decision: Decision) {
        let family = &self.families.shadow_webhooks;
        let labels = self.shadow_labels.lock().unwrap_or_else(PoisonError::into_inner);
        let webhook = labels.of(webhook);
        family.with_label_values(&[webhook, decision.as_str()]).inc();
    }

    /// These webhooks, and no others, are in shadow from now on: their series exist, and those of
    /// others end.
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
                // An error means that the series is gone already.
                let _gone = family.remove_label_values(&[&webhook, &decision]);
            }
        }
        *self.shadow_labels.lock().unwrap_or_else(PoisonError::into_inner) = labels;
    }

    /// The count of lines that the log lost.
    #[must_use]
    pub fn log_dropped(&self) -> IntCounter {
        self.families.log_dropped.clone()
    }

    /// The count of lines that the decision log lost.
    #[must_use]
    pub fn decision_log_dropped(&self) -> IntCounter {
        self.families.decision_log_dropped.clone()
    }

    /// The count of reviews that the recording lost.
    #[must_use]
    pub fn recording_dropped(&self) -> IntCounter {
        self.families.recording_dropped.clone()
    }

    /// The count of decisions that are in no file of usage.
    #[must_use]
    pub fn usage_dropped(&self) -> IntCounter {
        self.families.usage_dropped.clone()
    }

    /// The count of decisions that have no row of their own in usage.
    #[must_use]
    pub fn usage_other(&self) -> IntCounter {
        self.families.usage_other.clone()
    }

    /// The count of spans that nobody will see.
    #[must_use]
    pub fn trace_spans_dropped(&self) -> IntCounter {
        self.families.trace_spans_dropped.clone()
    }

    /// The count of decisions that no collector gets as log records.
    #[must_use]
    pub fn log_records_dropped(&self) -> IntCounter {
        self.families.log_records_dropped.clone()
    }

    /// When each certificate in use ends, by file, name and use. Series of others end.
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

    /// How it stands with the clusters that are watched now. Series of others end.
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

    /// How many webhooks of a cluster are too many to be called, after [`clusters`](Self::clusters).
    pub fn cluster_webhooks_left_out<'a>(&self, left_out: impl IntoIterator<Item = (&'a str, usize)>) {
        let family = &self.families.cluster_left_out_objects;
        for (cluster, count) in left_out {
            family
                .with_label_values(&[cluster, "webhooks"])
                .set(gauged(count));
        }
    }

    /// How many faults the files have that hold for one cluster alone. Series of others end.
    pub fn cluster_files<'a>(&self, faults: impl IntoIterator<Item = (&'a str, usize)>) {
        let family = &self.families.cluster_file_faults;
        family.reset();
        for (cluster, faults) in faults {
            let faults = i64::try_from(faults).unwrap_or(i64::MAX);
            family.with_label_values(&[cluster]).set(faults);
        }
    }

    /// The states of all AccessRequests.
    pub fn access_requests(&self, states: impl IntoIterator<Item = AccessRequestState>) {
        let mut counts = AccessRequestState::ALL.map(|state| (state.as_str(), 0));
        for state in states {
            for (_, count) in counts.iter_mut().filter(|(name, _)| *name == state.as_str()) {
                *count += 1;
            }
        }
        set_all(&self.families.access_requests, &counts.into());
    }

    /// Which of these clusters have requests that are not decided because of faulty files of theirs.
    /// Series of others end.
    pub fn cluster_unknown_policies<'a>(&self, unknown: impl IntoIterator<Item = (&'a str, bool)>) {
        let family = &self.families.cluster_unknown_policies;
        family.reset();
        for (cluster, is_unknown) in unknown {
            family.with_label_values(&[cluster]).set(is_unknown.into());
        }
    }

    /// Everything in Prometheus' text format, version 0.0.4.
    ///
    /// # Errors
    /// Only if a metric were inconsistent in itself.
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

/// Has these series and no others.
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
