//! Reports about admission: the decision on a review, step by step.

mod review;

use std::fmt;
use std::fmt::Write as _;

use review::TracedMatch;
use serde::Serialize;
use serde_json::value::RawValue;

use super::Lines;
use super::authorization::object;
use super::objects::ReviewOfManifest;
use crate::admission::{self, Phase};

pub use review::{
    OfflineDecision, OfflineReview, OfflineReviewResult, StepRecorder, TracedStep, TracedValue,
};

/// The phases, in the order in which an API server calls them.
pub const PHASES: [Phase; 2] = [Phase::Mutate, Phase::Validate];

// The decision on a review, as text and as JSON.

/// The most characters of a value or expression in text.
const SHOWN: usize = 160;

/// A decision as JSON.
#[derive(Serialize)]
pub struct AdmitExplained<'a> {
    /// `null` if it is not known.
    allowed: Option<bool>,
    reply: &'a RawValue,
    /// The webhooks without a recorded response.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    unknown: &'a [String],
    trace: &'a [TracedStep],
}

/// An object of `-f`, and the result of its review.
pub struct AnsweredObject {
    pub about: ReviewOfManifest,
    pub answered: OfflineReviewResult,
}

/// The decisions on all objects of `-f` as JSON. A single object has the form of a decision on a
/// review.
#[derive(Serialize)]
#[serde(untagged)]
pub enum AdmitAllExplained<'a> {
    One {
        #[serde(flatten)]
        answer: AdmitExplained<'a>,
        notes: &'a [String],
    },
    Many {
        /// `null` if a decision is not known.
        allowed: Option<bool>,
        objects: Vec<ObjectExplained<'a>>,
        notes: &'a [String],
    },
}

/// The decision on one of several objects.
#[derive(Serialize)]
pub struct ObjectExplained<'a> {
    file: &'a str,
    line: u32,
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    #[serde(flatten)]
    answer: AdmitExplained<'a>,
}

/// The decisions on all objects of `-f`, and notes on them, as text.
pub struct AdmitAllInWords<'a>(pub &'a [AnsweredObject], pub &'a [String]);

/// The steps of a decision as text.
pub struct StepsInWords<'a>(pub &'a [TracedStep]);

/// A decision as text.
pub struct AdmitInWords<'a>(pub &'a OfflineReviewResult);

impl<'a> AdmitExplained<'a> {
    pub fn new(answered: &'a OfflineReviewResult) -> Self {
        let (allowed, reply, unknown) = match &answered.decided {
            Ok(decided) => {
                let reply = serde_json::from_str(&decided.reply).unwrap_or(RawValue::NULL);
                (Some(decided.outcome.denial.is_none()), reply, &[][..])
            }
            Err(unknown) => (None, RawValue::NULL, &unknown.webhooks[..]),
        };
        Self {
            allowed,
            reply,
            unknown,
            trace: &answered.trace,
        }
    }
}

impl<'a> AdmitAllExplained<'a> {
    pub fn new(objects: &'a [AnsweredObject], notes: &'a [String]) -> Self {
        if let [one] = objects {
            let answer = AdmitExplained::new(&one.answered);
            return Self::One { answer, notes };
        }
        let objects: Vec<ObjectExplained<'_>> = objects
            .iter()
            .map(|AnsweredObject { about, answered }| ObjectExplained {
                file: &about.file,
                line: about.line,
                kind: &about.kind,
                namespace: &about.namespace,
                name: &about.name,
                answer: AdmitExplained::new(answered),
            })
            .collect();
        let answers = || objects.iter().map(|object| object.answer.allowed);
        let allowed = if answers().any(|allowed| allowed == Some(false)) {
            Some(false)
        } else {
            answers().all(|allowed| allowed.is_some()).then_some(true)
        };
        Self::Many {
            allowed,
            objects,
            notes,
        }
    }
}

impl AdmitAllInWords<'_> {
    pub fn lines(&self) -> Lines {
        let Self(objects, notes) = self;
        let mut lines = Lines::new();
        for AnsweredObject { about, answered } in *objects {
            if objects.len() > 1 {
                let object = object(&about.kind, &about.namespace, &about.name);
                lines.line(format_args!("# {}:{}: {object}", about.file, about.line));
            }
            lines.append(&AdmitInWords(answered).lines());
            lines.line("");
        }
        notes
            .iter()
            .for_each(|note| lines.line(format_args!("note: {note}")));
        lines
    }
}

