//! The result of a replay: the changes, each group with an example, as text, JSON or JUnit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regex_automata::hybrid::regex::Regex;
use serde::Serialize;

use crate::cli::output::{self, CommandError};
use crate::cli::test::escaped;
use crate::config::Endpoint;
use crate::recording::RecordLine;
use crate::telemetry::decision_log::LoggedQuestion;
use crate::usage::{UsageWeight, UsageWeights, question_text};
use portcullis_cel::json::{Document, patch};
use portcullis_policy::admission::Phase;
use portcullis_policy::api::{AdmissionReview, SubjectAccessReview};
use portcullis_policy::explain::Lines;
use portcullis_policy::explain::recorded::{
    ChangeGroup, ReplayDecision, ReplaySummary, ReviewComparison, UnknownReason, qualified_resource,
    request_in_words, target_in_words,
};
use portcullis_policy::model::{Decision, User};

/// The formats of `replay`.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum ReplayFormat {
    /// Changes by cause, each with an example.
    #[default]
    Text,
    /// One JSON document, for programs.
    Json,
    /// JUnit's XML, for CI services.
    Junit,
}

/// The JSON output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayReport {
    /// The number of reviews that were decided.
    decided: u64,
    /// The number of reviews whose decision depends on unknown data.
    unknown: u64,
    changes: Vec<ChangeReport>,
    /// The reasons for unknown decisions, with their numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown_because: Vec<UnknownReason>,
    /// The files whose last line is incomplete, and was not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cut: Vec<String>,
}

/// A group of changes with the same cause.
#[derive(Debug, Serialize)]
struct ChangeReport {
    #[serde(flatten)]
    group: ChangeGroup,
    count: u64,
    /// How often such requests were made, with `--weigh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<RequestUsage>,
    /// Whether `--allow-changes` matches the group.
    allowed: bool,
    example: Option<Box<ChangeExample>>,
}

/// Usage, and the requests of each group of changes.
#[derive(Debug)]
pub(crate) struct ChangeWeights {
    usage: UsageWeights,
    by_group: BTreeMap<ChangeGroup, GroupQuestions>,
}

/// The distinct requests of a group of changes.
#[derive(Debug, Default)]
struct GroupQuestions {
    seen: BTreeSet<String>,
    weight: Option<UsageWeight>,
}

/// How often the requests of a group were made, according to usage.
#[derive(Debug, Serialize)]
pub(crate) struct RequestUsage {
    /// The number of requests, regardless of their decision.
    pub(crate) count: u64,
    /// The number of distinct requests in the recording.
    questions: usize,
    #[serde(skip_serializing_if = "String::is_empty")]
    first: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    last: String,
}

// === impl ReplayReport ===

impl ReplayReport {
    /// The report of `replayed`. `cut` are the files whose last line is incomplete.
    pub(crate) fn new(
        replayed: ReplaySummary<Box<ChangeExample>>,
        cut: Vec<String>,
        allowed: Option<&Regex>,
        weights: Option<&ChangeWeights>,
    ) -> Self {
        let unknown_because = replayed.unknown_reasons();
        let is_allowed = |group: &ChangeGroup| {
            allowed.is_some_and(|allowed| allowed.is_match(&mut allowed.create_cache(), &*group.key()))
        };
        let mut changes: Vec<ChangeReport> = replayed
            .changes
            .into_iter()
            .map(|(group, (count, example))| ChangeReport {
                allowed: is_allowed(&group),
                asked: weights.map(|weights| weights.of(&group)),
                group,
                count,
                example,
            })
            .collect();
        changes.sort_by_key(|change| {
            let asked = change.asked.as_ref().map(|asked| asked.count);
            std::cmp::Reverse((asked, change.count))
        });
        Self {
            decided: replayed.decided,
            unknown: replayed.unknown,
            changes,
            unknown_because,
            cut,
        }
    }

