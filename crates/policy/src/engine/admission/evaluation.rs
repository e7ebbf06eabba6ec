//! Evaluates a sequence of expressions with a shared cost budget.

use std::cell::Cell;

use super::environment::{Expression, ExpressionEnvironment};
use super::trace::{LastRead, PolicyExpression, Recorder, TraceStep};
use portcullis_cel::{Activation, Budget, EvalError, Value};

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

/// Expressions that share their variables.
pub(crate) struct Sequence<'a> {
    activation: Activation<'a>,
    environment: &'a ExpressionEnvironment,
    recorder: Option<&'a dyn Recorder>,
    /// What they have cost, with others.
    spent: &'a Cell<u64>,
    /// The variables that were passed to the recorder.
    recorded: Vec<usize>,
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

// === impl Sequence ===

impl<'a> Sequence<'a> {
    pub(crate) const fn new(
        activation: Activation<'a>,
        environment: &'a ExpressionEnvironment,
        recorder: Option<&'a dyn Recorder>,
        spent: &'a Cell<u64>,
    ) -> Self {
        Self {
            activation,
            environment,
            recorder,
            spent,
            recorded: Vec::new(),
        }
    }

    /// Evaluates each, in order.
    ///
    /// # Errors
    ///
    /// The budget is exhausted: then none of them has a result.
    pub(crate) fn run(
        mut self,
        expressions: impl Iterator<Item = (PolicyExpression<'a>, Option<&'a Expression>)>,
        budget: &mut Budget<'_>,
    ) -> Result<Vec<Evaluated<'a>>, EvalError> {
        let mut results = Vec::with_capacity(expressions.size_hint().0);
        for (part, expression) in expressions {
            results.push(match expression {
                None => Evaluated::Absent,
                Some(expression) => self.one(part, expression, budget)?,
            });
        }
        Ok(results)
    }

    pub(crate) fn one(
        &mut self,
        part: PolicyExpression<'a>,
        expression: &'a Expression,
        budget: &mut Budget<'_>,
    ) -> Result<Evaluated<'a>, EvalError> {
        let before = budget.remaining();
        if let Some(recorder) = self.recorder {
            recorder.begin();
        }
        let result = expression.program().evaluate(&mut self.activation, budget);
        let cost = before.saturating_sub(budget.remaining());
        self.spent.set(self.spent.get().saturating_add(cost));
        if let Some(recorder) = self.recorder {
            self.record_variables(recorder);
            recorder.record(TraceStep::Expression {
                part,
                text: expression.text(),
                program: expression.program(),
                result: result.as_ref(),
                read: LastRead(&self.activation),
                cost,
            });
        }
        match result {
            Ok(value) => Ok(Evaluated::Value(value)),
            Err(EvalError::OutOfBudget) => Err(EvalError::OutOfBudget),
            Err(error) => Ok(Evaluated::Failed(format!(
                "expression '{}' resulted in error: {error}",
                expression.text()
            ))),
        }
    }

    #[cold]
    fn record_variables(&mut self, recorder: &dyn Recorder) {
        for variable in self.environment.variables() {
            let Some(result) = self.activation.outcome(variable.slot) else {
                continue;
            };
            if !self.recorded.contains(&variable.slot) {
                self.recorded.push(variable.slot);
                recorder.record(TraceStep::Variable {
                    name: &variable.name,
                    program: variable.expression.program(),
                    result,
                });
            }
        }
    }
}
