//! One line of the decision log: JSON of bounded length.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::{Debug, Display, Write as _};
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;

use super::super::metrics::Endpoint;
use portcullis_cel::json::write_string;
use portcullis_policy::admission::exceptions::ExcusedDenials;
use portcullis_policy::admission::webhook::{Verdict, WebhookResult};
use portcullis_policy::admission::{Phase, Request};
use portcullis_policy::authorization::{Finding, Shadow, TraceEntry};
use portcullis_policy::model::{
    Attributes, Cause, Decision, Operator, Requirement, Target, User, truncate_with_mark,
};

/// A decision to be logged.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The time of the decision.
    pub time: SystemTime,
    /// The revision of the snapshot that decided.
    pub revision: &'a str,
    /// The cluster of the caller.
    pub cluster: &'a str,
    /// The caller's name.
    pub caller: &'a str,
    /// The request, including the user with its groups and extra.
    pub question: LoggedQuestion<'a>,
    /// The decision.
    pub decision: Decision,
    /// What decided, or why nothing matched.
    pub reason: &'a str,
    /// The object that decided.
    pub cause: Option<&'a Cause<'a>>,
    /// The nearest misses, if they are recorded.
    pub near_misses: &'a [TraceEntry],
    /// The decisions that policies and webhooks in shadow would have made.
    pub shadow: &'a [ShadowDecision<'a>],
    /// The denials that AdmissionExceptions lifted.
    pub exceptions: &'a [ExcusedDenials],
    /// The results of webhooks behind the gateway, in the order of the calls.
    pub webhooks: &'a [WebhookResult],
    /// An error that did not prevent the decision; an empty one is left out.
    pub evaluation_error: &'a str,
    /// The time that the decision took.
    pub duration: Duration,
    /// Hides messages of policies and webhooks that quote secrets of the object.
    pub redaction: Option<&'a dyn TextRedaction>,
}

/// Hides messages that quote secrets.
pub trait TextRedaction: Debug {
    /// Returns `text`, or its replacement.
    fn redacted<'t>(&self, text: &'t str) -> &'t str;
}

/// The request that was decided.
#[derive(Debug, Clone, Copy)]
pub enum LoggedQuestion<'a> {
    /// A SubjectAccessReview.
    Authorization(&'a Attributes<'a>),
    /// An AdmissionReview. Nothing of its object is logged.
    Admission(Phase, &'a Request<'a>),
}

/// The decision that a policy or webhook in shadow would have made.
#[derive(Debug, Clone, Copy)]
pub struct ShadowDecision<'a> {
    /// The kind of the policy, or `Webhook`.
    pub kind: &'a str,
    /// The name of the policy, or `configuration/webhook`.
    pub name: &'a str,
    /// The decision.
    pub decision: Decision,
    /// For a webhook, why it would have denied or has failed; for a policy, the error of a
    /// condition. An empty one is left out.
    pub reason: &'a str,
}

impl<'a> From<&'a Shadow> for ShadowDecision<'a> {
    fn from(shadow: &'a Shadow) -> Self {
        Self {
            kind: shadow.kind.as_str(),
            name: &shadow.name,
            decision: shadow.decision,
            reason: shadow.error.as_deref().unwrap_or_default(),
        }
    }
}

/// An encoded line, with its line break.
#[derive(Debug, Clone)]
pub struct DecisionLine<'l> {
    text: &'l [u8],
    near_misses: Range<usize>,
}

thread_local! {
    /// The buffer in which each line is built before it is copied into the queue.
    static LINE: RefCell<String> = const { RefCell::new(String::new()) };

    /// The last second that was written, since 1970, and its text, because a second has many lines.
    static SECOND: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
}

// === impl Record ===

