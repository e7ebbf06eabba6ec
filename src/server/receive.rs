//! The checks before a review is decided: authentication, limits, deadline, body.
//!
//! ```text
//! path 404 ▶ method 405 ▶ starting 503 ▶ caller 401 403 ▶ loop 400 ▶ type 415 ▶ timeout 400
//!   ▶ length 413 ▶ room 429 ▶ body 413 429 504 ▶ review 400 ▶ cluster not known yet 503 ▶ 200
//! ```
//!
//! The caller is authenticated before a byte of the body is read or a permit is taken, so that
//! unauthenticated clients cost little. The deadline is set by the caller with `?timeout=3s`, which
//! client-go appends.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use actix_web::web::Bytes;
use futures_util::Stream;

use super::accept::Connection;
use super::gateway::{GatewayState, LifecyclePhase};

use super::limits::{Capacity, Limiter, Permit, ShareKey};
use super::pool::JobOwner;
use super::refusals::RefusedClient;
use super::request::{RequestHead, check_content_type, content_length, read_body};
use super::respond::Rejection;
use crate::config::kubeconfig::Secret;
use crate::config::limits::Descriptors;
use crate::config::{Config, Endpoint, parse_duration};
use crate::identity::{Caller, Credentials, Refusal};
use crate::state::{Snapshot, UnsyncedResponse};
use crate::telemetry::ReviewTrace;
use crate::telemetry::metrics::Outcome;
use crate::telemetry::per_worker::{WorkerRef, WorkerRefs};
use crate::telemetry::traces::TraceBegin;

/// A request whose body was read. It holds its permit until it is dropped.
pub(crate) struct ReviewRequest {
    /// The snapshot that decides it, from beginning to end.
    pub(crate) snapshot: WorkerRef<Snapshot>,
    /// The authenticated caller.
    pub(crate) caller: Arc<Caller>,
    /// The time for which it is decided: the same for everything in it.
    pub(crate) time: SystemTime,
    /// When the caller stops waiting.
    pub(crate) deadline: Instant,
    /// The encoded review.
    pub(crate) body: Bytes,
    /// The permit for its share of the in-flight limits.
    pub(crate) permit: Permit,
    /// The trace, with a span for each part of its processing.
    pub(crate) trace: ReviewTrace,
}

/// A request whose head was accepted. It holds its permit until it is dropped.
pub(crate) struct RequestContext {
    snapshot: WorkerRef<Snapshot>,
    caller: Arc<Caller>,
    arrived: Instant,
    /// The wall-clock time at which it arrived.
    time: SystemTime,
    deadline: Instant,
    permit: Permit,
    trace: ReviewTrace,
}

/// Checks the head of a request, and takes a permit for it.
pub(crate) fn receive(
    head: &RequestHead<'_>,
    path_token: Option<&Secret>,
    shared: &GatewayState,
    endpoint: Endpoint,
) -> Result<RequestContext, Rejection> {
    let (arrived, time) = (Instant::now(), SystemTime::now());
    if shared.lifecycle.phase() == LifecyclePhase::Starting {
        return Err(Rejection::Starting);
    }
    let snapshot = shared.state.for_request();
    let caller = authenticate(head, path_token, time, shared, &snapshot, endpoint)?;
    let trace = begin_trace(head, (arrived, time), shared, &snapshot, endpoint);
    check_loop(head, &snapshot.config)?;
    check_content_type(head)?;
    let deadline = deadline_from_query(head.query, arrived).ok_or(Rejection::InvalidTimeout)?;
    let limit = snapshot.config.limits.body_bytes;
    let length = content_length(head);
    if length > limit {
        return Err(Rejection::TooLarge { limit });
    }
    let permit =
        take_permit(shared, &snapshot, endpoint, &caller, length).ok_or(Rejection::TooManyRequests)?;
    Ok(RequestContext {
        snapshot,
        caller,
        arrived,
        time,
        deadline,
        permit,
        trace,
    })
}

/// Starts the trace of a request whose caller was just authenticated.
fn begin_trace(
    head: &RequestHead<'_>,
    (arrived, time): (Instant, SystemTime),
    shared: &GatewayState,
    snapshot: &Snapshot,
    endpoint: Endpoint,
) -> ReviewTrace {
    let Some(tracing) = &snapshot.config.tracing else {
        return ReviewTrace::default();
    };
    let trace = shared.traces.begin(&TraceBegin {
        tracing,
        parent: head.traceparent,
        name: span_name(endpoint),
        arrived,
        time,
    });
    trace.past("authenticate", arrived, Instant::now());
    trace
}

// === impl RequestContext ===

impl RequestContext {
    /// The trace of the request.
    pub(crate) const fn trace(&self) -> &ReviewTrace {
        &self.trace
    }

