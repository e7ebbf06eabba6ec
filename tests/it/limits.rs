//! How much is taken on, and for how long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::{Builder, Gateway, JANE_GETS, request, until, v1};

/// The head of a POST whose body has `length` bytes.
fn head(length: usize) -> Vec<u8> {
    format!(
        "POST /authorize?timeout=30s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes()
}

const IN_FLIGHT: &str = r#"portcullis_in_flight_requests{endpoint="authorize"}"#;

#[test]
fn a_body_beyond_the_limit_is_413_announced_or_not() {
    let gateway = Builder::new()
        .limits("{bodyBytes: 1000, inFlightBytes: 1000000}")
        .start();
    let valid = v1(JANE_GETS);
    let mut connection = gateway.connect();
    connection.send(&head(1001));
    let response = connection.receive().unwrap();
    assert_eq!(
        (response.status, &response.json()["reason"]),
        (413, &"RequestEntityTooLarge".into())
    );

    let mut connection = gateway.connect();
    connection.send(b"POST /authorize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    connection.send(b"258\r\n");
    connection.send(&[b' '; 600]);
    connection.send(b"\r\n258\r\n");
    connection.send(&[b' '; 600]);
    connection.send(b"\r\n0\r\n\r\n");
    assert_eq!(connection.receive().unwrap().status, 413);

    assert_eq!(gateway.connect().authorize(valid).status, 200);
    assert_eq!(gateway.metric(IN_FLIGHT), 0.0);
}

#[test]
fn a_chunked_body_within_the_limit_is_answered() {
    let gateway = Gateway::usual();
    let mut connection = gateway.connect();
    let body = v1(JANE_GETS);
    let mut bytes = b"POST /authorize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.as_bytes().chunks(50) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    connection.send(&bytes);
    assert_eq!(connection.receive().unwrap().json()["status"]["allowed"], true);
}

#[test]
fn over_the_in_flight_limit_is_429_until_one_ends() {
    let gateway = Builder::new().limits("{inFlight: 2}").start();
    let body = v1(JANE_GETS);
    let mut held: Vec<_> = (0..2)
        .map(|_| {
            let mut connection = gateway.connect();
            connection.send(&head(body.len()));
            connection
        })
        .collect();
    until("two are in flight", || gateway.metric(IN_FLIGHT) == 2.0);
    let mut third = gateway.connect();
    let response = third.authorize(&body);
    assert_eq!(
        (response.status, response.header("retry-after")),
        (429, Some("1"))
    );
    assert_eq!(response.json()["details"]["retryAfterSeconds"], 1);

    held[0].send(body.as_bytes());
    assert_eq!(held[0].receive().unwrap().status, 200);
    assert_eq!(third.authorize(&body).status, 200);
    drop(held);
    until("a connection that breaks gives its place back", || {
        gateway.metric(IN_FLIGHT) == 0.0
    });
}

#[test]
fn over_the_in_flight_bytes_is_429_announced_or_not() {
    let gateway = Builder::new()
        .limits("{bodyBytes: 5000, inFlightBytes: 6000}")
        .start();
    let body = v1(JANE_GETS);
    let mut large = gateway.connect();
    large.send(&head(5000));
    until("it is in flight", || gateway.metric(IN_FLIGHT) == 1.0);
    assert_eq!(
        gateway
            .connect()
            .request(
                "POST /authorize HTTP/1.1\r\nContent-Type: application/json",
                &[b' '; 1001]
            )
            .status,
        429
    );
    assert_eq!(
        gateway.connect().authorize(&body).status,
        200,
        "a small one fits beside it"
    );
    let mut chunked = gateway.connect();
    chunked.send(b"POST /authorize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n");
    chunked.send(&[b' '; 1001]);
    assert_eq!(chunked.receive().unwrap().status, 429);
}

#[test]
fn a_body_that_does_not_arrive_in_time_is_504_and_gives_its_place_back() {
    let gateway = Gateway::usual();
    let mut connection = gateway.connect();
    let whole = request(
        "POST /authorize?timeout=50ms HTTP/1.1\r\nContent-Type: application/json",
        v1(JANE_GETS).as_bytes(),
    );
    connection.send(&whole[..whole.len() - 1]);
    let response = connection.receive().unwrap();
    assert_eq!(
        (response.status, &response.json()["reason"]),
        (504, &"Timeout".into())
    );
    assert_eq!(gateway.metric(IN_FLIGHT), 0.0);
}

#[test]
fn strangers_take_no_place() {
    let gateway = Builder::new().limits("{inFlight: 1}").start();
    let mut stranger = gateway.stranger().connect(gateway.addresses.server);
    stranger.send(&head(100));
    assert_eq!(
        stranger.receive().unwrap().status,
        401,
        "before the body is there"
    );
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
}

/// A Deny of mallory whose condition compares values that share their parts, for as long as its
/// cost lets it.
fn mk_costly_deny() -> String {
    let doubled: String = (0..40)
        .map(|level| format!(".map(a{level}, dyn([a{level}, a{level}]))"))
        .collect();
    let costly = format!("[dyn(request.user)]{doubled} != [dyn(request.user)]{doubled}");
    let conditions: String = (0..8)
        .map(|number| format!("  - {{name: c{number}, expression: \"{costly}\"}}\n"))
        .collect();
    format!(
        "apiVersion: portcullis.dev/v1alpha1\nkind: AuthorizationPolicy\nmetadata: {{name: costly}}\n\
        spec:\n  effect: Deny\n  subjects: [{{kind: User, name: mallory}}]\n  \
        nonResourceRules: [{{verbs: [get], paths: [/x]}}]\n  conditions:\n{conditions}"
    )
}

#[test]
fn costly_conditions_hold_up_nobody_and_deny_at_the_deadline() {
    let gateway = Builder::new().manifests(mk_costly_deny()).start();
    let ask = |user: &str| {
        let body = v1(&format!(
            r#"{{"user":"{user}","nonResourceAttributes":{{"path":"/x","verb":"get"}}}}"#
        ));
        let head = "POST /authorize?timeout=6s HTTP/1.1\r\nContent-Type: application/json";
        gateway.connect().request(head, body.as_bytes())
    };
    let answered = AtomicUsize::new(0);
    thread::scope(|scope| {
        let costly = || {
            let response = ask("mallory");
            answered.fetch_add(1, Ordering::SeqCst);
            assert_eq!(response.status, 200);
            assert_eq!(
                response.json()["status"]["denied"],
                true,
                "what is not known is denied"
            );
        };
        for _ in 0..8 {
            scope.spawn(costly);
        }
        until("all have arrived", || gateway.metric(IN_FLIGHT) >= 8.0);
        for _ in 0..20 {
            assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
        }
        assert_eq!(answered.load(Ordering::SeqCst), 0, "the costly ones take longer");
    });
}
