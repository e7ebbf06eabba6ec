//! Metric families (name, help and labels), the values of labels, and the recorders of one webhook
//! behind the gateway. The values of a label are known at compile time, or are names of objects.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Error, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry,
};

use super::recorders::DecisionDurations;
use portcullis_policy::model::Decision;

pub use crate::config::Endpoint;
pub use portcullis_policy::admission::Phase;
pub use portcullis_policy::model::PolicyResult;

/// The upper bounds of the buckets for calls over a network, in seconds, from 0.2 ms to the longest
/// timeout.
const CALL_BUCKETS: [f64; 16] = [
    2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
];

/// The metrics, before their labels have values.
#[derive(Debug)]
pub(crate) struct Families {
    pub(crate) http_requests: IntCounterVec,
    pub(crate) authorization_decisions: IntCounterVec,
    pub(crate) admission_decisions: IntCounterVec,
    pub(crate) decision_duration: DecisionDurations,
    pub(crate) authentication_attempts: IntCounterVec,
    pub(crate) reloads: IntCounterVec,
    pub(crate) restrictions_removed: IntCounterVec,
    pub(crate) last_reload_success: Gauge,
    pub(crate) last_reload_successful: IntGauge,
    pub(crate) bundle_pulls: IntCounterVec,
    pub(crate) last_bundle_pull_success: GaugeVec,
    pub(crate) bundle_created: GaugeVec,
    pub(crate) configuration_info: IntGaugeVec,
    pub(crate) log_dropped: IntCounter,
    pub(crate) policy_evaluations: IntCounterVec,
    pub(crate) policy_cost: IntCounterVec,
    pub(crate) policy_expirations: GaugeVec,
    pub(crate) access_requests: IntGaugeVec,
    pub(crate) broken_invariants: IntGaugeVec,
    pub(crate) undecided_invariants: IntGaugeVec,
    pub(crate) upstream_requests: IntCounterVec,
    pub(crate) upstream_duration: HistogramVec,
    pub(crate) upstream_breaker_open: IntGaugeVec,
    pub(crate) in_flight: IntGaugeVec,
    pub(crate) shadow_in_flight: IntGauge,
    pub(crate) shadow_dropped: IntCounter,
    pub(crate) shadow_webhooks: IntCounterVec,
    pub(crate) decision_log_dropped: IntCounter,
    pub(crate) recording_dropped: IntCounter,
    pub(crate) usage_dropped: IntCounter,
    pub(crate) usage_other: IntCounter,
    pub(crate) trace_spans_dropped: IntCounter,
    pub(crate) log_records_dropped: IntCounter,
    pub(crate) connections: IntGaugeVec,
    pub(crate) certificate_expiry: GaugeVec,
    pub(crate) cluster_synced: IntGaugeVec,
    pub(crate) cluster_objects: IntGaugeVec,
    pub(crate) cluster_invalid_objects: IntGaugeVec,
    pub(crate) cluster_unconfirmed_absences: IntGaugeVec,
    pub(crate) cluster_outdated_kinds: IntGaugeVec,
    pub(crate) cluster_left_out_objects: IntGaugeVec,
    pub(crate) cluster_watch_failures: IntCounterVec,
    pub(crate) cluster_file_faults: IntGaugeVec,
    pub(crate) cluster_unknown_policies: IntGaugeVec,
    pub(crate) build_info: IntGaugeVec,
}

/// Creates metrics and registers them.
struct Registrar<'r>(&'r Registry);

/// A label whose values are known at compile time.
pub trait Label: Copy + Eq + 'static {
    /// Each value once.
    const VALUES: &'static [Self];

    /// The value in metrics.
    fn as_str(self) -> &'static str;
}

/// Declares a label: its values and how metrics spell them.
macro_rules! label {
    ($(#[$about:meta])* $name:ident { $($(#[$value_about:meta])* $value:ident => $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$value_about])* $value,)+
        }

        impl $name {
            /// How many values there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Each value once, in the order of [`index`](Self::index).
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$value),+];

            /// The index of this value.
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }

            /// The value in metrics.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }

        impl Label for $name {
            const VALUES: &'static [Self] = &Self::ALL;

            fn as_str(self) -> &'static str {
                Self::as_str(self)
            }
        }
    };
}

