//! The values of metrics at one moment, for the console.

use std::collections::BTreeMap;
use std::sync::{PoisonError, Weak};

use prometheus::core::Collector;
use prometheus::proto::Metric;

use super::{Endpoint, Label, Metrics, Outcome, Phase};
use portcullis_policy::model::{Decision, PolicyResult};

/// How often the evaluation of a policy had each result, and its cost, since the start or since the
/// policy was added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyCounts {
    results: [u64; PolicyResult::ALL.len()],
    /// The cost of its expressions, in the units of Kubernetes' CEL cost model.
    pub cost: u64,
}

/// The counts of a webhook since the start, or since it was added.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WebhookCounts {
    /// Calls with a reply.
    pub successes: u64,
    /// Calls without a reply, or that were not made.
    pub failures: u64,
    /// How often it would have allowed a request, in shadow.
    pub shadow_allows: u64,
    /// How often it would have denied a request, in shadow.
    pub shadow_denies: u64,
    /// Whether its circuit breaker is open.
    pub is_breaker_open: bool,
    /// The durations of calls.
    pub durations: DurationCounts,
}

/// The values of a histogram of durations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DurationCounts {
    /// The number of observations.
    pub count: u64,
    /// Their sum in seconds.
    pub seconds: f64,
    /// The upper bound of each bucket in seconds, and the number of observations up to it.
    pub buckets: Vec<(f64, u64)>,
}

// === impl PolicyCounts ===

impl PolicyCounts {
    /// How often the evaluation had `result`.
    #[must_use]
    pub fn of(&self, result: PolicyResult) -> u64 {
        let counts = PolicyResult::ALL.into_iter().zip(self.results);
        counts
            .filter(|(other, _)| *other == result)
            .map(|(_, count)| count)
            .sum()
    }
}

// === impl DurationCounts ===

impl DurationCounts {
    /// The quantile of the durations in seconds: see [`histogram_quantile`].
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let beyond = [(f64::INFINITY, self.count)];
        histogram_quantile(self.buckets.iter().copied().chain(beyond), share)
    }
}

/// A quantile of a histogram, computed like Prometheus' `histogram_quantile`: interpolated within a
/// bucket; beyond the last finite bound, that bound. `share` is from 0 to 1. Returns `None` if
/// there are no observations.
///
/// `buckets` are upper bounds, of which the last is infinite, with the number of observations up to
/// each.
#[expect(clippy::cast_precision_loss, reason = "a share of a count need not be exact")]
pub fn histogram_quantile(buckets: impl Iterator<Item = (f64, u64)> + Clone, share: f64) -> Option<f64> {
    let (_, total) = buckets.clone().last().filter(|(_, total)| *total > 0)?;
    let rank = share * total as f64;
    let (mut lower, mut below) = (0.0, 0.0);
    for (bound, count) in buckets {
        let count = count as f64;
        if count >= rank && count > below {
            let within = (bound - lower) * (rank - below) / (count - below);
            return Some(if bound.is_finite() { lower + within } else { lower });
        }
        (lower, below) = (bound, count);
    }
    None
}

