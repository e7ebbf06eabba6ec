//! The end of a review: metrics, decision log, reply.

use std::time::{Duration, SystemTime};

use super::pending::PendingReview;
use crate::api::AdmissionReview;
use crate::authentication::Caller;
use crate::engine::Decision;
use crate::engine::admission::{Outcome, Phase, Request};
use crate::reload::Snapshot;
use crate::server::gateway::Shared;
use crate::server::receive::ReceivedReview;
use crate::telemetry::decision_log::{DecisionLog, LoggedQuestion, Record, ShadowDecision};

/// What was decided, for a line that waits for webhooks in shadow.
pub(super) struct Unlogged {
    pub(super) outcome: Outcome,
    pub(super) time: SystemTime,
    pub(super) took: Duration,
}

/// Whose decision it was, and what it was about.
pub(super) struct About<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) caller: &'a Caller,
    pub(super) phase: Phase,
    pub(super) request: &'a Request<'a>,
}

// === impl PendingReview ===

impl PendingReview {
    /// The reply, and what is left to log once webhooks in shadow have answered.
    pub(super) fn settle(
        &self,
        shared: &Shared,
        review: &AdmissionReview<'_>,
        outcome: Outcome,
    ) -> (Vec<u8>, Option<Box<Unlogged>>) {
        let ReceivedReview { snapshot, caller, .. } = &self.received;
        let decided = Unlogged {
            outcome: review.within_version(outcome),
            time: self.received.time,
            took: self.since.elapsed(),
        };
        self.count(shared, &decided);
        let reply = review.reply(&decided.outcome);
        if !decided.outcome.shadows.is_empty() {
            return (reply, Some(Box::new(decided)));
        }
        if let Some(log) = &shared.decision_log {
            let about = About {
                snapshot,
                caller,
                phase: self.phase,
                request: &review.request,
            };
            decided.record(log, &about, &[]);
        }
        (reply, None)
    }

    fn count(&self, shared: &Shared, decided: &Unlogged) {
        let Unlogged { outcome, took, .. } = decided;
        let is_allowed = outcome.denial.is_none();
        shared.metrics.admission(self.phase, is_allowed, *took);
        if let Some(counters) = shared.counters.load().of(&self.received.snapshot) {
            for (kind, place, evaluation) in &outcome.evaluations {
                counters.admission_evaluated(self.policies(), *kind, *place, *evaluation);
            }
        }
    }
}

// === impl Unlogged ===

impl Unlogged {
    /// Writes the line.
    pub(super) fn record(&self, log: &DecisionLog, about: &About<'_>, shadow: &[ShadowDecision<'_>]) {
        let (decision, reason) = match &self.outcome.denial {
            None => (Decision::Allow, ""),
            Some(denial) => (Decision::Deny, denial.message.as_str()),
        };
        log.record(&Record {
            time: self.time,
            revision: &about.snapshot.revision,
            cluster: &about.caller.cluster,
            caller: &about.caller.name,
            question: LoggedQuestion::Admission(about.phase, about.request),
            decision,
            reason,
            cause: self.outcome.cause.as_ref(),
            near_misses: &[],
            shadow,
            exceptions: &self.outcome.exceptions,
            webhooks: &self.outcome.webhooks,
            evaluation_error: "",
            duration: self.took,
        });
    }
}
