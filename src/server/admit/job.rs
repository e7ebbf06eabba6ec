//! A review that owns its text, from step to step.
//!
//! Steps run on threads of the pool, calls wait on nobody's. All of it is one
//! future of the connection: when the client hangs up it is dropped, and with
//! it the calls under way; a step under way notices. The review keeps its permit
//! until its last step has ended.

use std::mem;
use std::sync::Arc;

use actix_web::web::{Bytes, Data};

use super::calls::{Asking, Returned};
use super::{Asked, Step, shadow};
use crate::api::AdmissionReviewError;
use crate::engine::admission::Chain;
use crate::engine::admission::webhook::Answer;
use crate::json::{self, Document};
use crate::server::gateway::Shared;
use crate::server::pool::Size;
use crate::server::respond::Rejection;

/// From this length on, reading alone takes longer than a small job may.
const LARGE_BYTES: usize = 4 << 20;

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

    /// Reads the review and goes as far as it comes without others.
    pub(super) async fn begin(
        shared: &Data<Shared>,
        mut asked: Asked,
    ) -> Result<(Arc<Self>, Step), Rejection> {
        let of_step = shared.clone();
        let (deadline, phase) = (asked.received.deadline, asked.phase);
        let size = if asked.received.body.len() > LARGE_BYTES {
            Size::Large
        } else {
            Size::Small
        };
        let work = move |is_over: &dyn Fn() -> bool| {
            let bytes = mem::take(&mut asked.received.body);
            let body = owned(bytes).map_err(AdmissionReviewError::from)?;
            let job = Self::new(asked, body);
            let step = job.step(&of_step, Chain::new(phase), Vec::new(), is_over)?;
            Ok::<_, Rejection>((job, step))
        };
        let (job, step) = shared.pool.run(size, deadline, work).await??;
        let step = match step {
            Some(step) => step,
            None => job.step_anew(shared, Chain::new(phase), Vec::new()).await?,
        };
        Ok((job, step))
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
            let encoding = shared.pool.run(Size::Small, self.asked.received.deadline, encode);
            let (questions, still_left) = encoding.await??;
            returned.extend(self.put(questions, &user).await);
            left = still_left;
        }
        self.go_on(shared, chain, returned).await
    }

    /// Takes what came back.
    async fn go_on(
        self: &Arc<Self>,
        shared: &Data<Shared>,
        chain: Chain,
        returned: Vec<Returned>,
    ) -> Result<Step, Rejection> {
        let (job, of_step) = (Arc::clone(self), shared.clone());
        let work = move |is_over: &dyn Fn() -> bool| {
            let phase = job.asked.phase;
            let answers = returned.into_iter().map(|one| one.answer(phase).1);
            let answers: Vec<Answer> = answers.collect();
            let step = job.step(&of_step, chain.clone(), answers.clone(), is_over)?;
            Ok::<_, Rejection>(step.ok_or((chain, answers)))
        };
        let deadline = self.asked.received.deadline;
        match shared.pool.run(Size::Small, deadline, work).await?? {
            Ok(step) => Ok(step),
            Err((chain, answers)) => self.step_anew(shared, chain, answers).await,
        }
    }

    /// The step that took too long for a small one, from its beginning.
    async fn step_anew(
        self: &Arc<Self>,
        shared: &Data<Shared>,
        chain: Chain,
        answers: Vec<Answer>,
    ) -> Result<Step, Rejection> {
        let (job, of_step) = (Arc::clone(self), shared.clone());
        let work = move |is_over: &dyn Fn() -> bool| job.step(&of_step, chain, answers, is_over);
        let deadline = self.asked.received.deadline;
        let step = shared.pool.run(Size::Large, deadline, work).await??;
        step.ok_or(Rejection::TooLate)
    }

    /// The next step of the run, unless it is over before.
    fn step(
        &self,
        shared: &Shared,
        chain: Chain,
        answers: Vec<Answer>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Step>, Rejection> {
        self.asked.advance(shared, &self.body, chain, answers, is_over)
    }
}

/// The text of a body, which is not copied unless others hold it too.
fn owned(bytes: Bytes) -> Result<Document<'static>, json::Error> {
    match String::from_utf8(Vec::from(bytes)) {
        Ok(text) => Document::parse(text),
        Err(error) => Document::parse_bytes(error.as_bytes()).map(Document::into_owned),
    }
}
