//! The checks before a review is decided: authentication, limits, body.
//!
//! ```text
//! path 404 ▶ method 405 ▶ starting 503 ▶ caller 401 403 ▶ loop 400 ▶ type 415 ▶ timeout 400
//!   ▶ length 413 ▶ room 429 ▶ body 413 429 504 ▶ review 400 ▶ 200
//! ```
//!
//! The caller is authenticated before a byte of the body is read or a permit is taken, so
//! that unauthenticated clients cost little.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, dev};

use super::connection::Connection;
use super::gateway::Shared;
use super::lifecycle::LifecyclePhase;
use super::limits::{Beneficiary, Capacity, Limiter, Permit};
use super::respond::Rejection;
use super::{body, deadline};
use crate::authentication::{Caller, Credentials};
use crate::config::{self, Config};
use crate::reload::Snapshot;
use crate::telemetry::metrics::{self, IntGauge, Outcome};

/// A sort of review, and what it stands for elsewhere.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReviewPath {
    /// Of access.
    Authorize,
    /// Of an object.
    Admit(metrics::Phase),
}

/// A request that may be answered. It holds its place until it is dropped.
pub(super) struct ReceivedReview {
    /// What it is judged by, from beginning to end.
    pub(super) snapshot: Arc<Snapshot>,
    /// Who asks.
    pub(super) caller: Caller,
    /// The instant for which it is decided: one for all that it takes.
    pub(super) time: SystemTime,
    /// When the caller gives up.
    pub(super) deadline: Instant,
    /// The review, as bytes.
    pub(super) body: Bytes,
    /// Its place.
    pub(super) permit: Permit,
}

/// Everything that precedes the review itself.
pub(super) async fn receive(
    request: &HttpRequest,
    payload: &mut dev::Payload,
    shared: &Shared,
    review: ReviewPath,
) -> Result<ReceivedReview, Rejection> {
    let arrived = Instant::now();
    if shared.lifecycle.phase() == LifecyclePhase::Starting {
        return Err(Rejection::Starting);
    }
    let snapshot = Arc::clone(&shared.state.current());
    let caller = authenticate(request, shared, &snapshot, review)?;
    check_origin(request.headers(), &snapshot.config)?;
    body::check_type(request.headers())?;
    let deadline = deadline::of_query(request.query_string(), arrived).ok_or(Rejection::Timeout)?;
    let limit = snapshot.config.limits.body_bytes;
    let length = body::announced(request.headers());
    if length > limit {
        return Err(Rejection::TooLarge { limit });
    }
    let mut permit = enter(shared, &snapshot, review, &caller, length).ok_or(Rejection::TooManyRequests)?;
    let body = body::read(payload, &mut permit, limit, deadline)
        .await
        .map_err(|rejection| {
            let ending = shared.lifecycle.phase() == LifecyclePhase::Draining;
            if ending && matches!(rejection, Rejection::Incomplete) {
                Rejection::CutOff
            } else {
                rejection
            }
        })?;
    Ok(ReceivedReview {
        snapshot,
        caller,
        time: SystemTime::now(),
        deadline,
        body,
        permit,
    })
}

fn authenticate(
    request: &HttpRequest,
    shared: &Shared,
    snapshot: &Snapshot,
    review: ReviewPath,
) -> Result<Caller, Rejection> {
    let connection = Connection::of(request);
    let certificate = connection
        .as_ref()
        .and_then(|connection| connection.certificate.as_ref());
    let credentials = Credentials {
        peer: certificate,
        authorization: authorization(request.headers()),
    };
    let authenticator = &snapshot.authenticator;
    let known = authenticator.authenticate(&credentials, SystemTime::now());
    let (method, outcome) = match &known {
        Ok(caller) => (caller.method, Outcome::Success),
        Err(refusal) => (refusal.method(), Outcome::Failure),
    };
    shared.metrics.authentication(method, outcome);
    if let (Some(connection), Ok(caller)) = (&connection, &known) {
        connection.prove(&caller.cluster);
    }
    known
        .and_then(|caller| caller.check(review.endpoint()).map(|()| caller))
        .map_err(|refusal| {
            shared.refusals.log(&refusal, request.peer_addr());
            let challenge = authenticator.challenge().to_owned();
            Rejection::Refused { refusal, challenge }
        })
}

/// Refuses a call that this gateway made itself, or one of its replicas: a webhook or
/// authorizer of its leads back to it, say through a load balancer.
fn check_origin(headers: &HeaderMap, config: &Config) -> Result<(), Rejection> {
    let mut via = headers.get_all(header::VIA).peekable();
    if via.peek().is_none() {
        return Ok(());
    }
    let pseudonym = config.pseudonym();
    let is_own = |value: &HeaderValue| {
        let mut hops = value.as_bytes().split(|byte| *byte == b',' || *byte == b' ');
        hops.any(|hop| hop == pseudonym.as_bytes())
    };
    if via.any(is_own) {
        return Err(Rejection::Loop { pseudonym });
    }
    Ok(())
}

/// The header `Authorization`; none if there are several.
fn authorization(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION);
    let first = values.next()?;
    values.next().is_none().then_some(first.as_bytes())
}

fn enter(
    shared: &Shared,
    snapshot: &Snapshot,
    review: ReviewPath,
    caller: &Caller,
    bytes: usize,
) -> Option<Permit> {
    let limits = &snapshot.config.limits;
    let capacity = Capacity {
        requests: limits.in_flight,
        bytes: limits.in_flight_bytes,
    };
    let beneficiary = Beneficiary {
        cluster: &caller.cluster,
        clusters: snapshot.authenticator.clusters(),
    };
    let (limiter, gauge) = review.limiter(shared);
    limiter.enter(capacity, Some(beneficiary), bytes, gauge)
}

// === impl ReviewPath ===

impl ReviewPath {
    const fn endpoint(self) -> config::Endpoint {
        match self {
            Self::Authorize => config::Endpoint::Authorize,
            Self::Admit(metrics::Phase::Validate) => config::Endpoint::Validate,
            Self::Admit(metrics::Phase::Mutate) => config::Endpoint::Mutate,
        }
    }

    const fn limiter(self, shared: &Shared) -> (&Arc<Limiter>, &IntGauge) {
        match self {
            Self::Authorize => (&shared.lifecycle.authorization, &shared.authorizing),
            Self::Admit(metrics::Phase::Validate) => (&shared.lifecycle.admission, &shared.validating),
            Self::Admit(metrics::Phase::Mutate) => (&shared.lifecycle.admission, &shared.mutating),
        }
    }
}
