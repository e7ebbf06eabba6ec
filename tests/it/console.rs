//! The console's listener: who is answered, and with which header fields.

mod callers;
mod clusters;
mod guard;
mod limits;
mod pages;
mod secrets;
mod streams;

use std::fs;
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::support::client::{Connection, Response};
use crate::support::{Builder, Client, Gateway, JANE_GETS, until, v1};

/// One request on a connection of its own without TLS: `head` without its last line.
fn send(gateway: &Gateway, head: &str, body: impl AsRef<[u8]>) -> Response {
    let mut connection = Connection::plain(address(gateway));
    connection.send(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes());
    // An answer may come before the body was read.
    connection.send_what_is_taken(body.as_ref());
    connection
        .receive()
        .unwrap_or_else(|error| panic!("{head}: {error}"))
}

fn address(gateway: &Gateway) -> SocketAddr {
    gateway.addresses.console.unwrap()
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
    // One that is announced as too large is refused before anything of it comes.
    assert_eq!(send(&gateway, &format!("{head}{}", large.len()), "").status, 413);
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

/// The line of each decision that is kept, the newest first.
fn live(gateway: &Gateway, query: &str) -> Vec<Value> {
    let answer = get(gateway, &format!("/live{query}"), "\r\nAccept: application/json");
    answer.json()["decisions"].as_array().unwrap().clone()
}

/// A review that a policy denies, of a user of this name.
fn denied(user: &str) -> String {
    let user = Value::from(user);
    v1(&format!(
        r#"{{"user":{user},"groups":["locked"],"resourceAttributes":{{"verb":"get","resource":"pods","namespace":"ns"}}}}"#
    ))
}

/// Opens the stream of new decisions.
fn stream(gateway: &Gateway, query: &str, fields: &str) -> Connection<TcpStream> {
    let mut connection = Connection::plain(address(gateway));
    connection
        .send(format!("GET /live/events{query} HTTP/1.1\r\nHost: localhost{fields}\r\n\r\n").as_bytes());
    let head = connection.read_until("retry: 2000\n\n");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    connection
}

#[test]
fn what_is_decided_is_shown_as_the_decision_log_has_it() {
    let gateway = on_loopback();
    let mut caller = gateway.connect();
    caller.authorize(v1(JANE_GETS));
    caller.authorize(denied("joe"));
    caller.authorize(v1(
        r#"{"user":"jane","resourceAttributes":{"verb":"delete","resource":"pods","namespace":"ns"}}"#,
    ));
    let shown = live(&gateway, "");
    let decisions: Vec<_> = shown.iter().map(|one| one["line"]["decision"].clone()).collect();
    assert_eq!(decisions, ["noOpinion", "deny", "allow"]);
    assert_eq!(live(&gateway, "?decision=deny&user=joe").len(), 1);
    assert_eq!(live(&gateway, "?policy=locked-out").len(), 1);
    assert_eq!(live(&gateway, "?user=nobody").len(), 0);
    // What came nearest is for the console alone, unless the log wants it, too.
    assert_ne!(shown[0]["line"]["nearMisses"], Value::Null);
    let mut logged: Vec<Value> = Vec::new();
    until("the log has all three", || {
        let text = fs::read_to_string(gateway.file("decisions.log")).unwrap();
        logged = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        logged.len() == 3
    });
    for (line, shown) in logged.iter().rev().zip(&shown) {
        let mut shown = shown["line"].clone();
        shown.as_object_mut().unwrap().remove("nearMisses");
        assert_eq!(*line, shown);
    }
    for bad in ["?decision=no", "?usr=joe", "?user=a&user=b"] {
        assert_eq!(get(&gateway, &format!("/live{bad}"), "").status, 400, "{bad}");
    }
}

#[test]
fn one_decision_is_explained_and_can_be_asked_again() {
    let gateway = on_loopback();
    gateway.connect().authorize(denied("<script>alert(1)</script>"));
    let sequence = live(&gateway, "")[0]["sequence"].as_u64().unwrap();
    let page = get(&gateway, &format!("/live/{sequence}"), "");
    let page = String::from_utf8(page.body).unwrap();
    for text in [
        "/policies/AuthorizationPolicy/-/locked-out",
        "this account is locked",
        "&#60;script&#62;",
        "/what-if?user=%3Cscript%3E",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("<script>alert"), "{page}");
    for (path, said) in [
        ("/live/99", "there is no decision 99 yet"),
        ("/live/x", "`x` is not the number of a decision"),
    ] {
        let answer = get(&gateway, path, "\r\nAccept: application/json");
        assert_eq!(answer.status, 404);
        assert!(
            answer.json()["error"].as_str().unwrap().starts_with(said),
            "{path}"
        );
    }
}

#[test]
fn a_denial_comes_to_whoever_watches_and_a_browser_resumes() {
    let gateway = on_loopback();
    let mut caller = gateway.connect();
    let mut all = stream(&gateway, "", "");
    let mut of_jim = stream(&gateway, "?user=jim", "");
    caller.authorize(denied("joe"));
    let events = all.read_until("event: seen");
    assert!(
        events.contains("event: denial") && events.contains("<td>joe</td>"),
        "{events}"
    );
    let id = all.read_until("data:");
    assert!(id.contains("id: 1\n"), "{id}");
    drop(all);
    caller.authorize(denied("jack"));
    caller.authorize(denied("jim"));
    // The filter lets one of the three through.
    let events = of_jim.read_until("event: seen");
    assert!(events.contains("<td>jim</td>"), "{events}");
    assert!(!events.contains("joe") && !events.contains("jack"), "{events}");
    // After a break what came meanwhile is sent, and nothing twice.
    let mut resumed = stream(&gateway, "", "\r\nLast-Event-ID: 1");
    let events = resumed.read_until("event: seen");
    assert!(
        events.contains("jack") && events.contains("jim") && !events.contains("joe"),
        "{events}"
    );
    let refused = get(&gateway, "/live/events?decision=no", "");
    assert_eq!(refused.status, 400);
}

#[test]
fn of_too_many_streams_the_oldest_ends_and_reviews_are_answered() {
    let gateway = on_loopback();
    let mut streams: Vec<_> = (0..65).map(|_| stream(&gateway, "", "")).collect();
    let last = streams[0].read_until("event: closed");
    assert!(!last.contains("denial"), "{last}");
    gateway.connect().authorize(denied("joe"));
    for stream in &mut streams[1..] {
        stream.read_until("<td>joe</td>");
    }
}

#[test]
fn over_tls_a_stream_ends_when_the_callers_are_others() {
    let gateway = encrypted();
    let mut connection = gateway.stranger().connect(gateway.addresses.console.unwrap());
    connection.send(
        b"GET /live/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic dmlld2VyOnJpZ2h0\r\n\r\n",
    );
    connection.read_until("retry: 2000\n\n");
    gateway.reload(&[("policies/more.yaml", b"# something else\n")]);
    // The last chunk: the stream is over.
    connection.read_until("0\r\n\r\n");
}
