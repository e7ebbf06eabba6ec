//! Other authorizers (webhooks), called in order if Portcullis' own policies have no opinion.
//!
//! ```text
//! consult: matchConditions, cached answers ──all known──▶ decided, at once
//!             │ one is not known
//!             ▼
//! PendingQuestion::ask ──▶ the same question already asked? ──yes──▶ wait for its answer
//!                        │ no
//!                        ▼
//!                  call: up to 5 attempts ──▶ api: verify ──▶ cache ──▶ every request that waits
//! ```
//!
//! It follows `apiserver/plugin/pkg/authorizer/webhook/webhook.go`.

mod answers;
mod entry;

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crate::config::{Config, Files};
use crate::telemetry::ReviewTrace;
use crate::telemetry::metrics::UpstreamRecorder;
use crate::telemetry::traces::TraceParent;
use crate::webhooks::call_deadline;
use answers::{
    AuthorizerCallError, AuthorizerQuestion, CacheKey, CacheLookup, OpinionResult, SharedDeadline,
};
use entry::WebhookAuthorizer;
use portcullis_policy::authorization::Authorization;
use portcullis_policy::authorization::authorizer::{Consultation, NamedOpinion, Opinion, Relevance};
use portcullis_policy::field::Faults;
use portcullis_policy::model::{Attributes, Deadline, Decision};

pub use entry::CallPlace;

/// The webhook authorizers of `authorization.webhooks`.
#[derive(Debug, Clone, Default)]
pub struct Authorizers {
    entries: Vec<Arc<WebhookAuthorizer>>,
    files: BTreeSet<PathBuf>,
}

// === impl Authorizers ===

impl Authorizers {
    /// Reads the kubeconfigs of `config`'s entries. An entry that is the same as in `previous`,
    /// including its credentials, keeps its connections and its cached answers.
    ///
    /// The result is complete only if the faults contain no error.
    #[must_use]
    pub fn build(config: &Config, files: &dyn Files, previous: Option<&Self>) -> (Self, Faults) {
        let mut faults = Faults::new();
        let mut built = Self::default();
        for wanted in &config.authorization.webhooks {
            let (entry, read) = WebhookAuthorizer::build(wanted, config, files, &mut faults);
            built.files.extend(read);
            built.entries.extend(entry.map(|entry| {
                let kept = previous.and_then(|previous| previous.same(&entry));
                kept.unwrap_or_else(|| Arc::new(entry))
            }));
        }
        (built, faults)
    }

    /// Every file that was read, or would be read if it existed.
    #[must_use]
    pub const fn files(&self) -> &BTreeSet<PathBuf> {
        &self.files
    }

    /// Whether there are no other authorizers.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The names of the authorizers, in the order in which they are called.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name())
    }

    /// Counts requests with these recorders from now on, one for each name.
    pub fn record_to(&self, recorders: Vec<UpstreamRecorder>) {
        for (entry, recorder) in self.entries.iter().zip(recorders) {
            entry.record_to(recorder);
        }
    }

    fn same(&self, wanted: &WebhookAuthorizer) -> Option<Arc<WebhookAuthorizer>> {
        let found = self.entries.iter().find(|entry| entry.is_same(wanted));
        found.cloned()
    }
}

/// The result of a consultation.
#[derive(Debug)]
pub struct ConsultationEnd {
    /// The decision.
    pub authorization: Authorization<'static>,
    /// The evaluation error; empty if there is none.
    pub error: String,
    /// The opinion of each authorizer, in the order of the calls, if the consultation keeps them.
    pub opinions: Vec<NamedOpinion>,
}

/// An authorizer was not called, because a limit of calls is reached.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotAskedError(String);

/// The result of a consultation without waiting.
#[derive(Debug)]
pub enum ConsultationStep {
    /// The consultation is complete.
    Done(ConsultationEnd),
    /// An authorizer has to be called.
    Ask(Box<PendingQuestion>),
}

/// A consultation in which an authorizer has to be called.
#[derive(Debug)]
pub struct PendingQuestion {
    consultation: Consultation,
    question: AuthorizerQuestion,
    /// The remaining authorizers in order, and whether each has to be called.
    ahead: Vec<(Arc<WebhookAuthorizer>, Relevance)>,
}

/// Takes a permit for a call, which is held until the answer arrives, even if no request waits for
/// it any more. Returns `None` if the limit of calls is reached.
pub type TakePlace<'t> = &'t (dyn Fn() -> Option<CallPlace> + Sync);

// === impl Authorizers ===

