//! Rules and match constraints: defaults, validation and compilation.
//!
//! Follows `validateRuleWithOperations`, `validateNamedRuleWithOperations`, `validateResources` and
//! `validateMatchResources` of `pkg/apis/admissionregistration/validation/validation.go` of
//! Kubernetes.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, NamedRuleWithOperations, RuleWithOperations,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::super::report::Report;
use super::super::{compile, names};
use crate::admission::matching::{Constraints, MatchPolicy, MatchRule, NoRules, Operations, RuleScope};
use crate::field::{FaultKind, FieldPath};
use crate::model;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
pub(crate) const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];

/// A rule of a policy or webhook, as written.
#[derive(Clone, Copy)]
pub(crate) struct WrittenRule<'r> {
    operations: &'r [String],
    api_groups: &'r [String],
    api_versions: &'r [String],
    resources: &'r [String],
    resource_names: &'r [String],
    scope: Option<&'r str>,
}

impl<'r> From<&'r NamedRuleWithOperations> for WrittenRule<'r> {
    fn from(rule: &'r NamedRuleWithOperations) -> Self {
        Self {
            operations: list(&rule.operations),
            api_groups: list(&rule.api_groups),
            api_versions: list(&rule.api_versions),
            resources: list(&rule.resources),
            resource_names: list(&rule.resource_names),
            scope: rule.scope.as_deref(),
        }
    }
}

impl<'r> From<&'r RuleWithOperations> for WrittenRule<'r> {
    fn from(rule: &'r RuleWithOperations) -> Self {
        Self {
            operations: list(&rule.operations),
            api_groups: list(&rule.api_groups),
            api_versions: list(&rule.api_versions),
            resources: list(&rule.resources),
            resource_names: &[],
            scope: rule.scope.as_deref(),
        }
    }
}

fn list(list: &Option<Vec<String>>) -> &[String] {
    list.as_deref().unwrap_or_default()
}

// === rules ===

/// Checks the rule at `path`.
pub(crate) fn validate(rule: WrittenRule<'_>, path: &FieldPath, report: &mut Report<'_>) {
    validate_names(rule.resource_names, &path.field("resourceNames"), report);
    let operations = path.field("operations");
    if rule.operations.is_empty() {
        report.required(&operations, "name at least one operation, or `*`");
    }
    wildcard_alone(rule.operations, &operations, "operations", report);
    for (index, operation) in rule.operations.iter().enumerate() {
        one_of(operation, &OPERATIONS, &operations.index(index), report);
    }
    validate_rule(rule, path, report);
}

/// Checks the rule at `path`, except for its operations.
pub(crate) fn validate_rule(rule: WrittenRule<'_>, path: &FieldPath, report: &mut Report<'_>) {
    let groups = path.field("apiGroups");
    if rule.api_groups.is_empty() {
        report.required(
            &groups,
            "name at least one API group, or `*`; the core group is `\"\"`",
        );
    }
    wildcard_alone(rule.api_groups, &groups, "API groups", report);
    validate_versions(rule.api_versions, &path.field("apiVersions"), report);
    validate_resources(rule.resources, &path.field("resources"), report);
    if let Some(scope) = rule.scope {
        one_of(scope, &SCOPES, &path.field("scope"), report);
    }
}

fn validate_names(written: &[String], path: &FieldPath, report: &mut Report<'_>) {
    let mut seen = BTreeSet::new();
    for (index, name) in written.iter().enumerate() {
        let path = path.index(index);
        report.syntax(&path, name, names::path_segment(name));
        if !seen.insert(name) {
            report.fault(FaultKind::Duplicate, &path, format!("`{name}`"));
        }
    }
}

fn validate_versions(versions: &[String], path: &FieldPath, report: &mut Report<'_>) {
    if versions.is_empty() {
        report.required(path, "name at least one API version, or `*`");
    }
    wildcard_alone(versions, path, "API versions", report);
    for (index, _) in versions
        .iter()
        .enumerate()
        .filter(|(_, version)| version.is_empty())
    {
        report.required(&path.index(index), "must not be empty");
    }
}

fn wildcard_alone(items: &[String], path: &FieldPath, what: &str, report: &mut Report<'_>) {
    if items.len() > 1 && items.iter().any(|item| item == "*") {
        let message = format!("if `*` is present, must not specify other {what}");
        report.fault(FaultKind::Invalid, path, message);
    }
}