label! {
    /// `state`: how far the client of a connection is authenticated.
    ConnectionState {
        /// Its TLS handshake is not complete.
        Handshake => "handshake",
        /// It is not authenticated yet.
        Unauthenticated => "unauthenticated",
        /// It has a certificate of the client CA, or a request of it was accepted.
        Authenticated => "authenticated",
    }
}

label! {
    /// `method`: the credential with which a caller was authenticated, or failed to be.
    AuthenticationMethod {
        /// A client certificate.
        Certificate => "certificate",
        /// A bearer token of a kubeconfig, or an unknown one.
        Bearer => "bearer",
        /// A user name and password.
        Basic => "basic",
        /// A bearer token that an issuer signed: a JSON Web Token.
        Jwt => "jwt",
        /// A token in the path of the request.
        PathToken => "pathToken",
        /// A service account token bound to a webhook configuration.
        WebhookToken => "webhookToken",
        /// None was presented.
        None => "none",
    }
}

label! {
    /// `result`: of an authentication, a reload, or a request to a webhook.
    Outcome {
        /// It succeeded.
        Success => "success",
        /// It failed.
        Failure => "failure",
    }
}

label! {
    /// `code`: the HTTP status codes of responses.
    Code {
        /// The review was answered.
        Ok => "200",
        /// The body is not a review.
        BadRequest => "400",
        /// No credential, or one that is not accepted.
        Unauthorized => "401",
        /// The endpoint is not for this caller.
        Forbidden => "403",
        /// The path is unknown.
        NotFound => "404",
        /// The path does not have this method.
        MethodNotAllowed => "405",
        /// The body is too large.
        TooLarge => "413",
        /// The body is not JSON.
        UnsupportedMediaType => "415",
        /// A limit of requests is reached.
        TooManyRequests => "429",
        /// An error in the gateway.
        InternalError => "500",
        /// No policies are in force yet, for example while the gateway starts.
        Unavailable => "503",
        /// The deadline has passed.
        Timeout => "504",
    }
}

impl Label for Endpoint {
    const VALUES: &'static [Self] = &Self::ALL;

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }
}

impl Label for PolicyResult {
    const VALUES: &'static [Self] = &Self::ALL;

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }
}

impl Label for Phase {
    const VALUES: &'static [Self] = &Self::ALL;

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }
}

impl From<Phase> for Endpoint {
    /// The endpoint that serves the phase.
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Validate => Self::Validate,
            Phase::Mutate => Self::Mutate,
        }
    }
}

impl Code {
    /// The label of a status code, if it is one of these.
    pub(crate) fn of(code: u16) -> Option<Self> {
        Some(match code {
            200 => Self::Ok,
            400 => Self::BadRequest,
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            405 => Self::MethodNotAllowed,
            413 => Self::TooLarge,
            415 => Self::UnsupportedMediaType,
            429 => Self::TooManyRequests,
            500 => Self::InternalError,
            503 => Self::Unavailable,
            504 => Self::Timeout,
            _ => return None,
        })
    }
}

impl Label for Decision {
    const VALUES: &'static [Self] = &[Self::Allow, Self::Deny, Self::NoOpinion];

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }
}

/// One recorder for each value of a label.
#[derive(Debug, Clone)]
pub(crate) struct ByLabel<L, R>(Vec<(L, R)>);

impl<L: Label, R> ByLabel<L, R> {
    /// A recorder for every value.
    pub(crate) fn new(recorder: impl Fn(L) -> R) -> Self {
        Self::only(L::VALUES, recorder)
    }

    /// A recorder for these values.
    pub(crate) fn only(values: &[L], recorder: impl Fn(L) -> R) -> Self {
        Self(values.iter().map(|value| (*value, recorder(*value))).collect())
    }

    /// Converts each recorder.
    pub(crate) fn map<T>(self, with: impl FnMut(R) -> T) -> ByLabel<L, T> {
        let (labels, recorders): (Vec<L>, Vec<R>) = self.0.into_iter().unzip();
        ByLabel(labels.into_iter().zip(recorders.into_iter().map(with)).collect())
    }

    /// The recorder of a value, if it has one. There are few values, so a linear search is faster
    /// than a map.
    pub(crate) fn get(&self, value: L) -> Option<&R> {
        self.0
            .iter()
            .find(|(label, _)| *label == value)
            .map(|(_, recorder)| recorder)
    }

    /// Records for a value, if it has a recorder.
    pub(crate) fn record(&self, value: L, record: impl FnOnce(&R)) {
        if let Some(recorder) = self.get(value) {
            record(recorder);
        }
    }
}

