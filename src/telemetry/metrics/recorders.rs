//! What is recorded of one policy, and of one webhook behind the gateway.

use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntGauge};

use super::labels::{ByLabel, Outcome, PolicyResult};

/// The counters of one policy.
#[derive(Debug, Clone)]
pub struct PolicyCounters {
    pub(crate) results: ByLabel<PolicyResult, IntCounter>,
    pub(crate) cost: IntCounter,
}

/// The recorders of one webhook behind the gateway.
#[derive(Debug, Clone)]
pub struct UpstreamRecorder {
    pub(crate) requests: ByLabel<Outcome, IntCounter>,
    pub(crate) duration: Histogram,
    pub(crate) breaker_open: IntGauge,
}

// === impl PolicyCounters ===

impl PolicyCounters {
    /// The policy was asked and said this.
    pub fn record(&self, result: PolicyResult) {
        self.results.record(result, IntCounter::inc);
    }

    /// Its expressions cost this.
    pub fn spent(&self, cost: u64) {
        if cost > 0 {
            self.cost.inc_by(cost);
        }
    }
}

// === impl UpstreamRecorder ===

impl UpstreamRecorder {
    /// A request ended.
    pub fn record(&self, outcome: Outcome, took: Duration) {
        self.requests.record(outcome, IntCounter::inc);
        self.duration.observe(took.as_secs_f64());
    }

    /// A request was not made: there are too many, or it would be no use.
    pub fn refused(&self) {
        self.requests.record(Outcome::Failure, IntCounter::inc);
    }

    /// Whether the breaker of the webhook is open.
    pub fn breaker_open(&self, is_open: bool) {
        self.breaker_open.set(i64::from(is_open));
    }
}