    /// Whether there is a change that is not allowed.
    pub(crate) fn is_failure(&self) -> bool {
        self.changes.iter().any(|change| !change.allowed)
    }

    pub(crate) fn print(&self, format: ReplayFormat) -> Result<(), CommandError> {
        for file in &self.cut {
            output::print_error(format_args!(
                "the last line of `{file}` is cut off, as when a process is killed: skipped"
            ));
        }
        match format {
            ReplayFormat::Text => output::write(self.in_words().as_str()),
            ReplayFormat::Json => output::print_json(self),
            ReplayFormat::Junit => output::write(&self.junit()),
        }
    }

    /// The report as JUnit XML: one test case for each group of changes, and one for all unchanged
    /// decisions.
    fn junit(&self) -> String {
        let failed = self.changes.iter().filter(|change| !change.allowed).count();
        let counts = format!(
            "tests=\"{}\" failures=\"{failed}\" errors=\"0\"",
            self.changes.len() + 1
        );
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"portcullis\" {counts}>\n  \
             <testsuite name=\"replay\" {counts}>\n    \
             <testcase name=\"{} as before, {} unknown\" classname=\"replay\"/>\n",
            self.as_before(),
            self.unknown
        );
        for change in &self.changes {
            let name = escaped(&change.group.key());
            xml.push_str(&format!("    <testcase name=\"{name}\" classname=\"replay\""));
            if change.allowed {
                xml.push_str("/>\n");
                continue;
            }
            let text = escaped(change.in_words().as_str());
            xml.push_str(&format!(
                ">\n      <failure message=\"{} changed\">{text}</failure>\n    </testcase>\n",
                change.count
            ));
        }
        xml + "  </testsuite>\n</testsuites>\n"
    }

    fn as_before(&self) -> u64 {
        self.decided.saturating_sub(self.changed())
    }

    /// The number of reviews that are decided differently.
    fn changed(&self) -> u64 {
        let changes = self.changes.iter().filter(|change| !change.group.is_lost());
        changes.map(|change| change.count).sum()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.decided == 0
    }
}

impl ReplayReport {
    fn in_words(&self) -> Lines {
        let mut lines = Lines::new();
        for change in &self.changes {
            lines.append(&change.in_words());
            lines.line("");
        }
        if !self.unknown_because.is_empty() {
            lines.line("unknown, since");
            for UnknownReason { reason, count } in &self.unknown_because {
                lines.line(format_args!("  {reason}: {count}"));
            }
            lines.line("");
        }
        let (as_before, changed, unknown) = (self.as_before(), self.changed(), self.unknown);
        lines.line(format_args!(
            "{as_before} as before, {changed} changed, {unknown} unknown"
        ));
        lines
    }
}

impl ChangeReport {
    fn in_words(&self) -> Lines {
        let mut lines = Lines::from_iter([self.heading()]);
        if let Some(asked) = &self.asked {
            lines.line(format_args!("  {}", asked.in_words()));
        }
        let Some(example) = &self.example else {
            return lines;
        };
        let ChangeExample {
            file,
            line,
            time,
            endpoint,
            user,
            request,
            before,
            now,
            considered,
            ..
        } = &**example;
        lines.line(format_args!(
            "  {user}: {request} ({endpoint}, {time}, {file}:{line})"
        ));
        for (when, reason) in [("before", before), ("now", now)] {
            if !reason.is_empty() {
                lines.line(format_args!("    {when}: {reason}"));
            }
        }
        considered
            .iter()
            .for_each(|line| lines.line(format_args!("      {line}")));
        lines
    }

    fn heading(&self) -> String {
        let ChangeGroup {
            from,
            to,
            cause,
            is_gone,
        } = &self.group;
        let change = match (cause.as_str(), is_gone) {
            ("patch", _) => format!("{from}, with another patch"),
            ("", _) => format!("{from} -> {to}"),
            (cause, true) => format!("{from} -> {to}, no longer by {cause}"),
            (cause, false) => format!("{from} -> {to} by {cause}"),
        };
        let allowed = if self.allowed { " (allowed)" } else { "" };
        format!("{change}: {}{allowed}", self.count)
    }
}

