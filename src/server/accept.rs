//! Accepts connections from the listening socket.
//!
//! The loop runs until the gateway ends. A connection beyond the limits replaces an older
//! one or is dropped at once; if there are no file descriptors left, the oldest
//! unauthenticated connection is closed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::connections::{AcceptLimits, Connections, Tracked};

/// How long to wait when the system has nothing to accept with.
const PAUSE: Duration = Duration::from_millis(20);

/// How often that is said.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// A connection that was accepted.
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) tracked: Tracked,
}

/// Accepts connections within `limits` of the moment and has `serve` take them,
/// until that fails.
pub(crate) async fn accept(
    listener: std::net::TcpListener,
    connections: &Arc<Connections>,
    limits: impl Fn() -> AcceptLimits,
    mut serve: impl FnMut(Accepted) -> io::Result<()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let mut last_said = None;
    loop {
        connections.settle().await;
        match listener.accept().await {
            Ok((stream, peer)) => {
                if let Some(tracked) = connections.add(peer.ip(), limits()) {
                    serve(Accepted {
                        stream,
                        peer,
                        tracked,
                    })?;
                }
            }
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                connections.close_oldest();
                if last_said.is_none_or(|at: Instant| at.elapsed() >= SAID_EVERY) {
                    last_said = Some(Instant::now());
                    tracing::error!(%error, "cannot accept connections: retrying");
                }
                sleep(PAUSE).await;
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
