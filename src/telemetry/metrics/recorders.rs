//! The counters of one policy, and the durations of decisions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, MetricFamily, MetricType};
use prometheus::{Error, Opts};

use super::super::per_worker::{WorkerCounts, WorkerSeries};
use crate::config::Endpoint;
use portcullis_policy::model::PolicyResult;

/// The upper bounds of the buckets for durations, in seconds, from 1 µs.
pub(crate) const BUCKETS: [f64; 16] = [
    1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 2e-2, 0.1, 0.5, 2.0, 10.0,
];

/// The histogram of the durations of decisions, by endpoint.
#[derive(Debug, Clone)]
pub(crate) struct DecisionDurations {
    description: Desc,
    counts: Arc<WorkerCounts>,
}

/// The number of counters of an endpoint: for each bucket, for longer durations, and for the sum in
/// nanoseconds.
const COUNTS_OF_DURATIONS: usize = BUCKETS.len() + 2;

/// The observations of one endpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObservedDurations {
    /// The number of observations up to each of [`BUCKETS`], and their total number.
    pub(crate) cumulative: Vec<u64>,
    seconds: f64,
}

/// The counters of one policy.
#[derive(Debug, Clone)]
pub struct PolicyCounters {
    counts: Arc<WorkerSeries>,
    /// The number of its first counter. There are [`PolicyCounters::COUNT`]: one for each result,
    /// then the cost.
    first: usize,
}

// === impl PolicyCounters ===

impl PolicyCounters {
    /// The number of counters of a policy.
    pub(crate) const COUNT: usize = PolicyResult::ALL.len() + 1;

    /// The counters of all policies, which are in `counts`, [`COUNT`](Self::COUNT) for each.
    pub(crate) fn of_all(counts: &Arc<WorkerSeries>, policies: usize) -> Vec<Self> {
        let counters = |policy| Self {
            counts: Arc::clone(counts),
            first: policy * Self::COUNT,
        };
        (0..policies).map(counters).collect()
    }

    /// Counts a result of the policy.
    pub fn record(&self, result: PolicyResult) {
        let place = PolicyResult::ALL.iter().position(|known| *known == result);
        if let Some(place) = place {
            self.counts.add(self.first + place, 1);
        }
    }

    /// Adds the cost of its expressions.
    pub fn spent(&self, cost: u64) {
        if cost > 0 {
            self.counts.add(self.first + PolicyResult::ALL.len(), cost);
        }
    }
}

// === impl DecisionDurations ===

impl DecisionDurations {
    pub(crate) fn new(options: &Opts, labels: &[&str]) -> Result<Self, Error> {
        let labels = labels.iter().copied().map(str::to_owned).collect();
        Ok(Self {
            description: Desc::new(options.fq_name(), options.help.clone(), labels, HashMap::new())?,
            counts: Arc::new(WorkerCounts::new(Endpoint::ALL.len() * COUNTS_OF_DURATIONS)),
        })
    }

    pub(crate) fn observe(&self, endpoint: Endpoint, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound);
        let first = endpoint.index() * COUNTS_OF_DURATIONS;
        self.counts.add(first + bucket.unwrap_or(BUCKETS.len()), 1);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts.add(first + BUCKETS.len() + 1, nanoseconds);
    }

    pub(crate) fn observed(&self) -> [ObservedDurations; Endpoint::ALL.len()] {
        let sums = self.counts.sums();
        let mut of_endpoints = sums.chunks(COUNTS_OF_DURATIONS).map(ObservedDurations::of);
        Endpoint::ALL.map(|_| of_endpoints.next().unwrap_or_default())
    }
}

impl Collector for DecisionDurations {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.description]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let of_endpoints = Endpoint::ALL.into_iter().zip(self.observed());
        let metrics = of_endpoints.map(|(endpoint, observed)| observed.metric(endpoint));
        let mut family = MetricFamily::default();
        family.set_name(self.description.fq_name.clone());
        family.set_help(self.description.help.clone());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(metrics.collect());
        vec![family]
    }
}

// === impl ObservedDurations ===

impl ObservedDurations {
    /// The observations in the counters of one endpoint.
    #[expect(
        clippy::cast_precision_loss,
        reason = "2^53 nanoseconds are a hundred days of decisions"
    )]
    fn of(counts: &[u64]) -> Self {
        let (buckets, nanoseconds) = counts.split_at(counts.len().min(BUCKETS.len() + 1));
        let so_far = |sum: &mut u64, count: &u64| {
            *sum += count;
            Some(*sum)
        };
        Self {
            cumulative: buckets.iter().scan(0, so_far).collect(),
            seconds: nanoseconds.iter().sum::<u64>() as f64 / 1e9,
        }
    }

    fn metric(&self, endpoint: Endpoint) -> proto::Metric {
        let mut label = proto::LabelPair::default();
        label.set_name("endpoint".to_owned());
        label.set_value(endpoint.as_str().to_owned());
        let bucket = |(bound, count): (&f64, &u64)| {
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(*count);
            bucket
        };
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(BUCKETS.iter().zip(&self.cumulative).map(bucket).collect());
        histogram.set_sample_count(self.cumulative.last().copied().unwrap_or_default());
        histogram.set_sample_sum(self.seconds);
        let mut metric = proto::Metric::from_label(vec![label]);
        metric.set_histogram(histogram);
        metric
    }
}
