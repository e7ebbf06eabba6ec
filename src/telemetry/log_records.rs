//! Decisions as OpenTelemetry log records: the lines of the decision log, sent by OTLP over gRPC to
//! the same collector as spans.
//!
//! ```text
//! worker ──line──▶ [queue, bounded] ──▶ writer thread ──segment──▶ backlog ──▶ sender thread ──▶ collector
//!                      └── full: dropped and counted      memory, or files of a spool;
//!                                                         full: dropped and counted
//! ```
//!
//! No response waits for the collector or for a disk. While the collector is unavailable, segments
//! stay in the backlog, and the oldest is retried after growing pauses. Files of a spool are also
//! sent after a restart. A record may arrive twice if a response of the collector is lost.

mod backlog;

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::runtime::{self, Runtime};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::decision_log::DecisionLine;
use super::metrics::IntCounter;
use super::write_queue::{BatchWriter, QueueSettings, SwitchedQueue, WriteQueue};
use crate::config::{SpoolBounds, Tracing};
use backlog::{Backlog, MAX_PENDING_BYTES, MAX_SEGMENT_AGE_AWAY, MIN_RETRY_DELAY, Spool, lock};
use portcullis_policy::model::cut;

/// The size in bytes at which a segment is closed.
const SEGMENT_BYTES: usize = 512 << 10;
/// How long a segment waits for more lines.
const MAX_SEGMENT_AGE: Duration = Duration::from_secs(1);
/// The most bytes of lines in one request. Collectors accept 4 MiB.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// The most bytes of a collector's response.
const MAX_REPLY_BYTES: usize = 64 << 10;
/// The most bytes of its message that are logged.
const MAX_MESSAGE_BYTES: usize = 512;
/// The timeout of one attempt.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause between two attempts. Pauses are doubled up to this.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The current export of decisions as log records, if there is one.
#[derive(Debug)]
pub struct LogRecords {
    queue: SwitchedQueue<Option<SpoolBounds>, Vec<u8>>,
    endpoint: Arc<Mutex<Arc<str>>>,
    dropped: IntCounter,
}

/// Collects lines into segments.
struct SegmentWriter {
    backlog: Arc<Backlog>,
    lines: Vec<u8>,
    count: u64,
    /// The time at which the first of the lines was added.
    begun: Instant,
    /// Whether the last segment could not be written, which is logged once.
    is_failing: bool,
}

/// Sends segments.
struct Sender {
    backlog: Arc<Backlog>,
    runtime: Runtime,
    /// The endpoint and client that were used last.
    client: Option<(Arc<str>, LogsServiceClient<Channel>)>,
    /// Whether the collector rejected the last request, which is logged once.
    is_rejected: bool,
}

/// Why the collector did not accept lines.
enum SendError {
    /// The collector may accept them later.
    Away(String),
    /// It never will.
    Rejected(String),
}

// === impl LogRecords ===

impl LogRecords {
    /// Sends nothing until [`follow`](Self::follow). `dropped` counts decisions that are not sent.
    #[must_use]
    pub fn new(dropped: IntCounter) -> Self {
        Self {
            queue: SwitchedQueue::new(),
            endpoint: Arc::new(Mutex::new(Arc::from(""))),
            dropped,
        }
    }

    /// Applies the settings of `tracing` from now on; `None` stops sending. Lines in memory are
    /// still sent once; those in a spool stay there.
    ///
    /// # Errors
    ///
    /// The folder cannot be created or read, or a thread cannot be started. Nothing is sent then.
    pub fn follow(&self, tracing: Option<&Tracing>) -> io::Result<()> {
        let tracing = tracing.filter(|tracing| tracing.logs);
        if let Some(tracing) = tracing {
            *lock(&self.endpoint) = Arc::clone(&tracing.endpoint);
        }
        self.queue.apply(tracing.map(|tracing| &tracing.spool), |bounds| {
            let backlog = Arc::new(Backlog {
                spool: bounds.as_ref().map(Spool::open).transpose()?,
                state: Mutex::default(),
                changed: Condvar::new(),
                endpoint: Arc::clone(&self.endpoint),
                dropped: self.dropped.clone(),
            });
            Sender::start(Arc::clone(&backlog))?;
            let queue = QueueSettings {
                thread: "log-records",
                limit: MAX_PENDING_BYTES,
                dropped: self.dropped.clone(),
            };
            WriteQueue::start(SegmentWriter::new(backlog), queue)
        })
    }

    /// Whether decisions are sent.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.queue.is_on()
    }

    /// Queues the line of a decision, or drops and counts it if the queue is full.
    pub fn write(&self, line: &DecisionLine<'_>, with_near_misses: bool) {
        self.queue.push(|queue| {
            let [start, end] = line.parts(with_near_misses);
            queue.push(start.len() + end.len(), |pending| {
                pending.extend_from_slice(start);
                pending.extend_from_slice(end);
            });
        });
    }

    /// Waits until every line is sent or in the spool, for `limit` at most, and returns whether
    /// that is so.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        self.queue.flush(limit)
    }
}

