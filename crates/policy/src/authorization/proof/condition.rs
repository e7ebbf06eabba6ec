//! What regions tell apart: the fields of requests, and conditions, which are expressions of CEL and what they
//! compare with constants, and selectors of labels that are not known.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::sets::{Patterns, TextSet};
use crate::model::{LabelSelector, LabelStepsError, common_labels};
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

/// An expression or selector on which it depends whether a request is one of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegionCondition {
    /// As it would be written: equal texts are one condition.
    pub(crate) text: Arc<str>,
    /// What it asks; of others, nothing is known.
    pub(crate) test: Option<ConditionTest>,
}

/// What is known of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConditionTest {
    /// It compares this text of a request with constants.
    Text(Field, Arc<TextTest>),
    /// It holds where the labels of a namespace match this that the policy set does not know, and has no
    /// result where nobody knows them.
    Labels(Arc<LabelSelector>),
    /// It holds where the user's `extra` has this key.
    ExtraKey(Arc<str>),
    /// It holds where one of the values of this key passes, and has no result where there is no such key.
    ExtraValue(Arc<str>, Arc<TextTest>),
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

    /// One that asks for this.
    pub(crate) fn of(text: &str, test: ConditionTest) -> Self {
        Self {
            text: text.into(),
            test: Some(test),
        }
    }

    /// Whether the labels of the namespace that a request is about match.
    pub(crate) fn labels(selector: LabelSelector) -> Self {
        let text = selector.to_string();
        Self::of(&text, ConditionTest::Labels(Arc::new(selector)))
    }

    /// The selector that it asks about.
    pub(crate) fn selector(&self) -> Option<&LabelSelector> {
        match &self.test {
            Some(ConditionTest::Labels(selector)) => Some(selector),
            _ => None,
        }
    }

    /// The key of `extra` that it asks about, and the test that one of its values is to pass.
    pub(crate) fn extra(&self) -> Option<(&str, Option<&TextTest>)> {
        match &self.test {
            Some(ConditionTest::ExtraKey(key)) => Some((key, None)),
            Some(ConditionTest::ExtraValue(key, test)) => Some((key, Some(test))),
            _ => None,
        }
    }

    /// About how many bytes it takes: its text, and the constants in it once more.
    pub(crate) fn bytes(&self) -> usize {
        let copies = if self.test.is_some() { 2 } else { 1 };
        self.text.len() * copies
    }

    /// Whether it compares this field.
    pub(crate) fn is_of(&self, field: Field) -> bool {
        matches!(self.test, Some(ConditionTest::Text(of, _)) if of == field)
    }
}

/// What is asked of the labels of the namespace that a request is about.
#[derive(Debug)]
pub struct AskedNamespaceLabels<'r> {
    /// Selectors that select it.
    pub within: Vec<&'r LabelSelector>,
    /// Those that do not.
    pub not_within: Vec<&'r LabelSelector>,
    /// Whether it may be one whose labels the gateway knows.
    pub may_be_known: bool,
    /// Whether it may be one whose labels the gateway does not know, whatever selectors say.
    pub may_be_unknown: bool,
}

/// The labels of a namespace, `None` where they are not known.
pub(crate) type NamespaceLabelsExample = Option<BTreeMap<String, String>>;

// === impl AskedNamespaceLabels ===

impl AskedNamespaceLabels<'_> {
    /// Whether nothing is asked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.within.is_empty() && self.not_within.is_empty() && self.may_be_known && self.may_be_unknown
    }

    /// Labels that the namespace may have: `Some(None)` where it may be one whose labels are not known, `None`
    /// where no namespace is as it is asked for.
    ///
    /// # Errors
    /// That takes too long to tell.
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

/// What is asked of the values of a key of a user's `extra`.
pub(crate) struct AskedExtra<'r> {
    /// What one of them passes, or none of them does.
    pub(crate) values: Vec<(&'r TextTest, bool)>,
    pub(crate) may_be_there: bool,
    pub(crate) may_be_absent: bool,
}

impl AskedExtra<'_> {
    /// Values that it may have: `Some(None)` where the key may be absent, `None` where nothing is as it is asked for.
    ///
    /// # Errors
    /// That takes too long to tell.
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

/// A side by which regions are split, in the order in which they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Split {
    Period,
    Text(Side),
    Selectors,
    Conditions,
    Groups,
}

impl Split {
    /// All of them, the user name last.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let texts = |of: fn(&Side) -> bool| Side::ALL.into_iter().filter(of).map(Self::Text);
        let first = std::iter::once(Self::Period).chain(texts(|side| *side != Side::User));
        let last = [Self::Selectors, Self::Conditions, Self::Groups].into_iter();
        first.chain(last).chain(texts(|side| *side == Side::User))
    }
}
