//! One line of the decision log.

mod webhooks;

use std::borrow::Cow;
use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use time::OffsetDateTime;

use crate::engine::admission::Phase;
use crate::engine::admission::Request;
use crate::engine::admission::exceptions::Excused;
use crate::engine::admission::webhook::WebhookResult;
use crate::engine::text::truncate_with_mark;
use crate::engine::{Attributes, Cause, Decision, Operator, Requirement, Target, User};

/// Longest text of a line, in bytes.
const TEXT_BYTES: usize = 2048;

/// From this length on a line's lists are cut.
const LINE_BYTES: usize = 32 << 10;

/// A decision to be logged.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// When it was decided.
    pub time: SystemTime,
    /// The revision of the files it was decided by.
    pub revision: &'a str,
    /// The cluster the caller speaks for.
    pub cluster: &'a str,
    /// The caller's name.
    pub caller: &'a str,
    /// What was asked; user, groups and extra are part of it.
    pub question: LoggedQuestion<'a>,
    /// The answer.
    pub decision: Decision,
    /// What decided, or why nothing matched.
    pub reason: &'a str,
    /// The object that decided.
    pub cause: Option<&'a Cause>,
    /// What policies and webhooks in shadow would have said.
    pub shadow: &'a [ShadowDecision<'a>],
    /// The denials that AdmissionExceptions excused.
    pub exceptions: &'a [Excused],
    /// What webhooks behind the gateway came to, in the order asked.
    pub webhooks: &'a [WebhookResult],
    /// What went wrong on the way without preventing an answer; empty is left out.
    pub evaluation_error: &'a str,
    /// How long the decision took.
    pub duration: Duration,
}

/// What was asked.
#[derive(Debug, Clone, Copy)]
pub enum LoggedQuestion<'a> {
    /// Whether a user may do something.
    Authorization(&'a Attributes<'a>),
    /// Whether an object may be stored, and how. Of the object nothing is written.
    Admission(Phase, &'a Request<'a>),
}

/// What a policy or webhook in shadow would have said.
#[derive(Debug, Clone, Copy)]
pub struct ShadowDecision<'a> {
    /// The policy's kind; `Webhook`.
    pub kind: &'a str,
    /// Its name; of a webhook `configuration/webhook`.
    pub name: &'a str,
    /// What it would have decided.
    pub decision: Decision,
    /// Why, where a condition of a policy had no result; else empty, and left out.
    pub reason: &'a str,
}

thread_local! {
    /// Lines are built here, one after the other, and copied into the queue.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

// === impl Record ===

impl Record<'_> {
    /// Calls `with` with the line, its line break included.
    pub(super) fn with_line(&self, with: impl FnOnce(&[u8])) {
        LINE.with(|buffer| match buffer.try_borrow_mut() {
            Ok(mut buffer) => {
                buffer.clear();
                self.write(&mut Line {
                    out: &mut buffer,
                    truncated: false,
                });
                with(&buffer);
            }
            // Only reached if `with` logged a decision itself.
            Err(_) => {
                let mut buffer = Vec::new();
                self.write(&mut Line {
                    out: &mut buffer,
                    truncated: false,
                });
                with(&buffer);
            }
        });
    }

    fn write(&self, line: &mut Line<'_>) {
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
        line.text(self.reason);
        line.cause(self.cause);
        line.shadow(self.shadow);
        line.exceptions(self.exceptions);
        line.webhooks(self.webhooks);
        if !self.evaluation_error.is_empty() {
            line.raw(r#","evaluationError":"#);
            line.text(self.evaluation_error);
        }
        line.raw(r#","durationSeconds":"#);
        line.seconds(self.duration);
        if line.truncated {
            line.raw(r#","truncated":true"#);
        }
        line.raw("}\n");
    }
}

// === impl Question ===

impl<'a> LoggedQuestion<'a> {
    const fn user(&self) -> &'a User<'a> {
        match self {
            Self::Authorization(attributes) => &attributes.user,
            Self::Admission(_, request) => &request.user,
        }
    }
}

/// A line being built.
struct Line<'b> {
    out: &'b mut Vec<u8>,
    truncated: bool,
}

// === impl Line ===

impl Line<'_> {
    fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    /// A JSON string; a long one is cut and ends in `…`.
    fn text(&mut self, text: &str) {
        self.truncated |= text.len() > TEXT_BYTES;
        self.string(&truncate_with_mark(text, TEXT_BYTES));
    }

    fn string(&mut self, text: &str) {
        // Writing to memory does not fail.
        let _written = serde_json::to_writer(&mut *self.out, text);
    }

    /// The items of a list, separated, until the line is long.
    fn items<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
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

    fn texts(&mut self, texts: &[Cow<'_, str>]) {
        self.raw("[");
        self.items(texts, |line, text| line.text(text));
        self.raw("]");
    }

    /// The endpoint and the uid: the user's, or that of an admission review.
    fn question(&mut self, question: &LoggedQuestion<'_>) {
        self.raw(r#","endpoint":"#);
        let uid = match question {
            LoggedQuestion::Authorization(attributes) => {
                self.raw(r#""authorize""#);
                &attributes.user.uid
            }
            LoggedQuestion::Admission(phase, request) => {
                self.text(phase.endpoint().as_str());
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

    /// The members that are not empty, as on the wire.
    fn members(&mut self, members: &[(&str, &str)]) {
        for (name, value) in members.iter().filter(|(_, value)| !value.is_empty()) {
            self.key(name);
            self.text(value);
        }
    }

    /// `"name":` within an object, after a comma unless it is the first.
    fn key(&mut self, name: &str) {
        if self.out.last() != Some(&b'{') {
            self.raw(",");
        }
        self.string(name);
        self.raw(":");
    }

    fn selector(&mut self, name: &str, requirements: &[Requirement<'_>]) {
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

    fn cause(&mut self, cause: Option<&Cause>) {
        let Some(cause) = cause else { return };
        self.raw(r#","cause":{"kind":"#);
        self.text(cause.kind.as_str());
        self.members(&[("namespace", &cause.namespace), ("name", &cause.name)]);
        if let Some(rule) = cause.rule {
            self.key("rule");
            self.raw(&rule.to_string());
        }
        self.raw("}");
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
                line.text(shadow.reason);
            }
            line.raw("}");
        });
        self.raw("]");
    }

    fn exceptions(&mut self, exceptions: &[Excused]) {
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

    /// RFC 3339 in UTC with microseconds.
    fn time(&mut self, time: SystemTime) {
        let time = OffsetDateTime::from(time);
        let (year, month, day) = time.to_calendar_date();
        let (hour, minute, second, microsecond) = time.to_hms_micro();
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
        self.digits(microsecond, 6);
        self.raw("Z");
    }

    /// Seconds to the nanosecond, which is as far as clocks tell.
    fn seconds(&mut self, duration: Duration) {
        self.raw(&duration.as_secs().to_string());
        self.raw(".");
        self.digits(duration.subsec_nanos(), 9);
    }

    fn digits(&mut self, mut value: u32, width: usize) {
        let start = self.out.len();
        self.out.resize(start + width, b'0');
        for digit in self.out.iter_mut().skip(start).rev() {
            *digit = b'0' + u8::try_from(value % 10).unwrap_or_default();
            value /= 10;
        }
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
