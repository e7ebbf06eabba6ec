//! What two sets of policies decide otherwise, for people and for programs.

use serde::Serialize;
use serde_json::Value;

use super::Lines;
use super::authorization::cause_in_words;
use crate::authorization::SubjectAccessReviewVersion;
use crate::authorization::proof::{Answer, Change, Outcomes, Patterns, Region, Side, TextSet};
use crate::engine::{Attributes, Cause, Decision, Requirement, Target};

/// What the name of each service account begins with.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The answer of `portcullis diff`.
#[derive(Debug, Serialize)]
pub struct DifferenceReport {
    /// No request is decided otherwise.
    pub same: bool,
    /// Requests that are allowed, and were not.
    pub gains: Vec<ReportedChange>,
    /// Requests that were allowed, and are not.
    pub losses: Vec<ReportedChange>,
    /// Requests that are denied where there was no opinion, and the reverse.
    pub otherwise: Vec<ReportedChange>,
}

/// Requests that are decided otherwise in the same way.
#[derive(Debug, Serialize)]
pub struct ReportedChange {
    #[serde(rename = "box")]
    requests: RequestBox,
    /// Expressions that all hold for them.
    #[serde(rename = "where")]
    conditions: Vec<String>,
    /// No request was found for which the expressions come to this.
    undecided: bool,
    before: ReportedAnswer,
    after: ReportedAnswer,
    witness: Option<Value>,
    #[serde(skip)]
    sentence: String,
    #[serde(skip)]
    example: Option<String>,
}

#[derive(Debug, Serialize)]
struct ReportedAnswer {
    decision: Decision,
    cause: Option<ReportedCause>,
    #[serde(skip)]
    words: String,
}

#[derive(Debug, Serialize)]
struct ReportedCause {
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<usize>,
}

/// The sides of a region that do not hold everything.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestBox {
    #[serde(skip_serializing_if = "Option::is_none")]
    users: Option<Texts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Groups>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verbs: Option<Texts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_groups: Option<Texts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<Texts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subresources: Option<Texts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespaces: Option<Texts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<Texts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paths: Option<Texts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    selectors: Option<SelectorTexts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Texts {
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

// === impl DifferenceReport ===

impl DifferenceReport {
    /// The report of all `changes`.
    #[must_use]
    pub fn new(changes: &[Change]) -> Self {
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
        }
    }

    /// Whether anybody gains anything, or is no more denied what an authorizer that is asked next may
    /// allow.
    #[must_use]
    pub fn may_grant(&self) -> bool {
        let is_lifted = |change: &ReportedChange| change.before.decision == Decision::Deny;
        !self.gains.is_empty() || self.otherwise.iter().any(is_lifted)
    }

    /// The same in sentences.
    #[must_use]
    pub fn in_words(&self) -> Lines {
        let mut lines = Lines::new();
        if self.same {
            lines.line("no request is decided otherwise");
        }
        for (title, changes) in self.sections() {
            lines.line(format_args!("{title}:"));
            for change in changes {
                lines.line(format_args!("  {}", change.sentence));
                lines.line(format_args!("    {}", change.decisions()));
                if let Some(example) = &change.example {
                    lines.line(format_args!("    such as: {example}"));
                }
            }
        }
        lines
    }

    /// The same as Markdown, for a comment on a change that is reviewed.
    #[must_use]
    pub fn as_markdown(&self) -> Lines {
        let mut lines = Lines::new();
        if self.same {
            lines.line("No request is decided otherwise.");
        }
        for (title, changes) in self.sections() {
            lines.line(format_args!("### {title}"));
            lines.line("");
            lines.line("| Requests | Decision | Such as |");
            lines.line("|---|---|---|");
            for change in changes {
                let example = change.example.as_deref().unwrap_or_default();
                let cells = [change.sentence.as_str(), &change.decisions(), example].map(cell);
                lines.line(format_args!("| {} |", cells.join(" | ")));
            }
            lines.line("");
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
        ];
        sections.into_iter().filter(|(_, changes)| !changes.is_empty())
    }
}

