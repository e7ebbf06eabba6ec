//! The table of connections, the status that it shares with the task of each connection, and the
//! choice of the connection that is closed to make room.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::task::AtomicWaker;

use crate::config::ConnectionLimits;
use crate::server::limits::PartLimits;

/// The most connections that may be closing, besides those that count towards the maximum.
pub(crate) const MAX_CLOSING: usize = 64;

/// The limits for the connections of a listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AcceptLimits {
    /// The configured limits.
    pub(crate) connections: ConnectionLimits,
    /// The number of clusters among which the connections are shared.
    pub(crate) clusters: usize,
}

/// The connections of one listener by number, in the order in which they were accepted.
#[derive(Debug, Default)]
pub(crate) struct ConnectionTable {
    next: u64,
    open: BTreeMap<u64, TableEntry>,
    /// Unproven connections, without those that are closing.
    unproven: BTreeSet<u64>,
    /// Unproven connections on which the client has sent nothing.
    silent: BTreeSet<u64>,
    /// Unproven connections by client network, and by whether the client has sent anything.
    by_network: HashMap<(IpAddr, bool), BTreeSet<u64>>,
    /// Connections with a certificate of the client CA on which no caller was authenticated yet,
    /// without those that are closing.
    unused_authenticated: BTreeSet<u64>,
    /// Connections of callers by cluster, without those that are closing.
    of_clusters: HashMap<Arc<str>, BTreeSet<u64>>,
    /// The number of connections that are closing.
    closing: usize,
    stage: Option<ConnectionStage>,
}

#[derive(Debug)]
struct TableEntry {
    status: Arc<ConnectionStatus>,
    network: IpAddr,
    /// Whether the client has sent anything.
    has_sent: bool,
    /// The cluster of the caller that was authenticated on it.
    cluster: Option<Arc<str>>,
    /// The time by which the client must be authenticated, in milliseconds.
    prove_by: u64,
    is_closing: bool,
}

// === impl AcceptLimits ===

impl From<ConnectionLimits> for AcceptLimits {
    /// A single share for all connections.
    fn from(connections: ConnectionLimits) -> Self {
        Self {
            connections,
            clusters: 1,
        }
    }
}

// === impl ConnectionTable ===

impl ConnectionTable {
    /// Adds a connection, and closes another if there are too many. Returns `None` if none can be
    /// closed.
    pub(crate) fn add(
        &mut self,
        address: IpAddr,
        limits: AcceptLimits,
        handshake: Duration,
        now: u64,
    ) -> Option<(u64, Arc<ConnectionStatus>)> {
        let AcceptLimits {
            connections: limits,
            clusters,
        } = limits;
        if self.open.len() >= limits.max.saturating_add(MAX_CLOSING) {
            return None;
        }
        let network = network(address);
        let of_network = [false, true].map(|has_sent| self.by_network.get(&(network, has_sent)));
        let of_network: usize = of_network.into_iter().flatten().map(BTreeSet::len).sum();
        if of_network >= limits.per_address {
            self.close_oldest_of(network);
        }
        if self.open.len() - self.closing >= limits.max && !self.make_room(limits.max, clusters) {
            return None;
        }
        let number = self.next;
        self.next += 1;
        let stage = self.stage.unwrap_or(ConnectionStage::Open);
        let status = Arc::new(ConnectionStatus::new(
            stage,
            now.saturating_add(milliseconds(handshake)),
        ));
        let entry = TableEntry {
            status: Arc::clone(&status),
            network,
            has_sent: false,
            cluster: None,
            prove_by: now.saturating_add(milliseconds(limits.authentication_timeout)),
            is_closing: false,
        };
        self.open.insert(number, entry);
        self.unproven.insert(number);
        self.silent.insert(number);
        self.by_network
            .entry((network, false))
            .or_default()
            .insert(number);
        Some((number, status))
    }

    /// Records that the client has sent data.
    pub(crate) fn has_sent(&mut self, number: u64) {
        let Some(entry) = self.open.get_mut(&number) else {
            return;
        };
        if self.silent.remove(&number) {
            entry.has_sent = true;
            remove_of(&mut self.by_network, &(entry.network, false), number);
            self.by_network
                .entry((entry.network, true))
                .or_default()
                .insert(number);
        }
    }

    /// Removes the connection from those that count as unauthenticated. It counts for `cluster` if
    /// its client is a caller.
    pub(crate) fn prove(&mut self, number: u64, cluster: Option<&Arc<str>>) {
        self.remove_from_indexes(number);
        let Some(entry) = self.open.get_mut(&number).filter(|entry| !entry.is_closing) else {
            return;
        };
        entry.cluster = cluster.cloned();
        let of_its_kind = match cluster {
            Some(cluster) => self.of_clusters.entry(Arc::clone(cluster)).or_default(),
            None => &mut self.unused_authenticated,
        };
        of_its_kind.insert(number);
    }

