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
//! Workers also answer authorization requests, so no review may occupy them for long. A
//! run has no side effects, so it can be stopped and started again; only a run that
//! finishes is counted and logged. If webhooks have to be called, the review continues as
//! a [job], which holds no thread while it waits.

mod calls;
mod job;
mod pending;
mod settle;
mod shadow;
mod step;

use std::time::{Duration, Instant};

use actix_web::web::Data;
use memchr::memmem;

use self::job::Job;
use self::pending::PendingReview;
use self::step::JobStep;
use super::gateway::Shared;
use super::receive::ReceivedReview;
use super::respond::Rejection;
use crate::api::AdmissionReviewError;
use crate::engine::admission::{Chain, Phase};
use crate::json::Document;

/// The largest body that a worker reads itself: some 50 µs.
const SMALL_BYTES: usize = 64 << 10;

/// How long a worker tries.
const TRIAL: Duration = Duration::from_micros(500);

/// What a worker could do in a moment.
enum Tried {
    Answered(Vec<u8>),
    Begun(Document<'static>, JobStep),
    Nothing,
}

/// The reply to the review in the body.
pub(super) async fn answer(
    shared: &Data<Shared>,
    received: ReceivedReview,
    phase: Phase,
    only: Option<String>,
) -> Result<Vec<u8>, Rejection> {
    let asked = PendingReview {
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

// === impl PendingReview ===

impl PendingReview {
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
            Some(JobStep::Settled(reply, None)) => Tried::Answered(reply),
            Some(step) => Tried::Begun(body.into_owned(), step),
        })
    }
}
