//! Proof: statements about all requests, instead of one.
//!
//! The requests that a rule allows or denies are a [`Region`]: a box whose sides are sets of verbs,
//! resources, namespaces, users, groups, and so on. Regions can be subtracted from each other. What
//! remains is, for example, exactly what a changed binding grants and nothing else granted before.
//! Conditions that compare fields with constants are evaluated symbolically; any other CEL
//! expression remains an unknown of the region, and equal expressions are the same unknown.
//!
//! The subresource is a side of its own (`pods/log` is not a resource), as in the requests of an
//! API server.

mod condition;
mod difference;
mod grants;
mod idle;
mod invariant;
mod pieces;
mod predicates;
mod region;
mod rules;
mod sets;
mod witness;
mod words;

use crate::model::Deadline;

pub use condition::{NamespaceLabelRequirements, Outcomes, Side};
pub use difference::{Answer, DecisionChange, changed_causes, difference};
pub use idle::{RedundantPart, redundant_parts};
pub use invariant::{Breach, InvariantProof, InvariantStatus, MAX_BREACHES, UnknownRoles};
pub use region::Region;
pub(crate) use sets::groups_of_account;
pub use sets::{GroupSet, Patterns, SelectorSet, TextSet};
pub use witness::Witness;
pub use words::{RegionSummary, request_in_words};

/// Bounds the number of regions in a list, because users can write products of rules, subjects and
/// names.
pub(crate) struct RegionBudget<'d> {
    limit: WorkLimit<'d>,
    /// The weight of the regions so far; a region with many strings counts as several.
    weight: usize,
    count: usize,
}

/// Limits of a proof.
#[derive(Clone, Copy)]
pub struct WorkLimit<'d> {
    /// The maximum of parts into which a region may be split, and of regions in a list. Each takes
    /// some three kilobytes; one with many strings counts as several.
    pub parts: usize,
    /// When to give up.
    pub deadline: Deadline<'d>,
}

/// A statement about all requests could not be proved or disproved: nothing may be assumed about
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofLimitError {
    /// There are more parts than [`WorkLimit::parts`].
    #[error("the differences have too many parts to list: compare fewer changes at once")]
    Parts,
    /// The rules of aggregated ClusterRoles were not computed.
    #[error("the aggregated ClusterRoles have too many rules: aggregate fewer of them")]
    Aggregation,
    /// The deadline has passed.
    #[error("the comparison takes too long: compare fewer changes at once")]
    Deadline,
}

// === impl WorkLimit ===

impl<'d> WorkLimit<'d> {
    /// A bound for a list of regions.
    pub(crate) const fn room(self) -> RegionBudget<'d> {
        RegionBudget {
            limit: self,
            weight: 0,
            count: 0,
        }
    }

    /// Checks the deadline.
    ///
    /// # Errors
    /// The deadline has passed.
    pub(crate) fn check_deadline(self) -> Result<(), ProofLimitError> {
        match (self.deadline.expired)() {
            true => Err(ProofLimitError::Deadline),
            false => Ok(()),
        }
    }
}

// === impl RegionBudget ===

impl RegionBudget<'_> {
    /// Checks the deadline.
    ///
    /// # Errors
    /// The deadline has passed.
    pub(crate) fn in_time(&self) -> Result<(), ProofLimitError> {
        self.limit.check_deadline()
    }

    /// Counts a region of this weight, which is about to be added.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn take(&mut self, weight: usize) -> Result<(), ProofLimitError> {
        self.weight += weight;
        self.count += 1;
        if self.count.is_multiple_of(256) {
            self.limit.check_deadline()?;
        }
        match self.weight > self.limit.parts {
            true => Err(ProofLimitError::Parts),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
