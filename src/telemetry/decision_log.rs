//! The decision log: one line of JSON for every decision, whether it allows or denies.
//!
//! No request waits for the file or pipe: if too many lines are queued, further ones are dropped
//! and counted. Lines are bounded, too: long values are truncated, and the line then has
//! `"truncated": true`.

mod record;

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use prometheus::IntCounter;

use super::metrics::{AuthenticationMethod, Endpoint};
use super::write_queue::{LineQueue, LineQueueSettings, LogSink, WriteFailure};
use crate::config::files;
use portcullis_policy::admission::Request;
use portcullis_policy::model::{Attributes, Target, User};
use record::Line;

pub use record::{DecisionLine, LoggedQuestion, Record, ShadowDecision, TextRedaction};

/// The most bytes of lines in the queue: about ten thousand typical ones.
const MAX_PENDING_BYTES: usize = 8 << 20;

/// The permissions of a new file.
const MODE: u32 = 0o640;

/// The destination of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    Stdout,
    /// A regular file, to which lines are appended. The group of its owner may read it.
    File(PathBuf),
}

/// A log for lines. Cheap to clone; the writer ends with the last clone.
#[derive(Debug, Clone)]
pub struct DecisionLog(LineQueue);

/// The number of parts of a question.
const PARTS: usize = 6;

/// The verbs that are counted by name when the limit on questions is reached. Others count as
/// `other`, because `kubectl auth can-i` accepts any verb.
const VERBS: [&str; 20] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "post",
    "put",
    "head",
    "options",
    "connect",
    "use",
    "bind",
    "escalate",
    "impersonate",
    "approve",
    "sign",
    "attest",
];

/// The keys of a user's `extra` that identify one token, Pod or node. They are left out, so that
/// the same question of the Pods of a Deployment is one question.
const PER_TOKEN_EXTRA_KEYS: [&str; 5] = [
    "authentication.kubernetes.io/credential-id",
    "authentication.kubernetes.io/node-name",
    "authentication.kubernetes.io/node-uid",
    "authentication.kubernetes.io/pod-name",
    "authentication.kubernetes.io/pod-uid",
];

/// A question and its decision. Its text is stored separately.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedQuestion {
    /// The time of the decision, in seconds since 1970.
    pub(crate) time: u64,
    /// The verb, or the operation of an admission review; `other` for verbs that are not in
    /// `VERBS`.
    pub(crate) verb: &'static str,
    /// The decision.
    pub(crate) decision: &'static str,
    /// The end of each part in the text.
    ends: [usize; PARTS],
}

/// The parts of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuestionParts<'t> {
    /// The cluster, as a JSON string, followed by the member `caller` if the caller uses a path
    /// token: such a caller's unproven claims are counted separately, like those of another
    /// cluster.
    pub(crate) cluster: &'t str,
    /// The user, as a JSON string.
    pub(crate) user: &'t str,
    /// `"groups":[…]`.
    pub(crate) groups: &'t str,
    /// `"extra":{…}`; empty without.
    pub(crate) extra: &'t str,
    /// `"selectors":{…}`; empty without.
    pub(crate) selectors: &'t str,
    /// `"endpoint":…` and the members after it: the rest of the question, and the decision.
    pub(crate) decision: &'t str,
}

// === impl DecisionLog ===

impl DecisionLog {
    /// Opens the destination and starts the writer. `dropped` counts lost lines.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn open(destination: Destination, dropped: IntCounter) -> io::Result<Self> {
        let sink = destination.open()?;
        Self::start(sink, move || destination.open(), dropped, MAX_PENDING_BYTES)
    }

    fn start(
        sink: LogSink,
        reopen: impl Fn() -> io::Result<LogSink> + Send + 'static,
        dropped: IntCounter,
        limit: usize,
    ) -> io::Result<Self> {
        let settings = LineQueueSettings {
            thread: "decision-log",
            limit,
            dropped,
            report: |failure, error| match failure {
                WriteFailure::Reopen => {
                    tracing::error!(%error, "cannot reopen the decision log: still writing to the old file");
                }
                WriteFailure::Write => {
                    tracing::error!(%error, "cannot write to the decision log: lines are lost");
                }
            },
        };
        LineQueue::start(sink, reopen, settings).map(Self)
    }

    /// Queues the line of a decision, or drops and counts it if the queue is full.
    pub fn record(&self, record: &Record<'_>) {
        record.with_line(|line| self.write(line, true));
    }

    /// Queues a line, with or without the nearest misses.
    pub fn write(&self, line: &DecisionLine<'_>, with_near_misses: bool) {
        self.0.push(line.parts(with_near_misses));
    }

    /// Reopens the file before the next line, after it was moved away.
    pub fn reopen(&self) {
        self.0.reopen();
    }

    /// Waits until every line is written, for `limit` at most, and returns whether it is.
    #[must_use]
    pub fn flush(&self, limit: Duration) -> bool {
        self.0.flush(limit)
    }
}

// === impl Destination ===

impl Destination {
    fn open(&self) -> io::Result<LogSink> {
        Ok(match self {
            Self::Stdout => Box::new(io::stdout()),
            Self::File(path) => Box::new(files::append(path, MODE)?),
        })
    }
}

// === impl CountedQuestion ===

