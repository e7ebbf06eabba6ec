//! The end: readiness first, nothing lost, no longer than needed.

use std::net::TcpStream;
use std::time::Instant;

use crate::support::{Builder, Gateway, JANE_GETS, get, request, until, v1};

#[test]
fn what_is_in_flight_is_answered_and_what_still_comes() {
    let mut gateway = Gateway::usual();
    let whole = request(
        "POST /authorize HTTP/1.1\r\nContent-Type: application/json",
        v1(JANE_GETS).as_bytes(),
    );
    let (half, rest) = whole.split_at(whole.len() - 10);
    let mut slow = gateway.connect();
    slow.send(half);
    let mut idle = gateway.connect();
    assert_eq!(idle.authorize(v1(JANE_GETS)).header("connection"), None);
    until("it is in flight", || {
        gateway.metric(r#"portcullis_in_flight_requests{endpoint="authorize"}"#) == 1.0
    });

    gateway.stop();
    until("readiness fails", || {
        get(gateway.addresses.admin, "/readyz").0 == 503
    });
    let (_, checks) = get(gateway.addresses.admin, "/readyz?verbose");
    assert!(checks.contains("[-]serving failed: draining"), "{checks}");
    assert_eq!(get(gateway.addresses.admin, "/livez").0, 200);

    let response = idle.authorize(v1(JANE_GETS));
    assert_eq!(
        (response.status, response.header("connection")),
        (200, Some("close"))
    );
    assert!(idle.is_closed());

    slow.send(rest);
    let response = slow.receive().unwrap();
    assert_eq!(
        (response.status, response.header("connection")),
        (200, Some("close"))
    );
    gateway.join();
    assert!(TcpStream::connect(gateway.addresses.server).is_err());
    assert!(TcpStream::connect(gateway.addresses.admin).is_err());
}

#[test]
fn an_idle_gateway_ends_at_once_and_its_log_is_written() {
    let mut gateway = Gateway::usual();
    let mut idle = gateway.connect();
    assert_eq!(idle.authorize(v1(JANE_GETS)).status, 200);
    let start = Instant::now();
    gateway.stop();
    gateway.join();
    assert!(start.elapsed().as_secs() < 10, "long before `shutdownTimeout`");
    assert!(idle.is_closed());
    assert_eq!(
        std::fs::read_to_string(gateway.file("decisions.log"))
            .unwrap()
            .lines()
            .count(),
        1
    );
}

#[test]
fn a_request_that_never_ends_is_cut_off_after_the_drain_time() {
    let mut gateway = Builder::new().shutdown_timeout("300ms").start();
    let mut slow = gateway.connect();
    slow.send(
        b"POST /authorize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n",
    );
    until("it is in flight", || {
        gateway.metric(r#"portcullis_in_flight_requests{endpoint="authorize"}"#) == 1.0
    });
    gateway.stop();
    gateway.join();
    let response = slow.receive().unwrap();
    assert_eq!(
        (response.status, response.header("retry-after")),
        (503, Some("1"))
    );
    assert!(slow.is_closed());
}
