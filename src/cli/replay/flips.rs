//! Compares decisions, and gathers what flips.

use std::collections::BTreeMap;

use serde::Serialize;

use super::decide::{KnownDecision, ReplayDecision};
use super::source::RecordingFile;
use crate::api::{AdmissionReview, SubjectAccessReview};
use crate::config::Endpoint;
use crate::engine::{Decision, Target, User};
use crate::json::{Document, patch};
use crate::recording::RecordLine;

/// What became of one review.
pub(super) enum ReviewComparison {
    Same,
    Flip(FlipGroup, Box<FlipExample>),
    /// Why.
    Unknown(String),
}

/// Flips that have one cause.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct FlipGroup {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    /// What decides now; where nothing does, what decided before. `patch`: what is changed.
    pub(super) cause: String,
    #[serde(skip)]
    pub(super) is_gone: bool,
}

/// One of them.
#[derive(Debug, Serialize)]
pub(super) struct FlipExample {
    pub(super) file: String,
    pub(super) line: u64,
    pub(super) time: String,
    pub(super) endpoint: &'static str,
    pub(super) cluster: String,
    pub(super) user: String,
    pub(super) groups: Vec<String>,
    /// What was asked, in words.
    pub(super) request: String,
    /// The reason for the decision before.
    pub(super) before: String,
    /// The reason for the decision now.
    pub(super) now: String,
    /// What was considered for the decision now, in lines.
    pub(super) considered: Vec<String>,
}

/// All that was replayed.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    /// How many were decided.
    pub(super) decided: u64,
    pub(super) unknown: u64,
    pub(super) flips: BTreeMap<FlipGroup, (u64, Option<Box<FlipExample>>)>,
    /// How many for each reason.
    pub(super) unknown_because: BTreeMap<String, u64>,
    /// Files whose last line is not whole.
    pub(super) cut: Vec<String>,
}

/// The most reasons that are told apart.
const REASONS: usize = 100;

// === impl ReviewComparison ===

impl ReviewComparison {
    pub(super) fn new(
        file: &RecordingFile,
        recorded: &RecordLine<'_>,
        before: ReplayDecision,
        now: ReplayDecision,
    ) -> Self {
        let (before, now) = match (before, now) {
            (ReplayDecision::Known(before), ReplayDecision::Known(now)) => (before, now),
            (ReplayDecision::Unknown(why), _) | (_, ReplayDecision::Unknown(why)) => {
                return Self::Unknown(why);
            }
        };
        let group = if before.decision != now.decision {
            FlipGroup::of(&before, &now)
        } else if recorded.endpoint == Endpoint::Mutate && now.decision == Decision::Allow {
            match is_same_patch(recorded, before.patch.as_deref(), now.patch.as_deref()) {
                Ok(true) => return Self::Same,
                Ok(false) => FlipGroup {
                    from: Decision::Allow.as_str(),
                    to: Decision::Allow.as_str(),
                    cause: "patch".to_owned(),
                    is_gone: false,
                },
                Err(why) => return Self::Unknown(why),
            }
        } else {
            return Self::Same;
        };
        let example = FlipExample::new(file, recorded, before.reason, now.reason);
        Self::Flip(group, Box::new(example))
    }
}

/// Whether both make the same of the object.
fn is_same_patch(recorded: &RecordLine<'_>, before: Option<&str>, now: Option<&str>) -> Result<bool, String> {
    let (Some(before), Some(now)) = (before, now) else {
        return Err("something of the recorded patch is redacted".to_owned());
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
        let changed = patch::apply(object, &patch::read(changes.root()).ok()?).ok()?;
        Document::parse(changed.to_text()).ok()
    };
    match (result(before), result(now)) {
        (Some(before), Some(now)) => Ok(before.root().same(now.root())),
        _ => Err("the recorded patch does not fit the recorded object".to_owned()),
    }
}

// === impl FlipGroup ===

impl FlipGroup {
    fn of(before: &KnownDecision, now: &KnownDecision) -> Self {
        let is_gone = now.cause.is_empty();
        let cause = if is_gone { &before.cause } else { &now.cause };
        Self {
            from: before.decision.as_str(),
            to: now.decision.as_str(),
            cause: cause.clone(),
            is_gone,
        }
    }

    /// What `--allow-flips` looks at.
    pub(super) fn key(&self) -> String {
        format!("{}->{} {}", self.from, self.to, self.cause)
    }
}

// === impl FlipExample ===

impl FlipExample {
    fn new(file: &RecordingFile, recorded: &RecordLine<'_>, before: String, now: String) -> Self {
        let (user, request) = asked(recorded).unwrap_or_default();
        Self {
            file: file.path.display().to_string(),
            line: file.line,
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

/// Who asked, and for what.
fn asked(recorded: &RecordLine<'_>) -> Option<(User<'static>, String)> {
    let text = recorded.review.raw();
    if recorded.endpoint == Endpoint::Authorize {
        let review = SubjectAccessReview::decode(text.as_bytes()).ok()?;
        let attributes = review.attributes.into_owned();
        return Some((attributes.user, target(&attributes.target)));
    }
    let document = Document::parse(text).ok()?;
    let request = AdmissionReview::decode(&document).ok()?.request;
    let resource = of_group(
        &request.resource.resource,
        &request.subresource,
        &request.resource.group,
    );
    let words = about(
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

fn target(target: &Target<'_>) -> String {
    match target {
        Target::NonResource { path, verb } => format!("{verb} {path}"),
        Target::Resource(asked) => {
            let resource = of_group(&asked.resource, &asked.subresource, &asked.group);
            about(&asked.verb, &resource, &asked.namespace, &asked.name)
        }
    }
}

fn of_group(resource: &str, subresource: &str, group: &str) -> String {
    let mut words = resource.to_owned();
    for (sign, part) in [('.', group), ('/', subresource)] {
        if !part.is_empty() {
            words.push(sign);
            words.push_str(part);
        }
    }
    words
}

fn about(verb: &str, resource: &str, namespace: &str, name: &str) -> String {
    let mut words = format!("{verb} {resource}");
    for (before, part) in [(" ", name), (" in namespace ", namespace)] {
        if !part.is_empty() {
            words.push_str(before);
            words.push_str(part);
        }
    }
    words
}

// === impl Replayed ===

impl Replayed {
    pub(super) fn add(&mut self, comparison: ReviewComparison) {
        match comparison {
            ReviewComparison::Same => self.decided += 1,
            ReviewComparison::Flip(group, example) => {
                self.decided += 1;
                let (count, first) = self.flips.entry(group).or_default();
                *count += 1;
                first.get_or_insert(example);
            }
            ReviewComparison::Unknown(why) => {
                self.unknown += 1;
                if self.unknown_because.len() < REASONS || self.unknown_because.contains_key(&why) {
                    *self.unknown_because.entry(why).or_default() += 1;
                }
            }
        }
    }

    pub(super) fn note_cut(&mut self, file: &RecordingFile) {
        if file.is_cut {
            self.cut.push(file.path.display().to_string());
        }
    }
}
