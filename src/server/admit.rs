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
//! Workers also answer authorization requests, so no review may occupy one for long. A run has no
//! side effects, so it can be stopped and restarted; only a run that finishes is counted and
//! logged. If webhooks have to be called, the review continues as a [`Job`], which owns its body.
//! The steps of a job run on pool threads, and it holds no thread while it waits. A job is one
//! future of the connection: when the client disconnects, it is dropped together with its calls,
//! and a running step stops. The review keeps its permit until its last step has ended.

mod calls;
mod run;
mod shadow;

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::Instant;

use actix_web::web::Data;
use futures_util::future::try_join_all;
use memchr::memmem::{self, Finder};

use super::gateway::GatewayState;
use super::pool::{JobClass, JobError, MAX_WORKER_BYTES, WORKER_TIME_SLICE};
use super::receive::ReviewRequest;
use super::respond::Rejection;
use crate::webhooks::authorizers::{CallPlace, ConsultationStep};
use crate::webhooks::{Requester, call_deadline};
use calls::{CallOptions, CallRequest, CallResult, PendingCalls, encode_requests};
use portcullis_cel::json::Document;
use portcullis_policy::admission::webhook::{Call, CallFailure, WebhookCallResult};
use portcullis_policy::admission::{
    AlternativeGrants, Chain, ChangeError, Denial, ObjectMemory, Outcome, Phase, TakenMemory,
};
use portcullis_policy::api::OwnedAdmissionReview;
use portcullis_policy::authorization::Authorization;
use portcullis_policy::authorization::authorizer::Consultation;
use portcullis_policy::manifest::needs_validation;
use portcullis_policy::model::{Attributes, Deadline, Decision};
use run::{AdmissionResult, JobStep, PendingAdmission, ROLE_POLL_INTERVAL, StepLimits};

/// Finds the API group that every review of one of the gateway's own kinds contains.
static OWN_KINDS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("portcullis.dev"));

/// Returns the reply to the review in the body.
pub(crate) async fn answer(
    shared: &Data<GatewayState>,
    received: ReviewRequest,
    phase: Phase,
    only: Option<String>,
) -> Result<Vec<u8>, Rejection> {
    let mut pending = PendingAdmission {
        received,
        phase,
        only,
        since: Instant::now(),
        calls: Mutex::default(),
        memory: OnceLock::new(),
        allowed_by_authorizers: OnceLock::new(),
    };
    pending.check_name()?;
    if pending.needs_pool() {
        let (job, step) = Job::start(shared, pending).await?;
        return job.finish(shared, step).await;
    }
    let review = pending.read(shared)?;
    let end = pending.received.deadline.min(pending.since + WORKER_TIME_SLICE);
    let is_over = || Instant::now() >= end;
    let trial = StepLimits {
        is_over: &is_over,
        is_attempt: true,
    };
    let tried = pending.advance(shared, review.review(), Chain::new(phase), Vec::new(), trial);
    let step = match tried {
        Some(JobStep::Done(settled)) if settled.log_line.is_none() => {
            if let Some(recording) = settled.recording {
                recording.record(shared, Arc::new(review));
            }
            return Ok(settled.reply);
        }
        step => step,
    };
    let job = Job::new(pending, review);
    let step = match step {
        Some(settled @ JobStep::Done(_)) => settled,
        step => match (job.reserve_memory(shared), step) {
            (Err(refused), _) => refused,
            (Ok(()), Some(step)) => step,
            (Ok(()), None) => job.restart_in_pool(shared).await?,
        },
    };
    job.finish(shared, step).await
}

// === impl PendingAdmission ===

impl PendingAdmission {
    /// Whether the review goes to the pool without an attempt on the worker. The time slice of a
    /// worker does not bound the compilation of the expressions in the gateway's own kinds.
    fn needs_pool(&self) -> bool {
        let body = &self.received.body;
        body.len() > MAX_WORKER_BYTES || OWN_KINDS.find(body).is_some()
    }
}

/// The bytes at the beginning of a review in which its user is searched.
const MAX_BYTES_BEFORE_USER: usize = 16 << 10;

/// The user of a review that is not decoded yet, for the fair order of the pool; empty if it is not
/// found. API servers write `userInfo` before the object, and a string before it cannot contain
/// these unescaped quotation marks. A client that writes a review differently affects only the
/// order in which jobs run.
fn unread_user(body: &[u8]) -> &str {
    const BEFORE: &[u8] = br#""userInfo":{"username":""#;
    let beginning = body.get(..MAX_BYTES_BEFORE_USER).unwrap_or(body);
    let user = memmem::find(beginning, BEFORE).and_then(|at| beginning.get(at + BEFORE.len()..));
    let user = user.and_then(|user| user.get(..memchr::memchr(b'"', user)?));
    user.and_then(|user| std::str::from_utf8(user).ok())
        .unwrap_or_default()
}