impl Record<'_> {
    /// Calls `with` with the line.
    pub fn with_line(&self, with: impl FnOnce(&DecisionLine<'_>)) {
        LINE.with(|buffer| match buffer.try_borrow_mut() {
            Ok(mut buffer) => {
                buffer.clear();
                with(&self.line(&mut buffer));
            }
            // Only reached if `with` logged a decision itself.
            Err(_) => with(&self.line(&mut String::new())),
        });
    }

    /// Writes the line to `out`, which must be empty.
    fn line<'b>(&self, out: &'b mut String) -> DecisionLine<'b> {
        let near_misses = self.write(&mut Line {
            out,
            truncated: false,
            redaction: self.redaction,
        });
        DecisionLine {
            text: out.as_bytes(),
            near_misses,
        }
    }

    /// Writes the line, and returns the range of the nearest misses in it.
    fn write(&self, line: &mut Line<'_>) -> Range<usize> {
        let user = self.question.user();
        line.raw(r#"{"time":""#);
        line.time(self.time);
        line.raw(r#"","revision":"#);
        line.text(self.revision);
        line.raw(r#","cluster":"#);
        line.text(self.cluster);
        line.raw(r#","caller":"#);
        line.text(self.caller);
        line.question(&self.question);
        line.raw(r#","user":"#);
        line.text(&user.name);
        line.raw(r#","groups":"#);
        line.texts(&user.groups);
        line.raw(r#","attributes":{"#);
        match &self.question {
            LoggedQuestion::Authorization(attributes) => line.target(&attributes.target),
            LoggedQuestion::Admission(_, request) => line.admission(request),
        }
        line.extra(&user.extra);
        line.raw(r#"},"decision":"#);
        line.text(self.decision.as_str());
        line.raw(r#","reason":"#);
        line.message(self.reason);
        line.cause(self.cause);
        let start = line.out.len();
        line.near_misses(self.near_misses);
        let near_misses = start..line.out.len();
        line.shadow(self.shadow);
        line.exceptions(self.exceptions);
        line.webhooks(self.webhooks);
        if !self.evaluation_error.is_empty() {
            line.raw(r#","evaluationError":"#);
            line.message(self.evaluation_error);
        }
        line.raw(r#","durationSeconds":"#);
        line.seconds(self.duration);
        if line.truncated {
            line.raw(r#","truncated":true"#);
        }
        line.raw("}\n");
        near_misses
    }
}

// === impl DecisionLine ===

impl<'l> DecisionLine<'l> {
    /// The whole line.
    #[must_use]
    pub const fn whole(&self) -> &'l [u8] {
        self.text
    }

    /// The line in two parts, with or without the nearest misses.
    #[must_use]
    pub fn parts(&self, with_near_misses: bool) -> [&'l [u8]; 2] {
        if with_near_misses {
            return [self.text, &[]];
        }
        let before = self.text.get(..self.near_misses.start);
        let after = self.text.get(self.near_misses.end..);
        [before, after].map(Option::unwrap_or_default)
    }
}

// === impl LoggedQuestion ===

impl<'a> LoggedQuestion<'a> {
    pub(crate) const fn user(&self) -> &'a User<'a> {
        match self {
            Self::Authorization(attributes) => &attributes.user,
            Self::Admission(_, request) => &request.user,
        }
    }
}

// === impl Line ===

impl Line<'_> {
    /// Writes the endpoint and the uid, which is that of the user or of the admission review.
    fn question(&mut self, question: &LoggedQuestion<'_>) {
        self.raw(r#","endpoint":"#);
        let uid = match question {
            LoggedQuestion::Authorization(attributes) => {
                self.raw(r#""authorize""#);
                &attributes.user.uid
            }
            LoggedQuestion::Admission(phase, request) => {
                self.text(Endpoint::from(*phase).as_str());
                self.raw(r#","phase":"#);
                self.text(phase.as_str());
                &request.uid
            }
        };
        self.raw(r#","uid":"#);
        self.text(uid);
    }

    fn admission(&mut self, request: &Request<'_>) {
        self.members(&[
            ("operation", request.operation.as_str()),
            ("namespace", &request.namespace),
            ("group", &request.resource.group),
            ("version", &request.resource.version),
            ("resource", &request.resource.resource),
            ("subresource", &request.subresource),
            ("name", &request.name),
            ("kind", &request.kind.kind),
        ]);
        if request.dry_run {
            self.key("dryRun");
            self.raw("true");
        }
    }

    fn target(&mut self, target: &Target<'_>) {
        match target {
            Target::NonResource { path, verb } => self.members(&[("path", path), ("verb", verb)]),
            Target::Resource(resource) => {
                self.members(&[
                    ("verb", &resource.verb),
                    ("namespace", &resource.namespace),
                    ("group", &resource.group),
                    ("version", &resource.version),
                    ("resource", &resource.resource),
                    ("subresource", &resource.subresource),
                    ("name", &resource.name),
                ]);
                self.selector("fieldSelector", &resource.selectors.field);
                self.selector("labelSelector", &resource.selectors.label);
            }
        }
    }

    pub(crate) fn selector(&mut self, name: &'static str, requirements: &[Requirement<'_>]) {
        if requirements.is_empty() {
            return;
        }
        self.key(name);
        self.raw(r#"{"requirements":["#);
        self.items(requirements, |line, requirement| {
            line.raw(r#"{"key":"#);
            line.text(&requirement.key);
            line.raw(r#","operator":"#);
            line.text(operator(&requirement.operator));
            if !requirement.values.is_empty() {
                line.raw(r#","values":"#);
                line.texts(&requirement.values);
            }
            line.raw("}");
        });
        self.raw("]}");
    }

    fn extra(&mut self, extra: &[(Cow<'_, str>, Vec<Cow<'_, str>>)]) {
        if extra.is_empty() {
            return;
        }
        self.key("extra");
        self.raw("{");
        self.items(extra, |line, (key, values)| {
            line.text(key);
            line.raw(":");
            line.texts(values);
        });
        self.raw("}");
    }

    pub(crate) fn cause(&mut self, cause: Option<&Cause<'_>>) {
        let Some(cause) = cause else { return };
        self.raw(r#","cause":{"kind":"#);
        self.text(cause.kind.as_str());
        self.members(&[("namespace", &cause.namespace), ("name", &cause.name)]);
        if let Some(rule) = cause.rule {
            self.key("rule");
            self.number(rule);
        }
        self.raw("}");
    }

    fn near_misses(&mut self, events: &[TraceEntry]) {
        if events.is_empty() {
            return;
        }
        self.raw(r#","nearMisses":["#);
        self.items(events, |line, event| {
            line.raw(r#"{"kind":"#);
            line.text(event.kind.as_str());
            line.members(&[("namespace", &event.namespace), ("name", &event.name)]);
            if let Finding::NoMatch { rule, criterion } = &event.finding {
                if let Some(rule) = rule {
                    line.key("rule");
                    line.number(rule);
                }
                line.members(&[("criterion", criterion.as_str())]);
            }
            line.raw("}");
        });
        self.raw("]");
    }

    fn shadow(&mut self, shadow: &[ShadowDecision<'_>]) {
        self.raw(r#","shadow":["#);
        self.items(shadow, |line, shadow| {
            line.raw(r#"{"kind":"#);
            line.text(shadow.kind);
            line.raw(r#","name":"#);
            line.text(shadow.name);
            line.raw(r#","decision":"#);
            line.text(shadow.decision.as_str());
            if !shadow.reason.is_empty() {
                line.raw(r#","reason":"#);
                line.message(shadow.reason);
            }
            line.raw("}");
        });
        self.raw("]");
    }

    pub(crate) fn exceptions(&mut self, exceptions: &[ExcusedDenials]) {
        if exceptions.is_empty() {
            return;
        }
        self.raw(r#","exceptions":["#);
        self.items(exceptions, |line, excused| {
            line.raw(r#"{"name":"#);
            line.text(&excused.exception.name);
            line.raw(r#","policy":"#);
            line.text(&excused.policy);
            line.raw("}");
        });
        self.raw("]");
    }
}

fn operator<'a>(operator: &'a Operator<'_>) -> &'a str {
    match operator {
        Operator::In => "In",
        Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        Operator::Unknown(name) => name,
    }
}

// === impl Line ===

impl Line<'_> {
    /// Writes nothing if there are no results.
    pub(crate) fn webhooks(&mut self, results: &[WebhookResult]) {
        if results.is_empty() {
            return;
        }
        self.raw(r#","webhooks":["#);
        self.items(results, Self::webhook);
        self.raw("]");
    }

    fn webhook(&mut self, result: &WebhookResult) {
        let (decision, reason) = verdict(&result.verdict);
        self.raw("{");
        self.members(&[
            ("configuration", &result.webhook.configuration),
            ("webhook", &result.webhook.name),
        ]);
        self.key("round");
        self.number(result.round);
        self.members(&[("decision", decision), ("reason", self.redacted(reason))]);
        self.key("changed");
        self.raw("[");
        self.items(&result.changed, |line, path| line.text(path));
        self.raw("]");
        if let Some(took) = result.took {
            self.key("durationSeconds");
            self.seconds(took);
        }
        self.raw("}");
    }
}

/// The values of `decision` and `reason`.
const fn verdict(verdict: &Verdict) -> (&'static str, &str) {
    match verdict {
        Verdict::Allowed => ("allow", ""),
        Verdict::Denied(message) => ("deny", message.as_str()),
        Verdict::Failed {
            message,
            is_ignored: false,
        } => ("error", message.as_str()),
        Verdict::Failed {
            message,
            is_ignored: true,
        } => ("ignored", message.as_str()),
    }
}

/// The longest string in a line, in bytes.
const TEXT_BYTES: usize = 2048;

/// The length of a line from which lists are truncated.
const LINE_BYTES: usize = 32 << 10;

/// A line being built.
pub(crate) struct Line<'b> {
    pub(crate) out: &'b mut String,
    pub(crate) truncated: bool,
    pub(crate) redaction: Option<&'b dyn TextRedaction>,
}

// === impl Line ===

impl Line<'_> {
    pub(crate) fn raw(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Writes a JSON string. A long one is truncated and ends in `…`.
    pub(crate) fn text(&mut self, text: &str) {
        if text.len() <= TEXT_BYTES {
            write_string(self.out, text);
            return;
        }
        self.truncated = true;
        write_string(self.out, &truncate_with_mark(text, TEXT_BYTES));
    }

    /// Writes a message of a policy or webhook as a JSON string.
    fn message(&mut self, text: &str) {
        self.text(self.redacted(text));
    }

    fn redacted<'t>(&self, text: &'t str) -> &'t str {
        let redaction = self.redaction.filter(|_| !text.is_empty());
        redaction.map_or(text, |redaction| redaction.redacted(text))
    }

    /// Writes the items of a list, separated by commas, until the line is too long.
    pub(crate) fn items<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        for (position, item) in items.iter().enumerate() {
            if self.out.len() > LINE_BYTES {
                self.truncated = true;
                return;
            }
            if position > 0 {
                self.raw(",");
            }
            write(self, item);
        }
    }

    pub(crate) fn texts(&mut self, texts: &[Cow<'_, str>]) {
        self.raw("[");
        self.items(texts, |line, text| line.text(text));
        self.raw("]");
    }

    /// Writes the members that are not empty.
    pub(crate) fn members(&mut self, members: &[(&'static str, &str)]) {
        for (name, value) in members.iter().filter(|(_, value)| !value.is_empty()) {
            self.key(name);
            self.text(value);
        }
    }

    /// Writes `"name":` within an object, after a comma unless it is the first. Names need no
    /// escapes.
    pub(crate) fn key(&mut self, name: &'static str) {
        if !self.out.ends_with('{') {
            self.raw(",");
        }
        self.raw("\"");
        self.raw(name);
        self.raw("\":");
    }

    /// Writes a time as RFC 3339 in UTC with microseconds.
    pub(crate) fn time(&mut self, time: SystemTime) {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        SECOND.with_borrow_mut(|(second, text)| {
            if *second != since.as_secs() {
                text.clear();
                let mut line = Line {
                    out: text,
                    truncated: false,
                    redaction: None,
                };
                line.second(UNIX_EPOCH + Duration::from_secs(since.as_secs()));
                *second = since.as_secs();
            }
            self.raw(text);
        });
        self.digits(since.subsec_micros(), 6);
        self.raw("Z");
    }

    /// Writes a time up to the point before the microseconds.
    fn second(&mut self, time: SystemTime) {
        let time = OffsetDateTime::from(time);
        let (year, month, day) = time.to_calendar_date();
        let (hour, minute, second) = time.to_hms();
        self.digits(u32::try_from(year).unwrap_or_default(), 4);
        self.raw("-");
        self.digits(u32::from(u8::from(month)), 2);
        self.raw("-");
        self.digits(u32::from(day), 2);
        self.raw("T");
        self.digits(u32::from(hour), 2);
        self.raw(":");
        self.digits(u32::from(minute), 2);
        self.raw(":");
        self.digits(u32::from(second), 2);
        self.raw(".");
    }

    /// Writes seconds with nanoseconds.
    pub(crate) fn seconds(&mut self, duration: Duration) {
        self.number(duration.as_secs());
        self.raw(".");
        self.digits(duration.subsec_nanos(), 9);
    }

    fn number(&mut self, number: impl Display) {
        // Writing to a String does not fail.
        let _infallible = write!(self.out, "{number}");
    }

    /// Writes the last `width` digits of `value`, at most ten.
    pub(crate) fn digits(&mut self, mut value: u32, width: usize) {
        let mut digits = [b'0'; 10];
        for digit in digits.iter_mut().rev().take(width) {
            *digit += u8::try_from(value % 10).unwrap_or_default();
            value /= 10;
        }
        let written = digits
            .get(digits.len() - width.min(digits.len())..)
            .unwrap_or_default();
        self.raw(str::from_utf8(written).unwrap_or_default());
    }
}
