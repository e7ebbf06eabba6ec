//! Whom a policy or an exception is for.

use crate::engine::groups;
use crate::field::FieldPath;
use crate::manifest::names;
use crate::manifest::report::Report;
use crate::manifest::v1alpha1::Subject;

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
