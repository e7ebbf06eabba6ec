//! The pages, each at its URL.

use std::net::SocketAddr;

use super::plain::{Answer, ask};
use crate::support::{Builder, Gateway};

/// One path of each view.
pub(super) const VIEWS: [&str; 1] = ["/"];

/// A gateway with a console on loopback.
pub(super) fn with_console() -> Gateway {
    Builder::new().console("{address: '127.0.0.1:0'}").start()
}

pub(super) fn address(gateway: &Gateway) -> SocketAddr {
    gateway.addresses.console.unwrap()
}

/// GETs a path as a browser does whose address bar says so.
pub(super) fn get(gateway: &Gateway, path: &str) -> Answer {
    let address = address(gateway);
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}"), b"")
}

#[test]
fn each_view_is_a_page_and_json_under_one_url() {
    let gateway = with_console();
    for path in VIEWS {
        let page = get(&gateway, path);
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        assert_eq!(
            page.header("content-type"),
            Some("text/html; charset=utf-8"),
            "{path}"
        );
        let wanted = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: application/json",
            address(&gateway)
        );
        let json = ask(address(&gateway), &wanted, b"");
        assert_eq!(
            (json.status, json.header("content-type")),
            (200, Some("application/json")),
            "{path}"
        );
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(&json.body);
        assert!(
            parsed.is_ok_and(|value| value.is_object()),
            "{path}: {}",
            json.body
        );
        assert_eq!(
            json.header("vary").map(str::to_ascii_lowercase).as_deref(),
            Some("accept"),
            "{path}"
        );
    }
}

#[test]
fn what_is_not_there_is_404() {
    let gateway = with_console();
    for path in [
        "/nowhere",
        "/live/0x1",
        "/live/-1",
        "/live/99999999999999999999999",
        "/policies/NoKind/-/x",
        "/assets/",
        "/assets/nothing.js",
        "/assets/../style.css",
        "/assets/..%2fstyle.css",
        "/assets/%2e%2e/%2e%2e/etc/passwd",
        "/assets//etc/passwd",
        "//localhost/",
        "/metrics",
        "/authorize",
        "/validate",
        "/readyz",
    ] {
        let answer = get(&gateway, path);
        assert_eq!(answer.status, 404, "{path}: {}", answer.body);
    }
}