// === impl SegmentWriter ===

impl SegmentWriter {
    fn new(backlog: Arc<Backlog>) -> Self {
        Self {
            backlog,
            lines: Vec::new(),
            count: 0,
            begun: Instant::now(),
            is_failing: false,
        }
    }

    /// How long the segment may wait for more lines.
    fn time_left(&self) -> Duration {
        let age = if self.backlog.state().is_unavailable {
            MAX_SEGMENT_AGE_AWAY
        } else {
            MAX_SEGMENT_AGE
        };
        age.saturating_sub(self.begun.elapsed())
    }

    fn close(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let (lines, count) = (std::mem::take(&mut self.lines), std::mem::take(&mut self.count));
        match self.backlog.add(lines, count) {
            Ok(()) => self.is_failing = false,
            Err(error) => {
                if !self.is_failing {
                    tracing::error!(%error, "log records cannot wait in the spool and are dropped");
                }
                self.is_failing = true;
            }
        }
    }
}

impl BatchWriter<Vec<u8>> for SegmentWriter {
    /// Returns 0, because lines are counted where they are dropped.
    fn write(&mut self, batch: &mut Vec<u8>, items: u64) -> u64 {
        if self.lines.is_empty() {
            self.begun = Instant::now();
        }
        self.lines.append(batch);
        self.count += items;
        if self.lines.len() >= SEGMENT_BYTES || self.time_left().is_zero() {
            self.close();
        }
        0
    }

    fn flush(&mut self) {
        self.close();
        self.backlog.flush();
    }

    fn idle(&mut self) -> Option<Duration> {
        if !self.lines.is_empty() && self.time_left().is_zero() {
            self.close();
        }
        (!self.lines.is_empty()).then(|| self.time_left().max(Duration::from_millis(1)))
    }
}

impl Drop for SegmentWriter {
    fn drop(&mut self) {
        self.close();
        self.backlog.state().is_closed = true;
        self.backlog.changed.notify_all();
    }
}

// === impl Sender ===

impl Sender {
    fn start(backlog: Arc<Backlog>) -> io::Result<()> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let sender = Self {
            backlog,
            runtime,
            client: None,
            is_rejected: false,
        };
        let thread = thread::Builder::new().name("log-sender".to_owned());
        thread.spawn(move || sender.run()).map(drop)
    }

    fn run(mut self) {
        let backlog = Arc::clone(&self.backlog);
        if !backlog.wait_for_spool() {
            return;
        }
        while let Some(segment) = backlog.next() {
            for lines in requests(&segment.lines) {
                if !self.send_until_taken(lines) && segment.file.is_some() {
                    return;
                }
            }
            while !backlog.done(&segment) {
                if backlog.pause(MAX_RETRY_DELAY) {
                    return;
                }
            }
        }
    }

    /// Sends lines until the collector has accepted or rejected them, and returns `true`; `false`
    /// if sending ends before. Lines that are not in a file then count as dropped.
    fn send_until_taken(&mut self, lines: &[u8]) -> bool {
        let mut delay = MIN_RETRY_DELAY;
        loop {
            let endpoint = Arc::clone(&*lock(&self.backlog.endpoint));
            match self.send(&endpoint, lines) {
                Ok(rejected) => {
                    self.is_rejected = false;
                    self.backlog.dropped.inc_by(rejected);
                    if self.backlog.set_unavailable(false) {
                        tracing::info!(%endpoint, "log records are sent again");
                    }
                    return true;
                }
                Err(SendError::Rejected(error)) => {
                    if !std::mem::replace(&mut self.is_rejected, true) {
                        tracing::warn!(%endpoint, error, "the collector rejects log records: they are dropped");
                    }
                    self.backlog.dropped.inc_by(count(lines));
                    return true;
                }
                Err(SendError::Away(error)) => {
                    if self.backlog.set_unavailable(true) {
                        tracing::warn!(%endpoint, error, "log records cannot be sent and wait");
                    }
                }
            }
            if self.backlog.pause(delay) {
                if self.backlog.spool.is_none() {
                    self.backlog.dropped.inc_by(count(lines));
                }
                return false;
            }
            delay = (delay * 2).min(MAX_RETRY_DELAY);
        }
    }

    /// Sends lines once, and returns how many records the collector rejected.
    fn send(&mut self, endpoint: &Arc<str>, lines: &[u8]) -> Result<u64, SendError> {
        let request = request(lines, SystemTime::now());
        // The channel connects when a request is sent, on the runtime.
        let _within = self.runtime.enter();
        let mut client = match self.client.take() {
            Some((of, client)) if of == *endpoint => client,
            _ => connect(endpoint).map_err(|error| SendError::Away(error.to_string()))?,
        };
        let exported = async { tokio::time::timeout(EXPORT_TIMEOUT, client.export(request)).await };
        let exported = self.runtime.block_on(exported);
        self.client = Some((Arc::clone(endpoint), client));
        match exported {
            Err(_) => Err(SendError::Away(format!(
                "no answer within {} s",
                EXPORT_TIMEOUT.as_secs()
            ))),
            Ok(Err(status)) => Err(SendError::from(&status)),
            Ok(Ok(reply)) => {
                let partial = reply.into_inner().partial_success;
                let rejected = partial.map_or(0, |partial| partial.rejected_log_records);
                Ok(u64::try_from(rejected).unwrap_or_default().min(count(lines)))
            }
        }
    }
}

