//! MutatingAdmissionPolicies: how one policy changes one object.
//!
//! Follows `apiserver/pkg/admission/plugin/policy/mutating/patch`: `json_patch.go` here, `smd.go`
//! in [`super::apply`].

mod dispatcher;

use std::sync::Arc;

use super::Applicability;
use super::apply::{self, DecodeMode};
use super::changes::{self, ChangeError, ChangedObject};
use super::environment::{Expression, ExpressionEnvironment};
use super::run::{PolicyExpression, RunContext};
use super::variables::{ExpressionResult, Inputs, MatchConditions};
use super::webhook::Reinvocation;
use crate::model::Deadline;
use portcullis_cel::json::patch::{self, PatchBudget};
use portcullis_cel::json::{self, Document, Node, write_string};
use portcullis_cel::{Map, Value, cost};

pub(crate) use dispatcher::MutationState;

/// `MutatingAdmissionPolicy` (`api/admissionregistration/v1/types.go`).
#[derive(Debug)]
pub struct MutatingPolicy {
    /// When it applies.
    pub applicability: Applicability,
    /// The environment of its expressions, with `spec.variables`.
    pub environment: ExpressionEnvironment,
    /// `spec.mutations`, in the order of application.
    pub mutations: Vec<Mutation>,
    /// `spec.reinvocationPolicy`.
    pub reinvocation: Reinvocation,
}

/// One of `spec.mutations`.
#[derive(Debug)]
pub enum Mutation {
    /// `patchType: JSONPatch`: an expression for a list of operations.
    JsonPatch(Expression),
    /// `patchType: ApplyConfiguration`: an expression for an object that is merged into the
    /// request's.
    ApplyConfiguration(Expression),
}

