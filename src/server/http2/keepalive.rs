//! PING: detects clients that are gone or do not read.

use h2::{Ping, PingPong};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep, sleep};

use super::timeouts::Timeouts;

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
