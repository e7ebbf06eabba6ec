//! Which connections there are, and which of them has to go for another.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use super::status::{ConnectionStatus, Stage};
use crate::config::ConnectionLimits;

/// How many connections may be on their way out beside those that count.
pub(super) const CLOSING: usize = 64;

/// The connections of one listener, by number: the lower, the older.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable {
    next: u64,
    open: BTreeMap<u64, TableEntry>,
    /// Those without proof that are not closed yet.
    unproven: BTreeSet<u64>,
    /// The same by client.
    networks: HashMap<IpAddr, BTreeSet<u64>>,
    /// How many are closed and not gone yet.
    closing: usize,
    stage: Option<Stage>,
}

#[derive(Debug)]
struct TableEntry {
    status: Arc<ConnectionStatus>,
    network: IpAddr,
    /// When the client must have proven who it is.
    prove_by: u64,
    is_closing: bool,
}

// === impl Table ===

impl ConnectionTable {
    /// A new connection, for which the oldest without proof is closed if there
    /// are too many; `None` if there is none to close.
    pub(super) fn add(
        &mut self,
        address: IpAddr,
        limits: &ConnectionLimits,
        handshake: Duration,
        now: u64,
    ) -> Option<(u64, Arc<ConnectionStatus>)> {
        if self.open.len() >= limits.max.saturating_add(CLOSING) {
            return None;
        }
        let network = network(address);
        let of_network = self.networks.get(&network).map_or(0, BTreeSet::len);
        if of_network >= limits.per_address {
            self.close_oldest_of(network);
        }
        if self.open.len() - self.closing >= limits.max && !self.close_oldest() {
            return None;
        }
        let number = self.next;
        self.next += 1;
        let stage = self.stage.unwrap_or(Stage::Open);
        let status = Arc::new(ConnectionStatus::new(
            stage,
            now.saturating_add(milliseconds(handshake)),
        ));
        let entry = TableEntry {
            status: Arc::clone(&status),
            network,
            prove_by: now.saturating_add(milliseconds(limits.unauthenticated)),
            is_closing: false,
        };
        self.open.insert(number, entry);
        self.unproven.insert(number);
        self.networks.entry(network).or_default().insert(number);
        Some((number, status))
    }

    /// It counts for no limit of strangers from now on.
    pub(super) fn prove(&mut self, number: u64) {
        if let Some(entry) = self.open.get(&number) {
            let network = entry.network;
            self.forget_unproven(number, network);
        }
    }

    /// It is gone.
    pub(super) fn remove(&mut self, number: u64) {
        let Some(entry) = self.open.remove(&number) else {
            return;
        };
        if entry.is_closing {
            self.closing -= 1;
        }
        self.forget_unproven(number, entry.network);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Closes what is overdue at `now`.
    pub(super) fn sweep(&mut self, now: u64) {
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

    /// Closes the oldest without proof; whether there was one.
    pub(super) fn close_oldest(&mut self) -> bool {
        let oldest = self.unproven.first().copied();
        oldest.inspect(|oldest| self.close(*oldest)).is_some()
    }

    /// Has every connection, those to come too, go on to `stage`. Nobody waits
    /// for the end of those without proof.
    pub(super) fn advance(&mut self, stage: Stage) {
        self.stage = Some(stage);
        for entry in self.open.values() {
            entry.status.advance(stage);
        }
        while stage >= Stage::Ending && self.close_oldest() {}
    }

    /// Whether more connections are on their way out than may be.
    pub(super) fn is_crowded(&self) -> bool {
        self.closing >= CLOSING
    }

    fn close_oldest_of(&mut self, network: IpAddr) {
        let oldest = self.networks.get(&network).and_then(BTreeSet::first).copied();
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
        entry.status.advance(Stage::Closed);
        let network = entry.network;
        self.forget_unproven(number, network);
    }

    fn forget_unproven(&mut self, number: u64, network: IpAddr) {
        if !self.unproven.remove(&number) {
            return;
        }
        if let Some(of_network) = self.networks.get_mut(&network) {
            of_network.remove(&number);
            if of_network.is_empty() {
                self.networks.remove(&network);
            }
        }
    }
}

/// What counts as one client: an IPv4 address, or a /64 of IPv6, of which one
/// host may use every address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        max: 4,
        per_address: 2,
        unauthenticated: Duration::from_secs(10),
    };

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn add(table: &mut ConnectionTable, last: u8, now: u64) -> Option<(u64, Arc<ConnectionStatus>)> {
        table.add(address(last), &LIMITS, Duration::from_secs(5), now)
    }

