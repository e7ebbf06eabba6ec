//! The console's listener: who is answered, and with which header fields.

mod callers;
mod guard;
mod limits;
mod pages;
mod plain;

use std::fs;

use crate::support::client::{Connection, Response};
use crate::support::{Builder, Client, Gateway};

/// Sends `head`, to which nothing is added, to a console without TLS.
fn send(gateway: &Gateway, head: &str, body: &str) -> Response {
    let mut connection = Connection::plain(gateway.addresses.console.unwrap());
    connection.send(format!("{head}\r\n\r\n{body}").as_bytes());
    connection.receive().unwrap()
}

/// GETs `path` as `localhost` with further fields.
fn get(gateway: &Gateway, path: &str, fields: &str) -> Response {
    send(
        gateway,
        &format!("GET {path} HTTP/1.1\r\nHost: localhost{fields}"),
        "",
    )
}

fn on_loopback() -> Gateway {
    Builder::new().console("{address: '127.0.0.1:0'}").start()
}

#[test]
fn without_the_section_there_is_no_console() {
    assert_eq!(Gateway::usual().addresses.console, None);
}

#[test]
fn every_answer_forbids_what_is_not_from_here() {
    let gateway = on_loopback();
    for (path, status) in [("/", 200), ("/nowhere", 404), ("/assets/style.css", 200)] {
        let answer = get(&gateway, path, "");
        assert_eq!(answer.status, status, "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'self'; "), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        assert_eq!(answer.header("set-cookie"), None, "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
    }
}

#[test]
fn pages_have_no_script_or_style_of_their_own() {
    let gateway = on_loopback();
    let page = String::from_utf8(get(&gateway, "/", "").body).unwrap();
    assert!(
        page.contains("<html lang=\"en\">") && page.contains("<h1>Now</h1>"),
        "{page}"
    );
    for forbidden in [
        "<style",
        " style=",
        " onclick=",
        "javascript:",
        "http://",
        "https://",
    ] {
        assert!(!page.contains(forbidden), "{forbidden} in {page}");
    }
    let scripts = page.matches("<script").count();
    assert_eq!(scripts, page.matches("<script src=\"/assets/").count(), "{page}");
}

#[test]
fn a_view_is_html_or_json_by_what_is_accepted() {
    let gateway = on_loopback();
    let html = get(&gateway, "/", "\r\nAccept: text/html");
    assert_eq!(html.header("content-type"), Some("text/html; charset=utf-8"));
    let json = get(&gateway, "/", "\r\nAccept: application/json");
    assert_eq!(json.header("content-type"), Some("application/json"));
    let revision = gateway.state.current().revision.to_string();
    assert_eq!(json.json()["revision"], *revision);
    assert!(String::from_utf8(html.body).unwrap().contains(&revision));
    let missing = get(&gateway, "/nowhere", "\r\nAccept: application/json");
    assert_eq!(missing.json()["error"], "there is no page `/nowhere`");
}

#[test]
fn a_foreign_name_or_site_learns_nothing() {
    let gateway = on_loopback();
    let revision = gateway.state.current().revision.to_string();
    for (head, status) in [
        ("GET / HTTP/1.1\r\nHost: evil.example", 421),
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example:9091", 421),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example",
            403,
        ),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site",
            403,
        ),
        (
            "POST /what-if HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nContent-Length: 0",
            403,
        ),
        ("DELETE / HTTP/1.1\r\nHost: localhost", 405),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0", 405),
    ] {
        let answer = send(&gateway, head, "");
        assert_eq!(answer.status, status, "{head}");
        let body = String::from_utf8(answer.body).unwrap();
        assert!(!body.contains(&revision), "{head}: {body}");
    }
}

#[test]
fn a_form_is_bounded() {
    let gateway = on_loopback();
    let head = "POST /what-if HTTP/1.1\r\nHost: localhost\r\n\
                Content-Type: application/x-www-form-urlencoded\r\nContent-Length: ";
    let large = "a".repeat((1 << 20) + 1);
    let answer = send(&gateway, &format!("{head}{}", large.len()), &large);
    assert_eq!(answer.status, 413);
    let head = "POST /what-if HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 1";
    assert_eq!(send(&gateway, head, "a").status, 415);
}

/// A console over TLS, which the caller `viewer` may use.
fn encrypted() -> Gateway {
    let kubeconfig = "apiVersion: v1\nkind: Config\n\
        clusters: [{name: c, cluster: {server: 'https://localhost'}}]\n\
        users: [{name: u, user: {username: viewer, password: right}}]\n\
        contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";
    Builder::new()
        .file("viewer.kubeconfig", kubeconfig)
        .more_callers("- {kubeconfig: viewer.kubeconfig, endpoints: [console]}\n")
        .console("{address: '127.0.0.1:0', tls: {certificate: server.crt, privateKey: server.key}}")
        .start()
}

#[test]
fn over_tls_only_callers_who_may_use_the_console_see_it() {
    let gateway = encrypted();
    let address = gateway.addresses.console.unwrap();
    let stranger = Client {
        authority: &gateway.authority,
        certificate: None,
    };
    let basic = "Authorization: Basic dmlld2VyOnJpZ2h0";
    for (client, field, status) in [
        (&stranger, "A: b", 401),
        (&stranger, "Authorization: Basic dmlld2VyOndyb25n", 401),
        (&stranger, "Authorization: Bearer right-token", 403),
        // The API server may send reviews, and that is all.
        (&gateway.client(), "A: b", 403),
        (&stranger, basic, 200),
    ] {
        for path in ["/", "/assets/style.css", "/nowhere"] {
            let mut connection = client.connect(address);
            let answer = connection.request(&format!("GET {path} HTTP/1.1\r\n{field}"), b"");
            let expected = if status == 200 && path == "/nowhere" {
                404
            } else {
                status
            };
            assert_eq!(answer.status, expected, "{path} {field}");
            let challenge = answer.header("www-authenticate").unwrap_or_default();
            assert_eq!(challenge.contains("Basic"), status == 401, "{challenge}");
        }
    }
    // Who may use the console may not send reviews.
    let mut connection = stranger.connect(gateway.addresses.server);
    let head = format!("POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\n{basic}");
    assert_eq!(connection.request(&head, b"{}").status, 403);
}

#[test]
fn its_certificate_is_replaced_by_a_reload() {
    let gateway = encrypted();
    let address = gateway.addresses.console.unwrap();
    let stranger = gateway.stranger();
    let shown = |client: &Client<'_>| {
        let connection = client.connect(address);
        connection.tls().peer_certificate().unwrap().to_der().unwrap()
    };
    let before = shown(&stranger);
    let fresh = gateway.authority.server();
    gateway.reload(&[("server.crt", &fresh.pem()), ("server.key", &fresh.key_pem())]);
    assert_ne!(shown(&stranger), before);
    assert_eq!(fs::read(gateway.file("server.crt")).unwrap(), fresh.pem());
}
