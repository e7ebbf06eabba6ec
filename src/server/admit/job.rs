//! A review that owns its text, from step to step.
//!
//! Steps run on threads of the pool, calls wait on nobody's. All of it is one
//! future of the connection: when the client hangs up it is dropped, and with
//! it the calls under way; a step under way is told. The review keeps its place
//! in the lane until its last step has ended.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use actix_web::web::{Bytes, Data};

use super::calls::{Asking, Returned};
use super::{Asked, Step, shadow};
use crate::api::AdmissionReviewError;
use crate::engine::admission::Chain;
use crate::engine::admission::webhook::Answer;
use crate::json::{self, Document};
use crate::server::gateway::Shared;
use crate::server::respond::Rejection;

/// A review and its text.
pub(super) struct Job {
    pub(super) asked: Asked,
    pub(super) body: Arc<Document<'static>>,
}

// === impl Job ===

impl Job {
    pub(super) fn new(mut asked: Asked, body: Document<'static>) -> Arc<Self> {
        asked.received.body = Bytes::new();
        let body = Arc::new(body);
        Arc::new(Self { asked, body })
    }

    /// Reads the review and goes as far as it comes alone.
    pub(super) async fn begin(
        shared: &Data<Shared>,
        mut asked: Asked,
    ) -> Result<(Arc<Self>, Step), Rejection> {
        let of_step = shared.clone();
        let work = move |is_abandoned: &dyn Fn() -> bool| {
            let bytes = mem::take(&mut asked.received.body);
            let body = owned(bytes).map_err(AdmissionReviewError::from)?;
            let job = Self::new(asked, body);
            let chain = Chain::new(job.asked.phase);
            let step = job.step(&of_step, chain, Vec::new(), is_abandoned)?;
            Ok((job, step))
        };
        shared.pool.run(work).await.ok_or(Rejection::Internal)?
    }

    /// Goes on to the end; the reply.
    pub(super) async fn finish(
        self: Arc<Self>,
        shared: &Data<Shared>,
        mut step: Step,
    ) -> Result<Vec<u8>, Rejection> {
        loop {
            match step {
                Step::Asks(asking) => step = self.ask(shared, *asking).await?,
                Step::Settled(reply, unlogged) => {
                    if let Some(unlogged) = unlogged {
                        shadow::spawn(shared, &self, *unlogged);
                    }
                    return Ok(reply);
                }
            }
        }
    }

    /// Asks all webhooks, and makes of their replies what it can.
    async fn ask(self: &Arc<Self>, shared: &Data<Shared>, asking: Asking) -> Result<Step, Rejection> {
        let Asking {
            chain,
            user,
            questions,
            mut left,
        } = asking;
        let mut returned = self.put(questions, &user).await;
        while !left.is_empty() {
            let job = Arc::clone(self);
            let encode = move |_: &dyn Fn() -> bool| job.questions(left);
            let (questions, still_left) = shared.pool.run(encode).await.ok_or(Rejection::Internal)??;
            returned.extend(self.put(questions, &user).await);
            left = still_left;
        }
        let (job, of_step) = (Arc::clone(self), shared.clone());
        let work = move |is_abandoned: &dyn Fn() -> bool| {
            let phase = job.asked.phase;
            let answers = returned
                .into_iter()
                .map(|one: Returned| one.answer(phase).1)
                .collect();
            job.step(&of_step, chain, answers, is_abandoned)
        };
        shared.pool.run(work).await.ok_or(Rejection::Internal)?
    }

    fn step(
        &self,
        shared: &Shared,
        chain: Chain,
        answers: Vec<Answer>,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<Step, Rejection> {
        let end = self.asked.received.deadline;
        let is_over = || Instant::now() >= end || is_abandoned();
        let step = self.asked.advance(shared, &self.body, chain, answers, &is_over)?;
        step.ok_or(Rejection::TooLate)
    }
}

/// The text of a body, which is not copied unless others hold it too.
fn owned(bytes: Bytes) -> Result<Document<'static>, json::Error> {
    match String::from_utf8(Vec::from(bytes)) {
        Ok(text) => Document::parse(text),
        Err(error) => Document::parse_bytes(error.as_bytes()).map(Document::into_owned),
    }
}
