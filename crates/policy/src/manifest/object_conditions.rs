//! Validation of `objectConditions`: expressions about an object, and rules that name requests whose
//! object admission sees.

use super::report::Report;
use super::v1alpha1::{Condition, ResourceRule, Spec};
use crate::authorization::ObjectCondition;
use crate::engine::admission::{CONNECT_VERBS, ExpressionEnvironment};
use crate::engine::groups;
use crate::field::FieldPath;

/// Verbs of requests that write.
const WRITE_VERBS: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// Groups whose reviews come without an admission that is seen, or from components that ask for a user.
const EXCLUDED_GROUPS: [&str; 3] = [groups::ADMISSION, "authentication.k8s.io", "authorization.k8s.io"];

/// Compiles an expression, with the variables of a ValidatingAdmissionPolicy.
pub(crate) fn compile(
    condition: &Condition,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<ObjectCondition> {
    let text = &condition.expression;
    if text.trim().is_empty() {
        report.required(path, "a CEL expression over `object`, `oldObject` and `request`");
        return None;
    }
    let environment = ExpressionEnvironment::new(report.cel_version(), false);
    let compiled = report.compile(|budget| environment.condition(text, budget));
    compiled
        .map_err(|error| report.does_not_compile(path, text, &error))
        .map(|expression| ObjectCondition::new(&condition.name, text, expression.into_program()))
        .ok()
}

/// Faults of what a policy with objectConditions is about.
pub(crate) fn validate(spec: &Spec, path: &FieldPath, report: &mut Report<'_>) {
    if spec.object_conditions.is_empty() {
        return;
    }
    if spec.effect == "Limit" {
        let message = "a Limit holds for reads and paths too, which have no object: use a Deny or an Allow";
        report.forbidden(&path.field("objectConditions"), message);
    }
    if !spec.non_resource_rules.is_empty() {
        let message = "paths have no object: write another policy for them, without `objectConditions`";
        report.forbidden(&path.field("nonResourceRules"), message);
    }
    let rules = path.field("resourceRules");
    for (index, rule) in spec.resource_rules.iter().enumerate() {
        validate_rule(rule, &rules.index(index), report);
    }
}

fn validate_rule(rule: &ResourceRule, path: &FieldPath, report: &mut Report<'_>) {
    let groups = path.field("apiGroups");
    for (index, group) in rule.api_groups.iter().enumerate() {
        if group == "*" {
            report.forbidden(
                &groups.index(index),
                "name the API groups beside `objectConditions`",
            );
        } else if EXCLUDED_GROUPS.contains(&group.as_str()) {
            let message = "what is written to this group, the gateway does not see as its users write it";
            report.forbidden(&groups.index(index), message);
        }
    }
    let resources = path.field("resources");
    for (index, resource) in rule.resources.iter().enumerate() {
        if let Some(message) = why_not(resource) {
            report.forbidden(&resources.index(index), message);
        }
    }
    let connects = !rule.resources.is_empty() && rule.resources.iter().all(|resource| connects(resource));
    let verbs = path.field("verbs");
    for (index, verb) in rule.verbs.iter().enumerate() {
        let is_written = WRITE_VERBS.contains(&verb.as_str()) && (!connects || verb != "deletecollection");
        if !(is_written || connects && verb == "get") {
            let message = "beside `objectConditions` only verbs that write, each by its name: `create`, `update`, \
                           `patch`, `delete`, `deletecollection`; and `get` where all resources of the rule are \
                           subresources that connect, such as `pods/exec`";
            report.forbidden(&verbs.index(index), message);
        }
    }
    for (field, selectors) in [
        ("selectors", &rule.selectors),
        ("unlessSelectors", &rule.unless_selectors),
    ] {
        if !selectors.is_empty() {
            let message = "admission does not show by what a request is narrowed: leave it out beside \
                           `objectConditions`";
            report.forbidden(&path.field(field), message);
        }
    }
}

/// Whether every verb that a request for `resource` has connects to something.
fn connects(resource: &str) -> bool {
    let named = resource.split_once('/');
    let mut connecting = CONNECT_VERBS.iter();
    connecting.any(|(name, subresource, _)| named == Some((*name, *subresource)))
}

/// Why a rule with objectConditions may not name `resource`.
fn why_not(resource: &str) -> Option<&'static str> {
    let (name, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    match (name, subresource) {
        _ if name == "*" || subresource == "*" => Some("name the resources beside `objectConditions`"),
        ("nodes", subresource) if !subresource.is_empty() => {
            Some("API servers and kubelets ask about subresources of nodes without an object")
        }
        (_, "finalizers") => {
            Some("API servers ask about `finalizers` while an object that is not theirs is written")
        }
        ("resourceclaims", "binding" | "driver") => {
            Some("API servers ask about this while the status of a claim is written")
        }
        _ => None,
    }
}
