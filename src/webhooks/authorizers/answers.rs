//! The question that is sent to an authorizer as a SubjectAccessReview, and the cache of its
//! answers.
//!
//! Identical questions that are asked at the same time share one call, which is called a flight.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};

use crate::webhooks::Requester;
use portcullis_policy::authorization::SubjectAccessReviewVersion;
use portcullis_policy::authorization::authorizer::Opinion;
use portcullis_policy::model::{Attributes, Decision, Requirement, Target};

/// The maximum size of a cache, questions and answers together, in bytes.
const MAX_CACHE_BYTES: u64 = 16 << 20;

/// The assumed memory of a cached answer besides its strings, in bytes.
const ANSWER_OVERHEAD_BYTES: usize = 256;

/// The result of asking a question.
pub(crate) type OpinionResult = Result<Opinion, AuthorizerCallError>;

/// Why an authorizer gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthorizerCallError {
    /// The authorizer was not called, because the limit of calls is reached.
    #[error("{0}")]
    NotAsked(String),
    /// The call failed, or its reply is invalid.
    #[error("{0}")]
    Failed(String),
}

/// A call in flight. Its clones are the requests that wait for the result.
pub(crate) type Flight = Shared<BoxFuture<'static, OpinionResult>>;

/// The time until which at least one request waits for a flight.
#[derive(Debug)]
pub(crate) struct SharedDeadline(Mutex<Instant>);

/// How long answers are cached, as in `authorizedTTL` and `unauthorizedTTL`; `None` if they are
/// not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetimes {
    pub(crate) authorized: Option<Duration>,
    pub(crate) unauthorized: Option<Duration>,
}

/// The cached answers of one authorizer, and the calls to it that are in flight. Errors are not
/// cached.
#[derive(Debug)]
pub(crate) struct AnswerCache {
    lifetimes: Lifetimes,
    kept: moka::sync::Cache<CacheKey, CachedAnswer>,
    flights: Mutex<CallsInFlight>,
}

/// The result of looking up a question: its cached answer, or the flight that will return it.
#[derive(Debug)]
pub(crate) enum CacheLookup {
    Answer(Opinion),
    Flight(Flight),
}

#[derive(Debug, Clone)]
struct CachedAnswer {
    opinion: Opinion,
    until: Instant,
}

#[derive(Debug, Default)]
struct CallsInFlight {
    count: u64,
    by_key: HashMap<CacheKey, SharedCall>,
}

#[derive(Debug)]
struct SharedCall {
    number: u64,
    flight: WeakShared<BoxFuture<'static, OpinionResult>>,
    shared_deadline: Arc<SharedDeadline>,
}

/// Removes a flight from [`CallsInFlight`] when it is dropped: at its end, or when no request waits
/// for it any more.
struct FlightGuard {
    answers: Arc<AnswerCache>,
    key: CacheKey,
    number: u64,
}

// === impl AnswerCache ===

impl AnswerCache {
    pub(crate) fn new(lifetimes: Lifetimes) -> Arc<Self> {
        let weigh = |key: &CacheKey, kept: &CachedAnswer| {
            u32::try_from(key.len() + kept.opinion.reason.len() + ANSWER_OVERHEAD_BYTES).unwrap_or(u32::MAX)
        };
        let longest = lifetimes.authorized.max(lifetimes.unauthorized);
        let kept = moka::sync::Cache::builder()
            .weigher(weigh)
            .max_capacity(MAX_CACHE_BYTES)
            .time_to_live(longest.unwrap_or_default());
        Arc::new(Self {
            lifetimes,
            kept: kept.build(),
            flights: Mutex::default(),
        })
    }

    /// The cached answer, if it has not expired at `now`.
    pub(crate) fn get(&self, key: &CacheKey, now: Instant) -> Option<Opinion> {
        let kept = self.kept.get(key)?;
        (now < kept.until).then_some(kept.opinion)
    }

    /// Caches an answer given at `now` for the lifetime that its decision has.
    pub(crate) fn put(&self, key: CacheKey, opinion: Opinion, now: Instant) {
        let lifetime = match opinion.decision {
            Decision::Allow => self.lifetimes.authorized,
            Decision::Deny | Decision::NoOpinion => self.lifetimes.unauthorized,
        };
        if let Some(until) = lifetime.and_then(|lifetime| now.checked_add(lifetime)) {
            self.kept.insert(key, CachedAnswer { opinion, until });
        }
    }

    /// The cached answer for `key`, or the flight that will return it. If there is no flight yet,
    /// `ask` starts one. The deadline of the flight, which is passed to `ask`, is at least
    /// `deadline`, and is extended by later requests that wait for it.
    pub(crate) fn find(
        self: &Arc<Self>,
        key: &CacheKey,
        (now, deadline): (Instant, Instant),
        ask: impl FnOnce(Arc<SharedDeadline>) -> BoxFuture<'static, OpinionResult>,
    ) -> CacheLookup {
        let mut flights = self.flights();
        if let Some(underway) = flights.by_key.get(key)
            && let Some(flight) = underway.flight.upgrade()
        {
            underway.shared_deadline.extend(deadline);
            return CacheLookup::Flight(flight);
        }
        // A flight may have ended since the caller looked up the answer.
        if let Some(opinion) = self.get(key, now) {
            return CacheLookup::Answer(opinion);
        }
        flights.count += 1;
        let number = flights.count;
        let shared_deadline = Arc::new(SharedDeadline(Mutex::new(deadline)));
        let flight = self.flight(key.clone(), number, ask(Arc::clone(&shared_deadline)));
        let underway = flight.downgrade().map(|flight| SharedCall {
            number,
            flight,
            shared_deadline,
        });
        flights
            .by_key
            .extend(underway.map(|underway| (key.clone(), underway)));
        CacheLookup::Flight(flight)
    }

