//! How far a proof goes.

use crate::model::Deadline;

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
