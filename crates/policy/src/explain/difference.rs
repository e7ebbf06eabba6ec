//! The differences between the decisions of two policy sets, as text, Markdown and JSON.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;

use super::Lines;
use super::invariants::{ChangedInvariant, ReportedCause, subject_access_review};
use crate::authorization::proof::{Answer, DecisionChange, Region, RegionSummary, Side, TextSet};
use crate::model::{Deadline, Decision, LabelSelector};

/// The report of `portcullis diff`.
#[derive(Debug, Serialize)]
pub struct DifferenceReport {
    /// Whether every request is decided as before.
    pub same: bool,
    /// Requests that are newly allowed.
    pub gains: Vec<ReportedChange>,
    /// Requests that are no longer allowed.
    pub losses: Vec<ReportedChange>,
    /// Requests that are denied where there was no opinion, and the reverse.
    pub otherwise: Vec<ReportedChange>,
    /// Requests that are decided as before, but by another object; only on request.
    pub reasons: Vec<ReportedChange>,
    /// The status of each AuthorizationInvariant before and after.
    pub invariants: Vec<ChangedInvariant>,
}

/// Requests whose decision changes in the same way.
#[derive(Debug, Serialize)]
pub struct ReportedChange {
    #[serde(rename = "box")]
    requests: RequestBox,
    /// Expressions that are all true for the requests.
    #[serde(rename = "where")]
    conditions: Vec<String>,
    /// Whether no request was found for which the expressions have these results.
    undecided: bool,
    before: ReportedAnswer,
    after: ReportedAnswer,
    witness: Option<Value>,
    #[serde(skip)]
    region: Region,
    #[serde(skip)]
    sentence: String,
    #[serde(skip)]
    example: Option<String>,
}

/// The most parts with the same decisions and causes that are listed in text. Conditions and
/// excluded groups of other policies can split the requests many times.
const MAX_LISTED_PARTS: usize = 8;

/// One change, or several that differ only in their requests, as text.
struct ChangeInWords<'c> {
    sentence: String,
    decisions: String,
    example: Option<&'c str>,
    /// The number of other parts with the same decisions and causes that are not listed.
    more: usize,
}

#[derive(Debug, Serialize)]
struct ReportedAnswer {
    decision: Decision,
    cause: Option<ReportedCause>,
    #[serde(skip)]
    words: String,
}

