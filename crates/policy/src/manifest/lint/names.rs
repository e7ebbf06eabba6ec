//! Verbs, groups and resources that nothing has, in rules of every kind.

use std::fmt::Display;

use super::Lint;
use super::impersonation::GROUP;
use super::known::{CONSTRAINED, odd_group, odd_method, odd_resource, odd_verb};
use crate::authorization::rbac::WildcardSet;
use crate::authorization::{AuthorizationPolicy, Role};
use crate::engine::admission::matching::Constraints;
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
