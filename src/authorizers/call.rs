//! A call to one authorizer: retries with backoff, until the deadline of all requests
//! that wait for it.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::answers::{Answer, SharedDeadline};
use crate::telemetry::metrics::{Outcome, UpstreamRecorder};
use crate::telemetry::traces::TraceParent;
use crate::upstream::client::{Bounds, Client, Error, Reply};
use portcullis_policy::authorization::SubjectAccessReviewVersion;

/// Posts a body, as a part of the trace of `parent`.
pub(crate) trait Post: std::fmt::Debug + Send + Sync {
    fn post(
        &self,
        body: Bytes,
        bounds: Bounds,
        parent: Option<TraceParent>,
    ) -> BoxFuture<'static, Result<Reply, Error>>;
}

/// How often, and after which pauses, a question is put again
/// (`apiserver/pkg/util/webhook/webhook.go`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    pub(crate) attempts: u32,
    pub(crate) pause: Duration,
}

/// Whom to ask, and how.
#[derive(Debug, Clone)]
pub(crate) struct Callee {
    pub(crate) post: Arc<dyn Post>,
    pub(crate) version: SubjectAccessReviewVersion,
    /// The time of one attempt, which is also sent to the authorizer.
    pub(crate) timeout: Duration,
    /// The largest reply.
    pub(crate) reply_bytes: usize,
    pub(crate) backoff: Backoff,
    /// Where requests are counted, once that is known.
    pub(crate) recorder: Arc<OnceLock<UpstreamRecorder>>,
}

// === impl Backoff ===

impl Backoff {
    pub(crate) const UPSTREAM: Self = Self {
        attempts: 5,
        pause: Duration::from_millis(500),
    };
}

// === impl Callee ===

impl Callee {
    /// Asks about `body` until there is an answer, an error that will not go away, or nobody
    /// whom the next attempt could still serve.
    /// It is a part of the trace of `parent`: of whoever asked first.
    pub(crate) async fn ask(
        self,
        body: Bytes,
        deadline: Arc<SharedDeadline>,
        parent: Option<TraceParent>,
    ) -> Answer {
        let mut pause = self.backoff.pause;
        let mut attempt = 1;
        loop {
            let begun = Instant::now();
            let reply = self.post.post(body.clone(), self.bounds(), parent).await;
            self.record(reply.is_ok(), begun.elapsed());
            let error = match reply {
                Ok(reply) => return self.verified(&body, reply),
                Err(error) => error,
            };
            let is_in_time = Instant::now()
                .checked_add(pause)
                .is_some_and(|next| next < deadline.end());
            if !is_transient(&error) || attempt >= self.backoff.attempts || !is_in_time {
                return Err(error.to_string());
            }
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(3) / 2;
            attempt += 1;
        }
    }

    /// What `reply` says, if it is one to `question`. If not, its connection ends: another question
    /// could be answered by what belongs to this one.
    fn verified(&self, question: &[u8], reply: Reply) -> Answer {
        let verified = self.version.verify_reply_to(question, &reply.body);
        let verified = verified.map_err(|error| error.to_string())?;
        reply.connection.release(verified.names_question);
        Ok(verified.opinion)
    }

    fn record(&self, replied: bool, took: Duration) {
        let outcome = if replied {
            Outcome::Success
        } else {
            Outcome::Failure
        };
        if let Some(recorder) = self.recorder.get() {
            recorder.record(outcome, took);
        }
    }

    const fn bounds(&self) -> Bounds {
        Bounds {
            timeout: self.timeout,
            connect: self.timeout,
            announced: self.timeout,
            reply_bytes: self.reply_bytes,
        }
    }
}

/// What `DefaultShouldRetry` retries, except for `Retry-After`, which is ignored here.
const fn is_transient(error: &Error) -> bool {
    match error {
        Error::Reset | Error::ContentType => true,
        Error::Status(status) => *status == 429 || *status >= 500 && *status != 503,
        _ => false,
    }
}

// === impl Client ===

impl Post for Client {
    fn post(
        &self,
        body: Bytes,
        bounds: Bounds,
        parent: Option<TraceParent>,
    ) -> BoxFuture<'static, Result<Reply, Error>> {
        let client = self.clone();
        Box::pin(async move { client.post(body, bounds, parent).await })
    }
}

#[cfg(test)]
mod tests;
