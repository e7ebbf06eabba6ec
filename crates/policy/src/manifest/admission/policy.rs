//! What validating and mutating policies have in common.

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, MatchResources, ParamKind, Variable};

use super::super::report::Report;
use super::rules::{
    compile_match_resources, default_match_resources, one_of, validate_match_resources, validate_mutating,
};
use super::{expressions, parameters};
use crate::engine::admission::{Applicability, ExpressionEnvironment, FailurePolicy};
use crate::field::FieldPath;

/// The common fields of the two specs.
pub(crate) struct Common {
    pub(crate) failure_policy: Option<String>,
    pub(crate) param_kind: Option<ParamKind>,
    pub(crate) match_constraints: Option<MatchResources>,
    pub(crate) match_conditions: Option<Vec<MatchCondition>>,
    pub(crate) variables: Option<Vec<Variable>>,
    pub(crate) is_mutating: bool,
}

/// When the policy `name` applies, and what its expressions may name.
pub(crate) fn read(
    name: &str,
    common: Common,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> (Applicability, ExpressionEnvironment) {
    let failure_policy = failure_policy(
        common.failure_policy.as_deref(),
        &path.field("failurePolicy"),
        report,
    );
    let param_kind = common
        .param_kind
        .as_ref()
        .map(|written| parameters::kind(written, &path.field("paramKind"), report));
    let constraints_path = path.field("matchConstraints");
    let constraints = match common.match_constraints {
        None => {
            report.required(&constraints_path, "what the policy applies to");
            None
        }
        Some(mut written) => {
            default_match_resources(&mut written);
            validate_match_resources(&written, &constraints_path, report);
            if written.resource_rules.as_deref().unwrap_or_default().is_empty() {
                report.required(&constraints_path.field("resourceRules"), "at least one rule");
            }
            if common.is_mutating {
                validate_mutating(&written, &constraints_path, report);
            }
            Some(compile_match_resources(&written, &constraints_path, report))
        }
    };
    let match_conditions = expressions::conditions(
        common.match_conditions.as_deref(),
        &path.field("matchConditions"),
        param_kind.is_some(),
        report,
    );
    let mut environment = ExpressionEnvironment::new(report.cel_version(), param_kind.is_some());
    expressions::variables(
        common.variables.as_deref(),
        &path.field("variables"),
        &mut environment,
        report,
    );
    let applicability = Applicability {
        name: name.to_owned(),
        is_static: false,
        failure_policy,
        constraints: constraints.unwrap_or_default(),
        match_conditions,
        param_kind,
    };
    (applicability, environment)
}

/// `failurePolicy`, whose default is `Fail`.
pub(crate) fn failure_policy(
    written: Option<&str>,
    path: &FieldPath,
    report: &mut Report<'_>,
) -> FailurePolicy {
    match written {
        None | Some("Fail") => FailurePolicy::Fail,
        Some("Ignore") => FailurePolicy::Ignore,
        Some(other) => {
            one_of(other, &["Fail", "Ignore"], path, report);
            FailurePolicy::Fail
        }
    }
}
