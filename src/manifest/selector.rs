//! Label selectors, as `ValidateLabelSelector` of
//! `apimachinery/pkg/apis/meta/v1/validation/validation.go` checks them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::report::Report;
use super::{metadata, names};
use crate::field::FieldPath;

/// Checks the labels and expressions of the selector at `path`.
pub(super) fn validate(selector: &LabelSelector, path: &FieldPath, report: &mut Report<'_>) {
    if let Some(labels) = &selector.match_labels {
        metadata::validate_labels(labels, &path.field("matchLabels"), report);
    }
    let expressions = path.field("matchExpressions");
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        validate_requirement(requirement, &expressions.index(index), report);
    }
}

fn validate_requirement(requirement: &LabelSelectorRequirement, path: &FieldPath, report: &mut Report<'_>) {
    let values = requirement.values.as_deref().unwrap_or_default();
    validate_parts(&requirement.key, &requirement.operator, values, path, report);
}

/// Checks the requirement at `path`, given its parts.
pub(super) fn validate_parts(
    key: &str,
    operator: &str,
    values: &[String],
    path: &FieldPath,
    report: &mut Report<'_>,
) {
    validate_operator(operator, values, path, report);
    report.syntax(&path.field("key"), key, names::qualified_name(key));
    for (index, value) in values.iter().enumerate() {
        report.syntax(
            &path.field("values").index(index),
            value,
            names::label_value(value),
        );
    }
}

fn validate_operator(operator: &str, values: &[String], path: &FieldPath, report: &mut Report<'_>) {
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            report.required(
                &path.field("values"),
                format!("the operator `{operator}` needs values"),
            );
        }
        "In" | "NotIn" => {}
        "Exists" | "DoesNotExist" if values.is_empty() => {}
        "Exists" | "DoesNotExist" => {
            report.forbidden(
                &path.field("values"),
                format!("the operator `{operator}` takes no values"),
            );
        }
        other => {
            // `Invalid` and not `NotSupported`: so it is upstream.
            let rule = "must be `In`, `NotIn`, `Exists` or `DoesNotExist`";
            report.invalid(&path.field("operator"), other, rule);
        }
    }
}
