//! Sends the spans of finished requests to a collector, by OTLP over gRPC, on a thread of its own.
//!
//! Spans wait in a bounded queue and are sent in batches, at the latest a second after the first of
//! them. Each trace contains the endpoint, so that a reload that changes it requires only a new
//! connection.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::runtime;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{Instant, timeout, timeout_at};

use crate::telemetry::metrics::IntCounter;

/// The most traces in the queue.
const MAX_PENDING_TRACES: usize = 1024;
/// The number of spans at which a batch is sent without waiting for more.
const MAX_BATCH_SPANS: usize = 512;
/// How long the first trace of a batch waits for others.
const MAX_BATCH_DELAY: Duration = Duration::from_secs(1);
/// The timeout for sending a batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The queue of finished traces.
#[derive(Debug, Clone)]
pub(crate) struct SpanQueue {
    sender: Sender<Message>,
    dropped: IntCounter,
}

#[derive(Debug)]
enum Message {
    Trace(FinishedTrace),
    /// A request to send the batch, and to signal when that is done.
    Flush(std_mpsc::Sender<()>),
}

/// The task that sends traces.
struct ExportWorker {
    received: Receiver<Message>,
    dropped: IntCounter,
    /// The endpoint and exporter that were used last.
    exporter: Option<(Arc<str>, SpanExporter)>,
    scope: InstrumentationScope,
    /// Whether the last batch could not be sent, which is logged once.
    is_failing: bool,
}

// === impl SpanQueue ===

impl SpanQueue {
    /// Starts the thread. If that fails, logs the error and returns `None`.
    pub(crate) fn start(dropped: IntCounter) -> Option<Self> {
        Self::start_with(MAX_PENDING_TRACES, dropped)
    }

    fn start_with(waiting: usize, dropped: IntCounter) -> Option<Self> {
        let (sender, received) = mpsc::channel(waiting);
        let worker = ExportWorker {
            received,
            dropped: dropped.clone(),
            exporter: None,
            scope: InstrumentationScope::builder("portcullis").build(),
            is_failing: false,
        };
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let started = runtime.and_then(|runtime| {
            let run = move || runtime.block_on(worker.run());
            std::thread::Builder::new().name("traces".to_owned()).spawn(run)
        });
        match started {
            Ok(_) => Some(Self { sender, dropped }),
            Err(error) => {
                tracing::error!(%error, "no spans are sent");
                None
            }
        }
    }

    /// Queues a trace, or drops and counts it if the queue is full. Never blocks.
    pub(crate) fn send(&self, trace: FinishedTrace) {
        let spans = trace.spans.len() as u64;
        if self.sender.try_send(Message::Trace(trace)).is_err() {
            self.dropped.inc_by(spans);
        }
    }

    /// Waits until all queued traces are sent, for `limit` at most, and returns whether they are.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        let (done, is_done) = std_mpsc::channel();
        self.sender.try_send(Message::Flush(done)).is_ok() && is_done.recv_timeout(limit).is_ok()
    }
}

// === impl ExportWorker ===

impl ExportWorker {
    async fn run(mut self) {
        while let Some(first) = self.received.recv().await {
            let mut flushed = Vec::new();
            let mut traces = Vec::new();
            self.gather(first, &mut traces, &mut flushed).await;
            self.send(traces).await;
            for done in flushed {
                // An error means that the caller of `flush` no longer waits.
                let _gone = done.send(());
            }
        }
    }

    /// Collects the first message and those that follow within [`MAX_BATCH_DELAY`].
    async fn gather(
        &mut self,
        first: Message,
        traces: &mut Vec<FinishedTrace>,
        flushed: &mut Vec<std_mpsc::Sender<()>>,
    ) {
        let end = Instant::now() + MAX_BATCH_DELAY;
        let (mut spans, mut next) = (0, Some(first));
        while let Some(message) = next {
            match message {
                Message::Trace(trace) => {
                    spans += trace.spans.len();
                    traces.push(trace);
                }
                Message::Flush(done) => flushed.push(done),
            }
            if spans >= MAX_BATCH_SPANS || !flushed.is_empty() {
                return;
            }
            next = timeout_at(end, self.received.recv()).await.ok().flatten();
        }
    }

