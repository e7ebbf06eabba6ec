//! What comes of comparing a rule with a request.

use super::Criterion;

/// Whether a rule applies to a request. There is no third answer and no default: whoever
/// has compared says which of the two it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum RuleMatch {
    /// It applies.
    Match,
    /// It does not; the first thing for which it does not.
    Mismatch(Criterion),
}

impl RuleMatch {
    /// Whether the rule applies.
    #[must_use]
    pub const fn is_match(self) -> bool {
        matches!(self, Self::Match)
    }

    /// `Match` if `is_met`.
    pub(super) const fn when(is_met: bool, criterion: Criterion) -> Self {
        if is_met {
            Self::Match
        } else {
            Self::Mismatch(criterion)
        }
    }
}
