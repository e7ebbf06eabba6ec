//! Expressions evaluated one after another, out of one budget.

use std::fmt;

use super::environment::Expression;
use crate::cel::{Activation, Budget, EvalError, Value};

/// What became of one expression.
#[derive(Debug, Clone)]
pub enum Evaluated<'a> {
    /// There is none.
    Absent,
    /// Its value.
    Value(Value<'a>),
    /// Why it has none.
    Failed(String),
}

/// When to give up.
#[derive(Clone, Copy)]
pub struct Clock<'c> {
    /// Whether the caller's deadline has passed. Once it has, it stays so.
    pub expired: &'c dyn Fn() -> bool,
}

/// Expressions that share their variables.
pub(super) struct Sequence<'a> {
    activation: Activation<'a>,
}

// === impl Evaluated ===

impl Evaluated<'_> {
    /// The value, if it is text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Value(value) => value.as_str(),
            Self::Absent | Self::Failed(_) => None,
        }
    }
}

// === impl Clock ===

impl<'c> Clock<'c> {
    /// Whether it is time to give up: what was not asked cannot be answered.
    pub(super) fn is_over(self) -> bool {
        (self.expired)()
    }

    pub(super) fn budget(self, cost: u64) -> Budget<'c> {
        Budget::new(cost).until(self.expired)
    }
}

impl fmt::Debug for Clock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

// === impl Sequence ===

impl<'a> Sequence<'a> {
    pub(super) const fn new(activation: Activation<'a>) -> Self {
        Self { activation }
    }

    /// Evaluates each, in order.
    ///
    /// # Errors
    ///
    /// The budget is exhausted: then none of them has a result.
    pub(super) fn run(
        mut self,
        expressions: impl Iterator<Item = Option<&'a Expression>>,
        budget: &mut Budget<'_>,
    ) -> Result<Vec<Evaluated<'a>>, EvalError> {
        expressions
            .map(|expression| match expression {
                None => Ok(Evaluated::Absent),
                Some(expression) => self.one(expression, budget),
            })
            .collect()
    }

    pub(super) fn one(
        &mut self,
        expression: &'a Expression,
        budget: &mut Budget<'_>,
    ) -> Result<Evaluated<'a>, EvalError> {
        match expression.program().evaluate(&mut self.activation, budget) {
            Ok(value) => Ok(Evaluated::Value(value)),
            Err(EvalError::OutOfBudget) => Err(EvalError::OutOfBudget),
            Err(error) => Ok(Evaluated::Failed(format!(
                "expression '{}' resulted in error: {error}",
                expression.text()
            ))),
        }
    }
}
