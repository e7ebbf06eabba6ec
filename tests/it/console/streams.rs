//! Pages that follow decisions: what is decided cannot forge their events, and what they do or
//! leave undone delays nobody.

use std::net::TcpListener;

use serde_json::json;

use super::{address, get, on_loopback, stream};
use crate::support::{JANE_GETS, until, v1};

/// Streams at once: another makes the oldest go.
const STREAMS: usize = 64;

/// A review of a user of this name.
fn of_user(user: &str) -> String {
    let spec = json!({"user": user, "resourceAttributes": {"verb": "get", "resource": "pods"}});
    v1(&spec.to_string())
}

/// Events end with an empty line, and their fields with the line.
#[test]
fn a_name_cannot_forge_an_event() {
    let gateway = on_loopback();
    let mut stream = stream(&gateway, "", "");
    let mut caller = gateway.connect();
    for end in ["\n", "\r", "\r\n", "\0", "\u{85}", "\u{2028}"] {
        let forged =
            format!("u{end}{end}event: forged{end}id: forged{end}data: forged{end}retry: 1{end}{end}");
        let spec = json!({"user": forged, "groups": [forged], "resourceAttributes": {"verb": forged, "resource": forged, "namespace": forged, "name": forged}});
        assert_eq!(caller.authorize(v1(&spec.to_string())).status, 200, "{spec}");
    }
    assert_eq!(caller.authorize(of_user("the-last")).status, 200);
    let text = stream.read_until("<td>the-last</td>") + &stream.read_until("event: seen");
    assert!(text.contains("event: forged"), "the names are shown: {text}");
    let forged = ["event: forged", "id: forged", "data: forged", "retry: 1"];
    let lines = text.split(['\n', '\r']);
    assert_eq!(lines.filter(|line| forged.contains(line)).count(), 0, "{text}");
}

/// More than the buffers of a socket hold, with nobody who reads them.
#[test]
fn a_browser_that_reads_nothing_delays_nobody() {
    let gateway = on_loopback();
    let _unread: Vec<_> = (0..8).map(|_| stream(&gateway, "", "")).collect();
    let mut read = stream(&gateway, "?user=the-last", "");
    let mut caller = gateway.connect();
    let long = "x".repeat(4000);
    for number in 0..2000 {
        let review = of_user(&format!("u-{number}-{long}"));
        assert_eq!(caller.authorize(review).status, 200);
    }
    assert_eq!(caller.authorize(of_user("the-last")).status, 200);
    read.read_until("<td>the-last</td>");
    assert_eq!(get(&gateway, "/", "").status, 200);
}

/// A user who closes a page has its stream closed, so that it takes no place of another.
#[test]
fn pages_that_were_closed_keep_nobody_out() {
    let gateway = on_loopback();
    for _ in 0..4 * STREAMS {
        drop(stream(&gateway, "", ""));
    }
    let mut open: Vec<_> = (0..STREAMS).map(|_| stream(&gateway, "", "")).collect();
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
    for stream in &mut open {
        let events = stream.read_until("<td>jane</td>");
        assert!(!events.contains("event: closed"), "{events}");
    }
}

#[test]
fn a_gateway_that_ends_ends_its_streams() {
    let mut gateway = on_loopback();
    let console = address(&gateway);
    let mut stream = stream(&gateway, "", "");
    gateway.stop();
    gateway.join();
    stream.read_to_end();
    until("the port is free", || TcpListener::bind(console).is_ok());
}