/// What would end a cell of a table, or begin an element, does not.
fn cell(text: &str) -> String {
    let escaped = |c: char| match c {
        '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '&' | '@' | '#' => vec!['\\', c],
        c => vec![c],
    };
    text.chars().flat_map(escaped).collect()
}

// === impl ReportedChange ===

impl ReportedChange {
    fn new(change: &Change) -> Self {
        let requests = RequestBox::new(&change.region);
        let conditions: Vec<String> = change.region.conditions().filter_map(condition).collect();
        let witness = change.witness.as_ref().and_then(|(attributes, _)| {
            serde_json::from_slice(&SubjectAccessReviewVersion::V1.encode(attributes)).ok()
        });
        let mut sentence = sentence(&change.region);
        if !conditions.is_empty() {
            sentence += &format!(" where {}", conditions.join(" and "));
        }
        if change.witness.is_none() {
            sentence += " (not decided: no request was found for which the conditions come to this)";
        }
        Self {
            sentence,
            example: change
                .witness
                .as_ref()
                .map(|(attributes, _)| in_words(attributes)),
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
}

fn condition((expression, outcomes): (&str, Outcomes)) -> Option<String> {
    match (outcomes.holds, outcomes.fails) {
        (true, false) => Some(expression.to_owned()),
        (false, true) => Some(format!("!({expression})")),
        (false, false) => Some(format!("({expression}) has no result")),
        (true, true) => None,
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
                Some(cause) => format!("{decision} by {}", cause_in_words(cause)),
                None => decision.to_owned(),
            },
        }
    }
}

impl ReportedCause {
    fn new(cause: &Cause<'_>) -> Self {
        Self {
            kind: cause.kind.as_str(),
            namespace: cause.namespace.to_string(),
            name: cause.name.to_string(),
            rule: cause.rule,
        }
    }
}

// === impl RequestBox ===

impl RequestBox {
    fn new(region: &Region) -> Self {
        let side = |side| Texts::new(region.side(side));
        let selectors = region.selectors();
        let selectors = SelectorTexts {
            within: selectors
                .within
                .iter()
                .map(|one| requirements(&one.field, &one.label))
                .collect(),
            not_within: selectors
                .not_within
                .iter()
                .map(|one| requirements(&one.field, &one.label))
                .collect(),
        };
        let groups = Groups::new(region);
        let period = region.period();
        Self {
            users: Texts::new(&users(region)),
            groups: groups.filter(|_| !region.is_service_account),
            verbs: side(Side::Verb),
            api_groups: side(Side::ApiGroup),
            resources: side(Side::Resource),
            subresources: side(Side::Subresource),
            namespaces: side(Side::Namespace),
            names: side(Side::Name),
            paths: region
                .is_path
                .then(|| side(Side::Path).unwrap_or_else(Texts::all_paths)),
            selectors: (!selectors.within.is_empty() || !selectors.not_within.is_empty())
                .then_some(selectors),
            from: period.not_before.map(|time| time.to_string()),
            until: period.not_after.map(|time| time.to_string()),
        }
    }
}

/// Who asks. That no service account does goes without saying where a group says so.
fn users(region: &Region) -> TextSet {
    let mut users = region.side(Side::User).clone();
    let is_of_no_account = |group: &&std::sync::Arc<str>| !group.starts_with("system:");
    if !region.is_service_account
        && region
            .groups()
            .all
            .exact
            .iter()
            .any(|group| is_of_no_account(&group))
    {
        users = users.with_prefix(SERVICE_ACCOUNT);
    }
    users
}

