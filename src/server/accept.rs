//! Listening sockets, and the loop that accepts connections from one until the gateway ends.
//!
//! A connection beyond the limits replaces an older one or is dropped at once. Some file descriptors
//! are reserved for everything except callers' connections; if there are none left, the oldest
//! unauthenticated connection is closed.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::connections::{AcceptLimits, BEYOND_MAX, ConnectionStage, Connections, TrackedConnection};
use crate::authentication::PeerCertificate;
use crate::descriptors::Descriptors;

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

/// The connections that there are descriptors for.
pub(crate) fn connections() -> usize {
    let accepted = Descriptors::of_process().accepted;
    accepted.saturating_sub(BEYOND_MAX).max(accepted / 2)
}

// State of a connection on the worker that serves it.

/// How long the head of a request may take from its first byte to its last.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    tracked: TrackedConnection,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The certificate that the client sent. What it is worth is judged for each request.
    pub(crate) certificate: Option<PeerCertificate>,
    /// How long a head may take.
    head: Duration,
    /// Requests that are being answered.
    answering: Cell<usize>,
}

/// A request that is being answered until this is dropped.
#[derive(Debug)]
pub(crate) struct AnsweringRequest(Rc<Connection>);

// === impl Connection ===

impl Connection {
    /// A connection whose handshake, if it has any, is complete.
    pub(crate) fn new(
        tracked: TrackedConnection,
        peer: SocketAddr,
        certificate: Option<PeerCertificate>,
        head: Duration,
    ) -> Rc<Self> {
        Rc::new(Self {
            tracked,
            peer,
            certificate,
            head,
            answering: Cell::new(0),
        })
    }

    /// The client is a caller of `cluster`: the connection no longer counts for the limits
    /// of unauthenticated ones.
    pub(crate) fn prove(&self, cluster: &Arc<str>) {
        self.tracked.prove(cluster);
    }

    /// Whether it has.
    pub(crate) fn is_proven(&self) -> bool {
        self.tracked.status().is_proven()
    }

    /// How far the connection's end has come.
    pub(crate) fn stage(&self) -> ConnectionStage {
        self.tracked.status().stage()
    }

    /// Bytes of a head have arrived, and more must follow.
    pub(crate) fn head_began(&self) {
        self.tracked.expect(self.head);
    }

    /// The head is there.
    pub(crate) fn head_ended(&self) {
        self.tracked.reached();
    }

    /// Whether a request is being answered.
    pub(crate) fn is_answering(&self) -> bool {
        self.answering.get() > 0
    }

    /// A request is being answered from now on.
    pub(crate) fn answer(self: &Rc<Self>) -> AnsweringRequest {
        self.answering.set(self.answering.get() + 1);
        AnsweringRequest(Rc::clone(self))
    }
}

// === impl AnsweringRequest ===

impl Drop for AnsweringRequest {
    fn drop(&mut self) {
        self.0.answering.set(self.0.answering.get().saturating_sub(1));
    }
}

/// The connection of somebody who has proven nothing.
#[cfg(test)]
pub(crate) fn stranger() -> Rc<Connection> {
    use super::connections::Connections;
    use crate::config::ConnectionLimits;

    let limits = ConnectionLimits {
        max: 10,
        per_address: 10,
        authentication_timeout: Duration::from_secs(3600),
    };
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let tracked = Connections::new(None).add(peer.ip(), limits).unwrap();
    Connection::new(tracked, peer, None, Duration::from_secs(3600))
}