    /// Sends traces, in one batch for each endpoint.
    async fn send(&mut self, mut traces: Vec<FinishedTrace>) {
        while let Some(first) = traces.first() {
            let endpoint = Arc::clone(&first.endpoint);
            let (same, others) = traces.into_iter().partition(|trace| trace.endpoint == endpoint);
            traces = others;
            let batch = self.span_data(same);
            let spans = batch.len();
            match self.export(&endpoint, batch).await {
                Ok(()) if self.is_failing => {
                    self.is_failing = false;
                    tracing::info!(%endpoint, "spans are sent again");
                }
                Ok(()) => {}
                Err(error) => {
                    self.dropped.inc_by(spans as u64);
                    if !self.is_failing {
                        tracing::warn!(%endpoint, error, "spans cannot be sent and are dropped");
                    }
                    self.is_failing = true;
                }
            }
        }
    }

    async fn export(&mut self, endpoint: &Arc<str>, batch: Vec<SpanData>) -> Result<(), String> {
        let exporter = match self.exporter.take() {
            Some((of, exporter)) if of == *endpoint => exporter,
            _ => build(endpoint)?,
        };
        let sent = timeout(EXPORT_TIMEOUT, exporter.export(batch)).await;
        self.exporter = Some((Arc::clone(endpoint), exporter));
        match sent {
            Ok(sent) => sent.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", EXPORT_TIMEOUT.as_secs())),
        }
    }

    fn span_data(&self, traces: Vec<FinishedTrace>) -> Vec<SpanData> {
        let of_trace = |trace: FinishedTrace| {
            let (id, is_remote) = (trace.id, trace.is_remote_parent);
            let spans = trace.spans.into_iter();
            spans.map(move |span| (id, is_remote, span))
        };
        let spans = traces.into_iter().flat_map(of_trace);
        spans
            .map(|(id, is_remote, span)| self.data(id, is_remote, span))
            .collect()
    }

    fn data(&self, trace: u128, is_remote: bool, span: FinishedSpan) -> SpanData {
        let context = SpanContext::new(
            TraceId::from_bytes(trace.to_be_bytes()),
            span_id(span.id),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        );
        let attribute = |(key, value): (&'static str, String)| match value.parse::<i64>() {
            Ok(number) if key == "http.response.status_code" => KeyValue::new(key, number),
            _ => KeyValue::new(key, value),
        };
        SpanData {
            span_context: context,
            parent_span_id: span.parent.map_or(SpanId::INVALID, span_id),
            parent_span_is_remote: is_remote && span.kind == SpanRole::Server,
            span_kind: match span.kind {
                SpanRole::Server => SpanKind::Server,
                SpanRole::Internal => SpanKind::Internal,
                SpanRole::Client => SpanKind::Client,
            },
            name: span.name,
            start_time: span.start,
            end_time: span.end,
            attributes: span.attributes.into_iter().map(attribute).collect(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: span.error.map_or(Status::Unset, Status::error),
            instrumentation_scope: self.scope.clone(),
        }
    }
}

fn span_id(id: u64) -> SpanId {
    SpanId::from_bytes(id.to_be_bytes())
}

fn build(endpoint: &str) -> Result<SpanExporter, String> {
    let built = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(EXPORT_TIMEOUT)
        .build();
    let mut exporter = built.map_err(|error| error.to_string())?;
    let resource = Resource::builder()
        .with_service_name("portcullis")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    exporter.set_resource(&resource);
    Ok(exporter)
}

/// The kind of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanRole {
    /// A request that was received.
    Server,
    /// A part of a received request.
    Internal,
    /// A request that was sent.
    Client,
}

