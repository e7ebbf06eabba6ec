//! What is counted, as numbers at one moment.

use prometheus::Histogram;
use prometheus::core::Collector as _;

use super::{Endpoint, Metrics, Phase};
use portcullis_policy::engine::Decision;

/// The decisions so far, and how long they took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsSample {
    /// By endpoint, in the order of [`Endpoint::ALL`].
    pub endpoints: [EndpointSample; Endpoint::ALL.len()],
}

/// Those of one endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointSample {
    /// Allow, Deny and no opinion.
    pub decisions: [u64; 3],
    /// For each bound of [`Metrics::duration_bounds`], how many took no longer.
    pub durations: Vec<u64>,
    /// How many requests are being read or answered.
    pub in_flight: u64,
}

// === impl Metrics ===

impl Metrics {
    /// What is counted now.
    #[must_use]
    pub fn sample(&self) -> MetricsSample {
        MetricsSample {
            endpoints: Endpoint::ALL.map(|endpoint| EndpointSample {
                decisions: [Decision::Allow, Decision::Deny, Decision::NoOpinion]
                    .map(|decision| self.decisions(endpoint, decision)),
                durations: self
                    .decision_duration
                    .get(endpoint)
                    .map(cumulative)
                    .unwrap_or_default(),
                in_flight: u64::try_from(self.in_flight(endpoint).get()).unwrap_or_default(),
            }),
        }
    }

    /// The upper bounds of the buckets in which the durations of decisions are counted, in
    /// seconds; the last is infinite.
    #[must_use]
    pub fn duration_bounds() -> Vec<f64> {
        let finite = super::families::BUCKETS.iter().copied();
        finite.chain([f64::INFINITY]).collect()
    }

    fn decisions(&self, endpoint: Endpoint, decision: Decision) -> u64 {
        let counters = match endpoint {
            Endpoint::Authorize => Some(&self.authorization_decisions),
            Endpoint::Validate => self.admission_decisions.get(Phase::Validate.index()),
            Endpoint::Mutate => self.admission_decisions.get(Phase::Mutate.index()),
        };
        let counter = counters.and_then(|counters| counters.get(decision));
        counter.map(prometheus::IntCounter::get).unwrap_or_default()
    }
}

/// For each bucket and beyond the last, how many observations took no longer.
fn cumulative(histogram: &Histogram) -> Vec<u64> {
    let families = histogram.collect();
    let metric = families.iter().flat_map(|family| family.get_metric()).next();
    let Some(histogram) = metric.map(|metric| metric.get_histogram()) else {
        return Vec::new();
    };
    let buckets = histogram
        .get_bucket()
        .iter()
        .map(|bucket| bucket.cumulative_count());
    buckets.chain([histogram.get_sample_count()]).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_sample_says_what_was_recorded() {
        let metrics = Metrics::new().unwrap();
        let before = metrics.sample();
        metrics.authorization(Decision::Deny, Duration::from_micros(3));
        metrics.authorization(Decision::NoOpinion, Duration::from_secs(3600));
        metrics.admission(Phase::Mutate, true, Duration::from_millis(2));
        metrics.in_flight(Endpoint::Validate).add(4);
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
