//! The connections of one listener: their number, and the time until they must be
//! authenticated.
//!
//! ```text
//! accept ─ add ─▶ handshake ─┬─ certificate of the client CA ─▶ proven ─▶ stays
//!                            └─▶ without proof ─ first accepted request ─▶ proven
//!                                     └─ too old, or one too many ─▶ closed
//! ```
//!
//! An unauthenticated connection costs its client nothing, so there is a limit per
//! address, they are closed after seconds, and they are closed first if the limit is
//! reached. The connection of a caller is closed for another one only at the maximum, and
//! only if its cluster has more than its share, so that no cluster keeps the others out.
//! There are no timers for individual handshakes or request heads: a sweep twice a second
//! checks all connections.

mod table;

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::telemetry::metrics::{ConnectionState, IntGauge};

pub(crate) use table::AcceptLimits;
use table::PeerStanding;
pub(crate) use table::{ConnectionStage, ConnectionStatus};
use table::{ConnectionTable, milliseconds};

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
    pub(crate) async fn settle(&self) {
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

    /// The handshake is complete; `proven`: with a certificate of the client CA.
    pub(crate) fn handshake_done(&self, proven: bool) {
        self.status.reached();
        self.enter(ConnectionState::Unauthenticated);
        if proven && self.status.prove(PeerStanding::OfAuthority) {
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
