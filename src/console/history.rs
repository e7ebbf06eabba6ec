//! The metrics of the last hour, in samples.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::recent_decisions::ClusterDecisions;
use crate::config::Endpoint;
use crate::telemetry::Metrics;
use crate::telemetry::metrics::{MetricsSample, histogram_quantile};

/// The time between samples.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);

/// The samples of an hour, and the one before.
const MAX_SAMPLES: usize = 361;

/// The samples of the last hour.
#[derive(Debug, Default)]
pub struct MetricsHistory(Mutex<VecDeque<TimedSample>>);

#[derive(Debug, Clone)]
struct TimedSample {
    time: SystemTime,
    metrics: MetricsSample,
    clusters: Vec<ClusterDecisions>,
}

/// The changes of metrics in an interval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Interval {
    /// The end of the interval.
    pub(crate) end: SystemTime,
    pub(crate) seconds: f64,
    /// The changes of each endpoint, in the order of [`Endpoint::ALL`].
    pub(crate) endpoints: [EndpointInterval; Endpoint::ALL.len()],
    /// The numbers of allow, deny and no opinion, by cluster.
    pub(crate) clusters: Vec<(Arc<str>, [u64; 3])>,
}

/// The changes of metrics of an endpoint in an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct EndpointInterval {
    /// The numbers of allow, deny and no opinion.
    pub(crate) decisions: [u64; 3],
    /// The number of decisions up to each bound of the histogram of durations.
    durations: Vec<u64>,
    /// The number of requests in flight at the end.
    pub(crate) in_flight: u64,
}

// === impl MetricsHistory ===

impl MetricsHistory {
    /// Adds the sample of `time`.
    pub fn push(&self, time: SystemTime, metrics: MetricsSample, clusters: Vec<ClusterDecisions>) {
        let mut samples = self.samples();
        // If the clock was set back, the history starts again.
        if samples.back().is_some_and(|last| last.time >= time) {
            samples.clear();
        }
        if samples.len() == MAX_SAMPLES {
            samples.pop_front();
        }
        samples.push_back(TimedSample {
            time,
            metrics,
            clusters,
        });
    }

    /// The intervals between consecutive samples, oldest first.
    pub(crate) fn intervals(&self) -> Vec<Interval> {
        self.intervals_of(1)
    }

    /// The intervals between every `samples`th sample, oldest first.
    pub(crate) fn intervals_of(&self, samples: usize) -> Vec<Interval> {
        let kept = self.samples();
        // Counted from the end, so that the newest interval is complete.
        let ends: Vec<&TimedSample> = kept.iter().rev().step_by(samples.max(1)).collect();
        let mut intervals: Vec<Interval> = ends
            .iter()
            .zip(ends.iter().skip(1))
            .map(|(end, start)| Interval::between(start, end))
            .collect();
        intervals.reverse();
        intervals
    }

    /// The interval of the whole history; `None` if there are fewer than two samples.
    pub(crate) fn whole_interval(&self) -> Option<Interval> {
        let samples = self.samples();
        let (start, end) = (samples.front()?, samples.back()?);
        (start.time < end.time).then(|| Interval::between(start, end))
    }

    fn samples(&self) -> MutexGuard<'_, VecDeque<TimedSample>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Interval ===

impl Interval {
    fn between(start: &TimedSample, end: &TimedSample) -> Self {
        let mut endpoints: [EndpointInterval; Endpoint::ALL.len()] = Default::default();
        let pairs = start.metrics.endpoints.iter().zip(&end.metrics.endpoints);
        for (interval, (start, end)) in endpoints.iter_mut().zip(pairs) {
            let durations = start.durations.iter().zip(&end.durations);
            *interval = EndpointInterval {
                decisions: difference(start.decisions, end.decisions),
                durations: durations.map(|(start, end)| end.saturating_sub(*start)).collect(),
                in_flight: end.in_flight,
            };
        }
        let before = |cluster: &str| {
            let found = start.clusters.iter().find(|found| *found.cluster == *cluster);
            found.map_or([0; 3], |found| found.counts)
        };
        let clusters = end.clusters.iter().map(|of| {
            let counts = difference(before(&of.cluster), of.counts);
            (Arc::clone(&of.cluster), counts)
        });
        Self {
            end: end.time,
            seconds: end
                .time
                .duration_since(start.time)
                .unwrap_or_default()
                .as_secs_f64(),
            endpoints,
            clusters: clusters.collect(),
        }
    }

