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

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Instant;

use actix_web::web::{self, Bytes, Data};
use futures_util::Stream;
use tokio::time::timeout_at;

use super::authorize::AuthorizeStep;
use super::gateway::Shared;
use super::head::{RequestHead, ReviewRoute};
use super::lifecycle::LifecyclePhase;
use super::receive::{AwaitedReview, ReceivedReview, ReviewPath, receive};
use super::respond::{Rejection, Reply};
use super::{admit, authorize, body};
use crate::telemetry::metrics::Endpoint;

/// From this length on a review takes longer than a change of threads: some 100 µs.
const LARGE_BYTES: usize = 64 << 10;

/// Answers the request that `head` and `body` are; with the answer comes what is left of
/// the body. All that the head decides is decided at once: nothing of it is kept.
pub(super) fn answer<B, E>(
    shared: &Data<Shared>,
    head: &RequestHead<'_>,
    mut body: B,
) -> impl Future<Output = (Reply, B)> + use<B, E>
where
    B: Stream<Item = Result<Bytes, E>> + Unpin,
{
    let route = ReviewRoute::of(head.path);
    let endpoint = route.as_ref().map(ReviewRoute::endpoint);
    let begun = begin(shared, head, route);
    let trace = begun.as_ref().map(|(_, awaited)| awaited.trace().clone());
    let trace = trace.unwrap_or_default();
    let shared = shared.clone();
    async move {
        let received = match begun {
            Ok((route, awaited)) => awaited
                .read(&shared, &mut body)
                .await
                .map(|review| (route, review)),
            Err(rejection) => Err(rejection),
        };
        let answer = match received {
            Ok((route, received)) => review(&shared, route, received).await,
            Err(rejection) => {
                body::skip(&mut body).await;
                Err(rejection)
            }
        };
        let reply = finish(&shared, endpoint, answer);
        trace.finish(reply.code);
        (reply, body)
    }
}

fn begin(
    shared: &Shared,
    head: &RequestHead<'_>,
    route: Option<ReviewRoute>,
) -> Result<(ReviewRoute, AwaitedReview), Rejection> {
    let route = route.ok_or(Rejection::NotFound)?;
    if !head.is_post {
        return Err(Rejection::MethodNotAllowed);
    }
    let awaited = receive(head, shared, route.review())?;
    Ok((route, awaited))
}

async fn review(
    shared: &Data<Shared>,
    route: ReviewRoute,
    received: ReceivedReview,
) -> Result<Bytes, Rejection> {
    match route {
        ReviewRoute::Authorize => access(shared, received).await,
        // Boxed: it is large, and every request would have to have room for it.
        ReviewRoute::Admit(phase, only) => Box::pin(admit::answer(shared, received, phase, only))
            .await
            .map(Bytes::from),
    }
}

/// Small reviews are answered on the worker; a large one, for which a user needs
/// no more than a long selector, must not hold up the others of its worker. What
/// waits for others, or on another thread, is boxed: most reviews need no room for it.
async fn access(shared: &Data<Shared>, received: ReceivedReview) -> Result<Bytes, Rejection> {
    if received.body.len() < LARGE_BYTES {
        return match authorize::answer(shared, &received)? {
            AuthorizeStep::Answered(reply) => Ok(reply),
            AuthorizeStep::Unsettled(unsettled) => Ok(Box::pin(unsettled.ask(shared, &received)).await),
        };
    }
    Box::pin(large(shared, received)).await
}

/// The same on a thread for large reviews.
async fn large(shared: &Data<Shared>, received: ReceivedReview) -> Result<Bytes, Rejection> {
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

/// Counts the answer and, while draining, has the connection close after it.
fn finish(shared: &Shared, endpoint: Option<Endpoint>, answer: Result<Bytes, Rejection>) -> Reply {
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
    const fn review(&self) -> ReviewPath {
        match self {
            Self::Authorize => ReviewPath::Authorize,
            Self::Admit(phase, _) => ReviewPath::Admit(*phase),
        }
    }

    const fn endpoint(&self) -> Endpoint {
        self.review().endpoint()
    }
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
