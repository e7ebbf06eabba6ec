//! Which requests are answered at all: a web page elsewhere, of another port or under another
//! name reads nothing and changes nothing.

use super::pages::VIEWS;
use super::{address, get, on_loopback, send};
use crate::support::client::Connection;

/// The names by which this machine is reached from itself.
#[test]
fn only_names_of_this_machine_are_answered() {
    let gateway = on_loopback();
    let address = address(&gateway);
    let port = address.port();
    let of_host = |host: &str| send(&gateway, &format!("GET / HTTP/1.1\r\nHost: {host}"), b"");
    for host in [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("LocalHost:{port}"),
        format!("[::1]:{port}"),
        // What `kubectl port-forward` and `ssh -L` lead here from another port.
        "localhost:8080".to_owned(),
        "127.0.0.1".to_owned(),
    ] {
        let answer = of_host(&host);
        assert_eq!(answer.status, 200, "{host}: {}", answer.text());
    }
    let revision = gateway.state.current().revision.to_string();
    for host in [
        format!("localhost.evil.example:{port}"),
        format!("127.0.0.1.nip.io:{port}"),
        format!("127.0.0.1.:{port}"),
        format!("evil.example:{port}"),
        format!("localhost:{port}.evil.example"),
        format!("evil.example#localhost:{port}"),
        format!("localhost@evil.example:{port}"),
        format!("evil.example/localhost:{port}"),
        format!("xlocalhost:{port}"),
        format!("localhostx:{port}"),
        format!("0.0.0.0:{port}"),
        format!("127.1:{port}"),
        format!("2130706433:{port}"),
        format!("[::]:{port}"),
        format!("[::1]evil.example:{port}"),
        format!("10.0.0.1:{port}"),
        "localhost:".repeat(2) + "80",
        "localhost:x".to_owned(),
        "localhost:99999".to_owned(),
        String::new(),
        ":".to_owned(),
        "a".repeat(2000),
    ] {
        let answer = of_host(&host);
        assert!((400..500).contains(&answer.status), "{host}: {}", answer.status);
        assert!(!answer.text().contains(&revision), "{host}: {}", answer.text());
    }
}

/// By more than one Host, or by an address in the request line, a proxy and this listener could
/// take the same request for different ones.
#[test]
fn a_request_with_two_names_or_none_is_refused() {
    let gateway = on_loopback();
    let address = address(&gateway);
    for head in [
        "GET / HTTP/1.1".to_owned(),
        "GET / HTTP/1.0".to_owned(),
        format!("GET / HTTP/1.1\r\nHost: {address}\r\nHost: evil.example"),
        format!("GET / HTTP/1.1\r\nHost: evil.example\r\nHost: {address}"),
        format!("GET http://evil.example/ HTTP/1.1\r\nHost: {address}"),
        format!("GET https://{address}@evil.example/ HTTP/1.1\r\nHost: {address}"),
        format!("GET http://{address}/ HTTP/1.1\r\nHost: evil.example"),
        format!("CONNECT evil.example:443 HTTP/1.1\r\nHost: {address}"),
        format!("GET evil.example HTTP/1.1\r\nHost: {address}"),
        format!("GET / HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: {address}"),
        format!("GET / HTTP/1.1\r\nHost: evil.example\r\nForwarded: host={address}"),
        format!("GET / HTTP/1.1\r\nHost : {address}"),
        format!("GET / HTTP/1.1\r\n Host: {address}"),
    ] {
        let answer = send(&gateway, &head, b"");
        assert!((400..500).contains(&answer.status), "{head}: {}", answer.status);
    }
}

#[test]
fn what_a_body_might_hide_is_no_second_request() {
    let gateway = on_loopback();
    let address = address(&gateway);
    for head in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: -1",
        "Content-Length: +5",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
    ] {
        let hidden = format!("0\r\n\r\nGET /policies HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let mut connection = Connection::plain(address);
        let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\n{head}\r\n\r\n{hidden}");
        connection.send(request.as_bytes());
        let answer = connection.receive().unwrap();
        assert!((400..500).contains(&answer.status), "{head}: {}", answer.status);
        // An answer to the hidden request would come on this connection.
        assert!(!connection.read_to_end().contains("HTTP/1.1 200"), "{head}");
    }
}

/// What a browser adds to a request that a page of another origin makes.
const FOREIGN: [&str; 7] = [
    "Origin: https://evil.example",
    "Origin: null",
    // Another port of this machine is another origin, though the same site.
    "Origin: http://localhost:1",
    "Origin: https://localhost.evil.example",
    "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script",
    "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty",
    "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe",
];

