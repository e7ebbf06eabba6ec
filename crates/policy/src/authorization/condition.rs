//! Conditions: CEL expressions over the spec of the review.
//!
//! ```text
//! load:     text -> check (names, types) -> Condition
//! request:  Attributes -> Activation -> Condition::evaluate -> bool | error
//! ```
//!
//! The variable is `request`, the spec of a SubjectAccessReview in its v1 form, whatever
//! the version of the review, as in kube-apiserver's authorizer match conditions
//! (`apiserver/pkg/authorization/cel/compile.go`).

mod activation;

use std::fmt;
use std::sync::Arc;

use portcullis_cel::{CompileBudget, CompileError, EvalError, Program, Type, Value, Version};

pub use activation::RequestActivation;

/// The deepest nesting of brackets, those in texts counted too: so deep the
/// parser goes on any thread's stack, in a build without optimisation as well.
pub const MAX_NESTING: usize = 64;

/// One condition, compiled. Cheap to clone.
#[derive(Clone)]
pub struct Condition {
    compiled: Arc<Compiled>,
}

struct Compiled {
    name: String,
    expression: String,
    program: Program,
}

/// Why an expression cannot be a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionError {
    /// Nothing but white space.
    #[error("the expression is empty")]
    Empty,
    /// Deeper than [`MAX_NESTING`].
    #[error("the expression nests deeper than {MAX_NESTING} brackets")]
    TooDeep,
    /// No CEL, too long or too deep, a name or field that is not there, types
    /// that do not fit, or a result that is not statically bool.
    #[error(transparent)]
    Invalid(#[from] CompileError),
}

/// Why a condition has no result for a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionEvaluationError {
    /// A field that is absent, an index out of range, a limit that is reached, ….
    #[error(transparent)]
    Failed(#[from] EvalError),
    /// The result is something else than true or false.
    #[error("the result is not a bool")]
    NotBool,
}

/// The result of several conditions.
#[derive(Debug)]
pub(crate) enum ConditionsResult<'c> {
    AllTrue,
    /// The one of this name is false.
    False(&'c str),
    /// None is false, and the one of this name has no result.
    Error(&'c str, ConditionEvaluationError),
}

// === impl Condition ===

impl Condition {
    /// Compiles the condition `name` in the environment of `version`.
    ///
    /// # Errors
    /// The first reason why `expression` cannot be used. Names that no request
    /// has are refused here rather than at each evaluation.
    pub fn compile(version: Version, name: &str, expression: &str) -> Result<Self, ConditionError> {
        Self::compile_within(version, name, expression, &CompileBudget::new())
    }

    /// The same out of a budget that several conditions share.
    ///
    /// # Errors
    /// The same, or what the budget had not enough of.
    pub fn compile_within(
        version: Version,
        name: &str,
        expression: &str,
        budget: &CompileBudget<'_>,
    ) -> Result<Self, ConditionError> {
        if expression.trim().is_empty() {
            return Err(ConditionError::Empty);
        }
        if nesting(expression) > MAX_NESTING {
            return Err(ConditionError::TooDeep);
        }
        let program = activation::environment(version).compile_within(expression, &[Type::Bool], budget)?;
        let (name, expression) = (name.to_owned(), expression.to_owned());
        Ok(Self {
            compiled: Arc::new(Compiled {
                name,
                expression,
                program,
            }),
        })
    }

    /// All must hold; a false one beats one that has no result, and ends it.
    pub(crate) fn all<'c>(
        conditions: &'c [Self],
        activation: &RequestActivation<'_>,
    ) -> ConditionsResult<'c> {
        let mut failed = None;
        for condition in conditions {
            match condition.evaluate(activation) {
                Ok(true) => {}
                Ok(false) => return ConditionsResult::False(condition.name()),
                Err(error) => {
                    failed.get_or_insert((condition.name(), error));
                }
            }
        }
        failed.map_or(ConditionsResult::AllTrue, |(name, error)| {
            ConditionsResult::Error(name, error)
        })
    }

    /// The name given to it in the manifest.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.compiled.name
    }

    /// The expression as written.
    #[must_use]
    pub fn expression(&self) -> &str {
        &self.compiled.expression
    }

    /// Whether it holds for a request. What it costs is taken from what is left
    /// to `activation`.
    ///
    /// # Errors
    /// There is no result: neither true nor false may be assumed.
    pub fn evaluate(&self, activation: &RequestActivation<'_>) -> Result<bool, ConditionEvaluationError> {
        match activation.evaluate(&self.compiled.program)? {
            Value::Bool(holds) => Ok(holds),
            _ => Err(ConditionEvaluationError::NotBool),
        }
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condition")
            .field("name", &self.name())
            .field("expression", &self.expression())
            .finish_non_exhaustive()
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.expression() == other.expression()
    }
}

impl Eq for Condition {}

fn nesting(expression: &str) -> usize {
    let mut deepest = 0;
    let mut depth = 0_usize;
    for byte in expression.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

#[cfg(test)]
mod tests;
