//! Sets of texts: those named, those that begin with a prefix, or all, less such. Sets of groups, and
//! what they say of service accounts. Requests by their selectors.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use crate::authorization::matching::Narrowness;
use crate::authorization::rbac::WildcardSet;
use crate::model::Selectors;

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

/// What the user name of a service account begins with.
pub(crate) const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// The groups of a service account, besides that of its namespace.
pub(crate) const SERVICE_ACCOUNT_GROUPS: [&str; 2] = ["system:serviceaccounts", "system:authenticated"];
/// What the group of all service accounts of a namespace begins with.
pub(crate) const NAMESPACE_GROUP: &str = "system:serviceaccounts:";

/// Sets of groups: those that hold some, and not others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupSet {
    /// Each of these texts is a group, and a group begins with each of these prefixes.
    pub all: Patterns,
    /// None of the groups is one of these.
    pub none: Patterns,
}

/// Requests by their selectors: those at least as narrow as each of some, and as none of others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectorSet {
    /// At least as narrow as each of these.
    pub within: Vec<Arc<Selectors<'static>>>,
    /// Not as narrow as any of these.
    pub not_within: Vec<Arc<Selectors<'static>>>,
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
        let mut text = prefix;
        loop {
            let until = (Bound::Unbounded, Bound::Included(text));
            let Some(own) = self.prefixes.range::<str, _>(until).next_back() else {
                return false;
            };
            if text.starts_with(&**own) {
                return true;
            }
            // Any other that `text` begins with stands before `own`, so that `own` begins with it, too.
            text = common_prefix(text, own);
        }
    }

    /// The texts among them, and then the prefixes, that begin with `prefix`.
    fn beginning_with<'p>(&'p self, prefix: &'p str) -> [impl Iterator<Item = &'p Arc<str>>; 2] {
        [&self.exact, &self.prefixes].map(|all| {
            let from = (Bound::Included(prefix), Bound::Unbounded);
            all.range::<str, _>(from)
                .take_while(move |text| text.starts_with(prefix))
        })
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

/// What both begin with.
fn common_prefix<'t>(text: &'t str, other: &str) -> &'t str {
    let mut pairs = text.char_indices().zip(other.chars());
    let differs = pairs.find(|((_, one), other)| one != other);
    let end = differs.map_or(text.len().min(other.len()), |((at, _), _)| at);
    text.get(..end).unwrap_or_default()
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
        // Of two prefixes that have a text in common, one begins with the other.
        let meet = |longer: &Self, shorter: &Self| {
            let of_both = |prefix: &Arc<str>| shorter.within.contains_prefix(prefix) && is_left(prefix);
            longer.within.prefixes.iter().any(of_both)
        };
        self.within.exact.iter().any(|text| other.contains(text))
            || other.within.exact.iter().any(|text| self.contains(text))
            || meet(self, other)
            || meet(other, self)
    }

    /// Whether `other` holds nothing else.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        // Of what begins so, there is always another text than those that are named.
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

// === impl GroupSet ===

/// A group, or what the names of groups begin with.
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

    /// Each group by itself, and whether it is to be there.
    pub(crate) fn literals(&self) -> impl Iterator<Item = (MemberGroup<'_>, bool)> {
        fn of(patterns: &Patterns) -> impl Iterator<Item = MemberGroup<'_>> {
            let exact = patterns.exact.iter().map(MemberGroup::Exact);
            exact.chain(patterns.prefixes.iter().map(MemberGroup::Prefix))
        }
        of(&self.all)
            .map(|group| (group, true))
            .chain(of(&self.none).map(|group| (group, false)))
    }

    /// `None` where no set of groups is in both.
    pub(crate) fn intersection(&self, other: &Self) -> Option<Self> {
        let both = Self {
            all: self.all.clone().or(other.all.clone()),
            none: self.none.clone().or(other.none.clone()),
        };
        let is_possible = both.all.exact.iter().all(|group| !both.none.contains(group))
            // Of those that begin so, there is always another than those named.
            && both.all.prefixes.iter().all(|prefix| !both.none.contains_prefix(prefix));
        is_possible.then_some(both)
    }

    /// Whether `other`, which is possible, holds nothing else.
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

    /// The names of the service accounts with such groups.
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

/// The names of the service accounts with this group, or with one that begins so.
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

    /// The widest request that is within all: what it does not imply, others need not either.
    pub(crate) fn widest(&self) -> Selectors<'static> {
        let mut widest = Selectors::default();
        for selectors in &self.within {
            widest.field.extend(selectors.field.iter().cloned());
            widest.label.extend(selectors.label.iter().cloned());
        }
        widest
    }

    /// `None` where no selectors are in both.
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

    /// Whether `other`, which is possible, surely holds nothing else.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        if self.within.is_empty() && self.not_within.is_empty() {
            return true;
        }
        let widest = other.widest();
        let narrowness = Narrowness::new(&widest);
        let is_not = |selectors: &Arc<Selectors<'static>>| {
            // What is as narrow as this is as narrow as one that the other does not hold.
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

/// Whether one of `words` is among `texts`.
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
