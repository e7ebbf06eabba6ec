//! What validating and mutating policies have in common, their expressions among it.

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, MatchResources, ParamKind, Variable};

use super::binding;
use super::rules::{
    compile_match_resources, default_match_resources, one_of, validate_match_resources, validate_mutating,
};
use crate::engine::admission::{
    Applicability, CompiledMatchCondition, Expression, ExpressionEnvironment, FailurePolicy,
};
use crate::field::{FaultKind, FieldPath};
use crate::manifest::names;
use crate::manifest::report::Report;
use portcullis_cel::{CompileBudget, CompileError};

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
        .map(|written| binding::kind(written, &path.field("paramKind"), report));
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
    let match_conditions = conditions(
        common.match_conditions.as_deref(),
        &path.field("matchConditions"),
        param_kind.is_some(),
        report,
    );
    let mut environment = ExpressionEnvironment::new(report.cel_version(), param_kind.is_some());
    variables(
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

// Expressions of policies and webhooks: required, and compiled.

/// The most match conditions of one policy or webhook.
const MAX_MATCH_CONDITIONS: usize = 64;

/// The expression at `path`, unless it is blank or does not compile.
pub(crate) fn expression(
    text: &str,
    path: &FieldPath,
    report: &mut Report<'_>,
    compile: impl FnOnce(&CompileBudget<'_>) -> Result<Expression, CompileError>,
) -> Option<Expression> {
    if text.trim().is_empty() {
        report.required(path, "a CEL expression");
        return None;
    }
    report
        .compile(compile)
        .map_err(|error| report.does_not_compile(path, text, &error))
        .ok()
}

/// Adds `spec.variables` to what later expressions may name.
pub(crate) fn variables(
    written: Option<&[Variable]>,
    path: &FieldPath,
    environment: &mut ExpressionEnvironment,
    report: &mut Report<'_>,
) {
    for (index, variable) in written.unwrap_or_default().iter().enumerate() {
        let path = path.index(index);
        let name = variable.name.as_str();
        if name.trim().is_empty() {
            report.required(&path.field("name"), "a variable needs a name");
        } else if !portcullis_cel::is_identifier(name) {
            report.invalid(&path.field("name"), name, "must be a CEL identifier");
        }
        let path = path.field("expression");
        if variable.expression.trim().is_empty() {
            report.required(&path, "a CEL expression");
        } else if let Err(error) =
            report.compile(|budget| environment.add_variable(name, &variable.expression, budget))
        {
            report.does_not_compile(&path, &variable.expression, &error);
            environment.add_faulty_variable(name);
        }
    }
}

/// `matchConditions` at `path`. They may name parameters, where there are any,
/// but not variables.
pub(crate) fn conditions(
    written: Option<&[MatchCondition]>,
    path: &FieldPath,
    has_params: bool,
    report: &mut Report<'_>,
) -> Vec<CompiledMatchCondition> {
    let written = written.unwrap_or_default();
    if written.len() > MAX_MATCH_CONDITIONS {
        let message = format!(
            "{}: must have at most {MAX_MATCH_CONDITIONS} items",
            written.len()
        );
        report.fault(FaultKind::TooMany, path, message);
    }
    let environment = ExpressionEnvironment::new(report.cel_version(), has_params);
    let mut compiled: Vec<CompiledMatchCondition> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for (index, condition) in written.iter().enumerate() {
        let path = path.index(index);
        let text = condition.expression.as_str();
        let expression = expression(text, &path.field("expression"), report, |budget| {
            environment.condition(text, budget)
        });
        let (name, path) = (condition.name.as_str(), path.field("name"));
        if name.is_empty() {
            report.required(&path, "a condition needs a name");
            continue;
        }
        report.syntax(&path, name, names::qualified_name(name));
        if !seen.insert(name) {
            report.fault(FaultKind::Duplicate, &path, format!("`{name}`"));
        }
        compiled.extend(expression.map(|expression| CompiledMatchCondition {
            name: name.to_owned(),
            expression,
        }));
    }
    compiled
}
