//! Traces: how long each part of a request took, sent to an OpenTelemetry collector.
//!
//! ```text
//! ReviewTrace ── span() ─▶ SpanTimer ── dropped ─▶ FinishedSpan ─┐ kept until the request ends
//!      └─────────────────── finish() ────────────────────────────┴─▶ bounded queue ─▶ exporter
//! ```
//!
//! A request that is not traced has a [`ReviewTrace`] that is empty: everything asked of it is
//! one comparison. Nothing waits for the collector: what does not fit into the queue, or cannot
//! be sent, is dropped and counted.
//!
//! Whether a request is traced is decided by the caller's `traceparent`
//! (<https://www.w3.org/TR/trace-context/>), and without one by `tracing.sampleRatio`. A trace
//! begins only once the caller is authenticated, so unauthenticated clients cause none. A webhook that is called
//! gets a `traceparent` of the same trace, so that it decides as the caller did.

mod export;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use export::{FinishedSpan, FinishedTrace, SpanQueue as SpanSink, SpanRole, random};

pub use export::TraceParent;

use super::metrics::IntCounter;
use crate::config::Tracing;
use portcullis_policy::model::{Cause, Decision};

/// The most spans of one request. Kubernetes allows far fewer webhooks than would reach it.
const MAX_SPANS: usize = 1024;

/// Begins traces, and has them sent.
#[derive(Debug)]
pub struct Traces {
    queue: OnceLock<Option<SpanSink>>,
    /// Spans that nobody will see.
    dropped: IntCounter,
}

/// What a trace begins with.
#[derive(Debug, Clone, Copy)]
pub struct TraceBegin<'a> {
    /// Where and whether to send it.
    pub tracing: &'a Tracing,
    /// The caller's `traceparent`.
    pub parent: Option<&'a [u8]>,
    /// The name of the whole: what is answered.
    pub name: &'static str,
    /// When the request arrived.
    pub arrived: Instant,
    /// The same by the clock of the calendar.
    pub time: SystemTime,
}

/// The trace of one request, or nothing. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ReviewTrace {
    live: Option<Arc<LiveTrace>>,
    /// What the caller said, if it does not want to see this request.
    unsampled: Option<Arc<TraceParent>>,
}

/// A part of a request that goes on until this is dropped.
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

/// A trace that goes on.
#[derive(Debug)]
struct LiveTrace {
    queue: SpanSink,
    endpoint: Arc<str>,
    id: u128,
    /// The span of the whole request.
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
    /// The request was answered, and the rest is sent by itself.
    is_sent: bool,
    left_out: u64,
}

// === impl Traces ===

impl Traces {
    /// Nothing is started before there is a first trace. `dropped` counts spans that are not sent.
    #[must_use]
    pub const fn new(dropped: IntCounter) -> Self {
        Self {
            queue: OnceLock::new(),
            dropped,
        }
    }

    /// The trace of a request, empty if the caller or the ratio does not choose it.
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
            None if is_chosen(random(), begin.tracing.sample_ratio) => {
                (u128::from(random()) << 64) | u128::from(random())
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
            root: random(),
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

    /// Waits until what was finished so far is sent, so long at most; whether it was.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        match self.queue.get() {
            Some(Some(queue)) => queue.flush(limit),
            _ => true,
        }
    }
}

/// Whether the share `ratio` of all numbers has `number`.
fn is_chosen(number: u64, ratio: f64) -> bool {
    // The upper 53 bits are what a f64 can tell apart.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let place = (number >> 11) as f64 / (1_u64 << 53) as f64;
    place < ratio
}

// === impl ReviewTrace ===

impl ReviewTrace {
    /// Whether anybody will see it.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// The header that belongs to the request which `span` is about: with it, a webhook that is called
    /// continues this trace, or knows that the caller does not want to see it. None if the
    /// caller said nothing and this request was not chosen.
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

    /// A part of the request, from now on.
    pub fn span(&self, name: &'static str) -> SpanTimer {
        match &self.live {
            None => SpanTimer(None),
            Some(trace) => trace.timer(Cow::Borrowed(name), SpanRole::Internal),
        }
    }

    /// A request to others, from now on. `name` is asked for only if somebody will see it.
    pub fn call(&self, name: impl FnOnce() -> String) -> SpanTimer {
        match &self.live {
            None => SpanTimer(None),
            Some(trace) => trace.timer(Cow::Owned(name()), SpanRole::Client),
        }
    }

    /// A part of the request that has ended already.
    pub fn past(&self, name: &'static str, start: Instant, end: Instant) {
        if let Some(trace) = &self.live {
            let (start, end) = (trace.at(start), trace.at(end));
            trace.add(
                random(),
                Cow::Borrowed(name),
                SpanRole::Internal,
                (start, end),
                None,
            );
        }
    }

    /// What is known of the request as a whole. `value` is asked for only if somebody will see it.
    pub fn record(&self, key: &'static str, value: impl FnOnce() -> String) {
        if let Some(trace) = &self.live {
            trace.spans().attributes.push((key, value()));
        }
    }

    /// What was decided about the request, and by which object.
    pub fn decided(&self, decision: Decision, cause: Option<&Cause<'_>>) {
        self.record("portcullis.decision", || decision.as_str().to_owned());
        if let Some(cause) = cause {
            self.record("portcullis.cause", || match &*cause.namespace {
                "" => format!("{}/{}", cause.kind, cause.name),
                namespace => format!("{}/{namespace}/{}", cause.kind, cause.name),
            });
        }
    }

    /// The request was answered with this status of HTTP.
    pub fn finish(&self, code: u16) {
        if let Some(trace) = &self.live {
            trace.send(Some(code));
        }
    }
}

// === impl SpanTimer ===

impl SpanTimer {
    /// The part has failed.
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
            id: random(),
            name,
            kind,
            start: Instant::now(),
            error: None,
        }))
    }

    fn spans(&self) -> MutexGuard<'_, LiveSpans> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When `instant` was by the clock of the calendar.
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

    /// Sends the whole, once. Without a code the client has gone away.
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
