//! Rules that other rules make redundant.

use std::collections::{BTreeSet, HashMap};

use super::super::report::Lint;
use crate::authorization::matching::{NamespacePattern, ResourcePattern};
use crate::authorization::rbac::PathPattern;
use crate::authorization::{
    AuthorizationPolicy, Effect, Mode, NonResourceRule, ResourceRule, Role, Rule, Subject, SubjectKind,
};
use crate::field::FieldPath;
use crate::model::Validity;

/// The most words of a role whose rules are compared with each other, at quadratic cost.
const MAX_COMPARED_WORDS: usize = 5_000;

/// Warns of rules of a role that another of its rules covers. Aggregated roles, and roles that are
/// too large to be written by hand, are not checked.
pub(crate) fn lint_role(role: &Role, lint: &mut Lint<'_>) {
    let words: usize = role.rules.iter().map(|rule| rule.words() + 1).sum();
    if role.aggregation.is_some() || words > MAX_COMPARED_WORDS {
        return;
    }
    for (index, rule) in role.rules.iter().enumerate() {
        let others = role.rules.iter().enumerate();
        let wider = others.filter(|(other, _)| *other != index).find(|(other, wide)| {
            // Of two equal rules, the second is redundant.
            rbac_covers(wide, rule) && (*other < index || !rbac_covers(rule, wide))
        });
        if let Some((other, _)) = wider {
            let message = format!("`rules[{other}]` grants all of this: delete this rule");
            lint.suspicious(&FieldPath::root().field("rules").index(index), message);
        }
    }
}

/// The enforced, unconditional Denies, for finding policies that they make redundant.
pub(crate) struct Denies<'p> {
    denies: Vec<(&'p AuthorizationPolicy, Option<&'p str>)>,
    /// For each sort of words, the indices of the Denies that contain a word, so that a policy is
    /// compared with few of many.
    by_word: [HashMap<String, Vec<usize>>; IndexKey::ALL.len()],
}

/// A sort of words of a policy, by which Denies are indexed.
#[derive(Clone, Copy)]
enum IndexKey {
    Subjects,
    Resources,
    Namespaces,
    Names,
    Paths,
}

/// Up to this number of Denies, a policy is compared with all of them.
const MAX_UNINDEXED_DENIES: usize = 16;

/// The word for everything.
const ANY: &str = "*";

impl<'p> Denies<'p> {
    /// Collects the Denies among `policies`, each with the only cluster that it applies to.
    pub(crate) fn new(policies: impl Iterator<Item = (&'p AuthorizationPolicy, Option<&'p str>)>) -> Self {
        let denies: Vec<_> = policies.filter(|(policy, _)| always_denies(policy)).collect();
        let mut by_word: [HashMap<String, Vec<usize>>; IndexKey::ALL.len()] = Default::default();
        for (index, (deny, _)) in denies.iter().enumerate() {
            for (sort, found) in IndexKey::ALL.into_iter().zip(&mut by_word) {
                for word in sort.of(deny) {
                    found.entry(word).or_default().push(index);
                }
            }
        }
        Self { denies, by_word }
    }

    pub(crate) fn lint(&self, policy: &AuthorizationPolicy, cluster: Option<&str>, lint: &mut Lint<'_>) {
        // A Limit denies requests that it does not match.
        if policy.mode != Mode::Enforce || policy.effect == Effect::Limit {
            return;
        }
        let before = |deny: &AuthorizationPolicy| policy.effect == Effect::Allow || deny.name < policy.name;
        let covering = self.candidates(policy).into_iter().find(|(deny, of)| {
            !std::ptr::eq(*deny, policy)
                && (of.is_none() || *of == cluster)
                && before(deny)
                && covers(deny, policy)
        });
        if let Some((deny, _)) = covering {
            let message = format!(
                "the Deny `{}` refuses everything that this policy matches, so it has no effect: \
                 delete it, or narrow the Deny",
                deny.name
            );
            lint.suspicious(&FieldPath::root().field("metadata").field("name"), message);
        }
    }

