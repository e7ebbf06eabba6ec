//! What is put to webhooks, and for how long.
//!
//! ```text
//! now ────── timeout of a call ─────▶ end of calls ── margin ──▶ the caller gives up
//!      the webhook's own, if shorter       the reply is on its way
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use actix_web::web::Bytes;
use futures_util::future::join_all;
use uuid::Uuid;

use super::Asked;
use super::job::Job;
use crate::api::{self, AdmissionReview};
use crate::engine::admission::webhook::{Answer, Call, CallFailure};
use crate::engine::admission::{Chain, Phase, Request};
use crate::server::respond::Rejection;
use crate::upstream::Upstreams;

/// How much earlier than the caller the gateway gives up: a tenth of the time
/// that it has, but no longer than it takes to answer.
const MARGIN: Duration = Duration::from_millis(100);

/// The most bytes of questions that one review holds at once, or one question:
/// those to webhooks beyond wait until the first are answered.
const QUESTION_BYTES: usize = 64 << 20;

/// A run, and the webhooks that it waits for.
pub(super) struct Asking {
    pub(super) chain: Chain,
    pub(super) questions: Vec<Question>,
    pub(super) left: VecDeque<Call>,
}

/// A question to one webhook, ready to be sent.
pub(super) struct Question {
    call: Call,
    uid: String,
    body: Vec<u8>,
}

/// What came back.
pub(super) struct Returned {
    call: Call,
    uid: String,
    result: Result<Bytes, CallFailure>,
    took: Duration,
}

// === impl Asking ===

impl Asking {
    pub(super) fn new(chain: Chain, calls: Vec<Call>, request: &Request<'_>) -> Self {
        let mut left = VecDeque::from(calls);
        Self {
            chain,
            questions: questions(&mut left, request),
            left,
        }
    }
}

/// Writes as many questions as may be held at once.
pub(super) fn questions(calls: &mut VecDeque<Call>, request: &Request<'_>) -> Vec<Question> {
    let (mut questions, mut bytes) = (Vec::new(), 0);
    while bytes < QUESTION_BYTES
        && let Some(call) = calls.pop_front()
    {
        let uid = Uuid::new_v4().to_string();
        let body = api::ask(&call, request, &uid);
        bytes += body.len();
        questions.push(Question { call, uid, body });
    }
    questions
}

// === impl Question ===

impl Question {
    /// How long the webhook may take.
    pub(super) fn timeout(&self) -> Duration {
        self.call.webhook.timeout
    }

    /// Asks, and waits so long.
    pub(super) async fn put(self, upstreams: &Upstreams, timeout: Duration) -> Returned {
        let Self { call, uid, body } = self;
        let start = Instant::now();
        let result = if timeout.is_zero() {
            Err(CallFailure::RequestExpired)
        } else {
            upstreams.call(&call.webhook, body, timeout).await
        };
        let took = start.elapsed();
        Returned {
            call,
            uid,
            result,
            took,
        }
    }
}

// === impl Returned ===

impl Returned {
    /// What was asked, and the reply, as far as it may be believed.
    pub(super) fn answer(self, phase: Phase) -> (Call, Answer) {
        let Self {
            call,
            uid,
            result,
            took,
        } = self;
        let result = result.and_then(|body| api::verify(&call, &uid, phase, &body));
        (call, Answer { result, took })
    }
}

// === impl Asked ===

impl Asked {
    /// When calls must have ended.
    fn end_of_calls(&self) -> Instant {
        let deadline = self.received.deadline;
        let allowed = deadline.saturating_duration_since(self.since);
        deadline.checked_sub(MARGIN.min(allowed / 10)).unwrap_or(deadline)
    }
}

// === impl Job ===

impl Job {
    /// More of the questions, and the calls that are left.
    pub(super) fn questions(
        &self,
        mut left: VecDeque<Call>,
    ) -> Result<(Vec<Question>, VecDeque<Call>), Rejection> {
        let review = AdmissionReview::decode(&self.body)?;
        let questions = questions(&mut left, &review.request);
        Ok((questions, left))
    }

    /// Puts questions, all at once; what came back, in their order.
    pub(super) async fn put(&self, questions: Vec<Question>) -> Vec<Returned> {
        join_all(questions.into_iter().map(|question| self.put_one(question))).await
    }

    async fn put_one(&self, question: Question) -> Returned {
        let upstreams = &self.asked.received.snapshot.upstreams;
        let end = self.asked.end_of_calls();
        let left = end.saturating_duration_since(Instant::now());
        let timeout = left.min(question.timeout());
        let mut returned = question.put(upstreams, timeout).await;
        // A mutating webhook that took all the time there was leaves none to go
        // on. Nothing comes after validating ones: their failurePolicy decides.
        let is_over = self.asked.phase == Phase::Mutate && Instant::now() >= end;
        if is_over && returned.result.is_err() {
            returned.result = Err(CallFailure::RequestExpired);
        }
        returned
    }
}