/// The sides of a region that are restricted.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestBox {
    #[serde(skip_serializing_if = "Option::is_none")]
    users: Option<TextSetReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Groups>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verbs: Option<TextSetReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_groups: Option<TextSetReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<TextSetReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subresources: Option<TextSetReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespaces: Option<TextSetReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<TextSetReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paths: Option<TextSetReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    selectors: Option<SelectorTexts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace_labels: Option<LabelTexts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct TextSetReport {
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    within: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    prefixes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    except: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    except_prefixes: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Groups {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    all: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    all_prefixes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    none: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    none_prefixes: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct SelectorTexts {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    within: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_within: Vec<String>,
}

/// The requirements on the labels of the namespace.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct LabelTexts {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    within: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_within: Vec<String>,
    /// Whether the gateway must know the labels, or must not know them.
    #[serde(skip_serializing_if = "Option::is_none")]
    known: Option<bool>,
}

// === impl DifferenceReport ===

impl DifferenceReport {
    /// Creates the report of all `changes`, changed `reasons`, and `invariants`.
    #[must_use]
    pub fn new(
        changes: &[DecisionChange],
        reasons: &[DecisionChange],
        invariants: Vec<ChangedInvariant>,
    ) -> Self {
        let of = |is_one: fn(Decision, Decision) -> bool| -> Vec<ReportedChange> {
            let changes = changes.iter();
            changes
                .filter(|change| is_one(change.before.decision, change.after.decision))
                .map(ReportedChange::new)
                .collect()
        };
        Self {
            same: changes.is_empty(),
            gains: of(|_, after| after == Decision::Allow),
            losses: of(|before, _| before == Decision::Allow),
            otherwise: of(|before, after| before != Decision::Allow && after != Decision::Allow),
            reasons: reasons.iter().map(ReportedChange::new).collect(),
            invariants,
        }
    }

    /// Whether a request is newly allowed, or no longer denied, so that the next authorizer may
    /// allow it.
    #[must_use]
    pub fn may_grant(&self) -> bool {
        let is_lifted = |change: &ReportedChange| change.before.decision == Decision::Deny;
        !self.gains.is_empty() || self.otherwise.iter().any(is_lifted)
    }

    /// The report as text. Once the deadline has passed, changes are no longer summarized.
    #[must_use]
    pub fn in_words(&self, deadline: Deadline<'_>) -> Lines {
        let mut lines = Lines::new();
        if self.same {
            lines.line("no request is decided differently");
        }
        for (title, changes) in self.sections() {
            lines.line(format_args!("{title}:"));
            for change in in_words(changes, deadline) {
                lines.line(format_args!("  {}", change.sentence));
                lines.line(format_args!("    {}", change.decisions));
                if let Some(example) = &change.example {
                    lines.line(format_args!("    such as: {example}"));
                }
                if let Some(more) = change.more_in_words() {
                    lines.line(format_args!("  {more}"));
                }
            }
        }
        if self.invariants.iter().any(ChangedInvariant::is_news) {
            lines.line("Invariants:");
            self.describe_invariants(&mut lines);
        }
        lines
    }

    fn describe_invariants(&self, lines: &mut Lines) {
        let news = self.invariants.iter().filter(|invariant| invariant.is_news());
        news.for_each(|invariant| invariant.describe(lines));
    }

    /// The report as Markdown, for a comment in a code review.
    #[must_use]
    pub fn as_markdown(&self, deadline: Deadline<'_>) -> Lines {
        let mut lines = Lines::new();
        if self.same {
            lines.line("No request is decided differently.");
        }
        for (title, changes) in self.sections() {
            lines.line(format_args!("### {title}"));
            lines.line("");
            lines.line("| Requests | Decision | Such as |");
            lines.line("|---|---|---|");
            for change in in_words(changes, deadline) {
                let example = change.example.unwrap_or_default();
                let cells = [change.sentence.as_str(), &change.decisions, example].map(markdown_cell);
                lines.line(format_args!("| {} |", cells.join(" | ")));
                if let Some(more) = change.more_in_words() {
                    lines.line(format_args!(
                        "| {more} | {} | |",
                        markdown_cell(&change.decisions)
                    ));
                }
            }
            lines.line("");
        }
        if self.invariants.iter().any(ChangedInvariant::is_news) {
            lines.line("### Invariants");
            lines.line("");
            for invariant in self.invariants.iter().filter(|invariant| invariant.is_news()) {
                lines.line(format_args!("- {}", markdown_cell(&invariant.message())));
            }
        }
        lines
    }

    fn sections(&self) -> impl Iterator<Item = (&'static str, &[ReportedChange])> {
        let sections = [
            ("Gains", self.gains.as_slice()),
            ("Losses", &self.losses),
            (
                "Denied where there was no opinion, or the reverse",
                &self.otherwise,
            ),
            ("Same decision, made by another object", &self.reasons),
        ];
        sections.into_iter().filter(|(_, changes)| !changes.is_empty())
    }
}

/// Groups changes with the same decisions and causes, and summarizes them if one sentence suffices.
fn in_words<'c>(changes: &'c [ReportedChange], deadline: Deadline<'_>) -> Vec<ChangeInWords<'c>> {
    let mut groups: Vec<Vec<&ReportedChange>> = Vec::new();
    let mut known: HashMap<(String, bool, bool), usize> = HashMap::new();
    for change in changes {
        let key = (
            change.decisions(),
            change.region.is_path,
            change.region.is_service_account,
        );
        let place = *known.entry(key).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) if !change.undecided => group.push(change),
            _ => groups.push(vec![change]),
        }
    }
    groups
        .into_iter()
        .flat_map(|group| ChangeInWords::of(&group, deadline))
        .collect()
}

