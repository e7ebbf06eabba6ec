//! State shared by all workers: the snapshot, limits, where decisions are written (decision log,
//! console); and the lifecycle of a gateway: starting, serving, draining.

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
pub(crate) struct GatewayState {
    pub(crate) state: Arc<ReloadState>,
    /// When it was made.
    pub(crate) start: Instant,
    pub(crate) metrics: Arc<Metrics>,
    /// Where decisions are written and counted, if anywhere.
    pub(crate) recorder: DecisionRecorder,
    pub(crate) recordings: Arc<Recordings>,
    /// Begins the traces of requests.
    pub(crate) traces: Traces,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) refusals: Refusals,
    /// Where costly admission reviews run.
    pub(crate) admission_pool: Pool,
    /// Where costly SubjectAccessReviews do.
    pub(crate) authorization_pool: Pool,
    /// What policies come to, and webhooks, is counted by these.
    pub(crate) counters: Arc<CountersInForce>,
    /// What the console remembers, where there is one.
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
        state.observe(move |snapshot| observer.begin(snapshot));
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
            // Lines begin at the next start: until then decisions go where they went.
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
        let console = follow_for_console(&state);
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

/// How many evaluations of at most `max_bytes` fit into one `part`-th of the memory of the process.
fn costly_threads(part: usize, max_bytes: usize) -> usize {
    memory_of_process().map_or(usize::MAX, |bytes| bytes / part / max_bytes)
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
        following.follow_changes(snapshot, SystemTime::now());
    });
    Some(console)
}

/// Has `follower` follow each set that comes into force. What fails at the start ends it; later it is
/// logged as `lost`.
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

/// Takes decisions. The line of each is made once, for all who want it.
pub(crate) struct DecisionRecorder {
    log: Option<DecisionLog>,
    files: Arc<DecisionFiles>,
    console: Option<Arc<ConsoleState>>,
    usage: Arc<UsageCounts>,
    log_records: Arc<LogRecords>,
}

// === impl DecisionRecorder ===

impl DecisionRecorder {
    /// Whether anybody wants decisions.
    pub(crate) fn is_on(&self) -> bool {
        self.writes_lines() || self.usage.is_on()
    }

    /// Whether a line is made of each decision, with the reason.
    pub(crate) fn writes_lines(&self) -> bool {
        self.log.is_some() || self.files.is_on() || self.console.is_some() || self.log_records.is_on()
    }

    /// Whether anybody wants to know which rules came nearest.
    pub(crate) fn wants_near_misses(&self, snapshot: &Snapshot) -> bool {
        self.console.is_some() || logs_near_misses(snapshot)
    }

    /// Writes and counts a decision, by `snapshot`. The rules that came nearest are always for the console,
    /// and for the log where its configuration says so.
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

    /// Waits until every line so far is written to the log, `limit` at most. Whether it is.
    pub(crate) fn flush_log(&self, limit: Duration) -> bool {
        self.log.as_ref().is_none_or(|log| log.flush(limit))
    }

    /// Waits until every decision so far is in a file of columns, `limit` at most. Whether it is.
    pub(crate) fn flush_files(&self, limit: Duration) -> bool {
        self.files.flush(limit)
    }

    /// Waits until every line so far is sent to the collector or in the spool, `limit` at most. Whether
    /// it is.
    pub(crate) fn flush_log_records(&self, limit: Duration) -> bool {
        self.log_records.flush(limit)
    }

    /// Waits until every decision so far is in a file of usage, `limit` at most. Whether it is.
    pub(crate) fn flush_usage(&self, limit: Duration) -> bool {
        self.usage.flush(limit)
    }
}

fn logs_near_misses(snapshot: &Snapshot) -> bool {
    let log = snapshot.config.decision_log.as_ref();
    log.is_some_and(|log| log.trace == LogTrace::NearMisses)
}

/// How long a draining gateway stays although nothing is in flight: requests
/// may be on the wire, and a probe may look.
const MIN_IDLE_TIME: Duration = Duration::from_millis(100);

/// How often a draining gateway looks whether it may end.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Where in its life the gateway is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LifecyclePhase {
    /// Listening, not answering yet.
    Starting,
    /// Answering.
    Serving,
    /// Answering what still comes, about to end.
    Draining,
}

/// The phase, and what is in flight.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    phase: AtomicU8,
    /// Requests for authorization.
    pub(crate) authorization: WorkerRefs<Limiter>,
    /// Requests for admission.
    pub(crate) admission: WorkerRefs<Limiter>,
    /// Requests that are answered, about which webhooks in shadow are asked.
    pub(crate) shadow: WorkerRefs<Limiter>,
    /// The connections of the `server` listener.
    pub(crate) connections: Arc<Connections>,
}

// === impl Lifecycle ===

impl Lifecycle {
    /// Starting, nothing in flight.
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

    /// Answers from now on.
    pub(crate) fn serve(&self) {
        self.phase.store(1, Ordering::Release);
    }

    /// Fails readiness from now on, and has clients look for other connections.
    pub(crate) fn drain(&self) {
        self.phase.store(2, Ordering::Release);
        self.connections.advance(ConnectionStage::Draining);
    }

    /// Ends every connection and waits for that, `limit` at most.
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

    /// Waits until nothing is in flight, `limit` at most. Whether nothing is.
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
