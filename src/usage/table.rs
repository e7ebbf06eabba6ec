//! The counts of one hour, in bounded memory.
//!
//! ```text
//! cluster ─▶ user ─┬▶ question and decision: count, first, last
//!                  └▶ verb and decision: for questions beyond the limit
//! ```
//!
//! A user may use a part of the memory, for any questions. Each cluster has a part that no other
//! one uses. Questions beyond the limit are counted by user and verb, and those of users beyond the
//! limit by verb.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{self, Write};

use openssl::sha::sha256;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::config::hexadecimal;
use crate::telemetry::WriteBatch;
use crate::telemetry::decision_log::{CountedQuestion, LoggedQuestion, QuestionParts};

/// The version of the format that is written, and the newest that can be read.
pub(crate) const FORMAT_VERSION: u64 = 1;

/// The bytes of a row in addition to its strings: its counts in memory and in the file.
const ROW_BYTES: usize = 192;

/// The bytes of a user in addition to its name.
const USER_BYTES: usize = 256;

/// One user may use the memory divided by this.
const USER_PART: usize = 64;

/// Questions that wait to be counted.
#[derive(Debug, Default)]
pub(crate) struct UsageBatch {
    text: String,
    /// Each question with the length of its text.
    questions: Vec<(CountedQuestion, usize)>,
}

/// How often a question was asked, and when.
#[derive(Debug, Clone, Copy)]
struct Occurrences {
    count: u64,
    /// In seconds since 1970.
    first: u64,
    last: u64,
}

/// Counts by verb and decision, which both have a fixed set of values.
type OtherRows = BTreeMap<(&'static str, &'static str), Occurrences>;

/// The counts of one hour.
#[derive(Debug)]
pub(crate) struct UsageTable {
    max_bytes: usize,
    /// The number of clusters among which the reserved half is divided.
    clusters: usize,
    by_cluster: HashMap<Box<str>, ClusterRows>,
    /// The digests in rows, by the text of groups, extra or selectors.
    digests: HashMap<Box<str>, Box<str>>,
    /// The bytes in use of the common half.
    common: usize,
    /// The number of decisions that were counted.
    decisions: u64,
    /// A buffer for the row of a question.
    row: String,
}

/// The counts of a cluster.
#[derive(Debug, Default)]
struct ClusterRows {
    /// The bytes in use of the part that is reserved for the cluster.
    own: usize,
    by_user: HashMap<Box<str>, UserRows>,
    /// The counts of users beyond the limit.
    other: OtherRows,
}

/// The counts of a user.
#[derive(Debug, Default)]
struct UserRows {
    bytes: usize,
    rows: HashMap<Box<str>, Occurrences>,
    other: OtherRows,
}

/// How a decision was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountedIn {
    /// In the row of its question.
    Question,
    /// Together with other questions.
    Other,
}

// === impl UsageBatch ===

impl UsageBatch {
    pub(crate) fn push(&mut self, question: CountedQuestion, text: &str) {
        self.text.push_str(text);
        self.questions.push((question, text.len()));
    }

    pub(crate) fn questions(&self) -> impl Iterator<Item = (&CountedQuestion, &str)> {
        let mut rest = self.text.as_str();
        self.questions.iter().map(move |(question, length)| {
            let (text, after) = rest.split_at_checked(*length).unwrap_or_default();
            rest = after;
            (question, text)
        })
    }
}

impl WriteBatch for UsageBatch {
    fn reset(&mut self, spare: usize) {
        self.text.clear();
        self.text.shrink_to(spare);
        self.questions.reset(spare);
    }
}

// === impl UsageTable ===

impl UsageTable {
    /// An empty table for this number of bytes and clusters.
    pub(crate) fn new(max_bytes: usize, clusters: usize) -> Self {
        Self {
            max_bytes,
            clusters: clusters.max(1),
            by_cluster: HashMap::new(),
            digests: HashMap::new(),
            common: 0,
            decisions: 0,
            row: String::new(),
        }
    }