/// A finished span.
#[derive(Debug, Clone)]
pub(crate) struct FinishedSpan {
    pub(crate) id: u64,
    pub(crate) parent: Option<u64>,
    pub(crate) name: Cow<'static, str>,
    pub(crate) kind: SpanRole,
    pub(crate) start: SystemTime,
    pub(crate) end: SystemTime,
    pub(crate) attributes: Vec<(&'static str, String)>,
    pub(crate) error: Option<String>,
}

/// Spans of one request to be sent to the collector.
#[derive(Debug)]
pub(crate) struct FinishedTrace {
    pub(crate) endpoint: Arc<str>,
    pub(crate) id: u128,
    pub(crate) is_remote_parent: bool,
    pub(crate) spans: Vec<FinishedSpan>,
}

// The header `traceparent`, which connects the spans of several programs to one trace, and the IDs
// of traces that start here.
//
// <https://www.w3.org/TR/trace-context/#traceparent-header>

/// The header `traceparent`: the trace and the parent span of a request. Its `Display` is in the
/// format of version 00.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    pub(crate) trace: u128,
    pub(crate) span: u64,
    /// Whether the sender records its spans of this trace.
    pub(crate) is_sampled: bool,
}

// === impl TraceParent ===

impl TraceParent {
    /// Parses the value of the header. Returns `None` if it is invalid, so that a new trace is
    /// started. In later versions, the fields of version 00 are read and the rest is ignored, as
    /// the specification requires.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let text = str::from_utf8(value).ok()?;
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = hexadecimal(version, 2)?;
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let trace = hexadecimal(trace, 32).filter(|trace| *trace != 0)?;
        let span = hexadecimal(span, 16).filter(|span| *span != 0)?;
        let flags = hexadecimal(flags, 2)?;
        Some(Self {
            trace,
            span: u64::try_from(span).ok()?,
            is_sampled: flags & 1 == 1,
        })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(f, "00-{:032x}-{:016x}-{flags:02x}", self.trace, self.span)
    }
}

/// Parses a number of `digits` hexadecimal digits in lower case.
fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_number = text.len() == digits && text.bytes().all(is_digit);
    is_number.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// A random number, which is unique in practice but not unpredictable. It is never 0.
pub(crate) fn random_id() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
    }
    // SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_valid_header_is_read() {
        let expected = TraceParent {
            trace: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
            span: 0xb7ad_6b71_6920_3331,
            is_sampled: true,
        };
        assert_eq!(TraceParent::parse(VALID.as_bytes()), Some(expected));
        let unsampled = VALID.replace("-01", "-00");
        let unsampled = TraceParent::parse(unsampled.as_bytes()).unwrap();
        assert!(!unsampled.is_sampled);
        assert_eq!(unsampled.to_string(), VALID.replace("-01", "-00"));
        // Other flags do not affect sampling; later versions may have more fields.
        let later = VALID.replace("00-0af", "01-0af").replace("-01", "-03-more");
        assert_eq!(TraceParent::parse(later.as_bytes()), Some(expected));
        assert_eq!(expected.to_string(), VALID);
    }

    #[test]
    fn numbers_are_written_with_all_their_digits() {
        let small = TraceParent {
            trace: 0xa,
            span: 0xb,
            is_sampled: true,
        };
        let text = small.to_string();
        assert_eq!(text, "00-0000000000000000000000000000000a-000000000000000b-01");
        assert_eq!(TraceParent::parse(text.as_bytes()), Some(small));
    }

    #[test]
    fn anything_else_is_no_header() {
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceParent::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(TraceParent::parse(b"\xff"), None);
    }

    #[test]
    fn numbers_differ() {
        let numbers: HashSet<u64> = (0..10_000).map(|_| random_id()).collect();
        assert_eq!(numbers.len(), 10_000);
        assert!(!numbers.contains(&0));
    }
}
