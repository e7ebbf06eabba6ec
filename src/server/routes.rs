//! The routes of the `server` listener, and what all of them have in common.
//!
//! | path | method | answers |
//! |---|---|---|
//! | `/authorize` | POST | a SubjectAccessReview: [`authorize`](super::authorize) |
//! | `/validate`, `/validate/{name}` | POST | an AdmissionReview: [`admit`](super::admit) |
//! | `/mutate`, `/mutate/{name}` | POST | the same |
//!
//! ```text
//! path 404 ▶ method 405 ▶ starting 503 ▶ caller 401 403 ▶ type 415 ▶ timeout 400
//!   ▶ length 413 ▶ room 429 ▶ body 413 429 504 ▶ review 400 ▶ 200
//! ```
//!
//! Who calls is settled before a byte of the body is read or a place is taken:
//! strangers cost nothing.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use actix_web::http::ConnectionType;
use actix_web::http::header::{self, HeaderMap};
use actix_web::web::{self, Bytes, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, dev};

use super::authorize::Step;
use super::gateway::Shared;
use super::lifecycle::Phase;
use super::limits::{Lane, Permit, Room};
use super::respond::Rejection;
use super::{admit, authorize, body, deadline, respond};
use crate::authentication::{Caller, Credentials, Method, PeerCertificate};
use crate::config;
use crate::reload::Snapshot;
use crate::telemetry::metrics::{self, Credential, Endpoint, IntGauge, Outcome};

/// From this length on a review takes longer than a change of threads: some 100 µs.
const LARGE_BYTES: usize = 64 << 10;

/// The route table.
pub(super) fn routes(config: &mut ServiceConfig) {
    let authorize = web::resource("/authorize")
        .route(web::post().to(authorize))
        .default_service(web::to(|payload, shared| {
            reject(payload, shared, Endpoint::Authorize, Rejection::MethodNotAllowed)
        }));
    config.service(authorize);
    for (path, phase) in [
        ("/validate", metrics::Phase::Validate),
        ("/validate/{name}", metrics::Phase::Validate),
        ("/mutate", metrics::Phase::Mutate),
        ("/mutate/{name}", metrics::Phase::Mutate),
    ] {
        let admit = web::resource(path)
            .route(web::post().to(move |request, payload, shared| admit(request, payload, shared, phase)))
            .default_service(web::to(move |payload, shared| {
                reject(payload, shared, phase.endpoint(), Rejection::MethodNotAllowed)
            }));
        config.service(admit);
    }
    config.default_service(web::to(|payload, shared| {
        reject(payload, shared, Endpoint::Other, Rejection::NotFound)
    }));
}

async fn authorize(request: HttpRequest, payload: Payload, shared: Data<Shared>) -> HttpResponse {
    let mut payload = payload.into_inner();
    let answer = match receive(&request, &mut payload, &shared, Review::Authorize).await {
        Ok(received) => answer(&shared, received).await,
        Err(rejection) => {
            body::skip(&mut payload).await;
            Err(rejection)
        }
    };
    finish(&shared, Endpoint::Authorize, answer)
}

/// Small reviews are answered on the worker; a large one, for which a user needs
/// no more than a long selector, must not hold up the others of its worker. What
/// waits for other authorizers is boxed: most reviews wait for nobody.
async fn answer(shared: &Data<Shared>, received: Received) -> Result<Bytes, Rejection> {
    if received.body.len() < LARGE_BYTES {
        return match authorize::answer(shared, &received)? {
            Step::Answered(reply) => Ok(reply),
            Step::Unsettled(unsettled) => Ok(Box::pin(unsettled.ask(shared, &received)).await),
        };
    }
    let of_job = shared.clone();
    let job = move || authorize::answer(&of_job, &received).map(|step| (step, received));
    match web::block(job).await.unwrap_or(Err(Rejection::Internal))? {
        (Step::Answered(reply), _) => Ok(reply),
        (Step::Unsettled(unsettled), received) => Ok(Box::pin(unsettled.ask(shared, &received)).await),
    }
}

async fn admit(
    request: HttpRequest,
    payload: Payload,
    shared: Data<Shared>,
    phase: metrics::Phase,
) -> HttpResponse {
    let mut payload = payload.into_inner();
    let answer = match receive(&request, &mut payload, &shared, Review::Admit(phase)).await {
        Ok(received) => {
            let only = request.match_info().get("name").map(str::to_owned);
            admit::answer(&shared, received, phase, only)
                .await
                .map(Bytes::from)
        }
        Err(rejection) => {
            body::skip(&mut payload).await;
            Err(rejection)
        }
    };
    finish(&shared, phase.endpoint(), answer)
}

async fn reject(
    payload: Payload,
    shared: Data<Shared>,
    endpoint: Endpoint,
    rejection: Rejection,
) -> HttpResponse {
    body::skip(&mut payload.into_inner()).await;
    finish(&shared, endpoint, Err(rejection))
}

