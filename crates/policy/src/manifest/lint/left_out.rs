//! Policies and webhooks without effect, because their rules match only objects that the webhook
//! configurations of `portcullis init` leave out, or that are never sent to any policy or webhook;
//! and policies whose `objectConditions` are about objects that `/validate` does not see.

use super::super::report::Lint;
use crate::admission::matching::{Constraints, MatchRule};
use crate::admission::{CONNECT_VERBS, GroupVersionResource, STATIC_SUFFIX};
use crate::authorization::matching::{RequestedResource, ResourcePattern, Wildcard};
use crate::authorization::{self, AuthorizationPolicy, Effect, ResourceRule};
use crate::field::FieldPath;
use crate::manifest::namespace::NAME_LABEL;
use crate::model::{LabelSelector, groups};

/// Groups whose objects are not sent for review.
const GROUPS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// The namespace that the webhook configurations of `portcullis init` leave out.
const NAMESPACE: &str = "kube-system";

/// Warns if `constraints`, whose rules are at `path`, match only objects that are left out.
pub(crate) fn lint(constraints: &Constraints, path: &FieldPath, lint: &mut Lint<'_>) {
    let what = if !constraints.rules.is_empty() && constraints.rules.iter().all(is_left_out) {
        "resources"
    } else if is_of_the_namespace_alone(&constraints.namespace_selector) {
        "a namespace"
    } else {
        return;
    };
    let message = format!(
        "matches only {what} that the webhook configurations of `portcullis init` exclude, because a cluster \
        needs them while no gateway answers: with these configurations it has no effect"
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

/// Whether every request that `resource` of a rule matches in this group is left out.
fn is_resource_left_out(group: &str, resource: &str) -> bool {
    GROUPS.contains(&group) || authorization::is_left_out(group, resource)
}

/// Whether the selector selects only [`NAMESPACE`], by its name.
fn is_of_the_namespace_alone(selector: &LabelSelector) -> bool {
    let values = selector.values_of(NAME_LABEL);
    values.is_some_and(|values| values.iter().all(|name| name == NAMESPACE))
}

// Rules for resources that are never sent to a policy or to a webhook.
//
// Follows `excludedResourcesNamedByRule` of `apiserver/pkg/admission/configuration/warning.go`:
// there are no warnings about rules with a wildcard, which also match other resources.

/// What a rule belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleOwner {
    Policy,
    Webhook,
}

/// Warns of resources in `rules` at `path` that are never sent. `is_static` says whether the policy
/// or webhook configuration is static.
pub(crate) fn lint_excluded(
    rules: &[MatchRule],
    owner: RuleOwner,
    is_static: bool,
    path: &FieldPath,
    lint: &mut Lint<'_>,
) {
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index).field("resources");
        if rule
            .api_groups
            .iter()
            .chain(&rule.resources)
            .any(|word| word == "*")
        {
            continue;
        }
        for (index, resource) in rule.resources.iter().enumerate() {
            let messages = rule.api_groups.iter().map(|group| GroupVersionResource {
                group: group.into(),
                version: "".into(),
                resource: resource.into(),
            });
            let mut messages = messages.filter_map(|named| message(&named, owner, is_static));
            if let Some(message) = messages.next() {
                lint.suspicious(&path.index(index), message);
            }
        }
    }
}

/// Why a rule that names `resource` has no effect on it.
fn message(resource: &GroupVersionResource<'_>, owner: RuleOwner, is_static: bool) -> Option<String> {
    let name = &resource.resource;
    if resource.is_virtual() {
        let who = match owner {
            RuleOwner::Policy => "policies",
            RuleOwner::Webhook => "webhooks, nor by kube-apiserver since 1.37",
        };
        return Some(format!(
            "`{name}` are never sent to {who}, so this rule has no effect on them: remove them"
        ));
    }
    if is_static || !(resource.is_policy() || is_of_webhooks(resource)) {
        return None;
    }
    Some(if owner == RuleOwner::Policy && is_of_webhooks(resource) {
        format!(
            "API servers send `{name}` only to webhooks of static configurations (`portcullis init --static`, \
            Kubernetes 1.37): with any other configuration, the gateway never gets them, and this rule has \
            no effect on them"
        )
    } else {
        format!(
            "`{name}` are sent only to static policies and webhooks: give this one, and its bindings, names \
            that end in `{STATIC_SUFFIX}`, in a file"
        )
    })
}

fn is_of_webhooks(resource: &GroupVersionResource<'_>) -> bool {
    resource.group == groups::ADMISSION
        && matches!(
            resource.resource.as_ref(),
            "validatingwebhookconfigurations" | "mutatingwebhookconfigurations"
        )
}

// Denies and Limits in clusters whose API server uses no authorization webhook.

