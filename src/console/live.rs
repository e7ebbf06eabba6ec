//! New decisions, as rows for whoever watches.
//!
//! ```text
//! recent decisions ─▶ filter ─▶ batch: a bounded number of rows, denials first ─▶ events
//! ```
//!
//! A batch is made of what has been decided since the last one. It never grows with the
//! load: of more rows than somebody could read the newest are shown, and how many were
//! left out is said.

mod batch;
mod filter;

pub(crate) use batch::{NewestFirst, rows};
pub(crate) use filter::{DECISIONS, DecisionFilter};

use super::page::ViewError;
use super::query::ViewQuery;
use super::recent_decisions::{DecisionSlice, RecentDecisions};
use batch::LiveBatch;

/// The name that `after` has in a query: the last decision that was seen.
pub(crate) const AFTER: &str = "after";

/// What one browser watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveStream {
    filter: DecisionFilter,
    /// The last decision that was looked at.
    position: u64,
}

// === impl LiveStream ===

impl LiveStream {
    /// The stream for the query of a page. It begins after the decision that `last_event` or the
    /// query names, or else with the decisions to come.
    ///
    /// # Errors
    ///
    /// The query is none of a filter.
    pub fn new(
        query: &ViewQuery,
        last_event: Option<&str>,
        decisions: &RecentDecisions,
    ) -> Result<Self, ViewError> {
        let filter = DecisionFilter::read(query, &[AFTER])?;
        let newest = decisions.newest();
        let seen = last_event
            .or(query.one(AFTER)?)
            .and_then(|text| text.parse().ok());
        Ok(Self {
            filter,
            // A number from before a restart is of other decisions.
            position: seen.filter(|seen| *seen <= newest).unwrap_or(newest),
        })
    }

    /// The query of the filter: streams of one query show the same.
    #[must_use]
    pub fn query(&self) -> String {
        self.filter.query().encode()
    }

    /// The last decision that was looked at.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The server-sent events for what is new in `slice`, which begins after the position; empty
    /// if there is nothing.
    pub fn advance(&mut self, slice: &DecisionSlice) -> String {
        let batch = LiveBatch::new(slice, self.position, &self.filter);
        self.position = batch.last;
        batch.events()
    }

    /// Goes on as another stream of the same query has, whose events are sent here, too.
    pub const fn follow(&mut self, position: u64) {
        self.position = position;
    }
}