    /// Removes a connection that has ended.
    pub(crate) fn remove(&mut self, number: u64) {
        self.remove_from_indexes(number);
        if self.open.remove(&number).is_some_and(|entry| entry.is_closing) {
            self.closing -= 1;
        }
    }

    /// The number of connections, including those that are closing.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Closes the connections that are overdue at `now`.
    pub(crate) fn sweep(&mut self, now: u64) {
        let unproven = &self.unproven;
        let is_overdue = |number: &u64, entry: &TableEntry| {
            entry.status.is_overdue(now) || (now >= entry.prove_by && unproven.contains(number))
        };
        let overdue: Vec<u64> = self
            .open
            .iter()
            .filter(|(number, entry)| !entry.is_closing && is_overdue(number, entry))
            .map(|(number, _)| *number)
            .collect();
        for number in overdue {
            self.close(number);
        }
    }

    /// Closes the oldest unproven connection, of those on which the client has sent nothing if
    /// there are any. Returns whether there was one.
    pub(crate) fn close_oldest(&mut self) -> bool {
        let oldest = self.silent.first().or(self.unproven.first()).copied();
        oldest.inspect(|oldest| self.close(*oldest)).is_some()
    }

    /// Advances every connection to `stage`, including those that are added later. Unproven
    /// connections are closed at once instead of ending.
    pub(crate) fn advance(&mut self, stage: ConnectionStage) {
        self.stage = Some(stage);
        for entry in self.open.values() {
            entry.status.advance(stage);
        }
        while stage >= ConnectionStage::Ending && self.close_oldest() {}
    }

    /// Whether no further connection may be closing.
    pub(crate) fn is_crowded(&self) -> bool {
        self.closing >= MAX_CLOSING
    }

    /// Closes one connection to make room for a new one:
    ///
    /// 1. the newest of the cluster that has the most connections, if that is more than its share;
    /// 2. otherwise the oldest on which no caller was authenticated, first of those on which the
    ///    client has sent nothing, so that merely opening connections does not interrupt the
    ///    handshake of a caller.
    ///
    /// In the other order, new connections of the clusters whose share is exhausted would close
    /// each other during their handshakes.
    fn make_room(&mut self, max: usize, clusters: usize) -> bool {
        let number = self
            .newest_beyond_share(max, clusters)
            .or_else(|| self.oldest_unused());
        number.inspect(|number| self.close(*number)).is_some()
    }

    fn oldest_unused(&self) -> Option<u64> {
        if let Some(oldest) = self.silent.first() {
            return Some(*oldest);
        }
        let first_of = [&self.unproven, &self.unused_authenticated].map(BTreeSet::first);
        first_of.into_iter().flatten().min().copied()
    }

    fn newest_beyond_share(&self, max: usize, clusters: usize) -> Option<u64> {
        if clusters <= 1 {
            return None;
        }
        let shares = PartLimits::of(max, clusters, 1);
        let greatest = self.of_clusters.values().max_by_key(|numbers| numbers.len())?;
        let is_too_much = greatest.len() > shares.own + shares.common;
        greatest.last().copied().filter(|_| is_too_much)
    }

    fn close_oldest_of(&mut self, network: IpAddr) {
        let mut of_network = [false, true].into_iter();
        let oldest =
            of_network.find_map(|has_sent| self.by_network.get(&(network, has_sent))?.first().copied());
        if let Some(oldest) = oldest {
            self.close(oldest);
        }
    }

    fn close(&mut self, number: u64) {
        let Some(entry) = self.open.get_mut(&number) else {
            return;
        };
        if !entry.is_closing {
            entry.is_closing = true;
            self.closing += 1;
        }
        entry.status.advance(ConnectionStage::Closed);
        self.remove_from_indexes(number);
    }

    /// Removes the connection from all indexes.
    fn remove_from_indexes(&mut self, number: u64) {
        let Some(entry) = self.open.get(&number) else {
            return;
        };
        if self.unproven.remove(&number) {
            self.silent.remove(&number);
            remove_of(&mut self.by_network, &(entry.network, entry.has_sent), number);
        }
        self.unused_authenticated.remove(&number);
        if let Some(cluster) = &entry.cluster {
            remove_of(&mut self.of_clusters, cluster, number);
        }
    }
}

/// Removes a number from the set of a key, and the key with its last number.
fn remove_of<K: Eq + Hash>(numbers: &mut HashMap<K, BTreeSet<u64>>, key: &K, number: u64) {
    if let Some(of_key) = numbers.get_mut(key) {
        of_key.remove(&number);
        if of_key.is_empty() {
            numbers.remove(key);
        }
    }
}

