//! What a view is made of, and what was asked for.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use percent_encoding::percent_decode_str;

use super::page::{PageFrame, Representation};
use super::query::ViewQuery;
use super::recent_decisions::RecentDecisions;
use super::state::{ConsoleState, VisibleClusters};
use crate::reload::{ReloadState, Snapshot};
use crate::telemetry::Metrics;

/// What views are made of.
pub struct ViewContext<'c> {
    /// What is in force: one for the whole view.
    pub snapshot: &'c Arc<Snapshot>,
    /// How reloads and clusters are doing.
    pub state: &'c ReloadState,
    /// What is counted.
    pub metrics: &'c Metrics,
    /// What the console remembers.
    pub console: &'c ConsoleState,
    /// What it remembers of the decisions for `visible` clusters.
    pub decisions: &'c RecentDecisions,
    /// Whose they are that are shown.
    pub visible: &'c VisibleClusters,
    /// The time for which it is shown.
    pub now: SystemTime,
    /// When a view that takes long must give up, with [`ViewError::TooLate`](super::ViewError::TooLate).
    pub deadline: Instant,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct ViewRequest {
    /// As in the URL.
    pub path: String,
    /// Its parts between slashes, decoded.
    pub segments: Vec<String>,
    /// What follows the path.
    pub query: ViewQuery,
    /// What was sent by POST.
    pub form: Option<ViewQuery>,
    /// How it is to be shown.
    pub representation: Representation,
}

// === impl ViewRequest ===

impl ViewRequest {
    /// Asks for the view at a path, as both stand in a URL.
    #[must_use]
    pub fn new(path: &str, query: &str, representation: Representation) -> Self {
        let decoded = |segment| percent_decode_str(segment).decode_utf8_lossy().into_owned();
        Self {
            path: path.to_owned(),
            segments: path.split('/').skip(1).map(decoded).collect(),
            query: ViewQuery::parse(query),
            form: None,
            representation,
        }
    }
}

// === impl ViewContext ===

impl ViewContext<'_> {
    /// The frame of a page with this title.
    pub(crate) fn frame(&self, title: impl Into<String>, request: &ViewRequest) -> PageFrame {
        PageFrame::new(title, &request.path, &self.snapshot.revision)
    }
}