impl AdmitInWords<'_> {
    pub fn lines(&self) -> Lines {
        let OfflineReviewResult { decided, trace, .. } = self.0;
        let mut lines = Lines::new();
        match decided {
            Ok(decided) => write_outcome(&mut lines, &decided.outcome),
            Err(unknown) => lines.line(format_args!("unknown: {unknown} (see --answers)")),
        }
        lines.append(&StepsInWords(trace).lines());
        lines
    }
}

impl StepsInWords<'_> {
    pub fn lines(&self) -> Lines {
        let mut lines = Lines::new();
        self.0.iter().for_each(|step| write_step(&mut lines, step));
        lines
    }
}

fn write_outcome(lines: &mut Lines, outcome: &admission::Outcome) {
    match &outcome.denial {
        None => lines.line("allow"),
        Some(denial) => lines.line(format_args!(
            "deny: {} ({} {})",
            denial.message, denial.code, denial.reason
        )),
    }
    if let Some(cause) = &outcome.cause {
        lines.line(format_args!("cause: {}", cause));
    }
    for warning in outcome.warnings.iter() {
        lines.line(format_args!("warning: {warning}"));
    }
    for (key, value) in &outcome.audit_annotations {
        lines.line(format_args!("audit: {key}: {value}"));
    }
    if !outcome.patch.is_empty() {
        lines.line(format_args!("patch: {}", outcome.patch));
    }
}

fn write_step(lines: &mut Lines, step: &TracedStep) {
    match step {
        TracedStep::Phase { phase, again } => {
            let again = if *again { ", once more" } else { "" };
            lines.line("");
            lines.line(format_args!("{phase}{again}:"));
        }
        TracedStep::Policy { kind, name, finding } => lines.line(format_args!("  {kind}/{name}  {finding}")),
        TracedStep::Binding { name, finding } => lines.line(format_args!("    binding {name}  {finding}")),
        TracedStep::Run {
            policy,
            binding,
            parameter,
        } => {
            let parameter = parameter.as_ref().map(|parameter| format!(", with {parameter}"));
            let parameter = parameter.unwrap_or_default();
            lines.line(format_args!("    {policy}, bound by {binding}{parameter}"));
        }
        TracedStep::Variable { name, result } => lines.line(format_args!("      variables.{name}: {result}")),
        TracedStep::Expression {
            part,
            expression,
            result,
            cost,
            took,
        } => {
            let expression = excerpt(expression);
            lines.line(format_args!("      {part}: {expression}"));
            lines.line(format_args!("        {result}  (cost {cost}, {took:.1?})"));
        }
        TracedStep::Changed { patch } => lines.line(format_args!("        patch {}", excerpt(patch.get()))),
        TracedStep::Webhook {
            configuration,
            name,
            finding,
        } => lines.line(format_args!("  webhook {configuration}/{name}  {finding}")),
        TracedStep::Asked { version, shadow, .. } => {
            let shadow = if *shadow { ", in shadow" } else { "" };
            lines.line(format_args!("    asked in {version}{shadow}"))
        }
        TracedStep::Answered {
            configuration,
            name,
            verdict,
            message,
        } => {
            let separator = if message.is_empty() { "" } else { ": " };
            lines.line(format_args!(
                "    {configuration}/{name}: {verdict}{separator}{}",
                excerpt(message)
            ))
        }
        TracedStep::Exception {
            name,
            policy,
            why: None,
            ..
        } => lines.line(format_args!(
            "  AdmissionException/{name}  excuses the denial of {policy}"
        )),
        TracedStep::Exception {
            name,
            policy,
            why: Some(why),
            ..
        } => lines.line(format_args!(
            "  AdmissionException/{name}  does not excuse {policy}: {why}"
        )),
        TracedStep::Initializer {
            configuration,
            name,
            policy,
        } => {
            let missing = if *policy {
                ""
            } else {
                ", whose policy does not exist"
            };
            lines.line(format_args!("  initializer {configuration}/{name}{missing}"))
        }
    }
}

impl fmt::Display for TracedMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Match { resource } => write!(f, "applies, as {resource}"),
            Self::NoMatch { why } => write!(f, "does not apply: {why}"),
            Self::Error { why } => write!(f, "cannot be called: {why}"),
        }
    }
}

impl fmt::Display for TracedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => write!(f, "= {}", excerpt(value.get())),
            Self::Error(error) => write!(f, "has no value: {error}"),
        }
    }
}

/// The text on one line, truncated.
fn excerpt(text: &str) -> String {
    let mut line = String::new();
    for (position, word) in text.split_whitespace().enumerate() {
        let separator = if position > 0 { " " } else { "" };
        // Writing to a string does not fail.
        let _ = write!(line, "{separator}{word}");
    }
    match line.char_indices().nth(SHOWN) {
        None => line,
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
    }
}
