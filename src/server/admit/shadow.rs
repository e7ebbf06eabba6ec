//! Shadow webhooks: they are called after the reply has been sent, and their decisions are written
//! to the decision log.
//!
//! They have a limit of their own. For reviews beyond it, which are counted, no shadow webhook is
//! called. The log line is always written, even if the calls are cut short.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use actix_web::rt;
use actix_web::web::Data;
use futures_util::future::try_join_all;

use super::calls::{CallOptions, CallRequest, CallResult, encode_requests};
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
use portcullis_policy::admission::chain::shadow_result;
use portcullis_policy::admission::webhook::{Call, CallFailure};
use portcullis_policy::api::OwnedAdmissionReview;
use portcullis_policy::model::{Decision, truncate_with_mark};

/// The limits on reviews that wait for webhooks in shadow.
fn capacity() -> Capacity {
    Capacity {
        requests: 64,
        bytes: 64 << 20,
        memory: 64 << 20,
        calls: Descriptors::of_process().shadow_calls(),
    }
}

/// The most bytes of a webhook's reason in the log; the same limit as for a policy.
const MAX_REASON_BYTES: usize = 1024;

/// A review whose log line waits for webhooks in shadow. The line is written when this is dropped.
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

/// The decision that a webhook in shadow would have made.
struct WebhookDecision {
    /// `configuration/webhook`.
    webhook: String,
    decision: Decision,
    reason: String,
}

/// Calls the webhooks in shadow for a review whose reply is done.
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
                // `call_webhooks` has dropped the review, which wrote its log line.
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
            // If encoding is cut short, the log line lacks the remaining webhooks.
            let encoding = self.run(encode);
            let Ok((questions, still_left)) = encoding.await else {
                return;
            };
            let memory = permit.memory(&self.caller.share, &self.read.review().request.user.name);
            let put = questions.into_iter().map(|question| {
                let terms = CallOptions {
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

    /// Calls one webhook; its reply is verified on arrival.
    async fn send(&self, question: CallRequest, terms: CallOptions<'_>) -> Result<CallResult, JobError> {
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

/// The deadline of work for webhooks in shadow. No client waits for it, but it gets the time of a
/// request.
fn soon() -> Instant {
    Instant::now() + MAX_REQUEST_TIME
}

/// Encodes as many requests as may be held at once, and returns them with the calls that remain.
fn written(
    read: &OwnedAdmissionReview,
    mut left: VecDeque<Call>,
    permit: &Permit,
) -> (Vec<CallRequest>, VecDeque<Call>) {
    let questions = encode_requests(&mut left, &read.review().request, permit);
    (questions, left)
}

/// The decisions of the webhooks that could be called, and their answers if `keeps`.
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
        let comparison = shadow_result(&call, request, answer, Some(memory));
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
