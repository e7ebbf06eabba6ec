//! ValidatingAdmissionPolicy: defaults, validation, and the engine's form.
//!
//! `validateValidatingAdmissionPolicySpec` of
//! `pkg/apis/admissionregistration/validation/validation.go` of Kubernetes.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1 as written;

use super::super::names;
use super::super::report::Report;
use super::policy;
use super::policy::{Common, expression};
use crate::engine::StatusReason;
use crate::engine::admission::validating::{AuditAnnotation, Validation};
use crate::engine::admission::{ExpressionEnvironment, ValidatingPolicy};
use crate::field::{FaultKind, FieldPath};

/// The most audit annotations of one policy.
const MAX_AUDIT_ANNOTATIONS: usize = 20;
/// The longest expression of an audit annotation, in bytes.
const MAX_ANNOTATION_BYTES: usize = 5 * 1024;

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];

/// Reads the policy; `None` if anything is wrong with it.
pub(crate) fn read(
    policy: written::ValidatingAdmissionPolicy,
    report: &mut Report<'_>,
) -> Option<ValidatingPolicy> {
    names::validate_cluster_scoped(&policy.metadata, report);
    let name = policy.metadata.name.unwrap_or_default();
    let spec = policy.spec.unwrap_or_default();
    let path = FieldPath::root().field("spec");
    let common = Common {
        failure_policy: spec.failure_policy,
        param_kind: spec.param_kind,
        match_constraints: spec.match_constraints,
        match_conditions: spec.match_conditions,
        variables: spec.variables,
        is_mutating: false,
    };
    let (applicability, environment) = policy::read(&name, common, &path, report);
    let validations = spec.validations.unwrap_or_default();
    let annotations = spec.audit_annotations.unwrap_or_default();
    if validations.is_empty() && annotations.is_empty() {
        for field in ["validations", "auditAnnotations"] {
            let message = "validations or auditAnnotations must contain at least one item";
            report.required(&path.field(field), message);
        }
    }
    let validations = read_validations(validations, &path.field("validations"), &environment, report);
    let path = path.field("auditAnnotations");
    let audit_annotations = read_annotations(&name, annotations, &path, &environment, report);
    report.is_valid().then_some(ValidatingPolicy {
        applicability,
        environment,
        validations,
        audit_annotations,
    })
}

fn read_validations(
    written: Vec<written::Validation>,
    path: &FieldPath,
    environment: &ExpressionEnvironment,
    report: &mut Report<'_>,
) -> Vec<Validation> {
    let read = |(index, one): (usize, written::Validation)| {
        read_validation(one, &path.index(index), environment, report)
    };
    written.into_iter().enumerate().filter_map(read).collect()
}

fn read_validation(
    written: written::Validation,
    path: &FieldPath,
    environment: &ExpressionEnvironment,
    report: &mut Report<'_>,
) -> Option<Validation> {
    let text = written.expression.as_str();
    let condition = expression(text, &path.field("expression"), report, |budget| {
        environment.condition(text, budget)
    });
    let message_expression = written.message_expression.unwrap_or_default();
    let message_path = path.field("messageExpression");
    let message_expression = if message_expression.is_empty() {
        None
    } else if message_expression.trim().is_empty() {
        report.invalid(
            &message_path,
            &message_expression,
            "must be non-empty if specified",
        );
        None
    } else {
        expression(&message_expression, &message_path, report, |budget| {
            environment.message(&message_expression, budget)
        })
    };
    let message = written.message.unwrap_or_default();
    if !message.is_empty() && message.trim().is_empty() {
        report.invalid(&path.field("message"), &message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        report.invalid(&path.field("message"), &message, "must not contain line breaks");
    }
    let reason = reason(written.reason.as_deref(), &path.field("reason"), report);
    Some(Validation {
        expression: condition?,
        message,
        message_expression,
        reason,
    })
}

fn reason(written: Option<&str>, path: &FieldPath, report: &mut Report<'_>) -> StatusReason {
    let Some(text) = written else {
        return StatusReason::Invalid;
    };
    super::rules::one_of(text, &REASONS, path, report);
    StatusReason::parse(text).unwrap_or(StatusReason::Invalid)
}

fn read_annotations(
    policy: &str,
    written: Vec<written::AuditAnnotation>,
    path: &FieldPath,
    environment: &ExpressionEnvironment,
    report: &mut Report<'_>,
) -> Vec<AuditAnnotation> {
    if written.len() > MAX_AUDIT_ANNOTATIONS {
        let message = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        report.fault(FaultKind::Invalid, path, message);
    }
    let mut seen = BTreeSet::new();
    let mut read = Vec::with_capacity(written.len());
    for (index, annotation) in written.into_iter().enumerate() {
        let path = path.index(index);
        let value = read_annotation(policy, &annotation, &path, environment, report);
        if !seen.insert(annotation.key.clone()) {
            report.fault(
                FaultKind::Duplicate,
                &path.field("key"),
                format!("`{}`", annotation.key),
            );
        }
        read.extend(value.map(|value| AuditAnnotation {
            key: annotation.key,
            value,
        }));
    }
    read
}

fn read_annotation(
    policy: &str,
    written: &written::AuditAnnotation,
    path: &FieldPath,
    environment: &ExpressionEnvironment,
    report: &mut Report<'_>,
) -> Option<crate::engine::admission::Expression> {
    let key = path.field("key");
    if policy.is_empty() {
        report.invalid(&key, &written.key, "requires metadata.name be non-empty");
    } else {
        report.syntax(
            &key,
            &written.key,
            names::qualified_name(&format!("{policy}/{}", written.key)),
        );
    }
    let path = path.field("valueExpression");
    if written.value_expression.trim().len() > MAX_ANNOTATION_BYTES {
        report.required(
            &path,
            format!("must not exceed {MAX_ANNOTATION_BYTES} bytes in length"),
        );
        return None;
    }
    expression(&written.value_expression, &path, report, |budget| {
        environment.annotation(&written.value_expression, budget)
    })
}
