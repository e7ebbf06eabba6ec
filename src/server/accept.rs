//! Listening sockets, the loop that accepts connections, and the limits on connections.
//!
//! A connection beyond the limits replaces an older one or is dropped at once. Some file descriptors
//! are reserved for everything except callers' connections; if there are none left, the oldest
//! unauthenticated connection is closed.
//!
//! ```text
//! accept ─ add ─▶ handshake ─┬─ certificate of the client CA ─▶ proven ─▶ stays
//!                            └─▶ unproven ─ first accepted request ─▶ proven
//!                                     └─ too old, or over a limit ─▶ closed
//! ```
//!
//! An unauthenticated connection costs its client nothing. Therefore their number is limited per
//! client address, they are closed after seconds, and they are closed first when the maximum is
//! reached, starting with those on which no data has arrived. The connection of a caller is closed
//! to make room only if its cluster has more than its share, so that no cluster keeps the others
//! out. There are no timers for individual handshakes or request heads: a sweep twice a second
//! checks all connections.

mod table;

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use table::{ConnectionTable, PeerStanding, milliseconds};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::config::limits::Descriptors;
use crate::identity::{PeerCertificate, RecentToken};
use crate::telemetry::metrics::{ConnectionState, IntGauge};

pub(crate) use table::{AcceptLimits, ConnectionStage, ConnectionStatus};

/// The delay before accepting again after an error, for example when no file descriptor is free.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(20);

/// The least interval between two log messages about failing to accept.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// An accepted connection.
pub(crate) struct AcceptedConnection {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) tracked: TrackedConnection,
}

/// Accepts connections within the limits in force and passes them to `serve`, until `serve` returns
/// an error.
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
        connections.wait_for_closing().await;
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

/// Whether the error concerns one connection only, which was closed before it was accepted.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// The length of the queue of connections that are not accepted yet.
const BACKLOG: i32 = 1024;

/// Listens at `address`.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The number of connections for which there are file descriptors.
pub(crate) fn affordable_connections() -> usize {
    let accepted = Descriptors::of_process().accepted;
    accepted.saturating_sub(BEYOND_MAX).max(accepted / 2)
}

// State of a connection on the worker that serves it.

/// The time in which the head of a request must arrive, from its first byte to its last.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// One connection, as the worker that serves it sees it.
#[derive(Debug)]
pub(crate) struct Connection {
    tracked: TrackedConnection,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The client certificate of the handshake. It is verified for each request.
    pub(crate) certificate: Option<PeerCertificate>,
    /// The caller of the token in its last request.
    pub(crate) recent_token: RecentToken,
    /// The time in which the head of a request must arrive.
    head: Duration,
    /// The number of requests that are being answered.
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
            recent_token: RecentToken::default(),
            head,
            answering: Cell::new(0),
        })
    }

    /// Marks the client as a caller of `cluster`: the connection no longer counts towards the
    /// limits of unauthenticated connections.
    pub(crate) fn mark_authenticated(&self, cluster: &Arc<str>) {
        self.tracked.mark_authenticated(cluster);
    }

    /// Whether the client is authenticated.
    pub(crate) fn is_proven(&self) -> bool {
        self.tracked.status().is_proven()
    }

    /// The stage of the connection.
    pub(crate) fn stage(&self) -> ConnectionStage {
        self.tracked.status().stage()
    }

    /// Starts the deadline for the rest of a head, of which the first bytes have arrived.
    pub(crate) fn head_began(&self) {
        self.tracked.start_head_deadline(self.head);
    }

    /// Clears the deadline of the head, which is complete.
    pub(crate) fn head_ended(&self) {
        self.tracked.clear_head_deadline();
    }

    /// The client is not reading the response: closes the connection unless it reads some of it
    /// `within` this time.
    pub(crate) fn start_read_deadline(&self, within: Duration) {
        self.tracked.start_read_deadline(within);
    }

    /// Clears that deadline, because the client has read some of the response.
    pub(crate) fn clear_read_deadline(&self) {
        self.tracked.status.clear_read_deadline();
    }

    /// Whether a request is being answered.
    pub(crate) fn is_answering(&self) -> bool {
        self.answering.get() > 0
    }

    /// Counts a request as being answered until the returned value is dropped.
    pub(crate) fn begin_request(self: &Rc<Self>) -> AnsweringRequest {
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

/// An unauthenticated connection.
#[cfg(test)]
pub(crate) fn unauthenticated_connection() -> Rc<Connection> {
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

/// The time in which a TLS handshake must complete.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval between two sweeps, which bounds how late a deadline takes effect.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// How long accepting waits for closed connections to release their descriptors.
const MAX_CLOSE_WAIT: Duration = Duration::from_millis(100);

/// The descriptors that connections may take beyond `max`, for connections that are closing.
pub(crate) const BEYOND_MAX: usize = table::MAX_CLOSING;

/// The connections of one listener.
#[derive(Debug)]
pub(crate) struct Connections {
    table: Mutex<ConnectionTable>,
    start: Instant,
    /// The time of the last sweep, in milliseconds since `start`.
    now: AtomicU64,
    /// Notified when a connection has been dropped.
    gone: Notify,
    /// The number of connections in each state, if it is exported.
    gauges: Option<[IntGauge; ConnectionState::COUNT]>,
}

/// A connection that counts as open until this is dropped.
#[derive(Debug)]
pub(crate) struct TrackedConnection {
    connections: Arc<Connections>,
    number: u64,
    status: Arc<ConnectionStatus>,
    state: Cell<ConnectionState>,
}

// === impl Connections ===

impl Connections {
    /// An empty set of connections, whose numbers `gauges` follow.
    pub(crate) fn new(gauges: Option<[IntGauge; ConnectionState::COUNT]>) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::default(),
            start: Instant::now(),
            now: AtomicU64::new(0),
            gone: Notify::new(),
            gauges,
        })
    }

    /// Adds a connection from `address` that was just accepted, for which another may be closed.
    /// Returns `None` if there is no room for it.
    pub(crate) fn add(
        self: &Arc<Self>,
        address: IpAddr,
        limits: impl Into<AcceptLimits>,
    ) -> Option<TrackedConnection> {
        let now = self.now.load(Ordering::Relaxed);
        let (number, status) = self.table().add(address, limits.into(), HANDSHAKE_TIMEOUT, now)?;
        self.count(ConnectionState::Handshake, 1);
        Some(TrackedConnection {
            connections: Arc::clone(self),
            number,
            status,
            state: Cell::new(ConnectionState::Handshake),
        })
    }

    /// The number of connections.
    pub(crate) fn len(&self) -> usize {
        self.table().len()
    }

    /// Waits until most of the closing connections are gone, for [`MAX_CLOSE_WAIT`] at most.
    pub(crate) async fn wait_for_closing(&self) {
        let settled = async {
            while self.table().is_crowded() {
                self.gone.notified().await;
            }
        };
        if !self.table().is_crowded() {
            return;
        }
        // If they are still there after that, new connections are dropped.
        let _late = timeout(MAX_CLOSE_WAIT, settled).await;
    }

    /// Closes the oldest unproven connection, so that a descriptor becomes free.
    pub(crate) fn close_oldest(&self) -> bool {
        self.table().close_oldest()
    }

    /// Advances every connection to `stage`, including those that are accepted later.
    pub(crate) fn advance(&self, stage: ConnectionStage) {
        self.table().advance(stage);
    }

    /// Sweeps forever, closing connections whose deadline has passed.
    pub(crate) async fn sweep_forever(&self) {
        let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            sweeps.tick().await;
            let now = milliseconds(self.start.elapsed());
            self.now.store(now, Ordering::Relaxed);
            self.table().sweep(now);
        }
    }

    fn table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, state: ConnectionState, change: i64) {
        let gauge = self.gauges.as_ref().and_then(|gauges| gauges.get(state.index()));
        if let Some(gauge) = gauge {
            gauge.add(change);
        }
    }
}

