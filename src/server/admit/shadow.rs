//! Shadow webhooks: called after the reply has been sent, recorded in the decision log,
//! never waited for.
//!
//! They have their own limit. Reviews beyond it are counted, and their shadow webhooks
//! are not called; the log line is written anyway, also if the calls are cut short.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use actix_web::rt;
use actix_web::web::Data;
use futures_util::future::try_join_all;

use super::calls::{CallQuestion, CallResult, CallTerms, questions};
use super::run::{DecisionContext, DeferredLogLine, DeferredRecording, PendingAdmission};
use crate::config::limits::Descriptors;
use crate::identity::Caller;
use crate::recording::RecordedCall;
use crate::server::gateway::{DecisionRecorder, GatewayState};
use crate::server::limits::{Capacity, Permit, ReviewMemory};
use crate::server::pool::{JobClass, JobError, JobOwner};
use crate::server::receive::MAX_REQUEST_TIME;
use crate::state::Snapshot;
use crate::telemetry::decision_log::ShadowDecision;
use portcullis_policy::admission::Phase;
use portcullis_policy::admission::chain::compare;
use portcullis_policy::admission::webhook::{Call, CallFailure};
use portcullis_policy::api::OwnedAdmissionReview;
use portcullis_policy::model::{Decision, truncate_with_mark};

/// How many reviews wait for webhooks in shadow at once, and the bytes that they hold.
fn capacity() -> Capacity {
    Capacity {
        requests: 64,
        bytes: 64 << 20,
        memory: 64 << 20,
        calls: Descriptors::of_process().shadow_calls(),
    }
}

/// The most bytes of a webhook's reason in the log, as of a policy's.
const MAX_REASON_BYTES: usize = 1024;

/// A review whose line waits. It is written when this is dropped.
struct PendingShadows {
    shared: Data<GatewayState>,
    snapshot: Arc<Snapshot>,
    caller: Arc<Caller>,
    phase: Phase,
    read: Arc<OwnedAdmissionReview>,
    decided: DeferredLogLine,
    recording: Option<Box<DeferredRecording>>,
    decisions: Vec<WebhookDecision>,
}

/// What a webhook would have said.
struct WebhookDecision {
    /// `configuration/webhook`.
    webhook: String,
    decision: Decision,
    reason: String,
}

/// Has the webhooks in shadow asked about a review that is answered.
pub(crate) fn spawn(
    shared: &Data<GatewayState>,
    review: &PendingAdmission,
    read: &Arc<OwnedAdmissionReview>,
    mut decided: DeferredLogLine,
    recording: Option<Box<DeferredRecording>>,
) {
    let calls = std::mem::take(&mut decided.outcome.shadows);
    let waiting = PendingShadows {
        shared: shared.clone(),
        snapshot: Arc::clone(&review.received.snapshot),
        caller: review.received.caller.clone(),
        phase: review.phase,
        read: Arc::clone(read),
        decided,
        recording,
        decisions: Vec::new(),
    };
    let limiter = &shared.lifecycle.shadow;
    match limiter
        .own()
        .enter(capacity(), None, read.memory(), shared.metrics.shadow_in_flight())
    {
        None => shared.metrics.shadow_dropped(),
        Some(permit) => {
            let permit = Arc::new(permit);
            rt::spawn(async move {
                waiting.call_webhooks(calls, &permit).await;
                // The line is written.
                drop(permit);
            });
        }
    }
}

// === impl PendingShadows ===