    pub(crate) const fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Counts a decision, whose question is encoded in `text`.
    pub(crate) fn count(&mut self, question: &CountedQuestion, text: &str) -> CountedIn {
        self.decisions += 1;
        let parts = question.parts(text);
        let seen = Occurrences::once(question.time);
        let mut row = std::mem::take(&mut self.row);
        row.clear();
        let is_known = self.write_row(&parts, &mut row);
        let counted = if is_known && self.count_known(&parts, &row, seen) {
            CountedIn::Question
        } else {
            self.count_new(&parts, &mut row, seen, question)
        };
        self.row = row;
        counted
    }

    /// Writes the row of `parts` without unknown digests, and returns whether there were none.
    fn write_row(&self, parts: &QuestionParts<'_>, row: &mut String) -> bool {
        let mut is_known = true;
        for (name, text) in parts.shared() {
            match self.digests.get(text) {
                Some(digest) => member(row, name, digest),
                None => is_known = false,
            }
        }
        row.push(',');
        row.push_str(parts.decision);
        is_known
    }

    /// Counts a question that has a row already, and returns whether it has.
    fn count_known(&mut self, parts: &QuestionParts<'_>, row: &str, seen: Occurrences) -> bool {
        let cluster = self.by_cluster.get_mut(parts.cluster);
        let user = cluster.and_then(|cluster| cluster.by_user.get_mut(parts.user));
        let known = user.and_then(|user| user.rows.get_mut(row));
        known.map(|known| known.add(seen)).is_some()
    }

    /// Counts a question without a row, in a new row if the limits permit.
    fn count_new(
        &mut self,
        parts: &QuestionParts<'_>,
        row: &mut String,
        seen: Occurrences,
        question: &CountedQuestion,
    ) -> CountedIn {
        let unknown = parts
            .shared()
            .filter(|(_, text)| !self.digests.contains_key(*text));
        // In the file, the row contains the cluster and the user, too.
        let bytes = parts.cluster.len() + parts.user.len() + parts.decision.len() + ROW_BYTES;
        let bytes = bytes + unknown.map(|(_, text)| 2 * text.len()).sum::<usize>();
        let other = (question.verb, question.decision);
        let Some(user) = self.user(parts) else {
            let cluster = self.by_cluster.entry(parts.cluster.into()).or_default();
            Occurrences::add_to(&mut cluster.other, other, seen);
            return CountedIn::Other;
        };
        if user.bytes + bytes > self.max_bytes / USER_PART || !self.take(parts.cluster, bytes) {
            if let Some(user) = self.user(parts) {
                Occurrences::add_to(&mut user.other, other, seen);
            }
            return CountedIn::Other;
        }
        for (_, text) in parts.shared() {
            if !self.digests.contains_key(text) {
                self.digests.insert(text.into(), digest(text));
            }
        }
        row.clear();
        self.write_row(parts, row);
        if let Some(user) = self.user(parts) {
            user.bytes += bytes;
            user.rows.insert(row.as_str().into(), seen);
        }
        CountedIn::Question
    }

    /// The rows of the user; `None` if it has none and the limit is reached.
    fn user(&mut self, parts: &QuestionParts<'_>) -> Option<&mut UserRows> {
        let cluster = self.by_cluster.get(parts.cluster);
        let is_known = cluster.is_some_and(|cluster| cluster.by_user.contains_key(parts.user));
        if !is_known && !self.take(parts.cluster, USER_BYTES + parts.user.len()) {
            return None;
        }
        let cluster = self.by_cluster.entry(parts.cluster.into()).or_default();
        Some(cluster.by_user.entry(parts.user.into()).or_default())
    }

