//! How much an evaluation may cost, and how long it may take.

use super::cost;

/// What is left of a budget that several expressions share, and the deadline.
pub struct Budget<'b> {
    pub(crate) remaining: u64,
    pub(crate) per_expression: u64,
    pub(crate) expired: Option<&'b dyn Fn() -> bool>,
    /// Rounds until the next look at the deadline.
    pub(crate) patience: u32,
}

/// Rounds of loops, or thousands of items touched, between two looks at the deadline.
pub(crate) const PATIENCE: u32 = 100;

impl<'b> Budget<'b> {
    /// A budget of `cost` units, with the usual limit for each expression.
    #[must_use]
    pub const fn new(cost: u64) -> Self {
        Self {
            remaining: cost,
            per_expression: cost::PER_EXPRESSION,
            expired: None,
            patience: PATIENCE,
        }
    }

    /// The same with a deadline: `expired` is asked now and then, at least once
    /// in every 100 rounds of loops, those of all expressions together.
    #[must_use]
    pub const fn until(self, expired: &'b dyn Fn() -> bool) -> Self {
        Self {
            expired: Some(expired),
            ..self
        }
    }

    /// The same with another limit for each expression.
    #[must_use]
    pub const fn per_expression(self, cost: u64) -> Self {
        Self {
            per_expression: cost,
            ..self
        }
    }

    /// The units that are left.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }
}

impl std::fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}