/// A review whose decision changes.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeExample {
    pub(crate) file: String,
    pub(crate) line: u64,
    pub(crate) time: String,
    pub(crate) endpoint: &'static str,
    pub(crate) cluster: String,
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
    /// A description of the request.
    pub(crate) request: String,
    /// The reason for the former decision.
    pub(crate) before: String,
    /// The reason for the new decision.
    pub(crate) now: String,
    /// The steps of the new decision.
    pub(crate) considered: Vec<String>,
}

/// Compares the decisions of a recorded review. `place` is its file and line.
pub(crate) fn compared(
    place: (&Path, u64),
    recorded: &RecordLine<'_>,
    before: ReplayDecision,
    now: ReplayDecision,
) -> ReviewComparison<Box<ChangeExample>> {
    let (before, now) = match (before, now) {
        (ReplayDecision::Known(before), ReplayDecision::Known(now)) => (before, now),
        (ReplayDecision::Known(before), ReplayDecision::Unknown(why))
            if before.decision == Decision::Deny =>
        {
            let group = ChangeGroup::lost(&before);
            let example = ChangeExample::new(place, recorded, before.reason, why.clone());
            return ReviewComparison::UnknownDenial(group, why, Box::new(example));
        }
        (ReplayDecision::Unknown(why), _) | (_, ReplayDecision::Unknown(why)) => {
            return ReviewComparison::Unknown(why);
        }
    };
    let group = if before.decision != now.decision {
        ChangeGroup::of(&before, &now)
    } else if recorded.endpoint == Endpoint::Mutate && now.decision == Decision::Allow {
        match is_same_patch(recorded, before.patch.as_deref(), now.patch.as_deref()) {
            Ok(true) => return ReviewComparison::Same,
            Ok(false) => ChangeGroup {
                from: Decision::Allow.as_str(),
                to: Decision::Allow.as_str(),
                cause: "patch".to_owned(),
                is_gone: false,
            },
            Err(why) => return ReviewComparison::Unknown(why),
        }
    } else {
        return ReviewComparison::Same;
    };
    let example = ChangeExample::new(place, recorded, before.reason, now.reason);
    ReviewComparison::Changed(group, Box::new(example))
}

/// Whether both patches have the same result.
fn is_same_patch(recorded: &RecordLine<'_>, before: Option<&str>, now: Option<&str>) -> Result<bool, String> {
    let (Some(before), Some(now)) = (before, now) else {
        return Err("parts of the recorded patch are redacted".to_owned());
    };
    if before == now {
        return Ok(true);
    }
    let parts = ["/request/object", "/spec/object"];
    let object = parts.into_iter().find_map(|part| recorded.review.pointer(part));
    let result = |changes: &str| {
        let object = object?;
        if changes.is_empty() {
            return Document::parse(object.raw().to_owned()).ok();
        }
        let changes = Document::parse(changes.to_owned()).ok()?;
        let changed = patch::apply(object, patch::read(changes.root()).ok()?).ok()?;
        Document::parse(changed.to_text()).ok()
    };
    match (result(before), result(now)) {
        (Some(before), Some(now)) => Ok(before.root().same(now.root())),
        _ => Err("the recorded patch does not fit the recorded object".to_owned()),
    }
}

// === impl ChangeExample ===

impl ChangeExample {
    fn new((file, line): (&Path, u64), recorded: &RecordLine<'_>, before: String, now: String) -> Self {
        let (user, request) = user_and_request(recorded).unwrap_or_default();
        Self {
            file: file.display().to_string(),
            line,
            time: recorded.time.to_string(),
            endpoint: recorded.endpoint.as_str(),
            cluster: recorded.text("cluster"),
            user: user.name.into_owned(),
            groups: user.groups.into_iter().map(|group| group.into_owned()).collect(),
            request,
            before,
            now,
            considered: Vec::new(),
        }
    }
}

