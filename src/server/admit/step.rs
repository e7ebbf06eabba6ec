//! One step of a review: to its reply, or to calls of webhooks.

use std::cell::Cell;

use super::calls::Asking;
use super::pending::{MemoryOf, PendingReview};
use super::settle::SettledReview;
use crate::server::gateway::Shared;
use portcullis_policy::api::AdmissionReview;
use portcullis_policy::engine::Deadline;
use portcullis_policy::engine::admission::webhook::WebhookAnswer;
use portcullis_policy::engine::admission::{Chain, Progress, Request, Run};
use portcullis_policy::manifest::Surroundings;

/// How far a step brought a review.
pub(crate) enum JobStep {
    /// To its reply, and to what is left for afterwards.
    Settled(SettledReview),
    /// To webhooks, whose answers it needs.
    Asks(Box<Asking>),
}

impl PendingReview {
    /// The next step of the run, unless it is over before.
    pub(crate) fn advance(
        &self,
        shared: &Shared,
        review: &AdmissionReview<'_>,
        mut chain: Chain,
        answers: Vec<WebhookAnswer>,
        is_over: &dyn Fn() -> bool,
    ) -> Option<JobStep> {
        let span = self.received.trace.span("evaluate");
        let progress = self.run(&mut chain, &review.request, answers, is_over)?;
        drop(span);
        Some(match progress {
            Progress::Ask(calls) => JobStep::Asks(Box::new(Asking::new(
                chain,
                calls,
                &review.request,
                &self.received.permit,
            ))),
            Progress::Done(outcome) => JobStep::Settled(self.settle(shared, review, *outcome)),
        })
    }

    fn run(
        &self,
        chain: &mut Chain,
        request: &Request<'_>,
        answers: Vec<WebhookAnswer>,
        is_over: &dyn Fn() -> bool,
    ) -> Option<Progress> {
        let was_over = Cell::new(false);
        let expired = || {
            let is_over = was_over.get() || is_over();
            was_over.set(is_over);
            is_over
        };
        let surroundings = Surroundings::new(self.access(), self.policies());
        let run = Run {
            only: self.only.as_deref(),
            deadline: Deadline { expired: &expired },
            now: self.received.time.into(),
            access: self.access(),
            judge: Some(&surroundings),
            nobody_asks: false,
            memory: Some(&MemoryOf {
                asked: self,
                user: &request.user.name,
            }),
            recorder: None,
        };
        let progress = chain.advance(self.policies(), request, run, answers);
        (!was_over.get()).then_some(progress)
    }
}
