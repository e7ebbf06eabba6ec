//! Validation of AuthorizationPolicy.

mod rules;
mod subjects;

use std::collections::HashSet;

use super::metadata;
use super::names;
use super::report::Report;
use super::v1alpha1::{AuthorizationPolicy, Condition, Spec};
use crate::authorization;
use crate::authorization::ConditionError;
use crate::engine::{Time, Validity};
use crate::field::{FaultKind, FieldPath};
use rules::validate_rules;
pub(crate) use subjects::validate_subjects;

/// As many as an AuthorizationConfiguration may have for one webhook.
const MOST_CONDITIONS: usize = 64;

/// The most subjects times rules: each subject is indexed with each rule.
const MAX_SUBJECT_RULES: usize = 200_000;

/// What is made of a policy while it is checked.
pub(crate) struct Checked {
    pub(crate) conditions: Vec<authorization::Condition>,
    pub(crate) validity: Validity,
}

/// Says everything that is wrong with `policy`. Its conditions are compiled on the way.
pub(crate) fn validate(policy: &AuthorizationPolicy, report: &mut Report<'_>) -> Checked {
    metadata::validate_cluster_scoped(&policy.metadata, report);
    let path = FieldPath::root().field("spec");
    let spec = &policy.spec;
    report.required_one_of(&path.field("effect"), &spec.effect, &["Allow", "Deny"]);
    if !spec.mode.is_empty() {
        report.required_one_of(&path.field("mode"), &spec.mode, &["Enforce", "Shadow"]);
    }
    if spec.subjects.is_empty() {
        report.required(
            &path.field("subjects"),
            "a policy needs at least one subject; the Group `*` is everybody",
        );
    }
    validate_subjects(&spec.subjects, &path.field("subjects"), report);
    validate_subjects(&spec.exclude_subjects, &path.field("excludeSubjects"), report);
    validate_rules(spec, &path, report);
    validate_product(spec, &path, report);
    let conditions = compile_conditions(&spec.conditions, &path.field("conditions"), report);
    validate_failure_policy(spec, &path.field("failurePolicy"), report);
    Checked {
        conditions,
        validity: validity(spec, &path, report),
    }
}

fn validate_product(spec: &Spec, path: &FieldPath, report: &mut Report<'_>) {
    let subjects = spec.subjects.len() + spec.exclude_subjects.len();
    let rules = spec.resource_rules.len() + spec.non_resource_rules.len();
    if subjects.saturating_mul(rules) > MAX_SUBJECT_RULES {
        let message = format!(
            "{subjects} subjects times {rules} rules: at most {MAX_SUBJECT_RULES}; name groups in place of users, \
             or split the policy"
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

/// The instant that `text` names.
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
                "allowed only in a Deny: an Allow whose condition fails never applies",
            );
        }
        policy => report.required_one_of(path, policy, &["Deny", "NoOpinion"]),
    }
}

// === conditions ===

fn compile_conditions(
    conditions: &[Condition],
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Vec<authorization::Condition> {
    if conditions.len() > MOST_CONDITIONS {
        let message = format!("{} conditions: at most {MOST_CONDITIONS}", conditions.len());
        report.fault(FaultKind::TooMany, path, message);
        return Vec::new();
    }
    let mut names = HashSet::new();
    let mut compiled = Vec::with_capacity(conditions.len());
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        validate_condition_name(&condition.name, &mut names, &path.field("name"), report);
        compiled.extend(compile_condition(condition, &path.field("expression"), report));
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
        report.required(path, "a condition needs a name, which messages use");
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