/// The network that counts as one client: an IPv4 address, or a /64 of IPv6, because a host may use
/// every address of its /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The stages of a connection, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConnectionStage {
    /// The connection is kept open.
    Open,
    /// Requests in flight and new requests are answered; clients are asked to reconnect elsewhere.
    Draining,
    /// The connection is idle and ends as if the client had closed it.
    Ending,
    /// The connection is dropped at once, even if a request is in flight.
    Closed,
}

/// What was proven about the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PeerStanding {
    /// Nothing.
    Stranger,
    /// It has the key of a certificate of the client CA.
    SignedByClientCa,
    /// It is a caller.
    Caller,
}

/// No deadline.
const NEVER: u64 = u64::MAX;

/// The status shared by the [`ConnectionTable`], which decides when a connection must end, and the
/// task of the connection, which ends it. Aligned to a cache line, because other connections are
/// served by other workers.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct ConnectionStatus {
    stage: AtomicU8,
    standing: AtomicU8,
    /// The time by which the pending handshake or head must be complete, on the clock of the table.
    deadline: AtomicU64,
    /// The time by which the client must have read some of the response.
    read_deadline: AtomicU64,
    task: AtomicWaker,
}

// === impl ConnectionStage ===

impl ConnectionStage {
    const fn of(value: u8) -> Self {
        match value {
            0 => Self::Open,
            1 => Self::Draining,
            2 => Self::Ending,
            _ => Self::Closed,
        }
    }
}

// === impl ConnectionStatus ===

impl ConnectionStatus {
    /// The status of a connection whose handshake must be complete by `deadline`.
    pub(crate) fn new(stage: ConnectionStage, deadline: u64) -> Self {
        Self {
            stage: AtomicU8::new(stage as u8),
            standing: AtomicU8::new(PeerStanding::Stranger as u8),
            deadline: AtomicU64::new(deadline),
            read_deadline: AtomicU64::new(NEVER),
            task: AtomicWaker::new(),
        }
    }

    /// The stage of the connection.
    pub(crate) fn stage(&self) -> ConnectionStage {
        ConnectionStage::of(self.stage.load(Ordering::Acquire))
    }

    /// Whether the client is authenticated.
    pub(crate) fn is_proven(&self) -> bool {
        self.is_at_least(PeerStanding::SignedByClientCa)
    }

    /// Whether at least `standing` was proven about the client.
    pub(crate) fn is_at_least(&self, standing: PeerStanding) -> bool {
        self.standing.load(Ordering::Relaxed) >= standing as u8
    }

    /// Records what was proven about the client. Returns whether that is more than before.
    pub(crate) fn prove(&self, standing: PeerStanding) -> bool {
        self.standing.fetch_max(standing as u8, Ordering::Relaxed) < standing as u8
    }

    /// Advances the connection to `stage`, unless it is there already, and wakes its task.
    pub(crate) fn advance(&self, stage: ConnectionStage) {
        self.stage.fetch_max(stage as u8, Ordering::AcqRel);
        self.task.wake();
    }

    /// Sets the deadline of a handshake or head, unless one is already set.
    pub(crate) fn expect(&self, deadline: u64) {
        if self.deadline.load(Ordering::Relaxed) == NEVER {
            self.deadline.store(deadline, Ordering::Relaxed);
        }
    }

    /// Clears the deadline of the handshake or head, which is complete.
    pub(crate) fn reached(&self) {
        self.deadline.store(NEVER, Ordering::Relaxed);
    }

    /// Sets the deadline by which the client must read, unless one is already set.
    pub(crate) fn expect_reader(&self, deadline: u64) {
        let set = |before| (before == NEVER).then_some(deadline);
        // The update fails if a deadline is set, which then stays.
        let _ = self
            .read_deadline
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    }

    /// Clears the deadline by which the client must read.
    pub(crate) fn clear_read_deadline(&self) {
        if self.read_deadline.load(Ordering::Relaxed) != NEVER {
            self.read_deadline.store(NEVER, Ordering::Relaxed);
        }
    }

    /// Whether a deadline has passed.
    pub(crate) fn is_overdue(&self, now: u64) -> bool {
        let deadlines = [&self.deadline, &self.read_deadline];
        deadlines
            .iter()
            .any(|deadline| now >= deadline.load(Ordering::Relaxed))
    }

    /// Polls `serving` until it ends or the connection is closed by the table.
    pub(crate) async fn run(&self, serving: impl Future<Output = ()>) {
        let mut serving = pin!(serving);
        poll_fn(|context| {
            self.task.register(context.waker());
            if self.stage() == ConnectionStage::Closed {
                return Poll::Ready(());
            }
            serving.as_mut().poll(context)
        })
        .await;
    }
}

#[cfg(test)]
mod tests;