    /// The numbers of allow, deny and no opinion for a cluster; `None` if it had no decisions
    /// before the end.
    pub(crate) fn of_cluster(&self, cluster: &str) -> Option<[u64; 3]> {
        let found = self.clusters.iter().find(|(name, _)| **name == *cluster);
        found.map(|(_, counts)| *counts)
    }

    /// The rates of allow, deny and no opinion for a cluster, per second.
    pub(crate) fn rates_of_cluster(&self, cluster: &str) -> [f64; 3] {
        let counts = self.of_cluster(cluster).unwrap_or_default();
        counts.map(|count| as_f64(count) / self.seconds.max(f64::EPSILON))
    }

    /// The rates of allow, deny and no opinion of all endpoints, per second.
    pub(crate) fn rates(&self) -> [f64; 3] {
        let mut rates = [0.0; 3];
        for endpoint in &self.endpoints {
            for (rate, count) in rates.iter_mut().zip(endpoint.decisions) {
                *rate += as_f64(count) / self.seconds.max(f64::EPSILON);
            }
        }
        rates
    }
}

fn difference(start: [u64; 3], end: [u64; 3]) -> [u64; 3] {
    let mut difference = end;
    for (end, start) in difference.iter_mut().zip(start) {
        *end = end.saturating_sub(start);
    }
    difference
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}

// === impl EndpointInterval ===

impl EndpointInterval {
    /// The given quantile of durations, in seconds: see [`histogram_quantile`].
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let bounds = Metrics::duration_bounds();
        let counts = self.durations.iter().copied();
        histogram_quantile(bounds.iter().copied().zip(counts), share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn mk_sample(decisions: u64) -> MetricsSample {
        let mut sample = MetricsSample::default();
        sample.endpoints[0].decisions = [decisions, decisions / 2, 0];
        sample.endpoints[0].in_flight = decisions;
        sample
    }

    fn mk_clusters(counts: &[(&str, u64)]) -> Vec<ClusterDecisions> {
        counts
            .iter()
            .map(|(cluster, allowed)| ClusterDecisions {
                cluster: (*cluster).into(),
                counts: [*allowed, 0, 0],
            })
            .collect()
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let history = MetricsHistory::default();
        assert_eq!(history.whole_interval(), None);
        for number in 0..1000 {
            history.push(at(number * 10), mk_sample(number * 20), Vec::new());
        }
        let intervals = history.intervals();
        assert_eq!(intervals.len(), 360);
        assert_eq!(intervals[359].end, at(9990));
        assert_eq!(intervals[0].rates(), [2.0, 1.0, 0.0]);
        let whole = history.whole_interval().unwrap();
        assert_eq!(
            (whole.seconds, whole.endpoints[0].decisions),
            (3600.0, [7200, 3600, 0])
        );
        let minutes = history.intervals_of(30);
        assert_eq!(minutes.len(), 12);
        assert_eq!(minutes[11].end, at(9990));
        assert_eq!(minutes[0].endpoints[0].decisions, [600, 300, 0]);
    }

    #[test]
    fn clusters_are_counted_from_when_they_came() {
        let history = MetricsHistory::default();
        history.push(at(0), mk_sample(0), mk_clusters(&[("east", 5)]));
        history.push(at(10), mk_sample(0), mk_clusters(&[("east", 7), ("west", 3)]));
        let whole = history.whole_interval().unwrap();
        assert_eq!(
            whole.clusters,
            [("east".into(), [2, 0, 0]), ("west".into(), [3, 0, 0])]
        );
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_nonsense() {
        let history = MetricsHistory::default();
        history.push(at(100), mk_sample(5), Vec::new());
        history.push(at(50), mk_sample(6), Vec::new());
        assert_eq!(history.whole_interval(), None);
        history.push(at(60), mk_sample(8), Vec::new());
        assert_eq!(
            history.whole_interval().unwrap().endpoints[0].decisions,
            [2, 1, 0]
        );
    }
}