/// The pairs of values of two labels in the series of a family.
pub(crate) fn label_pairs(family: &IntCounterVec, first: &str, second: &str) -> HashSet<(String, String)> {
    let families = family.collect();
    let series = families.iter().flat_map(|family| family.get_metric());
    let value_of = |metric: &prometheus::proto::Metric, name: &str| {
        metric
            .get_label()
            .iter()
            .find(|label| label.name() == name)
            .map(|label| label.value().to_owned())
    };
    series
        .filter_map(|metric| Some((value_of(metric, first)?, value_of(metric, second)?)))
        .collect()
}

/// The values of a label in the series of a family.
pub(crate) fn label_values(family: &impl Collector, name: &str) -> HashSet<String> {
    let families = family.collect();
    let series = families.iter().flat_map(|family| family.get_metric());
    let labels = series.flat_map(|metric| metric.get_label());
    labels
        .filter(|label| label.name() == name)
        .map(|label| label.value().to_owned())
        .collect()
}

/// The most names of watched objects that have series of their own in a family. Users of a watched
/// cluster choose the names of its objects, and Prometheus keeps each series.
const MAX_WATCHED_NAMES: usize = 1000;

/// The label under which the others are counted together.
pub(crate) const OTHER: &str = "other";

/// The names in the configuration and its files, which always have series of their own.
#[derive(Debug, Default)]
pub(crate) struct ConfiguredNames(Mutex<HashSet<String>>);

impl ConfiguredNames {
    pub(crate) fn replace(&self, names: HashSet<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// The `names` that have series of their own: those that are configured and, of the others, the
    /// first [`MAX_WATCHED_NAMES`]. A webhook is configured if its webhook configuration is.
    pub(crate) fn labels<'n>(&self, names: impl Iterator<Item = &'n str>) -> SeriesLabels {
        let configured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_configured = |name: &&str| {
            let object = name.split('/').next().unwrap_or_default();
            configured.contains(object)
        };
        let (configured, watched): (Vec<&str>, Vec<&str>) = names.partition(is_configured);
        let watched: BTreeSet<&str> = watched.into_iter().collect();
        let watched = watched.into_iter().take(MAX_WATCHED_NAMES);
        SeriesLabels(configured.into_iter().chain(watched).map(str::to_owned).collect())
    }
}

/// The names that have series of their own.
#[derive(Debug, Default)]
pub(crate) struct SeriesLabels(HashSet<String>);

impl SeriesLabels {
    /// `name` if it has series of its own, or else [`OTHER`].
    pub(crate) fn of<'n>(&self, name: &'n str) -> &'n str {
        if self.0.contains(name) { name } else { OTHER }
    }
}

// === impl Families ===