// === impl ChangeInWords ===

impl<'c> ChangeInWords<'c> {
    fn of(group: &[&'c ReportedChange], deadline: Deadline<'_>) -> Vec<Self> {
        let regions: Vec<&Region> = group.iter().map(|change| &change.region).collect();
        let listed: usize = group.iter().map(|change| change.sentence.len()).sum();
        let summary = RegionSummary::new(&regions, deadline).map(|summary| summary.to_string());
        // A summary that is nearly as long as the list is not worth it.
        let summary = summary.filter(|summary| group.len() > 1 && summary.len() * 3 < listed * 2);
        let one = |change: &&'c ReportedChange, sentence: String| Self {
            sentence,
            decisions: change.decisions(),
            example: change.example.as_deref(),
            more: 0,
        };
        if let (Some(summary), Some(first)) = (summary, group.first()) {
            return vec![one(first, summary)];
        }
        let mut listed: Vec<_> = group.iter().collect();
        if group.len() > MAX_LISTED_PARTS {
            // The shortest sentences are the most informative.
            listed.sort_by_key(|change| change.sentence.len());
            listed.truncate(MAX_LISTED_PARTS);
        }
        let more = group.len() - listed.len();
        let mut listed: Vec<Self> = listed
            .into_iter()
            .map(|change| one(change, change.sentence.clone()))
            .collect();
        if let Some(last) = listed.last_mut() {
            last.more = more;
        }
        listed
    }

    fn more_in_words(&self) -> Option<String> {
        let more = self.more;
        (more > 0).then(|| {
            format!(
                "and {more} more parts of these requests, with the same decision: `-o json` \
                lists all"
            )
        })
    }
}

/// Escapes text for a cell of a Markdown table, so that it cannot end the cell, begin an HTML
/// element or become a link. Code hosts link `@name` and `#1` even after a backslash, but not with
/// a zero-width space in between.
fn markdown_cell(text: &str) -> String {
    let mut cell = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '&') {
            cell.push('\\');
        }
        cell.push(c);
        if matches!(c, '@' | '#') {
            cell.push_str("&#8203;");
        }
    }
    cell.replace("://", r"\://").replace("www.", r"www\.")
}

// === impl ReportedChange ===

impl ReportedChange {
    fn new(change: &DecisionChange) -> Self {
        let requests = RequestBox::new(&change.region);
        let conditions = change.region.conditions_in_words();
        let witness = change.witness.as_ref();
        let witness = witness.and_then(|witness| subject_access_review(&witness.attributes));
        let mut sentence = change.region.to_string();
        if change.witness.is_none() {
            sentence += " (not decided: no request was found for which the conditions have this result)";
        }
        Self {
            region: change.region.clone(),
            sentence,
            example: change.witness.as_ref().map(ToString::to_string),
            undecided: change.witness.is_none(),
            before: ReportedAnswer::new(&change.before),
            after: ReportedAnswer::new(&change.after),
            requests,
            conditions,
            witness,
        }
    }

    fn decisions(&self) -> String {
        format!("{} -> {}", self.before.words, self.after.words)
    }

    /// The change in one sentence.
    #[must_use]
    pub fn message(&self) -> String {
        let example = self
            .example
            .as_ref()
            .map(|example| format!(", such as: {example}"));
        format!(
            "{}: {}{}",
            self.sentence,
            self.decisions(),
            example.unwrap_or_default()
        )
    }

    /// Kind, namespace and name of the object that decides after the change, then of the one
    /// before.
    #[must_use]
    pub fn objects(&self) -> Vec<[&str; 3]> {
        let answers = [&self.after, &self.before].into_iter();
        answers
            .filter_map(|answer| answer.cause.as_ref().map(ReportedCause::object))
            .collect()
    }
}

