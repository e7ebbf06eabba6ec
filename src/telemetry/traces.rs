//! Traces: how long each part of a request took, sent to an OpenTelemetry collector.
//!
//! ```text
//! ReviewTrace ── span() ─▶ SpanTimer ── dropped ─▶ FinishedSpan ─┐ kept until the request ends
//!      └─────────────────── finish() ────────────────────────────┴─▶ bounded queue ─▶ exporter
//! ```
//!
//! For a request that is not traced the [`ReviewTrace`] is empty, and each call on it costs one
//! comparison. No request waits for the collector: spans that do not fit into the queue, or cannot
//! be sent, are dropped and counted.
//!
//! The caller's `traceparent` (<https://www.w3.org/TR/trace-context/>) decides whether a request is
//! traced, or without one `tracing.sampleRatio`. A trace starts only after the caller was
//! authenticated, so that unauthenticated clients cannot cause any. Calls to webhooks have a
//! `traceparent` of the same trace, so that the decision of the caller applies to them, too.

mod export;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use export::{FinishedSpan, FinishedTrace, SpanQueue as SpanSink, SpanRole, random_id};

pub use export::TraceParent;

use super::metrics::IntCounter;
use crate::config::Tracing;
use portcullis_policy::model::{Cause, Decision};

/// The most spans of one request. Kubernetes allows far fewer webhooks.
const MAX_SPANS: usize = 1024;

/// Starts traces, and sends them.
#[derive(Debug)]
pub struct Traces {
    queue: OnceLock<Option<SpanSink>>,
    /// Counts spans that were not sent.
    dropped: IntCounter,
}

/// The parameters of a new trace.
#[derive(Debug, Clone, Copy)]
pub struct TraceBegin<'a> {
    /// The settings for sampling and sending.
    pub tracing: &'a Tracing,
    /// The caller's `traceparent`.
    pub parent: Option<&'a [u8]>,
    /// The name of the root span.
    pub name: &'static str,
    /// When the request arrived.
    pub arrived: Instant,
    /// The wall-clock time at which the request arrived.
    pub time: SystemTime,
}

/// The trace of one request, or an empty one. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ReviewTrace {
    live: Option<Arc<LiveTrace>>,
    /// The caller's `traceparent`, if it says that the request is not sampled.
    unsampled: Option<Arc<TraceParent>>,
}

/// A span, which ends when this is dropped.
#[derive(Debug)]
#[must_use = "the span ends when this is dropped"]
pub struct SpanTimer(Option<RunningSpan>);

#[derive(Debug)]
struct RunningSpan {
    trace: Arc<LiveTrace>,
    id: u64,
    name: Cow<'static, str>,
    kind: SpanRole,
    start: Instant,
    error: Option<String>,
}

/// A trace that is not empty.
#[derive(Debug)]
struct LiveTrace {
    queue: SpanSink,
    endpoint: Arc<str>,
    id: u128,
    /// The ID of the root span.
    root: u64,
    parent: Option<u64>,
    name: &'static str,
    arrived: Instant,
    time: SystemTime,
    spans: Mutex<LiveSpans>,
}

#[derive(Debug, Default)]
struct LiveSpans {
    finished: Vec<FinishedSpan>,
    attributes: Vec<(&'static str, String)>,
    /// Whether the request was answered. Spans that end later are sent separately.
    is_sent: bool,
    left_out: u64,
}

// === impl Traces ===

impl Traces {
    /// Starts the exporter only with the first trace. `dropped` counts spans that are not sent.
    #[must_use]
    pub const fn new(dropped: IntCounter) -> Self {
        Self {
            queue: OnceLock::new(),
            dropped,
        }
    }

    /// Starts the trace of a request; it is empty if neither the caller nor the ratio selects the
    /// request.
    #[must_use]
    pub fn begin(&self, begin: &TraceBegin<'_>) -> ReviewTrace {
        let parent = begin.parent.and_then(TraceParent::parse);
        let id = match parent {
            Some(parent) if parent.is_sampled => parent.trace,
            Some(parent) => {
                return ReviewTrace {
                    live: None,
                    unsampled: Some(Arc::new(parent)),
                };
            }
            None if is_chosen(random_id(), begin.tracing.sample_ratio) => {
                (u128::from(random_id()) << 64) | u128::from(random_id())
            }
            None => return ReviewTrace::default(),
        };
        let queue = self.queue.get_or_init(|| SpanSink::start(self.dropped.clone()));
        let Some(queue) = queue else {
            return ReviewTrace::default();
        };
        let live = LiveTrace {
            queue: queue.clone(),
            endpoint: Arc::clone(&begin.tracing.endpoint),
            id,
            root: random_id(),
            parent: parent.map(|parent| parent.span),
            name: begin.name,
            arrived: begin.arrived,
            time: begin.time,
            spans: Mutex::default(),
        };
        ReviewTrace {
            live: Some(Arc::new(live)),
            unsampled: None,
        }
    }

    /// Waits until all finished traces are sent, for `limit` at most, and returns whether they are.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        match self.queue.get() {
            Some(Some(queue)) => queue.flush(limit),
            _ => true,
        }
    }
}

/// Whether `number` is in the lower share `ratio` of all numbers.
fn is_chosen(number: u64, ratio: f64) -> bool {
    // Use the upper 53 bits, which is the precision of an f64.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let place = (number >> 11) as f64 / (1_u64 << 53) as f64;
    place < ratio
}

// === impl ReviewTrace ===

