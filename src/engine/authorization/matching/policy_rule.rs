//! Matches one rule of an AuthorizationPolicy with one request.

use crate::engine::authorization::rbac::non_resource_url_matches;
use crate::engine::authorization::{Criterion, Effect, NonResourceRule, ResourceRule};
use crate::engine::{ResourceAttributes, Selected};

use super::cluster_scoped::ClusterScoped;
use super::narrowness::Narrowness;
use super::resource::{RequestedResource, resource_includes, resource_touches};

/// The first thing for which `rule` does not apply to `request`; `None` where it applies.
/// `selected` says whether its `namespaceSelector`, if it has one, selects
/// [`namespace_of`] the request; `scoped` knows which resources have no namespace.
#[must_use]
pub fn resource_rule_mismatch(
    effect: Effect,
    rule: &ResourceRule,
    request: &ResourceAttributes<'_>,
    selected: Option<Selected>,
    narrowness: &Narrowness<'_>,
    scoped: &ClusterScoped,
) -> Option<Criterion> {
    let narrow = || !rule.selectors.is_empty() && narrowness.implies(&rule.selectors);
    if !text_matches(effect, &rule.verbs, &request.verb) {
        Some(Criterion::Verbs)
    } else if !text_matches(effect, &rule.api_groups, &request.group) {
        Some(Criterion::ApiGroups)
    } else if !resource_matches(effect, &rule.resources, request) {
        Some(Criterion::Resources)
    } else if !is_in_namespaces(effect, &rule.namespaces, request, scoped) {
        Some(Criterion::Namespaces)
    } else if !is_selected(effect, rule, request, selected, scoped) {
        Some(Criterion::NamespaceSelector)
    } else if !has_name(effect, &rule.names, request) {
        Some(Criterion::Names)
    } else {
        match effect {
            Effect::Allow => (!rule.selectors.is_empty() && !narrow()).then_some(Criterion::Selectors),
            Effect::Deny => narrow().then_some(Criterion::UnlessSelectors),
        }
    }
}

/// The first thing for which `rule` does not apply to a request for `path`.
///
/// Paths match as in RBAC; a Deny also touches the path `*`, by which a review
/// asks about all of them.
#[must_use]
pub fn path_rule_mismatch(
    effect: Effect,
    rule: &NonResourceRule,
    path: &str,
    verb: &str,
) -> Option<Criterion> {
    let all = effect == Effect::Deny && path == "*" && !rule.paths.is_empty();
    if !text_matches(effect, &rule.verbs, verb) {
        Some(Criterion::Verbs)
    } else if !all && !rule.paths.iter().any(|url| non_resource_url_matches(url, path)) {
        Some(Criterion::Paths)
    } else {
        None
    }
}

/// The namespace whose labels a `namespaceSelector` asks for; empty for none. A
/// request for `namespaces/NAME` counts as in NAME.
#[must_use]
pub fn namespace_of<'r>(request: &'r ResourceAttributes<'_>) -> &'r str {
    let resource = RequestedResource::of(request).resource;
    if request.group.is_empty() && resource == "namespaces" && !request.name.is_empty() {
        &request.name
    } else {
        &request.namespace
    }
}

/// Whether a request is about all objects that there are, in so far as it
/// names neither object nor namespace. A requested `*` is every verb, these too.
#[must_use]
pub fn asks_for_collection(verb: &str) -> bool {
    matches!(verb, "list" | "watch" | "deletecollection" | "*")
}

/// Whether the namespace of a request is one that `pattern` stands for: `""`
/// for none, otherwise a name or with a `*` at the end a prefix of names.
#[must_use]
pub fn namespace_matches(pattern: &str, namespace: &str) -> bool {
    match (pattern.is_empty(), namespace.is_empty()) {
        (true, true) => true,
        (false, false) => super::prefix_matches(pattern, namespace),
        _ => false,
    }
}

fn text_matches(effect: Effect, written: &[String], requested: &str) -> bool {
    let touches_any = effect == Effect::Deny && requested == "*";
    written
        .iter()
        .any(|text| touches_any || text == "*" || text == requested)
}

fn resource_matches(effect: Effect, written: &[String], request: &ResourceAttributes<'_>) -> bool {
    let requested = RequestedResource::of(request);
    let matches = match effect {
        Effect::Allow => resource_includes,
        Effect::Deny => resource_touches,
    };
    written.iter().any(|pattern| matches(pattern, &requested))
}

fn is_in_namespaces(
    effect: Effect,
    written: &[String],
    request: &ResourceAttributes<'_>,
    scoped: &ClusterScoped,
) -> bool {
    written.is_empty()
        || written
            .iter()
            .any(|pattern| namespace_matches(pattern, &request.namespace))
        || touches_all_namespaces(effect, request, scoped)
}

/// Whether a Deny for some namespaces touches a request that names none.
fn touches_all_namespaces(effect: Effect, request: &ResourceAttributes<'_>, scoped: &ClusterScoped) -> bool {
    effect == Effect::Deny
        && request.namespace.is_empty()
        && asks_for_collection(&request.verb)
        && !scoped.contains(&request.group, RequestedResource::of(request).resource)
}

fn is_selected(
    effect: Effect,
    rule: &ResourceRule,
    request: &ResourceAttributes<'_>,
    selected: Option<Selected>,
    scoped: &ClusterScoped,
) -> bool {
    rule.namespace_selector.is_none()
        || match selected {
            Some(Selected::Yes) => true,
            Some(Selected::Unknown) => effect == Effect::Deny,
            Some(Selected::No) | None => touches_all_namespaces(effect, request, scoped),
        }
}

fn has_name(effect: Effect, written: &[String], request: &ResourceAttributes<'_>) -> bool {
    let across_names =
        effect == Effect::Deny && request.name.is_empty() && asks_for_collection(&request.verb);
    written.is_empty()
        || across_names
        || !request.name.is_empty() && written.iter().any(|name| *name == request.name)
}

#[cfg(test)]
mod tests;
