//! Streams new decisions that match a filter to open pages, as table rows.
//!
//! ```text
//! recent decisions ─▶ filter ─▶ batch: a bounded number of rows, denials first ─▶ events
//! ```
//!
//! A batch contains the decisions since the last one. Its size does not grow with the load: if
//! there are more rows than a person can read, it contains the newest and the number of omitted
//! ones.

mod search;

use askama::Template;
use memchr::memmem;
use portcullis_policy::explain::logged::LoggedDecision;
use portcullis_policy::model::{Decision, Time};
use serde::Serialize;

pub(crate) use search::completions;

use super::page::ViewError;
use super::query::{self, ViewQuery};
use super::recent_decisions::{DecisionSlice, KeptDecision, RecentDecisions};
use crate::config::Endpoint;

use search::Search;

/// The query parameter with the number of the last decision that the page has.
pub(crate) const AFTER: &str = "after";

/// The stream of one browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveStream {
    filter: DecisionFilter,
    /// The number of the last decision that was read.
    position: u64,
}

/// A filter that decisions match if they meet all conditions that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DecisionFilter {
    pub(crate) user: String,
    pub(crate) group: String,
    pub(crate) verb: String,
    /// `pods`, `deployments.apps` or `pods/log`. A missing group or subresource matches any.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    /// The name of an object that decided, nearly matched, excused, or would have decided in mode
    /// Shadow.
    pub(crate) policy: String,
    pub(crate) decision: String,
    /// If `true`, only decisions for which a policy or webhook in shadow would have decided.
    pub(crate) shadow: String,
    pub(crate) endpoint: String,
    pub(crate) cluster: String,
    /// The earliest time, in RFC 3339.
    pub(crate) from: String,
    /// The time before which decisions match, in RFC 3339.
    pub(crate) to: String,
    /// The text of a [`Search`].
    pub(crate) q: String,
    #[serde(skip)]
    search: Search,
    #[serde(skip)]
    from_time: Option<Time>,
    #[serde(skip)]
    to_time: Option<Time>,
}

/// The names of the filter's fields, in the order of display.
pub(crate) const FIELDS: [&str; 13] = [
    "q",
    "user",
    "group",
    "verb",
    "resource",
    "namespace",
    "policy",
    "decision",
    "shadow",
    "endpoint",
    "cluster",
    "from",
    "to",
];

/// All decisions, as in the decision log.
pub(crate) const DECISIONS: [Decision; 3] = [Decision::Deny, Decision::Allow, Decision::NoOpinion];

/// A part of log lines with shadow decisions. Strings cannot contain it, because their quotes are
/// escaped.
const SOME_SHADOW: &[u8] = br#""shadow":[{"#;

// === impl LiveStream ===

impl LiveStream {
    /// The stream for the query of a page. It starts after the decision that `last_event` or the
    /// query names, or otherwise with future decisions.
    ///
    /// # Errors
    ///
    /// The query is not a valid filter.
    pub fn new(
        query: &ViewQuery,
        last_event: Option<&str>,
        decisions: &RecentDecisions,
    ) -> Result<Self, ViewError> {
        let filter = DecisionFilter::read(query, &[AFTER])?;
        let newest = decisions.newest();
        let seen = last_event
            .or(query.single(AFTER)?)
            .and_then(|text| text.parse().ok());
        Ok(Self {
            filter,
            // A larger number is from before a restart, and names another decision.
            position: seen.filter(|seen| *seen <= newest).unwrap_or(newest),
        })
    }

    /// The query of the filter. Streams with the same query show the same decisions.
    #[must_use]
    pub fn query(&self) -> String {
        self.filter.query().encode()
    }

    /// The number of the last decision that was read.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The server-sent events for the decisions in `slice`, which starts after the position; empty
    /// if none match.
    pub fn advance(&mut self, slice: &DecisionSlice) -> String {
        let batch = LiveBatch::new(slice, self.position, &self.filter);
        self.position = batch.last;
        batch.events()
    }

    /// Continues at the position of another stream with the same query, whose events are also sent
    /// here.
    pub const fn set_position(&mut self, position: u64) {
        self.position = position;
    }
}

/// The maximum number of rows in a batch, separately for denials and for other decisions.
const MAX_ROWS: usize = 25;

/// The maximum number of rows, and of lines that are read for them, which takes some milliseconds.
const MAX_ROWS_BY_REPRESENTATION: (usize, usize) = (MAX_ROWS, 500);

/// A decision as a table row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecisionRow {
    pub(crate) sequence: u64,
    pub(crate) time: String,
    pub(crate) decision: Decision,
    pub(crate) endpoint: String,
    pub(crate) cluster: String,
    pub(crate) user: String,
    pub(crate) what: String,
    /// The object that decided, and the link to its view.
    pub(crate) cause: Option<(String, String)>,
    pub(crate) reason: String,
    /// How many policies and webhooks in shadow would have decided.
    pub(crate) shadow: usize,
}

