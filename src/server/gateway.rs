//! State shared by all workers.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::Instant;

use crate::telemetry::metrics::IntGauge;
use arc_swap::{ArcSwapOption, Guard};

use super::connections::Connections;
use super::counters::Counters;
use super::lifecycle::Lifecycle;
use super::pool::Pool;
use super::refusals::Refusals;
use crate::reload::{ReloadState, Snapshot};
use crate::telemetry::metrics::Endpoint;
use crate::telemetry::{DecisionLog, Metrics};

/// The parts that a gateway is made of.
pub struct Gateway {
    /// The files in force.
    pub state: Arc<ReloadState>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Where decisions are written, if anywhere.
    pub decision_log: Option<DecisionLog>,
}

/// A gateway at work.
pub(super) struct Shared {
    pub(super) state: Arc<ReloadState>,
    /// When it was made.
    pub(super) start: Instant,
    pub(super) metrics: Arc<Metrics>,
    pub(super) decision_log: Option<DecisionLog>,
    pub(super) lifecycle: Lifecycle,
    pub(super) refusals: Refusals,
    /// `portcullis_in_flight_requests` of `/authorize`.
    pub(super) authorizing: IntGauge,
    /// The same of `/validate`.
    pub(super) validating: IntGauge,
    /// The same of `/mutate`.
    pub(super) mutating: IntGauge,
    /// `portcullis_shadow_reviews_in_flight`.
    pub(super) shadowing: IntGauge,
    /// Where costly admission reviews run.
    pub(super) pool: Pool,
    counters: ArcSwapOption<Counters>,
    counting: Mutex<()>,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(gateway: Gateway) -> io::Result<Self> {
        let Gateway {
            state,
            metrics,
            decision_log,
        } = gateway;
        let shared = Self {
            authorizing: metrics.in_flight(Endpoint::Authorize),
            validating: metrics.in_flight(Endpoint::Validate),
            mutating: metrics.in_flight(Endpoint::Mutate),
            shadowing: metrics.shadow_in_flight(),
            pool: Pool::start(available_parallelism().map_or(1, usize::from))?,
            lifecycle: Lifecycle::new(Connections::new(Some(metrics.connections()))),
            refusals: Refusals::new(),
            counters: ArcSwapOption::empty(),
            counting: Mutex::new(()),
            start: Instant::now(),
            state,
            metrics,
            decision_log,
        };
        shared.counters(&shared.state.current());
        Ok(shared)
    }

    /// The counters of the policies of `snapshot`, made at the first look after a
    /// reload. A request that began before the reload may find those of the
    /// files after it, which count nothing for it.
    pub(super) fn counters(&self, snapshot: &Snapshot) -> Guard<Option<Arc<Counters>>> {
        let counters = self.counters.load();
        if counters
            .as_ref()
            .is_some_and(|counters| counters.are_of(snapshot))
        {
            return counters;
        }
        drop(counters);
        self.count_current();
        self.counters.load()
    }

    fn count_current(&self) {
        let _one_at_a_time = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.state.current();
        let counters = self.counters.load();
        if !counters
            .as_ref()
            .is_some_and(|counters| counters.are_of(&current))
        {
            self.metrics.configuration(&current.revision);
            self.counters
                .store(Some(Arc::new(Counters::new(&current, &self.metrics))));
        }
    }
}
