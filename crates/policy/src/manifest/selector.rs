//! Label selectors, as `ValidateLabelSelector` of
//! `apimachinery/pkg/apis/meta/v1/validation/validation.go` checks them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::metadata;
use super::report::Report;
use crate::engine::{label_key_faults, label_value_faults};
use crate::field::FieldPath;

/// Checks the labels and expressions of the selector at `path`.
pub(crate) fn validate(selector: &LabelSelector, path: &FieldPath, report: &mut Report<'_>) {
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
pub(crate) fn validate_parts(
    key: &str,
    operator: &str,
    values: &[String],
    path: &FieldPath,
    report: &mut Report<'_>,
) {
    validate_operator(operator, values, path, report);
    for fault in label_key_faults(key) {
        report.invalid(&path.field("key"), key, fault);
    }
    for (index, value) in values.iter().enumerate() {
        for fault in label_value_faults(value) {
            report.invalid(&path.field("values").index(index), value, fault);
        }
    }
}

fn validate_operator(operator: &str, values: &[String], path: &FieldPath, report: &mut Report<'_>) {
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            let message = "must be specified when `operator` is 'In' or 'NotIn'";
            report.required(&path.field("values"), message);
        }
        "In" | "NotIn" => {}
        "Exists" | "DoesNotExist" if values.is_empty() => {}
        "Exists" | "DoesNotExist" => {
            let message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            report.forbidden(&path.field("values"), message);
        }
        other => {
            // `Invalid` and not `NotSupported`: so it is upstream.
            let rule = "not a valid selector operator: must be `In`, `NotIn`, `Exists` or `DoesNotExist`";
            report.invalid(&path.field("operator"), other, rule);
        }
    }
}
