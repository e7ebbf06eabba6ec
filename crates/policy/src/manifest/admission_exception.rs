//! Validation of AdmissionException.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{MatchResources, NamedRuleWithOperations};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::admission::{
    compile_match_resources, conditions, default_match_resources, validate_match_resources,
};
use super::authorization_policy::{time, validate_subjects};
use super::report::Report;
use super::v1alpha1::{AdmissionException, ExceptionSpec};
use super::{compile, names, namespace};
use crate::admission::exceptions::Exception;
use crate::field::{FaultKind, FieldPath};

/// The longest reason, in bytes. It is part of each response to a request that the exception
/// excuses.
const REASON_BYTES: usize = 1024;

/// Validates and compiles the exception. Errors are added to `report`, and then there is no
/// exception.
pub(crate) fn read(exception: AdmissionException, report: &mut Report<'_>) -> Option<Exception> {
    names::validate_cluster_scoped(&exception.metadata, report);
    let path = FieldPath::root().field("spec");
    let ExceptionSpec {
        policies,
        subjects,
        constraints,
        match_conditions,
        not_after,
        reason,
    } = exception.spec;
    validate_policies(&policies, &path.field("policies"), report);
    validate_subjects(&subjects, &path.field("subjects"), report);
    let constraints = read_match(constraints, &path.field("match"), report);
    let match_conditions = conditions(
        Some(&match_conditions),
        &path.field("matchConditions"),
        false,
        report,
    );
    let not_after = read_end(not_after.as_deref(), &path.field("notAfter"), report);
    validate_reason(&reason, &path.field("reason"), report);
    if !report.is_valid() {
        return None;
    }
    let subjects = compile::subjects(subjects, &path.field("subjects"), report);
    report.is_valid().then_some(Exception {
        name: exception.metadata.name.unwrap_or_default(),
        policies,
        subjects,
        constraints: constraints?,
        match_conditions,
        not_after: not_after?,
        reason,
    })
}

fn validate_policies(policies: &[String], path: &FieldPath, report: &mut Report<'_>) {
    if policies.is_empty() {
        let message = "name at least one ValidatingAdmissionPolicy, or a validating webhook as \
                       `CONFIGURATION/WEBHOOK`";
        report.required(path, message);
    }
    let mut seen = BTreeSet::new();
    for (index, policy) in policies.iter().enumerate() {
        let path = path.index(index);
        if policy.contains('*') {
            let message = "patterns are not supported: name each policy";
            report.invalid(&path, policy, message);
        } else if policy.is_empty() {
            report.required(&path, "must not be empty");
        } else {
            let mut parts = policy.splitn(2, '/');
            let syntax = parts.try_for_each(names::dns_subdomain);
            report.syntax(&path, policy, syntax);
        }
        if !seen.insert(policy) {
            report.fault(FaultKind::Duplicate, &path, format!("`{policy}`"));
        }
    }
}

fn read_end(written: Option<&str>, path: &FieldPath, report: &mut Report<'_>) -> Option<crate::model::Time> {
    let Some(text) = written else {
        report.required(
            path,
            "the time at which the exception expires, in RFC 3339, such as `2027-01-31T00:00:00Z`",
        );
        return None;
    };
    time(text, path, report)
}

fn validate_reason(reason: &str, path: &FieldPath, report: &mut Report<'_>) {
    if reason.trim().is_empty() {
        report.required(path, "the reason for the exception, for logs and reports");
    } else if reason.len() > REASON_BYTES {
        let message = format!("{} bytes: at most {REASON_BYTES}", reason.len());
        report.fault(FaultKind::TooLong, path, message);
    }
}

// === match ===

fn read_match(
    written: Option<MatchResources>,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<crate::admission::matching::Constraints> {
    let Some(mut written) = written.filter(|written| *written != MatchResources::default()) else {
        let message = "the objects: `resourceRules`, and a `namespaceSelector` or `resourceNames`";
        report.required(path, message);
        return None;
    };
    require_limits(&written, path, report);
    default_match_resources(&mut written);
    validate_match_resources(&written, path, report);
    Some(compile_match_resources(&written, path, report))
}

/// Checks that the exception is limited: unlike a binding, it must not apply to everything.
fn require_limits(written: &MatchResources, path: &FieldPath, report: &mut Report<'_>) {
    let rules = written.resource_rules.as_deref().unwrap_or_default();
    let at = path.field("resourceRules");
    if rules.is_empty() {
        report.required(&at, "an exception needs at least one rule");
    }
    if written.namespace_selector.as_ref().is_some_and(is_effective) {
        return;
    }
    let unnamed = |rule: &NamedRuleWithOperations| rule.resource_names.as_ref().is_none_or(Vec::is_empty);
    if let Some(index) = rules.iter().position(unnamed) {
        let message = "without a `namespaceSelector` that excludes some namespaces, each rule needs \
                       `resourceNames`: otherwise the exception would apply everywhere";
        report.required(&at.index(index).field("resourceNames"), message);
    }
}

/// Whether the selector excludes some namespace. Every namespace has the label of its name.
fn is_effective(selector: &LabelSelector) -> bool {
    let has_labels = selector
        .match_labels
        .as_ref()
        .is_some_and(|labels| !labels.is_empty());
    let mut expressions = selector.match_expressions.iter().flatten();
    has_labels || expressions.any(|one| one.key != namespace::NAME_LABEL || one.operator != "Exists")
}
