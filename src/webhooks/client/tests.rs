//! Calls over loopback connections.

use std::collections::BTreeMap;
use std::net::TcpListener;

use flate2::Compression;
use flate2::write::GzEncoder;
use openssl::nid::Nid;

use super::*;
use crate::config::Secret;
use crate::pki::{Authority, BEGINNING, Identity, Leaf};
use crate::webhooks::tests::fixtures::{FakeAction, FakeRequest, FakeWebhook, client_identity, ok, reply};

const BOUNDS: Bounds = Bounds {
    timeout: Duration::from_secs(30),
    connect: Duration::from_secs(30),
    announced: Duration::from_secs(5),
    reply_bytes: 1_000,
};

fn settings(url: &str, authorities: &[&[u8]]) -> Settings {
    Settings {
        url: Url::parse(url).unwrap(),
        server_name: None,
        authorities: authorities.iter().map(|pem| pem.to_vec()).collect(),
        identity: None,
        addresses: Arc::default(),
        is_http2: false,
        tenant: None,
        user_agent: "test".to_owned(),
        via: "portcullis-test".to_owned(),
    }
}

fn reply_to(client: &Client, bounds: Bounds) -> Result<Reply, CallError> {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(client.post(Bytes::from_static(b"{}"), bounds, None, None))
}

/// The body of a reply that names its question.
fn post(client: &Client, bounds: Bounds) -> Result<Bytes, CallError> {
    let reply = reply_to(client, bounds)?;
    reply.connection.release(true);
    Ok(reply.body)
}

/// A client of a webhook that answers with `respond`, whose certificate is right.
fn pair(respond: impl Fn(&FakeRequest) -> FakeAction + Send + Sync + 'static) -> (FakeWebhook, Client) {
    let authority = Authority::new("ca");
    let webhook = FakeWebhook::start(&authority.server_elsewhere(&["127.0.0.1"]), respond);
    let settings = settings(&webhook.url("/some/path"), &[&authority.pem()]);
    (webhook, Client::new(settings, ClientAuthorization::None).unwrap())
}

fn sends(bytes: Vec<u8>) -> (FakeWebhook, Client) {
    pair(move |_| FakeAction::Send(bytes.clone()))
}

#[test]
fn a_request_is_the_one_that_the_api_server_sends_but_for_via() {
    let (webhook, client) = sends(ok(b"{}"));
    assert_eq!(post(&client, BOUNDS).unwrap(), "{}");
    let request = webhook.received().remove(0);
    assert_eq!(request.line, "POST /some/path?timeout=5s HTTP/1.1");
    assert_eq!(request.body, b"{}");
    assert_eq!(request.server_name, None, "an address is not sent as name");
    let headers: Vec<(&str, &str)> = request
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let expected = [
        ("accept", "application/json, */*"),
        ("accept-encoding", "gzip"),
        ("content-length", "2"),
        ("content-type", "application/json"),
        ("host", &webhook.address.to_string()),
        ("user-agent", "test"),
        ("via", "1.1 portcullis-test"),
    ];
    assert_eq!(headers, expected);
}

#[test]
fn a_connection_serves_one_call_after_another() {
    let (webhook, client) = sends(ok(b"{}"));
    for _ in 0..3 {
        post(&client, BOUNDS).unwrap();
    }
    assert_eq!(connections(&webhook), [0, 0, 0]);
}

fn connections(webhook: &FakeWebhook) -> Vec<usize> {
    webhook
        .received()
        .iter()
        .map(|request| request.connection)
        .collect()
}

#[test]
fn a_connection_is_used_again_only_after_a_reply_that_named_its_question() {
    let (webhook, client) = sends(ok(b"{}"));
    // One that was verified and names nothing, and one that was not verified.
    reply_to(&client, BOUNDS).unwrap().connection.release(false);
    drop(reply_to(&client, BOUNDS).unwrap());
    assert_eq!(post(&client, BOUNDS).unwrap(), "{}");
    assert_eq!(post(&client, BOUNDS).unwrap(), "{}");
    assert_eq!(connections(&webhook), [0, 1, 2, 2]);
}

