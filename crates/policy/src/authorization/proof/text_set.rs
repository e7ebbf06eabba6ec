//! Sets of texts: those named, those that begin with a prefix, or all, less such.

use std::collections::BTreeSet;
use std::sync::Arc;

/// A set of texts that a rule can tell apart.
///
/// Equal sets are equal values: what says nothing is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextSet {
    within: Patterns,
    except: Patterns,
}

/// Texts, and prefixes of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patterns {
    /// These texts.
    pub exact: BTreeSet<Arc<str>>,
    /// All that begin with one of these; none begins with another.
    pub prefixes: BTreeSet<Arc<str>>,
}

// === impl Patterns ===

impl Patterns {
    /// These texts.
    pub fn exact<T: Into<Arc<str>>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self {
            exact: texts.into_iter().map(Into::into).collect(),
            prefixes: BTreeSet::new(),
        }
    }

    /// All that begin with one of these.
    pub fn prefixes<T: Into<Arc<str>>>(prefixes: impl IntoIterator<Item = T>) -> Self {
        Self {
            exact: BTreeSet::new(),
            prefixes: prefixes.into_iter().map(Into::into).collect(),
        }
    }

    /// Those of both.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.exact.extend(other.exact);
        self.prefixes.extend(other.prefixes);
        self
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many texts and prefixes these are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.exact.len() + self.prefixes.len()
    }

    /// Whether `text` is one of them.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        self.exact.contains(text) || self.contains_prefix(text)
    }

    /// Whether all that begins with `prefix` is.
    #[must_use]
    pub fn contains_prefix(&self, prefix: &str) -> bool {
        self.prefixes.iter().any(|own| prefix.starts_with(&**own))
    }

    /// Leaves out what another prefix says already.
    fn normalized(mut self) -> Self {
        let all = std::mem::take(&mut self.prefixes);
        // A prefix stands before all that begin with it.
        for prefix in all {
            if !self.contains_prefix(&prefix) {
                self.prefixes.insert(prefix);
            }
        }
        let exact = std::mem::take(&mut self.exact);
        self.exact = exact
            .into_iter()
            .filter(|text| !self.contains_prefix(text))
            .collect();
        self
    }

    fn intersection(&self, other: &Self) -> Self {
        let exact = self.exact.iter().filter(|text| other.contains(text));
        let others = other.exact.iter().filter(|text| self.contains(text));
        let prefixes = self
            .prefixes
            .iter()
            .filter(|prefix| other.contains_prefix(prefix));
        let other_prefixes = other
            .prefixes
            .iter()
            .filter(|prefix| self.contains_prefix(prefix));
        Self {
            exact: exact.chain(others).cloned().collect(),
            prefixes: prefixes.chain(other_prefixes).cloned().collect(),
        }
    }
}

// === impl TextSet ===

impl TextSet {
    /// Every text, the empty one too.
    #[must_use]
    pub fn all() -> Self {
        Self::of(Patterns::prefixes([""]))
    }

    /// Those of `patterns`.
    #[must_use]
    pub fn of(patterns: Patterns) -> Self {
        Self {
            within: patterns.normalized(),
            except: Patterns::default(),
        }
    }

