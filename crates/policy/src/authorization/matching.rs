//! Matching of AuthorizationPolicies, one file for each kind of field.
//!
//! RBAC's own matching is in [`rbac`](super::rbac); AuthorizationPolicies add this to it. An Allow
//! applies if the request is *within* a rule, a Deny if the request *touches* a rule, and a Limit
//! if the request is within none of its rules. So every function here checks whether a request is
//! within a rule of an Allow or Limit, or touches a rule of a Deny:
//!
//! | requested           | within (Allow, Limit) | touches (Deny)                          |
//! |---------------------|-----------------------|-----------------------------------------|
//! | verb or group `*`   | a rule's `*` only     | any                                     |
//! | resource `*`        | a rule's `*` only     | any; with a subresource, any that has it |
//! | no namespace        | `""` only             | also any, for a list, watch, deletecollection or `*`, unless known to be cluster-scoped |
//! | namespaceSelector, no namespace | nothing    | as above                                |
//! | namespaceSelector, unknown labels | what the name proves | what the name does not rule out |
//! | no name             | nothing               | also any, for a list, watch, deletecollection or `*` |
//! | selectors           | at least `selectors`  | not at least `unlessSelectors`          |

mod cluster_scoped;
mod resource;

use super::rbac::{WildcardSet, subject_applies};
use super::{Criterion, Effect, NonResourceRule, ResourceRule, RuleMatch, Subject, SubjectKind};
use crate::model::{LabelSelector, ResourceAttributes, SelectorMatch, User};

pub use cluster_scoped::{ClusterScoped, NamespacePattern, is_known_cluster_scoped};
pub use resource::{Narrowness, RequestedResource, ResourcePattern, Wildcard};

// Compares one rule of an AuthorizationPolicy with one request.

/// The resource name of Namespaces.
const NAMESPACES: &str = "namespaces";

/// Whether `request` is within `rule` of an Allow or Limit, or touches `rule` of a Deny. `selected`
/// returns whether the rule's `namespaceSelector` selects [`selectable_namespace`] the request; `scoped`
/// contains the custom resources that are known to be cluster-scoped.
pub fn compare_resource_rule(
    effect: Effect,
    rule: &ResourceRule,
    request: &ResourceAttributes<'_>,
    selected: impl FnOnce(&LabelSelector) -> SelectorMatch,
    narrowness: &Narrowness<'_>,
    scoped: &ClusterScoped,
) -> RuleMatch {
    let asks = !rule.selectors.is_empty();
    let is_narrow = || asks && narrowness.implies(&rule.selectors);
    if !word_matches(effect, &rule.verbs, &request.verb) {
        RuleMatch::Mismatch(Criterion::Verbs)
    } else if !word_matches(effect, &rule.api_groups, &request.group) {
        RuleMatch::Mismatch(Criterion::ApiGroups)
    } else if !resource_matches(effect, &rule.resources, request) {
        RuleMatch::Mismatch(Criterion::Resources)
    } else if !is_in_namespaces(effect, &rule.namespaces, request, scoped) {
        RuleMatch::Mismatch(Criterion::Namespaces)
    } else if is_excluded(effect, &rule.exclude_namespaces, request, scoped) {
        RuleMatch::Mismatch(Criterion::ExcludeNamespaces)
    } else if !is_selected(effect, rule, request, selected, scoped) {
        RuleMatch::Mismatch(Criterion::NamespaceSelector)
    } else if !has_name(effect, &rule.names, request) {
        RuleMatch::Mismatch(Criterion::Names)
    } else {
        match effect {
            Effect::Allow | Effect::Limit => RuleMatch::when(!asks || is_narrow(), Criterion::Selectors),
            Effect::Deny => RuleMatch::when(!is_narrow(), Criterion::UnlessSelectors),
        }
    }
}

/// Whether a request for `path` is within `rule` of an Allow or Limit, or touches `rule` of a Deny.
///
/// Paths match as in RBAC. A Deny also touches the path `*`, with which a review asks about all
/// paths.
pub fn compare_path_rule(effect: Effect, rule: &NonResourceRule, path: &str, verb: &str) -> RuleMatch {
    let all = effect == Effect::Deny && path == "*" && !rule.paths.is_empty();
    if !word_matches(effect, &rule.verbs, verb) {
        return RuleMatch::Mismatch(Criterion::Verbs);
    }
    let is_there = all || rule.paths.iter().any(|pattern| pattern.matches(path));
    RuleMatch::when(is_there, Criterion::Paths)
}