impl Authorizers {
    /// Consults the authorizers about `attributes` of a request from `cluster`, as far as that needs
    /// no call: with matchConditions, which have time until `deadline`, and with cached answers that
    /// are valid at `now`.
    ///
    /// `consultation` determines which opinions are kept.
    #[must_use]
    pub fn consult(
        &self,
        cluster: &str,
        attributes: &Attributes<'_>,
        mut consultation: Consultation,
        deadline: Deadline<'_>,
        now: Instant,
    ) -> ConsultationStep {
        // Not computed if every authorizer is skipped.
        let key = LazyCell::new(|| CacheKey::new(cluster, attributes));
        let mut entries = self.entries.iter();
        while let Some(entry) = entries.next() {
            let relevance = entry.relevance(attributes, deadline);
            let opinion = match &relevance {
                Relevance::Called => match entry.cached((*key).as_ref(), now) {
                    Some(opinion) => Some(opinion),
                    None => {
                        let ahead =
                            entries.map(|entry| (Arc::clone(entry), entry.relevance(attributes, deadline)));
                        let first = (Arc::clone(entry), relevance);
                        let asked = (cluster, self.entries.len());
                        return ConsultationStep::Ask(Box::new(PendingQuestion {
                            consultation,
                            question: AuthorizerQuestion::new(asked, attributes, (*key).clone()),
                            ahead: std::iter::once(first).chain(ahead).collect(),
                        }));
                    }
                },
                settled => entry.opinion_without_call(settled),
            };
            if opinion.is_some_and(|opinion| consultation.take(entry.name(), opinion)) {
                break;
            }
        }
        ConsultationStep::Done(ConsultationEnd::of(consultation))
    }
}

// === impl PendingQuestion ===

impl PendingQuestion {
    /// Calls the remaining authorizers until one allows or denies. If an answer does not arrive by
    /// `deadline`, the authorizer's failurePolicy decides. Returns the result, and the attributes
    /// of the request.
    ///
    /// # Errors
    ///
    /// An authorizer was not called because a limit of calls is reached, and its failurePolicy
    /// would let the request continue: a gateway at its limit must not skip a denial.
    pub async fn ask(
        self,
        deadline: Instant,
        trace: &ReviewTrace,
        take_place: TakePlace<'_>,
    ) -> Result<(ConsultationEnd, Attributes<'static>), NotAskedError> {
        let Self {
            mut consultation,
            question,
            ahead,
        } = self;
        let deadline = call_deadline(Instant::now(), deadline);
        for (entry, relevance) in ahead {
            let opinion = match relevance {
                Relevance::Called => {
                    let span = trace.call(|| format!("authorizer {}", entry.name()));
                    let times = (deadline, trace.traceparent(&span));
                    match opinion(&entry, &question, times, take_place).await {
                        Ok(opinion) => Some(opinion),
                        Err(error) => {
                            let failed = entry.failed(&error.0);
                            if failed.decision == Decision::NoOpinion && !consultation.is_protected() {
                                return Err(error);
                            }
                            Some(failed)
                        }
                    }
                }
                settled => entry.opinion_without_call(&settled),
            };
            if opinion.is_some_and(|opinion| consultation.take(entry.name(), opinion)) {
                break;
            }
        }
        Ok((ConsultationEnd::of(consultation), question.into_attributes()))
    }
}

// === impl ConsultationEnd ===

impl ConsultationEnd {
    fn of(mut consultation: Consultation) -> Self {
        let opinions = consultation.taken();
        let (authorization, error) = consultation.finish();
        Self {
            authorization,
            error,
            opinions,
        }
    }
}

/// The opinion of one authorizer; an error if it was not called.
async fn opinion(
    entry: &Arc<WebhookAuthorizer>,
    question: &AuthorizerQuestion,
    (deadline, parent): (Instant, Option<TraceParent>),
    take_place: TakePlace<'_>,
) -> Result<Opinion, NotAskedError> {
    let Some(_place) = entry.wait(question.requester()) else {
        return Err(NotAskedError("too many requests wait for it".to_owned()));
    };
    let answered = tokio::time::timeout_at(
        deadline.into(),
        answer(entry, question, (deadline, parent), take_place),
    );
    match answered.await {
        Ok(Ok(opinion)) => Ok(opinion),
        Ok(Err(AuthorizerCallError::NotAsked(error))) => Err(NotAskedError(error)),
        Ok(Err(AuthorizerCallError::Failed(error))) => Ok(entry.failed(&error)),
        Err(_) => Ok(entry.failed("no answer within the caller's deadline")),
    }
}

async fn answer(
    entry: &Arc<WebhookAuthorizer>,
    question: &AuthorizerQuestion,
    (deadline, parent): (Instant, Option<TraceParent>),
    take_place: TakePlace<'_>,
) -> OpinionResult {
    let ask = |deadline: Arc<SharedDeadline>| {
        let place = entry
            .call(question.requester(), question.authorizers)
            .zip(take_place());
        let place = place.map(|both| Box::new(both) as CallPlace);
        let body = question.body(entry.callee().version);
        entry.callee().clone().ask(place, body, deadline, parent)
    };
    match question.key.as_ref().filter(|_| entry.has_cache()) {
        None => ask(SharedDeadline::until(deadline)).await,
        Some(key) => {
            let times = (Instant::now(), deadline);
            match entry
                .answers()
                .find(key, times, |deadline| Box::pin(ask(deadline)))
            {
                CacheLookup::Answer(opinion) => Ok(opinion),
                CacheLookup::Flight(flight) => flight.await,
            }
        }
    }
}
