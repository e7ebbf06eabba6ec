//! One stream: answers its request, sends the response, and reads the rest of the
//! request.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::web::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use tokio::time::{Sleep, sleep};

use super::request::StreamBody;
use super::response;
use super::timeouts::Timeouts;
use crate::server::respond::Reply;

/// How many bytes of answers may wait for room on one connection.
const MAX_WAITING: usize = 64 << 20;

/// How much of a request is read after its answer. A client that still writes
/// would take a reset for a failure and lose the answer.
const REST_BYTES: usize = 1 << 20;

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExchangeOutcome {
    /// With an answer.
    Answered,
    /// The client wanted none, or made no room for it.
    Reset,
}

/// What the streams of one connection share.
#[derive(Debug)]
pub(crate) struct Link {
    timeouts: Timeouts,
    /// Bytes of answers that wait for room.
    waiting: Cell<usize>,
}

/// Bytes that wait until this is dropped.
struct WaitingExchange<'l>(&'l Link, usize);

// === impl Link ===

impl Link {
    pub(crate) const fn new(timeouts: Timeouts) -> Self {
        Self {
            timeouts,
            waiting: Cell::new(0),
        }
    }

    /// `None` if too many wait already.
    fn wait(&self, bytes: usize) -> Option<WaitingExchange<'_>> {
        let sum = self.waiting.get().saturating_add(bytes);
        (sum <= MAX_WAITING).then(|| {
            self.waiting.set(sum);
            WaitingExchange(self, bytes)
        })
    }
}

// === impl WaitingExchange ===

impl Drop for WaitingExchange<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get().saturating_sub(self.1));
    }
}

/// Answers one request by `answer`, unless the client resets the stream before. The answer
/// to a HEAD has no body.
pub(crate) async fn run<F>(
    answer: F,
    mut respond: SendResponse<Bytes>,
    is_head: bool,
    link: Rc<Link>,
) -> ExchangeOutcome
where
    F: Future<Output = (Reply, StreamBody)>,
{
    let Some((reply, body)) = unless_reset(answer, &mut respond).await else {
        return ExchangeOutcome::Reset;
    };
    let outcome = send(reply, is_head, respond, &link).await;
    if outcome == ExchangeOutcome::Answered && !body.is_over() {
        read_rest(body, link.timeouts.rest).await;
    }
    outcome
}

/// The answer; `None` if the stream is reset while it is awaited.
async fn unless_reset<F: Future>(answer: F, respond: &mut SendResponse<Bytes>) -> Option<F::Output> {
    let mut answer = pin!(answer);
    poll_fn(|context| match answer.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => respond.poll_reset(context).map(|_| None),
    })
    .await
}

async fn send(reply: Reply, is_head: bool, mut respond: SendResponse<Bytes>, link: &Link) -> ExchangeOutcome {
    let is_whole = is_head || reply.body.is_empty();
    let Ok(mut stream) = respond.send_response(response::head(&reply), is_whole) else {
        return ExchangeOutcome::Reset;
    };
    if is_whole || send_bytes(&mut stream, reply.body, link).await.is_some() {
        return ExchangeOutcome::Answered;
    }
    stream.send_reset(Reason::CANCEL);
    ExchangeOutcome::Reset
}

/// Sends `bytes` as the client makes room for them; `None` if it does not.
async fn send_bytes(stream: &mut SendStream<Bytes>, mut bytes: Bytes, link: &Link) -> Option<()> {
    stream.reserve_capacity(bytes.len());
    if stream.capacity() >= bytes.len() {
        return stream.send_data(bytes, true).ok();
    }
    let _waiting = link.wait(bytes.len())?;
    let mut timer = pin!(sleep(link.timeouts.send));
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let capacity = poll_fn(|context| poll_capacity(stream, timer.as_mut(), context)).await?;
        let part = bytes.split_to(capacity.min(bytes.len()));
        stream.send_data(part, bytes.is_empty()).ok()?;
    }
    Some(())
}

fn poll_capacity(
    stream: &mut SendStream<Bytes>,
    timer: Pin<&mut Sleep>,
    context: &mut Context<'_>,
) -> Poll<Option<usize>> {
    match stream.poll_capacity(context) {
        Poll::Ready(Some(Ok(capacity))) => Poll::Ready(Some(capacity)),
        Poll::Ready(Some(Err(_)) | None) => Poll::Ready(None),
        Poll::Pending => timer.poll(context).map(|()| None),
    }
}

/// Reads what the client still sends, within bounds.
async fn read_rest(mut body: StreamBody, within: Duration) {
    let mut read = 0;
    let mut timer = pin!(sleep(within));
    while read < REST_BYTES {
        let chunk = poll_fn(|context| match body.poll_chunk(context) {
            Poll::Pending => timer.as_mut().poll(context).map(|()| None),
            ready => ready,
        });
        match chunk.await {
            Some(Ok(chunk)) => read += chunk.len(),
            Some(Err(_)) | None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_responses_have_a_common_limit() {
        let link = Link::new(Timeouts::default());
        let first = link.wait(MAX_WAITING - 1).unwrap();
        let second = link.wait(1).unwrap();
        assert!(link.wait(1).is_none());
        drop(second);
        assert!(link.wait(1).is_some());
        drop(first);
        assert_eq!(link.waiting.get(), 0);
    }
}
