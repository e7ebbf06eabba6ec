//! What distinguishes regions: the fields of requests, and conditions. These are CEL expressions
//! with the comparisons in them, and label selectors on unknown labels.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::sets::{Patterns, TextSet};
use crate::model::{LabelSelector, LabelStepsError, common_labels};
use portcullis_cel::predicate::{TextTest, literal_pattern};
use portcullis_cel::regex::{self, StoppedError};

/// A side of a region that is a set of strings.
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
    /// The path of a non-resource request.
    Path,
    /// The user name.
    User,
}

/// A string field of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// A field that is a side of regions.
    Side(Side),
    /// The user's uid, which only conditions can refer to.
    Uid,
    /// The version of the resource, which only conditions can refer to.
    Version,
}

/// An expression or selector that determines whether a request belongs to a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegionCondition {
    /// Its text: conditions with equal texts are the same.
    pub(crate) text: Arc<str>,
    /// What it tests; `None` if that is unknown.
    pub(crate) test: Option<ConditionTest>,
}

/// The known meaning of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConditionTest {
    /// It compares this field of a request with constants.
    Text(Field, Arc<TextTest>),
    /// It holds if the namespace's labels, which the policy set does not know, match this selector.
    /// It is an error if they are unknown at the time of the request.
    Labels(Arc<LabelSelector>),
    /// It holds if the user's `extra` has this key.
    ExtraKey(Arc<str>),
    /// It holds if one of the values of this key passes the test. It is an error if the key is
    /// missing.
    ExtraValue(Arc<str>, Arc<TextTest>),
}

/// The pattern of the user names of service accounts.
const ACCOUNT_NAME: &str = r"\Asystem:serviceaccount:[^:]+:[^:]+\z";

/// The possible results of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcomes {
    /// It is true.
    pub holds: bool,
    /// It is false.
    pub fails: bool,
    /// It cannot be evaluated.
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
    /// A condition of which only the text is known.
    pub(crate) fn unknown(text: &str) -> Self {
        Self {
            text: text.into(),
            test: None,
        }
    }

    /// A condition with this test.
    pub(crate) fn of(text: &str, test: ConditionTest) -> Self {
        Self {
            text: text.into(),
            test: Some(test),
        }
    }

    /// The condition that the labels of the request's namespace match.
    pub(crate) fn labels(selector: LabelSelector) -> Self {
        let text = selector.to_string();
        Self::of(&text, ConditionTest::Labels(Arc::new(selector)))
    }

    /// Its label selector, if it has one.
    pub(crate) fn selector(&self) -> Option<&LabelSelector> {
        match &self.test {
            Some(ConditionTest::Labels(selector)) => Some(selector),
            _ => None,
        }
    }

    /// The key of `extra` that it refers to, and the test that one of its values must pass.
    pub(crate) fn extra(&self) -> Option<(&str, Option<&TextTest>)> {
        match &self.test {
            Some(ConditionTest::ExtraKey(key)) => Some((key, None)),
            Some(ConditionTest::ExtraValue(key, test)) => Some((key, Some(test))),
            _ => None,
        }
    }

    /// The approximate number of bytes that it takes: its text, and a copy of the constants in it.
    pub(crate) fn bytes(&self) -> usize {
        let copies = if self.test.is_some() { 2 } else { 1 };
        self.text.len() * copies
    }

    /// Whether it compares this field.
    pub(crate) fn is_of(&self, field: Field) -> bool {
        matches!(self.test, Some(ConditionTest::Text(of, _)) if of == field)
    }
}

/// The requirements on the labels of the request's namespace.
#[derive(Debug)]
pub struct NamespaceLabelRequirements<'r> {
    /// Selectors that must match.
    pub within: Vec<&'r LabelSelector>,
    /// Selectors that must not match.
    pub not_within: Vec<&'r LabelSelector>,
    /// Whether the labels may be known to the gateway.
    pub may_be_known: bool,
    /// Whether the labels may be unknown to the gateway, whatever the selectors are.
    pub may_be_unknown: bool,
}

/// The labels of a namespace; `None` if they are unknown.
pub(crate) type NamespaceLabelsExample = Option<BTreeMap<String, String>>;

// === impl NamespaceLabelRequirements ===

impl NamespaceLabelRequirements<'_> {
    /// Whether there are no requirements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.within.is_empty() && self.not_within.is_empty() && self.may_be_known && self.may_be_unknown
    }

    /// Labels that meet the requirements: `Some(None)` if the labels may be unknown, `None` if no
    /// namespace meets them.
    ///
    /// # Errors
    /// The search takes too long.
    pub(crate) fn possible(&self) -> Result<Option<NamespaceLabelsExample>, LabelStepsError> {
        if self.may_be_unknown || !self.may_be_known {
            return Ok(self.may_be_unknown.then_some(None));
        }
        let within = self.within.iter().map(|selector| (*selector, true));
        let not_within = self.not_within.iter().map(|selector| (*selector, false));
        let selectors: Vec<_> = within.chain(not_within).collect();
        Ok(common_labels(&selectors)?.map(Some))
    }
}

/// The requirements on the values of a key of a user's `extra`.
pub(crate) struct ExtraRequirements<'r> {
    /// Tests that one of the values must pass (`true`), or that none may pass (`false`).
    pub(crate) values: Vec<(&'r TextTest, bool)>,
    pub(crate) may_be_there: bool,
    pub(crate) may_be_absent: bool,
}

impl ExtraRequirements<'_> {
    /// Values that meet the requirements: `Some(None)` if the key may be missing, `None` if no
    /// values meet them.
    ///
    /// # Errors
    /// The search takes too long.
    pub(crate) fn possible(&self) -> Result<Option<Option<Vec<String>>>, StoppedError> {
        if self.may_be_absent || !self.may_be_there {
            return Ok(self.may_be_absent.then_some(None));
        }
        let none = || self.values.iter().filter(|(_, passes)| !passes);
        let mut values = Vec::new();
        for one in self.values.iter().filter(|(_, passes)| *passes) {
            let tests = std::iter::once(one).chain(none()).copied();
            let Some(value) = common_text(&TextSet::all(), tests, false)? else {
                return Ok(None);
            };
            values.push(value);
        }
        Ok(Some(Some(values)))
    }
}

/// The shortest string of `texts` that passes each of `tests`, or fails those that are marked so.
/// It is a service account's user name if `is_account`. `None` if there is no such string.
///
/// # Errors
/// The search takes too long.
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
    regex::shortest_common_text(&patterns)
}

/// A regular expression that matches these strings and prefixes, which must not be empty.
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

    /// The outcomes of the negated expression.
    pub(crate) const fn negated(self) -> Self {
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

/// A side by which regions are split, in the order of splitting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Split {
    Period,
    Text(Side),
    Selectors,
    Conditions,
    Groups,
}

impl Split {
    /// All sides, with the user name last.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let texts = |of: fn(&Side) -> bool| Side::ALL.into_iter().filter(of).map(Self::Text);
        let first = std::iter::once(Self::Period).chain(texts(|side| *side != Side::User));
        let last = [Self::Selectors, Self::Conditions, Self::Groups].into_iter();
        first.chain(last).chain(texts(|side| *side == Side::User))
    }
}