impl ReportedAnswer {
    fn new(answer: &Answer) -> Self {
        let decision = match answer.decision {
            Decision::NoOpinion => "no opinion",
            Decision::Allow => "allow",
            Decision::Deny => "deny",
        };
        Self {
            decision: answer.decision,
            cause: answer.cause.as_ref().map(ReportedCause::new),
            words: match &answer.cause {
                Some(cause) => format!("{decision} by {}", cause),
                None => decision.to_owned(),
            },
        }
    }
}

// === impl RequestBox ===

impl RequestBox {
    fn new(region: &Region) -> Self {
        let side = |side| TextSetReport::new(region.side(side));
        let [within, not_within] = region.selectors().in_words();
        let selectors = SelectorTexts { within, not_within };
        let groups = Groups::new(region);
        let period = region.period();
        Self {
            users: TextSetReport::new(&region.users_without_accounts()),
            groups: groups.filter(|_| !region.is_service_account),
            verbs: side(Side::Verb),
            api_groups: side(Side::ApiGroup),
            resources: side(Side::Resource),
            subresources: side(Side::Subresource),
            namespaces: side(Side::Namespace),
            names: side(Side::Name),
            paths: region
                .is_path
                .then(|| side(Side::Path).unwrap_or_else(TextSetReport::all_paths)),
            selectors: (!selectors.within.is_empty() || !selectors.not_within.is_empty())
                .then_some(selectors),
            namespace_labels: LabelTexts::new(region),
            from: period.not_before.map(|time| time.to_string()),
            until: period.not_after.map(|time| time.to_string()),
        }
    }
}

impl LabelTexts {
    /// `None` if there are no requirements.
    fn new(region: &Region) -> Option<Self> {
        let asked = region.namespace_labels();
        let texts = |selectors: &[&LabelSelector]| selectors.iter().map(ToString::to_string).collect();
        (!asked.is_empty()).then(|| Self {
            within: texts(&asked.within),
            not_within: texts(&asked.not_within),
            known: (asked.may_be_known != asked.may_be_unknown).then_some(asked.may_be_known),
        })
    }
}

impl TextSetReport {
    /// `None` if the set is unrestricted.
    fn new(set: &TextSet) -> Option<Self> {
        let list = |patterns: &std::collections::BTreeSet<std::sync::Arc<str>>| -> Vec<String> {
            patterns.iter().map(ToString::to_string).collect()
        };
        let some = |list: Vec<String>| (!list.is_empty()).then_some(list);
        let (within, except) = (set.within(), set.except());
        let is_everything = within.prefixes.contains("");
        (!set.is_all()).then(|| Self {
            within: some(list(&within.exact)),
            prefixes: if is_everything {
                Vec::new()
            } else {
                list(&within.prefixes)
            },
            except: some(list(&except.exact)),
            except_prefixes: list(&except.prefixes),
        })
    }

    fn all_paths() -> Self {
        Self {
            except: Some(Vec::new()),
            ..Self::default()
        }
    }
}

impl Groups {
    fn new(region: &Region) -> Option<Self> {
        let groups = region.groups();
        let list = |set: &std::collections::BTreeSet<std::sync::Arc<str>>| -> Vec<String> {
            set.iter().map(ToString::to_string).collect()
        };
        (!groups.all.is_empty() || !groups.none.is_empty()).then(|| Self {
            all: list(&groups.all.exact),
            all_prefixes: list(&groups.all.prefixes),
            none: list(&groups.none.exact),
            none_prefixes: list(&groups.none.prefixes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cell_names_is_no_link_mention_or_element() {
        for (text, written) in [
            ("User a@b.example", "User a@&#8203;b.example"),
            (r"\@team #1", r"\\@&#8203;team #&#8203;1"),
            ("[a](https://b)", r"\[a\](https\://b)"),
            ("www.b.example <i>|`", r"www\.b.example \<i\>\|\`"),
            ("system:masters", "system:masters"),
        ] {
            assert_eq!(markdown_cell(text), written);
        }
    }
}
