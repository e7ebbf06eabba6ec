//! State shared by all workers: the snapshot, the limits and the recorders of decisions; and the
//! lifecycle of a gateway: starting, serving, draining.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tokio::time::sleep;

use super::accept::{ConnectionStage, Connections};
use super::counters::CountersInForce;
use super::invariants;
use super::limits::Limiter;
use super::pool::Pool;
use super::refusals::Refusals;
use crate::columns::{self, DecisionFiles};
use crate::config::LogTrace;
use crate::config::limits::memory_of_process;
use crate::console::ConsoleState;
use crate::recording::Recordings;
use crate::state::{ReloadState, Snapshot};
use crate::telemetry::decision_log::Record;
use crate::telemetry::per_worker::{WorkerRefs, worker_count};
use crate::telemetry::{DecisionLog, LogRecords, Metrics, Traces};
use crate::usage::UsageCounts;
use portcullis_cel::MAX_EVALUATION_BYTES;
use portcullis_policy::authorization::condition::RequestActivation;

/// The parts from which a gateway is built.
pub struct Gateway {
    /// The state with the snapshot in force.
    pub state: Arc<ReloadState>,
    /// The metrics of the gateway.
    pub metrics: Arc<Metrics>,
    /// The decision log, if lines are written to standard output or a file.
    pub decision_log: Option<DecisionLog>,
}

/// The state of a running gateway.
pub(crate) struct GatewayState {
    pub(crate) state: Arc<ReloadState>,
    /// The time at which the gateway was created.
    pub(crate) start: Instant,
    pub(crate) metrics: Arc<Metrics>,
    /// Records each decision where configured.
    pub(crate) recorder: DecisionRecorder,
    pub(crate) recordings: Arc<Recordings>,
    /// Starts the traces of requests.
    pub(crate) traces: Traces,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) refusals: Refusals,
    /// The pool for costly admission reviews.
    pub(crate) admission_pool: Pool,
    /// The pool for costly SubjectAccessReviews.
    pub(crate) authorization_pool: Pool,
    /// The counters of policies and webhooks.
    pub(crate) counters: Arc<CountersInForce>,
    /// The data that the console shows, if there is a console.
    pub(crate) console: Option<Arc<ConsoleState>>,
}

// === impl GatewayState ===

