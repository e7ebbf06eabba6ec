//! `POST /authorize`: decodes, decides, logs and answers one SubjectAccessReview.
//!
//! ```text
//! decode ─▶ own policies ── no opinion, and there are other authorizers ─▶ consult ─▶ ask, waiting
//!                │                                                            │          │
//!                └──────────────── decided ─────────────────────────────▶ answered ◀─────┘
//! ```
//!
//! A worker tries to decide within a short time slice. If conditions take longer, a thread of the
//! pool decides from the beginning. Conditions without a result by the caller's deadline fail.

use std::borrow::Cow;
use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use actix_web::web::{Bytes, Data};
use tokio::time::timeout_at;

use super::counters::CountingObserver;
use super::gateway::{DecisionRecorder, GatewayState};
use super::pool::{JobClass, MAX_WORKER_BYTES, WORKER_TIME_SLICE};
use super::receive::ReviewRequest;
use super::respond::Rejection;
use crate::config::Endpoint;
use crate::recording::{RecordedBody, RecordedDecision, RecordedReview};
use crate::telemetry::decision_log::{LoggedQuestion, Record, ShadowDecision};
use crate::webhooks::authorizers::{CallPlace, ConsultationEnd, ConsultationStep, PendingQuestion};
use crate::webhooks::call_deadline;
use portcullis_policy::api::{SubjectAccessReview, SubjectAccessReviewReply};
use portcullis_policy::authorization::authorizer::{Consultation, NamedOpinion};
use portcullis_policy::authorization::{Authorization, NearMisses, PolicySet, SubjectAccessReviewVersion};
use portcullis_policy::model::{Attributes, Cause, Deadline, Decision};

/// The reason given to `neverDeny` users and to the gateway itself while their cluster is not
/// synced.
const CLUSTER_NOT_KNOWN: &str = "the objects of the cluster are not known yet";

/// An attempt to decide a review.
#[derive(Clone, Copy)]
struct DecisionAttempt<'a> {
    /// Whether the time of an attempt that started at the given time is over.
    is_over: &'a dyn Fn(Instant) -> bool,
    /// Whether the review is attempted again if it needs more than its memory allowance.
    may_retry: bool,
    /// Whether the result is discarded once the time is over. Otherwise conditions without a result
    /// count as failed.
    is_discarded: &'a dyn Fn() -> bool,
    /// The number of policy results that an earlier attempt has counted.
    counted: usize,
}

/// How far a review was processed without waiting for other authorizers.
enum AuthorizeStep {
    /// The reply is encoded.
    Answered(Bytes),
    /// Other authorizers have to be called.
    Consult(PendingConsultation),
    /// The attempt was stopped.
    Interrupted(InterruptedAttempt),
}

/// What an attempt that was stopped leaves to the next one.
#[derive(Default)]
struct InterruptedAttempt {
    /// The number of policy results that were counted.
    counted: usize,
    /// The user of the review; empty if it was not decoded yet.
    user: String,
}

/// A review for which other authorizers have to be called.
struct PendingConsultation {
    version: SubjectAccessReviewVersion,
    pending: Box<PendingQuestion>,
    since: Instant,
}

/// The decision about a review.
struct AuthorizationResult<'r> {
    version: SubjectAccessReviewVersion,
    attributes: &'r Attributes<'r>,
    authorization: &'r Authorization<'r>,
    /// The evaluation error; empty if there is none.
    error: &'r str,
    /// The decisions of other authorizers, if reviews are recorded.
    opinions: Vec<NamedOpinion>,
    took: Duration,
}

/// Returns the reply to the review in the body, after calling other authorizers if necessary. A
/// small review is tried on the worker; a large or slow one runs in the pool, so that it does not
/// delay the worker's other requests.
pub(crate) async fn answer(shared: &Data<GatewayState>, received: ReviewRequest) -> Result<Bytes, Rejection> {
    let before = if received.body.len() <= MAX_WORKER_BYTES {
        match attempt_on_this_thread(shared, &received)? {
            AuthorizeStep::Answered(reply) => return Ok(reply),
            // Boxed, as below, to keep this future small: most reviews do not get here.
            AuthorizeStep::Consult(pending) => {
                return Box::pin(pending.call_authorizers(shared, &received)).await;
            }
            AuthorizeStep::Interrupted(attempt) => attempt,
        }
    } else {
        InterruptedAttempt::default()
    };
    Box::pin(answer_in_pool(shared, Arc::new(received), before)).await
}

fn attempt_on_this_thread(
    shared: &GatewayState,
    received: &ReviewRequest,
) -> Result<AuthorizeStep, Rejection> {
    let attempt = DecisionAttempt {
        is_over: &|since| Instant::now() >= received.deadline.min(since + WORKER_TIME_SLICE),
        may_retry: true,
        is_discarded: &|| true,
        counted: 0,
    };
    decide(shared, received, attempt)
}

