//! `POST /validate` and `/mutate`: one AdmissionReview.
//!
//! ```text
//! small ─▶ the worker that read it, for a moment ── done ──▶ reply
//!            │ not done: from the beginning     └─ asks ─┐     ▲
//! large ─────┴─▶ a thread of the pool ── done ───────────┼─────┘
//!                     ▲             └─ asks ─▶ job ◀─────┘
//!                     └── their replies ── webhooks
//! ```
//!
//! A worker answers authorization too, and must not keep anybody waiting. A
//! run changes nothing, so that one given up can be begun anew; only a run
//! that came to its end is counted and logged. Where webhooks are to be asked,
//! the review goes on as a [job], which holds up no thread while it waits.

mod calls;
mod job;
mod settle;
mod shadow;

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::web::Data;
use memchr::memmem;

use self::calls::Asking;
use self::job::Job;
use self::settle::Unlogged;
use super::gateway::Shared;
use super::receive::Received;
use super::respond::Rejection;
use crate::api::{AdmissionReview, AdmissionReviewError};
use crate::engine::admission::webhook::Answer;
use crate::engine::admission::{AdmissionSet, Chain, Clock, Phase, Progress, Request, Run};
use crate::engine::authorization::PolicySet;
use crate::json::Document;
use crate::manifest::Surroundings;

/// The largest body that a worker reads itself: some 50 µs.
const SMALL_BYTES: usize = 64 << 10;

/// How long a worker tries.
const TRIAL: Duration = Duration::from_micros(500);

/// A review to be answered.
struct Asked {
    received: Received,
    phase: Phase,
    /// The only policy or webhook configuration that is to be asked.
    only: Option<String>,
    since: Instant,
}

/// How far a step brought a review.
enum Step {
    /// To its reply, and to what is left for afterwards.
    Settled(Vec<u8>, Option<Box<Unlogged>>),
    /// To webhooks, whose answers it needs.
    Asks(Box<Asking>),
}

/// What a worker could do in a moment.
enum Tried {
    Answered(Vec<u8>),
    Begun(Document<'static>, Step),
    Nothing,
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
    let (job, step) = match asked.try_at_once(shared)? {
        Tried::Answered(reply) => return Ok(reply),
        Tried::Begun(body, step) => (Job::new(asked, body), step),
        Tried::Nothing => Job::begin(shared, asked).await?,
    };
    job.finish(shared, step).await
}

// === impl Asked ===

impl Asked {
    fn check_name(&self) -> Result<(), Rejection> {
        match &self.only {
            Some(name) if !self.policies().has(self.phase, name) => {
                Err(Rejection::NoSuchPolicy { name: name.clone() })
            }
            _ => Ok(()),
        }
    }

    fn policies(&self) -> &Arc<AdmissionSet> {
        let Received { snapshot, caller, .. } = &self.received;
        snapshot.admission.for_cluster(&caller.cluster)
    }

    /// What answers the questions about access of expressions.
    fn access(&self) -> &PolicySet {
        let Received { snapshot, caller, .. } = &self.received;
        snapshot.policies.for_cluster(&caller.cluster)
    }

    fn try_at_once(&self, shared: &Shared) -> Result<Tried, Rejection> {
        // What expressions of the gateway's own kinds cost to compile is not bounded by
        // the time of a trial.
        let is_own = || memmem::find(&self.received.body, b"portcullis.dev").is_some();
        if self.received.body.len() > SMALL_BYTES || is_own() {
            return Ok(Tried::Nothing);
        }
        let end = self.received.deadline.min(self.since + TRIAL);
        let body = Document::parse_bytes(&self.received.body).map_err(AdmissionReviewError::from)?;
        let is_over = || Instant::now() >= end;
        let step = self.advance(shared, &body, Chain::new(self.phase), Vec::new(), &is_over)?;
        Ok(match step {
            None => Tried::Nothing,
            Some(Step::Settled(reply, None)) => Tried::Answered(reply),
            Some(step) => Tried::Begun(body.into_owned(), step),
        })
    }

    /// The next step of the run, unless it is over before.
    fn advance(
        &self,
        shared: &Shared,
        body: &Document<'_>,
        mut chain: Chain,
        answers: Vec<Answer>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Step>, Rejection> {
        let review = AdmissionReview::decode(body)?;
        let progress = self.run(&mut chain, &review.request, answers, is_over);
        Ok(progress.map(|progress| match progress {
            Progress::Ask(calls) => Step::Asks(Box::new(Asking::new(
                chain,
                calls,
                &review.request,
                &self.received.permit,
            ))),
            Progress::Done(outcome) => self.settle(shared, &review, *outcome),
        }))
    }

    fn run(
        &self,
        chain: &mut Chain,
        request: &Request<'_>,
        answers: Vec<Answer>,
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
            clock: Clock { expired: &expired },
            now: self.received.time.into(),
            access: self.access(),
            judge: Some(&surroundings),
            recorder: None,
        };
        let progress = chain.advance(self.policies(), request, run, answers);
        (!was_over.get()).then_some(progress)
    }
}
