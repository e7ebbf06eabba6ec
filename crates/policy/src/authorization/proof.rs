//! Proof: statements about all requests, and not about one.
//!
//! What a rule allows or denies is a [`Region`]: a box whose sides are sets of verbs, resources,
//! namespaces, users, groups, and so on. Regions are taken from regions, so that what is left is
//! exactly what, say, a changed binding grants and nothing else did. Conditions that compare texts
//! with constants are worked out; any other expression of CEL stays an unknown of the region, equal
//! expressions being one.
//!
//! Of a requested resource, the subresource stands apart (`pods/log` is no resource), as in the
//! requests of an API server.

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

pub use condition::{AskedNamespaceLabels, Outcomes, Side};
pub use difference::{Answer, DecisionChange, changed_reasons, difference};
pub use idle::{IdlePart, idle_parts};
pub use invariant::{Breach, InvariantProof, InvariantStatus, MAX_BREACHES, UnknownRoles};
pub use region::Region;
pub(crate) use sets::groups_of_account;
pub use sets::{GroupSet, Patterns, SelectorSet, TextSet};
pub use witness::Witness;
pub use words::{RegionSummary, request_in_words};

/// How many more regions may be kept in a list: what users write may be products of rules, subjects and
/// names.
pub(crate) struct RegionRoom<'d> {
    limit: WorkLimit<'d>,
    /// Of those that are there; one of many texts counts as several.
    weight: usize,
    count: usize,
}

/// How far regions are worked out.
#[derive(Clone, Copy)]
pub struct WorkLimit<'d> {
    /// The most parts into which one region may fall, and the most regions in a list: each takes some
    /// three kilobytes, and one of many texts counts as several.
    pub parts: usize,
    /// When to give up.
    pub deadline: Deadline<'d>,
}

/// A statement about all requests was not worked out: nothing may be assumed of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofLimitError {
    /// More parts than [`WorkLimit::parts`].
    #[error("the requests concerned fall into too many parts to be listed: compare fewer changes at once")]
    Parts,
    /// Of aggregated ClusterRoles it is not worked out what they are made of.
    #[error(
        "the ClusterRoles that are aggregated have too many rules of others to be worked out: aggregate fewer of them"
    )]
    Aggregation,
    /// The deadline has passed.
    #[error("the time for the answer has passed: compare fewer changes at once")]
    Deadline,
}

// === impl WorkLimit ===

impl<'d> WorkLimit<'d> {
    /// Room for a list of regions.
    pub(crate) const fn room(self) -> RegionRoom<'d> {
        RegionRoom {
            limit: self,
            weight: 0,
            count: 0,
        }
    }

    /// # Errors
    /// The deadline has passed.
    pub(crate) fn in_time(self) -> Result<(), ProofLimitError> {
        match (self.deadline.expired)() {
            true => Err(ProofLimitError::Deadline),
            false => Ok(()),
        }
    }
}

// === impl RegionRoom ===

impl RegionRoom<'_> {
    /// # Errors
    /// The deadline has passed.
    pub(crate) fn in_time(&self) -> Result<(), ProofLimitError> {
        self.limit.in_time()
    }

    /// Takes the room of the region that comes next, which is of this weight.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn take(&mut self, weight: usize) -> Result<(), ProofLimitError> {
        self.weight += weight;
        self.count += 1;
        if self.count.is_multiple_of(256) {
            self.limit.in_time()?;
        }
        match self.weight > self.limit.parts {
            true => Err(ProofLimitError::Parts),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