impl ReviewTrace {
    /// Whether the request is traced.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// The `traceparent` header for the call that `span` is about. The called webhook then
    /// continues this trace, or knows that the caller does not sample it. Returns `None` if the
    /// caller sent no header and this request was not selected.
    #[must_use]
    pub fn traceparent(&self, span: &SpanTimer) -> Option<TraceParent> {
        match &span.0 {
            Some(span) => Some(TraceParent {
                trace: span.trace.id,
                span: span.id,
                is_sampled: true,
            }),
            None => self.unsampled.as_deref().copied(),
        }
    }

    /// Starts a span for a part of the request.
    pub fn span(&self, name: &'static str) -> SpanTimer {
        match &self.live {
            None => SpanTimer(None),
            Some(trace) => trace.timer(Cow::Borrowed(name), SpanRole::Internal),
        }
    }

    /// Starts a span for a call to another service. `name` is called only if the request is traced.
    pub fn call(&self, name: impl FnOnce() -> String) -> SpanTimer {
        match &self.live {
            None => SpanTimer(None),
            Some(trace) => trace.timer(Cow::Owned(name()), SpanRole::Client),
        }
    }

    /// Adds a span for a part of the request that has ended already.
    pub fn past(&self, name: &'static str, start: Instant, end: Instant) {
        if let Some(trace) = &self.live {
            let (start, end) = (trace.at(start), trace.at(end));
            trace.add(
                random_id(),
                Cow::Borrowed(name),
                SpanRole::Internal,
                (start, end),
                None,
            );
        }
    }

    /// Adds an attribute to the root span. `value` is called only if the request is traced.
    pub fn record(&self, key: &'static str, value: impl FnOnce() -> String) {
        if let Some(trace) = &self.live {
            trace.spans().attributes.push((key, value()));
        }
    }

    /// Adds the decision and the object that caused it to the root span.
    pub fn decided(&self, decision: Decision, cause: Option<&Cause<'_>>) {
        self.record("portcullis.decision", || decision.as_str().to_owned());
        if let Some(cause) = cause {
            self.record("portcullis.cause", || match &*cause.namespace {
                "" => format!("{}/{}", cause.kind, cause.name),
                namespace => format!("{}/{namespace}/{}", cause.kind, cause.name),
            });
        }
    }

    /// Ends the root span with the HTTP status of the response, and sends the trace.
    pub fn finish(&self, code: u16) {
        if let Some(trace) = &self.live {
            trace.send(Some(code));
        }
    }
}

// === impl SpanTimer ===

impl SpanTimer {
    /// Marks the span as failed.
    pub fn fail(&mut self, error: &dyn fmt::Display) {
        if let Some(span) = &mut self.0 {
            span.error = Some(error.to_string());
        }
    }
}

impl Drop for SpanTimer {
    fn drop(&mut self) {
        let Some(span) = self.0.take() else { return };
        let times = (span.trace.at(span.start), span.trace.at(Instant::now()));
        span.trace.add(span.id, span.name, span.kind, times, span.error);
    }
}

// === impl LiveTrace ===

impl LiveTrace {
    fn timer(self: &Arc<Self>, name: Cow<'static, str>, kind: SpanRole) -> SpanTimer {
        SpanTimer(Some(RunningSpan {
            trace: Arc::clone(self),
            id: random_id(),
            name,
            kind,
            start: Instant::now(),
            error: None,
        }))
    }

    fn spans(&self) -> MutexGuard<'_, LiveSpans> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The wall-clock time at `instant`.
    fn at(&self, instant: Instant) -> SystemTime {
        self.time + instant.saturating_duration_since(self.arrived)
    }

    fn add(
        &self,
        id: u64,
        name: Cow<'static, str>,
        kind: SpanRole,
        (start, end): (SystemTime, SystemTime),
        error: Option<String>,
    ) {
        let span = FinishedSpan {
            id,
            parent: Some(self.root),
            name,
            kind,
            start,
            end,
            attributes: Vec::new(),
            error,
        };
        let mut spans = self.spans();
        if spans.is_sent {
            drop(spans);
            self.queue.send(self.trace(vec![span]));
        } else if spans.finished.len() < MAX_SPANS {
            spans.finished.push(span);
        } else {
            spans.left_out += 1;
        }
    }

    fn trace(&self, spans: Vec<FinishedSpan>) -> FinishedTrace {
        FinishedTrace {
            endpoint: Arc::clone(&self.endpoint),
            id: self.id,
            is_remote_parent: self.parent.is_some(),
            spans,
        }
    }

    /// Sends the trace, only once. Without a code, the client has disconnected.
    fn send(&self, code: Option<u16>) {
        let end = self.at(Instant::now());
        let mut live = self.spans();
        if live.is_sent {
            return;
        }
        live.is_sent = true;
        let mut spans = std::mem::take(&mut live.finished);
        let mut attributes = std::mem::take(&mut live.attributes);
        let left_out = live.left_out;
        drop(live);
        let error = match code {
            None => Some("the client did not wait for the answer".to_owned()),
            Some(code) if code >= 500 => Some(format!("HTTP status {code}")),
            Some(_) => None,
        };
        attributes.extend(code.map(|code| ("http.response.status_code", code.to_string())));
        if left_out > 0 {
            attributes.push(("portcullis.spans_left_out", left_out.to_string()));
        }
        spans.push(FinishedSpan {
            id: self.root,
            parent: self.parent,
            name: Cow::Borrowed(self.name),
            kind: SpanRole::Server,
            start: self.time,
            end,
            attributes,
            error,
        });
        self.queue.send(self.trace(spans));
    }
}

impl Drop for LiveTrace {
    fn drop(&mut self) {
        self.send(None);
    }
}

#[cfg(test)]
mod tests;
