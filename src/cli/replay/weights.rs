//! How often that was asked whose decision changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;

use crate::cli::output::{self, CommandError};
use crate::config::Endpoint;
use crate::recording::RecordLine;
use crate::telemetry::decision_log::LoggedQuestion;
use crate::usage::{UsageWeight, UsageWeights, question_text};
use portcullis_cel::json::Document;
use portcullis_policy::api::{AdmissionReview, SubjectAccessReview};
use portcullis_policy::engine::admission::Phase;
use portcullis_policy::explain::recorded::{ChangeGroup, ReviewComparison};

/// Usage, and which questions of it change.
#[derive(Debug)]
pub(crate) struct ChangeWeights {
    usage: UsageWeights,
    by_group: BTreeMap<ChangeGroup, GroupQuestions>,
}

/// The different questions of one group of changes.
#[derive(Debug, Default)]
struct GroupQuestions {
    seen: BTreeSet<String>,
    weight: Option<UsageWeight>,
}

/// How often what changes was asked, as usage counts it.
#[derive(Debug, Serialize)]
pub(crate) struct AskedBefore {
    /// How often, whatever was answered.
    pub(crate) count: u64,
    /// How many different questions of the recording that is.
    questions: usize,
    #[serde(skip_serializing_if = "String::is_empty")]
    first: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    last: String,
}

// === impl ChangeWeights ===

impl ChangeWeights {
    /// Reads usage; `None` where no folder is named.
    pub(crate) fn read(folders: &[PathBuf]) -> Result<Option<Self>, CommandError> {
        if folders.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            usage: UsageWeights::read(folders)?,
            by_group: BTreeMap::new(),
        }))
    }

    /// Adds the review `recorded`, if its decision changes. Each question counts once.
    pub(crate) fn add<E>(&mut self, recorded: &RecordLine<'_>, compared: &ReviewComparison<E>) {
        let (ReviewComparison::Changed(group, _) | ReviewComparison::Lost(group, _, _)) = compared else {
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

    /// How often what `group` has was asked.
    pub(crate) fn of(&self, group: &ChangeGroup) -> AskedBefore {
        let questions = self.by_group.get(group);
        let weight = questions.and_then(|questions| questions.weight.clone());
        let weight = weight.unwrap_or_default();
        AskedBefore {
            count: weight.count,
            questions: questions.map_or(0, |questions| questions.seen.len()),
            first: weight.first,
            last: weight.last,
        }
    }
}

// === impl AskedBefore ===

impl AskedBefore {
    pub(crate) fn in_words(&self) -> String {
        let questions = output::count(self.questions as u64, "different question");
        match self.count {
            0 => format!("never asked in the files of usage ({questions})"),
            count => format!(
                "asked {} from {} to {} ({questions})",
                output::count(count, "time"),
                self.first,
                self.last
            ),
        }
    }
}

/// What the recorded review asks, as rows of usage have it.
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
