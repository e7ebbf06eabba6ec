//! What the console remembers from one request to the next.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::history::MetricsHistory;
use super::recent_decisions::RecentDecisions;
use crate::telemetry::Metrics;

/// What is kept for as long as the gateway runs.
#[derive(Debug)]
pub struct ConsoleState {
    /// The decisions of the last while.
    pub decisions: RecentDecisions,
    /// What was counted in the last hour.
    pub history: MetricsHistory,
    in_force: Mutex<(Arc<str>, SystemTime)>,
}

// === impl ConsoleState ===

impl ConsoleState {
    /// At `now`, when `revision` is in force; so many `decisions` are kept.
    #[must_use]
    pub fn new(decisions: usize, revision: &Arc<str>, now: SystemTime) -> Self {
        Self {
            decisions: RecentDecisions::new(decisions),
            history: MetricsHistory::default(),
            in_force: Mutex::new((Arc::clone(revision), now)),
        }
    }

    /// `revision` is in force from `now` on, unless it was already.
    pub fn replaced(&self, revision: &Arc<str>, now: SystemTime) {
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        if in_force.0 != *revision {
            *in_force = (Arc::clone(revision), now);
        }
    }

    /// Takes a sample of what `metrics` counts, at `now`.
    pub fn sample(&self, metrics: &Metrics, now: SystemTime) {
        self.history
            .push(now, metrics.sample(), self.decisions.clusters());
    }

    /// Since when the revision in force is.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_same_revision_stays_in_force_since_it_came() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let state = ConsoleState::new(1, &"a".into(), at(1));
        state.replaced(&"a".into(), at(2));
        assert_eq!(state.since(), at(1));
        state.replaced(&"b".into(), at(3));
        assert_eq!(state.since(), at(3));
    }
}