/// Checks resources and subresources. As in the API server, an overlap is an error only if the
/// wider pattern comes first.
fn validate_resources(resources: &[String], path: &FieldPath, report: &mut Report<'_>) {
    if resources.is_empty() {
        report.required(path, "name at least one resource, or `*`");
    }
    let (mut all_of, mut on_all) = (BTreeSet::new(), BTreeSet::new());
    let mut last_is_plain = false;
    for (index, written) in resources.iter().enumerate() {
        let path = path.index(index);
        if written.is_empty() {
            report.required(&path, "must not be empty");
            continue;
        }
        let Some((resource, subresource)) = written.split_once('/') else {
            // As in Kubernetes, only the last resource without a subresource counts.
            last_is_plain = written != "*";
            continue;
        };
        if all_of.contains(resource) {
            report.invalid(
                &path,
                written,
                format!("redundant, because `{resource}/*` includes it"),
            );
        }
        if on_all.contains(subresource) {
            report.invalid(
                &path,
                written,
                format!("redundant, because `*/{subresource}` includes it"),
            );
        }
        if subresource == "*" {
            all_of.insert(resource);
        }
        if resource == "*" {
            on_all.insert(subresource);
        }
    }
    let has = |wanted: &str| resources.iter().any(|resource| resource == wanted);
    if resources.len() > 1 && has("*/*") {
        report.fault(
            FaultKind::Invalid,
            path,
            "if `*/*` is present, must not specify other resources",
        );
    }
    if has("*") && last_is_plain {
        let message = "if `*` is present, must not specify other resources without subresources";
        report.fault(FaultKind::Invalid, path, message);
    }
}

/// Compiles a rule.
pub(crate) fn compile_rule(rule: WrittenRule<'_>) -> MatchRule {
    MatchRule {
        operations: Operations::of(rule.operations),
        api_groups: rule.api_groups.to_vec(),
        api_versions: rule.api_versions.to_vec(),
        resources: rule.resources.to_vec(),
        scope: rule.scope.map_or(RuleScope::All, RuleScope::from),
        resource_names: rule.resource_names.to_vec(),
    }
}

// === match resources ===

/// `SetDefaults_MatchResources`.
pub(crate) fn default_match_resources(written: &mut MatchResources) {
    written
        .match_policy
        .get_or_insert_with(|| "Equivalent".to_owned());
    written.namespace_selector.get_or_insert_default();
    written.object_selector.get_or_insert_default();
}

/// Checks match constraints at `path`.
pub(crate) fn validate_match_resources(written: &MatchResources, path: &FieldPath, report: &mut Report<'_>) {
    let policy = path.field("matchPolicy");
    match written.match_policy.as_deref() {
        None => report.required(&policy, "`Equivalent` or `Exact`"),
        Some(text) => one_of(text, &MATCH_POLICIES, &policy, report),
    }
    validate_selector(
        &written.namespace_selector,
        &path.field("namespaceSelector"),
        report,
    );
    validate_selector(&written.object_selector, &path.field("objectSelector"), report);
    for (name, rules) in [
        ("resourceRules", &written.resource_rules),
        ("excludeResourceRules", &written.exclude_resource_rules),
    ] {
        for (index, rule) in rules.iter().flatten().enumerate() {
            validate(rule.into(), &path.field(name).index(index), report);
        }
    }
}

fn validate_selector(written: &Option<LabelSelector>, path: &FieldPath, report: &mut Report<'_>) {
    match written {
        None => report.required(path, "a selector; `{}` selects everything"),
        Some(written) => names::validate_selector(written, path, report),
    }
}

/// Checks that rules of mutation do not have `DELETE`: deleted objects cannot be changed.
pub(crate) fn validate_mutating(written: &MatchResources, path: &FieldPath, report: &mut Report<'_>) {
    let path = path.field("resourceRules").field("operations");
    for rule in written.resource_rules.iter().flatten() {
        for operation in rule.operations.iter().flatten() {
            one_of(operation, &MUTATING_OPERATIONS, &path, report);
        }
    }
}

/// Compiles match constraints.
pub(crate) fn compile_match_resources(
    written: &MatchResources,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Constraints {
    let rules = |rules: &Option<Vec<NamedRuleWithOperations>>| {
        let rules = rules.as_deref().unwrap_or_default();
        rules.iter().map(|rule| compile_rule(rule.into())).collect()
    };
    Constraints {
        namespace_selector: compile_selector(
            written.namespace_selector.as_ref(),
            &path.field("namespaceSelector"),
            report,
        ),
        object_selector: compile_selector(
            written.object_selector.as_ref(),
            &path.field("objectSelector"),
            report,
        ),
        rules: rules(&written.resource_rules),
        no_rules: NoRules::Everything,
        exclude_rules: rules(&written.exclude_resource_rules),
        match_policy: match_policy(written.match_policy.as_deref()),
    }
}

/// Parses `matchPolicy`; unknown values, which validation rejects, count as `Equivalent`.
pub(crate) fn match_policy(text: Option<&str>) -> MatchPolicy {
    if text == Some("Exact") {
        MatchPolicy::Exact
    } else {
        MatchPolicy::Equivalent
    }
}

/// Compiles a selector. If validation accepted it and compilation fails, that is an error, too: an
/// invalid selector must never end up selecting everything.
pub(crate) fn compile_selector(
    written: Option<&LabelSelector>,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> model::LabelSelector {
    match compile::label_selector(written.cloned().unwrap_or_default()) {
        Ok(selector) => selector,
        Err(fault) => {
            if report.is_valid() {
                report.fault(FaultKind::Invalid, path, fault.to_string());
            }
            model::LabelSelector::default()
        }
    }
}

/// Checks that `text` is one of `supported`.
pub(crate) fn one_of(text: &str, supported: &[&str], path: &FieldPath, report: &mut Report<'_>) {
    if !supported.contains(&text) {
        report.not_supported(path, text, supported);
    }
}
