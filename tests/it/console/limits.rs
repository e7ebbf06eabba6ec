//! What the console may cost: nothing that a browser does or leaves undone keeps a review, a
//! probe or another browser from its answer.

use super::{address, get, on_loopback};
use crate::support::client::Connection;
use crate::support::{JANE_GETS, v1};

#[test]
fn connections_that_send_nothing_or_half_a_head_keep_nobody_out() {
    let gateway = on_loopback();
    let console = address(&gateway);
    let mut silent: Vec<_> = (0..300).map(|_| Connection::plain(console)).collect();
    for connection in &mut silent[..150] {
        connection.send(b"GET / HTTP/1.1\r\nHost: lo");
    }
    assert_eq!(get(&gateway, "/", "").status, 200);
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
    let (status, _) = crate::support::get(gateway.addresses.admin, "/readyz");
    assert_eq!(status, 200);
}

#[test]
fn a_head_or_a_query_without_end_is_refused() {
    let gateway = on_loopback();
    let console = address(&gateway);
    for head in [
        format!("GET /?user={} HTTP/1.1\r\nHost: {console}", "a".repeat(1 << 20)),
        format!("GET / HTTP/1.1\r\nHost: {console}\r\nX: {}", "a".repeat(1 << 20)),
        format!("GET / HTTP/1.1\r\nHost: {console}{}", "\r\nX: y".repeat(10_000)),
    ] {
        let mut connection = Connection::plain(console);
        connection.send_what_is_taken(format!("{head}\r\n\r\n").as_bytes());
        let status = connection.receive().map_or(0, |answer| answer.status);
        assert!(status == 0 || (400..500).contains(&status), "{status}");
    }
    // A long query of names that mean nothing costs no more than its answer.
    let pairs = "a=b&".repeat(3000);
    let answer = get(&gateway, &format!("/?{pairs}"), "");
    assert_eq!(answer.status, 400);
    assert!(answer.body.len() < 20_000, "{}", answer.body.len());
}
