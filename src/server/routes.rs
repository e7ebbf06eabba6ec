//! The routes of the `server` listener.
//!
//! | path | method | answers |
//! |---|---|---|
//! | `/authorize` | POST | a SubjectAccessReview: [`authorize`](super::authorize) |
//! | `/validate`, `/validate/{name}` | POST | an AdmissionReview: [`admit`](super::admit) |
//! | `/mutate`, `/mutate/{name}` | POST | the same |
//!
//! Any other method is answered with 405, any other path with 404.
//! [`receive`](super::receive) has the checks before a review is decoded.

use std::sync::{Arc, Weak};
use std::time::Instant;

use actix_web::http::ConnectionType;
use actix_web::web::{self, Bytes, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use tokio::time::timeout_at;

use super::authorize::AuthorizeStep;
use super::gateway::Shared;
use super::lifecycle::LifecyclePhase;
use super::receive::{ReceivedReview, ReviewPath, receive};
use super::respond::Rejection;
use super::{admit, authorize, body, respond};
use crate::telemetry::metrics::{self, Endpoint};

/// From this length on a review takes longer than a change of threads: some 100 µs.
const LARGE_BYTES: usize = 64 << 10;

/// The route table.
pub(super) fn routes(config: &mut ServiceConfig) {
    let authorize = web::resource("/authorize")
        .route(web::post().to(authorize))
        .default_service(web::to(|payload, shared| {
            reject(
                payload,
                shared,
                Some(Endpoint::Authorize),
                Rejection::MethodNotAllowed,
            )
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
                reject(
                    payload,
                    shared,
                    Some(phase.endpoint()),
                    Rejection::MethodNotAllowed,
                )
            }));
        config.service(admit);
    }
    config.default_service(web::to(|payload, shared| {
        reject(payload, shared, None, Rejection::NotFound)
    }));
}

async fn authorize(request: HttpRequest, payload: Payload, shared: Data<Shared>) -> HttpResponse {
    let mut payload = payload.into_inner();
    let answer = match receive(&request, &mut payload, &shared, ReviewPath::Authorize).await {
        Ok(received) => answer(&shared, received).await,
        Err(rejection) => {
            body::skip(&mut payload).await;
            Err(rejection)
        }
    };
    finish(&shared, Some(Endpoint::Authorize), answer)
}

/// Small reviews are answered on the worker; a large one, for which a user needs
/// no more than a long selector, must not hold up the others of its worker. What
/// waits for other authorizers is boxed: most reviews wait for nobody.
async fn answer(shared: &Data<Shared>, received: ReceivedReview) -> Result<Bytes, Rejection> {
    if received.body.len() < LARGE_BYTES {
        return match authorize::answer(shared, &received)? {
            AuthorizeStep::Answered(reply) => Ok(reply),
            AuthorizeStep::Unsettled(unsettled) => Ok(Box::pin(unsettled.ask(shared, &received)).await),
        };
    }
    let of_job = shared.clone();
    let deadline = received.deadline;
    let waiting = Arc::new(());
    let waited_for = Arc::downgrade(&waiting);
    let work = move || authorize::answer(&of_job, &received).map(|step| (step, received));
    let job = move || if_waited_for(&waited_for, deadline, work);
    let answered = timeout_at(deadline.into(), web::block(job)).await;
    drop(waiting);
    let answered = answered.map_err(|_| Rejection::TooLate)?;
    match answered.unwrap_or(Err(Rejection::Internal))? {
        (AuthorizeStep::Answered(reply), _) => Ok(reply),
        (AuthorizeStep::Unsettled(unsettled), received) => {
            Ok(Box::pin(unsettled.ask(shared, &received)).await)
        }
    }
}

/// Does `work` if somebody still waits for it: what nobody waits for must not hold up
/// what is behind it, however many large reviews have been given up.
fn if_waited_for<T>(
    waiting: &Weak<()>,
    deadline: Instant,
    work: impl FnOnce() -> Result<T, Rejection>,
) -> Result<T, Rejection> {
    if waiting.strong_count() == 0 || Instant::now() >= deadline {
        return Err(Rejection::TooLate);
    }
    work()
}

async fn admit(
    request: HttpRequest,
    payload: Payload,
    shared: Data<Shared>,
    phase: metrics::Phase,
) -> HttpResponse {
    let mut payload = payload.into_inner();
    let answer = match receive(&request, &mut payload, &shared, ReviewPath::Admit(phase)).await {
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
    finish(&shared, Some(phase.endpoint()), answer)
}

async fn reject(
    payload: Payload,
    shared: Data<Shared>,
    endpoint: Option<Endpoint>,
    rejection: Rejection,
) -> HttpResponse {
    body::skip(&mut payload.into_inner()).await;
    finish(&shared, endpoint, Err(rejection))
}

/// Counts the answer and, while draining, has the connection close after it.
fn finish(shared: &Shared, endpoint: Option<Endpoint>, answer: Result<Bytes, Rejection>) -> HttpResponse {
    let mut response = match answer {
        Ok(review) => HttpResponse::Ok().content_type(respond::JSON).body(review),
        Err(rejection) => rejection.response(),
    };
    if shared.lifecycle.phase() == LifecyclePhase::Draining {
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
    shared.metrics.http_request(endpoint, response.status().as_u16());
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_large_review_for_which_nobody_waits_any_more_is_not_decided() {
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
        let waiting = Arc::new(());
        let waited_for = Arc::downgrade(&waiting);
        assert!(matches!(if_waited_for(&waited_for, later, || Ok(7)), Ok(7)));
        let never = || -> Result<(), _> { panic!("it is decided") };
        let late = if_waited_for(&waited_for, now, never);
        assert!(matches!(late, Err(Rejection::TooLate)));
        drop(waiting);
        let given_up = if_waited_for(&waited_for, later, never);
        assert!(matches!(given_up, Err(Rejection::TooLate)));
    }
}