#[test]
fn a_large_question_arrives_whole_and_its_connection_serves_the_next() {
    let (webhook, client) = sends(ok(b"{}"));
    let question = Bytes::from(vec![b'1'; 1_000_000]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for _ in 0..2 {
        let posted = client.post(question.clone(), BOUNDS, None, None);
        runtime.block_on(posted).unwrap().connection.release(true);
    }
    for received in webhook.received() {
        assert_eq!(received.headers["content-length"], "1000000");
        assert!(received.body == question);
    }
    assert_eq!(connections(&webhook), [0, 0]);
}

#[test]
fn a_question_is_sent_in_parts() {
    let mut body = RequestBody::new(Bytes::from(vec![b'1'; 100_000]));
    let (mut sent, context) = (0, &mut std::task::Context::from_waker(std::task::Waker::noop()));
    while let std::task::Poll::Ready(Some(frame)) =
        hyper::body::Body::poll_frame(std::pin::Pin::new(&mut body), context)
    {
        let part = frame.unwrap().into_data().unwrap();
        assert!(part.len() <= 16 << 10);
        sent += part.len();
    }
    assert_eq!(sent, 100_000);
}

#[test]
fn while_a_reply_is_verified_its_connection_serves_no_other_call() {
    let (webhook, client) = sends(ok(b"{}"));
    let first = reply_to(&client, BOUNDS).unwrap();
    let second = reply_to(&client, BOUNDS).unwrap();
    first.connection.release(true);
    post(&client, BOUNDS).unwrap();
    second.connection.release(true);
    assert_eq!(connections(&webhook), [0, 1, 0]);
}

#[test]
fn bytes_after_a_reply_are_no_reply_to_the_next_question() {
    let (webhook, client) = pair(|request| {
        let twice = [ok(request.line.as_bytes()), ok(b"another")].concat();
        FakeAction::Send(twice)
    });
    for _ in 0..5 {
        assert!(post(&client, BOUNDS).unwrap().starts_with(b"POST"));
    }
    assert_eq!(connections(&webhook), [0, 1, 2, 3, 4]);
}

#[test]
fn a_connection_that_died_idle_is_replaced() {
    let (webhook, client) = pair(|_| FakeAction::SendAndClose(ok(b"{}")));
    for _ in 0..5 {
        assert_eq!(post(&client, BOUNDS).unwrap(), "{}");
    }
    assert_eq!(webhook.received().len(), 5);
}

#[test]
fn a_connection_that_breaks_after_the_request_is_not_tried_again() {
    for cut in [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{"] {
        let (webhook, client) = pair(|_| FakeAction::SendAndClose(cut.to_vec()));
        let result = post(&client, BOUNDS);
        assert!(matches!(result, Err(CallError::Exchange(_))), "{result:?}");
        assert_eq!(webhook.received().len(), 1);
    }
}

#[test]
fn only_replies_of_200_to_206_count() {
    for (status, headers, expected) in [
        ("200 OK", "", Ok("{}")),
        ("202 Accepted", "Retry-After: 1\r\n", Ok("{}")),
        ("206 Partial Content", "", Ok("{}")),
        ("207 Multi-Status", "", Err(207)),
        ("302 Found", "Location: /other\r\n", Err(302)),
        ("308 Permanent Redirect", "Location: /other\r\n", Err(308)),
        ("400 Bad Request", "", Err(400)),
        ("429 Too Many Requests", "Retry-After: 0\r\n", Err(429)),
        ("503 Service Unavailable", "Retry-After: 0\r\n", Err(503)),
    ] {
        let (webhook, client) = sends(reply(status, headers, b"{}"));
        let result = post(&client, BOUNDS);
        assert_eq!(
            result,
            expected.map(Bytes::from).map_err(CallError::Status),
            "{status}"
        );
        assert_eq!(webhook.received().len(), 1, "{status} is asked once");
    }
}

#[test]
fn a_reply_is_bounded_whether_it_tells_its_length_or_not() {
    let (_webhook, client) = sends(ok(&[b' '; 1_001]));
    assert_eq!(post(&client, BOUNDS), Err(CallError::TooLarge(1_000)));
    let mut endless = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    endless.extend_from_slice(&[b' '; 1_001]);
    let (_webhook, client) = sends(endless);
    assert_eq!(post(&client, BOUNDS), Err(CallError::TooLarge(1_000)));
}

#[test]
fn what_has_no_end_and_is_no_body_is_no_reply() {
    let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n";
    let nothing = GzEncoder::new(Vec::new(), Compression::default())
        .finish()
        .unwrap();
    let chunk = [format!("{:x}\r\n", nothing.len()).as_bytes(), &nothing, b"\r\n"].concat();
    for (begin, more) in [("", b"HTTP/1.1 103 Early Hints\r\n\r\n".to_vec()), (head, chunk)] {
        let sent = [begin.as_bytes(), &more.repeat((3 << 20) / more.len())].concat();
        let (_webhook, client) = sends(sent);
        let error = post(&client, BOUNDS).unwrap_err().to_string();
        assert!(error.contains("it sends more than any reply may have"), "{error}");
    }
}

#[test]
fn calls_allow_their_replies_to_be_read_and_no_more() {
    let (allowance, now) = (Arc::new(ReadAllowance::default()), std::time::Instant::now());
    assert!(!allowance.take(1, now), "nobody called");
    let first = ReadAllowance::call(&allowance, 1_000_000);
    let second = ReadAllowance::call(&allowance, 1_000_000);
    assert!(allowance.take(4_000_000, now));
    drop(first);
    drop(second);
    // What calls left over is not added up.
    for _ in 0..1_000 {
        drop(ReadAllowance::call(&allowance, 1_000_000));
    }
    assert!(!allowance.take(2_000_000, now));
    let _call = ReadAllowance::call(&allowance, 1_000_000);
    assert!(allowance.take(2_000_000, now), "the next may be read");
}

#[test]
fn an_api_server_that_sent_too_much_may_send_again_once_nothing_is_left_of_it() {
    let (allowance, start) = (ReadAllowance::for_streams(), std::time::Instant::now());
    let take = |bytes, seconds| allowance.take(bytes, start + Duration::from_secs(seconds));
    assert!(take(3 << 20, 0) && !take(1, 0), "what is not taken is bounded");
    assert!(!take(1, 299), "however many connections it ends");
    assert!(take(3 << 20, 300) && !take(1, 300));
    assert!(!take(1, 599) && take(1, 600));
}

#[test]
fn what_is_not_http_is_no_reply() {
    let (_webhook, client) = pair(|_| FakeAction::SendAndClose(b"SSH-2.0-hello\r\n\r\n".to_vec()));
    let result = post(&client, BOUNDS);
    assert!(matches!(result, Err(CallError::Exchange(_))), "{result:?}");
}

#[test]
fn the_deadline_ends_every_stage() {
    let bounds = Bounds {
        timeout: Duration::from_millis(300),
        ..BOUNDS
    };
    let timed_out = Err(CallError::Timeout(bounds.timeout));
    let (_webhook, silent) = pair(|_| FakeAction::Hang);
    assert_eq!(post(&silent, bounds), timed_out);
    let (_webhook, slow) =
        pair(|_| FakeAction::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{".to_vec()));
    assert_eq!(post(&slow, bounds), timed_out);
    // Connections are taken by the system; nobody shakes hands.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", mute.local_addr().unwrap());
    let client = Client::new(settings(&url, &[]), ClientAuthorization::None).unwrap();
    assert_eq!(post(&client, bounds), Err(CallError::Connect(bounds.timeout)));
}

#[test]
fn connecting_may_have_less_time_than_the_call() {
    let bounds = Bounds {
        connect: Duration::from_millis(200),
        ..BOUNDS
    };
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", mute.local_addr().unwrap());
    let client = Client::new(settings(&url, &[]), ClientAuthorization::None).unwrap();
    assert_eq!(post(&client, bounds), Err(CallError::Connect(bounds.connect)));
    // Who is connected has the time of the call.
    let (webhook, client) = pair(|_| {
        std::thread::sleep(Duration::from_millis(600));
        FakeAction::Send(ok(b"{}"))
    });
    for _ in 0..2 {
        assert_eq!(post(&client, bounds).as_deref(), Ok(&b"{}"[..]));
    }
    assert_eq!(webhook.received().len(), 2);
}

#[test]
fn a_port_without_listener_refuses() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = Client::new(
        settings(&format!("https://{closed}/"), &[]),
        ClientAuthorization::None,
    )
    .unwrap();
    let result = post(&client, BOUNDS);
    assert!(
        matches!(&result, Err(CallError::Dial { address, .. }) if *address == closed),
        "{result:?}"
    );
}

fn tls_failure(issued: &Identity, authorities: &[&[u8]]) -> String {
    let webhook = FakeWebhook::start(issued, |_| FakeAction::Send(ok(b"{}")));
    let client = Client::new(
        settings(&webhook.url("/"), authorities),
        ClientAuthorization::None,
    )
    .unwrap();
    match post(&client, BOUNDS) {
        Err(CallError::Tls(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_certificate_that_go_would_refuse_is_refused() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let right = authority.server_elsewhere(&["127.0.0.1"]);
    let table = [
        (&right, vec![other.pem()], "issuer certificate"),
        (&right, vec![], "issuer certificate"),
        (
            &authority.server_until(&["127.0.0.1"], BEGINNING + 86_400),
            vec![authority.pem()],
            "expired",
        ),
        (
            &authority.server_elsewhere(&["127.0.0.2"]),
            vec![authority.pem()],
            "IP address mismatch",
        ),
        (
            &authority.server_elsewhere(&[]),
            vec![authority.pem()],
            "IP address mismatch",
        ),
    ];
    for (issued, authorities, expected) in table {
        let authorities: Vec<&[u8]> = authorities.iter().map(Vec::as_slice).collect();
        let reason = tls_failure(issued, &authorities);
        assert!(reason.contains(expected), "{reason}");
    }
}

/// A client of the service `svc` in `ns`, which is at `webhook`.
fn of_service(webhook: &FakeWebhook, authority: &[u8]) -> Settings {
    let fixed = BTreeMap::from([("svc.ns.svc:443".to_owned(), webhook.address)]);
    let addresses = Addresses {
        fixed,
        ..Addresses::default()
    };
    Settings {
        url: Url::of_service("ns", "svc", 443, "/").unwrap(),
        addresses: Arc::new(addresses),
        ..settings("https://replaced", &[authority])
    }
}

#[test]
fn a_service_is_asked_by_its_name_wherever_it_is() {
    let authority = Authority::new("ca");
    let webhook = FakeWebhook::start(&authority.server_elsewhere(&["svc.ns.svc"]), |_| {
        FakeAction::Send(ok(b"{}"))
    });
    let client = Client::new(of_service(&webhook, &authority.pem()), ClientAuthorization::None).unwrap();
    post(&client, BOUNDS).unwrap();
    let request = webhook.received().remove(0);
    assert_eq!(request.server_name.as_deref(), Some("svc.ns.svc"));
    assert_eq!(request.headers["host"], "svc.ns.svc:443");
    let elsewhere = Settings {
        server_name: Some("other.ns.svc".to_owned()),
        ..of_service(&webhook, &authority.pem())
    };
    let client = Client::new(elsewhere, ClientAuthorization::None).unwrap();
    let result = post(&client, BOUNDS);
    assert!(
        matches!(&result, Err(CallError::Tls(reason)) if reason.contains("hostname mismatch")),
        "{result:?}"
    );
}

#[test]
fn a_common_name_is_no_name() {
    let own = Authority::new("ca");
    let named = own.issue(&Leaf {
        subject: &[(Nid::COMMONNAME, "svc.ns.svc")],
        ..Leaf::server()
    });
    let webhook = FakeWebhook::start(&named, |_| FakeAction::Send(ok(b"{}")));
    let client = Client::new(of_service(&webhook, &own.pem()), ClientAuthorization::None).unwrap();
    let result = post(&client, BOUNDS);
    assert!(matches!(result, Err(CallError::Tls(_))), "{result:?}");
}

#[test]
fn a_certificate_may_be_trusted_by_itself() {
    let issued = Authority::new("forgotten").server_elsewhere(&["127.0.0.1"]);
    let webhook = FakeWebhook::start(&issued, |_| FakeAction::Send(ok(b"{}")));
    let other = Authority::new("other").pem();
    let settings = settings(&webhook.url("/"), &[&other, &issued.pem()]);
    let client = Client::new(settings, ClientAuthorization::None).unwrap();
    assert_eq!(post(&client, BOUNDS).unwrap(), "{}");
}

#[test]
fn a_client_certificate_is_shown() {
    let authority = Authority::new("ca");
    let webhook = FakeWebhook::start(&authority.server_elsewhere(&["127.0.0.1"]), |_| {
        FakeAction::Send(ok(b"{}"))
    });
    let settings = Settings {
        identity: Some(client_identity(&authority.client("gateway", &[]))),
        ..settings(&webhook.url("/"), &[&authority.pem()])
    };
    let client = Client::new(settings, ClientAuthorization::None).unwrap();
    post(&client, BOUNDS).unwrap();
    assert_eq!(webhook.received()[0].client.as_deref(), Some("gateway"));
}

#[test]
fn another_authorization_goes_over_the_same_connection() {
    let (webhook, client) = sends(ok(b"{}"));
    let bearer = ClientAuthorization::bearer(&Secret::new("t1")).unwrap();
    post(&client, BOUNDS).unwrap();
    post(&client.with_authorization(bearer), BOUNDS).unwrap();
    let received = webhook.received();
    let shown: Vec<Option<&str>> = received
        .iter()
        .map(|request| request.headers.get("authorization").map(String::as_str))
        .collect();
    assert_eq!(shown, [None, Some("Bearer t1")]);
    assert_eq!(received[1].connection, 0);
}

#[test]
fn what_cannot_be_used_is_said_at_once() {
    let issued = Authority::new("ca").client("a", &[]);
    let mut mismatched = client_identity(&issued);
    mismatched.key = client_identity(&Authority::new("ca").client("a", &[])).key;
    let mut keyless = client_identity(&issued);
    keyless.key = Secret::new("no key");
    let with = |identity| Settings {
        identity: Some(identity),
        ..settings("https://a/", &[])
    };
    let table = [
        (
            settings("https://a/", &[b"no certificate"]),
            SettingsError::Authorities,
        ),
        (settings("https://a/", &[b""]), SettingsError::Authorities),
        (with(mismatched), SettingsError::Mismatch),
        (with(keyless), SettingsError::Key),
    ];
    for (settings, expected) in table {
        assert_eq!(
            Client::new(settings, ClientAuthorization::None).unwrap_err(),
            expected
        );
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn a_name_and_password_are_encoded_together() {
    let basic = ClientAuthorization::basic("Aladdin", &Secret::new("open sesame")).unwrap();
    assert_eq!(
        wait(basic.header()).unwrap(),
        "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    );
}

#[test]
fn no_credential_is_printed() {
    let bearer = ClientAuthorization::bearer(&Secret::new("hunter2")).unwrap();
    let file = ClientAuthorization::token_file(
        (Path::new("/absent"), &FileScope::Anywhere),
        &Secret::new("hunter2"),
    )
    .unwrap();
    let printed = format!("{bearer:?} {file:?}");
    assert!(!printed.contains("hunter2"), "{printed}");
}

#[test]
fn a_token_that_no_header_holds_is_refused() {
    for token in ["", "a\nb"] {
        assert_eq!(
            ClientAuthorization::bearer(&Secret::new(token)).unwrap_err(),
            SettingsError::Header
        );
    }
}

#[test]
fn a_token_file_is_read_again_when_it_is_due() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "new\n").unwrap();
    let ClientAuthorization::File(file) =
        ClientAuthorization::token_file((&path, &FileScope::Anywhere), &Secret::new("old")).unwrap()
    else {
        panic!("a file was given");
    };
    let now = Instant::now();
    let at = |seconds| wait(file.header(now + Duration::from_secs(seconds)));
    assert_eq!(at(5), "Bearer old");
    assert_eq!(at(11), "Bearer new");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(at(22), "Bearer new", "what cannot be read changes nothing");
}

#[test]
fn a_refused_token_is_looked_at_by_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "new").unwrap();
    let authorization =
        ClientAuthorization::token_file((&path, &FileScope::Anywhere), &Secret::new("old")).unwrap();
    assert_eq!(wait(authorization.header()).unwrap(), "Bearer old");
    authorization.refused();
    assert_eq!(wait(authorization.header()).unwrap(), "Bearer new");
}

#[test]
fn a_webhook_that_refuses_every_token_has_its_file_read_once_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "new").unwrap();
    let ClientAuthorization::File(file) =
        ClientAuthorization::token_file((&path, &FileScope::Anywhere), &Secret::new("old")).unwrap()
    else {
        panic!("a file was given");
    };
    let start = Instant::now();
    let refused_at = |milliseconds| {
        let now = start + Duration::from_millis(milliseconds);
        file.refused(now);
        wait(file.header(now))
    };
    assert_eq!(refused_at(0), "Bearer new");
    std::fs::write(&path, "newer").unwrap();
    assert_eq!(refused_at(10), "Bearer new");
    assert_eq!(refused_at(990), "Bearer new");
    assert_eq!(refused_at(1000), "Bearer newer");
}

#[test]
fn a_file_that_is_being_read_is_not_read_again_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "new").unwrap();
    let ClientAuthorization::File(file) =
        ClientAuthorization::token_file((&path, &FileScope::Anywhere), &Secret::new("old")).unwrap()
    else {
        panic!("a file was given");
    };
    let later = Instant::now() + 2 * TOKEN_LEEWAY;
    file.with(|current| current.is_reading = true);
    assert_eq!(wait(file.header(later)), "Bearer old");
    assert_eq!(file.read(), "Bearer new");
    std::fs::write(&path, "newer").unwrap();
    assert_eq!(wait(file.header(later)), "Bearer newer");
}
