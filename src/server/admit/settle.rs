//! The end of a review: metrics, decision log, reply.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::pending::PendingReview;
use crate::authentication::Caller;
use crate::recording::{RecordedBody, RecordedCall, RecordedDecision, RecordedReview};
use crate::reload::Snapshot;
use crate::server::gateway::Shared;
use crate::server::receive::ReceivedReview;
use crate::server::recorder::DecisionRecorder;
use crate::telemetry::decision_log::{LoggedQuestion, Record, ShadowDecision};
use portcullis_policy::api::{AdmissionReview, OwnedAdmissionReview};
use portcullis_policy::engine::Decision;
use portcullis_policy::engine::admission::{Outcome, Phase, Request};

/// A review that is answered, and what is left to do about it.
pub(crate) struct SettledReview {
    pub(crate) reply: Vec<u8>,
    /// Once webhooks in shadow have answered.
    pub(crate) unlogged: Option<Box<Unlogged>>,
    /// With the review, where reviews are recorded.
    pub(crate) unrecorded: Option<Box<Unrecorded>>,
}

/// What was decided, for a line that waits for webhooks in shadow.
pub(crate) struct Unlogged {
    pub(crate) outcome: Outcome,
    pub(crate) time: SystemTime,
    pub(crate) took: Duration,
}

/// An answer that is to be recorded.
pub(crate) struct Unrecorded {
    decision: RecordedDecision,
    pub(crate) calls: Vec<RecordedCall>,
    time: SystemTime,
    phase: Phase,
    name: Option<String>,
    cluster: String,
    caller: String,
    revision: Arc<str>,
}

/// Whose decision it was, and what it was about.
pub(crate) struct About<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) caller: &'a Caller,
    pub(crate) phase: Phase,
    pub(crate) request: &'a Request<'a>,
}

// === impl PendingReview ===

impl PendingReview {
    /// The reply, and what is left to do.
    pub(crate) fn settle(
        &self,
        shared: &Shared,
        review: &AdmissionReview<'_>,
        outcome: Outcome,
    ) -> SettledReview {
        let ReceivedReview { snapshot, caller, .. } = &self.received;
        let decided = Unlogged {
            outcome: review.within_version(outcome),
            time: self.received.time,
            took: self.since.elapsed(),
        };
        self.count(shared, &decided);
        self.tell(&decided.outcome);
        let mut settled = SettledReview {
            reply: review.reply(&decided.outcome),
            unlogged: None,
            unrecorded: shared
                .recordings
                .is_on()
                .then(|| Box::new(self.unrecorded(&decided.outcome))),
        };
        if !decided.outcome.shadows.is_empty() {
            settled.unlogged = Some(Box::new(decided));
            return settled;
        }
        if let Some(recorder) = &shared.recorder {
            let about = About {
                snapshot,
                caller,
                phase: self.phase,
                request: &review.request,
            };
            decided.record(recorder, &about, &[]);
        }
        settled
    }

    fn unrecorded(&self, outcome: &Outcome) -> Unrecorded {
        let ReceivedReview {
            snapshot,
            caller,
            time,
            ..
        } = &self.received;
        let (decision, reason) = decision(outcome);
        Unrecorded {
            decision: RecordedDecision {
                decision,
                reason: reason.to_owned(),
                cause: outcome.cause.clone(),
                error: String::new(),
                patch: outcome.patch.clone(),
            },
            calls: self.take_calls(),
            time: *time,
            phase: self.phase,
            name: self.only.clone(),
            cluster: caller.cluster.to_string(),
            caller: caller.name.to_string(),
            revision: Arc::clone(&snapshot.revision),
        }
    }

    fn tell(&self, outcome: &Outcome) {
        let ReceivedReview { caller, trace, .. } = &self.received;
        trace.tell("portcullis.cluster", || caller.cluster.to_string());
        trace.decided(decision(outcome).0, outcome.cause.as_ref());
    }

    fn count(&self, shared: &Shared, decided: &Unlogged) {
        let Unlogged { outcome, took, .. } = decided;
        let is_allowed = outcome.denial.is_none();
        shared.metrics.admission(self.phase, is_allowed, *took);
        if let Some(counters) = shared.counters.load().of(&self.received.snapshot) {
            for evaluation in &outcome.evaluations {
                counters.admission_evaluated(self.policies(), evaluation);
            }
        }
    }
}

// === impl Unlogged ===

impl Unlogged {
    /// Writes the line.
    pub(crate) fn record(
        &self,
        recorder: &DecisionRecorder,
        about: &About<'_>,
        shadow: &[ShadowDecision<'_>],
    ) {
        let (decision, reason) = decision(&self.outcome);
        let record = Record {
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
        };
        recorder.record(&record, about.snapshot);
    }
}

// === impl Unrecorded ===

impl Unrecorded {
    /// Records it with the review that it is about.
    pub(crate) fn record(self, shared: &Shared, review: Arc<OwnedAdmissionReview>) {
        shared.recordings.record(|| RecordedReview {
            time: self.time,
            endpoint: self.phase.into(),
            name: self.name,
            cluster: self.cluster,
            caller: self.caller,
            revision: self.revision,
            decision: self.decision,
            opinions: Vec::new(),
            calls: self.calls,
            body: RecordedBody::Admission(review),
        });
    }
}

/// The decision, and the reason for a denial.
fn decision(outcome: &Outcome) -> (Decision, &str) {
    match &outcome.denial {
        None => (Decision::Allow, ""),
        Some(denial) => (Decision::Deny, denial.message.as_str()),
    }
}