impl Texts {
    /// `None` where it holds everything.
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

fn requirements(field: &[Requirement<'_>], label: &[Requirement<'_>]) -> String {
    let fields = field.iter().map(|one| format!("field {one}"));
    let labels = label.iter().map(|one| format!("label {one}"));
    fields.chain(labels).collect::<Vec<_>>().join(", ")
}

// Sentences.

/// `Group dev: get, list of secrets in the namespace prod`.
fn sentence(region: &Region) -> String {
    let verbs = words(region.side(Side::Verb), "any verb");
    let mut sentence = format!("{}: {verbs} of ", callers(region));
    if region.is_path {
        sentence += &format!("the paths {}", words(region.side(Side::Path), "of any name"));
    } else {
        sentence += &resources(region);
        sentence += &place(region.side(Side::Namespace));
        let names = region.side(Side::Name);
        if !names.is_all() {
            sentence += &format!(", named {}", words(names, "anything"));
        }
    }
    let selectors = RequestBox::new(region).selectors.unwrap_or_default();
    for (how, selectors) in [("", selectors.within), ("not ", selectors.not_within)] {
        for selector in selectors {
            sentence += &format!(", {how}by the selector {selector}");
        }
    }
    let period = region.period();
    for (word, time) in [("from", period.not_before), ("until", period.not_after)] {
        if let Some(time) = time {
            sentence += &format!(", {word} {time}");
        }
    }
    sentence
}

fn callers(region: &Region) -> String {
    let users = users(region);
    let users = match (users.is_all(), region.is_service_account) {
        (true, _) => None,
        (false, true) => Some(words(&users, "any").replace(SERVICE_ACCOUNT, "service account ")),
        (false, false) => Some(format!("User {}", words(&users, "any"))),
    };
    let groups = region.groups();
    let list = |patterns: &Patterns| {
        let exact = patterns.exact.iter().map(|group| format!("Group {group}"));
        let prefixes = patterns.prefixes.iter().map(|prefix| format!("Group {prefix}*"));
        exact.chain(prefixes).collect::<Vec<_>>()
    };
    let mut all = list(&groups.all);
    all.extend(users);
    let mut callers = if all.is_empty() {
        "everybody".to_owned()
    } else {
        all.join(" and ")
    };
    let none = list(&groups.none);
    if !none.is_empty() {
        callers += &format!(" without {}", none.join(", "));
    }
    callers
}

fn resources(region: &Region) -> String {
    let mut sentence = words(region.side(Side::Resource), "any resource");
    let (subresources, groups) = (region.side(Side::Subresource), region.side(Side::ApiGroup));
    if subresources.is_all() {
        sentence += " and their subresources";
    } else if subresources.within().exact.iter().any(|text| !text.is_empty()) || !subresources.contains("") {
        sentence += &format!(", subresource {}", words(subresources, "any"));
    }
    if !groups.contains("") || groups.is_all() {
        sentence += &format!(" of the API group {}", words(groups, "of any name"));
    }
    sentence
}

fn place(namespaces: &TextSet) -> String {
    let is_none = !namespaces.is_all()
        && namespaces.within().exact.contains("")
        && namespaces.within().prefixes.is_empty();
    match namespaces.is_all() {
        true => " everywhere".to_owned(),
        false if is_none && namespaces.within().exact.len() == 1 => " in no namespace".to_owned(),
        false => format!(" in the namespace {}", words(namespaces, "of any name")),
    }
}

/// `a, b*, but not c`.
fn words(set: &TextSet, all: &str) -> String {
    let list = |patterns: &Patterns| {
        let exact = patterns.exact.iter().map(|text| {
            if text.is_empty() {
                "\"\"".to_owned()
            } else {
                text.to_string()
            }
        });
        exact
            .chain(patterns.prefixes.iter().map(|prefix| format!("{prefix}*")))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut words = match set.within().prefixes.contains("") {
        true => all.to_owned(),
        false => list(set.within()),
    };
    if !set.except().is_empty() {
        words += &format!(" but not {}", list(set.except()));
    }
    words
}

/// One request: `somebody (dev): get secrets in prod`.
fn in_words(attributes: &Attributes<'_>) -> String {
    let user = &attributes.user;
    let groups = match user.groups.is_empty() {
        true => String::new(),
        false => format!(" ({})", user.groups.join(", ")),
    };
    let what = match &attributes.target {
        Target::NonResource { path, verb } => format!("{verb} {path}"),
        Target::Resource(request) => {
            let joined = |sign: &str, text: &str| {
                if text.is_empty() {
                    String::new()
                } else {
                    format!("{sign}{text}")
                }
            };
            format!(
                "{} {}{}{}{}{}",
                request.verb,
                request.resource,
                joined(".", &request.group),
                joined("/", &request.subresource),
                joined(" ", &request.name),
                joined(" in ", &request.namespace)
            )
        }
    };
    format!("{}{groups}: {what}", user.name)
}
