//! Sets of strings (exact strings and prefixes, with exceptions), sets of groups and the service
//! accounts in them, and sets of selectors.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use crate::authorization::matching::Narrowness;
use crate::authorization::rbac::WildcardSet;
use crate::model::Selectors;

/// A set of strings, as rules can describe it.
///
/// Equal sets are equal values, because redundant patterns are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextSet {
    within: Patterns,
    except: Patterns,
}

/// Exact strings, and prefixes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patterns {
    /// Exact strings.
    pub exact: BTreeSet<Arc<str>>,
    /// Prefixes, none of which is a prefix of another.
    pub prefixes: BTreeSet<Arc<str>>,
}

/// The prefix of the user names of service accounts.
pub(crate) const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// The groups of all service accounts, in addition to the group of their namespace.
pub(crate) const SERVICE_ACCOUNT_GROUPS: [&str; 2] = ["system:serviceaccounts", "system:authenticated"];
/// The prefix of the group of all service accounts in a namespace.
pub(crate) const NAMESPACE_GROUP: &str = "system:serviceaccounts:";

/// A set of combinations of groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupSet {
    /// Each exact string must be one of the groups, and each prefix must match one of them.
    pub all: Patterns,
    /// No group may match any of these.
    pub none: Patterns,
}

/// A set of selectors of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectorSet {
    /// The requests must select at least as narrowly as each of these.
    pub within: Vec<Arc<Selectors<'static>>>,
    /// The requests must not select as narrowly as any of these.
    pub not_within: Vec<Arc<Selectors<'static>>>,
}

// === impl Patterns ===

impl Patterns {
    /// These exact strings.
    pub fn exact<T: Into<Arc<str>>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self {
            exact: texts.into_iter().map(Into::into).collect(),
            prefixes: BTreeSet::new(),
        }
    }

    /// These prefixes.
    pub fn prefixes<T: Into<Arc<str>>>(prefixes: impl IntoIterator<Item = T>) -> Self {
        Self {
            exact: BTreeSet::new(),
            prefixes: prefixes.into_iter().map(Into::into).collect(),
        }
    }

    /// The patterns of both.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.exact.extend(other.exact);
        self.prefixes.extend(other.prefixes);
        self
    }

    /// Whether there are no patterns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of patterns.
    #[must_use]
    pub fn len(&self) -> usize {
        self.exact.len() + self.prefixes.len()
    }

    /// Whether `text` matches.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        self.exact.contains(text) || self.contains_prefix(text)
    }

    /// Whether all strings with `prefix` match.
    #[must_use]
    pub fn contains_prefix(&self, prefix: &str) -> bool {
        let mut text = prefix;
        loop {
            let until = (Bound::Unbounded, Bound::Included(text));
            let Some(own) = self.prefixes.range::<str, _>(until).next_back() else {
                return false;
            };
            if text.starts_with(&**own) {
                return true;
            }
            // Any other prefix of `text` sorts before `own`, so it is also a prefix of `own`.
            text = common_prefix(text, own);
        }
    }

    /// The exact strings, and the prefixes, that begin with `prefix`.
    fn beginning_with<'p>(&'p self, prefix: &'p str) -> [impl Iterator<Item = &'p Arc<str>>; 2] {
        [&self.exact, &self.prefixes].map(|all| {
            let from = (Bound::Included(prefix), Bound::Unbounded);
            all.range::<str, _>(from)
                .take_while(move |text| text.starts_with(prefix))
        })
    }

    /// Removes patterns that another prefix contains.
    fn normalized(mut self) -> Self {
        let all = std::mem::take(&mut self.prefixes);
        // A prefix sorts before all strings that begin with it.
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

/// The common prefix of both.
fn common_prefix<'t>(text: &'t str, other: &str) -> &'t str {
    let mut pairs = text.char_indices().zip(other.chars());
    let differs = pairs.find(|((_, one), other)| one != other);
    let end = differs.map_or(text.len().min(other.len()), |((at, _), _)| at);
    text.get(..end).unwrap_or_default()
}

// === impl TextSet ===

impl TextSet {
    /// All strings, including the empty one.
    #[must_use]
    pub fn all() -> Self {
        Self::of(Patterns::prefixes([""]))
    }

    /// The strings that match `patterns`.
    #[must_use]
    pub fn of(patterns: Patterns) -> Self {
        Self {
            within: patterns.normalized(),
            except: Patterns::default(),
        }
    }