// === impl TrackedConnection ===

impl TrackedConnection {
    /// The status that the task of the connection follows.
    pub(crate) const fn status(&self) -> &Arc<ConnectionStatus> {
        &self.status
    }

    /// Records that the client has sent data: connections without any are closed first.
    pub(crate) fn record_sent(&self) {
        self.connections.table().has_sent(self.number);
    }

    /// Records that the handshake is complete, and with `proven` that the client has a certificate
    /// of the client CA.
    pub(crate) fn handshake_done(&self, proven: bool) {
        self.status.reached();
        self.enter(ConnectionState::Unauthenticated);
        if proven && self.status.prove(PeerStanding::SignedByClientCa) {
            self.connections.table().prove(self.number, None);
            self.enter(ConnectionState::Authenticated);
        }
    }

    /// Records that the client is a caller of `cluster`.
    pub(crate) fn mark_authenticated(&self, cluster: &Arc<str>) {
        // This is a no-op for every request but the first of a connection, so check without a lock.
        if !self.status.is_at_least(PeerStanding::Caller) && self.status.prove(PeerStanding::Caller) {
            self.connections.table().prove(self.number, Some(cluster));
            self.enter(ConnectionState::Authenticated);
        }
    }

    /// Starts the deadline of a head, of which the first bytes have arrived.
    pub(crate) fn start_head_deadline(&self, within: Duration) {
        let now = self.connections.now.load(Ordering::Relaxed);
        self.status
            .expect(now.saturating_add(milliseconds(within + SWEEP_INTERVAL)));
    }

    /// Clears the deadline of the head or handshake, which is complete.
    pub(crate) fn clear_head_deadline(&self) {
        self.status.reached();
    }

    /// Starts the deadline by which the client must have read some of the response.
    pub(crate) fn start_read_deadline(&self, within: Duration) {
        let now = self.connections.now.load(Ordering::Relaxed);
        self.status
            .expect_reader(now.saturating_add(milliseconds(within + SWEEP_INTERVAL)));
    }

    fn enter(&self, state: ConnectionState) {
        self.connections.count(self.state.replace(state), -1);
        self.connections.count(state, 1);
    }
}

impl Drop for TrackedConnection {
    fn drop(&mut self) {
        self.connections.count(self.state.get(), -1);
        self.connections.table().remove(self.number);
        self.connections.gone.notify_one();
    }
}
