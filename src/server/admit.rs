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

use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::{Duration, Instant};

use actix_web::web::Data;
use memchr::memmem::Finder;

use self::job::Job;
use self::pending::PendingReview;
use self::step::JobStep;
use super::gateway::Shared;
use super::receive::ReceivedReview;
use super::respond::Rejection;
use portcullis_policy::engine::admission::{Chain, Phase};

/// The largest body that a worker reads itself: some 50 µs.
const SMALL_BYTES: usize = 64 << 10;

/// What stands in every review of one of the gateway's own kinds.
static OWN_KINDS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("portcullis.dev"));

/// How long a worker tries.
const TRIAL: Duration = Duration::from_micros(500);

/// The reply to the review in the body.
pub(crate) async fn answer(
    shared: &Data<Shared>,
    received: ReceivedReview,
    phase: Phase,
    only: Option<String>,
) -> Result<Vec<u8>, Rejection> {
    let mut asked = PendingReview {
        received,
        phase,
        only,
        since: Instant::now(),
        calls: Mutex::default(),
        memory: OnceLock::new(),
    };
    asked.check_name()?;
    if asked.is_for_the_pool() {
        let (job, step) = Job::begin(shared, asked).await?;
        return job.finish(shared, step).await;
    }
    let review = asked.read()?;
    let end = asked.received.deadline.min(asked.since + TRIAL);
    let is_over = || Instant::now() >= end;
    let tried = asked.advance(shared, review.review(), Chain::new(phase), Vec::new(), &is_over);
    let step = match tried {
        Some(JobStep::Settled(settled)) if settled.unlogged.is_none() => {
            if let Some(unrecorded) = settled.unrecorded {
                unrecorded.record(shared, Arc::new(review));
            }
            return Ok(settled.reply);
        }
        step => step,
    };
    let job = Job::new(asked, review);
    let step = match step {
        Some(settled @ JobStep::Settled(_)) => settled,
        step => match (job.hold(shared), step) {
            (Err(refused), _) => refused,
            (Ok(()), Some(step)) => step,
            (Ok(()), None) => job.begin_anew(shared).await?,
        },
    };
    job.finish(shared, step).await
}

// === impl PendingReview ===

impl PendingReview {
    /// Whether a worker does not even try. What expressions of the gateway's own kinds cost
    /// to compile is not bounded by the time of a trial.
    fn is_for_the_pool(&self) -> bool {
        let body = &self.received.body;
        body.len() > SMALL_BYTES || OWN_KINDS.find(body).is_some()
    }
}
