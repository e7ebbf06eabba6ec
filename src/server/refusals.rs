//! The log of clients that failed authentication: the identity that their certificate or token
//! claims, what is wrong with it, and the remedy. Unauthenticated clients can neither fill the log
//! nor hide the lines about clients with a certificate of the client CA: each kind has a rate limit
//! of its own.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use openssl::error::ErrorStack;

use crate::identity::{Credentials, Refusal};

/// Logs refusals within the rate limits, and counts the others.
pub(crate) struct Refusals {
    /// For clients whose certificate chains to the client CA.
    known: LogInterval,
    /// For all other clients.
    strangers: LogInterval,
    /// For handshakes that failed.
    handshakes: LogInterval,
}

/// A client that was refused.
pub(crate) struct RefusedClient<'r> {
    pub(crate) peer: SocketAddr,
    pub(crate) credentials: Credentials<'r>,
    /// Whether its certificate chains to the client CA.
    pub(crate) is_known: bool,
}

/// A limit of one line in each interval: an unauthenticated client must neither fill the log nor
/// delay responses by it.
struct LogInterval {
    interval: Duration,
    start: Instant,
    /// When the next line may be written, in milliseconds since the start.
    next: AtomicU64,
    unwritten: AtomicU64,
}

const REFUSAL_INTERVAL: Duration = Duration::from_secs(1);

/// The health check of a load balancer may fail in the same way every second, forever.
const HANDSHAKE_INTERVAL: Duration = Duration::from_secs(10);

// === impl Refusals ===

impl Refusals {
    pub(crate) fn new() -> Self {
        Self {
            known: LogInterval::new(REFUSAL_INTERVAL),
            strangers: LogInterval::new(REFUSAL_INTERVAL),
            handshakes: LogInterval::new(HANDSHAKE_INTERVAL),
        }
    }

    /// Logs why `client` was refused, unless another line was just written.
    pub(crate) fn log(&self, refusal: &Refusal, client: &RefusedClient<'_>) {
        let rate = if client.is_known {
            &self.known
        } else {
            &self.strangers
        };
        let peer = client.peer;
        let Some(unwritten) = rate.due() else {
            return tracing::debug!(%refusal, %peer, "authentication failed");
        };
        let claimed = client.credentials.claimed();
        tracing::warn!(
            %refusal,
            %peer,
            subject = claimed.subject.as_deref(),
            issuer = claimed.issuer.as_deref(),
            fingerprint = claimed.fingerprint.as_deref(),
            remedy = refusal.remedy(),
            unwritten,
            "authentication failed"
        );
    }

    /// Logs why an authenticated caller was refused, unless another line was just written.
    pub(crate) fn log_caller(&self, refusal: &Refusal) {
        match self.known.due() {
            Some(unwritten) => {
                tracing::warn!(%refusal, remedy = refusal.remedy(), unwritten, "a caller was refused");
            }
            None => tracing::debug!(%refusal, "a caller was refused"),
        }
    }

    /// Logs why the handshake with `peer` failed if it is about certificates or protocols, unless
    /// another line was just written. A peer that merely closes the connection, as health checks
    /// do, is not logged.
    pub(crate) fn log_handshake(&self, error: &dyn Error, peer: SocketAddr) {
        if let Some(remedy) = remedy(error)
            && let Some(unwritten) = self.handshakes.due()
        {
            tracing::warn!(%error, %peer, remedy, unwritten, "TLS handshake failed");
        } else {
            tracing::debug!(%error, %peer, "a connection has failed before its first request");
        }
    }
}

/// The remedy for a handshake that failed with `error`. Reason codes above 1000 are alerts that the
/// client sent.
fn remedy(error: &dyn Error) -> Option<&'static str> {
    const HTTP_REQUEST: i32 = 156;
    const NO_CERTIFICATE: i32 = 199;
    const UNSUPPORTED_PROTOCOL: i32 = 258;
    const NO_SHARED_CIPHER: i32 = 193;
    const ALERT_BAD_CERTIFICATE: i32 = 1042;
    const ALERT_CERTIFICATE_EXPIRED: i32 = 1045;
    const ALERT_CERTIFICATE_UNKNOWN: i32 = 1046;
    const ALERT_UNKNOWN_CA: i32 = 1048;
    let errors = error
        .source()?
        .downcast_ref::<openssl::ssl::Error>()?
        .ssl_error()?;
    Some(match reason(errors)? {
        NO_CERTIFICATE => {
            "every caller has a certificate, but the client sent none: configure the API server with the \
            kubeconfig of an entry of `callers`, with `client-certificate` and `client-key`"
        }
        ALERT_BAD_CERTIFICATE | ALERT_CERTIFICATE_EXPIRED | ALERT_CERTIFICATE_UNKNOWN | ALERT_UNKNOWN_CA => {
            "the client does not accept the certificate of `server.tls`: its kubeconfig needs the \
            `certificate-authority` that signed it, and the certificate must not be expired and be valid for \
            the host of its `server` (`portcullis check --config FILE` compares them)"
        }
        HTTP_REQUEST => "the client uses HTTP without TLS: its URL must begin with https://",
        UNSUPPORTED_PROTOCOL | NO_SHARED_CIPHER => "the client must support TLS 1.2 or 1.3",
        _ => return None,
    })
}

fn reason(errors: &ErrorStack) -> Option<i32> {
    errors.errors().last().map(openssl::error::Error::reason_code)
}

// === impl LogInterval ===

impl LogInterval {
    fn new(interval: Duration) -> Self {
        Self {
            interval,
            start: Instant::now(),
            next: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
        }
    }

    /// Whether a line may be written now; if so, with the number of lines suppressed since the last
    /// one.
    fn due(&self) -> Option<u64> {
        self.due_at(self.start.elapsed())
    }

    fn due_at(&self, now: Duration) -> Option<u64> {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let next = self.next.load(Ordering::Relaxed);
        let due = milliseconds(now) >= next
            && self
                .next
                .compare_exchange(
                    next,
                    milliseconds(now + self.interval),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok();
        if due {
            return Some(self.unwritten.swap(0, Ordering::Relaxed));
        }
        self.unwritten.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_written_a_second_and_tells_of_the_others() {
        let rate = LogInterval::new(Duration::from_secs(1));
        let at = Duration::from_millis;
        let due: Vec<_> = [0, 1, 999, 1000, 1500, 3000]
            .map(|time| rate.due_at(at(time)))
            .into();
        assert_eq!(due, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
