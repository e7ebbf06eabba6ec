//! What becomes of an expression.

use std::fmt;

use portcullis_cel::json::Document;
use portcullis_cel::{Budget, Environment, EvalError, cost};
use serde::Deserialize;

use crate::variables::activation;
use crate::written::written;

/// What became of an expression, and what it cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It does not compile.
    Refused(String),
    /// It fails when it runs.
    Failed(String, u64),
    /// It evaluates to this.
    Value(String, u64),
    /// It costs more than one expression may.
    Limited,
    /// The compiler itself failed.
    Panicked(String),
}

/// What the program answers.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    refused: String,
    failed: String,
    value: String,
    panicked: String,
    cost: u64,
    pub(crate) functions: Vec<String>,
}

// === impl Outcome ===

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        if !answer.panicked.is_empty() {
            Self::Panicked(answer.panicked)
        } else if answer.failed.contains("actual cost limit exceeded") {
            Self::Limited
        } else if !answer.refused.is_empty() {
            Self::Refused(answer.refused)
        } else if !answer.failed.is_empty() {
            Self::Failed(answer.failed, answer.cost)
        } else {
            Self::Value(answer.value, answer.cost)
        }
    }
}

impl Outcome {
    /// What becomes of `expression` here.
    pub(crate) fn here(environment: &Environment, variables: &Document<'_>, expression: &str) -> Self {
        let program = match environment.compile(expression, &[]) {
            Ok(program) => program,
            Err(error) => return Self::Refused(error.to_string()),
        };
        let mut activation = activation(environment, variables);
        let mut budget = Budget::new(cost::PER_BINDING);
        let result = program.evaluate(&mut activation, &mut budget);
        let cost = cost::PER_BINDING - budget.remaining();
        match result {
            Ok(value) => Self::Value(written(&value), cost),
            Err(EvalError::CostLimit | EvalError::OutOfBudget) => Self::Limited,
            Err(error) => Self::Failed(error.to_string(), cost),
        }
    }

    /// Whether two outcomes are the same, the words of a failure included.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.is_same_but_for_cost(other) && self.cost() == other.cost()
    }

    /// Whether nothing but the cost may differ.
    pub(crate) fn is_same_but_for_cost(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Value(text, _), Self::Value(other, _))
            | (Self::Failed(text, _), Self::Failed(other, _)) => text == other,
            _ => self.kind() == other.kind(),
        }
    }

    /// Whether nothing but the words of a failure may differ.
    pub(crate) fn is_same_but_for_words(&self, other: &Self) -> bool {
        let fail = matches!((self, other), (Self::Failed(..), Self::Failed(..)));
        fail && self.cost() == other.cost()
    }

    /// In one word.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Failed(..) => "failed",
            Self::Value(..) => "value",
            Self::Limited => "limited",
            Self::Panicked(_) => "panicked",
        }
    }

    const fn cost(&self) -> Option<u64> {
        match self {
            Self::Failed(_, cost) | Self::Value(_, cost) => Some(*cost),
            _ => None,
        }
    }
}

/// As the table of differences writes it: `value 3`, `failed no such key`.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::Refused(text) | Self::Panicked(text) | Self::Failed(text, _) | Self::Value(text, _) => {
                write!(f, "{kind} {text}")
            }
            Self::Limited => f.write_str(kind),
        }
    }
}