impl PendingShadows {
    async fn call_webhooks(mut self, calls: Vec<Call>, permit: &Arc<Permit>) {
        let mut left = VecDeque::from(calls);
        while !left.is_empty() {
            let (read, place) = (Arc::clone(&self.read), Arc::clone(permit));
            let encode = move |_: &dyn Fn() -> bool| written(&read, left, &place);
            // Where it broke off, the log says so.
            let encoding = self.run(encode);
            let Ok((questions, still_left)) = encoding.await else {
                return;
            };
            let memory = permit.memory(&self.caller.share, &self.read.review().request.user.name);
            let put = questions.into_iter().map(|question| {
                let terms = CallTerms {
                    cluster: &self.caller.cluster,
                    phase: self.phase,
                    timeout: question.timeout(),
                    requester: None,
                    parent: None,
                    memory: Arc::new(memory.clone()),
                };
                self.send(question, terms)
            });
            let Ok(returned) = try_join_all(put).await else {
                return;
            };
            let read = Arc::clone(&self.read);
            let keeps = self.recording.is_some();
            let compare = move |_: &dyn Fn() -> bool| decisions(&read, returned, keeps, &memory);
            let comparing = self.run(compare);
            let Ok((decisions, calls)) = comparing.await else {
                return;
            };
            if let Some(recording) = &mut self.recording {
                recording.calls.extend(calls);
            }
            for decided in &decisions {
                let metrics = &self.shared.metrics;
                metrics.shadow_webhook(&decided.webhook, decided.decision);
            }
            self.decisions.extend(decisions);
            left = still_left;
        }
    }

    /// Asks one, whose reply is verified when it comes.
    async fn send(&self, question: CallQuestion, terms: CallTerms<'_>) -> Result<CallResult, JobError> {
        let returned = question.send(&self.snapshot.upstreams, terms).await;
        if !returned.is_large() {
            return Ok(returned);
        }
        self.run(|_| returned.verified()).await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Result<T, JobError> {
        let owner = JobOwner {
            share: Arc::clone(&self.caller.share),
            user: (&*self.read.review().request.user.name).into(),
        };
        self.shared
            .admission_pool
            .run(JobClass::Large, owner, soon(), work)
            .await
    }

    fn record(&self, recorder: &DecisionRecorder) {
        let decisions = self.decisions.iter().map(|decided| ShadowDecision {
            kind: "Webhook",
            name: &decided.webhook,
            decision: decided.decision,
            reason: &decided.reason,
        });
        let about = DecisionContext {
            snapshot: &self.snapshot,
            caller: &self.caller,
            phase: self.phase,
            request: &self.read.review().request,
        };
        self.decided
            .record(recorder, &about, &decisions.collect::<Vec<_>>());
    }
}

impl Drop for PendingShadows {
    fn drop(&mut self) {
        if self.shared.recorder.is_on() {
            self.record(&self.shared.recorder);
        }
        if let Some(recording) = self.recording.take() {
            recording.record(&self.shared, Arc::clone(&self.read));
        }
    }
}

/// Nobody waits for a shadow review; it has the time of a request all the same.
fn soon() -> Instant {
    Instant::now() + MAX_REQUEST_TIME
}

/// As many questions as may be held at once, and the calls that are left.
fn written(
    read: &OwnedAdmissionReview,
    mut left: VecDeque<Call>,
    permit: &Permit,
) -> (Vec<CallQuestion>, VecDeque<Call>) {
    let questions = questions(&mut left, &read.review().request, permit);
    (questions, left)
}

/// What each would have said that could be asked, and the answers, if that `keeps` them.
fn decisions(
    read: &OwnedAdmissionReview,
    returned: Vec<CallResult>,
    keeps: bool,
    memory: &ReviewMemory,
) -> (Vec<WebhookDecision>, Vec<RecordedCall>) {
    let request = &read.review().request;
    let (mut decisions, mut calls) = (Vec::with_capacity(returned.len()), Vec::new());
    for returned in returned {
        let (call, answer, _taken) = returned.answer();
        if matches!(answer.result, Err(CallFailure::NotMade(_))) {
            continue;
        }
        if keeps {
            calls.push(RecordedCall::new(call.clone(), answer.clone(), true));
        }
        let comparison = compare(&call, request, answer, Some(memory));
        let decision = if comparison.allows() {
            Decision::Allow
        } else {
            Decision::Deny
        };
        decisions.push(WebhookDecision {
            webhook: call.webhook.id(),
            decision,
            reason: truncate_with_mark(comparison.reason(), MAX_REASON_BYTES).into_owned(),
        });
    }
    (decisions, calls)
}