/// The user, and a description of the request.
fn user_and_request(recorded: &RecordLine<'_>) -> Option<(User<'static>, String)> {
    let text = recorded.review.raw();
    if recorded.endpoint == Endpoint::Authorize {
        let review = SubjectAccessReview::decode(text.as_bytes()).ok()?;
        let attributes = review.attributes.into_owned();
        return Some((attributes.user, target_in_words(&attributes.target)));
    }
    let document = Document::parse(text).ok()?;
    let request = AdmissionReview::decode(&document).ok()?.request;
    let resource = qualified_resource(
        &request.resource.resource,
        &request.subresource,
        &request.resource.group,
    );
    let words = request_in_words(
        request.operation.as_str(),
        &resource,
        &request.namespace,
        &request.name,
    );
    let user = User {
        name: request.user.name.into_owned().into(),
        groups: request
            .user
            .groups
            .into_iter()
            .map(|group| group.into_owned().into())
            .collect(),
        ..User::default()
    };
    Some((user, words))
}

// === impl ChangeWeights ===

impl ChangeWeights {
    /// Reads usage; `None` if no folder is named.
    pub(crate) fn read(folders: &[PathBuf]) -> Result<Option<Self>, CommandError> {
        if folders.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            usage: UsageWeights::read(folders)?,
            by_group: BTreeMap::new(),
        }))
    }

    /// Adds a review whose decision changes. Each distinct request counts once.
    pub(crate) fn add<E>(&mut self, recorded: &RecordLine<'_>, compared: &ReviewComparison<E>) {
        let (ReviewComparison::Changed(group, _) | ReviewComparison::UnknownDenial(group, _, _)) = compared
        else {
            return;
        };
        let Some(question) = question_of(recorded) else {
            return;
        };
        let weight = self.usage.of(&question);
        let group = self.by_group.entry(group.clone()).or_default();
        if !group.seen.insert(question) {
            return;
        }
        if let Some(weight) = weight {
            UsageWeight::add_to(&mut group.weight, weight);
        }
    }

    /// How often the requests of `group` were made.
    pub(crate) fn of(&self, group: &ChangeGroup) -> RequestUsage {
        let questions = self.by_group.get(group);
        let weight = questions.and_then(|questions| questions.weight.clone());
        let weight = weight.unwrap_or_default();
        RequestUsage {
            count: weight.count,
            questions: questions.map_or(0, |questions| questions.seen.len()),
            first: weight.first,
            last: weight.last,
        }
    }
}

// === impl RequestUsage ===

impl RequestUsage {
    pub(crate) fn in_words(&self) -> String {
        let questions = output::count(self.questions as u64, "different question");
        match self.count {
            0 => format!("never requested in the files of usage ({questions})"),
            count => format!(
                "asked {} from {} to {} ({questions})",
                output::count(count, "time"),
                self.first,
                self.last
            ),
        }
    }
}

/// The request of the review, in the form that usage has.
fn question_of(recorded: &RecordLine<'_>) -> Option<String> {
    let names = ["cluster", "caller"].map(|name| recorded.text(name));
    let (cluster, text) = (names.each_ref().map(String::as_str), recorded.review.raw());
    let phase = match recorded.endpoint {
        Endpoint::Authorize => {
            let review = SubjectAccessReview::decode(text.as_bytes()).ok()?;
            let question = LoggedQuestion::Authorization(&review.attributes);
            return Some(question_text(cluster, &question));
        }
        Endpoint::Validate => Phase::Validate,
        Endpoint::Mutate => Phase::Mutate,
    };
    let document = Document::parse(text).ok()?;
    let request = AdmissionReview::decode(&document).ok()?.request;
    Some(question_text(
        cluster,
        &LoggedQuestion::Admission(phase, &request),
    ))
}