fn connect(endpoint: &Arc<str>) -> Result<LogsServiceClient<Channel>, tonic::transport::Error> {
    let channel = Endpoint::from_shared(endpoint.to_string())?
        .connect_timeout(EXPORT_TIMEOUT)
        .connect_lazy();
    Ok(LogsServiceClient::new(channel).max_decoding_message_size(MAX_REPLY_BYTES))
}

// === impl SendError ===

impl From<&Status> for SendError {
    /// Follows <https://opentelemetry.io/docs/specs/otlp/#failures>.
    fn from(status: &Status) -> Self {
        let text = format!(
            "{:?}: {}",
            status.code(),
            cut(status.message().to_owned(), MAX_MESSAGE_BYTES)
        );
        match status.code() {
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
            | Code::ResourceExhausted => Self::Away(text),
            // Responses of a proxy, or of a service that is not a collector: a collector may
            // replace it.
            Code::Unimplemented | Code::Unauthenticated | Code::PermissionDenied | Code::Unknown => {
                Self::Away(text)
            }
            _ => Self::Rejected(text),
        }
    }
}

/// Splits the lines of a segment into parts that are sent in one request each.
fn requests(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = lines;
    std::iter::from_fn(move || {
        let is_end = |byte: &u8| *byte == b'\n';
        let most = rest.get(..MAX_REQUEST_BYTES.min(rest.len()))?;
        let end = if most.len() == rest.len() {
            rest.len()
        } else {
            // A line is much shorter than a request.
            most.iter()
                .rposition(is_end)
                .map_or(most.len(), |position| position + 1)
        };
        let (these, others) = rest.split_at(end);
        rest = others;
        (!these.is_empty()).then_some(these)
    })
}

fn count(lines: &[u8]) -> u64 {
    lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .count() as u64
}

/// The members of a line that become attributes of its record.
#[derive(Deserialize)]
struct LineHead<'l> {
    #[serde(borrow)]
    time: &'l str,
    cluster: String,
    endpoint: &'l str,
    decision: &'l str,
}

fn request(lines: &[u8], now: SystemTime) -> ExportLogsServiceRequest {
    let observed = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let observed = u64::try_from(observed).unwrap_or(u64::MAX);
    let log_records = lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| record(line, observed))
        .collect();
    let scope = InstrumentationScope {
        name: "portcullis".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let resource = Resource {
        attributes: vec![
            attribute("service.name", "portcullis"),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
        ],
        ..Resource::default()
    };
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(resource),
            scope_logs: vec![ScopeLogs {
                scope: Some(scope),
                log_records,
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }],
    }
}

/// The record of a line, whose body is the line itself.
fn record(line: &[u8], observed: u64) -> LogRecord {
    let head = serde_json::from_slice::<LineHead<'_>>(line).ok();
    let time = head.as_ref().and_then(|head| nanoseconds(head.time));
    let attributes = head.map(|head| {
        vec![
            attribute("portcullis.cluster", &head.cluster),
            attribute("portcullis.endpoint", head.endpoint),
            attribute("portcullis.decision", head.decision),
        ]
    });
    LogRecord {
        time_unix_nano: time.unwrap_or(observed),
        observed_time_unix_nano: observed,
        severity_number: SeverityNumber::Info.into(),
        severity_text: "INFO".to_owned(),
        body: Some(text(&String::from_utf8_lossy(line))),
        attributes: attributes.unwrap_or_default(),
        event_name: "portcullis.decision".to_owned(),
        ..LogRecord::default()
    }
}

fn nanoseconds(time: &str) -> Option<u64> {
    let time = OffsetDateTime::parse(time, &Rfc3339).ok()?;
    u64::try_from(time.unix_timestamp_nanos()).ok()
}

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(text(value)),
        ..KeyValue::default()
    }
}

fn text(value: &str) -> AnyValue {
    AnyValue {
        value: Some(any_value::Value::StringValue(value.to_owned())),
    }
}

#[cfg(test)]
mod tests;
