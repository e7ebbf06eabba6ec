//! One webhook: client, circuit breaker, in-flight limit, metrics.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::breaker::{Breaker, CallAttempt, OpenBreaker, Reachability, Transition};
use super::client::{Bounds, CallError, Client, Reply, ReplyMemory, SettingsError};
use super::in_flight::{Full, InFlight, Requester};
use super::settings::CallSettings;
use crate::telemetry::metrics::{Outcome, UpstreamRecorder};
use crate::telemetry::traces::TraceParent;
use portcullis_policy::admission::FailurePolicy;
use portcullis_policy::admission::webhook::ClientConfig;
use portcullis_policy::field::{Fault, FaultKind, Place};

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
    Full(#[from] Full),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_announced_in_whole_seconds_rounded_up() {
        for (timeout, announced) in [(1, 1), (999, 1), (1_000, 1), (1_001, 2), (30_000, 30)] {
            let found = whole_seconds(Duration::from_millis(timeout));
            assert_eq!(found, Duration::from_secs(announced), "{timeout}");
        }
    }

    #[test]
    fn only_what_is_not_there_counts_for_the_breaker() {
        use Reachability::{Reachable, Unknown, Unreachable};
        let address = ([127, 0, 0, 1], 1).into();
        let connect = || CallError::Connect(Duration::from_secs(1));
        for (error, expected) in [
            (
                CallError::Resolve {
                    host: "a".into(),
                    reason: "b".into(),
                },
                Unreachable,
            ),
            (
                CallError::Dial {
                    address,
                    reason: "refused".into(),
                },
                Unreachable,
            ),
            (CallError::Tls("expired".into()), Unreachable),
            (connect(), Unreachable),
            (CallError::Status(503), Unreachable),
            (CallError::Status(302), Reachable),
            (CallError::Status(400), Reachable),
            (CallError::Status(429), Reachable),
            (CallError::Status(500), Reachable),
            (CallError::TooLarge(1), Reachable),
            (CallError::Encoding, Reachable),
            (CallError::ContentType, Reachable),
            (CallError::Reset, Unknown),
            (CallError::Exchange("unexpected end".into()), Unknown),
            (CallError::Timeout(Duration::from_secs(1)), Unknown),
            (CallError::Itself(address), Unknown),
            (CallError::Forbidden(address), Unknown),
            (CallError::OnThisHost(address), Unknown),
        ] {
            assert_eq!(reachability::<()>(&Err(error.clone()), true), expected, "{error}");
        }
        assert_eq!(reachability::<()>(&Err(connect()), false), Unknown);
        assert_eq!(reachability(&Ok(()), false), Reachable);
    }

    #[test]
    fn connecting_despite_an_open_breaker_has_one_second_of_the_call() {
        let ten = Duration::from_secs(10);
        let limits = CallLimits {
            timeout: ten,
            own_timeout: ten,
            failure_policy: FailurePolicy::Ignore,
            reply_bytes: 1,
        };
        let (closed, open) = (limits.bounds(false), limits.bounds(true));
        assert_eq!((closed.connect, closed.timeout), (ten, ten));
        assert_eq!((open.connect, open.timeout), (Duration::from_secs(1), ten));
    }
}
