//! `POST /validate` and `/mutate`: one AdmissionReview.
//!
//! ```text
//! small ─▶ the worker that read it, for a moment ── done ─▶ reply
//!                       │ not done: from the beginning
//! large ────────────────┴─▶ a thread of the pool, until the caller's deadline ─▶ reply | 504
//! ```
//!
//! A worker answers authorization too, and must not keep anybody waiting. A
//! run changes nothing, so that one given up can be begun anew; only a run
//! that came to its end is counted and logged.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime};

use actix_web::web::Data;

use super::gateway::Shared;
use super::respond::Rejection;
use super::routes::Received;
use crate::api::{AdmissionReview, AdmissionReviewError};
use crate::engine::admission::Phase;
use crate::engine::admission::webhook::nobody;
use crate::engine::admission::{AdmissionSet, Chain, Clock, Outcome, Request, Run};
use crate::engine::{Decision, PolicySet};
use crate::json::Document;
use crate::telemetry::decision_log::{DecisionLog, Question, Record};

/// The largest body that a worker reads itself: some 50 µs.
const SMALL_BYTES: usize = 64 << 10;

/// How long a worker tries.
const TRIAL: Duration = Duration::from_micros(500);

/// A review to be answered.
struct Asked {
    received: Received,
    phase: Phase,
    /// The only policy that is to be asked.
    only: Option<String>,
    since: Instant,
}

/// The reply to the review in the body.
pub(super) async fn answer(
    shared: &Data<Shared>,
    received: Received,
    phase: Phase,
    only: Option<String>,
) -> Result<Vec<u8>, Rejection> {
    let asked = Asked {
        received,
        phase,
        only,
        since: Instant::now(),
    };
    asked.check_name()?;
    if asked.received.body.len() <= SMALL_BYTES {
        let end = asked.received.deadline.min(asked.since + TRIAL);
        if let Some(answer) = asked.answer(shared, &|| Instant::now() >= end) {
            return answer;
        }
    }
    let of_job = shared.clone();
    let run = move |is_abandoned: &dyn Fn() -> bool| {
        let end = asked.received.deadline;
        asked.answer(&of_job, &|| Instant::now() >= end || is_abandoned())
    };
    let ended = shared.pool.run(run).await.ok_or(Rejection::Internal)?;
    ended.unwrap_or(Err(Rejection::TooLate))
}

// === impl Asked ===

impl Asked {
    fn check_name(&self) -> Result<(), Rejection> {
        let Some(name) = &self.only else {
            return Ok(());
        };
        let policies = self.policies();
        if policies.has(self.phase, name) {
            Ok(())
        } else {
            Err(Rejection::NoSuchPolicy { name: name.clone() })
        }
    }

    fn policies(&self) -> &AdmissionSet {
        let Received { snapshot, caller, .. } = &self.received;
        snapshot.admission.for_cluster(&caller.cluster)
    }

    /// What answers the questions about access of expressions.
    fn access(&self) -> &PolicySet {
        let Received { snapshot, caller, .. } = &self.received;
        snapshot.policies.for_cluster(&caller.cluster)
    }

    /// The answer, if there is one before `is_over` says so.
    fn answer(&self, shared: &Shared, is_over: &dyn Fn() -> bool) -> Option<Result<Vec<u8>, Rejection>> {
        let body = match Document::parse_bytes(&self.received.body) {
            Ok(body) => body,
            Err(error) => return Some(Err(AdmissionReviewError::from(error).into())),
        };
        let review = match AdmissionReview::decode(&body) {
            Ok(review) => review,
            Err(error) => return Some(Err(error.into())),
        };
        let outcome = review.tellable(self.decide(&review.request, is_over)?);
        let took = self.since.elapsed();
        self.count(shared, &outcome, took);
        if let Some(log) = &shared.decision_log {
            self.record(log, &review.request, &outcome, took);
        }
        Some(Ok(review.reply(&outcome)))
    }

    fn decide(&self, request: &Request<'_>, is_over: &dyn Fn() -> bool) -> Option<Outcome> {
        let was_over = Cell::new(false);
        let expired = || {
            let is_over = was_over.get() || is_over();
            was_over.set(is_over);
            is_over
        };
        let run = Run {
            only: self.only.as_deref(),
            clock: Clock { expired: &expired },
            access: self.access(),
            recorder: None,
        };
        let policies = self.policies();
        let outcome = Chain::run(self.phase, policies, request, run, &mut nobody);
        (!was_over.get()).then_some(outcome)
    }

    fn count(&self, shared: &Shared, outcome: &Outcome, took: Duration) {
        let Received { snapshot, caller, .. } = &self.received;
        shared
            .metrics
            .admission(self.phase, outcome.denial.is_none(), took);
        if let Some(counters) = shared.counters(snapshot).as_ref() {
            let policies = snapshot.admission.for_cluster(&caller.cluster);
            for (kind, place, evaluation) in &outcome.evaluations {
                counters.admission_evaluated(policies, *kind, *place, *evaluation);
            }
        }
    }

    fn record(&self, log: &DecisionLog, request: &Request<'_>, outcome: &Outcome, duration: Duration) {
        let Received { snapshot, caller, .. } = &self.received;
        let (decision, reason) = match &outcome.denial {
            None => (Decision::Allow, ""),
            Some(denial) => (Decision::Deny, denial.message.as_str()),
        };
        log.record(&Record {
            time: SystemTime::now(),
            revision: &snapshot.revision,
            cluster: &caller.cluster,
            caller: &caller.name,
            question: Question::Admission(self.phase, request),
            decision,
            reason,
            cause: outcome.cause.as_ref(),
            shadow: &[],
            webhooks: &[],
            duration,
        });
    }
}