impl Families {
    /// Creates all families and registers them in `registry`.
    #[rustfmt::skip]
    pub(crate) fn new(registry: &Registry) -> Result<Self, Error> {
        let make = Registrar(registry);
        Ok(Self {
            http_requests: make.counters("http_requests_total", &["endpoint", "code"],
                "Requests answered, by endpoint (`other` for unknown paths) and HTTP status code.")?,
            authorization_decisions: make.counters("authorization_decisions_total", &["decision"],
                "Answers to SubjectAccessReviews.")?,
            admission_decisions: make.counters("admission_decisions_total", &["phase", "decision"],
                "Answers to AdmissionReviews.")?,
            decision_duration: make.durations("decision_duration_seconds", &["endpoint"],
                "Time from the decoded review to the decision.")?,
            authentication_attempts: make.counters("authentication_attempts_total", &["method", "result"],
                "Authentications of callers, by the kind of credential and whether it was accepted.")?,
            reloads: make.counters("reloads_total", &["result"],
                "Attempts to load changed files.")?,
            last_reload_success: make.gauge("last_reload_success_timestamp_seconds",
                "When the files in force were loaded.")?,
            last_reload_successful: make.gauge_of_counts("last_reload_successful",
                "1 if the files on disk are in force; 0 while they have errors or a reload hangs, and older \
                ones are in force.")?,
            bundle_pulls: make.counters("bundle_pulls_total", &["bundle", "result"],
                "Attempts to pull a bundle; a success keeps a new bundle, or finds that the kept one is the \
                newest.")?,
            last_bundle_pull_success: make.register(GaugeVec::new(
                options("last_bundle_pull_success_timestamp_seconds", "When a bundle was last pulled."),
                &["bundle"])?)?,
            bundle_created: make.register(GaugeVec::new(
                options("bundle_created_timestamp_seconds", "When the bundle that is kept was built."),
                &["bundle"])?)?,
            configuration_info: make.gauges("configuration_info", &["revision"],
                "Always 1; the revision of the configuration and manifests in force. Replicas with \
                 different files have different revisions.")?,
            log_dropped: make.counter("log_dropped_total",
                "Log lines that were dropped because standard error was not read.")?,
            policy_evaluations: make.counters("policy_evaluations_total", &["kind", "name", "result"],
                "Results of policies that were evaluated for a request.")?,
            policy_cost: make.counters("policy_cel_cost_total", &["kind", "name"],
                "Cost of the expressions of policies, in the units of Kubernetes' CEL cost model.")?,
            policy_expirations: make.register(GaugeVec::new(
                options("policy_expiration_timestamp_seconds", "When a policy with a `notAfter` expires."),
                &["kind", "name"])?)?,
            access_requests: make.gauges("access_requests", &["state"],
                "AccessRequests of all clusters, by state.")?,
            broken_invariants: make.gauges("broken_invariants", &["name"],
                "Clusters in which an AuthorizationInvariant does not hold.")?,
            undecided_invariants: make.gauges("undecided_invariants", &["name"],
                "Clusters in which it is not known whether an AuthorizationInvariant holds.")?,
            upstream_requests: make.counters("upstream_requests_total", &["webhook", "result"],
                "Requests to webhooks behind the gateway.")?,
            upstream_duration: make.histograms("upstream_duration_seconds", &["webhook"], &CALL_BUCKETS,
                "Duration of requests to webhooks behind the gateway.")?,
            upstream_breaker_open: make.gauges("upstream_breaker_open", &["webhook"],
                "1 while the circuit breaker of a webhook behind the gateway is open.")?,
            in_flight: make.gauges("in_flight_requests", &["endpoint"],
                "Requests being read or answered.")?,
            shadow_in_flight: make.gauge_of_counts("shadow_reviews_in_flight",
                "Reviews for which shadow webhooks are being called, after the reply.")?,
            shadow_dropped: make.counter("shadow_reviews_dropped_total",
                "Reviews for which shadow webhooks were not called: too many were in flight.")?,
            shadow_webhooks: make.counters("shadow_webhook_decisions_total", &["webhook", "decision"],
                "Decisions of shadow webhooks, which have no effect.")?,
            decision_log_dropped: make.counter("decision_log_dropped_total",
                "Decision log lines that were dropped, because the queue was full or writing failed.")?,
            recording_dropped: make.counter("recording_dropped_total",
                "Reviews that were not recorded, because the queue was full, writing failed, or they \
                 could not be redacted.")?,
            usage_dropped: make.counter("usage_dropped_total",
                "Decisions that are in no file of usage, because the queue was full or writing failed.")?,
            usage_other: make.counter("usage_other_total",
                "Decisions that usage counts only by user and verb, because there were too many different \
                requests.")?,
            trace_spans_dropped: make.counter("trace_spans_dropped_total",
                "Spans of traces that were dropped, because the queue was full or sending failed.")?,
            log_records_dropped: make.counter("log_records_dropped_total",
                "Decisions that were not sent to the collector as log records, because the queue or the \
                 spool was full, or the collector rejected them.")?,
            connections: make.gauges("connections", &["state"],
                "Connections in their TLS handshake, unauthenticated, and authenticated.")?,
            certificate_expiry: make.register(GaugeVec::new(
                options("certificate_expiry_timestamp_seconds", "When a certificate expires; for a file with several, the earliest."),
                &["file", "name", "use"])?)?,
            cluster_synced: make.gauges("cluster_synced", &["cluster"],
                "1 once all objects of the cluster have been listed; 0 while the saved objects, or \
                 only the files, are in force.")?,
            cluster_objects: make.gauges("cluster_objects", &["cluster"],
                "Objects of the cluster that are in force.")?,
            cluster_invalid_objects: make.gauges("cluster_invalid_objects", &["cluster"],
                "Objects of the cluster with errors: the last valid version is in force, if there was one.")?,
            cluster_unconfirmed_absences: make.gauges("cluster_unconfirmed_absences", &["cluster"],
                "Kinds of the cluster that are absent or lack objects, without evidence of a deletion: the \
                known objects are in force.")?,
            cluster_outdated_kinds: make.gauges("cluster_outdated_kinds", &["cluster"],
                "Kinds of the cluster that were not listed or watched for a minute: the objects in force may \
                be outdated.")?,
            cluster_left_out_objects: make.gauges("cluster_left_out_objects", &["cluster", "purpose"],
                "Objects of the cluster that are left out, because they are too large or memory is short.")?,
            cluster_watch_failures: make.counters("cluster_watch_failures_total", &["cluster"],
                "Lists and watches of the cluster that failed.")?,
            restrictions_removed: make.counters("restrictions_removed_total", &["kind"],
                "Denies, validating policies and webhooks that were in force and are no longer.")?,
            cluster_file_faults: make.gauges("cluster_file_faults", &["cluster"],
                "Errors in the files of the cluster alone: their last good version is in force.")?,
            cluster_unknown_policies: make.gauges("cluster_unknown_policies", &["cluster"],
                "1 if requests of the cluster are answered with 503: its own files have errors and there is \
                no earlier version.")?,
            build_info: make.gauges("build_info", &["version"],
                "Always 1.")?,
        })
    }