    /// Reads the body.
    pub(crate) async fn read<B, E>(
        mut self,
        shared: &GatewayState,
        body: &mut B,
    ) -> Result<ReviewRequest, Rejection>
    where
        B: Stream<Item = Result<Bytes, E>> + Unpin,
    {
        let span = self.trace.span("read");
        let limit = self.snapshot.config.limits.body_bytes;
        let read = read_body(body, &mut self.permit, limit, self.arrived, self.deadline).await;
        let body = read.map_err(|rejection| {
            let ending = shared.lifecycle.phase() == LifecyclePhase::Draining;
            if ending && matches!(rejection, Rejection::Incomplete) {
                Rejection::ShuttingDown
            } else {
                rejection
            }
        })?;
        drop(span);
        Ok(ReviewRequest {
            snapshot: self.snapshot,
            caller: self.caller,
            time: if body.was_immediate {
                self.time
            } else {
                SystemTime::now()
            },
            deadline: self.deadline,
            body: body.bytes,
            permit: self.permit,
            trace: self.trace,
        })
    }
}

// === impl ReviewRequest ===

impl ReviewRequest {
    /// The owner of jobs for `user`, which is empty while it is not known.
    pub(crate) fn owner(&self, user: &str) -> JobOwner {
        JobOwner {
            share: Arc::clone(&self.caller.share),
            user: user.into(),
        }
    }

    /// Whether a review of `user` gets no opinion, because objects of the cluster are not known
    /// yet.
    ///
    /// # Errors
    ///
    /// 503: the caller should retry later, or after an administrator has fixed the files.
    pub(crate) fn is_unsynced(
        &self,
        user: &str,
        is_protected: impl FnOnce() -> bool,
    ) -> Result<bool, Rejection> {
        let Some(unsynced) = self.snapshot.unsynced(&self.caller.cluster) else {
            return Ok(false);
        };
        match unsynced.answer(user, is_protected(), Instant::now()) {
            UnsyncedResponse::Later => Err(Rejection::Unsynced),
            UnsyncedResponse::Faulty => Err(Rejection::FaultyFiles),
            UnsyncedResponse::NoOpinion => Ok(true),
            UnsyncedResponse::Decided => Ok(false),
        }
    }
}

fn authenticate(
    head: &RequestHead<'_>,
    path_token: Option<&Secret>,
    time: SystemTime,
    shared: &GatewayState,
    snapshot: &Snapshot,
    endpoint: Endpoint,
) -> Result<Arc<Caller>, Rejection> {
    let credentials = Credentials {
        peer: head.connection.certificate.as_ref(),
        authorization: head.authorization.value(),
        path_token: path_token.map(Secret::reveal),
        path: head.path,
        recent: Some(&head.connection.recent_token),
    };
    let may_use = |caller: &Caller| caller.check(endpoint);
    let known = identify(shared, snapshot, head.connection, &credentials, time, may_use);
    known.map_err(|refusal| Rejection::of(refusal, snapshot))
}

/// Rejects a call made by this gateway or one of its replicas: the address of a webhook or
/// authorizer leads back to this gateway, for example through a load balancer.
fn check_loop(head: &RequestHead<'_>, config: &Config) -> Result<(), Rejection> {
    if head.via.is_empty() {
        return Ok(());
    }
    let pseudonym = config.pseudonym();
    let is_own = |value: &&[u8]| {
        let mut hops = value.split(|byte| *byte == b',' || *byte == b' ');
        hops.any(|hop| hop == pseudonym.as_bytes())
    };
    if head.via.iter().any(is_own) {
        return Err(Rejection::Loop { pseudonym });
    }
    Ok(())
}

fn take_permit(
    shared: &GatewayState,
    snapshot: &Snapshot,
    endpoint: Endpoint,
    caller: &Caller,
    bytes: usize,
) -> Option<Permit> {
    let limits = &snapshot.config.limits;
    let capacity = Capacity {
        requests: limits.in_flight,
        bytes: limits.in_flight_bytes,
        memory: limits.memory_bytes(),
        calls: match endpoint {
            Endpoint::Authorize => Descriptors::of_process().authorizer_calls(),
            Endpoint::Validate | Endpoint::Mutate => Descriptors::of_process().admission_calls(),
        },
    };
    let key = ShareKey {
        share: &caller.share,
        shares: snapshot.authenticator.shares(),
    };
    let limiter = limiter(endpoint, shared);
    if caller.has_only_path_token() && !limiter.shared().is_within_rate(key, Instant::now()) {
        return None;
    }
    let gauge = shared.metrics.in_flight(endpoint);
    limiter.own().enter(capacity, Some(key), bytes, gauge)
}

