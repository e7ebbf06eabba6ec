//! What a policy is about: resources, paths, and the selectors of requests.

use std::collections::BTreeMap;

use crate::field::{FaultKind, FieldPath};
use crate::manifest::report::Report;
use crate::manifest::v1alpha1::{NonResourceRule, Requirement, ResourceRule, Selectors, Spec};
use crate::manifest::{compile, names, selector};

pub(crate) fn validate_rules(spec: &Spec, path: &FieldPath, report: &mut Report<'_>) {
    if spec.resource_rules.is_empty() && spec.non_resource_rules.is_empty() {
        let message = "a policy needs at least one rule, here or in `nonResourceRules`";
        report.required(&path.field("resourceRules"), message);
    }
    let resource_rules = path.field("resourceRules");
    for (index, rule) in spec.resource_rules.iter().enumerate() {
        validate_resource_rule(rule, &spec.effect, &resource_rules.index(index), report);
    }
    let non_resource_rules = path.field("nonResourceRules");
    for (index, rule) in spec.non_resource_rules.iter().enumerate() {
        validate_non_resource_rule(rule, &non_resource_rules.index(index), report);
    }
}

fn validate_resource_rule(rule: &ResourceRule, effect: &str, path: &FieldPath, report: &mut Report<'_>) {
    each(
        &rule.verbs,
        &path.field("verbs"),
        "a rule needs at least one verb",
        report,
        verb,
    );
    let groups = "a rule needs at least one API group; the core group is `\"\"`";
    each(
        &rule.api_groups,
        &path.field("apiGroups"),
        groups,
        report,
        |group, path, report| match group {
            "" | "*" => {}
            group => report.syntax(path, group, names::dns_subdomain(group)),
        },
    );
    each(
        &rule.resources,
        &path.field("resources"),
        "a rule needs at least one resource",
        report,
        resource,
    );
    for (index, namespace) in rule.namespaces.iter().enumerate() {
        validate_namespace(namespace, &path.field("namespaces").index(index), report);
    }
    validate_namespace_selector(rule, path, report);
    for (index, name) in rule.names.iter().enumerate().filter(|(_, name)| name.is_empty()) {
        report.invalid(&path.field("names").index(index), name, "must not be empty");
    }
    let (selectors, unless) = (path.field("selectors"), path.field("unlessSelectors"));
    if effect == "Deny" && !rule.selectors.is_empty() {
        report.forbidden(
            &selectors,
            "allowed only in an Allow: use `unlessSelectors` in a Deny",
        );
    }
    if effect == "Allow" && !rule.unless_selectors.is_empty() {
        report.forbidden(&unless, "allowed only in a Deny: use `selectors` in an Allow");
    }
    validate_selectors(&rule.selectors, &selectors, report);
    validate_selectors(&rule.unless_selectors, &unless, report);
}

fn validate_namespace_selector(rule: &ResourceRule, path: &FieldPath, report: &mut Report<'_>) {
    let Some(written) = &rule.namespace_selector else {
        return;
    };
    let path = path.field("namespaceSelector");
    selector::validate(written, &path, report);
    let labels = written.match_labels.as_ref().is_none_or(BTreeMap::is_empty);
    if labels && written.match_expressions.as_ref().is_none_or(Vec::is_empty) {
        let message =
            "an empty selector selects every namespace: leave it out, or write `namespaces: [\"*\"]`";
        report.fault(FaultKind::Invalid, &path, message);
    }
    // It must never come to select everything.
    if report.is_valid()
        && let Err(fault) = compile::label_selector(written.clone())
    {
        report.fault(FaultKind::Invalid, &path, fault.to_string());
    }
    if rule.namespaces.iter().any(String::is_empty) {
        let message = "requests without a namespace (`\"\"` in `namespaces`) have no labels: write a \
                       separate rule for them";
        report.forbidden(&path, message);
    }
}

fn validate_non_resource_rule(rule: &NonResourceRule, path: &FieldPath, report: &mut Report<'_>) {
    each(
        &rule.verbs,
        &path.field("verbs"),
        "a rule needs at least one verb",
        report,
        verb,
    );
    each(
        &rule.paths,
        &path.field("paths"),
        "a rule needs at least one path",
        report,
        |value, path, report| {
            if value != "*" && !value.starts_with('/') {
                report.invalid(path, value, "must begin with `/`, or be `*`");
            }
        },
    );
}

/// Checks that there is at least one value, and each by `check`.
fn each(
    values: &[String],
    path: &FieldPath,
    none: &str,
    report: &mut Report<'_>,
    check: impl Fn(&str, &FieldPath, &mut Report<'_>),
) {
    if values.is_empty() {
        report.required(path, none);
    }
    for (index, value) in values.iter().enumerate() {
        check(value, &path.index(index), report);
    }
}

fn verb(value: &str, path: &FieldPath, report: &mut Report<'_>) {
    match value {
        "*" => {}
        "" => report.required(path, "a verb, or `*`"),
        _ if value.contains('*') => report.invalid(path, value, "must not contain `*`, except `*` alone"),
        _ => {}
    }
}

fn resource(value: &str, path: &FieldPath, report: &mut Report<'_>) {
    let part = |part: &str| !part.is_empty() && (part == "*" || !part.contains(['*', '/']));
    match value.split_once('/') {
        Some(("*", "*")) => {
            let message = "write `*` for all resources and subresources, `*/SUBRESOURCE` for one \
                 subresource of all resources";
            report.invalid(path, value, message);
        }
        Some((resource, subresource)) if part(resource) && part(subresource) => {}
        None if part(value) => {}
        _ => {
            let message = "must be `*`, `RESOURCE`, `RESOURCE/SUBRESOURCE`, `RESOURCE/*` or `*/SUBRESOURCE`";
            report.invalid(path, value, message);
        }
    }
}

fn validate_namespace(value: &str, path: &FieldPath, report: &mut Report<'_>) {
    match value.strip_suffix('*') {
        // Whatever follows makes a name of the prefix, or nothing can.
        Some("") => {}
        Some(prefix) => report.syntax(path, value, names::dns_label(&format!("{prefix}0"))),
        None if value.is_empty() => {}
        None => report.syntax(path, value, names::dns_label(value)),
    }
}

// === selectors ===

fn validate_selectors(selectors: &Selectors, path: &FieldPath, report: &mut Report<'_>) {
    for (index, requirement) in selectors.field.iter().enumerate() {
        validate_field_requirement(requirement, &path.field("field").index(index), report);
    }
    for (index, requirement) in selectors.label.iter().enumerate() {
        selector::validate_parts(
            &requirement.key,
            &requirement.operator,
            &requirement.values,
            &path.field("label").index(index),
            report,
        );
    }
}

fn validate_field_requirement(requirement: &Requirement, path: &FieldPath, report: &mut Report<'_>) {
    if requirement.key.is_empty() {
        report.required(&path.field("key"), "the path of a field, such as `metadata.name`");
    }
    match requirement.operator.as_str() {
        "In" | "NotIn" if requirement.values.is_empty() => {
            let message = format!("the operator `{}` needs values", requirement.operator);
            report.required(&path.field("values"), message);
        }
        operator => report.required_one_of(&path.field("operator"), operator, &["In", "NotIn"]),
    }
}
