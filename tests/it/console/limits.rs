//! What the console may cost: nothing that a browser does or leaves undone keeps a review, a
//! probe or another browser from its answer.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use socket2::SockRef;

use super::{address, get, on_loopback};
use crate::support::client::Connection;
use crate::support::{JANE_GETS, until, v1};

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

/// The client decides when the last byte of an answer is taken, and until then it is kept.
#[test]
fn answers_that_nobody_reads_are_bounded() {
    let gateway = on_loopback();
    let mut caller = gateway.connect();
    let groups: Vec<String> = (0..60).map(|number| format!("{number:x>900}")).collect();
    for number in 0..200 {
        let spec = json!({"user": format!("u-{number}"), "groups": groups, "resourceAttributes": {"verb": "get", "resource": "pods"}});
        assert_eq!(caller.authorize(v1(&spec.to_string())).status, 200);
    }
    let console = address(&gateway);
    let ask = || {
        let mut connection = Connection::plain(console);
        connection.send(b"GET /live HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n");
        let status = connection.receive_head().unwrap().status;
        (connection, status)
    };
    // Each answer is larger than the buffers of its socket, all of them larger than the room.
    let unread: Vec<_> = (0..40).map(|_| ask()).collect();
    let refused = unread.iter().filter(|(_, status)| *status == 503).count();
    let answered = unread.iter().filter(|(_, status)| *status == 200).count();
    assert!(
        answered > 0 && refused > 0 && answered + refused == 40,
        "{answered} answered, {refused} refused"
    );
    assert_eq!(get(&gateway, "/", "").status, 200, "a small page has room");
    assert_eq!(caller.authorize(v1(JANE_GETS)).status, 200);
    drop(unread);
    until("there is room again", || ask().1 == 200);
}

/// Text as a form has it.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// A view is made on one of few threads, where it goes on after the browser has gone.
#[test]
fn views_that_nobody_awaits_any_more_keep_nobody_waiting() {
    let gateway = on_loopback();
    let list = "[0,1,2,3,4,5,6,7,8,9]";
    let product = ["a", "b", "c", "d"]
        .iter()
        .rfold("true".to_owned(), |inner, name| {
            format!("{list}.all({name}, {inner})")
        });
    let validations = format!("  - {{expression: \"{product}\"}}\n").repeat(30);
    let policy = format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: x}}\nspec:\n  \
         matchConstraints: {{resourceRules: [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], \
         resources: [pods]}}]}}\n  validations:\n{validations}---\n\
         apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {{name: x}}\n\
         spec: {{policyName: x, validationActions: [Deny]}}\n"
    );
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"n"}}"#;
    let form = format!(
        "operation=CREATE&policy={}&manifest={}",
        encoded(&policy),
        encoded(&vec![pod; 50].join("\n---\n"))
    );
    let head = format!(
        "POST /what-if HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n",
        form.len()
    );
    for _ in 0..60 {
        let mut stream = TcpStream::connect(address(&gateway)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(form.as_bytes()).unwrap();
        // Until it is asked for, and then the connection is reset.
        std::thread::sleep(Duration::from_millis(20));
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    assert_eq!(get(&gateway, "/policies", "").status, 200);
}
