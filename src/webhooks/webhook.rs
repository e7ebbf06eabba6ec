//! One webhook: client, circuit breaker, in-flight limit, metrics.
//!
//! A user whose requests are slow for a webhook must not keep it from answering others:
//! one user may have at most a quarter of all calls.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use portcullis_policy::admission::FailurePolicy;
use portcullis_policy::admission::webhook::ClientConfig;
use portcullis_policy::field::{Fault, FaultKind, Place};

use super::breaker::{Breaker, CallAttempt, OpenBreaker, Reachability, Transition};
use super::client::{Bounds, CallError, Client, Reply, ReplyMemory, SettingsError};
use super::settings::CallSettings;
use crate::telemetry::metrics::{Outcome, UpstreamRecorder};
use crate::telemetry::traces::TraceParent;

/// That there was no connection in time counts for the breaker only if there was
/// this long, or half of the webhook's own timeout: others before it may have left
/// it hardly any time.
const MIN_CONNECT_TIME: Duration = Duration::from_secs(1);

/// How long connecting may take while the breaker is open.
const OPEN_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// One webhook.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// `configuration/name`.
    id: String,
    config: ClientConfig,
    client: Result<Client, SettingsError>,
    in_flight: InFlight,
    breaker: Option<Breaker>,
    recorder: OnceLock<UpstreamRecorder>,
}

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FailedCall {
    /// It cannot be called as it is written.
    #[error(transparent)]
    Unusable(#[from] SettingsError),
    /// It has as many calls as it may.
    #[error(transparent)]
    Full(#[from] InFlightLimitError),
    /// The breaker is open.
    #[error(transparent)]
    BreakerOpen(#[from] OpenBreaker),
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// What holds for one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits {
    /// How long it may take.
    pub(crate) timeout: Duration,
    /// How long the webhook may take when nobody took any of that before it.
    pub(crate) own_timeout: Duration,
    /// What becomes of a request about which it could not be asked.
    pub(crate) failure_policy: FailurePolicy,
    /// The largest reply.
    pub(crate) reply_bytes: usize,
}

/// Which part of all calls may be one user's.
const USER_PARTS: usize = 4;

/// For whom a webhook is called: the user of the request, as the callers of one share say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Requester<'a> {
    /// [`Caller::share`](crate::identity::Caller::share).
    pub share: &'a str,
    /// `userInfo.username` of the review.
    pub user: &'a str,
}

/// A limit of calls at once. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    limit: usize,
    calls: Arc<Calls>,
}

/// The calls in flight.
#[derive(Debug, Default)]
struct Calls {
    all: AtomicUsize,
    /// By the hash of the requester, however long its name is. The hasher has keys of its own in
    /// each process: nobody can choose whose calls count together with theirs.
    by_requester: DashMap<u64, usize>,
}

/// A call that counts as long as this lives.
#[derive(Debug)]
pub(crate) struct InFlightPermit {
    calls: Arc<Calls>,
    requester: Option<u64>,
}

/// Which limit leaves no room for one call more, and how to raise it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InFlightLimitError {
    /// That of all calls.
    #[error(
        "it has {0} calls in flight already, as many as `upstreams.inFlight` of the gateway's configuration allows"
    )]
    Webhook(usize),
    /// That of one user's calls.
    #[error(
        "it has {share} calls for this user in flight already, as many as one user may have: \
        a quarter of `upstreams.inFlight` ({limit}) of the gateway's configuration"
    )]
    Requester {
        /// The user's calls at once.
        share: usize,
        /// All calls at once.
        limit: usize,
    },
}

// === impl Upstream ===