/// Why a mutation does not apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MutationError {
    /// The expression has no value.
    #[error("{0}")]
    Expression(String),
    /// The value is not a list of operations.
    #[error("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")]
    NoPatch,
    /// A value that JSON cannot represent.
    #[error("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {0}")]
    NoJson(String),
    /// An operation does not apply to the object.
    #[error("JSON Patch: {0}")]
    Patch(#[from] patch::PatchError),
    /// The configuration does not apply to the object.
    #[error(transparent)]
    Apply(#[from] apply::ApplyError),
    /// The patch is too large or too deeply nested.
    #[error("the mutation cannot be read: {0}")]
    Unreadable(#[from] json::JsonError),
    /// The changed object exceeds a limit or cannot be decoded. Rejects the request whatever the
    /// failure policy.
    #[error(transparent)]
    Unchanged(#[from] ChangeError),
}

// === impl MutatingPolicy ===

impl MutatingPolicy {
    /// Evaluates the match conditions for the object as changed so far.
    pub(crate) fn conditions<'g>(&'g self, inputs: &Inputs<'g>, deadline: Deadline<'g>) -> MatchConditions {
        let Applicability {
            match_conditions,
            failure_policy,
            ..
        } = &self.applicability;
        MatchConditions::evaluate(
            match_conditions,
            *failure_policy,
            &self.environment,
            inputs,
            deadline,
        )
    }
}

// === impl Mutation ===

impl Mutation {
    /// Returns the object after this mutation, which is at `index` in the policy; `None` if the
    /// object does not change.
    pub(crate) fn apply<'g>(
        &'g self,
        index: usize,
        environment: &'g ExpressionEnvironment,
        inputs: &Inputs<'g>,
        context: RunContext<'g>,
        patches: &mut PatchBudget,
    ) -> Result<Option<Arc<ChangedObject>>, MutationError> {
        let Some(object) = inputs.object else {
            return Ok(None);
        };
        let (Self::JsonPatch(expression) | Self::ApplyConfiguration(expression)) = self;
        let mut budget = context.run.deadline.budget(cost::PER_BINDING);
        let value =
            inputs
                .sequence(environment)
                .one(PolicyExpression::Mutation(index), expression, &mut budget);
        match value.map_err(|error| MutationError::Expression(error.to_string()))? {
            ExpressionResult::Value(value) => match self {
                Self::JsonPatch(_) => apply_patch(object, &value, context, patches),
                Self::ApplyConfiguration(_) => apply_configuration(object, &value, context),
            },
            ExpressionResult::Failed(failure) => Err(MutationError::Expression(failure)),
            ExpressionResult::Absent => Ok(None),
        }
    }
}

/// Applies the patch that an expression computed. If a `test` operation fails, nothing changes.
fn apply_patch(
    object: Node<'_>,
    value: &Value<'_>,
    context: RunContext<'_>,
    patches: &mut PatchBudget,
) -> Result<Option<Arc<ChangedObject>>, MutationError> {
    let patch = operations(value)?;
    let limits = context.limits();
    let _memory = limits.memory_of_patch(patch.as_bytes())?;
    let patch = Document::parse(patch)?;
    let tree = match patch::apply_within(object, patch::read(patch.root())?, patches) {
        Ok(tree) => tree,
        Err(patch::PatchError::TestFailed { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let changed = limits.object(tree.to_text())?;
    let kind = &context.request.kind;
    apply::check_type_meta(kind, changed.root()).map_err(ChangeError::Undecodable)?;
    let decoded = apply::decode(kind, object, changed.root(), DecodeMode::Strict)
        .map_err(|error| ChangeError::Undecodable(error.to_string()))?;
    let changed = match decoded.text {
        Some(text) => limits.object(text)?,
        None => changed,
    };
    Ok((!changed.root().same(object)).then_some(changed))
}

/// Merges the configuration that an expression computed into the object.
fn apply_configuration(
    object: Node<'_>,
    value: &Value<'_>,
    context: RunContext<'_>,
) -> Result<Option<Arc<ChangedObject>>, MutationError> {
    let merged = apply::apply(&context.request.kind, object, value)?;
    let changed = context.limits().object(merged)?;
    Ok((!changed.root().same(object)).then_some(changed))
}

/// Writes the patch as JSON.
fn operations(value: &Value<'_>) -> Result<String, MutationError> {
    let Value::List(list) = value else {
        return Err(MutationError::NoPatch);
    };
    let mut out = String::from("[");
    for (position, item) in list.iter().enumerate() {
        let Value::Map(operation) = &item else {
            return Err(MutationError::NoPatch);
        };
        if position > 0 {
            out.push(',');
        }
        write_operation(&mut out, operation)?;
    }
    out.push(']');
    Ok(out)
}

fn write_operation(out: &mut String, operation: &Map<'_>) -> Result<(), MutationError> {
    let text = |name| match operation.field(name) {
        Some(Value::String(text)) => text.to_string(),
        _ => String::new(),
    };
    out.push_str("{\"op\":");
    write_string(out, &text("op"));
    out.push_str(",\"path\":");
    write_string(out, &text("path"));
    let from = text("from");
    if !from.is_empty() {
        out.push_str(",\"from\":");
        write_string(out, &from);
    }
    if let Some(value) = operation.field("value") {
        apply::type_names(&value)?;
        out.push_str(",\"value\":");
        changes::write(out, &value).map_err(MutationError::NoJson)?;
    }
    out.push('}');
    // A long path may be shared by many operations, so the size is checked after each.
    changes::check(out).map_err(MutationError::NoJson)
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_cel::{Activation, Budget, Environment, Type, Version};

    /// The CEL cost is that of a thousand small objects, because all share one string as path.
    #[test]
    fn a_path_that_is_in_every_operation_is_not_written_without_bound() {
        let environment = Environment::new(Version::NEWEST)
            .variable("object", Type::Dyn)
            .mutation();
        let expression = "lists.range(1000).map(i, JSONPatch{op: 'remove', path: object.path})";
        let program = environment.compile(expression, &[]).unwrap();
        let written = |length: usize| {
            let object = Document::parse(format!(r#"{{"path":"/{}"}}"#, "a".repeat(length))).unwrap();
            let mut activation = Activation::with_values(&environment, [Some(Value::json(object.root()))]);
            let value = program
                .evaluate(&mut activation, &mut Budget::new(1_000_000))
                .unwrap();
            operations(&value).map(|patch| patch.len() > 1000 * length)
        };
        assert!(written(100).unwrap());
        let refused = written(10_000);
        assert!(matches!(refused, Err(MutationError::NoJson(_))), "{refused:?}");
    }
}
