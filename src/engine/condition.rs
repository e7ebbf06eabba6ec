//! Conditions in CEL over the review's spec, behind one small interface.
//!
//! ```text
//! load:     text -> bounds -> parse -> check (names, types, depth) -> Condition
//! request:  Attributes -> Activation -> Condition::evaluate -> bool | fault
//! ```
//!
//! The variable is `request`, the spec of a SubjectAccessReview in v1 shape
//! whatever version was asked, as kube-apiserver's authorizer match conditions
//! have it (`apiserver/pkg/authorization/cel/compile.go`).

mod activation;
mod check;
mod tokens;

use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::{Context, Env, Program, Value};

pub use activation::Activation;

/// The longest expression accepted, in bytes.
pub const MAX_EXPRESSION_BYTES: usize = 8 * 1024;
/// The most tokens of an expression: the parser recurses along chains of them.
pub const MAX_EXPRESSION_TOKENS: usize = 512;
/// The deepest nesting of brackets: without optimisation the parser needs
/// 200 KiB of stack for each, of the 2 MiB that a thread has.
pub const MAX_EXPRESSION_NESTING: usize = 8;
/// The deepest nesting of operations, chains such as `a + b + c` included.
pub const MAX_EXPRESSION_DEPTH: u32 = 32;
/// The most steps one evaluation may take by estimate, as `PerCallLimit` of
/// `apiserver/pkg/apis/cel/config.go`.
pub const MAX_EVALUATION_COST: u64 = 1_000_000;

/// One condition, compiled. Cheap to clone.
#[derive(Clone)]
pub struct Condition {
    compiled: Arc<Compiled>,
}

struct Compiled {
    name: String,
    expression: String,
    program: Program,
    shape: check::Shape,
}

/// Why an expression cannot be a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionFault {
    /// Nothing but white space.
    #[error("the expression is empty")]
    Empty,
    /// Longer than [`MAX_EXPRESSION_BYTES`].
    #[error("the expression has {0} bytes, at most {MAX_EXPRESSION_BYTES} are accepted")]
    TooLong(usize),
    /// More than [`MAX_EXPRESSION_TOKENS`].
    #[error("the expression has more than {MAX_EXPRESSION_TOKENS} words and signs")]
    TooManyTokens,
    /// Deeper than [`MAX_EXPRESSION_NESTING`].
    #[error("the expression nests deeper than {MAX_EXPRESSION_NESTING} brackets")]
    TooDeep,
    /// Deeper than [`MAX_EXPRESSION_DEPTH`].
    #[error("the expression chains or nests more than {MAX_EXPRESSION_DEPTH} operations")]
    TooManyLevels,
    /// Not CEL.
    #[error("the expression cannot be parsed: {0}")]
    Syntax(String),
    /// A variable that is not there.
    #[error("`{0}` is not declared; the variable is `request`")]
    UnknownVariable(String),
    /// A function that is not there.
    #[error("the function `{0}` is not known")]
    UnknownFunction(String),
    /// A field that the spec of a SubjectAccessReview does not have.
    #[error("`{parent}` has no field `{field}`")]
    UnknownField {
        /// The path before it, such as `request.resourceAttributes`.
        parent: String,
        /// The field.
        field: String,
    },
    /// The result is, or may be, something else than true or false.
    #[error("the expression must be of type bool")]
    NotBool,
}

/// Why a condition has no result for a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationFault {
    /// A field that is absent, a type that does not fit, an index out of range, ….
    #[error("{0}")]
    Failed(String),
    /// Over [`MAX_EVALUATION_COST`] for a request of this size.
    #[error("the evaluation would cost more than {MAX_EVALUATION_COST} steps")]
    CostExceeded,
    /// The result is something else than true or false.
    #[error("the result is not of type bool")]
    NotBool,
}

// === impl Condition ===

impl Condition {
    /// Compiles the condition `name`.
    ///
    /// # Errors
    /// The first reason why `expression` cannot be used. Names that no request
    /// has are refused here rather than at each evaluation.
    pub fn compile(name: &str, expression: &str) -> Result<Self, ConditionFault> {
        tokens::bound(expression)?;
        let program = environment()
            .compile(expression)
            .map_err(|faults| ConditionFault::Syntax(faults.to_string()))?;
        let shape = check::check(program.expression())?;
        let (name, expression) = (name.to_owned(), expression.to_owned());
        Ok(Self {
            compiled: Arc::new(Compiled {
                name,
                expression,
                program,
                shape,
            }),
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

    /// Whether it holds for a request.
    ///
    /// # Errors
    /// There is no result: neither true nor false may be assumed.
    pub fn evaluate(&self, activation: &Activation<'_>) -> Result<bool, EvaluationFault> {
        if self.compiled.shape.cost(activation.weight()) > MAX_EVALUATION_COST {
            return Err(EvaluationFault::CostExceeded);
        }
        let mut context = Context::with_env(Arc::clone(environment()));
        context.add_variable_from_value("request", activation.request());
        match self.compiled.program.execute(&context) {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(_) => Err(EvaluationFault::NotBool),
            Err(fault) => Err(EvaluationFault::Failed(fault.to_string())),
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

fn environment() -> &'static Arc<Env> {
    static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));
    &ENVIRONMENT
}

#[cfg(test)]
mod tests;
