//! ValidatingAdmissionPolicyBinding and MutatingAdmissionPolicyBinding.
//!
//! `validateValidatingAdmissionPolicyBindingSpec` and
//! `validateMutatingAdmissionPolicyBindingSpec` of
//! `pkg/apis/admissionregistration/validation/validation.go` of Kubernetes.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1 as written;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::metadata;
use super::super::names;
use super::super::report::Report;
use super::parameters;
use super::rules::{
    compile_match_resources, default_match_resources, one_of, validate_match_resources, validate_mutating,
};
use crate::document::Document;
use crate::engine::admission::matching::Constraints;
use crate::engine::admission::{ParamRef, PolicyBinding, ValidationAction};
use crate::field::{FaultKind, FieldPath};

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

/// What v1alpha1 says where nothing is written of parameters that are not found;
/// other versions demand it (`v1alpha1/defaults.go`).
pub(crate) fn default_v1alpha1(document: &Document, param_ref: Option<&mut written::ParamRef>) {
    if document.text("apiVersion") == Some("admissionregistration.k8s.io/v1alpha1")
        && let Some(param_ref) = param_ref
    {
        let action = &mut param_ref.parameter_not_found_action;
        action.get_or_insert_with(|| "Deny".to_owned());
    }
}

/// Reads a validating policy's binding; `None` if anything is wrong with it.
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

/// Reads a mutating policy's binding; `None` if anything is wrong with it.
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
    metadata::validate_cluster_scoped(&metadata, report);
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
    parameters::reference(written?, &path.field("paramRef"), report)
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
