//! The routes of the `server` listener.
//!
//! | path | method | answers |
//! |---|---|---|
//! | `/authorize` | POST | a SubjectAccessReview: [`authorize`] |
//! | `/validate`, `/validate/{name}` | POST | an AdmissionReview: [`admit`] |
//! | `/mutate`, `/mutate/{name}` | POST | the same |
//! | `/t/{token}` before the last two | POST | the same, for callers known by that token alone |
//!
//! Any other method is answered with 405, any other path with 404.
//! [`receive`](super::receive) has the checks before a review is decoded.

use std::future::Future;
use std::rc::Rc;

use actix_web::web::{Bytes, Data};
use futures_util::Stream;

use super::gateway::{GatewayState, LifecyclePhase};
use super::receive::{RequestContext, ReviewRequest, receive};
use super::request::{RequestHead, ReviewPath, ReviewRoute, skip_body};
use super::respond::{Rejection, Reply};
use super::{admit, authorize};
use crate::telemetry::metrics::{Endpoint, Phase};

/// Answers one request, and gives back what is left of its body. The head is checked before
/// this returns, so that the future borrows nothing from it. `shared` is the worker's own reference.
pub(crate) fn answer<B, E>(
    shared: &Rc<Data<GatewayState>>,
    head: &RequestHead<'_>,
    mut body: B,
) -> impl Future<Output = (Reply, B)> + use<B, E>
where
    B: Stream<Item = Result<Bytes, E>> + Unpin,
{
    let path = ReviewPath::of(head.path);
    let endpoint = path.as_ref().map(|path| path.route.endpoint());
    let begun = begin(shared, head, path);
    let trace = begun.as_ref().map(|(_, context)| context.trace().clone());
    let trace = trace.unwrap_or_default();
    let shared = Rc::clone(shared);
    async move {
        let received = match begun {
            Ok((route, context)) => context
                .read(&shared, &mut body)
                .await
                .map(|review| (route, review)),
            Err(rejection) => Err(rejection),
        };
        let answer = match received {
            Ok((route, received)) => {
                let room = received.permit.reply_room();
                let reply = review(&shared, route, received).await;
                reply.and_then(|reply| room.reserve(reply).ok_or(Rejection::TooManyRequests))
            }
            Err(rejection) => {
                skip_body(&mut body).await;
                Err(rejection)
            }
        };
        let reply = finish(&shared, endpoint, answer);
        trace.finish(reply.code);
        (reply, body)
    }
}

fn begin(
    shared: &GatewayState,
    head: &RequestHead<'_>,
    path: Option<ReviewPath>,
) -> Result<(ReviewRoute, RequestContext), Rejection> {
    let ReviewPath { route, token } = path.ok_or(Rejection::NotFound)?;
    if !head.is_post {
        return Err(Rejection::MethodNotAllowed);
    }
    let context = receive(head, token.as_ref(), shared, route.endpoint())?;
    Ok((route, context))
}

async fn review(
    shared: &Data<GatewayState>,
    route: ReviewRoute,
    received: ReviewRequest,
) -> Result<Bytes, Rejection> {
    match route {
        ReviewRoute::Authorize => authorize::answer(shared, received).await,
        // Boxed: it is large, and every request would have to have room for it.
        ReviewRoute::Admit(phase, only) => Box::pin(admit::answer(shared, received, phase, only))
            .await
            .map(Bytes::from),
    }
}

/// Counts the answer and, while draining, has the connection close after it.
fn finish(shared: &GatewayState, endpoint: Option<Endpoint>, answer: Result<Bytes, Rejection>) -> Reply {
    let mut reply = match answer {
        Ok(review) => Reply::review(review),
        Err(rejection) => rejection.reply(),
    };
    reply.is_last = shared.lifecycle.phase() == LifecyclePhase::Draining;
    shared.metrics.http_request(endpoint, reply.code);
    reply
}

// === impl ReviewRoute ===

impl ReviewRoute {
    const fn endpoint(&self) -> Endpoint {
        match self {
            Self::Authorize => Endpoint::Authorize,
            Self::Admit(Phase::Validate, _) => Endpoint::Validate,
            Self::Admit(Phase::Mutate, _) => Endpoint::Mutate,
        }
    }
}
