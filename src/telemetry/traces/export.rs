//! Sends the spans of requests that have ended to a collector, by OTLP over gRPC, from a thread of its
//! own.
//!
//! Spans wait in a bounded queue and are sent together, a second after the first of them at the
//! latest. The endpoint comes with each trace, so that a reload that changes it needs no more
//! than a new connection.

use std::borrow::Cow;
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

/// Traces that wait.
const MAX_PENDING_TRACES: usize = 1024;
/// From so many on, spans are sent at once.
const MAX_BATCH_SPANS: usize = 512;
/// How long the first of a batch waits for others.
const MAX_BATCH_DELAY: Duration = Duration::from_secs(1);
/// How long sending may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where finished traces wait.
#[derive(Debug, Clone)]
pub(crate) struct SpanQueue {
    sender: Sender<Message>,
    dropped: IntCounter,
}

#[derive(Debug)]
enum Message {
    Trace(FinishedTrace),
    /// Send what is there, and tell when it is done.
    Flush(std_mpsc::Sender<()>),
}

/// Who sends.
struct ExportWorker {
    received: Receiver<Message>,
    dropped: IntCounter,
    /// The collector that spans were sent to last.
    exporter: Option<(Arc<str>, SpanExporter)>,
    scope: InstrumentationScope,
    /// The last batch was not sent: told once.
    is_failing: bool,
}

// === impl SpanQueue ===

impl SpanQueue {
    /// Starts the thread; `None`, and a line in the log, if that cannot be.
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

    /// Has a trace sent, or drops it if too many wait. Never waits.
    pub(crate) fn send(&self, trace: FinishedTrace) {
        let spans = trace.spans.len() as u64;
        if self.sender.try_send(Message::Trace(trace)).is_err() {
            self.dropped.inc_by(spans);
        }
    }

    /// Waits until what waits now is sent, so long at most; whether it was.
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
                // Who asked waits no longer.
                let _gone = done.send(());
            }
        }
    }

    /// The first message and those that follow it soon.
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

    /// Sends traces, those to one collector together.
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

/// Who waits for whom in a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanRole {
    /// The request that was received.
    Server,
    /// A part of it.
    Internal,
    /// A request that was sent.
    Client,
}

/// A span that has ended.
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

/// Spans of one request, on their way to the collector.
#[derive(Debug)]
pub(crate) struct FinishedTrace {
    pub(crate) endpoint: Arc<str>,
    pub(crate) id: u128,
    pub(crate) is_remote_parent: bool,
    pub(crate) spans: Vec<FinishedSpan>,
}
