//! Validation of AuthorizationPolicy. The `objectConditions` are expressions about an object, and
//! only allowed with rules for requests whose object admission sees.

use std::collections::{BTreeMap, HashSet};

use super::report::Report;
use super::v1alpha1::{
    AuthorizationPolicy, Condition, NonResourceRule, Requirement, ResourceRule, Selectors, Spec, Subject,
};
use super::{compile, names};
use crate::admission::{CONNECT_VERBS, ExpressionEnvironment};
use crate::authorization::matching::NamespacePattern;
use crate::authorization::{self, ConditionError, ObjectCondition};
use crate::field::{FaultKind, FieldPath};
use crate::model::{Time, Validity, groups};

/// The most conditions, which is the limit for one webhook of an AuthorizationConfiguration.
const MAX_CONDITIONS: usize = 64;

/// The most pairs of a subject and a rule, because each pair is indexed.
const MAX_SUBJECT_RULES: usize = 200_000;

/// Validates `policy`, and compiles its conditions.
pub(crate) fn validate(policy: &AuthorizationPolicy, report: &mut Report<'_>) -> compile::CompiledParts {
    names::validate_cluster_scoped(&policy.metadata, report);
    let path = FieldPath::root().field("spec");
    let spec = &policy.spec;
    report.required_one_of(&path.field("effect"), &spec.effect, &["Allow", "Deny", "Limit"]);
    if !spec.mode.is_empty() {
        report.required_one_of(&path.field("mode"), &spec.mode, &["Enforce", "Shadow"]);
    }
    if spec.subjects.is_empty() {
        report.required(
            &path.field("subjects"),
            "a policy needs at least one subject; the Group `*` is everybody",
        );
    }
    validate_requests(spec, "excludeSubjects", &path, report);
    let conditions = compile_conditions(
        &spec.conditions,
        &path.field("conditions"),
        report,
        compile_condition,
    );
    let written = &spec.object_conditions;
    let object_conditions = compile_conditions(
        written,
        &path.field("objectConditions"),
        report,
        compile_object_conditions,
    );
    validate_object_conditions(spec, &path, report);
    validate_failure_policy(spec, &path.field("failurePolicy"), report);
    if spec.liftable && spec.effect == "Allow" {
        let message = "allowed only in a Deny or Limit: an AccessRequest cannot lift an Allow";
        report.forbidden(&path.field("liftable"), message);
    }
    compile::CompiledParts {
        conditions,
        object_conditions,
        validity: validity(spec, &path, report),
    }
}

/// Validates subjects and rules of a policy or invariant. `excluded` is the name of the field with
/// the excluded subjects.
pub(crate) fn validate_requests(spec: &Spec, excluded: &str, path: &FieldPath, report: &mut Report<'_>) {
    validate_subjects(&spec.subjects, &path.field("subjects"), report);
    validate_subjects(&spec.exclude_subjects, &path.field(excluded), report);
    validate_rules(spec, path, report);
    validate_product(spec, path, report);
}

fn validate_product(spec: &Spec, path: &FieldPath, report: &mut Report<'_>) {
    let subjects = spec.subjects.len() + spec.exclude_subjects.len();
    let rules = spec.resource_rules.len() + spec.non_resource_rules.len();
    if subjects.saturating_mul(rules) > MAX_SUBJECT_RULES {
        let message = format!(
            "{subjects} subjects times {rules} rules: at most {MAX_SUBJECT_RULES}; name groups instead of \
            users, or split the object"
        );
        report.fault(FaultKind::TooMany, path, message);
    }
}

/// The period of `notBefore` and `notAfter`.
fn validity(spec: &Spec, path: &FieldPath, report: &mut Report<'_>) -> Validity {
    let end = path.field("notAfter");
    let mut read = |text: &Option<String>, path| text.as_deref().and_then(|text| time(text, path, report));
    let validity = Validity {
        not_before: read(&spec.not_before, &path.field("notBefore")),
        not_after: read(&spec.not_after, &end),
    };
    if let (Some(not_before), Some(not_after)) = (validity.not_before, validity.not_after)
        && not_after <= not_before
    {
        let message =
            format!("must be after `notBefore`, which is {not_before}: the policy would never be in force");
        report.invalid(&end, &not_after.to_string(), message);
    }
    validity
}

