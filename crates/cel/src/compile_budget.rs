//! What compiling may take: work, memory and time.

use std::cell::Cell;

use super::error::{CompileError, CompileErrorKind};

/// How many steps compiling the expressions of one object may take: some tenths of a second.
pub const MAX_COMPILE_STEPS: u64 = 16_000_000;

/// How many bytes the programs of one object may take.
pub const MAX_COMPILED_BYTES: usize = 32 << 20;

/// How many steps are made between two looks at the deadline: about a millisecond.
const LOOK: u64 = 50_000;

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
