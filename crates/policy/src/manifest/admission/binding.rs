//! ValidatingAdmissionPolicyBinding and MutatingAdmissionPolicyBinding.
//!
//! Follows `validateValidatingAdmissionPolicyBindingSpec` and
//! `validateMutatingAdmissionPolicyBindingSpec` of
//! `pkg/apis/admissionregistration/validation/validation.go` of Kubernetes.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1 as written;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::rules::{
    compile_match_resources, compile_selector, default_match_resources, one_of, validate_match_resources,
    validate_mutating,
};
use crate::admission::matching::Constraints;
use crate::admission::{NotFound, ParamKind, ParamRef, ParamTarget, PolicyBinding, ValidationAction};
use crate::document::Document;
use crate::field::{FaultKind, FieldPath};
use crate::manifest::names;
use crate::manifest::report::Report;

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

/// Sets the default of `parameterNotFoundAction` in v1alpha1; other versions require the field
/// (`v1alpha1/defaults.go`).
pub(crate) fn default_v1alpha1(document: &Document, param_ref: Option<&mut written::ParamRef>) {
    if document.text("apiVersion") == Some("admissionregistration.k8s.io/v1alpha1")
        && let Some(param_ref) = param_ref
    {
        let action = &mut param_ref.parameter_not_found_action;
        action.get_or_insert_with(|| "Deny".to_owned());
    }
}

/// Reads a ValidatingAdmissionPolicyBinding; `None` if it is invalid.
pub(crate) fn read_validating(
    binding: written::ValidatingAdmissionPolicyBinding,
    report: &mut Report<'_>,
) -> Option<PolicyBinding> {
    let spec = binding.spec;
    let path = FieldPath::root().field("spec");
    let name = read_name(binding.metadata, report);
    validate_policy_name(&spec.policy_name, &path.field("policyName"), report);
    let param_ref = read_param_ref(spec.param_ref.as_ref(), &path, report);
    let constraints = read_constraints(spec.match_resources, false, &path, report);
    let actions = read_actions(&spec.validation_actions, &path.field("validationActions"), report);
    let binding = PolicyBinding {
        name,
        is_static: false,
        policy: spec.policy_name,
        param_ref,
        constraints,
        actions,
    };
    report.is_valid().then_some(binding)
}

/// Reads a MutatingAdmissionPolicyBinding; `None` if it is invalid.
pub(crate) fn read_mutating(
    binding: written::MutatingAdmissionPolicyBinding,
    report: &mut Report<'_>,
) -> Option<PolicyBinding> {
    let spec = binding.spec.unwrap_or_default();
    let path = FieldPath::root().field("spec");
    let name = read_name(binding.metadata, report);
    let policy = spec.policy_name.unwrap_or_default();
    validate_policy_name(&policy, &path.field("policyName"), report);
    let param_ref = read_param_ref(spec.param_ref.as_ref(), &path, report);
    let constraints = read_constraints(spec.match_resources, true, &path, report);
    let binding = PolicyBinding {
        name,
        is_static: false,
        policy,
        param_ref,
        constraints,
        actions: Vec::new(),
    };
    report.is_valid().then_some(binding)
}

fn read_name(metadata: ObjectMeta, report: &mut Report<'_>) -> String {
    names::validate_cluster_scoped(&metadata, report);
    metadata.name.unwrap_or_default()
}

fn validate_policy_name(name: &str, path: &FieldPath, report: &mut Report<'_>) {
    if name.is_empty() {
        report.required(path, "the policy that is bound");
    } else {
        report.syntax(path, name, names::dns_subdomain(name));
    }
}

fn read_param_ref(
    written: Option<&written::ParamRef>,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<ParamRef> {
    reference(written?, &path.field("paramRef"), report)
}

fn read_constraints(
    written: Option<written::MatchResources>,
    is_mutating: bool,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> Option<Constraints> {
    let mut written = written?;
    let path = path.field("matchResources");
    default_match_resources(&mut written);
    validate_match_resources(&written, &path, report);
    if is_mutating {
        validate_mutating(&written, &path, report);
    }
    Some(compile_match_resources(&written, &path, report))
}

fn read_actions(written: &[String], path: &FieldPath, report: &mut Report<'_>) -> Vec<ValidationAction> {
    let mut seen = BTreeSet::new();
    for (index, action) in written.iter().enumerate() {
        one_of(action, &ACTIONS, &path.index(index), report);
        if !seen.insert(action.as_str()) {
            report.fault(FaultKind::Duplicate, &path.index(index), format!("`{action}`"));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let message = "must not contain both `Deny` and `Warn`: the user would see the message twice";
        report.fault(FaultKind::Invalid, path, message);
    }
    if seen.is_empty() {
        report.required(path, "at least one validation action is required");
    }
    written
        .iter()
        .filter_map(|action| ValidationAction::parse(action))
        .collect()
}

// `paramKind` and `paramRef`.

/// Validates and compiles `spec.paramKind` (`validateParamKind`).
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

/// Validates and compiles `spec.paramRef` (`validateParamRef`).
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
        names::validate_selector(labels, &path.field("selector"), report);
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
