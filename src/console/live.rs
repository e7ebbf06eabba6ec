//! New decisions, as rows for pages that are open.
//!
//! ```text
//! recent decisions ─▶ filter ─▶ batch: a bounded number of rows, denials first ─▶ events
//! ```
//!
//! A batch is made of what has been decided since the last one. It never grows with the
//! load: of more rows than somebody could read the newest are shown, with the number of those left
//! out.

mod filter;
mod search;

use askama::Template;

use super::page::ViewError;
use super::query::{self, ViewQuery};
use super::recent_decisions::{DecisionSlice, KeptDecision, RecentDecisions};
use portcullis_policy::explain::logged::LoggedDecision;
use portcullis_policy::model::Decision;

pub(crate) use filter::{DECISIONS, DecisionFilter};
pub(crate) use search::completions;

/// The name that `after` has in a query: the last decision that was seen.
pub(crate) const AFTER: &str = "after";

/// What one browser watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveStream {
    filter: DecisionFilter,
    /// The last decision that was read.
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

    /// The last decision that was read.
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

/// Rows of one batch, for denials and for the rest each.
const MAX_ROWS: usize = 25;

/// The same, and the lines that are read for them: some milliseconds.
const MAX_ROWS_BY_REPRESENTATION: (usize, usize) = (MAX_ROWS, 500);

/// A decision in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecisionRow {
    pub(crate) sequence: u64,
    pub(crate) time: String,
    pub(crate) decision: Decision,
    pub(crate) endpoint: String,
    pub(crate) cluster: String,
    pub(crate) user: String,
    pub(crate) what: String,
    /// The object that decided, and the path of its view.
    pub(crate) cause: Option<(String, String)>,
    pub(crate) reason: String,
    /// How many policies and webhooks in shadow had something to say.
    pub(crate) shadow: usize,
}

/// Rows, the newest first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NewestFirst {
    pub(crate) rows: Vec<DecisionRow>,
    /// How many more there were, or may have been.
    pub(crate) left_out: u64,
}

/// What is new on one page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveBatch {
    denials: Vec<DecisionRow>,
    others: Vec<DecisionRow>,
    /// How many were not shown, or not read.
    skipped: u64,
    /// The last decision that was read.
    pub(crate) last: u64,
}

/// Rows as HTML, without a table around them.
#[derive(Template)]
#[template(path = "rows.html")]
struct Rows<'a> {
    rows: &'a [DecisionRow],
    is_new: bool,
}

// === impl DecisionRow ===

impl DecisionRow {
    fn new(kept: &KeptDecision<'_>, request: &LoggedDecision<'_>) -> Self {
        Self {
            sequence: kept.sequence,
            time: request.time.to_string(),
            decision: kept.decision,
            endpoint: request.endpoint.to_string(),
            cluster: request.cluster.to_string(),
            user: request.user.to_string(),
            what: request.what(),
            cause: request
                .cause
                .as_ref()
                .map(|cause| (cause.title(), query::object_link(cause, &request.cluster))),
            reason: request.reason.to_string(),
            shadow: request.shadow.len(),
        }
    }
}

/// The newest decisions of `slice` that meet `filter` and are `wanted`: at most so many rows, for
/// which at most so many lines are read.
pub(crate) fn rows(
    slice: &DecisionSlice,
    filter: &DecisionFilter,
    (most, most_read): (usize, usize),
    wanted: impl Fn(Decision) -> bool,
) -> NewestFirst {
    let mut found = NewestFirst::default();
    let mut read = 0;
    let candidates = slice
        .iter()
        .rev()
        .filter(|kept| wanted(kept.decision) && filter.may_meet(kept));
    for kept in candidates {
        if found.rows.len() == most || read == most_read {
            found.left_out += 1;
            continue;
        }
        read += 1;
        // Every line was written by this program.
        let Some(request) = LoggedDecision::read(kept.line) else {
            continue;
        };
        if filter.is_met(&request) {
            found.rows.push(DecisionRow::new(&kept, &request));
        }
    }
    found
}

// === impl LiveBatch ===

impl LiveBatch {
    /// What `slice` has after `seen` for this filter.
    pub(crate) fn new(slice: &DecisionSlice, seen: u64, filter: &DecisionFilter) -> Self {
        let denials = rows(slice, filter, MAX_ROWS_BY_REPRESENTATION, |decision| {
            decision == Decision::Deny
        });
        let others = rows(slice, filter, MAX_ROWS_BY_REPRESENTATION, |decision| {
            decision != Decision::Deny
        });
        // Those that are gone already were not read: how many of them met a filter nobody knows.
        let gone = slice.first().saturating_sub(seen + 1);
        Self {
            skipped: denials.left_out + others.left_out + gone,
            denials: denials.rows,
            others: others.rows,
            last: slice.next().saturating_sub(1).max(seen),
        }
    }

