//! `paramKind` and `paramRef`.

use k8s_openapi::api::admissionregistration::v1 as written;

use super::super::report::Report;
use super::super::{names, selector};
use super::rules::{compile_selector, one_of};
use crate::engine::admission::{NotFound, ParamKind, ParamRef, ParamTarget};
use crate::field::{FaultKind, FieldPath};

/// Checks and reads `spec.paramKind` (`validateParamKind`).
pub(crate) fn kind(written: &written::ParamKind, path: &FieldPath, report: &mut Report<'_>) -> ParamKind {
    let api_version = written.api_version.as_deref().unwrap_or_default();
    let kind = written.kind.as_deref().unwrap_or_default();
    validate_api_version(api_version, &path.field("apiVersion"), report);
    let path = path.field("kind");
    if kind.is_empty() {
        report.required(&path, "the kind of the parameters");
    } else {
        report.syntax(&path, kind, names::dns_1035_label(&kind.to_lowercase()));
    }
    ParamKind {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    }
}

fn validate_api_version(api_version: &str, path: &FieldPath, report: &mut Report<'_>) {
    if api_version.is_empty() {
        report.required(path, "the group and version of the parameters");
        return;
    }
    let parts: Vec<&str> = api_version.split('/').collect();
    let (group, version) = match parts.as_slice() {
        ["", ""] => ("", ""),
        [version] => ("", *version),
        [group, version] => (*group, *version),
        _ => {
            report.invalid(path, api_version, "must be a version, or a group and a version");
            return;
        }
    };
    if !group.is_empty() {
        report.syntax(path, group, names::dns_subdomain(group));
    }
    if version.is_empty() {
        report.invalid(path, api_version, "must have a version");
    } else {
        report.syntax(path, version, names::dns_1035_label(version));
    }
}

/// Checks and reads `spec.paramRef` (`validateParamRef`).
pub(crate) fn reference(
    written: &written::ParamRef,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<ParamRef> {
    let name = written.name.as_deref().unwrap_or_default();
    let exclusive = "`name` and `selector` are mutually exclusive";
    if !name.is_empty() {
        report.syntax(&path.field("name"), name, names::path_segment(name));
        if written.selector.is_some() {
            report.forbidden(&path.field("name"), exclusive);
        }
    }
    if let Some(labels) = &written.selector {
        selector::validate(labels, &path.field("selector"), report);
        if !name.is_empty() {
            report.forbidden(&path.field("selector"), exclusive);
        }
    }
    let not_found = not_found(written, &path.field("parameterNotFoundAction"), path, report);
    let target = match &written.selector {
        None => ParamTarget::Name(name.to_owned()),
        Some(_) => ParamTarget::Selector(compile_selector(
            written.selector.as_ref(),
            &path.field("selector"),
            report,
        )),
    };
    let namespace = written.namespace.clone().unwrap_or_default();
    Some(ParamRef {
        target,
        namespace,
        not_found: not_found?,
    })
}

fn not_found(
    written: &written::ParamRef,
    path: &FieldPath,
    whole: &FieldPath,
    report: &mut Report<'_>,
) -> Option<NotFound> {
    if written.name.as_deref().unwrap_or_default().is_empty() && written.selector.is_none() {
        report.fault(
            FaultKind::Required,
            whole,
            "one of `name` or `selector` must be specified",
        );
    }
    match written.parameter_not_found_action.as_deref() {
        None | Some("") => {
            report.required(path, "`Allow` or `Deny`");
            None
        }
        Some("Allow") => Some(NotFound::Allow),
        Some("Deny") => Some(NotFound::Deny),
        Some(other) => {
            one_of(other, &["Deny", "Allow"], path, report);
            None
        }
    }
}
