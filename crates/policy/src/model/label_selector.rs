//! `metav1.LabelSelector`, compiled. ClusterRole aggregation and admission share it.

use std::collections::BTreeMap;
use std::fmt;

/// A selector over labels, compiled as by `LabelSelectorAsSelector` of
/// `apimachinery/pkg/apis/meta/v1`: all of `matchLabels` and `matchExpressions` must hold, and the
/// empty selector matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    terms: Vec<Term>,
}

/// The label of every namespace that the API server sets to the namespace's name.
pub const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Whether a selector selects a namespace of which only some labels are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SelectorMatch {
    /// It selects the namespace.
    Yes,
    /// It does not select the namespace.
    No,
    /// The result depends on labels that are not known.
    Unknown,
}

/// An item of `matchExpressions` as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelExpression {
    /// The label's key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`, case-sensitive.
    pub operator: String,
    /// The values: at least one for `In` and `NotIn`, none for the others.
    pub values: Vec<String>,
}

/// Why a selector cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelSelectorFault {
    /// An operator that is not one of the four.
    #[error("`{0}` is not a valid label selector operator")]
    UnknownOperator(String),
    /// `In` or `NotIn` without values.
    #[error("`{operator}` needs at least one value for key `{key}`")]
    NoValues {
        /// The label's key.
        key: String,
        /// The operator.
        operator: String,
    },
    /// `Exists` or `DoesNotExist` with values.
    #[error("`{operator}` takes no values for key `{key}`")]
    UnexpectedValues {
        /// The label's key.
        key: String,
        /// The operator.
        operator: String,
    },
    /// An invalid label key: it is not a qualified name.
    #[error("`{0}` is not a valid label key")]
    InvalidKey(String),
    /// An invalid label value.
    #[error("`{0}` is not a valid label value")]
    InvalidValue(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Term {
    key: String,
    test: LabelTest,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum LabelTest {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Compiles `matchLabels` and `matchExpressions`.
    ///
    /// # Errors
    /// The first error: of the labels, then of the expressions.
    pub fn compile(
        match_labels: &BTreeMap<String, String>,
        match_expressions: &[LabelExpression],
    ) -> Result<Self, LabelSelectorFault> {
        let mut terms = Vec::with_capacity(match_labels.len() + match_expressions.len());
        for (key, value) in match_labels {
            terms.push(Term::compile(key, LabelTest::In(vec![value.clone()]))?);
        }
        for expression in match_expressions {
            terms.push(Term::compile(&expression.key, LabelTest::compile(expression)?)?);
        }
        Ok(Self { terms })
    }

    /// Whether the selector is empty, and so selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether the selector selects the namespace `name`, if only its name is known.
    #[must_use]
    pub fn selects_by_name(&self, name: &str) -> SelectorMatch {
        let (by_name, others): (Vec<_>, Vec<_>) = self
            .terms
            .iter()
            .partition(|term| term.key == NAMESPACE_NAME_LABEL);
        if !by_name.iter().all(|term| term.test.holds(Some(name))) {
            SelectorMatch::No
        } else if others.is_empty() {
            SelectorMatch::Yes
        } else {
            SelectorMatch::Unknown
        }
    }

    /// Whether the selector has requirements on a namespace's name only.
    #[must_use]
    pub fn requires_only_the_name(&self) -> bool {
        self.keys().all(|key| key == NAMESPACE_NAME_LABEL)
    }

    /// The same selector without its requirements on the label `key`.
    #[must_use]
    pub(crate) fn without(&self, key: &str) -> Self {
        let others = self.terms.iter().filter(|term| term.key != key);
        Self {
            terms: others.cloned().collect(),
        }
    }

    /// A label that every selected object has, and the values that it may have there.
    #[must_use]
    pub fn required_label(&self) -> Option<(&str, &[String])> {
        self.terms.iter().find_map(|term| match &term.test {
            LabelTest::In(values) => Some((term.key.as_str(), values.as_slice())),
            LabelTest::NotIn(_) | LabelTest::Exists | LabelTest::DoesNotExist => None,
        })
    }

    /// The label keys of the requirements, in the order written, with repetitions.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().map(|term| term.key.as_str())
    }

    /// The values that the first `In` requirement on the label `key` allows; `None` if there is no
    /// such requirement.
    #[must_use]
    pub fn values_of(&self, key: &str) -> Option<&[String]> {
        self.terms.iter().find_map(|term| match &term.test {
            LabelTest::In(values) if term.key == key => Some(values.as_slice()),
            _ => None,
        })
    }

    /// The values that requirements on the label `key` list, to include or to exclude them.
    pub fn listed_values(&self, key: &str) -> impl Iterator<Item = &str> {
        let terms = self.terms.iter().filter(move |term| term.key == key);
        terms.flat_map(|term| term.test.values()).map(String::as_str)
    }

    /// Whether the labels match. `value_of` returns the value of a label, or `None` if it is
    /// absent.
    pub fn matches<V: AsRef<str>>(&self, value_of: impl Fn(&str) -> Option<V>) -> bool {
        self.terms
            .iter()
            .all(|term| term.test.holds(value_of(&term.key).as_ref().map(AsRef::as_ref)))
    }
}

/// In kubectl's notation: `tier in (prod),!legacy`.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Term { key, test }) in self.terms.iter().enumerate() {
            f.write_str(if place == 0 { "" } else { "," })?;
            match test {
                LabelTest::In(values) => write!(f, "{key} in ({})", values.join(","))?,
                LabelTest::NotIn(values) => write!(f, "{key} notin ({})", values.join(","))?,
                LabelTest::Exists => f.write_str(key)?,
                LabelTest::DoesNotExist => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

/// The most steps that [`common_labels`] takes.
const MAX_LABEL_STEPS: usize = 10_000;

/// The search for labels was given up after [`MAX_LABEL_STEPS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many label selectors to find labels for")]
pub(crate) struct LabelStepsError;

/// Finds labels that each selector paired with `true` selects, and none paired with `false`; `None`
/// if there are none.
///
/// # Errors
/// The search takes more than [`MAX_LABEL_STEPS`].
pub(crate) fn common_labels(
    selectors: &[(&LabelSelector, bool)],
) -> Result<Option<BTreeMap<String, String>>, LabelStepsError> {
    let mut asked = LabelTests::default();
    for (selector, _) in selectors.iter().filter(|(_, selects)| *selects) {
        for term in &selector.terms {
            asked.add(&term.key, term.test.clone());
        }
    }
    let others: Vec<&LabelSelector> = selectors
        .iter()
        .filter(|(_, selects)| !selects)
        .map(|(selector, _)| *selector)
        .collect();
    match asked.labels() {
        None => Ok(None),
        Some(labels) => asked.outside(labels, &others, &mut MAX_LABEL_STEPS.clone()),
    }
}

/// The tests that the value of each label must pass.
#[derive(Clone, Default)]
struct LabelTests<'s>(BTreeMap<&'s str, Vec<LabelTest>>);

impl<'s> LabelTests<'s> {
    fn add(&mut self, key: &'s str, test: LabelTest) {
        self.0.entry(key).or_default().push(test);
    }

    /// Finds labels that pass these tests and that none of `others` selects: for each of these
    /// selectors, one term must fail. `labels` already pass these tests.
    fn outside(
        &self,
        labels: BTreeMap<String, String>,
        others: &[&'s LabelSelector],
        steps: &mut usize,
    ) -> Result<Option<BTreeMap<String, String>>, LabelStepsError> {
        let selecting = others
            .iter()
            .enumerate()
            .find(|(_, other)| other.matches(|key| labels.get(key)));
        let Some((place, selecting)) = selecting else {
            return Ok(Some(labels));
        };
        let later = others.get(place + 1..).unwrap_or_default();
        let earlier = others.get(..place).unwrap_or_default();
        let rest: Vec<&LabelSelector> = earlier.iter().chain(later).copied().collect();
        for term in &selecting.terms {
            *steps = steps.checked_sub(1).ok_or(LabelStepsError)?;
            let mut asked = self.clone();
            asked.add(&term.key, term.test.opposite());
            if let Some(labels) = asked.labels()
                && let Some(found) = asked.outside(labels, &rest, steps)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Labels that pass all tests of their key; `None` if no value passes those of some key.
    fn labels(&self) -> Option<BTreeMap<String, String>> {
        let mut labels = BTreeMap::new();
        for (key, tests) in &self.0 {
            let listed = tests.iter().flat_map(LabelTest::values);
            let other = (0..=tests.iter().flat_map(LabelTest::values).count())
                .map(|number| format!("other{number}"))
                .find(|other| {
                    !tests
                        .iter()
                        .flat_map(LabelTest::values)
                        .any(|value| value == other)
                });
            let values = std::iter::once(None)
                .chain(listed.map(|value| Some(value.as_str())))
                .chain(other.as_deref().map(Some));
            let mut passing = values.filter(|value| tests.iter().all(|test| test.holds(*value)));
            if let Some(value) = passing.next()? {
                labels.insert((*key).to_owned(), value.to_owned());
            }
        }
        Some(labels)
    }
}

// === impl Term ===

impl Term {
    fn compile(key: &str, test: LabelTest) -> Result<Self, LabelSelectorFault> {
        if !is_label_key(key) {
            return Err(LabelSelectorFault::InvalidKey(key.to_owned()));
        }
        if let LabelTest::In(values) | LabelTest::NotIn(values) = &test
            && let Some(value) = values.iter().find(|value| !is_label_value(value))
        {
            return Err(LabelSelectorFault::InvalidValue(value.clone()));
        }
        Ok(Self {
            key: key.to_owned(),
            test,
        })
    }
}

// === impl LabelTest ===

impl LabelTest {
    fn compile(expression: &LabelExpression) -> Result<Self, LabelSelectorFault> {
        let LabelExpression {
            key,
            operator,
            values,
        } = expression;
        let (key, operator) = (key.clone(), operator.clone());
        match (operator.as_str(), values.is_empty()) {
            ("In", false) => Ok(Self::In(values.clone())),
            ("NotIn", false) => Ok(Self::NotIn(values.clone())),
            ("Exists", true) => Ok(Self::Exists),
            ("DoesNotExist", true) => Ok(Self::DoesNotExist),
            ("In" | "NotIn", true) => Err(LabelSelectorFault::NoValues { key, operator }),
            ("Exists" | "DoesNotExist", false) => Err(LabelSelectorFault::UnexpectedValues { key, operator }),
            _ => Err(LabelSelectorFault::UnknownOperator(operator)),
        }
    }

    /// The test that holds exactly if this one does not.
    fn opposite(&self) -> Self {
        match self {
            Self::In(values) => Self::NotIn(values.clone()),
            Self::NotIn(values) => Self::In(values.clone()),
            Self::Exists => Self::DoesNotExist,
            Self::DoesNotExist => Self::Exists,
        }
    }

    fn values(&self) -> &[String] {
        match self {
            Self::In(values) | Self::NotIn(values) => values,
            Self::Exists | Self::DoesNotExist => &[],
        }
    }

    fn holds(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Self::In(values), Some(value)) => values.iter().any(|one| one == value),
            (Self::NotIn(values), Some(value)) => !values.iter().any(|one| one == value),
            (Self::Exists, Some(_)) | (Self::NotIn(_) | Self::DoesNotExist, None) => true,
            (Self::In(_) | Self::Exists, None) | (Self::DoesNotExist, Some(_)) => false,
        }
    }
}

// The syntax of label keys and values, with Kubernetes' error messages
// (`apimachinery/pkg/api/validate/content/kube.go`).

const MAX_NAME_BYTES: usize = 63;
const MAX_PREFIX_BYTES: usize = 253;

const TOO_MANY_PARTS: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
     regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') \
     with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const NO_PREFIX: &str = "prefix part must be non-empty";
const LONG_PREFIX: &str = "prefix part must be no more than 253 bytes";
const PREFIX: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
     characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
     regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NO_NAME: &str = "name part must be non-empty";
const LONG_NAME: &str = "name part must be no more than 63 bytes";
const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
     end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', \
     regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LONG_VALUE: &str = "must be no more than 63 bytes";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
     or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
     '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The errors of a label key, which has the syntax of a qualified name, `[prefix/]name`
/// (`IsLabelKey`).
pub(crate) fn label_key_faults(key: &str) -> impl Iterator<Item = &'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let faults = if name.contains('/') {
        [Some(TOO_MANY_PARTS), None, None, None]
    } else {
        let [long_prefix, bad_prefix] = prefix.map_or([None; 2], prefix_faults);
        let length = match name.len() {
            0 => Some(NO_NAME),
            length => (length > MAX_NAME_BYTES).then_some(LONG_NAME),
        };
        [long_prefix, bad_prefix, length, (!is_name(name)).then_some(NAME)]
    };
    faults.into_iter().flatten()
}