    fn flight(
        self: &Arc<Self>,
        key: CacheKey,
        number: u64,
        asking: BoxFuture<'static, OpinionResult>,
    ) -> Flight {
        let landing = FlightGuard {
            answers: Arc::clone(self),
            key,
            number,
        };
        let flight = async move {
            let answer = asking.await;
            if let Ok(opinion) = &answer {
                landing
                    .answers
                    .put(landing.key.clone(), opinion.clone(), Instant::now());
            }
            drop(landing);
            answer
        };
        flight.boxed().shared()
    }

    fn flights(&self) -> MutexGuard<'_, CallsInFlight> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl FlightGuard ===

impl Drop for FlightGuard {
    fn drop(&mut self) {
        let mut flights = self.answers.flights();
        let is_own = |underway: &SharedCall| underway.number == self.number;
        if flights.by_key.get(&self.key).is_some_and(is_own) {
            flights.by_key.remove(&self.key);
        }
    }
}

// === impl SharedDeadline ===

impl SharedDeadline {
    /// The deadline of a call that is not shared.
    pub(crate) fn until(deadline: Instant) -> Arc<Self> {
        Arc::new(Self(Mutex::new(deadline)))
    }

    /// The latest deadline of the requests that wait.
    pub(crate) fn end(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn extend(&self, deadline: Instant) {
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *end = deadline.max(*end);
    }
}

/// An answer is not cached if the user chose this many bytes of the question, or more. Unlike
/// kube-apiserver, which counts only the attributes, this includes selectors and `extra`.
const MAX_CACHED_BYTES: usize = 10_000;

/// The maximum size of a key, including the user's groups, in bytes.
const MAX_KEY_BYTES: usize = 64 << 10;

/// A question to the authorizers: whether a request is allowed.
#[derive(Debug)]
pub(crate) struct AuthorizerQuestion {
    pub(crate) key: Option<CacheKey>,
    cluster: String,
    /// The number of configured authorizers.
    pub(crate) authorizers: usize,
    attributes: Attributes<'static>,
}

/// The key of a question in the cache: its cluster, and its whole spec in v1. It is not a digest,
/// for which a user could construct a collision.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey(Arc<[u8]>);

// === impl AuthorizerQuestion ===

impl AuthorizerQuestion {
    /// A question about a request from `cluster`; `authorizers` is the number of authorizers.
    pub(crate) fn new(
        (cluster, authorizers): (&str, usize),
        attributes: &Attributes<'_>,
        key: Option<CacheKey>,
    ) -> Self {
        Self {
            key,
            authorizers,
            cluster: cluster.to_owned(),
            attributes: attributes.clone().into_owned(),
        }
    }

    /// The cluster and the user whose limits of calls apply.
    pub(crate) fn requester(&self) -> Requester<'_> {
        Requester {
            share: &self.cluster,
            user: &self.attributes.user.name,
        }
    }

    pub(crate) fn into_attributes(self) -> Attributes<'static> {
        self.attributes
    }

    /// The SubjectAccessReview that is sent, in this version.
    pub(crate) fn body(&self, version: SubjectAccessReviewVersion) -> Bytes {
        version.encode(&self.attributes).into()
    }
}

// === impl CacheKey ===

impl CacheKey {
    /// The key of a question; `None` if it is too large to be cached.
    pub(crate) fn new(cluster: &str, attributes: &Attributes<'_>) -> Option<Self> {
        if chosen(attributes) >= MAX_CACHED_BYTES {
            return None;
        }
        let mut key = cluster.as_bytes().to_vec();
        // Neither names of clusters nor JSON contain this byte.
        key.push(0);
        key.extend(SubjectAccessReviewVersion::V1.encode_spec(attributes));
        (key.len() <= MAX_KEY_BYTES).then(|| Self(key.into()))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The number of bytes of a question that the user chose.
fn chosen(attributes: &Attributes<'_>) -> usize {
    let target = match &attributes.target {
        Target::NonResource { path, verb } => path.len() + verb.len(),
        Target::Resource(resource) => {
            let texts = [
                &resource.namespace,
                &resource.verb,
                &resource.group,
                &resource.version,
                &resource.resource,
                &resource.subresource,
                &resource.name,
            ];
            let selectors = resource.selectors.field.iter().chain(&resource.selectors.label);
            texts.iter().map(|text| text.len()).sum::<usize>() + selectors.map(requirement).sum::<usize>()
        }
    };
    let extra = attributes.user.extra.iter();
    target
        + extra
            .map(|(key, values)| key.len() + values.iter().map(|value| value.len() + 1).sum::<usize>())
            .sum::<usize>()
}

fn requirement(requirement: &Requirement<'_>) -> usize {
    let values = requirement.values.iter().map(|value| value.len() + 1);
    requirement.key.len() + requirement.operator.as_str().len() + values.sum::<usize>()
}

#[cfg(test)]
mod tests;