    /// Removes the series of a policy. An error means that a series does not exist.
    pub(crate) fn end_policy(&self, kind: &str, name: &str) {
        for result in PolicyResult::ALL {
            let _gone = self
                .policy_evaluations
                .remove_label_values(&[kind, name, result.as_str()]);
        }
        let _gone = self.policy_cost.remove_label_values(&[kind, name]);
    }

    /// Removes the series of a webhook. An error means that a series does not exist.
    pub(crate) fn end_upstream(&self, webhook: &str) {
        for outcome in Outcome::ALL {
            let _gone = self
                .upstream_requests
                .remove_label_values(&[webhook, outcome.as_str()]);
        }
        let _gone = self.upstream_duration.remove_label_values(&[webhook]);
        let _gone = self.upstream_breaker_open.remove_label_values(&[webhook]);
    }
}

// === impl Registrar ===

impl Registrar<'_> {
    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, Error> {
        self.register(IntCounter::with_opts(options(name, help))?)
    }

    fn counters(&self, name: &str, labels: &[&str], help: &str) -> Result<IntCounterVec, Error> {
        self.register(IntCounterVec::new(options(name, help), labels)?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<Gauge, Error> {
        self.register(Gauge::with_opts(options(name, help))?)
    }

    fn gauge_of_counts(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.register(IntGauge::with_opts(options(name, help))?)
    }

    fn gauges(&self, name: &str, labels: &[&str], help: &str) -> Result<IntGaugeVec, Error> {
        self.register(IntGaugeVec::new(options(name, help), labels)?)
    }

    fn histograms(
        &self,
        name: &str,
        labels: &[&str],
        buckets: &[f64],
        help: &str,
    ) -> Result<HistogramVec, Error> {
        let options = HistogramOpts::from(options(name, help)).buckets(buckets.to_vec());
        self.register(HistogramVec::new(options, labels)?)
    }

    fn durations(&self, name: &str, labels: &[&str], help: &str) -> Result<DecisionDurations, Error> {
        self.register(DecisionDurations::new(&options(name, help), labels)?)
    }

    fn register<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C, Error> {
        self.0.register(Box::new(collector.clone()))?;
        Ok(collector)
    }
}

fn options(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("portcullis")
}

/// The recorders of one webhook behind the gateway.
#[derive(Debug, Clone)]
pub struct UpstreamRecorder {
    pub(crate) requests: ByLabel<Outcome, IntCounter>,
    pub(crate) duration: Histogram,
    pub(crate) breaker_open: IntGauge,
}

// === impl UpstreamRecorder ===

impl UpstreamRecorder {
    /// Records a request that ended.
    pub fn record(&self, outcome: Outcome, took: Duration) {
        self.requests.record(outcome, IntCounter::inc);
        self.duration.observe(took.as_secs_f64());
    }

    /// Records a request that was not made, because there are too many or it could not succeed.
    pub fn refused(&self) {
        self.requests.record(Outcome::Failure, IntCounter::inc);
    }

    /// Records whether the circuit breaker of the webhook is open.
    pub fn breaker_open(&self, is_open: bool) {
        self.breaker_open.set(i64::from(is_open));
    }
}