    /// The Denies that may cover `policy`, in order: those with a word that covers the first word
    /// of `policy`, for the sort of words with the fewest such Denies.
    fn candidates(&self, policy: &AuthorizationPolicy) -> Vec<(&'p AuthorizationPolicy, Option<&'p str>)> {
        if self.denies.len() <= MAX_UNINDEXED_DENIES {
            return self.denies.clone();
        }
        let found = |(sort, denies): (IndexKey, &HashMap<String, Vec<usize>>)| {
            let wider = sort.covering_words(policy)?;
            let found = wider.iter().filter_map(|word| denies.get(word));
            Some(found.flatten().copied().collect::<Vec<usize>>())
        };
        let sorts = IndexKey::ALL.into_iter().zip(&self.by_word);
        let mut fewest = sorts.filter_map(found).min_by_key(Vec::len).unwrap_or_default();
        fewest.sort_unstable();
        fewest.dedup();
        let deny = |index: usize| self.denies.get(index).copied();
        fewest.into_iter().filter_map(deny).collect()
    }
}

impl IndexKey {
    const ALL: [Self; 5] = [
        Self::Subjects,
        Self::Resources,
        Self::Namespaces,
        Self::Names,
        Self::Paths,
    ];

    /// The words of a Deny.
    fn of(self, deny: &AuthorizationPolicy) -> BTreeSet<String> {
        let rules = deny.resource_rules.iter();
        let or_any = |words: Vec<String>| match words.is_empty() {
            true => vec![ANY.to_owned()],
            false => words,
        };
        match self {
            Self::Subjects => deny.subjects.iter().map(subject_word).collect(),
            Self::Resources => rules.flat_map(|rule| written(&rule.resources)).collect(),
            Self::Namespaces => rules.flat_map(|rule| or_any(written(&rule.namespaces))).collect(),
            Self::Names => rules.flat_map(|rule| or_any(rule.names.clone())).collect(),
            Self::Paths => deny
                .non_resource_rules
                .iter()
                .flat_map(|rule| written(&rule.paths))
                .collect(),
        }
    }

    /// The words that cover the first word of `policy`; `None` if it has none of this sort.
    fn covering_words(self, policy: &AuthorizationPolicy) -> Option<Vec<String>> {
        let rule = policy.resource_rules.first();
        let first = |word: Option<String>| word.unwrap_or_else(|| ANY.to_owned());
        let (word, has_patterns) = match self {
            Self::Subjects => (subject_word(policy.subjects.first()?), true),
            Self::Resources => (first(rule?.resources.first().map(ToString::to_string)), false),
            Self::Namespaces => (first(rule?.namespaces.first().map(ToString::to_string)), true),
            Self::Names => (first(rule?.names.first().cloned()), false),
            Self::Paths => (
                policy.non_resource_rules.first()?.paths.first()?.to_string(),
                true,
            ),
        };
        let mut wider = vec![ANY.to_owned(), word.clone()];
        if has_patterns {
            let prefixes = word.char_indices().filter_map(|(at, _)| word.get(..at));
            wider.extend(prefixes.map(|prefix| format!("{prefix}*")));
            wider.push(format!("{word}*"));
        }
        wider.sort_unstable();
        wider.dedup();
        Some(wider)
    }
}

fn written(patterns: &[impl ToString]) -> Vec<String> {
    patterns.iter().map(ToString::to_string).collect()
}

/// A subject as one word; [`ANY`] for everybody.
fn subject_word(subject: &Subject) -> String {
    if is_anybody(subject) {
        return ANY.to_owned();
    }
    format!("{}/{}/{}", subject.kind.as_str(), subject.namespace, subject.name)
}

