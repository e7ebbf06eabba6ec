//! What is sent of a request that has ended.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

/// Who waits for whom in a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanRole {
    /// The request that was received.
    Server,
    /// A part of it.
    Internal,
    /// A request that was sent.
    Client,
}

/// A span that has ended.
#[derive(Debug, Clone)]
pub(super) struct FinishedSpan {
    pub(super) id: u64,
    pub(super) parent: Option<u64>,
    pub(super) name: Cow<'static, str>,
    pub(super) kind: SpanRole,
    pub(super) start: SystemTime,
    pub(super) end: SystemTime,
    pub(super) attributes: Vec<(&'static str, String)>,
    pub(super) error: Option<String>,
}

/// Spans of one request, on their way to the collector.
#[derive(Debug)]
pub(super) struct FinishedTrace {
    pub(super) endpoint: Arc<str>,
    pub(super) id: u128,
    pub(super) is_remote_parent: bool,
    pub(super) spans: Vec<FinishedSpan>,
}
