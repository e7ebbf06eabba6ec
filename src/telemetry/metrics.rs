//! Metrics: names, labels and every value a label can take.
//!
//! Handles are made once and kept; recording looks no label up. Every series
//! whose labels are known at start is there with 0 from the start. The registry
//! is this value's own, so that several gateways can live in one process.

mod labels;

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use prometheus::core::Collector;
use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

pub use labels::{Code, Credential, Endpoint, Label, Outcome, Phase, PolicyResult};
pub use prometheus::{IntCounter, IntGauge};

use crate::engine::{CauseKind, Decision};
use labels::ByLabel;

/// Upper bounds of the buckets for decisions, in seconds: from 1 µs.
const DECISION_BUCKETS: [f64; 16] = [
    1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 2e-2, 0.1, 0.5, 2.0, 10.0,
];

/// The recorders of one gateway.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    http_requests: [ByLabel<Code, IntCounter>; Endpoint::COUNT],
    http_requests_family: IntCounterVec,
    authorization_decisions: ByLabel<Decision, IntCounter>,
    admission_decisions: [ByLabel<Decision, IntCounter>; Phase::COUNT],
    decision_duration: ByLabel<Endpoint, Histogram>,
    authentications: [ByLabel<Outcome, IntCounter>; Credential::COUNT],
    reloads: ByLabel<Outcome, IntCounter>,
    last_reload_success: Gauge,
    policy_evaluations: IntCounterVec,
    upstream_requests: IntCounterVec,
    upstream_duration: HistogramVec,
    in_flight: IntGaugeVec,
    decision_log_dropped: IntCounter,
    certificate_expiry: GaugeVec,
}

/// The counters of one policy.
#[derive(Debug, Clone)]
pub struct PolicyCounters(ByLabel<PolicyResult, IntCounter>);

/// The recorders of one webhook behind the gateway.
#[derive(Debug, Clone)]
pub struct UpstreamRecorder {
    requests: ByLabel<Outcome, IntCounter>,
    duration: Histogram,
}

// === impl Metrics ===

impl Metrics {
    /// All recorders, at 0.
    ///
    /// # Errors
    /// Only if two metrics had one name, which the tests exclude.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counters = |name, help, labels: &[&str]| {
            register(&registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let histograms = |name, help, labels: &[&str]| {
            let options = HistogramOpts::new(name, help).buckets(DECISION_BUCKETS.to_vec());
            register(&registry, HistogramVec::new(options, labels)?)
        };

        let http_requests = counters(
            "portcullis_http_requests_total",
            "Requests answered, by endpoint (`other` for unknown paths) and HTTP status code.",
            &["endpoint", "code"],
        )?;
        let authorization_decisions = counters(
            "portcullis_authorization_decisions_total",
            "Answers to SubjectAccessReviews.",
            &["decision"],
        )?;
        let admission_decisions = counters(
            "portcullis_admission_decisions_total",
            "Answers to AdmissionReviews.",
            &["phase", "decision"],
        )?;
        let decision_duration = histograms(
            "portcullis_decision_duration_seconds",
            "Time from the decoded review to the decision.",
            &["endpoint"],
        )?;
        let authentications = counters(
            "portcullis_caller_authentications_total",
            "Requests by the credential that decided who calls, and whether it was accepted.",
            &["method", "result"],
        )?;
        let reloads = counters(
            "portcullis_reloads_total",
            "Attempts to load changed files.",
            &["result"],
        )?;
        let last_reload_success = register(
            &registry,
            Gauge::new(
                "portcullis_last_reload_success_timestamp_seconds",
                "When the files in use were loaded.",
            )?,
        )?;
        let policy_evaluations = counters(
            "portcullis_policy_evaluations_total",
            "What policies said of requests that they were asked about.",
            &["kind", "name", "result"],
        )?;
        let upstream_requests = counters(
            "portcullis_upstream_requests_total",
            "Requests to webhooks behind the gateway.",
            &["webhook", "result"],
        )?;
        let upstream_duration = histograms(
            "portcullis_upstream_duration_seconds",
            "Time of requests to webhooks behind the gateway.",
            &["webhook"],
        )?;
        let in_flight = register(
            &registry,
            IntGaugeVec::new(
                Opts::new(
                    "portcullis_in_flight_requests",
                    "Requests being read or answered.",
                ),
                &["endpoint"],
            )?,
        )?;
        for endpoint in Endpoint::REVIEWS {
            in_flight.with_label_values(&[endpoint.as_str()]).set(0);
        }
        let decision_log_dropped = register(
            &registry,
            IntCounter::new(
                "portcullis_decision_log_dropped_total",
                "Lines of the decision log that were lost: its queue was full or writing failed.",
            )?,
        )?;
        let certificate_expiry = register(
            &registry,
            GaugeVec::new(
                Opts::new(
                    "portcullis_certificate_expiry_timestamp_seconds",
                    "When the first certificate of a file expires.",
                ),
                &["file"],
            )?,
        )?;
        let build_info = register(
            &registry,
            IntGaugeVec::new(Opts::new("portcullis_build_info", "Always 1."), &["version"])?,
        )?;
        build_info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);

