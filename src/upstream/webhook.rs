//! One webhook: its connections, its protection, its figures.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::breaker::{Breaker, Sign, Turn};
use super::client::{Bounds, Client, Error, Unusable};
use super::in_flight::InFlight;
use super::terms::Terms;
use crate::engine::admission::webhook::ClientConfig;
use crate::field::{Fault, FaultKind, Place};
use crate::telemetry::metrics::{Outcome, UpstreamRecorder};

/// A timeout counts for the breaker only if the webhook had this long, or half
/// of its own timeout: others before it may have left it hardly any time.
const FAIR: Duration = Duration::from_secs(1);

/// One webhook.
#[derive(Debug)]
pub(super) struct Upstream {
    /// `configuration/name`.
    id: String,
    config: ClientConfig,
    client: Result<Client, Unusable>,
    in_flight: InFlight,
    breaker: Option<Breaker>,
    recorder: OnceLock<UpstreamRecorder>,
}

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// It cannot be called as it is written.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// It has as many calls as it may.
    #[error("it has {0} calls in flight already")]
    Busy(usize),
    /// It failed too often.
    #[error("it is left alone after failures in a row")]
    LeftAlone,
    /// The call failed.
    #[error(transparent)]
    Call(#[from] Error),
}

// === impl Upstream ===

impl Upstream {
    /// The webhook `id`, with what can be kept of those of that id `before`.
    pub(super) fn new(id: String, config: &ClientConfig, terms: &Terms, before: &[Self]) -> Self {
        let (client, kept) = connect(config, terms, before);
        let in_flight = kept.map_or_else(
            || InFlight::new(terms.in_flight),
            |kept| kept.in_flight.with_limit(terms.in_flight),
        );
        let breaker = terms.breaker.map(|limits| {
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
        // The series are those of the id, whoever it is.
        if let Some(recorder) = before.iter().find_map(|before| before.recorder.get()) {
            built.record_to(recorder.clone());
        }
        built
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Whether this is the webhook at `config`.
    pub(super) fn is(&self, config: &ClientConfig) -> bool {
        self.config == *config
    }

    /// What is wrong with it, if it can never be called.
    pub(super) fn warning(&self) -> Option<Fault> {
        let reason = self.client.as_ref().err()?;
        let place = Place {
            object: format!("webhook/{}", self.id),
            ..Place::default()
        };
        let message = format!("{reason}: no call can be made, and its failurePolicy decides");
        Some(Fault::warning(place, FaultKind::Invalid, message))
    }

    /// Counts there from now on.
    pub(super) fn record_to(&self, recorder: UpstreamRecorder) {
        recorder.breaker_open(self.breaker.as_ref().is_some_and(Breaker::is_open));
        // Set already: the series are the same.
        let _ = self.recorder.set(recorder);
    }

    /// Posts `body` and waits for the reply for up to `timeout`. `own`: the time
    /// that the webhook has when nobody took any before it.
    pub(super) async fn call(
        &self,
        body: Bytes,
        timeout: Duration,
        own: Duration,
        reply_bytes: usize,
    ) -> Result<Bytes, Failure> {
        let bounds = Bounds {
            timeout,
            announced: whole_seconds(timeout),
            reply_bytes,
        };
        let result = self.guarded(body, bounds, own).await;
        if matches!(
            result,
            Err(Failure::Unusable(_) | Failure::Busy(_) | Failure::LeftAlone)
        ) {
            self.record(|recorder| recorder.refused());
        }
        result
    }

    async fn guarded(&self, body: Bytes, bounds: Bounds, own: Duration) -> Result<Bytes, Failure> {
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let _place = self
            .in_flight
            .enter()
            .ok_or(Failure::Busy(self.in_flight.limit()))?;
        let start = Instant::now();
        let pass = match &self.breaker {
            Some(breaker) => Some(breaker.enter(start).ok_or(Failure::LeftAlone)?),
            None => None,
        };
        let result = client.post(body, bounds).await;
        let end = Instant::now();
        let outcome = if result.is_ok() {
            Outcome::Success
        } else {
            Outcome::Failure
        };
        self.record(|recorder| recorder.record(outcome, end.duration_since(start)));
        let is_fair = bounds.timeout >= FAIR.min(own / 2);
        let turn = pass.and_then(|pass| pass.end(sign(&result, is_fair), end));
        self.tell(turn, result.as_ref().err());
        Ok(result?)
    }

    fn tell(&self, turn: Option<Turn>, error: Option<&Error>) {
        let webhook = &self.id;
        match (turn, error) {
            (None, _) => return,
            (Some(Turn::Opened), Some(error)) => {
                tracing::warn!(webhook, %error, "failed again and again: it is left alone for a while");
            }
            (Some(Turn::Opened), None) => {}
            (Some(Turn::Closed), _) => tracing::info!(webhook, "is there again"),
        }
        self.record(|recorder| recorder.breaker_open(turn == Some(Turn::Opened)));
    }

    fn record(&self, act: impl FnOnce(&UpstreamRecorder)) {
        if let Some(recorder) = self.recorder.get() {
            act(recorder);
        }
    }
}

/// The client of `config`, and the one `before` whose connections it has.
fn connect<'b>(
    config: &ClientConfig,
    terms: &Terms,
    before: &'b [Upstream],
) -> (Result<Client, Unusable>, Option<&'b Upstream>) {
    let (settings, authorization) = match terms.of(config) {
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

/// What a call shows of the webhook. A reply that is none, or refuses the
/// request, came from a webhook that is there: what one user sends must not cut
/// it off from all.
fn sign(result: &Result<Bytes, Error>, is_fair: bool) -> Sign {
    match result {
        Ok(_) | Err(Error::TooLarge(_) | Error::Encoding) => Sign::Alive,
        Err(Error::Status(status)) if *status < 500 && *status != 429 => Sign::Alive,
        Err(Error::Timeout(_)) if !is_fair => Sign::Unknown,
        Err(Error::Runtime | Error::Forbidden(_) | Error::Itself(_)) => Sign::Unknown,
        Err(_) => Sign::Dead,
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
    fn what_a_request_provokes_is_no_sign_of_death() {
        let timeout = || Error::Timeout(Duration::from_secs(1));
        for (error, expected) in [
            (Error::Status(400), Sign::Alive),
            (Error::Status(302), Sign::Alive),
            (Error::TooLarge(1), Sign::Alive),
            (Error::Encoding, Sign::Alive),
            (Error::Status(429), Sign::Dead),
            (Error::Status(500), Sign::Dead),
            (Error::Status(503), Sign::Dead),
            (Error::Exchange("reset".into()), Sign::Dead),
            (Error::Tls("expired".into()), Sign::Dead),
            (timeout(), Sign::Dead),
        ] {
            assert_eq!(sign(&Err(error.clone()), true), expected, "{error}");
        }
        assert_eq!(sign(&Err(timeout()), false), Sign::Unknown);
        assert_eq!(sign(&Ok(Bytes::new()), false), Sign::Alive);
    }
}
