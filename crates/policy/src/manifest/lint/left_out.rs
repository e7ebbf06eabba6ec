//! Policies and webhooks that match only what the registrations of `portcullis init`
//! leave out, so that the API server never asks about it.

use super::Lint;
use crate::engine::LabelSelector;
use crate::engine::admission::matching::{Constraints, MatchRule};
use crate::field::FieldPath;
use crate::manifest::namespace::NAME_LABEL;

/// Groups of which nothing is asked about.
const GROUPS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// Resources by group, with their subresources.
const RESOURCES: [(&str, &str); 8] = [
    ("", "events"),
    ("events.k8s.io", "events"),
    ("coordination.k8s.io", "leases"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "volumeattachments"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("", "endpoints"),
    ("discovery.k8s.io", "endpointslices"),
];

/// Those without other subresources than these.
const ALONE: [(&str, &str); 3] = [("", "nodes"), ("", "pods/binding"), ("", "serviceaccounts/token")];

/// Subresources of everything.
const SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// The namespace that is left out.
const NAMESPACE: &str = "kube-system";

/// Warns where `constraints`, whose rules stand at `path`, match nothing else.
pub(crate) fn lint(constraints: &Constraints, path: &FieldPath, lint: &mut Lint<'_>) {
    let what = if !constraints.rules.is_empty() && constraints.rules.iter().all(is_left_out) {
        "resources"
    } else if is_of_the_namespace_alone(&constraints.namespace_selector) {
        "a namespace"
    } else {
        return;
    };
    let message = format!(
        "matches only {what} that the registrations of `portcullis init` leave out, because a \
         cluster needs them while no gateway answers: with these registrations it has no effect"
    );
    lint.suspicious(path, message);
}

fn is_left_out(rule: &MatchRule) -> bool {
    let of_group = |group: &String| {
        rule.resources
            .iter()
            .all(|resource| is_resource_left_out(group, resource))
    };
    !rule.api_groups.is_empty() && rule.api_groups.iter().all(of_group)
}

/// Whether every request that `resource` of a rule means, in this group, is left out.
fn is_resource_left_out(group: &str, resource: &str) -> bool {
    let (name, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    GROUPS.contains(&group)
        || SUBRESOURCES.contains(&subresource)
        || RESOURCES.contains(&(group, name))
        || ALONE.contains(&(group, resource))
}

/// Whether it selects by its name one namespace, that one.
fn is_of_the_namespace_alone(selector: &LabelSelector) -> bool {
    let values = selector.values_of(NAME_LABEL);
    values.is_some_and(|values| values.iter().all(|name| name == NAMESPACE))
}

#[cfg(test)]
mod tests;