/// The verbs of requests that pass admission, without connections.
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// Warns of parts of a Deny or Limit that `admission.enforceAuthorization` cannot enforce, because
/// no AdmissionReview is sent for them.
pub(crate) fn lint_refusals(policy: &AuthorizationPolicy, lint: &mut Lint<'_>) {
    let spec = FieldPath::root().field("spec");
    match policy.effect {
        Effect::Allow => return,
        Effect::Limit => {
            let message = "`admission.enforceAuthorization` refuses writes and connections beyond this limit, \
                but not reads, which do not pass through admission";
            return lint.suspicious(&spec.field("effect"), message);
        }
        Effect::Deny => {}
    }
    for (index, rule) in policy.resource_rules.iter().enumerate() {
        if let Some(message) = unenforced(rule) {
            let message = format!("not enforced by `admission.enforceAuthorization`: {message}");
            lint.suspicious(&spec.field("resourceRules").index(index).field("verbs"), message);
        }
    }
    if !policy.non_resource_rules.is_empty() {
        let message = "not enforced by `admission.enforceAuthorization`: requests for paths do not pass through \
            admission";
        lint.suspicious(&spec.field("nonResourceRules"), message);
    }
}

/// The part of `rule` that cannot be enforced, as a message.
fn unenforced(rule: &ResourceRule) -> Option<String> {
    let names = |resource: &str, subresource: &str| {
        let requested = RequestedResource {
            resource,
            subresource: subresource.into(),
        };
        rule.api_groups.includes("") && rule.resources.iter().any(|pattern| pattern.includes(&requested))
    };
    let connects = CONNECT_VERBS
        .iter()
        .filter(|(resource, subresource, _)| names(resource, subresource));
    let partly = connects.clone().find(|(_, _, verbs)| {
        let named = verbs.iter().filter(|verb| rule.verbs.includes(verb)).count();
        named > 0 && named < verbs.len()
    });
    if let Some((resource, subresource, verbs)) = partly {
        return Some(format!(
            "a connection to `{resource}/{subresource}` does not show its verb: it is refused only if all of \
            `{}` are denied",
            verbs.join("`, `")
        ));
    }
    for (named, other) in [("update", "patch"), ("patch", "update")] {
        if rule.verbs.includes(named) && !rule.verbs.includes(other) {
            return Some(format!(
                "admission cannot distinguish `{named}` from `{other}`: name both"
            ));
        }
    }
    let connects: Vec<_> = connects.collect();
    let is_told = |verb: &str| {
        let connects_by = |(_, _, verbs): &&(&str, &str, &[&str])| verbs.contains(&verb);
        WRITES.contains(&verb) || connects.iter().any(connects_by)
    };
    let untold: Vec<&str> = rule
        .verbs
        .as_slice()
        .iter()
        .map(String::as_str)
        .filter(|verb| !is_told(verb))
        .collect();
    match untold.as_slice() {
        [] => None,
        _ if rule.verbs.is_all() => {
            Some("`*` includes reads, which do not pass through admission".to_owned())
        }
        untold => Some(format!(
            "requests with `{}` do not pass through admission",
            untold.join("`, `")
        )),
    }
}

/// Warns of `objectConditions` without effect. `is_reviewed` says whether `/validate` is known to
/// see requests of a cluster that the policy applies to.
pub(crate) fn lint_object_conditions(policy: &AuthorizationPolicy, is_reviewed: bool, lint: &mut Lint<'_>) {
    if policy.object_conditions.is_empty() {
        return;
    }
    let spec = FieldPath::root().field("spec");
    if policy.effect == Effect::Allow && !is_reviewed {
        let message = "grants nothing, because /validate is not known to see the writes to the cluster: apply \
            the webhook configurations of `portcullis init`, and set `admission: Watched` in the cluster's \
            entry of `clusters`";
        lint.suspicious(&spec.field("objectConditions"), message);
    }
    for (index, rule) in policy.resource_rules.iter().enumerate() {
        let path = spec.field("resourceRules").index(index).field("resources");
        for (index, resource) in rule.resources.iter().enumerate() {
            let is_left_out = |group: &str| is_pattern_left_out(group, resource);
            if rule.api_groups.named().all(is_left_out) {
                let message = format!(
                    "the webhook configurations of `portcullis init` exclude `{resource}`, because a cluster \
                    needs it while no gateway answers: with these configurations the rule has no effect on \
                    it"
                );
                lint.suspicious(&path.index(index), message);
            }
        }
    }
}

fn is_pattern_left_out(group: &str, resource: &ResourcePattern) -> bool {
    let name = match resource {
        ResourcePattern::Resource(name) => name.clone(),
        ResourcePattern::Subresource(Wildcard::Named(name), Wildcard::Named(subresource)) => {
            format!("{name}/{subresource}")
        }
        ResourcePattern::Everything | ResourcePattern::Subresource(..) => return false,
    };
    // The webhook for policies of this group has `failurePolicy: Ignore`, so that they can be
    // repaired while no gateway is available.
    group == groups::PORTCULLIS || authorization::is_left_out(group, &name)
}

#[cfg(test)]
mod tests;
