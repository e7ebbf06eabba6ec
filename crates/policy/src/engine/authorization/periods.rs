//! Counts the policies in force at a time, without checking each.

use crate::engine::{Time, Validity};

/// The boundaries of all policies, ascending.
#[derive(Debug, Default)]
pub(super) struct Periods {
    /// How many policies hold at some time.
    count: usize,
    starts: Vec<Time>,
    ends: Vec<Time>,
}

impl Periods {
    pub(super) fn new(policies: impl Iterator<Item = Validity>) -> Self {
        let mut periods = Self::default();
        for validity in policies {
            let (start, end) = (validity.not_before, validity.not_after);
            if start.zip(end).is_some_and(|(start, end)| end <= start) {
                continue;
            }
            periods.count += 1;
            periods.starts.extend(start);
            periods.ends.extend(end);
        }
        periods.starts.sort_unstable();
        periods.ends.sort_unstable();
        periods
    }

    /// How many hold at `now`.
    pub(super) fn holding(&self, now: Time) -> usize {
        let to_come = self.starts.len() - self.starts.partition_point(|start| *start <= now);
        let over = self.ends.partition_point(|end| *end <= now);
        // Of one policy, at most one of both is true: it begins before it ends.
        self.count - to_come - over
    }
}