/// The name of the span of a review at `endpoint`.
const fn span_name(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Authorize => "POST /authorize",
        Endpoint::Validate => "POST /validate",
        Endpoint::Mutate => "POST /mutate",
    }
}

/// The limiter of the reviews at `endpoint`.
const fn limiter(endpoint: Endpoint, shared: &GatewayState) -> &WorkerRefs<Limiter> {
    match endpoint {
        Endpoint::Authorize => &shared.lifecycle.authorization,
        Endpoint::Validate | Endpoint::Mutate => &shared.lifecycle.admission,
    }
}

/// The longest time of a request, and the time of one without a timeout: the longest timeout that
/// an API server allows for an authorization webhook.
pub(crate) const MAX_REQUEST_TIME: Duration = Duration::from_secs(30);

/// When a request that arrived at `now` must be answered; `None` if the timeout in its query is
/// invalid.
pub(crate) fn deadline_from_query(query: &str, now: Instant) -> Option<Instant> {
    let timeout = query.split('&').find_map(|pair| pair.strip_prefix("timeout="));
    let allowed = match timeout {
        None | Some("") => MAX_REQUEST_TIME,
        Some(text) => match parse(text)? {
            // As in kube-apiserver, 0 means no timeout.
            Duration::ZERO => MAX_REQUEST_TIME,
            timeout => timeout.min(MAX_REQUEST_TIME),
        },
    };
    now.checked_add(allowed)
}

/// A Go duration (`time.ParseDuration`) that is not negative: `3s`, `1m30s`, `1.5h`.
fn parse(text: &str) -> Option<Duration> {
    if !text.contains('%') {
        return parse_duration(text);
    }
    // `+` and the two code points for micro, which are escaped in a query.
    let decoded = text
        .replace("%2B", "+")
        .replace("%C2%B5", "\u{b5}")
        .replace("%CE%BC", "\u{3bc}");
    parse_duration(&decoded)
}

/// Returns the caller that `credentials` identify, if it `may_use` the endpoint. The result is
/// counted, and a refusal is logged.
pub(crate) fn identify(
    shared: &GatewayState,
    snapshot: &Snapshot,
    connection: &Connection,
    credentials: &Credentials<'_>,
    time: SystemTime,
    may_use: impl FnOnce(&Caller) -> Result<(), Refusal>,
) -> Result<Arc<Caller>, Refusal> {
    let known = snapshot.authenticate(credentials, time);
    let (method, outcome) = match &known {
        Ok(caller) => (caller.method, Outcome::Success),
        Err(refusal) => (refusal.method(), Outcome::Failure),
    };
    shared.metrics.authentication(method, outcome);
    if let Ok(caller) = &known {
        connection.mark_authenticated(&caller.share);
    }
    known
        .and_then(|caller| may_use(&caller).map(|()| caller))
        .inspect_err(|refusal| {
            let is_known = |peer| snapshot.authenticator.is_signed_by_client_ca(peer, time);
            let client = RefusedClient {
                peer: connection.peer,
                credentials: *credentials,
                is_known: credentials.peer.is_some_and(is_known),
            };
            shared.refusals.log(refusal, &client);
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_gos() {
        for (text, expected) in [
            ("3s", Duration::from_secs(3)),
            ("1m30s", Duration::from_secs(90)),
            ("1.5h", Duration::from_secs(5400)),
            (".5s", Duration::from_millis(500)),
            ("100ms", Duration::from_millis(100)),
            ("1h1m1.5s", Duration::from_millis(3_661_500)),
            ("10us", Duration::from_micros(10)),
            ("0", Duration::ZERO),
            ("0s", Duration::ZERO),
            ("+2s", Duration::from_secs(2)),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "3",
            "s",
            "-3s",
            "3x",
            "3 s",
            ".s",
            "1..2s",
            "3s1",
            "1e3s",
            "é",
            "9".repeat(400).as_str(),
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_deadline_is_the_callers_but_for_the_longest() {
        let now = Instant::now();
        for (query, expected) in [
            ("timeout=3s", Some(Duration::from_secs(3))),
            ("a=b&timeout=10s&timeout=1s", Some(Duration::from_secs(10))),
            ("", Some(MAX_REQUEST_TIME)),
            ("timeout=", Some(MAX_REQUEST_TIME)),
            ("timeout=0s", Some(MAX_REQUEST_TIME)),
            ("timeout=99999h", Some(MAX_REQUEST_TIME)),
            ("nottimeout=x", Some(MAX_REQUEST_TIME)),
            ("timeout=soon", None),
            ("timeout=-1s", None),
        ] {
            assert_eq!(
                deadline_from_query(query, now),
                expected.map(|allowed| now + allowed),
                "{query}"
            );
        }
    }
}
