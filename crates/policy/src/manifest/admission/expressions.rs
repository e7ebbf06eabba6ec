//! Expressions of policies and webhooks: required, and compiled.

use k8s_openapi::api::admissionregistration::v1::{MatchCondition, Variable};

use super::super::names;
use super::super::report::Report;
use crate::engine::admission::{CompiledMatchCondition, Expression, ExpressionEnvironment};
use crate::field::{FaultKind, FieldPath};
use portcullis_cel::{CompileBudget, CompileError};

/// The most match conditions of one policy or webhook.
const MOST_CONDITIONS: usize = 64;

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
    if written.len() > MOST_CONDITIONS {
        let message = format!("{}: must have at most {MOST_CONDITIONS} items", written.len());
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
