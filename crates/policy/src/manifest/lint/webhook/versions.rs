//! Warnings about versions that a webhook cannot be called with.

use super::Lint;
use crate::engine::admission::GroupVersionResource;
use crate::engine::admission::matching::{Equivalents, MatchPolicy, MatchRule};
use crate::engine::admission::webhook::Webhook;
use crate::field::FieldPath;

/// Warns of each rule for resources that Kubernetes also has in versions of
/// which no rule speaks. The API server converts for the webhooks that it calls
/// itself; the gateway cannot.
pub(crate) fn lint(webhook: &Webhook, path: &FieldPath, lint: &mut Lint<'_>) {
    let constraints = &webhook.constraints;
    if constraints.match_policy == MatchPolicy::Exact {
        return;
    }
    let equivalents = Equivalents::kubernetes();
    for (index, rule) in constraints.rules.iter().enumerate() {
        if let Some((asked, other)) = unspoken(rule, &constraints.rules, &equivalents) {
            let (asked, other) = (version(&asked), version(&other));
            let message = format!(
                "objects may arrive as `{other}` instead of `{asked}`, and only the API server can \
                 convert them: add `{other}` if the webhook supports it, or register the gateway \
                 only for `{asked}`, with `matchPolicy: Equivalent`"
            );
            lint.suspicious(&path.field("rules").index(index).field("apiVersions"), message);
        }
    }
}

type Resource = GroupVersionResource<'static>;

/// A resource of which `rule` speaks, and the same in a version of which none of `rules` does.
fn unspoken(
    rule: &MatchRule,
    rules: &[MatchRule],
    equivalents: &Equivalents,
) -> Option<(Resource, Resource)> {
    for group in &rule.api_groups {
        for resource in &rule.resources {
            let plain = resource.split('/').next().unwrap_or_default();
            for all in equivalents.names(group, plain) {
                let asked = all.iter().find(|one| speaks(rule, one, resource));
                let other = all
                    .iter()
                    .find(|one| !rules.iter().any(|rule| speaks(rule, one, resource)));
                if let (Some(asked), Some(other)) = (asked, other) {
                    return Some((asked.clone(), other.clone()));
                }
            }
        }
    }
    None
}

/// Whether `rule` has `resource` as it is written, or all, in this group and version.
fn speaks(rule: &MatchRule, name: &Resource, resource: &str) -> bool {
    let has = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
    has(&rule.api_groups, &name.group)
        && has(&rule.api_versions, &name.version)
        && (has(&rule.resources, resource) || rule.resources.iter().any(|one| one == "*/*"))
}

fn version(name: &Resource) -> String {
    match name.group.as_ref() {
        "" => name.version.to_string(),
        group => format!("{group}/{}", name.version),
    }
}