impl Upstream {
    /// The webhook `id` of the cluster `tenant`, with what can be kept of those of that id `before`.
    pub(crate) fn new(
        (id, tenant): (String, Option<&str>),
        config: &ClientConfig,
        settings: &CallSettings,
        before: &[Arc<Self>],
    ) -> Self {
        let (client, kept) = connect((config, tenant), settings, before);
        let in_flight = kept.map_or_else(
            || InFlight::new(settings.in_flight),
            |kept| kept.in_flight.with_limit(settings.in_flight),
        );
        let breaker = settings.breaker.map(|limits| {
            kept.and_then(|kept| kept.breaker.clone())
                .filter(|breaker| breaker.limits() == limits)
                .unwrap_or_else(|| Breaker::new(limits))
        });
        let built = Self {
            id,
            config: config.clone(),
            client,
            in_flight,
            breaker,
            recorder: OnceLock::new(),
        };
        // The series are those of the id.
        if let Some(recorder) = before.iter().find_map(|before| before.recorder.get()) {
            built.record_to(recorder.clone());
        }
        built
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Whether this is the webhook at `config`.
    pub(crate) fn is(&self, config: &ClientConfig) -> bool {
        self.config == *config
    }

    /// What is wrong with it, if it can never be called.
    pub(crate) fn warning(&self) -> Option<Fault> {
        let reason = self.client.as_ref().err()?;
        let place = Place {
            object: format!("webhook/{}", self.id),
            ..Place::default()
        };
        let message = format!("{reason}: it cannot be called, and its failurePolicy decides");
        Some(Fault::warning(place, FaultKind::Invalid, message))
    }

    /// Counts there from now on.
    pub(crate) fn record_to(&self, recorder: UpstreamRecorder) {
        recorder.breaker_open(self.breaker.as_ref().is_some_and(Breaker::is_open));
        // Set already: the series are the same.
        let _ = self.recorder.set(recorder);
    }

    /// Posts `body` for `requester`, as a part of the trace of `parent`, and waits for the reply, which
    /// takes of `memory`.
    pub(crate) async fn call(
        &self,
        body: Bytes,
        limits: CallLimits,
        requester: Option<Requester<'_>>,
        parent: Option<TraceParent>,
        memory: Option<ReplyMemory>,
    ) -> Result<Reply, FailedCall> {
        let result = self.guarded(body, limits, requester, parent, memory).await;
        if matches!(
            result,
            Err(FailedCall::Unusable(_) | FailedCall::Full(_) | FailedCall::BreakerOpen(_))
        ) {
            self.record(|recorder| recorder.refused());
        }
        result
    }

    async fn guarded(
        &self,
        body: Bytes,
        limits: CallLimits,
        requester: Option<Requester<'_>>,
        parent: Option<TraceParent>,
        memory: Option<ReplyMemory>,
    ) -> Result<Reply, FailedCall> {
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let _permit = self.in_flight.enter(requester)?;
        let start = Instant::now();
        let attempt = match &self.breaker {
            Some(breaker) => Some(breaker.attempt(limits.failure_policy, start)?),
            None => None,
        };
        let is_despite_open = attempt.as_ref().is_some_and(CallAttempt::is_despite_open);
        let bounds = limits.bounds(is_despite_open);
        let result = client.post(body, bounds, parent, memory).await;
        let end = Instant::now();
        let outcome = if result.is_ok() {
            Outcome::Success
        } else {
            Outcome::Failure
        };
        self.record(|recorder| recorder.record(outcome, end.duration_since(start)));
        let reached = reachability(&result, limits.are_fair());
        let transition = attempt.and_then(|attempt| attempt.end(reached, end));
        self.log(transition, result.as_ref().err());
        Ok(result?)
    }

    fn log(&self, transition: Option<Transition>, error: Option<&CallError>) {
        let webhook = &self.id;
        match (transition, error) {
            (None, _) => return,
            (Some(Transition::Opened), Some(error)) => {
                if let Some(breaker) = &self.breaker {
                    breaker.opened(error.to_string());
                    let limits = breaker.limits();
                    tracing::warn!(
                        webhook,
                        %error,
                        "circuit breaker opened for webhook: it could not be reached {} times in a row, and is \
                         called again after {} s",
                        limits.failures,
                        limits.open_for.as_secs_f64()
                    );
                }
            }
            (Some(Transition::Opened), None) => {}
            (Some(Transition::Closed), _) => tracing::info!(webhook, "circuit breaker closed for webhook"),
        }
        self.record(|recorder| recorder.breaker_open(transition == Some(Transition::Opened)));
    }

    fn record(&self, act: impl FnOnce(&UpstreamRecorder)) {
        if let Some(recorder) = self.recorder.get() {
            act(recorder);
        }
    }
}

/// The client of `config`, and the one `before` whose connections it has.
fn connect<'b>(
    (config, tenant): (&ClientConfig, Option<&str>),
    settings: &CallSettings,
    before: &'b [Arc<Upstream>],
) -> (Result<Client, SettingsError>, Option<&'b Upstream>) {
    let (settings, authorization) = match settings.of(config, tenant) {
        Ok(of) => of,
        Err(error) => return (Err(error), None),
    };
    for upstream in before {
        if let Ok(client) = &upstream.client
            && *client.settings() == settings
        {
            return (Ok(client.with_authorization(authorization)), Some(upstream));
        }
    }
    (Client::new(settings, authorization), None)
}