    /// Only these texts.
    pub fn exact<T: Into<Arc<str>>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::of(Patterns::exact(texts))
    }

    /// All but those of `patterns`.
    #[must_use]
    pub fn all_but(patterns: Patterns) -> Self {
        Self::normalized(Patterns::prefixes([""]), patterns)
    }

    /// The texts listed in it that are not excepted. The prefix `""` is all.
    #[must_use]
    pub const fn within(&self) -> &Patterns {
        &self.within
    }

    /// Which of these it does not hold.
    #[must_use]
    pub const fn except(&self) -> &Patterns {
        &self.except
    }

    /// The same, but for what is said of `prefix` as a whole.
    #[must_use]
    pub fn with_prefix(&self, prefix: &str) -> Self {
        let mut set = self.clone();
        set.except.prefixes.remove(prefix);
        set
    }

    /// Whether it holds every text.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.except.is_empty() && self.within.prefixes.contains("")
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.within.is_empty()
    }

    /// Its texts, where it holds no others than those that it names.
    pub(crate) fn listed(&self) -> Option<&BTreeSet<Arc<str>>> {
        self.within.prefixes.is_empty().then_some(&self.within.exact)
    }

    /// Whether it holds `text`.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        self.within.contains(text) && !self.except.contains(text)
    }

    /// What both hold.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        if other.is_all() {
            return self.clone();
        }
        let except = self.except.clone().or(other.except.clone());
        Self::normalized(self.within.intersection(&other.within), except)
    }

    /// Whether both hold a text.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let is_left =
            |prefix: &str| !self.except.contains_prefix(prefix) && !other.except.contains_prefix(prefix);
        let of_both = |one: &str, others: &Patterns| {
            let mut others = others.prefixes.iter();
            others.any(|other| {
                let longer = if one.len() < other.len() { other } else { one };
                (longer.starts_with(one) && longer.starts_with(&**other)) && is_left(longer)
            })
        };
        self.within.exact.iter().any(|text| other.contains(text))
            || other.within.exact.iter().any(|text| self.contains(text))
            || self
                .within
                .prefixes
                .iter()
                .any(|prefix| of_both(prefix, &other.within))
    }

    /// Whether `other` holds nothing else.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        // Of what begins so, there is always another text than those that are named.
        let has_prefix = |prefix: &Arc<str>| {
            let mut exact = self
                .except
                .exact
                .iter()
                .filter(|text| text.starts_with(&**prefix));
            let mut prefixes = self
                .except
                .prefixes
                .iter()
                .filter(|own| own.starts_with(&**prefix));
            self.within.contains_prefix(prefix)
                && !self.except.contains_prefix(prefix)
                && exact.all(|text| other.except.contains(text))
                && prefixes.all(|own| other.except.contains_prefix(own))
        };
        other.within.exact.iter().all(|text| self.contains(text))
            && other.within.prefixes.iter().all(has_prefix)
    }

    /// What it holds and `other` does not: at most two sets, none of them empty.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Vec<Self> {
        let outside = Self::normalized(self.within.clone(), self.except.clone().or(other.within.clone()));
        let excepted = Self::of(other.except.clone());
        let inside = self
            .intersection(&excepted)
            .intersection(&Self::of(other.within.clone()));
        [outside, inside]
            .into_iter()
            .filter(|set| !set.is_empty())
            .collect()
    }

    fn normalized(within: Patterns, except: Patterns) -> Self {
        let (mut within, mut except) = (within.normalized(), except.normalized());
        within.exact.retain(|text| !except.contains(text));
        within.prefixes.retain(|prefix| !except.contains_prefix(prefix));
        except.exact.retain(|text| within.contains_prefix(text));
        except.prefixes.retain(|prefix| within.contains_prefix(prefix));
        Self { within, except }
    }

    /// A text that it holds: the first of `preferred` that it holds, else one that is named, else
    /// one that no rule names, made of `stem`. `None` where it is empty.
    #[must_use]
    pub fn example(&self, preferred: &[&str], stem: &str) -> Option<String> {
        if let Some(text) = preferred.iter().find(|text| self.contains(text)) {
            return Some((*text).to_owned());
        }
        if let Some(text) = self.within.exact.first() {
            return Some(text.to_string());
        }
        // Each text that is excepted, or begins as such, rules out at most one number.
        let prefix = self.within.prefixes.first()?;
        let numbered = (0_u64..).map(|number| match number {
            0 => format!("{prefix}{stem}"),
            number => format!("{prefix}{stem}{number}"),
        });
        let most = self.except.exact.len() + self.except.prefixes.len() + 1;
        let letters = (b'a'..=b'z')
            .chain(b'0'..=b'9')
            .map(|letter| format!("{prefix}{}{stem}", char::from(letter)));
        let mut candidates = numbered.take(most).chain(letters);
        candidates.find(|text| self.contains(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXTS: &[&str] = &["", "a", "ab", "abc", "b", "ba", "ab-x", "a-y", "z"];

    fn patterns() -> impl Strategy<Value = Patterns> {
        let some = || proptest::sample::subsequence(vec!["", "a", "ab", "b", "abc", "ba"], 0..3);
        (some(), some()).prop_map(|(exact, prefixes)| Patterns::exact(exact).or(Patterns::prefixes(prefixes)))
    }

    fn sets() -> impl Strategy<Value = TextSet> {
        (patterns(), patterns()).prop_map(|(within, except)| TextSet::normalized(within, except))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn operations_are_those_of_sets(one in sets(), other in sets()) {
            let both = one.intersection(&other);
            let left = one.difference(&other);
            for text in TEXTS {
                let (has, others) = (one.contains(text), other.contains(text));
                prop_assert_eq!(both.contains(text), has && others, "{} of {:?}", text, both);
                let times = left.iter().filter(|set| set.contains(text)).count();
                prop_assert_eq!(times, usize::from(has && !others), "{} of {:?}", text, left);
            }
            prop_assert_eq!(one.meets(&other), !both.is_empty());
            prop_assert_eq!(other.covers(&one), left.is_empty());
            for set in [&one, &both].into_iter().chain(&left) {
                let example = set.example(&[], "other");
                prop_assert_eq!(example.is_none(), set.is_empty());
                prop_assert!(example.is_none_or(|text| set.contains(&text)), "{:?}", set);
            }
        }
    }
}
