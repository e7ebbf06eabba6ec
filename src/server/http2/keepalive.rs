//! Timeouts of an HTTP/2 connection, and the PING that detects clients that are gone or do not read.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

/// The PINGs of one connection.
pub(crate) struct Keepalive {
    /// `None` once the connection is closing.
    pings: Option<PingPong>,
    is_unanswered: bool,
    timeouts: Timeouts,
    timer: Pin<Box<Sleep>>,
}

// === impl Keepalive ===

impl Keepalive {
    pub(crate) fn new(pings: Option<PingPong>, timeouts: Timeouts) -> Self {
        Self {
            pings,
            is_unanswered: false,
            timeouts,
            timer: Box::pin(sleep(timeouts.ping)),
        }
    }

    /// Sends a PING when it is time. Ready when the last one was not answered.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let Some(pings) = &mut self.pings else {
            return Poll::Pending;
        };
        if self.is_unanswered && pings.poll_pong(context)?.is_ready() {
            self.is_unanswered = false;
            self.timer.as_mut().reset(Instant::now() + self.timeouts.ping);
        }
        while self.timer.as_mut().poll(context).is_ready() {
            if self.is_unanswered {
                return Poll::Ready(Ok(()));
            }
            pings.send_ping(Ping::opaque())?;
            self.is_unanswered = true;
            self.timer.as_mut().reset(Instant::now() + self.timeouts.pong);
            if pings.poll_pong(context)?.is_ready() {
                self.is_unanswered = false;
            }
        }
        Poll::Pending
    }
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// Until a client makes room for an answer.
    pub(crate) send: Duration,
    /// Until the rest of a request is there, after its answer.
    pub(crate) rest: Duration,
    /// From an answered PING to the next.
    pub(crate) ping: Duration,
    /// Until a PING is answered. The answer waits behind what is being sent.
    pub(crate) pong: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            send: Duration::from_secs(30),
            rest: Duration::from_secs(5),
            ping: Duration::from_secs(30),
            pong: Duration::from_secs(15),
        }
    }
}
