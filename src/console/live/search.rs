//! The syntax of the search box: `user:car verb:list ns:prod denied`.
//!
//! A decision must match all words. `FIELD:TEXT` matches a field that begins with the text, and
//! `FIELD:"TEXT"` one that equals it. A word without a field is one of [`WORDS`], or matches a
//! user, verb, resource, namespace, name or policy that begins with it.

use std::collections::BTreeMap;

use crate::console::recent_decisions::DecisionSlice;
use portcullis_policy::explain::logged::LoggedDecision;
use portcullis_policy::model::Decision;

/// The maximum number of words in a search, and of completions.
const MAX_TERMS: usize = 32;
const MAX_COMPLETIONS: usize = 10;

/// The maximum number of decisions that are read to complete a word.
const MAX_READ: usize = 2_000;

/// The names of fields in searches.
const FIELDS: [(&str, SearchField); 11] = [
    ("user", SearchField::User),
    ("group", SearchField::Group),
    ("verb", SearchField::Verb),
    ("resource", SearchField::Resource),
    ("namespace", SearchField::Namespace),
    ("ns", SearchField::Namespace),
    ("name", SearchField::Name),
    ("policy", SearchField::Policy),
    ("decision", SearchField::Decision),
    ("endpoint", SearchField::Endpoint),
    ("cluster", SearchField::Cluster),
];

/// Words that stand for a decision, or for policies and webhooks in shadow.
const WORDS: [(&str, Word); 7] = [
    ("denied", Word::Decided(Decision::Deny)),
    ("deny", Word::Decided(Decision::Deny)),
    ("allowed", Word::Decided(Decision::Allow)),
    ("allow", Word::Decided(Decision::Allow)),
    ("no-opinion", Word::Decided(Decision::NoOpinion)),
    ("noOpinion", Word::Decided(Decision::NoOpinion)),
    ("shadow", Word::InShadow),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchField {
    User,
    Group,
    Verb,
    Resource,
    Namespace,
    Name,
    Policy,
    Decision,
    Endpoint,
    Cluster,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Decided(Decision),
    InShadow,
}

/// A parsed search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Search(Vec<SearchTerm>);

/// A word of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SearchTerm {
    /// The word as typed.
    text: String,
    condition: TermMatch,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TermMatch {
    Word(Word),
    Field {
        field: SearchField,
        text: String,
        is_whole: bool,
    },
    Anything(String),
}

// === impl Search ===

impl Search {
    /// Parses any text: a word without a known field is searched in several fields. Words after the
    /// first [`MAX_TERMS`] are ignored.
    pub(crate) fn parse(text: &str) -> Self {
        Self(words(text).take(MAX_TERMS).map(SearchTerm::parse).collect())
    }

    /// Whether a decision matches all terms.
    pub(crate) fn is_met(&self, decision: &LoggedDecision<'_>) -> bool {
        self.0.iter().all(|term| term.condition.is_met(decision))
    }

    /// The only decision that the search matches, if there is one.
    pub(crate) fn decision(&self) -> Option<Decision> {
        self.0.iter().find_map(|term| match term.condition {
            TermMatch::Word(Word::Decided(decision)) => Some(decision),
            _ => None,
        })
    }

    /// The terms as typed, each with the search without it.
    pub(crate) fn terms(&self) -> impl Iterator<Item = (&str, String)> {
        self.0.iter().enumerate().map(|(place, term)| {
            let others = self.0.iter().enumerate().filter(move |(at, _)| *at != place);
            let rest: Vec<&str> = others.map(|(_, other)| other.text.as_str()).collect();
            (term.text.as_str(), rest.join(" "))
        })
    }
}

/// Splits `text` at spaces that are not quoted.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |character: char| {
        is_quoted ^= character == '"';
        character.is_whitespace() && !is_quoted
    })
    .filter(|word| !word.is_empty())
}

/// The field of `word`, and the text after the colon.
fn field(word: &str) -> Option<(SearchField, &str)> {
    let (name, text) = word.split_once(':')?;
    let known = FIELDS
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some((known.1, text))
}

// === impl SearchTerm ===

impl SearchTerm {
    fn parse(word: &str) -> Self {
        let known = WORDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word));
        let condition = match (known, field(word)) {
            (Some((_, word)), _) => TermMatch::Word(*word),
            (None, Some((field, text))) => TermMatch::Field {
                field,
                text: text.replace('"', ""),
                is_whole: text.len() > 1 && text.starts_with('"') && text.ends_with('"'),
            },
            (None, None) => TermMatch::Anything(word.replace('"', "")),
        };
        Self {
            text: word.to_owned(),
            condition,
        }
    }
}

