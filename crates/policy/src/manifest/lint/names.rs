//! Verbs, groups and resources that nothing has, in rules of every kind.

use std::fmt::Display;

use super::impersonation::GROUP;
use super::known::{CONSTRAINED, odd_group, odd_method, odd_resource, odd_verb};
use super::{Lint, impersonation};
use crate::authorization::rbac::WildcardSet;
use crate::authorization::{AuthorizationPolicy, PolicySet, Role};
use crate::engine::admission::matching::Constraints;
use crate::engine::{ResourceAttributes, Target};
use crate::field::FieldPath;

/// Rules of a Role or ClusterRole.
pub(crate) fn lint_role(role: &Role, lint: &mut Lint<'_>) {
    // Rules that aggregation replaces are not those written.
    if role.aggregation.is_some() {
        return;
    }
    for (index, rule) in role.rules.iter().enumerate() {
        let path = FieldPath::root().field("rules").index(index);
        if rule.non_resource_urls.is_empty() {
            each(rule.verbs.as_slice(), &path.field("verbs"), odd_verb, lint);
        } else if rule.resources.is_empty() {
            each(rule.verbs.as_slice(), &path.field("verbs"), odd_method, lint);
        }
        let (groups, of_rule) = (rule.api_groups.as_slice(), rule.resources.as_slice());
        group_of_impersonation(&rule.verbs, &rule.api_groups, &path, lint);
        resources(groups, of_rule, &path, lint);
    }
}

/// Rules of an AuthorizationPolicy.
pub(crate) fn lint_policy(policy: &AuthorizationPolicy, lint: &mut Lint<'_>) {
    let spec = FieldPath::root().field("spec");
    for (index, rule) in policy.resource_rules.iter().enumerate() {
        let path = spec.field("resourceRules").index(index);
        each(rule.verbs.as_slice(), &path.field("verbs"), odd_verb, lint);
        group_of_impersonation(&rule.verbs, &rule.api_groups, &path, lint);
        resources(rule.api_groups.as_slice(), &rule.resources, &path, lint);
    }
    for (index, rule) in policy.non_resource_rules.iter().enumerate() {
        let path = spec.field("nonResourceRules").index(index);
        each(rule.verbs.as_slice(), &path.field("verbs"), odd_method, lint);
    }
}

/// Rules of admission, at `path`.
pub(crate) fn lint_constraints(constraints: &Constraints, path: &FieldPath, lint: &mut Lint<'_>) {
    let lists = [
        ("resourceRules", &constraints.rules),
        ("excludeResourceRules", &constraints.exclude_rules),
    ];
    for (field, rules) in lists {
        for (index, rule) in rules.iter().enumerate() {
            let path = path.field(field).index(index);
            resources(&rule.api_groups, &rule.resources, &path, lint);
        }
    }
}

/// A verb of constrained impersonation that no request of the rule's groups has.
fn group_of_impersonation(verbs: &WildcardSet, groups: &WildcardSet, path: &FieldPath, lint: &mut Lint<'_>) {
    let verb = verbs.named().find(|verb| verb.starts_with(CONSTRAINED));
    if let Some(verb) = verb.filter(|_| !groups.is_empty() && !groups.includes(GROUP)) {
        let message = format!("kube-apiserver asks with `{verb}` only in the group `{GROUP}`: add it");
        lint.suspicious(&path.field("apiGroups"), message);
    }
}

fn resources(groups: &[String], resources: &[impl Display], path: &FieldPath, lint: &mut Lint<'_>) {
    each(groups, &path.field("apiGroups"), odd_group, lint);
    let odd = |resource: &str| match resource {
        "*/*" => None,
        resource => odd_resource(groups, resource),
    };
    each(resources, &path.field("resources"), odd, lint);
}

/// Each word as it is written.
fn each(words: &[impl Display], path: &FieldPath, odd: impl Fn(&str) -> Option<String>, lint: &mut Lint<'_>) {
    for (index, word) in words.iter().enumerate() {
        if let Some(message) = odd(&word.to_string()) {
            lint.suspicious(&path.index(index), message);
        }
    }
}

// Suggestions for misspelled words.

