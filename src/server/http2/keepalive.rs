//! PING: a peer that is gone, or does not read, is noticed.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep};

/// The time from an answered PING to the next.
const EVERY: Duration = Duration::from_secs(30);

/// How long an answer may take. It waits behind what is being sent.
const ANSWER: Duration = Duration::from_secs(15);

/// The PINGs of one connection.
pub(super) struct Keepalive {
    /// `None` once the connection is closing.
    pings: Option<PingPong>,
    is_unanswered: bool,
    timer: Pin<Box<Sleep>>,
}

// === impl Keepalive ===

impl Keepalive {
    pub(super) fn new(pings: Option<PingPong>) -> Self {
        Self {
            pings,
            is_unanswered: false,
            timer: Box::pin(sleep(EVERY)),
        }
    }

    /// Sends a PING when it is time. Ready when the last one was not answered.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let Some(pings) = &mut self.pings else {
            return Poll::Pending;
        };
        if self.is_unanswered && pings.poll_pong(context)?.is_ready() {
            self.is_unanswered = false;
            self.timer.as_mut().reset(Instant::now() + EVERY);
        }
        while self.timer.as_mut().poll(context).is_ready() {
            if self.is_unanswered {
                return Poll::Ready(Ok(()));
            }
            pings.send_ping(Ping::opaque())?;
            self.is_unanswered = true;
            self.timer.as_mut().reset(Instant::now() + ANSWER);
            if pings.poll_pong(context)?.is_ready() {
                self.is_unanswered = false;
            }
        }
        Poll::Pending
    }
}