/// Whether the policy denies at any time, without conditions or excluded subjects.
fn always_denies(policy: &AuthorizationPolicy) -> bool {
    policy.effect == Effect::Deny
        && policy.mode == Mode::Enforce
        && policy.is_unconditional()
        && policy.exclude_subjects.is_empty()
        && policy.validity == Validity::default()
}

fn covers(wide: &AuthorizationPolicy, narrow: &AuthorizationPolicy) -> bool {
    let subject = |subject: &Subject| wide.subjects.iter().any(|other| subject_covers(other, subject));
    let resource = |rule: &ResourceRule| wide.resource_rules.iter().any(|other| rule_covers(other, rule));
    let path = |rule: &NonResourceRule| {
        wide.non_resource_rules
            .iter()
            .any(|other| path_rule_covers(other, rule))
    };
    narrow.subjects.iter().all(subject)
        && narrow.resource_rules.iter().all(resource)
        && narrow.non_resource_rules.iter().all(path)
}

fn subject_covers(wide: &Subject, narrow: &Subject) -> bool {
    is_anybody(wide)
        || (wide.kind == narrow.kind
            && wide.namespace == narrow.namespace
            && name_covers(&wide.name, &narrow.name))
}

fn is_anybody(subject: &Subject) -> bool {
    matches!(subject.kind, SubjectKind::User | SubjectKind::Group) && subject.name == "*"
}

/// Whether `wide` covers `narrow`. A `*` at the end makes a name a prefix.
fn name_covers(wide: &str, narrow: &str) -> bool {
    match wide.strip_suffix('*') {
        Some(prefix) => {
            narrow.trim_end_matches('*').starts_with(prefix) && (!narrow.is_empty() || prefix.is_empty())
        }
        None => wide == narrow,
    }
}

fn rule_covers(wide: &ResourceRule, narrow: &ResourceRule) -> bool {
    let namespace = |one: &NamespacePattern| wide.namespaces.iter().any(|other| other.covers(one));
    let namespaces = wide.namespaces.is_empty()
        || (!narrow.namespaces.is_empty() && narrow.namespaces.iter().all(namespace));
    let excluded = |one: &NamespacePattern| narrow.exclude_namespaces.iter().any(|other| other.covers(one));
    let namespaces = namespaces && wide.exclude_namespaces.iter().all(excluded);
    let everything = wide.resources.contains(&ResourcePattern::Everything);
    let resource = |one: &ResourcePattern| everything || wide.resources.contains(one);
    let names = wide.names.is_empty()
        || (!narrow.names.is_empty() && narrow.names.iter().all(|name| wide.names.contains(name)));
    let selectors = wide.selectors.field.is_empty() && wide.selectors.label.is_empty();
    namespaces
        && names
        && selectors
        && wide.namespace_selector.is_none()
        && wide.verbs.covers(&narrow.verbs)
        && wide.api_groups.covers(&narrow.api_groups)
        && narrow.resources.iter().all(resource)
}

fn path_rule_covers(wide: &NonResourceRule, narrow: &NonResourceRule) -> bool {
    wide.verbs.covers(&narrow.verbs) && paths_cover(&wide.paths, &narrow.paths)
}

fn rbac_covers(wide: &Rule, narrow: &Rule) -> bool {
    let names = wide.resource_names.is_empty()
        || (!narrow.resource_names.is_empty()
            && narrow
                .resource_names
                .iter()
                .all(|name| wide.resource_names.contains(name)));
    names
        && wide.verbs.covers(&narrow.verbs)
        && wide.api_groups.covers(&narrow.api_groups)
        && wide.resources.covers(&narrow.resources)
        && paths_cover(&wide.non_resource_urls, &narrow.non_resource_urls)
}

fn paths_cover(wide: &[PathPattern], narrow: &[PathPattern]) -> bool {
    let covered = |path: &PathPattern| wide.iter().any(|other| other.covers(path));
    narrow.iter().all(covered)
}

#[cfg(test)]
mod tests;
