//! Limits of an evaluation: cost, memory and time.

use super::cost;

/// How many bytes the expressions that share a budget may allocate for what they make: lists,
/// maps and texts, whether or not they are kept.
pub const MAX_EVALUATION_BYTES: usize = 64 << 20;

/// What is left of a budget that several expressions share, and the deadline.
#[derive(Clone, Copy)]
pub struct Budget<'b> {
    pub(crate) remaining: u64,
    pub(crate) per_expression: u64,
    /// How many bytes may still be allocated.
    pub(crate) bytes: usize,
    pub(crate) expired: Option<&'b dyn Fn() -> bool>,
    /// Steps until the next look at the deadline.
    pub(crate) until_look: u64,
}

/// How many steps are made between two looks at the deadline: a tenth of a
/// millisecond, or a few.
pub(crate) const LOOK: u64 = 50_000;

/// The steps that a round of a loop counts for.
pub(crate) const ROUND: u64 = LOOK / 100;

/// How many steps a unit of cost pays for. Steps beyond what the cost of an
/// expression pays for are added to its cost, so that the limit of the cost
/// bounds the work, also where Kubernetes' own count is blind to it.
pub(crate) const STEPS_PER_UNIT: u64 = 250;

/// How many bytes of text that is only read are one step.
pub(crate) const BYTES_PER_STEP: usize = 4;

/// Text of so many bytes is long: reading it counts.
pub(crate) const LONG: usize = 1024;

/// The steps that a part of an expression counts for each time it is evaluated.
pub(crate) const STEPS_PER_NODE: usize = 4;

/// The steps of an expression that nothing has to pay for.
pub(crate) const FREE_STEPS: u64 = 1_000_000;

impl<'b> Budget<'b> {
    /// A budget of `cost` units, with the usual limit for each expression.
    #[must_use]
    pub const fn new(cost: u64) -> Self {
        Self {
            remaining: cost,
            per_expression: cost::PER_EXPRESSION,
            bytes: MAX_EVALUATION_BYTES,
            expired: None,
            until_look: LOOK,
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

    /// The bytes that may still be allocated.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
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
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