/// Rows, newest first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NewestFirst {
    pub(crate) rows: Vec<DecisionRow>,
    /// How many further decisions matched, or may have matched.
    pub(crate) left_out: u64,
}

/// New decisions for one page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveBatch {
    denials: Vec<DecisionRow>,
    others: Vec<DecisionRow>,
    /// How many decisions were not shown, or not read.
    skipped: u64,
    /// The number of the last decision that was read.
    pub(crate) last: u64,
}

/// Table rows as HTML, without the table.
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

/// The newest decisions in `slice` that match `filter` and are `wanted`: up to `most` rows, for
/// which up to `most_read` lines are read.
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
        .filter(|kept| wanted(kept.decision) && filter.may_match(kept));
    for kept in candidates {
        if found.rows.len() == most || read == most_read {
            found.left_out += 1;
            continue;
        }
        read += 1;
        // All lines can be parsed, because this program wrote them.
        let Some(request) = LoggedDecision::read(kept.line) else {
            continue;
        };
        if filter.matches(&request) {
            found.rows.push(DecisionRow::new(&kept, &request));
        }
    }
    found
}

// === impl LiveBatch ===

impl LiveBatch {
    /// The decisions in `slice` after `seen` that match `filter`.
    pub(crate) fn new(slice: &DecisionSlice, seen: u64, filter: &DecisionFilter) -> Self {
        let denials = rows(slice, filter, MAX_ROWS_BY_REPRESENTATION, |decision| {
            decision == Decision::Deny
        });
        let others = rows(slice, filter, MAX_ROWS_BY_REPRESENTATION, |decision| {
            decision != Decision::Deny
        });
        // Decisions that are no longer kept were not read. It is unknown how many would have
        // matched.
        let gone = slice.first().saturating_sub(seen + 1);
        Self {
            skipped: denials.left_out + others.left_out + gone,
            denials: denials.rows,
            others: others.rows,
            last: slice.next().saturating_sub(1).max(seen),
        }
    }

    /// The batch as server-sent events. The last one contains the number from which a browser
    /// resumes.
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

/// Adds an event. Each line of its data needs the prefix `data: `.
fn push(events: &mut String, name: &str, data: &str) {
    events.push_str(&format!("event: {name}\n"));
    for line in data.split(['\n', '\r']).filter(|line| !line.trim().is_empty()) {
        events.push_str(&format!("data: {line}\n"));
    }
    events.push('\n');
}

// === impl DecisionFilter ===

impl DecisionFilter {
    /// Reads the filter from `query`, which may also contain the parameters `beside`.
    ///
    /// # Errors
    ///
    /// A parameter is unknown or given twice, or its value is invalid.
    pub(crate) fn read(query: &ViewQuery, beside: &[&str]) -> Result<Self, ViewError> {
        query.reject_unknown(&[&FIELDS, beside].concat())?;
        let text = |name: &'static str| {
            query
                .single(name)
                .map(|value| value.unwrap_or_default().to_owned())
        };
        let endpoints = Endpoint::ALL.map(Endpoint::as_str);
        let q = text("q")?;
        let (from, from_time) = instant("from", text("from")?)?;
        let (to, to_time) = instant("to", text("to")?)?;
        Ok(Self {
            search: Search::parse(&q),
            q,
            from,
            from_time,
            to,
            to_time,
            user: text("user")?,
            group: text("group")?,
            verb: text("verb")?,
            resource: text("resource")?,
            namespace: text("namespace")?,
            policy: text("policy")?,
            decision: one_of("decision", text("decision")?, &DECISIONS.map(Decision::as_str))?,
            shadow: one_of("shadow", text("shadow")?, &["true"])?,
            endpoint: one_of("endpoint", text("endpoint")?, &endpoints)?,
            cluster: text("cluster")?,
        })
    }

    /// The query that describes the filter.
    pub(crate) fn query(&self) -> ViewQuery {
        self.values().into_iter().collect()
    }

    /// The fields with their values, which are empty if not set.
    pub(crate) fn values(&self) -> [(&'static str, &str); FIELDS.len()] {
        [
            ("q", &self.q),
            ("user", &self.user),
            ("group", &self.group),
            ("verb", &self.verb),
            ("resource", &self.resource),
            ("namespace", &self.namespace),
            ("policy", &self.policy),
            ("decision", &self.decision),
            ("shadow", &self.shadow),
            ("endpoint", &self.endpoint),
            ("cluster", &self.cluster),
            ("from", &self.from),
            ("to", &self.to),
        ]
    }

    /// The only decision that the filter matches, if there is one.
    pub(crate) fn decision(&self) -> Option<Decision> {
        let chosen = DECISIONS
            .into_iter()
            .find(|known| known.as_str() == self.decision);
        chosen.or_else(|| self.search.decision())
    }

    /// The conditions that are set, each with the query without it.
    pub(crate) fn parts(&self) -> Vec<(String, ViewQuery)> {
        let without = |name: &'static str, value: &str| -> ViewQuery {
            let others = self.values().into_iter().filter(|(other, _)| *other != name);
            others.chain([(name, value)]).collect()
        };
        let terms = self.search.terms();
        let terms = terms.map(|(text, rest)| (text.to_owned(), without("q", &rest)));
        let fields = self.values().into_iter().skip(1);
        let fields = fields.filter(|(_, value)| !value.is_empty());
        let fields = fields.map(|(name, value)| (format!("{name}={value}"), without(name, "")));
        terms.chain(fields).collect()
    }

