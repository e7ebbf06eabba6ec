//! MutatingAdmissionPolicy: defaults, validation, and the engine's form.
//!
//! `validateMutatingAdmissionPolicySpec` of
//! `pkg/apis/admissionregistration/validation/validation.go` of Kubernetes.

use k8s_openapi::api::admissionregistration::v1 as written;

use super::super::report::Report;
use super::policy;
use super::policy::{Common, expression};
use super::rules::one_of;
use crate::engine::admission::mutating::Mutation;
use crate::engine::admission::{Expression, ExpressionEnvironment, MutatingPolicy, Reinvocation};
use crate::field::{FaultKind, FieldPath};
use crate::manifest::names;

const PATCH_TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];
const REINVOCATIONS: [&str; 2] = ["IfNeeded", "Never"];

/// Reads the policy; `None` if anything is wrong with it.
pub(crate) fn read(
    policy: written::MutatingAdmissionPolicy,
    report: &mut Report<'_>,
) -> Option<MutatingPolicy> {
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
        is_mutating: true,
    };
    let (applicability, environment) = policy::read(&name, common, &path, report);
    let environment = environment.mutation();
    let written = spec.mutations.unwrap_or_default();
    let mutations_path = path.field("mutations");
    if written.is_empty() {
        report.required(&mutations_path, "mutations must contain at least one item");
    }
    let mut mutations = Vec::with_capacity(written.len());
    for (index, mutation) in written.iter().enumerate() {
        mutations.extend(read_mutation(
            mutation,
            &mutations_path.index(index),
            &environment,
            report,
        ));
    }
    let reinvocation = reinvocation(
        spec.reinvocation_policy.as_deref(),
        &path.field("reinvocationPolicy"),
        report,
    );
    let reinvocation = reinvocation.filter(|_| report.is_valid())?;
    Some(MutatingPolicy {
        applicability,
        environment,
        mutations,
        reinvocation,
    })
}

fn read_mutation(
    written: &written::Mutation,
    path: &FieldPath,
    environment: &ExpressionEnvironment,
    report: &mut Report<'_>,
) -> Option<Mutation> {
    let (patch, apply) = (&written.json_patch, &written.apply_configuration);
    match written.patch_type.as_str() {
        "" => report.required(&path.field("patchType"), "`JSONPatch` or `ApplyConfiguration`"),
        "JSONPatch" => {
            let mutation = match patch {
                None => {
                    let message = "must be specified when patchType is JSONPatch";
                    report.required(&path.field("jsonPatch"), message);
                    None
                }
                Some(patch) => {
                    let path = path.field("jsonPatch").field("expression");
                    let text = patch.expression.as_deref().unwrap_or_default();
                    expression(text, &path, report, |budget| environment.json_patch(text, budget))
                }
            };
            if apply.is_some() {
                let message = "must not be specified when patchType is JSONPatch";
                report.fault(FaultKind::Invalid, &path.field("applyConfiguration"), message);
            }
            return mutation.map(Mutation::JsonPatch);
        }
        "ApplyConfiguration" => {
            let mutation = read_apply_configuration(apply.as_ref(), path, environment, report);
            if patch.is_some() {
                let message = "must not be specified when patchType is ApplyConfiguration";
                report.fault(FaultKind::Invalid, &path.field("jsonPatch"), message);
            }
            return mutation.map(Mutation::ApplyConfiguration);
        }
        other => one_of(other, &PATCH_TYPES, &path.field("patchType"), report),
    }
    None
}

fn read_apply_configuration(
    written: Option<&written::ApplyConfiguration>,
    path: &FieldPath,
    environment: &ExpressionEnvironment,
    report: &mut Report<'_>,
) -> Option<Expression> {
    let path = path.field("applyConfiguration");
    let Some(apply) = written else {
        report.required(&path, "must be specified when patchType is ApplyConfiguration");
        return None;
    };
    let text = apply.expression.as_deref().unwrap_or_default();
    let path = path.field("expression");
    expression(text, &path, report, |budget| {
        environment.apply_configuration(text, budget)
    })
}

fn reinvocation(written: Option<&str>, path: &FieldPath, report: &mut Report<'_>) -> Option<Reinvocation> {
    match written {
        None | Some("") => report.required(path, "`Never` or `IfNeeded`"),
        Some("Never") => return Some(Reinvocation::Never),
        Some("IfNeeded") => return Some(Reinvocation::IfNeeded),
        Some(other) => one_of(other, &REINVOCATIONS, path, report),
    }
    None
}