impl CountedQuestion {
    /// Writes the parts of `record` to `text`, which must be empty.
    pub(crate) fn write(record: &Record<'_>, text: &mut String) -> Self {
        let question = Self::write_parts(
            [record.cluster, record.caller],
            &record.question,
            Some(record),
            text,
        );
        let time = record.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            time: time.as_secs(),
            decision: record.decision.as_str(),
            ..question
        }
    }

    /// Like [`write`](Self::write) without a decision, for a cluster and its caller.
    pub(crate) fn write_question(
        cluster: [&str; 2],
        question: &LoggedQuestion<'_>,
        text: &mut String,
    ) -> Self {
        Self::write_parts(cluster, question, None, text)
    }

    fn write_parts(
        [cluster, caller]: [&str; 2],
        question: &LoggedQuestion<'_>,
        answer: Option<&Record<'_>>,
        text: &mut String,
    ) -> Self {
        let mut line = Line {
            out: text,
            truncated: false,
            redaction: None,
        };
        let mut ends = [0; PARTS];
        let user = question.user();
        line.text(cluster);
        let path_token = AuthenticationMethod::PathToken.as_str();
        if caller == path_token {
            line.members(&[("caller", path_token)]);
        }
        ends[0] = line.out.len();
        line.text(&user.name);
        ends[1] = line.out.len();
        line.raw(r#""groups":"#);
        line.texts(&user.groups);
        ends[2] = line.out.len();
        line.extra_of(user);
        ends[3] = line.out.len();
        line.selectors_of(question);
        ends[4] = line.out.len();
        let verb = line.write_question(question);
        if let Some(record) = answer {
            line.write_decision(record);
        }
        ends[5] = line.out.len();
        Self {
            time: 0,
            verb,
            decision: "",
            ends,
        }
    }

    /// The parts in `text`, to which the question was written.
    pub(crate) fn parts<'t>(&self, text: &'t str) -> QuestionParts<'t> {
        let mut start = 0;
        let [cluster, user, groups, extra, selectors, answer] = self.ends.map(|end| {
            let part = text.get(start..end).unwrap_or_default();
            start = end;
            part
        });
        QuestionParts {
            cluster,
            user,
            groups,
            extra,
            selectors,
            decision: answer,
        }
    }
}

// === impl Line ===

impl Line<'_> {
    fn extra_of(&mut self, user: &User<'_>) {
        let is_kept =
            |(key, _): &&(Cow<'_, str>, Vec<Cow<'_, str>>)| !PER_TOKEN_EXTRA_KEYS.contains(&key.as_ref());
        let extra: Vec<_> = user.extra.iter().filter(is_kept).collect();
        if extra.is_empty() {
            return;
        }
        self.raw(r#""extra":{"#);
        self.items(&extra, |line, (key, values)| {
            line.text(key);
            line.raw(":");
            line.texts(values);
        });
        self.raw("}");
    }

    fn selectors_of(&mut self, question: &LoggedQuestion<'_>) {
        let LoggedQuestion::Authorization(Attributes {
            target: Target::Resource(resource),
            ..
        }) = question
        else {
            return;
        };
        let selectors = &resource.selectors;
        if selectors.field.is_empty() && selectors.label.is_empty() {
            return;
        }
        self.raw(r#""selectors":{"#);
        self.selector("fieldSelector", &selectors.field);
        self.selector("labelSelector", &selectors.label);
        self.raw("}");
    }

    /// Writes the rest of the question, and returns the verb.
    fn write_question(&mut self, question: &LoggedQuestion<'_>) -> &'static str {
        let known = |verb: &str| VERBS.into_iter().find(|known| *known == verb).unwrap_or("other");
        self.raw(r#""endpoint":""#);
        let verb = match question {
            LoggedQuestion::Authorization(attributes) => {
                self.raw(r#"authorize","attributes":{"#);
                match &attributes.target {
                    Target::NonResource { path, verb } => {
                        self.members(&[("verb", verb), ("path", path)]);
                        known(verb)
                    }
                    Target::Resource(resource) => {
                        self.members(&[
                            ("verb", &resource.verb),
                            ("namespace", &resource.namespace),
                            ("group", &resource.group),
                            ("resource", &resource.resource),
                            ("subresource", &resource.subresource),
                            ("name", &resource.name),
                        ]);
                        known(&resource.verb)
                    }
                }
            }
            LoggedQuestion::Admission(phase, request) => {
                self.raw(Endpoint::from(*phase).as_str());
                self.raw(r#"","attributes":{"#);
                self.operation(request);
                request.operation.as_str()
            }
        };
        self.raw("}");
        verb
    }

    fn write_decision(&mut self, record: &Record<'_>) {
        self.raw(r#","decision":""#);
        self.raw(record.decision.as_str());
        self.raw("\"");
        self.cause(record.cause);
        self.shadow_decisions(record.shadow);
        self.exceptions(record.exceptions);
        if self.truncated {
            self.raw(r#","truncated":true"#);
        }
    }

    /// Leaves out the name of the object, because every created object has another one.
    fn operation(&mut self, request: &Request<'_>) {
        self.members(&[
            ("operation", request.operation.as_str()),
            ("namespace", &request.namespace),
            ("group", &request.resource.group),
            ("resource", &request.resource.resource),
            ("subresource", &request.subresource),
            ("kind", &request.kind.kind),
        ]);
        if request.dry_run {
            self.key("dryRun");
            self.raw("true");
        }
    }

    /// Leaves out the reasons, because they may quote values that differ each time.
    fn shadow_decisions(&mut self, shadow: &[ShadowDecision<'_>]) {
        if shadow.is_empty() {
            return;
        }
        self.raw(r#","shadow":["#);
        self.items(shadow, |line, shadow| {
            line.raw("{");
            line.members(&[
                ("kind", shadow.kind),
                ("name", shadow.name),
                ("decision", shadow.decision.as_str()),
            ]);
            line.raw("}");
        });
        self.raw("]");
    }
}

#[cfg(test)]
mod tests;