/// What a call shows of the webhook. Only what comes before the request is sent, or
/// what a proxy says in its place (503), shows that it is not there: a webhook that
/// drops the connection, hangs or errs may do so about this one request, and what one
/// user sends must not cut it off from all.
fn reachability<R>(result: &Result<R, CallError>, is_fair: bool) -> Reachability {
    match result {
        Ok(_)
        | Err(CallError::TooLarge(_) | CallError::NoMemory | CallError::ContentType | CallError::Encoding) => {
            Reachability::Reachable
        }
        Err(
            CallError::Resolve { .. } | CallError::Dial { .. } | CallError::Tls(_) | CallError::Status(503),
        ) => Reachability::Unreachable,
        Err(CallError::Connect(_)) if is_fair => Reachability::Unreachable,
        Err(CallError::Status(_)) => Reachability::Reachable,
        // Of a connection that was open already, these say nothing.
        Err(
            CallError::Connect(_)
            | CallError::Exchange(_)
            | CallError::Reset
            | CallError::Timeout(_)
            | CallError::Runtime
            | CallError::Forbidden(_)
            | CallError::OnThisHost(_)
            | CallError::Itself(_),
        ) => Reachability::Unknown,
    }
}

// === impl CallLimits ===

impl CallLimits {
    fn bounds(self, is_despite_open: bool) -> Bounds {
        Bounds {
            timeout: self.timeout,
            connect: if is_despite_open {
                OPEN_CONNECT_TIMEOUT
            } else {
                self.timeout
            },
            announced: whole_seconds(self.timeout),
            reply_bytes: self.reply_bytes,
        }
    }

    /// Whether there is time enough to connect.
    fn are_fair(self) -> bool {
        self.timeout >= MIN_CONNECT_TIME.min(self.own_timeout / 2)
    }
}

/// `timeout` rounded up, as the API server announces it.
fn whole_seconds(timeout: Duration) -> Duration {
    let more = u64::from(timeout.subsec_nanos() > 0);
    Duration::from_secs(timeout.as_secs() + more)
}

// === impl InFlight ===

impl InFlight {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            calls: Arc::default(),
        }
    }

    /// The same calls under another limit.
    pub(crate) fn with_limit(&self, limit: usize) -> Self {
        Self {
            limit,
            calls: Arc::clone(&self.calls),
        }
    }

    /// One call more, for `requester` if for anybody.
    ///
    /// # Errors
    ///
    /// There are enough.
    pub(crate) fn enter(
        &self,
        requester: Option<Requester<'_>>,
    ) -> Result<InFlightPermit, InFlightLimitError> {
        let calls = &self.calls;
        if calls.all.load(Ordering::Relaxed) >= self.limit {
            return Err(InFlightLimitError::Webhook(self.limit));
        }
        let requester = requester.map(|requester| calls.by_requester.hasher().hash_one(requester));
        if let Some(requester) = requester {
            self.count(calls.by_requester.entry(requester))?;
        } else {
            self.count_among_all()?;
        }
        Ok(InFlightPermit {
            calls: Arc::clone(calls),
            requester,
        })
    }

    /// Counts a call of a requester, whose entry is locked meanwhile.
    fn count(&self, held: Entry<'_, u64, usize>) -> Result<(), InFlightLimitError> {
        let share = (self.limit / USER_PARTS).max(1);
        match held {
            Entry::Occupied(held) if *held.get() >= share => Err(InFlightLimitError::Requester {
                share,
                limit: self.limit,
            }),
            Entry::Occupied(mut held) => {
                self.count_among_all()?;
                *held.get_mut() += 1;
                Ok(())
            }
            Entry::Vacant(none) => {
                self.count_among_all()?;
                none.insert(1);
                Ok(())
            }
        }
    }

    fn count_among_all(&self) -> Result<(), InFlightLimitError> {
        let one_more = |all: usize| (all < self.limit).then_some(all + 1);
        let counted = self
            .calls
            .all
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        counted
            .map(|_| ())
            .map_err(|_| InFlightLimitError::Webhook(self.limit))
    }
}

// === impl InFlightPermit ===

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        self.calls.all.fetch_sub(1, Ordering::Relaxed);
        if let Some(requester) = self.requester
            && let Entry::Occupied(mut held) = self.calls.by_requester.entry(requester)
        {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests;