    /// Reserves bytes, from the cluster's part first and otherwise from the common half; all or
    /// nothing.
    fn take(&mut self, cluster: &str, bytes: usize) -> bool {
        let rows = self.by_cluster.entry(cluster.into()).or_default();
        if rows.own + bytes <= self.max_bytes / 2 / self.clusters {
            rows.own += bytes;
        } else if self.common + bytes <= self.max_bytes / 2 {
            self.common += bytes;
        } else {
            return false;
        }
        true
    }

    /// Writes the file: first the digests, then the rows.
    ///
    /// # Errors
    ///
    /// Those of writing to `out`.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for (text, digest) in &self.digests {
            writeln!(out, "{{\"digest\":\"{digest}\",{text}}}")?;
        }
        for (cluster, rows) in &self.by_cluster {
            for (user, rows) in &rows.by_user {
                let before = format!("{{\"cluster\":{cluster},\"user\":{user}");
                for (row, seen) in &rows.rows {
                    writeln!(out, "{before}{row}{seen}}}")?;
                }
                write_other(out, &before, &rows.other)?;
            }
            write_other(out, &format!("{{\"cluster\":{cluster}"), &rows.other)?;
        }
        Ok(())
    }
}

/// The text of each row of `question` before its decision, for a cluster and its caller.
pub(crate) fn question_text(cluster: [&str; 2], question: &LoggedQuestion<'_>) -> String {
    let mut text = String::new();
    let parts = CountedQuestion::write_question(cluster, question, &mut text);
    let parts = parts.parts(&text);
    let mut row = format!("{{\"cluster\":{},\"user\":{}", parts.cluster, parts.user);
    for (name, text) in parts.shared() {
        member(&mut row, name, &digest(text));
    }
    row.push(',');
    row.push_str(parts.decision);
    row
}

fn write_other(out: &mut impl Write, before: &str, rows: &OtherRows) -> io::Result<()> {
    for ((verb, decision), seen) in rows {
        let (name, endpoint) = match verb.starts_with(|first: char| first.is_ascii_uppercase()) {
            true => ("operation", "admission"),
            false => ("verb", "authorize"),
        };
        writeln!(
            out,
            "{before},\"other\":true,\"endpoint\":\"{endpoint}\",\"attributes\":{{\"{name}\":\"{verb}\"}},\
             \"decision\":\"{decision}\"{seen}}}"
        )?;
    }
    Ok(())
}

/// Writes another member, whose value needs no escapes.
fn member(out: &mut String, name: &str, value: &str) {
    // Writing to a String does not fail.
    let _infallible = write!(out, ",\"{name}\":\"{value}\"");
}

/// The first half of the SHA-256 of `text`, in hexadecimal digits.
fn digest(text: &str) -> Box<str> {
    hexadecimal(sha256(text.as_bytes()).iter().take(16)).into()
}

// === impl QuestionParts ===

impl<'t> QuestionParts<'t> {
    /// The parts that a file contains once, with the names of their digests in rows.
    fn shared(&self) -> impl Iterator<Item = (&'static str, &'t str)> {
        let parts = [
            ("groupsDigest", self.groups),
            ("extraDigest", self.extra),
            ("selectorsDigest", self.selectors),
        ];
        parts.into_iter().filter(|(_, text)| !text.is_empty())
    }
}

// === impl Occurrences ===

impl Occurrences {
    const fn once(time: u64) -> Self {
        Self {
            count: 1,
            first: time,
            last: time,
        }
    }

    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.first = self.first.min(more.first);
        self.last = self.last.max(more.last);
    }

    fn add_to(rows: &mut OtherRows, key: (&'static str, &'static str), seen: Self) {
        rows.entry(key)
            .and_modify(|known| known.add(seen))
            .or_insert(seen);
    }
}

impl std::fmt::Display for Occurrences {
    /// Writes the last members of a row.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [first, last] = [self.first, self.last].map(timestamp);
        write!(
            f,
            ",\"count\":{},\"first\":\"{first}\",\"last\":\"{last}\"",
            self.count
        )
    }
}

/// Formats a time as RFC 3339 in UTC.
pub(crate) fn timestamp(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests;