/// The length from which decoding alone takes longer than a small job may.
const LARGE_BYTES: usize = 4 << 20;

/// A review that is continued on the pool.
pub(crate) struct Job {
    pub(crate) pending: PendingAdmission,
    pub(crate) review: Arc<OwnedAdmissionReview>,
    /// The memory reserved for the index of the review.
    memory: OnceLock<TakenMemory>,
}

// === impl Job ===

impl Job {
    pub(crate) fn new(pending: PendingAdmission, review: OwnedAdmissionReview) -> Arc<Self> {
        Arc::new(Self {
            pending,
            review: Arc::new(review),
            memory: OnceLock::new(),
        })
    }

    /// Reserves memory for the decoded review until it ends. If there is not enough, the review is
    /// denied: an error status would let the API server apply the `failurePolicy`, so a cluster
    /// that fills the memory could have the policies ignored.
    pub(crate) fn reserve_memory(&self, shared: &GatewayState) -> Result<(), JobStep> {
        let review = self.review.review();
        let memory = self.pending.memory_of(&review.request.user.name);
        match memory.reserve(self.review.memory() - self.review.bytes()) {
            Some(taken) => {
                // It is set only once.
                let _ = self.memory.set(taken);
                Ok(())
            }
            None => {
                let refused = Outcome {
                    denial: Some(Denial::too_many_requests(ChangeError::NoMemory.to_string())),
                    ..Outcome::default()
                };
                Err(JobStep::Done(self.pending.finish(shared, review, refused)))
            }
        }
    }

    /// Decodes the review and evaluates it until webhooks have to be called or a thread for long
    /// work is needed.
    pub(crate) async fn start(
        shared: &Data<GatewayState>,
        mut pending: PendingAdmission,
    ) -> Result<(Arc<Self>, JobStep), Rejection> {
        let of_step = shared.clone();
        let (deadline, phase) = (pending.received.deadline, pending.phase);
        let owner = pending.received.owner(unread_user(&pending.received.body));
        let size = if pending.received.body.len() > LARGE_BYTES {
            JobClass::Large
        } else {
            JobClass::Small
        };
        let work = move |is_over: &dyn Fn() -> bool| {
            // The memory is charged to the review's user later, because the user is known only
            // after decoding.
            let bytes = Document::most_bytes(&pending.received.body) - pending.received.body.len();
            let unread = pending
                .received
                .permit
                .reserve_derived(bytes)
                .ok_or(Rejection::TooManyRequests)?;
            let review = pending.read(&of_step)?;
            let job = Self::new(pending, review);
            drop(unread);
            let step = match job.reserve_memory(&of_step) {
                Err(refused) => Some(refused),
                // On a thread for large jobs, the first step runs below, as a job of the user who
                // is known by then.
                Ok(()) if size == JobClass::Large => None,
                Ok(()) => job.step(&of_step, Chain::new(phase), Vec::new(), size.step_end(is_over)),
            };
            Ok::<_, Rejection>((job, step))
        };
        let (job, step) = shared.admission_pool.run(size, owner, deadline, work).await??;
        let step = match step {
            Some(step) => step,
            None => job.restart_step(shared, Chain::new(phase), Vec::new()).await?,
        };
        Ok((job, step))
    }

    /// Restarts the review on a thread for long work, after the time slice of a worker was too
    /// short.
    pub(crate) async fn restart_in_pool(
        self: &Arc<Self>,
        shared: &Data<GatewayState>,
    ) -> Result<JobStep, Rejection> {
        self.resume(shared, Chain::new(self.pending.phase), Vec::new())
            .await
    }

