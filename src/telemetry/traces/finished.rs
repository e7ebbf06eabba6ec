//! What is sent of a request that has ended.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

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