/// Parses a time.
pub(crate) fn time(text: &str, path: &FieldPath, report: &mut Report<'_>) -> Option<Time> {
    let time = Time::parse(text);
    if time.is_none() {
        report.invalid(
            path,
            text,
            "must be a time in RFC 3339, such as `2026-12-01T08:00:00Z`",
        );
    }
    time
}

fn validate_failure_policy(spec: &Spec, path: &FieldPath, report: &mut Report<'_>) {
    match spec.failure_policy.as_str() {
        "" => {}
        _ if spec.effect == "Allow" => {
            report.forbidden(
                path,
                "allowed only in a Deny or Limit: an Allow whose condition fails never applies",
            );
        }
        policy => report.required_one_of(path, policy, &["Deny", "NoOpinion"]),
    }
}

// === conditions ===

fn compile_conditions<C>(
    conditions: &[Condition],
    path: &FieldPath,
    report: &mut Report<'_>,
    compile: impl Fn(&Condition, &FieldPath, &mut Report<'_>) -> Option<C>,
) -> Vec<C> {
    if conditions.len() > MAX_CONDITIONS {
        let message = format!("{} conditions: at most {MAX_CONDITIONS}", conditions.len());
        report.fault(FaultKind::TooMany, path, message);
        return Vec::new();
    }
    let mut names = HashSet::new();
    let mut compiled = Vec::with_capacity(conditions.len());
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        validate_condition_name(&condition.name, &mut names, &path.field("name"), report);
        compiled.extend(compile(condition, &path.field("expression"), report));
    }
    compiled
}

fn validate_condition_name<'p>(
    name: &'p str,
    names: &mut HashSet<&'p str>,
    path: &FieldPath,
    report: &mut Report<'_>,
) {
    if name.is_empty() {
        report.required(path, "a condition needs a name, which messages contain");
    } else if !names.insert(name) {
        report.fault(FaultKind::Duplicate, path, format!("`{name}`"));
    } else {
        report.syntax(path, name, names::qualified_name(name));
    }
}

