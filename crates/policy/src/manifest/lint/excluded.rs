//! Rules that name resources which no policy, or no webhook, is ever shown.
//!
//! Follows `excludedResourcesNamedByRule` of
//! `apiserver/pkg/admission/configuration/warning.go`: a rule with a wildcard means more than
//! such resources, and nothing is said about it.

use super::Lint;
use crate::engine::admission::matching::MatchRule;
use crate::engine::admission::{GroupVersionResource, STATIC_SUFFIX};
use crate::engine::groups;
use crate::field::FieldPath;

/// Who is to be shown what a rule names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleOwner {
    Policy,
    Webhook,
}

/// Warns of `rules` that stand at `path`; `is_static` is whether their object is.
pub(crate) fn lint(
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
            "`{name}` are never shown to {who}, so this rule has no effect on them: remove them"
        ));
    }
    if is_static || !(resource.is_policy() || is_of_webhooks(resource)) {
        return None;
    }
    Some(if owner == RuleOwner::Policy && is_of_webhooks(resource) {
        format!(
            "API servers show `{name}` to no webhook, and so to no gateway, but one of a static registration \
             (`portcullis init --static`, Kubernetes 1.37): with any other, this rule has no effect on them"
        )
    } else {
        format!(
            "`{name}` are shown only to static policies and webhooks: give this one, and what binds it, a name \
             that ends in `{STATIC_SUFFIX}`, in a file"
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