/// The errors of a label value (`IsLabelValue`).
pub(crate) fn label_value_faults(value: &str) -> impl Iterator<Item = &'static str> {
    let length = (value.len() > MAX_NAME_BYTES).then_some(LONG_VALUE);
    let form = (!value.is_empty() && !is_name(value)).then_some(VALUE);
    [length, form].into_iter().flatten()
}

/// Whether `key` is a valid label key, which is any qualified name.
pub(crate) fn is_label_key(key: &str) -> bool {
    label_key_faults(key).next().is_none()
}

pub(crate) fn is_label_value(value: &str) -> bool {
    label_value_faults(value).next().is_none()
}

fn prefix_faults(prefix: &str) -> [Option<&'static str>; 2] {
    if prefix.is_empty() {
        return [Some(NO_PREFIX), None];
    }
    let length = (prefix.len() > MAX_PREFIX_BYTES).then_some(LONG_PREFIX);
    [length, (!is_dns_subdomain(prefix)).then_some(PREFIX)]
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`.
fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Lower-case RFC 1123 labels joined by dots. The length of a label is not limited, as upstream.
fn is_dns_subdomain(text: &str) -> bool {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &[u8]| {
        label.first().is_some_and(is_alphanumeric)
            && label.last().is_some_and(is_alphanumeric)
            && label.iter().all(|byte| is_alphanumeric(byte) || *byte == b'-')
    };
    text.as_bytes().split(|byte| *byte == b'.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(key: &str, operator: &str, values: &[&str]) -> LabelExpression {
        let values = values.iter().map(|&value| value.to_owned()).collect();
        LabelExpression {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values,
        }
    }

    fn selects(expressions: &[LabelExpression], labels: &[(&str, &str)]) -> bool {
        let selector = LabelSelector::compile(&BTreeMap::new(), expressions).unwrap();
        selector.matches(|key| {
            labels
                .iter()
                .find(|(name, _)| *name == key)
                .map(|(_, value)| *value)
        })
    }

    #[test]
    fn operators_follow_kubernetes() {
        let cases = [
            (("In", &["a", "b"][..]), Some("a"), true),
            (("In", &["a"]), Some("b"), false),
            (("In", &["a"]), None, false),
            (("In", &[""]), None, false),
            (("In", &[""]), Some(""), true),
            (("NotIn", &["a"]), Some("a"), false),
            (("NotIn", &["a"]), Some("b"), true),
            (("NotIn", &["a"]), None, true),
            (("Exists", &[]), Some(""), true),
            (("Exists", &[]), None, false),
            (("DoesNotExist", &[]), Some("x"), false),
            (("DoesNotExist", &[]), None, true),
        ];
        for ((operator, values), label, expected) in cases {
            let labels: Vec<_> = label.map(|value| ("k", value)).into_iter().collect();
            let actual = selects(&[expression("k", operator, values)], &labels);
            assert_eq!(actual, expected, "{operator} {values:?} of {label:?}");
        }
    }

    #[test]
    fn all_terms_must_hold_and_none_selects_all() {
        assert!(selects(&[], &[]));
        let both = [expression("a", "Exists", &[]), expression("b", "Exists", &[])];
        assert!(selects(&both, &[("a", ""), ("b", "")]));
        assert!(!selects(&both, &[("a", "")]));
    }

    #[test]
    fn what_kubernetes_refuses_is_refused() {
        for bad in [
            expression("k", "in", &["a"]),
            expression("k", "In", &[]),
            expression("k", "NotIn", &[]),
            expression("k", "Exists", &["a"]),
            expression("k", "DoesNotExist", &["a"]),
            expression("", "Exists", &[]),
            expression("-k", "Exists", &[]),
            expression("a/b/c", "Exists", &[]),
            expression("UPPER/k", "Exists", &[]),
            expression("k", "In", &["a b"]),
        ] {
            assert!(
                LabelSelector::compile(&BTreeMap::new(), std::slice::from_ref(&bad)).is_err(),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn keys() {
        let long = "a".repeat(64);
        let long_prefix = format!("{}/a", "a".repeat(254));
        let valid = ["a", "app.kubernetes.io/name", "A_b-c.D", "0", "x.y-z/1"];
        let faulty: &[(&str, usize)] = &[
            ("", 2),
            ("/a", 1),
            ("a/", 2),
            ("a/b/c", 1),
            ("-a", 1),
            ("a.", 1),
            ("UPPER/a", 1),
            ("a..b/c", 1),
            ("-/é", 2),
            (&long, 1),
            (&long_prefix, 1),
        ];
        for key in valid {
            assert_eq!(label_key_faults(key).count(), 0, "{key}");
        }
        for (key, count) in faulty {
            assert_eq!(label_key_faults(key).count(), *count, "{key}");
        }
    }

    #[test]
    fn values() {
        for value in ["", "a", "A.b_c-9"] {
            assert_eq!(label_value_faults(value).count(), 0, "{value}");
        }
        for value in ["-", "a b", "é", "a/b", &"a".repeat(64)] {
            assert_eq!(label_value_faults(value).count(), 1, "{value}");
        }
    }

    #[test]
    fn labels_for_selectors_are_found_or_there_are_none() {
        let selector = |terms: &[(&str, &str, &[&str])]| {
            let terms = terms.iter().map(|(key, operator, values)| LabelExpression {
                key: (*key).to_owned(),
                operator: (*operator).to_owned(),
                values: values.iter().map(ToString::to_string).collect(),
            });
            LabelSelector::compile(&BTreeMap::new(), &terms.collect::<Vec<_>>()).unwrap()
        };
        let team = selector(&[("team", "In", &["a", "b"])]);
        let frozen = selector(&[("team", "In", &["a"]), ("frozen", "Exists", &[])]);
        let never = selector(&[("team", "NotIn", &["a", "b"])]);
        let found = common_labels(&[(&team, true), (&frozen, false)])
            .unwrap()
            .unwrap();
        assert!(
            team.matches(|key| found.get(key)) && !frozen.matches(|key| found.get(key)),
            "{found:?}"
        );
        assert_eq!(common_labels(&[(&team, true), (&never, true)]), Ok(None));
        assert_eq!(common_labels(&[(&team, false), (&never, false)]), Ok(None));
        // Each selector can be avoided in many ways, but no labels avoid all of them.
        let keys: Vec<String> = (0..12).map(|number| format!("k{number}")).collect();
        let mut hard: Vec<LabelSelector> = (0..12)
            .map(|_| {
                let terms: Vec<_> = keys.iter().map(|key| (key.as_str(), "Exists", &[][..])).collect();
                selector(&terms)
            })
            .collect();
        hard.extend(keys.iter().map(|key| selector(&[(key, "DoesNotExist", &[])])));
        let hard: Vec<_> = hard.iter().map(|one| (one, false)).collect();
        assert_eq!(common_labels(&hard), Ok(None));
    }
}
