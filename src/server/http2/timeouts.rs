//! Timeouts of an HTTP/2 connection.

use std::time::Duration;

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