impl GatewayState {
    pub(crate) fn new(gateway: Gateway) -> io::Result<Self> {
        let Gateway {
            state,
            metrics,
            decision_log,
        } = gateway;
        let counters = Arc::new(CountersInForce::new(Arc::clone(&metrics)));
        let observer = Arc::clone(&counters);
        state.observe(move |snapshot| observer.prepare(snapshot));
        invariants::start(&state, Arc::clone(&metrics))?;
        let recordings = Recordings::new(metrics.recording_dropped());
        let recordings = Arc::new(recordings.with_columns(columns::recording_files));
        let lost = "cannot record: no reviews are recorded until the next reload";
        follow(&state, &recordings, lost, |recordings, snapshot| {
            recordings.follow(snapshot.config.recording.as_ref())
        })?;
        let usage = Arc::new(UsageCounts::new(metrics.usage_dropped(), metrics.usage_other()));
        let lost = "cannot count decisions: no usage is kept until the next reload";
        follow(&state, &usage, lost, |usage, snapshot| {
            let clusters = snapshot.authenticator.shares().len();
            usage.follow(snapshot.config.usage.as_ref(), clusters)
        })?;
        let files = Arc::new(DecisionFiles::new(metrics.decision_log_dropped()));
        let lost = "no decisions are written to `decisionLog.folder` until the next reload";
        let has_lines = decision_log.is_some();
        follow(&state, &files, lost, move |files, snapshot| {
            let log = snapshot.config.decision_log.as_ref();
            // Writing lines can only be enabled at the start: until then decisions are written
            // where they were.
            if log.is_some_and(|log| log.folder().is_none()) && !has_lines {
                return Ok(());
            }
            files.follow(log.and_then(|log| log.folder()))
        })?;
        let log_records = Arc::new(LogRecords::new(metrics.log_records_dropped()));
        let lost = "no decisions are sent to the collector until the next reload";
        follow(&state, &log_records, lost, |records, snapshot| {
            records.follow(snapshot.config.tracing.as_ref())
        })?;
        let console = start_console_state(&state);
        let threads = worker_count();
        let recorder = DecisionRecorder {
            log: decision_log,
            files,
            console: console.clone(),
            usage,
            log_records,
        };
        Ok(Self {
            console,
            traces: Traces::new(metrics.trace_spans_dropped()),
            admission_pool: Pool::start("admission", threads, costly_threads(4, MAX_EVALUATION_BYTES))?
                .compiling()?,
            authorization_pool: Pool::start(
                "access",
                threads,
                costly_threads(16, RequestActivation::MAX_BYTES),
            )?,
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

/// How many evaluations of `max_bytes` each fit into one `part`-th of the memory of the process.
fn costly_threads(part: usize, max_bytes: usize) -> usize {
    memory_of_process().map_or(usize::MAX, |bytes| bytes / part / max_bytes)
}

/// The data that the console keeps about `state`, if a console is configured.
fn start_console_state(state: &ReloadState) -> Option<Arc<ConsoleState>> {
    let max_decisions = state.current().config.console.as_ref()?.max_decisions;
    let console = Arc::new(ConsoleState::new(
        max_decisions,
        &state.current().revision,
        SystemTime::now(),
    ));
    let following = Arc::clone(&console);
    state.observe(move |snapshot| {
        following.separate_restricted_clusters(&snapshot.config);
        following.revision_replaced(&snapshot.revision, SystemTime::now());
        following.follow_changes(snapshot, SystemTime::now());
    });
    Some(console)
}

/// Applies the configuration of each snapshot to `follower`. An error at the start is returned;
/// later ones are logged as `lost`.
fn follow<F: Send + Sync + 'static>(
    state: &ReloadState,
    follower: &Arc<F>,
    lost: &'static str,
    follow: impl Fn(&F, &Snapshot) -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<()> {
    follow(follower, &state.current())?;
    let follower = Arc::clone(follower);
    state.observe(move |snapshot| {
        if let Err(error) = follow(&follower, snapshot) {
            tracing::error!(%error, "{lost}");
        }
    });
    Ok(())
}

/// Records decisions. The line of each decision is written once for all destinations.
pub(crate) struct DecisionRecorder {
    log: Option<DecisionLog>,
    files: Arc<DecisionFiles>,
    console: Option<Arc<ConsoleState>>,
    usage: Arc<UsageCounts>,
    log_records: Arc<LogRecords>,
}

// === impl DecisionRecorder ===

impl DecisionRecorder {
    /// Whether decisions are recorded anywhere.
    pub(crate) fn is_on(&self) -> bool {
        self.writes_lines() || self.usage.is_on()
    }

    /// Whether a line is written for each decision, which includes the reason.
    pub(crate) fn writes_lines(&self) -> bool {
        self.log.is_some() || self.files.is_on() || self.console.is_some() || self.log_records.is_on()
    }

    /// Whether the nearest misses of each decision are needed.
    pub(crate) fn needs_near_misses(&self, snapshot: &Snapshot) -> bool {
        self.console.is_some() || logs_near_misses(snapshot)
    }

    /// Records a decision that was made by `snapshot`. The console always gets the nearest misses,
    /// the log only if its configuration says so.
    pub(crate) fn record(&self, record: &Record<'_>, snapshot: &Snapshot) {
        self.usage.count(record);
        if !self.writes_lines() {
            return;
        }
        record.with_line(|line| {
            if let Some(log) = &self.log {
                log.write(line, logs_near_misses(snapshot));
            }
            self.files.write(line, logs_near_misses(snapshot));
            self.log_records.write(line, logs_near_misses(snapshot));
            if let Some(console) = &self.console {
                console.push(record.decision, record.cluster, line.whole());
            }
        });
    }

    /// Waits until every line is written to the log, for `limit` at most, and returns whether it
    /// is.
    pub(crate) fn flush_log(&self, limit: Duration) -> bool {
        self.log.as_ref().is_none_or(|log| log.flush(limit))
    }

    /// Waits until every decision is written to a Parquet file, for `limit` at most, and returns
    /// whether it is.
    pub(crate) fn flush_files(&self, limit: Duration) -> bool {
        self.files.flush(limit)
    }

    /// Waits until every line is sent to the collector or in the spool, for `limit` at most, and
    /// returns whether it is.
    pub(crate) fn flush_log_records(&self, limit: Duration) -> bool {
        self.log_records.flush(limit)
    }

    /// Waits until every decision is counted in a usage file, for `limit` at most, and returns
    /// whether it is.
    pub(crate) fn flush_usage(&self, limit: Duration) -> bool {
        self.usage.flush(limit)
    }
}

fn logs_near_misses(snapshot: &Snapshot) -> bool {
    let log = snapshot.config.decision_log.as_ref();
    log.is_some_and(|log| log.trace == LogTrace::NearMisses)
}

/// The least time that a draining gateway stays although no request is in flight: requests may be
/// on the wire, and a probe should see that it is not ready.
const MIN_IDLE_TIME: Duration = Duration::from_millis(100);

/// The interval at which a draining gateway checks whether it may end.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The phase in the lifecycle of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LifecyclePhase {
    /// Listening, but not serving yet.
    Starting,
    /// Answering requests.
    Serving,
    /// Answering requests that still arrive before it ends.
    Draining,
}

/// The lifecycle phase, and the requests in flight.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    phase: AtomicU8,
    /// Authorization requests in flight.
    pub(crate) authorization: WorkerRefs<Limiter>,
    /// Admission requests in flight.
    pub(crate) admission: WorkerRefs<Limiter>,
    /// Answered admission requests for which webhooks in shadow are still called.
    pub(crate) shadow: WorkerRefs<Limiter>,
    /// The connections of the `server` listener.
    pub(crate) connections: Arc<Connections>,
}

// === impl Lifecycle ===

impl Lifecycle {
    /// The state of a gateway that is starting, without requests in flight.
    pub(crate) fn new(connections: Arc<Connections>) -> Self {
        Self {
            phase: AtomicU8::new(0),
            authorization: WorkerRefs::default(),
            admission: WorkerRefs::default(),
            shadow: WorkerRefs::default(),
            connections,
        }
    }

    pub(crate) fn phase(&self) -> LifecyclePhase {
        match self.phase.load(Ordering::Acquire) {
            0 => LifecyclePhase::Starting,
            1 => LifecyclePhase::Serving,
            _ => LifecyclePhase::Draining,
        }
    }

    /// Enters the phase in which requests are served.
    pub(crate) fn serve(&self) {
        self.phase.store(1, Ordering::Release);
    }

    /// Fails readiness from now on, and asks clients to reconnect elsewhere.
    pub(crate) fn drain(&self) {
        self.phase.store(2, Ordering::Release);
        self.connections.advance(ConnectionStage::Draining);
    }

    /// Ends every connection and waits until they are closed, for `limit` at most.
    pub(crate) async fn close(&self, limit: Duration) {
        self.connections.advance(ConnectionStage::Ending);
        let start = Instant::now();
        while self.connections.len() > 0 && start.elapsed() < limit {
            sleep(POLL_INTERVAL).await;
        }
    }

    fn is_idle(&self) -> bool {
        [&self.authorization, &self.admission, &self.shadow]
            .iter()
            .all(|limiter| limiter.shared().is_empty())
    }

    /// Waits until no request is in flight, for `limit` at most, and returns whether that is so.
    pub(crate) async fn wait_until_idle(&self, limit: Duration) -> bool {
        let start = Instant::now();
        loop {
            let since = start.elapsed();
            if since >= MIN_IDLE_TIME.min(limit) && self.is_idle() {
                return true;
            }
            if since >= limit {
                return false;
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}