/// The one of `words` that is nearest to `written`, where it is near enough to be a slip:
/// singular for plural, another case, or up to a third of its letters mistyped.
pub(crate) fn nearest<'w>(written: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let lower = written.to_ascii_lowercase();
    let allowed = (written.chars().count() / 3).clamp(1, 3);
    words
        .into_iter()
        .filter(|word| *word != written)
        .map(|word| (distance(&lower, &word.to_ascii_lowercase()), word))
        .filter(|(distance, word)| *distance <= allowed || is_plural(&lower, word))
        .min()
        .map(|(_, word)| word)
}

fn is_plural(singular: &str, word: &str) -> bool {
    let stem = singular.strip_suffix('y').unwrap_or(singular);
    word.strip_prefix(stem)
        .is_some_and(|ending| ["s", "es", "ies"].contains(&ending))
}

/// How many letters must be added, left out, replaced or swapped with their neighbour
/// (optimal string alignment).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, counterpart) in other.iter().enumerate() {
            let cell = |line: &[usize], at: usize| line.get(at).copied().unwrap_or(usize::MAX - 1);
            let replaced = cell(&last, column) + usize::from(letter != counterpart);
            let mut best = replaced
                .min(cell(&last, column + 1) + 1)
                .min(cell(&next, column) + 1);
            let swapped = row > 0
                && column > 0
                && one.get(row - 1) == Some(counterpart)
                && other.get(column - 1) == Some(letter);
            if swapped {
                best = best.min(cell(&before, column - 1) + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut last, next);
    }
    last.last().copied().unwrap_or_default()
}

// Requests on the command line for what Kubernetes does not have: a misspelled resource would
// otherwise look like a refusal.

/// What is odd about the verb, group and resource that are asked for, in the words in which
/// `check` says it of a rule. A verb or group that a rule of `policies` names is taken as meant:
/// those of custom resources are known by nothing else.
#[must_use]
pub fn odd_request(target: &Target<'_>, policies: &PolicySet) -> Vec<String> {
    match target {
        Target::NonResource { verb, .. } => odd_method(verb).into_iter().collect(),
        Target::Resource(resource) => odd_resource_request(resource, policies),
    }
}

fn odd_resource_request(asked: &ResourceAttributes<'_>, policies: &PolicySet) -> Vec<String> {
    let named = |word: &str, within: for<'n> fn(&RuleWords<'n>) -> &'n [String]| {
        rule_words(policies).any(|rule| within(&rule).iter().any(|one| one == word))
    };
    let resource = match asked.subresource.as_ref() {
        "" => asked.resource.to_string(),
        subresource => format!("{}/{subresource}", asked.resource),
    };
    let verb = odd_verb(&asked.verb).filter(|_| !named(&asked.verb, |rule| rule.verbs));
    let group = odd_group(&asked.group).filter(|_| !named(&asked.group, |rule| rule.groups));
    let groups = [asked.group.to_string()];
    // A rule for several groups names resources that are of one of them alone.
    let others = impersonation::other_questions(&asked.verb, &asked.group, &resource);
    [verb, group, odd_resource(&groups, &resource), others]
        .into_iter()
        .flatten()
        .collect()
}

/// The words of one rule.
struct RuleWords<'p> {
    verbs: &'p [String],
    groups: &'p [String],
}

fn rule_words(policies: &PolicySet) -> impl Iterator<Item = RuleWords<'_>> {
    let roles = policies.roles().iter().flat_map(|role| &role.rules);
    let roles = roles.map(|rule| RuleWords {
        verbs: rule.verbs.as_slice(),
        groups: rule.api_groups.as_slice(),
    });
    let own = policies.authorization_policies();
    let own = own.flat_map(|policy| &policy.resource_rules);
    roles.chain(own.map(|rule| RuleWords {
        verbs: rule.verbs.as_slice(),
        groups: rule.api_groups.as_slice(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_has_a_nearest_word() {
        let words = ["pods", "policies", "deployments", "get", "delete"];
        for (written, meant) in [
            ("gett", Some("get")),
            ("gte", Some("get")),
            ("pod", Some("pods")),
            ("policy", Some("policies")),
            ("Pods", Some("pods")),
            ("deploymnets", Some("deployments")),
            ("widgets", None),
            ("x", None),
        ] {
            assert_eq!(nearest(written, words), meant, "{written}");
        }
    }

    #[test]
    fn distances_are_those_of_the_textbook() {
        for (one, other, expected) in [
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("ab", "ba", 1),
            ("é", "e", 1),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
            assert_eq!(distance(other, one), expected, "{other} {one}");
        }
    }
}