    /// Continues the review to its end, and returns the reply.
    pub(crate) async fn finish(
        self: Arc<Self>,
        shared: &Data<GatewayState>,
        mut step: JobStep,
    ) -> Result<Vec<u8>, Rejection> {
        loop {
            match step {
                JobStep::Asks(asking) => step = self.call_webhooks(shared, *asking).await?,
                JobStep::AsksAuthorizers(missing) => {
                    let is_allowed = self.is_allowed_by_authorizers(shared, missing).await?;
                    // They are consulted only once.
                    let _ = self.pending.allowed_by_authorizers.set(is_allowed);
                    step = self
                        .restart_step(shared, Chain::new(self.pending.phase), Vec::new())
                        .await?;
                }
                JobStep::AwaitsRole => {
                    tokio::time::sleep(ROLE_POLL_INTERVAL).await;
                    step = self
                        .restart_step(shared, Chain::new(self.pending.phase), Vec::new())
                        .await?;
                }
                JobStep::Done(settled) => {
                    let AdmissionResult {
                        reply,
                        log_line,
                        recording,
                    } = settled;
                    if let Some(log_line) = log_line {
                        shadow::spawn(shared, &self.pending, &self.review, *log_line, recording);
                    } else if let Some(recording) = recording {
                        recording.record(shared, Arc::clone(&self.review));
                    }
                    return Ok(reply);
                }
            }
        }
    }