    /// Whether a line may match, without parsing it. This is fast, and never `false` for a matching
    /// line.
    pub(crate) fn may_match(&self, kept: &KeptDecision<'_>) -> bool {
        let is_decision = self.decision().is_none_or(|wanted| wanted == kept.decision);
        let is_shadow = self.shadow.is_empty() || memmem::find(kept.line, SOME_SHADOW).is_some();
        is_decision
            && is_shadow
            && self.literal_strings().all(|value| {
                // Values that JSON escapes cannot be searched in the line.
                let is_plain = value
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte));
                value.is_empty() || !is_plain || memmem::find(kept.line, value.as_bytes()).is_some()
            })
    }

    /// Strings that a matching line contains unchanged.
    fn literal_strings(&self) -> impl Iterator<Item = &str> {
        let whole = [
            &self.user,
            &self.group,
            &self.namespace,
            &self.endpoint,
            &self.cluster,
        ];
        // The log has separate fields for the configuration and name of a webhook, and for the
        // parts of a resource.
        whole
            .into_iter()
            .map(String::as_str)
            .chain(self.policy.split('/'))
            .chain(self.resource.split(['/', '.']).next())
    }

    /// Whether a decision matches the filter.
    pub(crate) fn matches(&self, request: &LoggedDecision<'_>) -> bool {
        let attributes = &request.attributes;
        let is = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        is(&self.user, &request.user)
            && (self.group.is_empty() || request.groups.iter().any(|group| *group == self.group))
            && (self.verb.is_empty() || self.verb.eq_ignore_ascii_case(request.verb()))
            && self.is_resource(request)
            && is(&self.namespace, &attributes.namespace)
            && (self.policy.is_empty() || self.names_policy(request))
            && is(&self.decision, &request.decision)
            && (self.shadow.is_empty() || !request.shadow.is_empty())
            && is(&self.endpoint, &request.endpoint)
            && is(&self.cluster, &request.cluster)
            && self.is_time(request)
            && self.search.is_met(request)
    }

    fn is_time(&self, request: &LoggedDecision<'_>) -> bool {
        if self.from_time.is_none() && self.to_time.is_none() {
            return true;
        }
        Time::parse(&request.time).is_some_and(|time| {
            self.from_time.is_none_or(|from| from <= time) && self.to_time.is_none_or(|to| time < to)
        })
    }

    fn is_resource(&self, request: &LoggedDecision<'_>) -> bool {
        if self.resource.is_empty() {
            return true;
        }
        let attributes = &request.attributes;
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (&*self.resource, None),
        };
        let (resource, group) = match resource.split_once('.') {
            Some((resource, group)) => (resource, Some(group)),
            None => (resource, None),
        };
        attributes.resource == resource
            && group.is_none_or(|group| attributes.group == group)
            && subresource.is_none_or(|subresource| attributes.subresource == subresource)
    }

    /// Whether the decision refers to the policy or webhook.
    fn names_policy(&self, request: &LoggedDecision<'_>) -> bool {
        let lists = [&request.near_misses, &request.shadow, &request.exceptions];
        let mut objects = request.cause.iter().chain(lists.into_iter().flatten());
        let webhook = |configuration: &str, webhook: &str| {
            configuration == self.policy || format!("{configuration}/{webhook}") == self.policy
        };
        objects.any(|object| object.name == self.policy || object.policy == self.policy)
            || request
                .webhooks
                .iter()
                .any(|called| webhook(&called.configuration, &called.webhook))
    }
}

fn instant(name: &str, value: String) -> Result<(String, Option<Time>), ViewError> {
    if value.is_empty() {
        return Ok((value, None));
    }
    match Time::parse(&value) {
        Some(time) => Ok((value, Some(time))),
        None => Err(ViewError::Invalid(format!(
            "{name}: `{value}` is not a time, such as `2027-01-15T08:00:00Z`"
        ))),
    }
}

fn one_of(name: &str, value: String, known: &[&str]) -> Result<String, ViewError> {
    if value.is_empty() || known.contains(&&*value) {
        return Ok(value);
    }
    let known: Vec<String> = known.iter().map(|known| format!("`{known}`")).collect();
    Err(ViewError::Invalid(format!(
        "{name}: `{value}` is not supported: use {}",
        known.join(", ")
    )))
}

#[cfg(test)]
mod tests;