        let http_requests_of = |endpoint: Endpoint| {
            ByLabel::new(|code: Code| http_requests.with_label_values(&[endpoint.as_str(), code.as_str()]))
        };
        Ok(Self {
            http_requests: Endpoint::ALL.map(http_requests_of),
            authorization_decisions: ByLabel::new(|decision: Decision| {
                authorization_decisions.with_label_values(&[decision.as_str()])
            }),
            admission_decisions: Phase::ALL.map(|phase| {
                ByLabel::only(&[Decision::Allow, Decision::Deny], |decision: Decision| {
                    admission_decisions.with_label_values(&[phase.as_str(), decision.as_str()])
                })
            }),
            decision_duration: ByLabel::only(&Endpoint::REVIEWS, |endpoint: Endpoint| {
                decision_duration.with_label_values(&[endpoint.as_str()])
            }),
            authentications: Credential::ALL.map(|credential| {
                ByLabel::new(|outcome: Outcome| {
                    authentications.with_label_values(&[credential.as_str(), outcome.as_str()])
                })
            }),
            reloads: ByLabel::new(|outcome: Outcome| reloads.with_label_values(&[outcome.as_str()])),
            in_flight,
            http_requests_family: http_requests,
            last_reload_success,
            policy_evaluations,
            upstream_requests,
            upstream_duration,
            decision_log_dropped,
            certificate_expiry,
            registry,
        })
    }

    /// A request was answered with `code`.
    pub fn http_request(&self, endpoint: Endpoint, code: u16) {
        match (self.http_requests.get(endpoint.index()), Code::of(code)) {
            (Some(codes), Some(code)) => codes.record(code, IntCounter::inc),
            _ => self
                .http_requests_family
                .with_label_values(&[endpoint.as_str(), &code.to_string()])
                .inc(),
        }
    }

    /// A SubjectAccessReview was answered; `took` from the decoded review to the decision.
    pub fn authorization(&self, decision: Decision, took: Duration) {
        self.authorization_decisions.record(decision, IntCounter::inc);
        self.decision_duration.record(Endpoint::Authorize, |duration| {
            duration.observe(took.as_secs_f64())
        });
    }

    /// An AdmissionReview was answered; `took` from the decoded review to the decision.
    pub fn admission(&self, phase: Phase, allowed: bool, took: Duration) {
        let decision = if allowed { Decision::Allow } else { Decision::Deny };
        if let Some(decisions) = self.admission_decisions.get(phase.index()) {
            decisions.record(decision, IntCounter::inc);
        }
        self.decision_duration
            .record(phase.endpoint(), |duration| duration.observe(took.as_secs_f64()));
    }

    /// A credential, or the lack of one, settled who calls.
    pub fn authentication(&self, credential: Credential, outcome: Outcome) {
        if let Some(outcomes) = self.authentications.get(credential.index()) {
            outcomes.record(outcome, IntCounter::inc);
        }
    }

    /// Changed files were loaded, or found faulty, at `now`.
    pub fn reload(&self, outcome: Outcome, now: SystemTime) {
        self.reloads.record(outcome, IntCounter::inc);
        if outcome == Outcome::Success {
            self.loaded(now);
        }
    }

    /// The files in use were loaded at `now`: at the start, which is no reload.
    pub fn loaded(&self, now: SystemTime) {
        self.last_reload_success.set(seconds(now));
    }

    /// The counters of each policy, in the order given. Series of policies that
    /// are not among them end.
    pub fn policies<'a>(
        &self,
        policies: impl IntoIterator<Item = (CauseKind, &'a str)>,
    ) -> Vec<PolicyCounters> {
        let mut names = HashSet::new();
        let counters_of = |(kind, name): (CauseKind, &'a str)| {
            names.insert((kind.as_str(), name));
            PolicyCounters(ByLabel::new(|result: PolicyResult| {
                self.policy_evaluations
                    .with_label_values(&[kind.as_str(), name, result.as_str()])
            }))
        };
        let counters = policies.into_iter().map(counters_of).collect();
        for (kind, name) in label_pairs(&self.policy_evaluations, "kind", "name") {
            if !names.contains(&(kind.as_str(), name.as_str())) {
                for result in PolicyResult::ALL {
                    // An error means that the series is gone already.
                    let _gone = self
                        .policy_evaluations
                        .remove_label_values(&[&kind, &name, result.as_str()]);
                }
            }
        }
        counters
    }

    /// The recorders of a webhook of the configuration.
    #[must_use]
    pub fn upstream(&self, webhook: &str) -> UpstreamRecorder {
        UpstreamRecorder {
            requests: ByLabel::new(|outcome: Outcome| {
                self.upstream_requests
                    .with_label_values(&[webhook, outcome.as_str()])
            }),
            duration: self.upstream_duration.with_label_values(&[webhook]),
        }
    }

    /// How many requests of an endpoint are being read or answered.
    #[must_use]
    pub fn in_flight(&self, endpoint: Endpoint) -> IntGauge {
        self.in_flight.with_label_values(&[endpoint.as_str()])
    }

    /// The count of lines that the decision log lost.
    #[must_use]
    pub fn decision_log_dropped(&self) -> IntCounter {
        self.decision_log_dropped.clone()
    }

    /// The certificate files in use and when the first certificate of each
    /// expires. Series of files that are not among them end.
    pub fn certificates<F: AsRef<str>>(&self, expiries: impl IntoIterator<Item = (F, SystemTime)>) {
        self.certificate_expiry.reset();
        for (file, expiry) in expiries {
            self.certificate_expiry
                .with_label_values(&[file.as_ref()])
                .set(seconds(expiry));
        }
    }

    /// Everything in Prometheus' text format, version 0.0.4.
    ///
    /// # Errors
    /// Only if a metric were inconsistent in itself.
    pub fn encode(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

// === impl PolicyCounters ===

impl PolicyCounters {
    /// The policy was asked and said this.
    pub fn record(&self, result: PolicyResult) {
        self.0.record(result, IntCounter::inc);
    }
}

// === impl UpstreamRecorder ===

impl UpstreamRecorder {
    /// A request ended.
    pub fn record(&self, outcome: Outcome, took: Duration) {
        self.requests.record(outcome, IntCounter::inc);
        self.duration.observe(took.as_secs_f64());
    }
}

fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

/// The values that two labels have together in a family's series.
fn label_pairs(family: &IntCounterVec, first: &str, second: &str) -> HashSet<(String, String)> {
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

fn seconds(time: SystemTime) -> f64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.encode().unwrap()).unwrap()
    }

    #[test]
    fn what_is_known_at_start_is_there_with_0() {
        let text = text(&Metrics::new().unwrap());
        for line in [
            r#"portcullis_http_requests_total{code="429",endpoint="authorize"} 0"#,
            r#"portcullis_http_requests_total{code="404",endpoint="other"} 0"#,
            r#"portcullis_authorization_decisions_total{decision="noOpinion"} 0"#,
            r#"portcullis_admission_decisions_total{decision="deny",phase="mutate"} 0"#,
            r#"portcullis_decision_duration_seconds_bucket{endpoint="authorize",le="0.000001"} 0"#,
            r#"portcullis_caller_authentications_total{method="jwt",result="failure"} 0"#,
            r#"portcullis_reloads_total{result="success"} 0"#,
            "portcullis_last_reload_success_timestamp_seconds 0",
            r#"portcullis_in_flight_requests{endpoint="validate"} 0"#,
            "portcullis_decision_log_dropped_total 0",
            concat!(
                r#"portcullis_build_info{version=""#,
                env!("CARGO_PKG_VERSION"),
                r#""} 1"#
            ),
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
        assert!(!text.contains(r#"admission_decisions_total{decision="noOpinion""#));
    }

    #[test]
    fn recording_moves_the_series_and_no_other() {
        let metrics = Metrics::new().unwrap();
        metrics.http_request(Endpoint::Authorize, 200);
        metrics.http_request(Endpoint::Authorize, 418);
        metrics.authorization(Decision::Deny, Duration::from_nanos(700));
        metrics.admission(Phase::Mutate, false, Duration::from_secs(60));
        metrics.authentication(Credential::Bearer, Outcome::Failure);
        metrics.reload(Outcome::Success, SystemTime::UNIX_EPOCH + Duration::from_secs(5));
        let moved: Vec<String> = text(&metrics)
            .lines()
            .filter(|line| !line.starts_with('#') && !line.ends_with(" 0") && !line.contains("build_info"))
            .filter(|line| !line.contains("_bucket") && !line.contains("_sum"))
            .map(str::to_owned)
            .collect();
        assert_eq!(
            moved,
            [
                r#"portcullis_admission_decisions_total{decision="deny",phase="mutate"} 1"#,
                r#"portcullis_authorization_decisions_total{decision="deny"} 1"#,
                r#"portcullis_caller_authentications_total{method="bearer",result="failure"} 1"#,
                r#"portcullis_decision_duration_seconds_count{endpoint="authorize"} 1"#,
                r#"portcullis_decision_duration_seconds_count{endpoint="mutate"} 1"#,
                r#"portcullis_http_requests_total{code="200",endpoint="authorize"} 1"#,
                r#"portcullis_http_requests_total{code="418",endpoint="authorize"} 1"#,
                "portcullis_last_reload_success_timestamp_seconds 5",
                r#"portcullis_reloads_total{result="success"} 1"#,
            ]
        );
    }

    #[test]
    fn series_follow_the_configuration() {
        let metrics = Metrics::new().unwrap();
        let first = metrics.policies([
            (CauseKind::AuthorizationPolicy, "a"),
            (CauseKind::AuthorizationPolicy, "b"),
        ]);
        first
            .iter()
            .for_each(|policy| policy.record(PolicyResult::ShadowDeny));
        metrics.policies([(CauseKind::AuthorizationPolicy, "b")]);
        metrics.certificates([("old.crt", SystemTime::UNIX_EPOCH)]);
        metrics.certificates([("new.crt", SystemTime::UNIX_EPOCH + Duration::from_secs(9))]);
        metrics.upstream("hook").record(Outcome::Success, Duration::ZERO);
        let text = text(&metrics);
        for line in [
            r#"portcullis_policy_evaluations_total{kind="AuthorizationPolicy",name="b",result="shadowDeny"} 1"#,
            r#"portcullis_policy_evaluations_total{kind="AuthorizationPolicy",name="b",result="match"} 0"#,
            r#"portcullis_certificate_expiry_timestamp_seconds{file="new.crt"} 9"#,
            r#"portcullis_upstream_requests_total{result="success",webhook="hook"} 1"#,
            r#"portcullis_upstream_requests_total{result="failure",webhook="hook"} 0"#,
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
        assert!(!text.contains(r#"name="a""#) && !text.contains("old.crt"));
    }
}
