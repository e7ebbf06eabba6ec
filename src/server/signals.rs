//! What the operating system asks for.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or SIGINT. At each SIGHUP before that, calls `hang_up`.
///
/// # Errors
/// When the system does not let signals be handled.
pub async fn until_told(hang_up: impl Fn()) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_ups = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hang_ups.recv() => hang_up(),
        }
    }
}