// === impl TermMatch ===

impl TermMatch {
    fn is_met(&self, decision: &LoggedDecision<'_>) -> bool {
        match self {
            Self::Word(Word::Decided(wanted)) => decision.decision == wanted.as_str(),
            Self::Word(Word::InShadow) => !decision.shadow.is_empty(),
            Self::Field {
                field,
                text,
                is_whole: true,
            } => field.values(decision).iter().any(|value| value == text),
            Self::Field { field, text, .. } => field.has_prefix(decision, text),
            Self::Anything(text) => SearchField::ANYTHING
                .iter()
                .any(|field| field.has_prefix(decision, text)),
        }
    }
}

// === impl SearchField ===

impl SearchField {
    /// The fields in which a word without a field is searched.
    const ANYTHING: [Self; 6] = [
        Self::User,
        Self::Verb,
        Self::Resource,
        Self::Namespace,
        Self::Name,
        Self::Policy,
    ];

    /// The values of the field in a decision. Service accounts also match by their name alone.
    fn values(self, decision: &LoggedDecision<'_>) -> Vec<String> {
        let attributes = &decision.attributes;
        let one = |text: &str| vec![text.to_owned()];
        match self {
            Self::User => {
                let account = decision.user.strip_prefix("system:serviceaccount:");
                let account = account.and_then(|account| account.split_once(':'));
                let account = account.map(|(_, name)| name.to_owned());
                [decision.user.to_string()].into_iter().chain(account).collect()
            }
            Self::Group => decision.groups.iter().map(ToString::to_string).collect(),
            Self::Verb => one(&decision.verb().to_ascii_lowercase()),
            Self::Resource if attributes.path.is_empty() => vec![decision.resource()],
            Self::Resource => one(&attributes.path),
            Self::Namespace => one(&attributes.namespace),
            Self::Name => one(&attributes.name),
            Self::Policy => {
                let objects = decision.cause.iter().chain(&decision.shadow);
                objects.map(|object| object.name.to_string()).collect()
            }
            Self::Decision => one(&decision.decision),
            Self::Endpoint => one(&decision.endpoint),
            Self::Cluster => one(&decision.cluster),
        }
    }

    fn has_prefix(self, decision: &LoggedDecision<'_>, text: &str) -> bool {
        let begins = |value: &String| {
            let start = value.get(..text.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(text))
        };
        self.values(decision).iter().any(begins)
    }
}

/// Completions of the last word of `text`, each as a whole search: names of fields, or values in
/// recent decisions, most frequent first.
pub(crate) fn completions(text: &str, slice: &DecisionSlice) -> Vec<String> {
    let last = match text.ends_with(char::is_whitespace) {
        true => "",
        false => words(text).last().unwrap_or_default(),
    };
    let before = text.strip_suffix(last).unwrap_or_default();
    let completed: Vec<String> = match field(last) {
        Some((field, typed)) => {
            let name = last.strip_suffix(typed).unwrap_or_default();
            let values = recent_values(field, &typed.replace('"', ""), slice);
            values
                .into_iter()
                .map(|value| format!("{name}{}", quoted(&value)))
                .collect()
        }
        None => known_words(last).collect(),
    };
    let whole = completed.into_iter().filter(|word| word != last);
    whole
        .take(MAX_COMPLETIONS)
        .map(|word| format!("{before}{word}"))
        .collect()
}

/// The words and fields that begin with `typed`. Of several names for a field, only one is
/// suggested.
fn known_words(typed: &str) -> impl Iterator<Item = String> {
    let fields = FIELDS.iter().filter(|(name, _)| *name != "ns");
    let fields = fields.map(|(name, _)| format!("{name}:"));
    let words = ["denied", "allowed", "no-opinion", "shadow"].map(str::to_owned);
    words
        .into_iter()
        .chain(fields)
        .filter(move |word| word.starts_with(typed))
}