/// The namespace whose labels a `namespaceSelector` is matched with; empty for none. A request for
/// `namespaces/NAME` counts as one in NAME.
#[must_use]
pub fn selectable_namespace<'r>(request: &'r ResourceAttributes<'_>) -> &'r str {
    if request.group.is_empty()
        && !request.name.is_empty()
        && request.resource.starts_with(NAMESPACES)
        && RequestedResource::of(request).resource == NAMESPACES
    {
        &request.name
    } else {
        &request.namespace
    }
}

/// Whether a request with this verb is for all objects or namespaces, if it does not name one. A
/// requested `*` includes these verbs.
#[must_use]
pub fn is_collection_verb(verb: &str) -> bool {
    matches!(verb, "list" | "watch" | "deletecollection" | "*")
}

fn word_matches(effect: Effect, written: &WildcardSet, requested: &str) -> bool {
    match effect {
        Effect::Allow | Effect::Limit => written.includes(requested),
        Effect::Deny => written.touches(requested),
    }
}

fn resource_matches(effect: Effect, written: &[ResourcePattern], request: &ResourceAttributes<'_>) -> bool {
    let requested = RequestedResource::of(request);
    written.iter().any(|pattern| match effect {
        Effect::Allow | Effect::Limit => pattern.includes(&requested),
        Effect::Deny => pattern.touches(&requested),
    })
}

fn is_in_namespaces(
    effect: Effect,
    written: &[NamespacePattern],
    request: &ResourceAttributes<'_>,
    scoped: &ClusterScoped,
) -> bool {
    written.is_empty()
        || written.iter().any(|pattern| pattern.matches(&request.namespace))
        || touches_all_namespaces(effect, request, scoped)
}

fn is_excluded(
    effect: Effect,
    written: &[NamespacePattern],
    request: &ResourceAttributes<'_>,
    scoped: &ClusterScoped,
) -> bool {
    let is_one = |namespace: &str| written.iter().any(|pattern| pattern.matches(namespace));
    match effect {
        _ if written.is_empty() => false,
        Effect::Allow | Effect::Limit => {
            is_one(&request.namespace)
                || is_one(selectable_namespace(request))
                || is_for_all_namespaces(request, scoped)
        }
        Effect::Deny => is_one(&request.namespace) && !is_for_all_namespaces(request, scoped),
    }
}

/// Whether a Deny for certain namespaces touches this request because it is for all namespaces.
fn touches_all_namespaces(effect: Effect, request: &ResourceAttributes<'_>, scoped: &ClusterScoped) -> bool {
    effect == Effect::Deny && is_for_all_namespaces(request, scoped)
}

/// Whether the request is for the objects of all namespaces.
fn is_for_all_namespaces(request: &ResourceAttributes<'_>, scoped: &ClusterScoped) -> bool {
    request.namespace.is_empty()
        && is_collection_verb(&request.verb)
        && !scoped.contains(&request.group, RequestedResource::of(request).resource)
}

fn is_selected(
    effect: Effect,
    rule: &ResourceRule,
    request: &ResourceAttributes<'_>,
    selected: impl FnOnce(&LabelSelector) -> SelectorMatch,
    scoped: &ClusterScoped,
) -> bool {
    let Some(selector) = &rule.namespace_selector else {
        return true;
    };
    match selected(selector) {
        SelectorMatch::Yes => true,
        SelectorMatch::Unknown => effect == Effect::Deny,
        SelectorMatch::No => touches_all_namespaces(effect, request, scoped),
    }
}

fn has_name(effect: Effect, written: &[String], request: &ResourceAttributes<'_>) -> bool {
    let across_names = effect == Effect::Deny && request.name.is_empty() && is_collection_verb(&request.verb);
    written.is_empty()
        || across_names
        || !request.name.is_empty() && written.iter().any(|name| *name == request.name)
}

// Compares a subject of a policy with the user of a request.

/// Whether `subject` matches `user`. A `*` at the end of a User's or Group's name makes it a
/// prefix; `*` alone matches all users, even those without groups.
#[must_use]
pub fn subject_matches(subject: &Subject, user: &User<'_>) -> bool {
    let matches = |name: &str| match subject.name.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == subject.name,
    };
    match subject.kind {
        SubjectKind::User => matches(&user.name),
        SubjectKind::Group => subject.name == "*" || user.groups.iter().any(|group| matches(group)),
        SubjectKind::ServiceAccount => subject_applies(subject, user, ""),
    }
}

#[cfg(test)]
mod tests;
