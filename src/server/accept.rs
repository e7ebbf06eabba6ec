//! Listening sockets, and the loop that accepts connections from one until the gateway ends.
//!
//! A connection beyond the limits replaces an older one or is dropped at once. Some file descriptors
//! are reserved for everything except callers' connections; if there are none left, the oldest
//! unauthenticated connection is closed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::connections::{AcceptLimits, BEYOND_MAX, Connections, TrackedConnection};

/// How long to wait when the system has nothing to accept with.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(20);

/// How often that is said.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// A connection that was accepted.
pub(crate) struct AcceptedConnection {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) tracked: TrackedConnection,
}

/// Accepts connections within `limits` of the moment and has `serve` take them,
/// until that fails.
pub(crate) async fn accept(
    listener: std::net::TcpListener,
    connections: &Arc<Connections>,
    limits: impl Fn() -> AcceptLimits,
    mut serve: impl FnMut(AcceptedConnection) -> io::Result<()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let mut last_said = None;
    loop {
        connections.settle().await;
        match listener.accept().await {
            Ok((stream, peer)) => {
                if let Some(tracked) = connections.add(peer.ip(), limits()) {
                    serve(AcceptedConnection {
                        stream,
                        peer,
                        tracked,
                    })?;
                }
            }
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                connections.close_oldest();
                if last_said.is_none_or(|at: Instant| at.elapsed() >= LOG_INTERVAL) {
                    last_said = Some(Instant::now());
                    tracing::error!(%error, "cannot accept connections: retrying");
                }
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Whether the error is of one connection, which was gone before it was accepted.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listens at `address`.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Kept for probes, files, logs, webhooks and clusters.
const RESERVED_DESCRIPTORS: usize = 256;

/// Raises the soft limit of open files to the hard one; the connections that
/// there are descriptors for then.
pub(crate) fn connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files");
            limit.current
        }
    };
    within(current)
}

/// The connections that a limit of open files leaves; of a small one, a quarter.
fn within(limit: Option<u64>) -> usize {
    let Some(limit) = limit else { return usize::MAX };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    limit
        .saturating_sub(RESERVED_DESCRIPTORS + BEYOND_MAX)
        .max(limit / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_kept_for_what_is_no_callers_connection() {
        assert_eq!(within(None), usize::MAX);
        assert_eq!(within(Some(1 << 20)), (1 << 20) - 320);
        assert_eq!(within(Some(512)), 192);
        assert_eq!(within(Some(256)), 64);
    }
}
