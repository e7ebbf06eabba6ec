//! When a decision is given up.

use std::fmt;

use portcullis_cel::{Budget, CompileBudget};

/// When to give up.
#[derive(Clone, Copy)]
pub struct Deadline<'c> {
    /// Whether the caller's deadline has passed. Once it has, it stays so.
    pub expired: &'c dyn Fn() -> bool,
}

// === impl Deadline ===

impl<'c> Deadline<'c> {
    /// There is as much time as it takes.
    pub const NEVER: Self = Self { expired: &|| false };

    /// Whether it is time to give up: what was not asked cannot be answered.
    pub(crate) fn has_passed(self) -> bool {
        (self.expired)()
    }

    /// What expressions may cost together until then.
    pub(crate) const fn budget(self, cost: u64) -> Budget<'c> {
        Budget::new(cost).until(self.expired)
    }

    /// What compiling the expressions of one object may take until then.
    pub(crate) fn compile_budget(self) -> CompileBudget<'c> {
        CompileBudget::new().until(self.expired)
    }
}

impl fmt::Debug for Deadline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadline").finish_non_exhaustive()
    }
}