fn compile_condition(
    condition: &Condition,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<authorization::Condition> {
    if condition.expression.trim().is_empty() {
        report.required(path, "a CEL expression over `request`");
        return None;
    }
    let text = &condition.expression;
    let version = report.cel_version();
    report
        .compile(|budget| authorization::Condition::compile_within(version, &condition.name, text, budget))
        .map_err(|fault| match fault {
            ConditionError::Invalid(error) => report.does_not_compile(path, text, &error),
            fault => report.fault(FaultKind::Invalid, path, fault.to_string()),
        })
        .ok()
}

// The rules of a policy: resources, paths, and selectors of requests.

fn validate_rules(spec: &Spec, path: &FieldPath, report: &mut Report<'_>) {
    if spec.resource_rules.is_empty() && spec.non_resource_rules.is_empty() {
        let message = "needs at least one rule, here or in `nonResourceRules`";
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
    validate_each(
        &rule.verbs,
        &path.field("verbs"),
        "a rule needs at least one verb",
        report,
        verb,
    );
    let groups = "a rule needs at least one API group; the core group is `\"\"`";
    validate_each(
        &rule.api_groups,
        &path.field("apiGroups"),
        groups,
        report,
        |group, path, report| match group {
            "" | "*" => {}
            group => report.syntax(path, group, names::dns_subdomain(group)),
        },
    );
    validate_each(
        &rule.resources,
        &path.field("resources"),
        "a rule needs at least one resource",
        report,
        resource,
    );
    for (index, namespace) in rule.namespaces.iter().enumerate() {
        validate_namespace(namespace, &path.field("namespaces").index(index), report);
    }
    validate_exclude_namespaces(rule, path, report);
    validate_namespace_selector(rule, path, report);
    for (index, name) in rule.names.iter().enumerate().filter(|(_, name)| name.is_empty()) {
        report.invalid(&path.field("names").index(index), name, "must not be empty");
    }
    let (selectors, unless) = (path.field("selectors"), path.field("unlessSelectors"));
    if effect == "Deny" && !rule.selectors.is_empty() {
        report.forbidden(
            &selectors,
            "allowed only in an Allow or Limit: use `unlessSelectors` in a Deny",
        );
    }
    if matches!(effect, "Allow" | "Limit") && !rule.unless_selectors.is_empty() {
        report.forbidden(
            &unless,
            "allowed only in a Deny: use `selectors` in an Allow or Limit",
        );
    }
    validate_selectors(&rule.selectors, &selectors, report);
    validate_selectors(&rule.unless_selectors, &unless, report);
}

/// Validates `excludeNamespaces`. It must not exclude every namespace of the rule.
fn validate_exclude_namespaces(rule: &ResourceRule, path: &FieldPath, report: &mut Report<'_>) {
    let path = path.field("excludeNamespaces");
    for (index, namespace) in rule.exclude_namespaces.iter().enumerate() {
        validate_namespace(namespace, &path.index(index), report);
    }
    let patterns = |written: &[String]| -> Vec<NamespacePattern> {
        written.iter().cloned().map(NamespacePattern::from).collect()
    };
    let (mut all, excluded) = (patterns(&rule.namespaces), patterns(&rule.exclude_namespaces));
    if all.is_empty() {
        all.push(NamespacePattern::Prefix(String::new()));
        // Requests without a namespace never match a namespace selector.
        all.extend(
            rule.namespace_selector
                .is_none()
                .then_some(NamespacePattern::ClusterScope),
        );
    }
    let is_excluded = |one: &NamespacePattern| excluded.iter().any(|other| other.covers(one));
    if all.iter().all(is_excluded) {
        let message = "every namespace of the rule is excluded, so it matches nothing: remove the rule, or \
                       exclude fewer";
        report.fault(FaultKind::Invalid, &path, message);
    }
}

fn validate_namespace_selector(rule: &ResourceRule, path: &FieldPath, report: &mut Report<'_>) {
    let Some(written) = &rule.namespace_selector else {
        return;
    };
    let path = path.field("namespaceSelector");
    names::validate_selector(written, &path, report);
    let labels = written.match_labels.as_ref().is_none_or(BTreeMap::is_empty);
    if labels && written.match_expressions.as_ref().is_none_or(Vec::is_empty) {
        let message =
            "an empty selector selects every namespace: leave it out, or write `namespaces: [\"*\"]`";
        report.fault(FaultKind::Invalid, &path, message);
    }
    // An invalid selector must never end up selecting everything.
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
    validate_each(
        &rule.verbs,
        &path.field("verbs"),
        "a rule needs at least one verb",
        report,
        verb,
    );
    validate_each(
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

/// Checks that there is at least one value, and each value by `check`.
fn validate_each(
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
        // The prefix is valid if it is the beginning of a valid name.
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
        names::validate_requirement_parts(
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

// The subjects of a policy or exception.

pub(crate) fn validate_subjects(subjects: &[Subject], path: &FieldPath, report: &mut Report<'_>) {
    for (index, subject) in subjects.iter().enumerate() {
        validate_subject(subject, &path.index(index), report);
    }
}

fn validate_subject(subject: &Subject, path: &FieldPath, report: &mut Report<'_>) {
    if subject.name.is_empty() {
        report.required(&path.field("name"), "a subject needs a name");
    }
    match subject.kind.as_str() {
        "ServiceAccount" => validate_service_account(subject, path, report),
        "User" | "Group" => {
            trailing_star(&subject.name, &path.field("name"), report);
            if !subject.namespace.is_empty() {
                report.forbidden(
                    &path.field("namespace"),
                    format!("a {} has no namespace", subject.kind),
                );
            }
            if !subject.api_group.is_empty() && subject.api_group != groups::RBAC {
                report.not_supported(&path.field("apiGroup"), &subject.api_group, &[groups::RBAC]);
            }
        }
        kind => report.required_one_of(&path.field("kind"), kind, &["ServiceAccount", "User", "Group"]),
    }
}

fn validate_service_account(subject: &Subject, path: &FieldPath, report: &mut Report<'_>) {
    let name = path.field("name");
    if subject.name.contains('*') {
        let message = "patterns are not supported for service accounts: use the Group \
                       `system:serviceaccounts:NAMESPACE`";
        report.invalid(&name, &subject.name, message);
    } else if !subject.name.is_empty() {
        report.syntax(&name, &subject.name, names::dns_subdomain(&subject.name));
    }
    match subject.namespace.as_str() {
        "" => report.required(&path.field("namespace"), "a service account needs a namespace"),
        namespace => report.syntax(&path.field("namespace"), namespace, names::dns_label(namespace)),
    }
    if !subject.api_group.is_empty() {
        report.not_supported(&path.field("apiGroup"), &subject.api_group, &[""]);
    }
}

fn trailing_star(value: &str, path: &FieldPath, report: &mut Report<'_>) {
    if value.strip_suffix('*').unwrap_or(value).contains('*') {
        report.invalid(path, value, "`*` is allowed only once, at the end");
    }
}

/// The verbs of write requests.
const WRITE_VERBS: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// Groups whose writes the gateway does not see in admission, or whose access reviews come from
/// components on behalf of a user.
const EXCLUDED_GROUPS: [&str; 3] = [groups::ADMISSION, "authentication.k8s.io", "authorization.k8s.io"];

/// Compiles an object condition, with the variables of a ValidatingAdmissionPolicy.
fn compile_object_conditions(
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

/// Validates that a policy with objectConditions only has rules for requests with an object.
fn validate_object_conditions(spec: &Spec, path: &FieldPath, report: &mut Report<'_>) {
    if spec.object_conditions.is_empty() {
        return;
    }
    if spec.effect == "Limit" {
        let message = "a Limit also applies to reads and paths, which have no object: use a Deny or an Allow";
        report.forbidden(&path.field("objectConditions"), message);
    }
    if !spec.non_resource_rules.is_empty() {
        let message = "paths have no object: write another policy for them, without `objectConditions`";
        report.forbidden(&path.field("nonResourceRules"), message);
    }
    let rules = path.field("resourceRules");
    for (index, rule) in spec.resource_rules.iter().enumerate() {
        validate_conditioned_rule(rule, &rules.index(index), report);
    }
}

fn validate_conditioned_rule(rule: &ResourceRule, path: &FieldPath, report: &mut Report<'_>) {
    let groups = path.field("apiGroups");
    for (index, group) in rule.api_groups.iter().enumerate() {
        if group == "*" {
            report.forbidden(
                &groups.index(index),
                "with `objectConditions`, name the API groups",
            );
        } else if EXCLUDED_GROUPS.contains(&group.as_str()) {
            let message =
                "the gateway does not see writes to this group in the form in which users send them";
            report.forbidden(&groups.index(index), message);
        }
    }
    let resources = path.field("resources");
    for (index, resource) in rule.resources.iter().enumerate() {
        if let Some(message) = forbidden_resource_reason(resource) {
            report.forbidden(&resources.index(index), message);
        }
    }
    let connects = !rule.resources.is_empty()
        && rule
            .resources
            .iter()
            .all(|resource| is_connect_subresource(resource));
    let verbs = path.field("verbs");
    for (index, verb) in rule.verbs.iter().enumerate() {
        let is_written = WRITE_VERBS.contains(&verb.as_str()) && (!connects || verb != "deletecollection");
        if !(is_written || connects && verb == "get") {
            let message = "with `objectConditions`, only verbs that write are allowed, each by its name: \
                `create`, `update`, `patch`, `delete`, `deletecollection`; and `get` if all resources of the \
                rule are subresources that connect, such as `pods/exec`";
            report.forbidden(&verbs.index(index), message);
        }
    }
    for (field, selectors) in [
        ("selectors", &rule.selectors),
        ("unlessSelectors", &rule.unless_selectors),
    ] {
        if !selectors.is_empty() {
            let message = "admission does not see the selectors of a request: remove this, or \
                `objectConditions`";
            report.forbidden(&path.field(field), message);
        }
    }
}

/// Whether every request for `resource` is a CONNECT.
fn is_connect_subresource(resource: &str) -> bool {
    let named = resource.split_once('/');
    let mut connecting = CONNECT_VERBS.iter();
    connecting.any(|(name, subresource, _)| named == Some((*name, *subresource)))
}

/// Why a rule of a policy with objectConditions may not name `resource`.
fn forbidden_resource_reason(resource: &str) -> Option<&'static str> {
    let (name, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    match (name, subresource) {
        _ if name == "*" || subresource == "*" => Some("with `objectConditions`, name the resources"),
        ("nodes", subresource) if !subresource.is_empty() => {
            Some("API servers and kubelets check access to subresources of nodes without an object")
        }
        (_, "finalizers") => Some("API servers check access to `finalizers` while another object is written"),
        ("resourceclaims", "binding" | "driver") => {
            Some("API servers check access to this while the status of a claim is written")
        }
        _ => None,
    }
}
