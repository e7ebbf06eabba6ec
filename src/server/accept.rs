//! Listening sockets, and the loop that accepts connections from one until the gateway ends.
//!
//! A connection beyond the limits replaces an older one or is dropped at once. Some file descriptors
//! are reserved for everything except callers' connections; if there are none left, the oldest
//! unauthenticated connection is closed.
//!
//! ```text
//! accept ─ add ─▶ handshake ─┬─ certificate of the client CA ─▶ proven ─▶ stays
//!                            └─▶ without proof ─ first accepted request ─▶ proven
//!                                     └─ too old, or one too many ─▶ closed
//! ```
//!
//! An unauthenticated connection costs its client nothing, so there is a limit per
//! address, they are closed after seconds, and they are closed first if the limit is
//! reached, those before all others over which nothing has come. The connection of a caller is closed for another one only at the maximum, and
//! only if its cluster has more than its share, so that no cluster keeps the others out.
//! There are no timers for individual handshakes or request heads: a sweep twice a second
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
use crate::identity::PeerCertificate;
use crate::telemetry::metrics::{ConnectionState, IntGauge};

pub(crate) use table::{AcceptLimits, ConnectionStage, ConnectionStatus};

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

    /// Whether its client is authenticated.
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

    /// The client is not reading what was written: the connection is closed unless it reads some `within` this time.
    pub(crate) fn start_read_deadline(&self, within: Duration) {
        self.tracked.expect_reader(within);
    }

    /// The client read some of what was written.
    pub(crate) fn clear_read_deadline(&self) {
        self.tracked.status.clear_read_deadline();
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

/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The time from one sweep to the next: deadlines are late by no more than this.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// How long accepting waits for connections that were closed to go.
const MAX_CLOSE_WAIT: Duration = Duration::from_millis(100);

/// How many descriptors connections may take beyond `max`: those on their way out.
pub(crate) const BEYOND_MAX: usize = table::MAX_CLOSING;

/// The connections of one listener.
#[derive(Debug)]
pub(crate) struct Connections {
    table: Mutex<ConnectionTable>,
    start: Instant,
    /// The time of the last sweep, in milliseconds from the start.
    now: AtomicU64,
    /// A connection has gone.
    gone: Notify,
    /// How many are in each state, if anybody wants to know.
    gauges: Option<[IntGauge; ConnectionState::COUNT]>,
}

/// A connection that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct TrackedConnection {
    connections: Arc<Connections>,
    number: u64,
    status: Arc<ConnectionStatus>,
    state: Cell<ConnectionState>,
}

// === impl Connections ===

impl Connections {
    /// None yet; `gauges` follow how many there are.
    pub(crate) fn new(gauges: Option<[IntGauge; ConnectionState::COUNT]>) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::default(),
            start: Instant::now(),
            now: AtomicU64::new(0),
            gone: Notify::new(),
            gauges,
        })
    }

    /// A connection from `address` that was just accepted. Another may be
    /// closed for it; `None` if there is no room for it.
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

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.table().len()
    }

    /// Waits until most of the connections that were closed are gone, but not for long.
    pub(crate) async fn wait_for_closing(&self) {
        let settled = async {
            while self.table().is_crowded() {
                self.gone.notified().await;
            }
        };
        if !self.table().is_crowded() {
            return;
        }
        // If they are not gone by then, newer ones are dropped.
        let _late = timeout(MAX_CLOSE_WAIT, settled).await;
    }

    /// Closes the oldest without proof, so that descriptors become free.
    pub(crate) fn close_oldest(&self) -> bool {
        self.table().close_oldest()
    }

    /// Has every connection, those to come too, go on to `stage`.
    pub(crate) fn advance(&self, stage: ConnectionStage) {
        self.table().advance(stage);
    }

    /// Closes what takes too long, for ever.
    pub(crate) async fn watch(&self) {
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
    /// What its task follows.
    pub(crate) const fn status(&self) -> &Arc<ConnectionStatus> {
        &self.status
    }

    /// The client has sent something: others make way first.
    pub(crate) fn has_sent(&self) {
        self.connections.table().has_sent(self.number);
    }

    /// The handshake is complete; `proven`: with a certificate of the client CA.
    pub(crate) fn handshake_done(&self, proven: bool) {
        self.status.reached();
        self.enter(ConnectionState::Unauthenticated);
        if proven && self.status.prove(PeerStanding::SignedByClientCa) {
            self.connections.table().prove(self.number, None);
            self.enter(ConnectionState::Authenticated);
        }
    }

    /// The client is a caller of `cluster`.
    pub(crate) fn prove(&self, cluster: &Arc<str>) {
        // Nearly every request is not the first of its connection.
        if !self.status.is_at_least(PeerStanding::Caller) && self.status.prove(PeerStanding::Caller) {
            self.connections.table().prove(self.number, Some(cluster));
            self.enter(ConnectionState::Authenticated);
        }
    }

    /// A head began to arrive: it must be there `within`.
    pub(crate) fn expect(&self, within: Duration) {
        let now = self.connections.now.load(Ordering::Relaxed);
        self.status
            .expect(now.saturating_add(milliseconds(within + SWEEP_INTERVAL)));
    }

    /// The head is there.
    pub(crate) fn reached(&self) {
        self.status.reached();
    }

    /// What is written must be read `within` this time.
    pub(crate) fn expect_reader(&self, within: Duration) {
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