#[test]
fn a_page_of_another_origin_gets_nothing() {
    let gateway = on_loopback();
    let address = address(&gateway);
    for path in VIEWS.into_iter().chain(["/live/events", "/assets/console.js"]) {
        for foreign in FOREIGN {
            let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{foreign}");
            let answer = send(&gateway, &head, b"");
            assert_eq!(answer.status, 403, "{path}, {foreign}");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
    }
}

#[test]
fn a_link_from_elsewhere_opens_a_page_and_one_of_its_own_too() {
    let gateway = on_loopback();
    let address = address(&gateway);
    for fetch in [
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document",
        "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document",
        "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty",
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: {address}\r\n{fetch}");
        assert_eq!(send(&gateway, &head, b"").status, 200, "{fetch}");
    }
    let head = format!("GET / HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}");
    assert_eq!(send(&gateway, &head, b"").status, 200);
}

const FORM: &[u8] = b"manifest=&operation=CREATE";

#[test]
fn a_form_is_taken_from_its_own_page_alone() {
    let gateway = on_loopback();
    let address = address(&gateway);
    let post = |more: &str| {
        let head = format!(
            "POST /what-if HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}{more}",
            FORM.len()
        );
        send(&gateway, &head, FORM).status
    };
    for foreign in FOREIGN {
        assert_eq!(post(&format!("\r\n{foreign}")), 403, "{foreign}");
    }
    // A navigation by a form of another page, as a GET from there is allowed.
    for site in ["cross-site", "same-site"] {
        let navigation =
            format!("\r\nSec-Fetch-Site: {site}\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document");
        assert_eq!(post(&navigation), 403, "{site}");
    }
    let own = format!("\r\nOrigin: http://{address}\r\nSec-Fetch-Site: same-origin");
    assert!([200, 400, 404].contains(&post(&own)), "{}", post(&own));
}

/// Types that a form or a page elsewhere can send without asking first.
#[test]
fn a_body_of_another_type_is_refused() {
    let gateway = on_loopback();
    let address = address(&gateway);
    for kind in [
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/json",
        "",
    ] {
        let head = format!(
            "POST /what-if HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nContent-Type: {kind}\r\nContent-Length: {}",
            FORM.len()
        );
        assert_eq!(send(&gateway, &head, FORM).status, 415, "{kind}");
    }
}

#[test]
fn nothing_but_reading_is_allowed() {
    let gateway = on_loopback();
    let address = address(&gateway);
    for path in VIEWS
        .into_iter()
        .chain(["/live/events", "/assets/style.css", "/nowhere"])
    {
        for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "get"] {
            let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0");
            let answer = send(&gateway, &head, b"");
            assert_eq!(answer.status, 405, "{method} {path}");
            let allowed = answer.header("allow").unwrap_or_default();
            assert!(allowed.contains("GET"), "{method} {path}: {allowed}");
            assert!(
                answer
                    .headers
                    .iter()
                    .all(|(name, _)| !name.starts_with("access-control"))
            );
        }
    }
    for path in ["/", "/live", "/policies", "/live/events", "/assets/style.css"] {
        let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0");
        assert_eq!(send(&gateway, &head, b"").status, 405, "POST {path}");
    }
}

#[test]
fn every_answer_says_what_a_browser_must_not_do() {
    let gateway = on_loopback();
    let console = address(&gateway);
    let request = |head: &str| send(&gateway, head, b"");
    let mut answers: Vec<_> = VIEWS
        .into_iter()
        .chain([
            "/assets/style.css",
            "/assets/console.js",
            "/assets/htmx.min.js",
            "/nowhere",
            "/who-can?verb=get&verb=list&resource=pods",
        ])
        .map(|path| (path.to_owned(), get(&gateway, path, "")))
        .collect();
    for head in [
        "GET / HTTP/1.1\r\nHost: evil.example".to_owned(),
        format!("GET / HTTP/1.1\r\nHost: {console}\r\nOrigin: null"),
        format!("DELETE / HTTP/1.1\r\nHost: {console}"),
        format!(
            "POST /what-if HTTP/1.1\r\nHost: {console}\r\nOrigin: http://{console}\r\nContent-Type: text/plain\r\nContent-Length: 0"
        ),
    ] {
        answers.push((head.clone(), request(&head)));
    }
    let mut stream = Connection::plain(console);
    stream.send(format!("GET /live/events HTTP/1.1\r\nHost: {console}\r\n\r\n").as_bytes());
    answers.push(("/live/events".to_owned(), stream.receive_head().unwrap()));
    for (what, answer) in answers {
        let policy = answer.header("content-security-policy").unwrap_or_default();
        for directive in [
            "default-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'self'",
        ] {
            assert!(policy.contains(directive), "{what}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{what}: {policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{what}: {name}");
        }
        if !what.starts_with("/assets") {
            let cached = answer.header("cache-control").unwrap_or_default();
            assert!(cached.contains("no-store"), "{what}: {cached}");
        }
        for absent in ["set-cookie", "access-control-allow-origin", "server"] {
            assert_eq!(answer.header(absent), None, "{what}: {absent}");
        }
    }
}