/// Counts the answer and, while draining, has the connection close after it.
fn finish(shared: &Shared, endpoint: Endpoint, answer: Result<Bytes, Rejection>) -> HttpResponse {
    let mut response = match answer {
        Ok(review) => HttpResponse::Ok().content_type(respond::JSON).body(review),
        Err(rejection) => rejection.response(),
    };
    if shared.lifecycle.phase() == Phase::Draining {
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
    shared.metrics.http_request(endpoint, response.status().as_u16());
    response
}

/// A sort of review, and what it stands for elsewhere.
#[derive(Debug, Clone, Copy)]
enum Review {
    Authorize,
    Admit(metrics::Phase),
}

/// A request that may be answered. It holds its place until it is dropped.
pub(super) struct Received {
    /// What it is judged by, from beginning to end.
    pub(super) snapshot: Arc<Snapshot>,
    /// Who asks.
    pub(super) caller: Caller,
    /// When the caller gives up.
    pub(super) deadline: Instant,
    /// The review, as bytes.
    pub(super) body: Bytes,
    /// Its place.
    pub(super) permit: Permit,
}

/// Everything that precedes the review itself.
async fn receive(
    request: &HttpRequest,
    payload: &mut dev::Payload,
    shared: &Shared,
    review: Review,
) -> Result<Received, Rejection> {
    let arrived = Instant::now();
    if shared.lifecycle.phase() == Phase::Starting {
        return Err(Rejection::Starting);
    }
    let snapshot = Arc::clone(&shared.state.current());
    let caller = authenticate(request, shared, &snapshot, review)?;
    body::check_type(request.headers())?;
    let deadline = deadline::of_query(request.query_string(), arrived).ok_or(Rejection::Timeout)?;
    let limit = snapshot.config.limits.body_bytes;
    let length = body::announced(request.headers());
    if length > limit {
        return Err(Rejection::TooLarge { limit });
    }
    let mut permit = enter(shared, &snapshot, review, length).ok_or(Rejection::TooManyRequests)?;
    let body = body::read(payload, &mut permit, limit, deadline)
        .await
        .map_err(|rejection| {
            let ending = shared.lifecycle.phase() == Phase::Draining;
            if ending && matches!(rejection, Rejection::Incomplete) {
                Rejection::CutOff
            } else {
                rejection
            }
        })?;
    Ok(Received {
        snapshot,
        caller,
        deadline,
        body,
        permit,
    })
}

fn authenticate(
    request: &HttpRequest,
    shared: &Shared,
    snapshot: &Snapshot,
    review: Review,
) -> Result<Caller, Rejection> {
    let credentials = Credentials {
        peer: request.conn_data::<PeerCertificate>(),
        authorization: authorization(request.headers()),
    };
    let authenticator = &snapshot.authenticator;
    let known = authenticator.authenticate(&credentials, SystemTime::now());
    let (method, outcome) = match &known {
        Ok(caller) => (caller.method, Outcome::Success),
        Err(refusal) => (refusal.method(), Outcome::Failure),
    };
    shared.metrics.authentication(credential(method), outcome);
    known
        .and_then(|caller| caller.check(review.endpoint()).map(|()| caller))
        .map_err(|refusal| {
            shared.refusals.log(&refusal, request.peer_addr());
            let challenge = authenticator.challenge().to_owned();
            Rejection::Refused { refusal, challenge }
        })
}

/// The header `Authorization`; none if there are several.
fn authorization(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION);
    let first = values.next()?;
    values.next().is_none().then_some(first.as_bytes())
}

fn enter(shared: &Shared, snapshot: &Snapshot, review: Review, bytes: usize) -> Option<Permit> {
    let limits = &snapshot.config.limits;
    let room = Room {
        requests: limits.in_flight,
        bytes: limits.in_flight_bytes,
    };
    let (lane, gauge) = review.lane(shared);
    lane.enter(room, bytes, gauge)
}

const fn credential(method: Method) -> Credential {
    match method {
        Method::Certificate => Credential::Certificate,
        Method::Bearer => Credential::Bearer,
        Method::Basic => Credential::Basic,
        Method::Jwt => Credential::Jwt,
        Method::None => Credential::None,
    }
}

// === impl Review ===

impl Review {
    const fn endpoint(self) -> config::Endpoint {
        match self {
            Self::Authorize => config::Endpoint::Authorize,
            Self::Admit(metrics::Phase::Validate) => config::Endpoint::Validate,
            Self::Admit(metrics::Phase::Mutate) => config::Endpoint::Mutate,
        }
    }

    const fn lane(self, shared: &Shared) -> (&Arc<Lane>, &IntGauge) {
        match self {
            Self::Authorize => (&shared.lifecycle.authorization, &shared.authorizing),
            Self::Admit(metrics::Phase::Validate) => (&shared.lifecycle.admission, &shared.validating),
            Self::Admit(metrics::Phase::Mutate) => (&shared.lifecycle.admission, &shared.mutating),
        }
    }
}
