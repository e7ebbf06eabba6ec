//! Consults the authorizers about one request, in order.

use std::cell::LazyCell;
use std::sync::Arc;
use std::time::Instant;

use super::Authorizers;
use super::answers::{Answer, CacheLookup, SharedDeadline};
use super::entry::WebhookAuthorizer;
use super::question::{AuthorizerQuestion, CacheKey};
use crate::telemetry::ReviewTrace;
use crate::telemetry::traces::TraceParent;
use crate::upstream::end_of_calls;
use portcullis_policy::authorization::Authorization;
use portcullis_policy::authorization::authorizer::{Consultation, NamedOpinion, Opinion, Relevance};
use portcullis_policy::engine::{Attributes, Deadline};

/// The end of a consultation.
#[derive(Debug)]
pub struct ConsultationEnd {
    /// The answer.
    pub authorization: Authorization<'static>,
    /// What went wrong on the way; empty if nothing did.
    pub error: String,
    /// What each authorizer came to, in the order asked, where that is wanted.
    pub opinions: Vec<NamedOpinion>,
}

/// How far a consultation came without waiting.
#[derive(Debug)]
pub enum ConsultationStep {
    /// To its end.
    Done(ConsultationEnd),
    /// To an authorizer that must be asked.
    Ask(Box<Pending>),
}

/// A consultation in which somebody must be asked.
#[derive(Debug)]
pub struct Pending {
    consultation: Consultation,
    question: AuthorizerQuestion,
    /// Those whose turn is still to come, and whether it is their turn at all.
    ahead: Vec<(Arc<WebhookAuthorizer>, Relevance)>,
}

// === impl Authorizers ===

impl Authorizers {
    /// Consults them about the request of `review`, from `cluster`, as far as that goes
    /// without waiting: by matchConditions, which have time until `deadline`, and by answers that
    /// are good at `now`.
    ///
    /// Of `consultation` the opinions are kept that it keeps.
    #[must_use]
    pub fn consult(
        &self,
        cluster: &str,
        attributes: &Attributes<'_>,
        mut consultation: Consultation,
        deadline: Deadline<'_>,
        now: Instant,
    ) -> ConsultationStep {
        // Not needed where every one is passed over.
        let key = LazyCell::new(|| CacheKey::new(cluster, attributes));
        let mut entries = self.entries.iter();
        while let Some(entry) = entries.next() {
            let relevance = entry.relevance(attributes, deadline);
            let opinion = match &relevance {
                Relevance::Asked => match entry.cached((*key).as_ref(), now) {
                    Some(opinion) => Some(opinion),
                    None => {
                        let ahead =
                            entries.map(|entry| (Arc::clone(entry), entry.relevance(attributes, deadline)));
                        let first = (Arc::clone(entry), relevance);
                        return ConsultationStep::Ask(Box::new(Pending {
                            consultation,
                            question: AuthorizerQuestion::new(attributes, (*key).clone()),
                            ahead: std::iter::once(first).chain(ahead).collect(),
                        }));
                    }
                },
                settled => entry.settled(settled),
            };
            if opinion.is_some_and(|opinion| consultation.take(entry.name(), opinion)) {
                break;
            }
        }
        ConsultationStep::Done(ConsultationEnd::of(consultation))
    }
}

// === impl Pending ===

impl Pending {
    /// Asks on, until somebody allows or denies. An authorizer whose answer is
    /// not there in time for `deadline` comes to its failurePolicy. The end, and
    /// what it was about.
    pub async fn ask(self, deadline: Instant, trace: &ReviewTrace) -> (ConsultationEnd, Attributes<'static>) {
        let Self {
            mut consultation,
            question,
            ahead,
        } = self;
        let deadline = end_of_calls(Instant::now(), deadline);
        for (entry, relevance) in ahead {
            let opinion = match relevance {
                Relevance::Asked => {
                    let span = trace.call(|| format!("authorizer {}", entry.name()));
                    Some(opinion(&entry, &question, deadline, trace.traceparent(&span)).await)
                }
                settled => entry.settled(&settled),
            };
            if opinion.is_some_and(|opinion| consultation.take(entry.name(), opinion)) {
                break;
            }
        }
        (ConsultationEnd::of(consultation), question.into_attributes())
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

/// What one authorizer comes to.
async fn opinion(
    entry: &Arc<WebhookAuthorizer>,
    question: &AuthorizerQuestion,
    deadline: Instant,
    parent: Option<TraceParent>,
) -> Opinion {
    let Some(_place) = entry.wait() else {
        return entry.failed("too many requests wait for it");
    };
    let answered = tokio::time::timeout_at(deadline.into(), answer(entry, question, deadline, parent));
    match answered.await {
        Ok(Ok(opinion)) => opinion,
        Ok(Err(error)) => entry.failed(&error),
        Err(_) => entry.failed("no answer within the caller's deadline"),
    }
}

async fn answer(
    entry: &Arc<WebhookAuthorizer>,
    question: &AuthorizerQuestion,
    deadline: Instant,
    parent: Option<TraceParent>,
) -> Answer {
    let ask = |deadline: Arc<SharedDeadline>| {
        let body = question.body(entry.callee().version);
        entry.callee().clone().ask(body, deadline, parent)
    };
    match question.key.as_ref().filter(|_| entry.keeps()) {
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
