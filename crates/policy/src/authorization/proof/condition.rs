//! What regions tell apart: the fields of requests, and conditions, which are expressions of CEL; which text
//! these compare with constants.

use std::sync::Arc;

use super::sets::{Patterns, TextSet};
use portcullis_cel::predicate::{TextTest, literal_pattern};
use portcullis_cel::regex::{self, StoppedError};

/// A side of a region that is a set of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The API group.
    ApiGroup,
    /// The resource, without subresource.
    Resource,
    /// The subresource; `""` for none.
    Subresource,
    /// The verb.
    Verb,
    /// The namespace; `""` for none.
    Namespace,
    /// The name; `""` for none.
    Name,
    /// The path of a request that is for no resource.
    Path,
    /// The user name.
    User,
}

/// A text of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// One that is a side of regions.
    Side(Side),
    /// The user's uid, of which conditions alone may ask.
    Uid,
    /// The version of the resource, of which conditions alone may ask.
    Version,
}

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

/// The results that an expression may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcomes {
    /// It is true.
    pub holds: bool,
    /// It is false.
    pub fails: bool,
    /// It has no result.
    pub errors: bool,
}

// === impl Side ===

impl Side {
    pub(crate) const COUNT: usize = 8;
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::ApiGroup,
        Self::Resource,
        Self::Subresource,
        Self::Verb,
        Self::Namespace,
        Self::Name,
        Self::Path,
        Self::User,
    ];
}

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

// === impl Outcomes ===

impl Outcomes {
    pub(crate) const ANY: Self = Self {
        holds: true,
        fails: true,
        errors: true,
    };
    pub(crate) const HOLDS: Self = Self {
        holds: true,
        fails: false,
        errors: false,
    };
    pub(crate) const FAILS: Self = Self {
        holds: false,
        fails: true,
        errors: false,
    };
    pub(crate) const ERRORS: Self = Self {
        holds: false,
        fails: false,
        errors: true,
    };
    pub(crate) const DECIDED: Self = Self {
        holds: true,
        fails: true,
        errors: false,
    };
    pub(crate) const DOES_NOT_FAIL: Self = Self {
        holds: true,
        fails: false,
        errors: true,
    };

    pub(crate) const fn is_empty(self) -> bool {
        !self.holds && !self.fails && !self.errors
    }

    /// The outcome of the negated expression.
    pub(crate) const fn of_opposite(self) -> Self {
        Self {
            holds: self.fails,
            fails: self.holds,
            errors: self.errors,
        }
    }

    pub(crate) const fn others(self) -> Self {
        Self {
            holds: !self.holds,
            fails: !self.fails,
            errors: !self.errors,
        }
    }

    pub(crate) const fn intersection(self, other: Self) -> Self {
        Self {
            holds: self.holds && other.holds,
            fails: self.fails && other.fails,
            errors: self.errors && other.errors,
        }
    }

    pub(crate) const fn cover(self, other: Self) -> bool {
        self.others().intersection(other).is_empty()
    }
}