/// Decides in the pool: first within a short time, then until the caller's deadline.
async fn answer_in_pool(
    shared: &Data<GatewayState>,
    received: Arc<ReviewRequest>,
    mut before: InterruptedAttempt,
) -> Result<Bytes, Rejection> {
    for size in [JobClass::Small, JobClass::Large] {
        match attempt_in_pool(shared, &received, size, before).await? {
            AuthorizeStep::Answered(reply) => return Ok(reply),
            AuthorizeStep::Consult(pending) => {
                return Box::pin(pending.call_authorizers(shared, &received)).await;
            }
            AuthorizeStep::Interrupted(attempt) => before = attempt,
        }
    }
    Err(Rejection::ReviewDeadlineExceeded)
}

/// Runs an attempt in the pool. If no thread is free before the caller's deadline, it runs on the
/// worker, and conditions that take long fail.
async fn attempt_in_pool(
    shared: &Data<GatewayState>,
    received: &Arc<ReviewRequest>,
    size: JobClass,
    before: InterruptedAttempt,
) -> Result<AuthorizeStep, Rejection> {
    let InterruptedAttempt { counted, user } = before;
    let end = call_deadline(Instant::now(), received.deadline);
    let has_begun = Arc::new(AtomicBool::new(false));
    let (of_job, asked, begins) = (shared.clone(), Arc::clone(received), Arc::clone(&has_begun));
    let work = move |is_over: &dyn Fn() -> bool| {
        begins.store(true, Ordering::Relaxed);
        // The result is discarded if the caller no longer waits for it.
        let attempt = DecisionAttempt {
            is_over: &|_| is_over() || Instant::now() >= end,
            may_retry: size == JobClass::Small,
            is_discarded: &|| size == JobClass::Small || is_over(),
            counted,
        };
        decide(&of_job, &asked, attempt)
    };
    let owner = received.owner(&user);
    let mut running = pin!(
        shared
            .authorization_pool
            .run(size, owner, received.deadline, work)
    );
    match timeout_at(end.into(), &mut running).await {
        Ok(step) => step?,
        Err(_) if has_begun.load(Ordering::Relaxed) => running.await?,
        Err(_) => {
            let attempt = DecisionAttempt {
                is_over: &|since| Instant::now() >= since + WORKER_TIME_SLICE,
                may_retry: true,
                is_discarded: &|| false,
                counted,
            };
            decide(shared, received, attempt)
        }
    }
}

/// Decides a review as far as possible without waiting for other authorizers.
fn decide(
    shared: &GatewayState,
    received: &ReviewRequest,
    attempt: DecisionAttempt<'_>,
) -> Result<AuthorizeStep, Rejection> {
    let span = received.trace.span("decode");
    let review = SubjectAccessReview::decode(&received.body)?;
    drop(span);
    let policies = received.snapshot.policies.for_cluster(&received.caller.cluster);
    let is_protected = || policies.is_protected(&review.attributes);
    let is_unsynced = received.is_unsynced(&review.attributes.user.name, is_protected)?;
    let counters = shared.counters.load();
    let counters = counters.of(&received.snapshot);

    let since = Instant::now();
    let was_over = AtomicBool::new(false);
    let expired = || {
        let is_over = was_over.load(Ordering::Relaxed) || (attempt.is_over)(since);
        was_over.store(is_over, Ordering::Relaxed);
        is_over
    };
    let deadline = Deadline {
        expired: &expired,
        needs_more_memory: attempt.may_retry.then_some(&was_over),
    };
    let interrupted = |counted| {
        let user = review.attributes.user.name.to_string();
        AuthorizeStep::Interrupted(InterruptedAttempt { counted, user })
    };
    let is_in_vain = || was_over.load(Ordering::Relaxed) && (attempt.is_discarded)();
    let mut count = CountingObserver {
        counters,
        policies,
        will_be_discarded: &is_in_vain,
        to_skip: attempt.counted,
        counted: attempt.counted,
    };
    let now = received.time.into();
    let span = received.trace.span("decide");
    let mut authorization = match is_unsynced {
        true => Authorization::no_opinion(CLUSTER_NOT_KNOWN),
        false => policies.authorize_observed(&review.attributes, now, deadline, &mut count),
    };
    drop(span);
    if is_in_vain() {
        return Ok(interrupted(count.counted));
    }
    let (mut error, mut opinions) = (String::new(), Vec::new());
    let authorizers = &received.snapshot.authorizers;
    if authorization.decision == Decision::NoOpinion && !authorizers.is_empty() && !is_unsynced {
        let consultation = Consultation::new(authorization, policies.is_protected(&review.attributes))
            .keeping_opinions(shared.recordings.is_on());
        let cluster = &received.caller.cluster;
        match authorizers.consult(cluster, &review.attributes, consultation, deadline, since) {
            _ if is_in_vain() => return Ok(interrupted(count.counted)),
            ConsultationStep::Done(end) => {
                (authorization, error, opinions) = (end.authorization, end.error, end.opinions);
            }
            ConsultationStep::Ask(pending) => {
                return Ok(AuthorizeStep::Consult(PendingConsultation {
                    version: review.version,
                    pending,
                    since,
                }));
            }
        }
    }
    let settled = AuthorizationResult {
        version: review.version,
        attributes: &review.attributes,
        authorization: &authorization,
        error: &error,
        opinions,
        took: since.elapsed(),
    };
    Ok(AuthorizeStep::Answered(settled.conclude(shared, received)))
}

