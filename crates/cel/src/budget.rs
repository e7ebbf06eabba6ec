//! Limits of an evaluation: cost, memory and time.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;

use crate::cost;
use crate::error::{CompileError, CompileErrorKind};

/// How many bytes the expressions that share a budget may allocate for what they make: lists,
/// maps and texts, whether or not they are kept, unless they may allocate less.
pub const MAX_EVALUATION_BYTES: usize = 64 << 20;

/// What is left of a budget that several expressions share, and the deadline.
#[derive(Clone, Copy)]
pub struct Budget<'b> {
    pub(crate) remaining: u64,
    pub(crate) per_expression: u64,
    /// How many bytes may still be allocated.
    pub(crate) bytes: usize,
    /// Of an attempt: set where more bytes are needed.
    pub(crate) needs_more: Option<&'b AtomicBool>,
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
            needs_more: None,
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

    /// The same, which allocates at most `bytes`.
    #[must_use]
    pub const fn allocating(self, bytes: usize) -> Self {
        Self {
            bytes: if bytes < self.bytes { bytes } else { self.bytes },
            ..self
        }
    }

    /// The same for an attempt, which allocates at most `bytes`. Where more are needed, it sets
    /// `needs_more` and ends as at a deadline.
    #[must_use]
    pub const fn attempt(self, bytes: usize, needs_more: &'b AtomicBool) -> Self {
        Self {
            needs_more: Some(needs_more),
            ..self.allocating(bytes)
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

// What compiling may take: work, memory and time.

/// How many steps compiling the expressions of one object may take: some tenths of a second.
pub const MAX_COMPILE_STEPS: u64 = 16_000_000;

/// How many bytes the programs of one object may take.
pub const MAX_COMPILED_BYTES: usize = 32 << 20;

/// What is left to compile the expressions of one object, and the deadline.
///
/// Each expression takes from it what it needs. Once something is used up, no further expression
/// compiles.
pub struct CompileBudget<'b> {
    steps: Cell<u64>,
    bytes: Cell<usize>,
    until_look: Cell<u64>,
    expired: Option<&'b dyn Fn() -> bool>,
}

/// Why compiling ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exhaustion {
    Steps,
    Bytes,
    /// A type became larger than any may be.
    Type,
    Deadline,
}

// === impl CompileBudget ===

impl<'b> CompileBudget<'b> {
    /// A budget for all expressions of one object, and as much time as they take.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            steps: Cell::new(MAX_COMPILE_STEPS),
            bytes: Cell::new(MAX_COMPILED_BYTES),
            until_look: Cell::new(LOOK),
            expired: None,
        }
    }

    /// The same with a deadline: `expired` is asked at first and then about once a millisecond.
    #[must_use]
    pub fn until(self, expired: &'b dyn Fn() -> bool) -> Self {
        Self {
            expired: Some(expired),
            until_look: Cell::new(0),
            ..self
        }
    }

    /// The steps that are left.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// The bytes that are left.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Counts work before it is done.
    pub(crate) fn work(&self, steps: u64) -> Result<(), Exhaustion> {
        let Some(left) = self.steps.get().checked_sub(steps) else {
            self.steps.set(0);
            return Err(Exhaustion::Steps);
        };
        self.steps.set(left);
        match self.until_look.get().checked_sub(steps) {
            Some(left) if left > 0 => self.until_look.set(left),
            _ => return self.look(),
        }
        Ok(())
    }

    fn look(&self) -> Result<(), Exhaustion> {
        self.until_look.set(LOOK);
        if self.expired.is_some_and(|expired| expired()) {
            // Whatever is compiled next ends at once.
            self.until_look.set(0);
            return Err(Exhaustion::Deadline);
        }
        Ok(())
    }

    /// Counts memory that a program takes.
    pub(crate) fn keep(&self, bytes: usize) -> Result<(), Exhaustion> {
        let left = self.bytes.get().checked_sub(bytes);
        self.bytes.set(left.unwrap_or_default());
        left.map(drop).ok_or(Exhaustion::Bytes)
    }
}

impl Default for CompileBudget<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for CompileBudget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompileBudget")
            .field("steps", &self.steps)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

// === impl Exhaustion ===

impl From<Exhaustion> for CompileError {
    fn from(exhaustion: Exhaustion) -> Self {
        let message = match exhaustion {
            Exhaustion::Steps => {
                "compiling takes too long, this expression and those before it in the object together: \
                 simplify them, or spread them over several objects"
            }
            Exhaustion::Bytes => {
                "takes too much memory, this expression and those before it in the object together: \
                 simplify them, their regular expressions above all, or spread them over several objects"
            }
            Exhaustion::Type => {
                "its type is too large: lists and maps in one another, many times the same, need `dyn()` around \
                 what is repeated"
            }
            Exhaustion::Deadline => "compiling was interrupted by the deadline",
        };
        let kind = match exhaustion {
            Exhaustion::Deadline => CompileErrorKind::Interrupted,
            _ => CompileErrorKind::TooLarge,
        };
        Self::unplaced(kind, message)
    }
}
