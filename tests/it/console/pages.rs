//! The pages, each at its URL.

use super::{get, on_loopback};

/// One URL of each view.
pub(super) const VIEWS: [&str; 8] = [
    "/",
    "/live",
    "/who-can?verb=get&resource=pods",
    "/what-can?user=jane",
    "/what-if?user=jane&verb=get&resource=pods",
    "/policies",
    "/webhooks",
    "/clusters",
];

#[test]
fn each_view_is_a_page_and_json_under_one_url() {
    let gateway = on_loopback();
    for path in VIEWS {
        let page = get(&gateway, path, "");
        assert_eq!(page.status, 200, "{path}: {}", page.text());
        assert_eq!(
            page.header("content-type"),
            Some("text/html; charset=utf-8"),
            "{path}"
        );
        let json = get(&gateway, path, "\r\nAccept: application/json");
        assert_eq!(
            (json.status, json.header("content-type")),
            (200, Some("application/json")),
            "{path}"
        );
        let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&json.body);
        assert!(
            parsed.is_ok_and(|value| value.is_object()),
            "{path}: {}",
            json.text()
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
    let gateway = on_loopback();
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
        let answer = get(&gateway, path, "");
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
    }
}