// === impl PendingConsultation ===

impl PendingConsultation {
    /// Calls the authorizers, and returns the reply by the caller's deadline.
    async fn call_authorizers(
        self,
        shared: &GatewayState,
        received: &ReviewRequest,
    ) -> Result<Bytes, Rejection> {
        let take_place = || {
            received
                .permit
                .reserve_call()
                .map(|place| Box::new(place) as CallPlace)
        };
        let asking = self.pending.ask(received.deadline, &received.trace, &take_place);
        let (end, attributes) = asking.await.map_err(|_| Rejection::TooManyRequests)?;
        let ConsultationEnd {
            authorization,
            error,
            opinions,
        } = end;
        let settled = AuthorizationResult {
            version: self.version,
            attributes: &attributes,
            authorization: &authorization,
            error: &error,
            opinions,
            took: self.since.elapsed(),
        };
        Ok(settled.conclude(shared, received))
    }
}

// === impl AuthorizationResult ===

impl AuthorizationResult<'_> {
    /// Counts, logs and records the decision, and returns the reply.
    fn conclude(mut self, shared: &GatewayState, received: &ReviewRequest) -> Bytes {
        shared
            .metrics
            .authorization(self.authorization.decision, self.took);
        received
            .trace
            .record("portcullis.cluster", || received.caller.cluster.to_string());
        received
            .trace
            .decided(self.authorization.decision, self.authorization.cause.as_ref());
        if shared.recorder.is_on() {
            let policies = received.snapshot.policies.for_cluster(&received.caller.cluster);
            self.record(&shared.recorder, received, policies);
        }
        let opinions = std::mem::take(&mut self.opinions);
        shared.recordings.record(|| self.recorded(received, opinions));
        encoded(&SubjectAccessReviewReply {
            version: self.version,
            decision: self.authorization.decision,
            reason: &self.authorization.reason,
            evaluation_error: self.error,
        })
    }

    fn recorded(&self, received: &ReviewRequest, opinions: Vec<NamedOpinion>) -> RecordedReview {
        RecordedReview {
            time: received.time,
            endpoint: Endpoint::Authorize,
            name: None,
            cluster: received.caller.cluster.to_string(),
            caller: received.caller.name.to_string(),
            revision: received.snapshot.revision.clone(),
            decision: RecordedDecision {
                decision: self.authorization.decision,
                reason: self.authorization.reason.to_string(),
                cause: self.authorization.cause.clone().map(Cause::into_owned),
                error: self.error.to_owned(),
                patch: String::new(),
            },
            opinions,
            calls: Vec::new(),
            body: RecordedBody::Access(received.body.to_vec().into_boxed_slice()),
        }
    }

    fn record(&self, recorder: &DecisionRecorder, received: &ReviewRequest, policies: &PolicySet) {
        let authorization = self.authorization;
        let shadow: Vec<_> = authorization.shadow.iter().map(ShadowDecision::from).collect();
        let unmatched = match authorization.decision {
            Decision::NoOpinion if recorder.writes_lines() => {
                Some(policies.unmatched(self.attributes, received.time.into()))
            }
            _ => None,
        };
        let reason = match &unmatched {
            Some(unmatched) => Cow::Owned(self.why_not(unmatched)),
            None => Cow::from(&authorization.reason),
        };
        let near_misses = match recorder.needs_near_misses(&received.snapshot) {
            true => unmatched.map(|unmatched| unmatched.nearest),
            false => None,
        };
        let record = Record {
            time: received.time,
            revision: &received.snapshot.revision,
            cluster: &received.caller.cluster,
            caller: &received.caller.name,
            question: LoggedQuestion::Authorization(self.attributes),
            decision: authorization.decision,
            reason: &reason,
            cause: authorization.cause.as_ref(),
            near_misses: near_misses.as_deref().unwrap_or_default(),
            shadow: &shadow,
            exceptions: &[],
            webhooks: &[],
            evaluation_error: self.error,
            duration: self.took,
            redaction: None,
        };
        recorder.record(&record, &received.snapshot);
    }

    /// Why neither the own policies nor other authorizers decided.
    fn why_not(&self, unmatched: &NearMisses) -> String {
        let mut why_not = unmatched.to_string();
        if !self.authorization.reason.is_empty() {
            why_not.push_str("; ");
            // Writing to a String cannot fail.
            let _infallible = self.authorization.reason.write(&mut why_not);
        }
        why_not
    }
}

/// The encoded reply: it is written to a reused buffer, and copied once to an allocation of its
/// exact size.
fn encoded(reply: &SubjectAccessReviewReply<'_>) -> Bytes {
    thread_local! {
        static REPLY: Cell<String> = const { Cell::new(String::new()) };
    }
    let mut written = REPLY.take();
    written.clear();
    reply.encode(&mut written);
    let bytes = Bytes::copy_from_slice(written.as_bytes());
    REPLY.set(written);
    bytes
}