impl Metrics {
    /// Updates the series with the counts of all workers.
    pub(crate) fn gather(&self) {
        self.requests.gather();
        let of_policies = self.of_policies.lock().unwrap_or_else(PoisonError::into_inner);
        of_policies
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|counts| counts.gather());
        drop(of_policies);
        for endpoint in Endpoint::ALL {
            let series = self.families.in_flight.with_label_values(&[endpoint.as_str()]);
            series.set(self.in_flight(endpoint).get());
        }
        self.families.shadow_in_flight.set(self.shadow_in_flight.get());
    }

    /// The counts of each policy, by kind and name. Policies of several clusters with the same name
    /// are added up.
    #[must_use]
    pub fn policy_counts(&self) -> BTreeMap<(String, String), PolicyCounts> {
        self.gather();
        let mut counts: BTreeMap<(String, String), PolicyCounts> = BTreeMap::new();
        for_each_metric(&self.families.policy_evaluations, |metric| {
            let entry = counts
                .entry((label(metric, "kind"), label(metric, "name")))
                .or_default();
            let results = PolicyResult::ALL.into_iter().zip(&mut entry.results);
            let of_metric = label(metric, "result");
            for (_, count) in results.filter(|(result, _)| result.as_str() == of_metric) {
                *count = counter_value(metric);
            }
        });
        for_each_metric(&self.families.policy_cost, |metric| {
            let key = (label(metric, "kind"), label(metric, "name"));
            counts.entry(key).or_default().cost = counter_value(metric);
        });
        counts
    }

    /// The counts of each webhook, by `configuration/webhook`.
    #[must_use]
    pub fn webhook_counts(&self) -> BTreeMap<String, WebhookCounts> {
        let mut counts: BTreeMap<String, WebhookCounts> = BTreeMap::new();
        for_each_metric(&self.families.upstream_requests, |metric| {
            let entry = counts.entry(label(metric, "webhook")).or_default();
            match label(metric, "result") == Outcome::Success.as_str() {
                true => entry.successes = counter_value(metric),
                false => entry.failures = counter_value(metric),
            }
        });
        for_each_metric(&self.families.shadow_webhooks, |metric| {
            let entry = counts.entry(label(metric, "webhook")).or_default();
            match label(metric, "decision") == Label::as_str(Decision::Deny) {
                true => entry.shadow_denies = counter_value(metric),
                false => entry.shadow_allows = counter_value(metric),
            }
        });
        for_each_metric(&self.families.upstream_breaker_open, |metric| {
            let entry = counts.entry(label(metric, "webhook")).or_default();
            entry.is_breaker_open = metric.get_gauge().get_value() > 0.5;
        });
        for_each_metric(&self.families.upstream_duration, |metric| {
            let histogram = metric.get_histogram();
            let entry = counts.entry(label(metric, "webhook")).or_default();
            entry.durations = DurationCounts {
                count: histogram.get_sample_count(),
                seconds: histogram.get_sample_sum(),
                buckets: histogram
                    .get_bucket()
                    .iter()
                    .map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()))
                    .collect(),
            };
        });
        counts
    }
}

fn for_each_metric(family: &impl Collector, of: impl FnMut(&Metric)) {
    let families = family.collect();
    families
        .iter()
        .flat_map(|family| family.get_metric())
        .for_each(of);
}

fn label(metric: &Metric, name: &str) -> String {
    let labels = metric.get_label().iter();
    let found = labels
        .filter(|label| label.name() == name)
        .map(|label| label.value());
    found.collect()
}

/// The value of a counter of integers.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a counter of whole numbers, which begins at 0"
)]
fn counter_value(metric: &Metric) -> u64 {
    metric.get_counter().get_value() as u64
}

/// The decisions so far and their durations, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsSample {
    /// By endpoint, in the order of [`Endpoint::ALL`].
    pub endpoints: [EndpointSample; Endpoint::ALL.len()],
}

/// The sample of one endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointSample {
    /// The number of Allow, Deny and no opinion.
    pub decisions: [u64; 3],
    /// The number of decisions up to each bound of [`Metrics::duration_bounds`].
    pub durations: Vec<u64>,
    /// The number of requests that are being read or answered.
    pub in_flight: u64,
}

// === impl Metrics ===

impl Metrics {
    /// Takes a sample.
    #[must_use]
    pub fn sample(&self) -> MetricsSample {
        let counts = self.requests.counts();
        let mut durations = self.families.decision_duration.observed();
        MetricsSample {
            endpoints: Endpoint::ALL.map(|endpoint| EndpointSample {
                decisions: [Decision::Allow, Decision::Deny, Decision::NoOpinion]
                    .map(|decision| self.decisions(&counts, endpoint, decision)),
                durations: durations
                    .get_mut(endpoint.index())
                    .map(|observed| std::mem::take(&mut observed.cumulative))
                    .unwrap_or_default(),
                in_flight: u64::try_from(self.in_flight(endpoint).get()).unwrap_or_default(),
            }),
        }
    }

    /// The upper bounds of the buckets for the durations of decisions, in seconds. The last is
    /// infinite.
    #[must_use]
    pub fn duration_bounds() -> Vec<f64> {
        let finite = super::recorders::BUCKETS.iter().copied();
        finite.chain([f64::INFINITY]).collect()
    }

