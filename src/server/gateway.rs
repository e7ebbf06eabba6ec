//! State shared by all workers.

use std::io;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Instant, SystemTime};

use crate::telemetry::metrics::IntGauge;

use super::connections::Connections;
use super::counters::CountersInForce;
use super::lifecycle::Lifecycle;
use super::pool::Pool;
use super::recorder::DecisionRecorder;
use super::refusals::Refusals;
use crate::console::ConsoleState;
use crate::recording::Recordings;
use crate::reload::ReloadState;
use crate::telemetry::metrics::Endpoint;
use crate::telemetry::{DecisionLog, Metrics, Traces};

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
pub(crate) struct Shared {
    pub(crate) state: Arc<ReloadState>,
    /// When it was made.
    pub(crate) start: Instant,
    pub(crate) metrics: Arc<Metrics>,
    /// Where decisions are written, if anywhere.
    pub(crate) recorder: Option<DecisionRecorder>,
    pub(crate) recordings: Arc<Recordings>,
    /// Begins the traces of requests.
    pub(crate) traces: Traces,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) refusals: Refusals,
    /// `portcullis_in_flight_requests` of `/authorize`.
    pub(crate) authorizing: IntGauge,
    /// The same of `/validate`.
    pub(crate) validating: IntGauge,
    /// The same of `/mutate`.
    pub(crate) mutating: IntGauge,
    /// `portcullis_shadow_reviews_in_flight`.
    pub(crate) shadowing: IntGauge,
    /// Where costly admission reviews run.
    pub(crate) pool: Pool,
    /// Where costly SubjectAccessReviews do.
    pub(crate) access_pool: Pool,
    /// What policies come to, and webhooks, is counted by these.
    pub(crate) counters: Arc<CountersInForce>,
    /// What the console remembers, where there is one.
    pub(crate) console: Option<Arc<ConsoleState>>,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(gateway: Gateway) -> io::Result<Self> {
        let Gateway {
            state,
            metrics,
            decision_log,
        } = gateway;
        let counters = Arc::new(CountersInForce::new(Arc::clone(&metrics)));
        let observer = Arc::clone(&counters);
        state.observe(move |snapshot| observer.begin(snapshot));
        let recordings = Arc::new(Recordings::new(metrics.recording_dropped()));
        recordings.follow(state.current().config.recording.as_ref())?;
        let following = Arc::clone(&recordings);
        state.observe(move |snapshot| {
            if let Err(error) = following.follow(snapshot.config.recording.as_ref()) {
                tracing::error!(%error, "cannot record: no reviews are recorded until the next reload");
            }
        });
        let console = follow_for_console(&state);
        let threads = available_parallelism().map_or(1, usize::from);
        let recorder = DecisionRecorder::new(decision_log, console.clone());
        Ok(Self {
            console,
            authorizing: metrics.in_flight(Endpoint::Authorize),
            validating: metrics.in_flight(Endpoint::Validate),
            mutating: metrics.in_flight(Endpoint::Mutate),
            shadowing: metrics.shadow_in_flight(),
            traces: Traces::new(metrics.trace_spans_dropped()),
            pool: Pool::start("admission", threads)?.compiling()?,
            access_pool: Pool::start("access", threads)?,
            lifecycle: Lifecycle::new(Connections::new(Some(metrics.connections()))),
            refusals: Refusals::new(),
            counters,
            recordings,
            start: Instant::now(),
            state,
            metrics,
            recorder,
        })
    }
}

/// What the console remembers of `state`, if the configuration has one.
fn follow_for_console(state: &ReloadState) -> Option<Arc<ConsoleState>> {
    let max_decisions = state.current().config.console.as_ref()?.max_decisions;
    let console = Arc::new(ConsoleState::new(
        max_decisions,
        &state.current().revision,
        SystemTime::now(),
    ));
    let following = Arc::clone(&console);
    state.observe(move |snapshot| {
        following.follow(&snapshot.config);
        following.replaced(&snapshot.revision, SystemTime::now());
    });
    Some(console)
}
