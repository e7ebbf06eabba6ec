//! Conditions of regions: expressions of CEL, and which text they compare with constants.

use std::sync::Arc;

use super::sets::{Patterns, TextSet};
use super::side::Field;
use portcullis_cel::predicate::{TextTest, literal_pattern};
use portcullis_cel::regex::{self, StoppedError};

/// An expression on which it depends whether a request is one of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegionCondition {
    /// As it would be written: equal texts are one condition.
    pub(crate) text: Arc<str>,
    /// The text of a request that it compares with constants, and how; of others, nothing is known.
    pub(crate) test: Option<(Field, Arc<TextTest>)>,
}

/// What the user name of a service account looks like.
const ACCOUNT_NAME: &str = r"\Asystem:serviceaccount:[^:]+:[^:]+\z";

// === impl RegionCondition ===

impl RegionCondition {
    /// One of which nothing is known.
    pub(crate) fn unknown(text: &str) -> Self {
        Self {
            text: text.into(),
            test: None,
        }
    }

    /// About how many bytes it takes: its text, and the constants in it once more.
    pub(crate) fn bytes(&self) -> usize {
        let copies = if self.test.is_some() { 2 } else { 1 };
        self.text.len() * copies
    }

    /// Whether it compares this field.
    pub(crate) fn is_of(&self, field: Field) -> bool {
        matches!(self.test, Some((of, _)) if of == field)
    }
}

/// The shortest of `texts` that passes each of `tests`, or does not pass where that is to be so; as the
/// name of a service account, if it is to be one. `None` where there is none.
///
/// # Errors
/// That takes too long to tell.
pub(crate) fn common_text<'t>(
    texts: &TextSet,
    tests: impl Iterator<Item = (&'t TextTest, bool)>,
    is_account: bool,
) -> Result<Option<String>, StoppedError> {
    let mut patterns: Vec<(String, bool)> = tests.map(|(test, holds)| (test.pattern(), holds)).collect();
    if !texts.within().prefixes.contains("") {
        patterns.push((pattern(texts.within()), true));
    }
    if !texts.except().is_empty() {
        patterns.push((pattern(texts.except()), false));
    }
    if is_account {
        patterns.push((ACCOUNT_NAME.to_owned(), true));
    }
    let patterns: Vec<(&str, bool)> = patterns
        .iter()
        .map(|(text, holds)| (text.as_str(), *holds))
        .collect();
    regex::common_text(&patterns)
}

/// What matches in these texts alone, of which there is one.
fn pattern(patterns: &Patterns) -> String {
    let exact = patterns
        .exact
        .iter()
        .map(|text| format!(r"{}\z", literal_pattern(text)));
    let prefixes = patterns.prefixes.iter().map(|prefix| literal_pattern(prefix));
    let all: Vec<String> = exact.chain(prefixes).collect();
    format!(r"\A(?:{})", all.join("|"))
}