    #[test]
    fn the_oldest_connection_of_an_address_makes_way_for_its_newest() {
        let mut table = ConnectionTable::default();
        let (_, first) = add(&mut table, 1, 0).unwrap();
        let (_, second) = add(&mut table, 1, 0).unwrap();
        let (_, other) = add(&mut table, 2, 0).unwrap();
        add(&mut table, 1, 0).unwrap();
        let stages = [&first, &second, &other].map(|status| status.stage());
        assert_eq!(stages, [Stage::Closed, Stage::Open, Stage::Open]);
    }

    #[test]
    fn at_the_most_the_oldest_without_proof_is_closed_and_never_one_with_proof() {
        let mut table = ConnectionTable::default();
        let opened: Vec<_> = (1..=4).map(|last| add(&mut table, last, 0).unwrap()).collect();
        table.prove(opened[0].0);
        add(&mut table, 5, 0).unwrap();
        let stages: Vec<_> = opened.iter().map(|(_, status)| status.stage()).collect();
        assert_eq!(stages, [Stage::Open, Stage::Closed, Stage::Open, Stage::Open]);
        for (number, _) in &opened[2..] {
            table.prove(*number);
        }
        table.prove(4);
        assert!(add(&mut table, 6, 0).is_none(), "all have proven who they are");
        table.remove(opened[0].0);
        assert!(add(&mut table, 6, 0).is_some());
    }

    #[test]
    fn proven_connections_of_an_address_are_not_limited() {
        let mut table = ConnectionTable::default();
        for _ in 0..4 {
            let (number, _) = add(&mut table, 1, 0).unwrap();
            table.prove(number);
        }
        assert_eq!((table.len(), table.closing), (4, 0));
    }

    #[test]
    fn closed_connections_that_do_not_go_have_a_limit_too() {
        let mut table = ConnectionTable::default();
        let mut accepted = 0;
        for _ in 0..1000 {
            accepted += usize::from(add(&mut table, 1, 0).is_some());
        }
        assert_eq!((accepted, table.len()), (4 + CLOSING, 4 + CLOSING));
        for number in 0..1000 {
            table.remove(number);
        }
        assert_eq!((table.len(), table.closing, table.networks.len()), (0, 0, 0));
    }

    #[test]
    fn what_is_overdue_is_closed() {
        let mut table = ConnectionTable::default();
        let (_, silent) = add(&mut table, 1, 0).unwrap();
        let (_, stranger) = add(&mut table, 2, 0).unwrap();
        let (caller_number, caller) = add(&mut table, 3, 0).unwrap();
        stranger.reached();
        caller.reached();
        table.prove(caller_number);
        let closed = |table: &mut ConnectionTable, now| {
            table.sweep(now);
            [&silent, &stranger, &caller].map(|status| status.stage() == Stage::Closed)
        };
        assert_eq!(closed(&mut table, 4_999), [false, false, false]);
        assert_eq!(closed(&mut table, 5_000), [true, false, false], "its handshake");
        assert_eq!(closed(&mut table, 9_999), [true, false, false]);
        assert_eq!(closed(&mut table, 10_000), [true, true, false], "without proof");
        caller.expect(20_000);
        caller.expect(90_000);
        assert_eq!(closed(&mut table, 19_999), [true, true, false]);
        assert_eq!(
            closed(&mut table, 20_000),
            [true, true, true],
            "a head that began"
        );
    }

    #[test]
    fn a_connection_that_begins_while_draining_knows() {
        let mut table = ConnectionTable::default();
        table.advance(Stage::Draining);
        assert_eq!(add(&mut table, 1, 0).unwrap().1.stage(), Stage::Draining);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), address(1));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
