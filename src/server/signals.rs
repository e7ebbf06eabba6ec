//! Signals of the operating system.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT and SIGHUP, which from now on end the process no more.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

// === impl Signals ===

impl Signals {
    /// Begins to listen for signals. Needs a runtime: call it within the
    /// future that [`Server::run`](super::Server::run) is given.
    ///
    /// # Errors
    /// When the system does not let signals be handled.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for SIGTERM or SIGINT. At each SIGHUP before that, calls `hang_up`.
    pub async fn until_reported(mut self, hang_up: impl Fn()) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => hang_up(),
            }
        }
    }
}