/// The values of `field` in recent decisions that begin with `typed`, most frequent first.
fn recent_values(field: SearchField, typed: &str, slice: &DecisionSlice) -> Vec<String> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for kept in slice.iter().rev().take(MAX_READ) {
        let Some(decision) = LoggedDecision::read(kept.line) else {
            continue;
        };
        let values = field.values(&decision).into_iter();
        for value in values.filter(|value| !value.is_empty() && value.starts_with(typed)) {
            *counts.entry(value).or_default() += 1;
        }
    }
    let mut found: Vec<(String, u64)> = counts.into_iter().collect();
    found.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    found.into_iter().map(|(value, _)| value).collect()
}

/// The value as it is typed, in quotes if necessary.
fn quoted(value: &str) -> String {
    match value.contains(char::is_whitespace) {
        true => format!("\"{value}\""),
        false => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::recent_decisions::RecentDecisions;

    const LINE: &str = r#"{"cluster":"east","endpoint":"authorize","user":"carol","groups":["dev"],"attributes":{"verb":"list","namespace":"prod-1","group":"apps","resource":"deployments","subresource":"scale","name":"web"},"decision":"deny","cause":{"kind":"AuthorizationPolicy","name":"locked"},"shadow":[]}"#;
    const ACCOUNT: &str = r#"{"cluster":"east","endpoint":"validate","user":"system:serviceaccount:ci:deployer","groups":[],"attributes":{"operation":"CREATE","namespace":"a b","resource":"pods"},"decision":"allow","shadow":[{"kind":"AuthorizationPolicy","name":"trial"}]}"#;

    #[test]
    fn a_search_is_met_by_what_begins_with_each_of_its_words() {
        for (text, line, expected) in [
            ("", LINE, true),
            ("user:car verb:list ns:prod denied", LINE, true),
            ("user:CAR", LINE, true),
            ("user:\"car\"", LINE, false),
            ("user:\"carol\"", LINE, true),
            ("allowed", LINE, false),
            ("decision:deny group:dev endpoint:auth cluster:east", LINE, true),
            ("resource:deployments.apps/sc name:we policy:lock", LINE, true),
            ("car depl prod we lock li", LINE, true),
            ("arol", LINE, false),
            ("shadow", LINE, false),
            ("shadow policy:trial create", ACCOUNT, true),
            ("user:deployer", ACCOUNT, true),
            ("system:serviceaccount:ci", ACCOUNT, true),
            ("namespace:\"a b\"", ACCOUNT, true),
            ("namespace:\"a c\"", ACCOUNT, false),
        ] {
            let decision = LoggedDecision::read(line.as_bytes()).unwrap();
            assert_eq!(Search::parse(text).is_met(&decision), expected, "{text}");
        }
    }

    #[test]
    fn each_term_can_be_taken_away() {
        let search = Search::parse("  user:car  ns:\"a b\" denied ");
        let terms: Vec<_> = search.terms().collect();
        assert_eq!(
            terms,
            [
                ("user:car", "ns:\"a b\" denied".to_owned()),
                ("ns:\"a b\"", "user:car denied".to_owned()),
                ("denied", "user:car ns:\"a b\"".to_owned()),
            ]
        );
        assert_eq!(search.decision(), Some(Decision::Deny));
    }

    #[test]
    fn the_last_word_is_completed_by_what_was_seen() {
        let recent = RecentDecisions::new(100);
        for line in [LINE, ACCOUNT, LINE] {
            recent.push(Decision::Deny, "east", line.as_bytes());
        }
        let slice = recent.since(0);
        for (text, expected) in [
            ("us", &["user:"][..]),
            ("denied us", &["denied user:"]),
            (
                "user:",
                &[
                    "user:carol",
                    "user:deployer",
                    "user:system:serviceaccount:ci:deployer",
                ],
            ),
            ("denied user:c", &["denied user:carol"]),
            ("user:carol", &[]),
            ("ns:a", &["ns:\"a b\""]),
            ("de", &["denied", "decision:"]),
        ] {
            assert_eq!(completions(text, &slice), expected, "{text}");
        }
        assert_eq!(completions("", &slice).len(), MAX_COMPLETIONS);
        assert_eq!(completions("user:x ", &slice).len(), MAX_COMPLETIONS);
    }

    #[test]
    fn a_long_search_and_a_hostile_one_are_read() {
        let many = "a ".repeat(10_000);
        assert_eq!(Search::parse(&many).terms().count(), MAX_TERMS);
        let slice = RecentDecisions::new(1).since(0);
        for text in ["\"", "user:\"", ":", "user:é\u{202e}", "\u{2028}"] {
            let _ = Search::parse(text);
            let _ = completions(text, &slice);
        }
    }
}