    /// Whether other authorizers allow every review of at least one of `missing`.
    async fn is_allowed_by_authorizers(
        self: &Arc<Self>,
        shared: &Data<GatewayState>,
        missing: AlternativeGrants,
    ) -> Result<bool, Rejection> {
        for reviews in missing {
            let mut are_allowed = true;
            for attributes in reviews {
                are_allowed = self.consult(shared, attributes).await? == Decision::Allow;
                if !are_allowed {
                    break;
                }
            }
            if are_allowed {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the decision of the other authorizers.
    async fn consult(
        self: &Arc<Self>,
        shared: &Data<GatewayState>,
        attributes: Attributes<'static>,
    ) -> Result<Decision, Rejection> {
        let job = Arc::clone(self);
        let consult = move |is_over: &dyn Fn() -> bool| {
            let ReviewRequest { snapshot, caller, .. } = &job.pending.received;
            let consultation = Consultation::new(Authorization::no_opinion(""), false);
            let deadline = Deadline::new(is_over);
            let now = Instant::now();
            let authorizers = &snapshot.authorizers;
            authorizers.consult(&caller.cluster, &attributes, consultation, deadline, now)
        };
        let end = match self.run(shared, JobClass::Small, consult).await? {
            ConsultationStep::Done(end) => end,
            ConsultationStep::Ask(pending) => {
                let ReviewRequest {
                    permit,
                    deadline,
                    trace,
                    ..
                } = &self.pending.received;
                let take_place = || permit.reserve_call().map(|place| Box::new(place) as CallPlace);
                let answered = pending.ask(*deadline, trace, &take_place).await;
                answered.map_err(|_| Rejection::TooManyRequests)?.0
            }
        };
        Ok(end.authorization.decision)
    }

    /// Calls all webhooks and continues the run with their replies.
    async fn call_webhooks(
        self: &Arc<Self>,
        shared: &Data<GatewayState>,
        asking: PendingCalls,
    ) -> Result<JobStep, Rejection> {
        let PendingCalls {
            chain,
            user,
            questions,
            mut left,
        } = asking;
        let mut returned = self.send(shared, questions, &user).await?;
        while !left.is_empty() {
            let job = Arc::clone(self);
            let encode = move |_: &dyn Fn() -> bool| job.questions(left);
            let encoding = self.run(shared, JobClass::Small, encode);
            let (questions, still_left) = encoding.await?;
            returned.extend(self.send(shared, questions, &user).await?);
            left = still_left;
        }
        self.resume(shared, chain, returned).await
    }

    /// Continues the run with the results of the calls.
    async fn resume(
        self: &Arc<Self>,
        shared: &Data<GatewayState>,
        chain: Chain,
        returned: Vec<CallResult>,
    ) -> Result<JobStep, Rejection> {
        let (job, of_step) = (Arc::clone(self), shared.clone());
        let work = move |is_over: &dyn Fn() -> bool| {
            let keeps = of_step.recordings.is_on();
            let mut taken = Vec::with_capacity(returned.len());
            let answers = returned.into_iter().map(|one| {
                let (call, answer, of_answer) = one.answer();
                taken.extend(of_answer);
                if keeps {
                    job.pending.keep_call(call, answer.clone());
                }
                answer
            });
            let answers: Vec<WebhookCallResult> = answers.collect();
            let step = job.step(
                &of_step,
                chain.clone(),
                answers.clone(),
                JobClass::Small.step_end(is_over),
            );
            step.ok_or((chain, answers, taken))
        };
        match self.run(shared, JobClass::Small, work).await? {
            Ok(step) => Ok(step),
            Err((chain, answers, _taken)) => self.restart_step(shared, chain, answers).await,
        }
    }

    /// Runs a step from its beginning that took too long as a small job.
    async fn restart_step(
        self: &Arc<Self>,
        shared: &Data<GatewayState>,
        chain: Chain,
        answers: Vec<WebhookCallResult>,
    ) -> Result<JobStep, Rejection> {
        let (job, of_step) = (Arc::clone(self), shared.clone());
        let size = if needs_validation(&self.review.review().request) {
            JobClass::Compiling
        } else {
            JobClass::Large
        };
        let work =
            move |is_over: &dyn Fn() -> bool| job.step(&of_step, chain, answers, size.step_end(is_over));
        let step = self.run(shared, size, work).await?;
        step.ok_or(Rejection::ReviewDeadlineExceeded)
    }

    /// Runs `work` on a pool thread, until the deadline at the latest.
    async fn run<T: Send + 'static>(
        &self,
        shared: &GatewayState,
        size: JobClass,
        work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Result<T, JobError> {
        let received = &self.pending.received;
        let owner = received.owner(&self.review.review().request.user.name);
        shared
            .admission_pool
            .run(size, owner, received.deadline, work)
            .await
    }

    /// Runs the next step; `None` if its limits end it before.
    fn step(
        &self,
        shared: &GatewayState,
        chain: Chain,
        answers: Vec<WebhookCallResult>,
        end: StepLimits<'_>,
    ) -> Option<JobStep> {
        let review = self.review.review();
        self.pending.advance(shared, review, chain, answers, end)
    }

    /// Encodes the next requests to webhooks, and returns them with the calls that remain.
    fn questions(&self, mut left: VecDeque<Call>) -> (Vec<CallRequest>, VecDeque<Call>) {
        let request = &self.review.review().request;
        let questions = encode_requests(&mut left, request, &self.pending.received.permit);
        (questions, left)
    }

    /// Sends requests to webhooks concurrently on behalf of `user`, and returns the results in the
    /// same order. Each reply is verified on arrival, so that only its contents are kept.
    async fn send(
        &self,
        shared: &GatewayState,
        questions: Vec<CallRequest>,
        user: &str,
    ) -> Result<Vec<CallResult>, JobError> {
        let put = questions.into_iter().map(|question| async move {
            let returned = self.send_one(question, user).await;
            if !returned.is_large() {
                return Ok(returned);
            }
            self.run(shared, JobClass::Small, |_| returned.verified()).await
        });
        try_join_all(put).await
    }

    async fn send_one(&self, question: CallRequest, user: &str) -> CallResult {
        let upstreams = &self.pending.received.snapshot.upstreams;
        let end = call_deadline(self.pending.since, self.pending.received.deadline);
        let left = end.saturating_duration_since(Instant::now());
        let caller = &self.pending.received.caller;
        let trace = &self.pending.received.trace;
        let mut span = trace.call(|| format!("webhook {}", question.webhook()));
        let terms = CallOptions {
            cluster: &caller.cluster,
            phase: self.pending.phase,
            timeout: left.min(question.timeout()),
            requester: Some(Requester {
                share: &caller.share,
                user,
            }),
            parent: trace.traceparent(&span),
            memory: Arc::new(self.pending.memory_of(user).clone()),
        };
        let mut returned = question.send(upstreams, terms).await;
        // A call cut short by the caller's deadline is not a failure of the webhook: its
        // failurePolicy must not admit what it would have rejected if the gateway had been less
        // busy.
        if returned.result.is_err() && Instant::now() >= end {
            returned.result = Err(CallFailure::RequestExpired);
        }
        if let Err(failure) = &returned.result {
            span.fail(failure);
        }
        returned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_a_review_is_known_before_it_is_read() {
        let review = |name: &str, user: &str| {
            let text = format!(r#"{{"request":{{"name":{name:?},"userInfo":{{"username":{user:?}}}}}}}"#);
            unread_user(text.as_bytes()).to_owned()
        };
        assert_eq!(review("a", "alice"), "alice");
        assert_eq!(review(r#""userInfo":{"username":"bob""#, "alice"), "alice");
        assert_eq!(review(&"a".repeat(MAX_BYTES_BEFORE_USER), "alice"), "");
        for cut in [
            "",
            r#"{"userInfo":{"username":""#,
            r#"{"userInfo":{"username":"alice"#,
        ] {
            assert_eq!(unread_user(cut.as_bytes()), "");
        }
    }
}