    /// Only these strings.
    pub fn exact<T: Into<Arc<str>>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::of(Patterns::exact(texts))
    }

    /// All strings that do not match `patterns`.
    #[must_use]
    pub fn all_but(patterns: Patterns) -> Self {
        Self::normalized(Patterns::prefixes([""]), patterns)
    }

    /// The patterns of its strings, before exceptions. The prefix `""` matches all strings.
    #[must_use]
    pub const fn within(&self) -> &Patterns {
        &self.within
    }

    /// The exceptions.
    #[must_use]
    pub const fn except(&self) -> &Patterns {
        &self.except
    }

    /// The set without the exception of `prefix`, if that is an exception as a whole.
    #[must_use]
    pub fn with_prefix(&self, prefix: &str) -> Self {
        let mut set = self.clone();
        set.except.prefixes.remove(prefix);
        set
    }

    /// Whether it contains all strings.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.except.is_empty() && self.within.prefixes.contains("")
    }

    /// Whether it contains no string.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.within.is_empty()
    }

    /// Its strings, if they are all exact.
    pub(crate) fn listed(&self) -> Option<&BTreeSet<Arc<str>>> {
        self.within.prefixes.is_empty().then_some(&self.within.exact)
    }

    /// Whether it contains `text`.
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        self.within.contains(text) && !self.except.contains(text)
    }

    /// The strings in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        if other.is_all() {
            return self.clone();
        }
        let except = self.except.clone().or(other.except.clone());
        Self::normalized(self.within.intersection(&other.within), except)
    }

    /// Whether both sets have a string in common.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let is_left =
            |prefix: &str| !self.except.contains_prefix(prefix) && !other.except.contains_prefix(prefix);
        // If two prefixes have a string in common, one is a prefix of the other.
        let meet = |longer: &Self, shorter: &Self| {
            let of_both = |prefix: &Arc<str>| shorter.within.contains_prefix(prefix) && is_left(prefix);
            longer.within.prefixes.iter().any(of_both)
        };
        self.within.exact.iter().any(|text| other.contains(text))
            || other.within.exact.iter().any(|text| self.contains(text))
            || meet(self, other)
            || meet(other, self)
    }

    /// Whether it contains all strings of `other`.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        // A prefix always has more strings than those that are named.
        let has_prefix = |prefix: &Arc<str>| {
            let [mut exact, mut prefixes] = self.except.beginning_with(prefix);
            self.within.contains_prefix(prefix)
                && !self.except.contains_prefix(prefix)
                && exact.all(|text| other.except.contains(text))
                && prefixes.all(|own| other.except.contains_prefix(own))
        };
        other.within.exact.iter().all(|text| self.contains(text))
            && other.within.prefixes.iter().all(has_prefix)
    }

    /// The strings that are not in `other`: at most two sets, none of them empty.
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

    /// A string in the set: the first of `preferred` that it contains, otherwise an exact string,
    /// otherwise one made with `stem` that no rule names. `None` if it is empty.
    #[must_use]
    pub fn example(&self, preferred: &[&str], stem: &str) -> Option<String> {
        if let Some(text) = preferred.iter().find(|text| self.contains(text)) {
            return Some((*text).to_owned());
        }
        if let Some(text) = self.within.exact.first() {
            return Some(text.to_string());
        }
        // Each exception rules out at most one number, or all strings with a certain beginning.
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

// === impl GroupSet ===

/// A group, or a prefix of groups.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MemberGroup<'g> {
    Exact(&'g Arc<str>),
    Prefix(&'g Arc<str>),
}

impl GroupSet {
    pub(crate) fn of(group: MemberGroup<'_>, is_member: bool) -> Self {
        let patterns = match group {
            MemberGroup::Exact(name) => Patterns::exact([Arc::clone(name)]),
            MemberGroup::Prefix(prefix) => Patterns::prefixes([Arc::clone(prefix)]),
        };
        let none = Patterns::default();
        let (all, none) = if is_member {
            (patterns, none)
        } else {
            (none, patterns)
        };
        Self { all, none }
    }

    /// Each group or prefix, and whether one must be present.
    pub(crate) fn literals(&self) -> impl Iterator<Item = (MemberGroup<'_>, bool)> {
        fn of(patterns: &Patterns) -> impl Iterator<Item = MemberGroup<'_>> {
            let exact = patterns.exact.iter().map(MemberGroup::Exact);
            exact.chain(patterns.prefixes.iter().map(MemberGroup::Prefix))
        }
        of(&self.all)
            .map(|group| (group, true))
            .chain(of(&self.none).map(|group| (group, false)))
    }

    /// The combinations in both; `None` if there are none.
    pub(crate) fn intersection(&self, other: &Self) -> Option<Self> {
        let both = Self {
            all: self.all.clone().or(other.all.clone()),
            none: self.none.clone().or(other.none.clone()),
        };
        let is_possible = both.all.exact.iter().all(|group| !both.none.contains(group))
            // A prefix always has more groups than those that are named.
            && both.all.prefixes.iter().all(|prefix| !both.none.contains_prefix(prefix));
        is_possible.then_some(both)
    }

    /// Whether it contains all combinations of `other`, which must not be empty.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let begins = |prefix: &Arc<str>| {
            let mut groups = other.all.exact.iter().chain(&other.all.prefixes);
            groups.any(|group| group.starts_with(&**prefix))
        };
        self.all.exact.iter().all(|group| other.all.exact.contains(group))
            && self.all.prefixes.iter().all(begins)
            && self.none.exact.iter().all(|group| other.none.contains(group))
            && self
                .none
                .prefixes
                .iter()
                .all(|prefix| other.none.contains_prefix(prefix))
    }

    /// The names of the service accounts whose groups are in the set.
    pub(crate) fn service_accounts(&self) -> TextSet {
        let mut accounts = TextSet::all();
        for (group, is_member) in self.literals() {
            let of_group = match group {
                MemberGroup::Exact(name) => accounts_of_group(name, true),
                MemberGroup::Prefix(prefix) => accounts_of_group(prefix, false),
            };
            let with = match is_member {
                true => TextSet::of(of_group),
                false => TextSet::all_but(of_group),
            };
            accounts = accounts.intersection(&with);
        }
        accounts
    }
}

