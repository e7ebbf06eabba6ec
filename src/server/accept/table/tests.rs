//! What makes way for what.

use crate::server::accept::table::*;

const LIMITS: ConnectionLimits = ConnectionLimits {
    max: 4,
    per_address: 2,
    authentication_timeout: Duration::from_secs(10),
};

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn cluster() -> Arc<str> {
    "default".into()
}

fn add(table: &mut ConnectionTable, last: u8, now: u64) -> Option<(u64, Arc<ConnectionStatus>)> {
    table.add(address(last), LIMITS.into(), Duration::from_secs(5), now)
}

#[test]
fn the_oldest_connection_of_an_address_makes_way_for_its_newest() {
    let mut table = ConnectionTable::default();
    let (_, first) = add(&mut table, 1, 0).unwrap();
    let (_, second) = add(&mut table, 1, 0).unwrap();
    let (_, other) = add(&mut table, 2, 0).unwrap();
    add(&mut table, 1, 0).unwrap();
    let stages = [&first, &second, &other].map(|status| status.stage());
    assert_eq!(
        stages,
        [
            ConnectionStage::Closed,
            ConnectionStage::Open,
            ConnectionStage::Open
        ]
    );
}

#[test]
fn what_is_silent_makes_way_before_a_handshake_that_has_begun() {
    for per_address in [2, 4] {
        let limits = ConnectionLimits {
            max: 4,
            per_address,
            ..LIMITS
        };
        let mut table = ConnectionTable::default();
        let mut open = || {
            table
                .add(address(1), limits.into(), Duration::from_secs(5), 0)
                .unwrap()
        };
        let (number, begun) = open();
        let (_, silent) = open();
        table.has_sent(number);
        for _ in 0..20 {
            table
                .add(address(1), limits.into(), Duration::from_secs(5), 0)
                .unwrap();
        }
        let stages = [&begun, &silent].map(|status| status.stage());
        assert_eq!(stages, [ConnectionStage::Open, ConnectionStage::Closed]);
        assert!(table.close_oldest());
        assert_eq!(begun.stage(), ConnectionStage::Open);
        while table.close_oldest() {}
        assert_eq!(begun.stage(), ConnectionStage::Closed);
        assert!(table.by_network.is_empty() && table.silent.is_empty());
    }
}

#[test]
fn at_the_most_the_oldest_without_proof_is_closed_and_never_one_with_proof() {
    let mut table = ConnectionTable::default();
    let opened: Vec<_> = (1..=4).map(|last| add(&mut table, last, 0).unwrap()).collect();
    table.prove(opened[0].0, Some(&cluster()));
    add(&mut table, 5, 0).unwrap();
    let stages: Vec<_> = opened.iter().map(|(_, status)| status.stage()).collect();
    assert_eq!(
        stages,
        [
            ConnectionStage::Open,
            ConnectionStage::Closed,
            ConnectionStage::Open,
            ConnectionStage::Open
        ]
    );
    for (number, _) in &opened[2..] {
        table.prove(*number, Some(&cluster()));
    }
    table.prove(4, Some(&cluster()));
    assert!(add(&mut table, 6, 0).is_none(), "all have proven who they are");
    table.remove(opened[0].0);
    assert!(add(&mut table, 6, 0).is_some());
}

#[test]
fn proven_connections_of_an_address_are_not_limited() {
    let mut table = ConnectionTable::default();
    for _ in 0..4 {
        let (number, _) = add(&mut table, 1, 0).unwrap();
        table.prove(number, Some(&cluster()));
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
    assert_eq!((accepted, table.len()), (4 + MAX_CLOSING, 4 + MAX_CLOSING));
    for number in 0..1000 {
        table.remove(number);
    }
    assert_eq!((table.len(), table.closing, table.by_network.len()), (0, 0, 0));
}

#[test]
fn what_is_overdue_is_closed() {
    let mut table = ConnectionTable::default();
    let (_, silent) = add(&mut table, 1, 0).unwrap();
    let (_, stranger) = add(&mut table, 2, 0).unwrap();
    let (caller_number, caller) = add(&mut table, 3, 0).unwrap();
    stranger.reached();
    caller.reached();
    table.prove(caller_number, Some(&cluster()));
    let closed = |table: &mut ConnectionTable, now| {
        table.sweep(now);
        [&silent, &stranger, &caller].map(|status| status.stage() == ConnectionStage::Closed)
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
    table.advance(ConnectionStage::Draining);
    assert_eq!(
        add(&mut table, 1, 0).unwrap().1.stage(),
        ConnectionStage::Draining
    );
}

#[test]
fn a_network_of_ipv6_counts_as_one_address() {
    let of = |text: &str| network(text.parse().unwrap());
    assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    assert_eq!(of("::ffff:10.0.0.1"), address(1));
    assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
}

#[test]
fn connections_that_no_caller_has_used_make_way_for_others() {
    let mut table = ConnectionTable::default();
    let opened: Vec<_> = (1..=4).map(|last| add(&mut table, last, 0).unwrap()).collect();
    table.prove(opened[0].0, Some(&cluster()));
    for (number, _) in &opened[1..] {
        table.prove(*number, None);
    }
    // The second turns out to be a caller's.
    table.prove(opened[1].0, Some(&cluster()));
    add(&mut table, 5, 0).unwrap();
    let stages: Vec<_> = opened.iter().map(|(_, status)| status.stage()).collect();
    assert_eq!(
        stages,
        [
            ConnectionStage::Open,
            ConnectionStage::Open,
            ConnectionStage::Closed,
            ConnectionStage::Open
        ]
    );
}

#[test]
fn one_cluster_s_connections_leave_the_others_their_part() {
    let limits = AcceptLimits {
        connections: ConnectionLimits { max: 8, ..LIMITS },
        clusters: 2,
    };
    let [east, west] = ["east", "west"].map(Arc::<str>::from);
    let mut table = ConnectionTable::default();
    let open = |table: &mut ConnectionTable, cluster: &Arc<str>| {
        let added = table.add(address(1), limits, Duration::from_secs(5), 0);
        added.inspect(|(number, _)| table.prove(*number, Some(cluster)))
    };
    let of_east: Vec<_> = (0..8).map(|_| open(&mut table, &east).unwrap()).collect();
    assert!((0..2).all(|_| open(&mut table, &west).is_some()));
    let stages: Vec<_> = of_east.iter().map(|(_, status)| status.stage()).collect();
    assert_eq!(
        stages[..6],
        [ConnectionStage::Open; 6],
        "a quarter of 8 and the common half"
    );
    assert_eq!(stages[6..], [ConnectionStage::Closed; 2], "the newest");
    assert!(open(&mut table, &west).is_none(), "nobody has more than its part");
    for (number, _) in &of_east {
        table.remove(*number);
    }
    assert!(!table.of_clusters.contains_key(&east));
    assert!(open(&mut table, &west).is_some());
}

#[test]
fn a_caller_that_reads_nothing_for_its_time_is_closed() {
    let mut table = ConnectionTable::default();
    let (number, status) = add(&mut table, 1, 0).unwrap();
    table.prove(number, Some(&cluster()));
    status.reached();
    status.expect_reader(30_000);
    status.expect_reader(90_000);
    table.sweep(29_999);
    status.clear_read_deadline();
    status.expect_reader(60_000);
    table.sweep(59_999);
    assert_eq!(status.stage(), ConnectionStage::Open);
    table.sweep(60_000);
    assert_eq!(status.stage(), ConnectionStage::Closed);
}
