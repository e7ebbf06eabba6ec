//! One webhook: client, circuit breaker, in-flight limit, metrics.
//!
//! Slow requests of one user must not keep a webhook from being called for others: one user may
//! have at most a quarter of the calls in flight.

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

/// A connection that could not be established in time counts for the breaker only if there was this
/// much time, or half of the webhook's own timeout: webhooks called before it may have left it
/// hardly any.
const MIN_CONNECT_TIME: Duration = Duration::from_secs(1);

/// The time for connecting while the breaker is open.
const OPEN_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A webhook that can be called, with the state that its calls share.
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
    /// Its settings are invalid.
    #[error(transparent)]
    Unusable(#[from] SettingsError),
    /// The limit of calls in flight is reached.
    #[error(transparent)]
    Full(#[from] InFlightLimitError),
    /// The breaker is open.
    #[error(transparent)]
    BreakerOpen(#[from] OpenBreaker),
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// The limits of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits {
    /// The time for the call.
    pub(crate) timeout: Duration,
    /// The timeout in the webhook configuration, of which earlier calls may have used a part.
    pub(crate) own_timeout: Duration,
    /// The effect on the request if the call fails.
    pub(crate) failure_policy: FailurePolicy,
    /// The most bytes of the reply.
    pub(crate) reply_bytes: usize,
}

/// One user may have the limit divided by this.
const USER_PARTS: usize = 4;

/// The user on whose behalf a webhook is called, together with the caller's share, because clusters
/// have users of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Requester<'a> {
    /// [`Caller::share`](crate::identity::Caller::share).
    pub share: &'a str,
    /// `userInfo.username` of the review.
    pub user: &'a str,
}

/// A limit of calls in flight. Clones share the count.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    limit: usize,
    calls: Arc<Calls>,
}

/// The calls in flight.
#[derive(Debug, Default)]
struct Calls {
    all: AtomicUsize,
    /// By the hash of the requester, because names may be long. The hasher has random keys in each
    /// process, so that nobody can choose a name that collides with another.
    by_requester: DashMap<u64, usize>,
}

/// A call that counts as in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct InFlightPermit {
    calls: Arc<Calls>,
    requester: Option<u64>,
}

/// The limit that is reached, and how to raise it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InFlightLimitError {
    /// The limit of all calls.
    #[error(
        "it already has {0} calls in flight, the limit by `upstreams.inFlight` of the gateway's configuration"
    )]
    Webhook(usize),
    /// The limit of one user's calls.
    #[error(
        "it already has {share} calls in flight for this user, the limit for one user: a quarter of \
        `upstreams.inFlight` ({limit}) of the gateway's configuration"
    )]
    Requester {
        /// The limit for one user.
        share: usize,
        /// The limit for all calls.
        limit: usize,
    },
}

// === impl Upstream ===

impl Upstream {
    /// The webhook `id` of the cluster `tenant`. It keeps connections, counts and breaker of the
    /// webhook with that id in `before` that has the same settings.
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
        // The series depend on the id only.
        if let Some(recorder) = before.iter().find_map(|before| before.recorder.get()) {
            built.record_to(recorder.clone());
        }
        built
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Whether this webhook has the client configuration `config`.
    pub(crate) fn has_config(&self, config: &ClientConfig) -> bool {
        self.config == *config
    }

    /// A warning if it can never be called.
    pub(crate) fn warning(&self) -> Option<Fault> {
        let reason = self.client.as_ref().err()?;
        let place = Place {
            object: format!("webhook/{}", self.id),
            ..Place::default()
        };
        let message = format!("{reason}: it cannot be called, and its failurePolicy applies");
        Some(Fault::warning(place, FaultKind::Invalid, message))
    }

    /// Sets the recorder of its metrics.
    pub(crate) fn record_to(&self, recorder: UpstreamRecorder) {
        recorder.breaker_open(self.breaker.as_ref().is_some_and(Breaker::is_open));
        // If it is set already, it is for the same series.
        let _ = self.recorder.set(recorder);
    }

    /// Posts `body` for `requester`, as a part of the trace of `parent`, and waits for the reply,
    /// which is reserved in `memory`.
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
        let reached = reachability(&result, limits.allow_connecting());
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

/// The client for `config`, and the webhook in `before` whose connections it shares.
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

/// What the result of a call says about the webhook. Only errors before the request is sent, and
/// the status 503, which a proxy sends in its place, show that it is unreachable. A webhook that
/// drops the connection, hangs or fails may do so because of this one request, and one user's
/// requests must not open the breaker for all.
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
        // On an established connection these errors prove nothing.
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

    /// Whether the call had enough time to connect.
    fn allow_connecting(self) -> bool {
        self.timeout >= MIN_CONNECT_TIME.min(self.own_timeout / 2)
    }
}

/// `timeout` rounded up to seconds, as the API server sends it.
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

    /// The same count with another limit.
    pub(crate) fn with_limit(&self, limit: usize) -> Self {
        Self {
            limit,
            calls: Arc::clone(&self.calls),
        }
    }

    /// Counts another call in flight, for `requester` if there is one.
    ///
    /// # Errors
    ///
    /// A limit is reached.
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

    /// Counts a call of a requester, whose entry is locked by `held`.
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