    /// As server-sent events; the last carries the number by which a browser resumes.
    pub(crate) fn events(&self) -> String {
        let mut events = String::new();
        for (name, rows) in [("denial", &self.denials), ("decision", &self.others)] {
            let rendered = Rows { rows, is_new: true }.render();
            if let (false, Ok(html)) = (rows.is_empty(), rendered) {
                push(&mut events, name, &html);
            }
        }
        if self.skipped > 0 {
            let text = format!("{} decisions came too fast and are not shown.", self.skipped);
            push(&mut events, "skipped", &text);
        }
        if !events.is_empty() {
            events.push_str(&format!("event: seen\nid: {}\ndata:\n\n", self.last));
        }
        events
    }
}

/// One event; each line of its data has the field's name.
fn push(events: &mut String, name: &str, data: &str) {
    events.push_str(&format!("event: {name}\n"));
    for line in data.split(['\n', '\r']).filter(|line| !line.trim().is_empty()) {
        events.push_str(&format!("data: {line}\n"));
    }
    events.push('\n');
}

#[cfg(test)]
mod tests {
    use super::{LiveStream, *};
    use crate::console::query::ViewQuery;
    use crate::console::recent_decisions::RecentDecisions;

    fn push_for(recent: &RecentDecisions, decision: Decision, user: &str) {
        let user = serde_json::Value::from(user);
        let decided = decision.as_str();
        let line = format!(
            r#"{{"cluster":"c","endpoint":"authorize","user":{user},"attributes":{{"verb":"get","resource":"pods"}},"decision":"{decided}","reason":"because"}}"#
        );
        recent.push(decision, "c", line.as_bytes());
    }

    fn stream(query: &str, last: Option<&str>, recent: &RecentDecisions) -> LiveStream {
        LiveStream::new(&ViewQuery::parse(query), last, recent).unwrap()
    }

    fn advance(live: &mut LiveStream, recent: &RecentDecisions) -> String {
        live.advance(&recent.since(live.position() + 1))
    }

    #[test]
    fn denials_come_first_and_what_is_new_comes_once() {
        let recent = RecentDecisions::new(100);
        push_for(&recent, Decision::Allow, "before");
        let mut live = stream("", None, &recent);
        assert_eq!(advance(&mut live, &recent), "");
        push_for(&recent, Decision::Allow, "jane");
        push_for(&recent, Decision::Deny, "joe");
        let events = advance(&mut live, &recent);
        let at = |text: &str| events.find(text).unwrap_or_else(|| panic!("{text}: {events}"));
        assert!(at("event: denial") < at("joe") && at("joe") < at("event: decision"));
        assert!(at("event: decision") < at("jane"));
        assert!(!events.contains("before"), "{events}");
        assert!(events.ends_with("event: seen\nid: 3\ndata:\n\n"), "{events}");
        assert_eq!(advance(&mut live, &recent), "");
    }

    #[test]
    fn a_browser_resumes_after_what_it_saw_last() {
        let recent = RecentDecisions::new(3);
        for user in ["a1", "b2", "c3", "d4", "e5"] {
            push_for(&recent, Decision::Deny, user);
        }
        let events = advance(&mut stream("", Some("3"), &recent), &recent);
        assert!(
            events.contains("d4") && events.contains("e5") && !events.contains("c3"),
            "{events}"
        );
        assert!(!events.contains("skipped"), "{events}");
        let events = advance(&mut stream("after=4", None, &recent), &recent);
        assert!(events.contains("e5") && !events.contains("d4"), "{events}");
        // Those between are gone: it is told how many.
        let events = advance(&mut stream("", Some("1"), &recent), &recent);
        assert!(events.contains("1 decisions came too fast"), "{events}");
        // A number of an earlier run of the gateway.
        assert_eq!(advance(&mut stream("", Some("99"), &recent), &recent), "");
        assert_eq!(stream("", Some("x"), &recent).position(), 5);
    }

    #[test]
    fn a_batch_is_bounded_and_says_what_it_left_out() {
        let recent = RecentDecisions::new(10_000);
        let mut live = stream("", None, &recent);
        for number in 0..3000 {
            push_for(&recent, Decision::Allow, &format!("u{number}"));
        }
        push_for(&recent, Decision::Deny, "joe");
        let events = advance(&mut live, &recent);
        assert_eq!(events.matches("<tr").count(), MAX_ROWS + 1);
        assert!(events.contains("joe") && events.contains("u2999"), "{events}");
        assert!(events.contains("2975 decisions came too fast"), "{events}");
        // A rare one is found among many that others caused.
        let mut of_one = stream("user=u7&after=0", None, &recent);
        let events = advance(&mut of_one, &recent);
        assert_eq!(events.matches("<tr").count(), 1, "{events}");
    }

    #[test]
    fn markup_and_line_breaks_in_names_stay_text() {
        let recent = RecentDecisions::new(10);
        let mut live = stream("", None, &recent);
        push_for(&recent, Decision::Deny, "<img src=x>\n\nevent: denial\ndata: <b>");
        let events = advance(&mut live, &recent);
        assert!(!events.contains("<img") && !events.contains("<b>"), "{events}");
        assert_eq!(events.matches("\nevent: denial").count(), 0, "{events}");
        assert_eq!(events.matches("event: denial").count(), 2, "{events}");
        for line in events.lines().filter(|line| !line.is_empty()) {
            let known = ["event: ", "data: ", "data:", "id: "];
            assert!(known.iter().any(|start| line.starts_with(start)), "{line}");
        }
    }
}