    fn decisions(&self, counts: &[u64], endpoint: Endpoint, decision: Decision) -> u64 {
        let counters = match endpoint {
            Endpoint::Authorize => Some(&self.authorization_decisions),
            Endpoint::Validate => self.admission_decisions.get(Phase::Validate.index()),
            Endpoint::Mutate => self.admission_decisions.get(Phase::Mutate.index()),
        };
        let number = counters.and_then(|counters| counters.get(decision));
        let count = number.and_then(|number| counts.get(*number));
        count.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use portcullis_policy::model::CauseKind;

    #[test]
    fn what_was_counted_of_a_policy_is_read_by_kind_and_name() {
        let metrics = Metrics::new().unwrap();
        let policies = [
            (CauseKind::AuthorizationPolicy, "a"),
            (CauseKind::MutatingAdmissionPolicy, "a"),
        ];
        let counters = metrics.policies(policies);
        counters[0].record(PolicyResult::Match);
        counters[0].record(PolicyResult::Match);
        counters[0].record(PolicyResult::ShadowDeny);
        counters[0].spent(7);
        counters[0].spent(5);
        counters[1].record(PolicyResult::Error);
        let counts = metrics.policy_counts();
        let of = |kind: CauseKind| counts[&(kind.as_str().to_owned(), "a".to_owned())];
        let authorization = of(CauseKind::AuthorizationPolicy);
        assert_eq!(
            PolicyResult::ALL.map(|result| authorization.of(result)),
            [2, 0, 0, 0, 1]
        );
        let costs = [authorization.cost, of(CauseKind::MutatingAdmissionPolicy).cost];
        assert_eq!(costs, [12, 0]);
        assert_eq!(of(CauseKind::MutatingAdmissionPolicy).of(PolicyResult::Error), 1);
    }

    #[test]
    fn quantiles_are_those_of_prometheus() {
        let bounds = [1.0, 2.0, 4.0, f64::INFINITY];
        for (counts, share, expected) in [
            ([0, 0, 0, 0], 0.5, None),
            ([10, 10, 10, 10], 0.5, Some(0.5)),
            ([0, 10, 10, 10], 0.5, Some(1.5)),
            ([5, 5, 10, 10], 0.75, Some(3.0)),
            ([5, 5, 10, 10], 0.5, Some(1.0)),
            ([0, 0, 0, 10], 0.99, Some(4.0)),
        ] {
            let buckets = bounds.into_iter().zip(counts);
            assert_eq!(histogram_quantile(buckets, share), expected, "{counts:?} {share}");
        }
    }

    #[test]
    fn what_was_counted_of_a_webhook_is_read_by_its_name() {
        let metrics = Metrics::new().unwrap();
        let recorders = metrics.upstreams(["c/w", "c/v"]);
        for millis in [1, 1, 1, 40] {
            recorders[0].record(Outcome::Success, Duration::from_millis(millis));
        }
        recorders[0].refused();
        recorders[1].breaker_open(true);
        metrics.shadow_webhooks(["c/w".to_owned()]);
        metrics.shadow_webhook("c/w", Decision::Deny);
        let counts = metrics.webhook_counts();
        let webhook = &counts["c/w"];
        assert_eq!((webhook.successes, webhook.failures), (4, 1));
        assert_eq!((webhook.shadow_allows, webhook.shadow_denies), (0, 1));
        assert_eq!(
            (webhook.is_breaker_open, counts["c/v"].is_breaker_open),
            (false, true)
        );
        assert_eq!(webhook.durations.count, 4);
        // Three of four are from 0.5 to 1 ms, one is from 20 to 50 ms.
        let is = |share: f64, expected: f64| {
            let found = webhook.durations.quantile(share).unwrap();
            assert!((found - expected).abs() < 1e-9, "{share}: {found}");
        };
        is(0.5, 0.5e-3 + 0.5e-3 * 2.0 / 3.0);
        is(0.99, 0.02 + 0.03 * 0.96);
        assert_eq!(counts["c/v"].durations.quantile(0.5), None);
    }

    #[test]
    fn a_sample_says_what_was_recorded() {
        let metrics = Metrics::new().unwrap();
        let before = metrics.sample();
        metrics.authorization(Decision::Deny, Duration::from_micros(3));
        metrics.authorization(Decision::NoOpinion, Duration::from_secs(3600));
        metrics.admission(Phase::Mutate, true, Duration::from_millis(2));
        let _in_flight = [(); 4].map(|()| metrics.in_flight(Endpoint::Validate).enter());
        let after = metrics.sample();
        let decisions = after.endpoints.each_ref().map(|endpoint| endpoint.decisions);
        assert_eq!(decisions, [[0, 1, 1], [0, 0, 0], [1, 0, 0]]);
        assert_eq!(after.endpoints[1].in_flight, 4);
        let bounds = Metrics::duration_bounds();
        for endpoint in before.endpoints.iter().chain(&after.endpoints) {
            assert_eq!(endpoint.durations.len(), bounds.len());
        }
        let durations = &after.endpoints[0].durations;
        assert_eq!(durations.last(), Some(&2), "all, however long");
        let short = bounds.iter().position(|bound| *bound >= 3e-6).unwrap();
        assert_eq!(
            durations[short..durations.len() - 1],
            vec![1; durations.len() - 1 - short]
        );
        assert_eq!(before.endpoints[0].durations, vec![0; bounds.len()]);
    }
}