/// The names of the service accounts with this group, or with one that has this prefix.
fn accounts_of_group(group: &str, is_whole: bool) -> Patterns {
    let is_one = |one: &str| {
        if is_whole {
            one == group
        } else {
            one.starts_with(group)
        }
    };
    if SERVICE_ACCOUNT_GROUPS.into_iter().any(is_one) {
        return Patterns::prefixes([SERVICE_ACCOUNT]);
    }
    match group.strip_prefix(NAMESPACE_GROUP) {
        Some(namespace) if namespace.contains(':') || is_whole && namespace.is_empty() => Patterns::default(),
        Some(namespace) => {
            let end = if is_whole { ":" } else { "" };
            Patterns::prefixes([format!("{SERVICE_ACCOUNT}{namespace}{end}")])
        }
        None => Patterns::default(),
    }
}

/// The groups that the name of a service account implies.
pub(crate) fn groups_of_account(user: &str) -> Option<[String; 3]> {
    let (namespace, _) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let [accounts, authenticated] = SERVICE_ACCOUNT_GROUPS.map(str::to_owned);
    Some([accounts, format!("{NAMESPACE_GROUP}{namespace}"), authenticated])
}

// === impl SelectorSet ===

impl SelectorSet {
    pub(crate) fn of(selectors: &Arc<Selectors<'static>>, is_within: bool) -> Self {
        let (mut within, mut not_within) = (Vec::new(), Vec::new());
        let list = if is_within { &mut within } else { &mut not_within };
        list.push(Arc::clone(selectors));
        Self { within, not_within }
    }

    pub(crate) fn literals(&self) -> impl Iterator<Item = (&Arc<Selectors<'static>>, bool)> {
        let within = self.within.iter().map(|selectors| (selectors, true));
        within.chain(self.not_within.iter().map(|selectors| (selectors, false)))
    }

    /// The widest selectors that are within all of `within`: what they do not imply, some request
    /// in the set does not imply either.
    pub(crate) fn widest(&self) -> Selectors<'static> {
        let mut widest = Selectors::default();
        for selectors in &self.within {
            widest.field.extend(selectors.field.iter().cloned());
            widest.label.extend(selectors.label.iter().cloned());
        }
        widest
    }

    /// The selectors in both; `None` if there are none.
    pub(crate) fn intersection(&self, other: &Self) -> Option<Self> {
        if other.within.is_empty() && other.not_within.is_empty() {
            return Some(self.clone());
        }
        let mut both = self.clone();
        for (selectors, is_within) in other.literals() {
            let list = if is_within {
                &mut both.within
            } else {
                &mut both.not_within
            };
            if !list.contains(selectors) {
                list.push(Arc::clone(selectors));
            }
        }
        let widest = both.widest();
        let narrowness = Narrowness::new(&widest);
        let is_possible = both.within.iter().all(|selectors| narrowness.implies(selectors))
            && !both
                .not_within
                .iter()
                .any(|selectors| narrowness.implies(selectors));
        is_possible.then_some(both)
    }

    /// Whether it certainly contains all selectors of `other`, which must not be empty.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        if self.within.is_empty() && self.not_within.is_empty() {
            return true;
        }
        let widest = other.widest();
        let narrowness = Narrowness::new(&widest);
        let is_not = |selectors: &Arc<Selectors<'static>>| {
            // Selectors as narrow as these are also as narrow as some that `other` does not
            // contain.
            let narrowness = Narrowness::new(selectors);
            other
                .not_within
                .iter()
                .any(|not| not == selectors || narrowness.implies(not))
        };
        self.within.iter().all(|selectors| narrowness.implies(selectors))
            && self.not_within.iter().all(is_not)
    }
}

/// Whether `texts` contains one of `words`.
pub(crate) fn has_word(texts: &TextSet, words: &WildcardSet) -> bool {
    let mut words = words.as_slice().iter();
    words.any(|word| word == WildcardSet::ALL || texts.contains(word))
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
        #![proptest_config(crate::authorization::fixtures::cases(2_000))]

        #[test]
        fn a_prefix_is_found_as_by_comparing_it_with_each(
            prefixes in proptest::collection::vec("[abé]{0,3}", 0..6),
            text in "[abé]{0,4}",
        ) {
            let patterns = Patterns::prefixes(prefixes);
            let each = patterns.prefixes.iter().any(|own| text.starts_with(&**own));
            prop_assert_eq!(patterns.contains_prefix(&text), each);
        }

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
