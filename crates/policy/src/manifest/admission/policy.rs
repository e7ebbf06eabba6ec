//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: defaults, validation and compilation,
//! with the compilation of expressions.
//!
//! Follows `validateValidatingAdmissionPolicySpec` and `validateMutatingAdmissionPolicySpec` of
//! `pkg/apis/admissionregistration/validation/validation.go` of Kubernetes.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    self as written, MatchCondition, MatchResources, ParamKind, Variable,
};

use super::rules::{
    compile_match_resources, default_match_resources, one_of, validate_match_resources, validate_mutating,
};
use super::{binding, policy};
use crate::admission::mutating::Mutation;
use crate::admission::validating::{AuditAnnotation, Validation};
use crate::admission::{
    Applicability, CompiledMatchCondition, Expression, ExpressionEnvironment, FailurePolicy, MutatingPolicy,
    Reinvocation, ValidatingPolicy,
};
use crate::field::{FaultKind, FieldPath};
use crate::manifest::names;
use crate::manifest::report::Report;
use crate::model::StatusReason;
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

/// Reads when the policy `name` applies, and the environment of its expressions.
fn read_common(
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

// Expressions of policies and webhooks.

/// The most match conditions of one policy or webhook.
const MAX_MATCH_CONDITIONS: usize = 64;

/// Compiles the expression at `path`; `None` if it is blank or does not compile.
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

/// Adds `spec.variables` to the environment of later expressions.
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
            environment.declare_uncompiled_variable(name);
        }
    }
}

/// Compiles the `matchConditions` at `path`. They can use `params`, if the policy has a
/// `paramKind`, but not variables.
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

/// The most audit annotations of one policy.
const MAX_AUDIT_ANNOTATIONS: usize = 20;
/// The longest expression of an audit annotation, in bytes.
const MAX_ANNOTATION_BYTES: usize = 5 * 1024;

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];

/// Reads the policy; `None` if it is invalid.
pub(crate) fn read_validating(
    policy: written::ValidatingAdmissionPolicy,
    report: &mut Report<'_>,
) -> Option<ValidatingPolicy> {
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
        is_mutating: false,
    };
    let (applicability, environment) = policy::read_common(&name, common, &path, report);
    let validations = spec.validations.unwrap_or_default();
    let annotations = spec.audit_annotations.unwrap_or_default();
    if validations.is_empty() && annotations.is_empty() {
        for field in ["validations", "auditAnnotations"] {
            let message = "validations or auditAnnotations must contain at least one item";
            report.required(&path.field(field), message);
        }
    }
    let validations = read_validations(validations, &path.field("validations"), &environment, report);
    let path = path.field("auditAnnotations");
    let audit_annotations = read_annotations(&name, annotations, &path, &environment, report);
    report.is_valid().then_some(ValidatingPolicy {
        applicability,
        environment,
        validations,
        audit_annotations,
    })
}

fn read_validations(
    written: Vec<written::Validation>,
    path: &FieldPath,
    environment: &ExpressionEnvironment,
    report: &mut Report<'_>,
) -> Vec<Validation> {
    let read = |(index, one): (usize, written::Validation)| {
        read_validation(one, &path.index(index), environment, report)
    };
    let mut validations: Vec<_> = written.into_iter().enumerate().filter_map(read).collect();
    // A vector of one has room for four, and most policies have one.
    validations.shrink_to_fit();
    validations
}

fn read_validation(
    written: written::Validation,
    path: &FieldPath,
    environment: &ExpressionEnvironment,
    report: &mut Report<'_>,
) -> Option<Validation> {
    let text = written.expression.as_str();
    let condition = expression(text, &path.field("expression"), report, |budget| {
        environment.condition(text, budget)
    });
    let message_expression = written.message_expression.unwrap_or_default();
    let message_path = path.field("messageExpression");
    let message_expression = if message_expression.is_empty() {
        None
    } else if message_expression.trim().is_empty() {
        report.invalid(
            &message_path,
            &message_expression,
            "must be non-empty if specified",
        );
        None
    } else {
        expression(&message_expression, &message_path, report, |budget| {
            environment.message(&message_expression, budget)
        })
    };
    let message = written.message.unwrap_or_default();
    if !message.is_empty() && message.trim().is_empty() {
        report.invalid(&path.field("message"), &message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        report.invalid(&path.field("message"), &message, "must not contain line breaks");
    }
    let reason = reason(written.reason.as_deref(), &path.field("reason"), report);
    Some(Validation {
        expression: condition?,
        message,
        message_expression,
        reason,
    })
}

fn reason(written: Option<&str>, path: &FieldPath, report: &mut Report<'_>) -> StatusReason {
    let Some(text) = written else {
        return StatusReason::Invalid;
    };
    super::rules::one_of(text, &REASONS, path, report);
    StatusReason::parse(text).unwrap_or(StatusReason::Invalid)
}

fn read_annotations(
    policy: &str,
    written: Vec<written::AuditAnnotation>,
    path: &FieldPath,
    environment: &ExpressionEnvironment,
    report: &mut Report<'_>,
) -> Vec<AuditAnnotation> {
    if written.len() > MAX_AUDIT_ANNOTATIONS {
        let message = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        report.fault(FaultKind::Invalid, path, message);
    }
    let mut seen = BTreeSet::new();
    let mut read = Vec::with_capacity(written.len());
    for (index, annotation) in written.into_iter().enumerate() {
        let path = path.index(index);
        let value = read_annotation(policy, &annotation, &path, environment, report);
        if !seen.insert(annotation.key.clone()) {
            report.fault(
                FaultKind::Duplicate,
                &path.field("key"),
                format!("`{}`", annotation.key),
            );
        }
        read.extend(value.map(|value| AuditAnnotation {
            key: annotation.key,
            value,
        }));
    }
    read
}

fn read_annotation(
    policy: &str,
    written: &written::AuditAnnotation,
    path: &FieldPath,
    environment: &ExpressionEnvironment,
    report: &mut Report<'_>,
) -> Option<crate::admission::Expression> {
    let key = path.field("key");
    if policy.is_empty() {
        report.invalid(&key, &written.key, "requires metadata.name be non-empty");
    } else {
        report.syntax(
            &key,
            &written.key,
            names::qualified_name(&format!("{policy}/{}", written.key)),
        );
    }
    let path = path.field("valueExpression");
    if written.value_expression.trim().len() > MAX_ANNOTATION_BYTES {
        report.required(
            &path,
            format!("must not exceed {MAX_ANNOTATION_BYTES} bytes in length"),
        );
        return None;
    }
    expression(&written.value_expression, &path, report, |budget| {
        environment.annotation(&written.value_expression, budget)
    })
}

const PATCH_TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];
const REINVOCATIONS: [&str; 2] = ["IfNeeded", "Never"];

/// Reads the policy; `None` if it is invalid.
pub(crate) fn read_mutating(
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
    let (applicability, environment) = policy::read_common(&name, common, &path, report);
    let environment = environment.for_mutations();
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
