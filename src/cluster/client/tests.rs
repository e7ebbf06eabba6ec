//! API servers that send more than was asked for; how many connections there are.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use openssl::ssl::{SslAcceptor, SslMethod, SslStream, select_next_proto};

use super::*;
use crate::cluster::requests::{ApiRequest, ApiServer, JSON};
use crate::cluster::split::Envelope;
use crate::cluster::tests::fixtures::block_on;
use crate::pki::{Authority, Identity};
use crate::webhooks::tests::fixtures::{FakeAction, FakeWebhook, ok};

/// What an API server answers with that sends these bytes, of which the body has at most so many.
fn asked(sent: Vec<u8>, max_bytes: usize) -> Result<usize, String> {
    let authority = Authority::new("ca");
    let issued = authority.server_elsewhere(&["127.0.0.1"]);
    let server = FakeWebhook::start(&issued, move |_| FakeAction::Send(sent.clone()));
    block_on(async {
        let tls = TlsClient::new(&[authority.pem()], None, true).unwrap();
        let config = Config::new(server.url("/").parse().unwrap());
        let (client, _) = over(ApiServerConnector::new(tls, None), &config).unwrap();
        let answer = ApiServer::new(client)
            .ask(&ApiRequest::get("/", JSON), max_bytes)
            .await;
        answer
            .map(|answer| answer.len())
            .map_err(|error| error.to_string())
    })
}

#[test]
fn an_api_server_sends_no_more_besides_its_answers_than_may_be_read() {
    let interim = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(200_000);
    let error = asked(interim, 0).unwrap_err();
    assert!(error.contains("it sends more than any reply may have"), "{error}");
    // What is taken of answers may be read, however much that is.
    let bytes = 20 << 20;
    assert_eq!(asked(ok(&vec![b' '; bytes]), bytes), Ok(bytes));
}

#[test]
fn a_token_is_sent_without_the_line_break_of_its_file() {
    let authority = Authority::new("ca");
    let server = FakeWebhook::start(&authority.server_elsewhere(&["127.0.0.1"]), |request| {
        let is_known = request
            .headers
            .get("authorization")
            .is_some_and(|sent| sent == "Bearer t0ken");
        FakeAction::Send(ok(if is_known { b"known" } else { b"" }))
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "t0ken\n").unwrap();
    let mut config = Config::new(server.url("/").parse().unwrap());
    config.auth_info.token_file = Some(path.display().to_string());
    config.auth_info.token = Some("other".to_owned().into());
    let ask = |config: &Config| {
        block_on(async {
            let tls = TlsClient::new(&[authority.pem()], None, true).unwrap();
            let (client, _) = over(ApiServerConnector::new(tls, None), config).unwrap();
            let request = ApiRequest::get("/", JSON);
            ApiServer::new(client).ask(&request, 100).await.unwrap()
        })
    };
    assert_eq!(ask(&config), b"known".as_slice());
    std::fs::remove_file(&path).unwrap();
    assert_ne!(ask(&config), b"known".as_slice(), "the token beside it");
    config.auth_info.token = None;
    let tls = TlsClient::new(&[authority.pem()], None, true).unwrap();
    let error = over(ApiServerConnector::new(tls, None), &config).err().unwrap();
    assert!(error.to_string().contains("`tokenFile`: cannot read"), "{error}");
}

#[test]
fn the_name_that_a_certificate_must_have_is_the_host() {
    for (url, expected) in [
        ("https://api.example.com:6443/c/1", "api.example.com"),
        ("https://[2001:db8::1]:6443", "2001:db8::1"),
        ("https://10.0.0.1", "10.0.0.1"),
    ] {
        assert_eq!(host(&Uri::from_static(url)), expected);
    }
}

fn clusters(max_of_all: usize) -> impl Fn() -> ClusterConnections {
    let all = &*Box::leak(Box::new(AtomicUsize::new(0)));
    move || ClusterConnections {
        open: Arc::default(),
        all,
        max_of_all,
    }
}

#[test]
fn clusters_with_many_connections_leave_half_to_those_that_have_none() {
    let new = clusters(8);
    let many = new();
    let open: Vec<_> = std::iter::from_fn(|| many.open().ok()).collect();
    assert_eq!(open.len(), 4);
    let others: Vec<_> = (0..4).map(|_| new().open().unwrap()).collect();
    assert!(matches!(new().open(), Err(TooManyConnections::OfAll(8))));
    drop(open);
    assert!(many.open().is_ok(), "what was refused counts no more");
    drop(others);
}

#[test]
fn a_cluster_has_so_many() {
    let new = clusters(10_000);
    let many = new();
    let open: Vec<_> = std::iter::from_fn(|| many.open().ok()).collect();
    assert_eq!(open.len(), MAX_OF_CLUSTER);
    assert!(matches!(many.open(), Err(TooManyConnections::OfCluster)));
    assert!(new().open().is_ok());
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// `:status: 200`, and `:status: 103`.
const STATUS_200: &[u8] = b"\x88";
const STATUS_103: &[u8] = b"\x08\x03103";

/// More than may be read of a server, and than sockets hold.
const MAX_FLOOD_BYTES: usize = 64 << 20;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// An API server over HTTP/2 that answers its first request with `begin` and then with `more` again and
/// again. What is returned waits for how many bytes it could send.
fn flooding(identity: &Identity, begin: Vec<u8>, more: Vec<u8>) -> (SocketAddr, thread::JoinHandle<usize>) {
    let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    builder.set_certificate(&identity.certificate).unwrap();
    builder.set_private_key(&identity.key).unwrap();
    builder.set_alpn_select_callback(|_, offered| Ok(select_next_proto(b"\x02h2", offered).unwrap()));
    let (acceptor, listener) = (builder.build(), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    let served = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        // Who reads nothing more is sent nothing more.
        let wait = Some(Duration::from_secs(3));
        stream.set_write_timeout(wait).unwrap();
        let mut stream = acceptor.accept(stream).unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, b"")).unwrap();
        let mut received = Vec::new();
        while !has_headers(&received) {
            let mut part = [0; 1024];
            let read = stream.read(&mut part).unwrap();
            received.extend_from_slice(&part[..read]);
        }
        stream.write_all(&begin).unwrap();
        stream.get_ref().set_nonblocking(false).unwrap();
        let wait = Some(Duration::from_millis(1));
        stream.get_ref().set_read_timeout(wait).unwrap();
        flood(&mut stream, &more.repeat((64 << 10) / more.len()))
    });
    (address, served)
}

/// Whether the request has come: after the preface, a frame of HEADERS.
fn has_headers(received: &[u8]) -> bool {
    let mut rest = received.get(24..).unwrap_or_default();
    while let [a, b, c, kind, ..] = rest {
        if *kind == HEADERS {
            return true;
        }
        let length = usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).unwrap();
        rest = rest.get(9 + length..).unwrap_or_default();
    }
    false
}

/// How much of `frames` again and again was sent until the client ended that; it reads what the client says.
fn flood(stream: &mut SslStream<TcpStream>, frames: &[u8]) -> usize {
    let mut sent = 0;
    while sent < MAX_FLOOD_BYTES {
        let mut part = [0; 1 << 16];
        match stream.read(&mut part) {
            Ok(0) => break,
            Err(error) if error.kind() != ErrorKind::WouldBlock => break,
            _ => {}
        }
        if stream.write_all(frames).is_err() {
            break;
        }
        sent += frames.len();
    }
    sent
}

#[test]
fn no_frames_of_http2_that_nobody_takes_come_without_end() {
    let authority = Authority::new("ca");
    let issued = authority.server_elsewhere(&["127.0.0.1"]);
    let answer = frame(HEADERS, END_HEADERS, 1, STATUS_200);
    let unended = frame(HEADERS, 0, 1, STATUS_200);
    for (what, begin, more) in [
        ("empty DATA", answer.clone(), frame(DATA, 0, 1, b"")),
        (
            "replies of 1xx",
            Vec::new(),
            frame(HEADERS, END_HEADERS, 1, STATUS_103),
        ),
        ("PING", answer.clone(), frame(PING, 0, 0, &[0; 8])),
        ("SETTINGS", answer.clone(), frame(SETTINGS, 0, 0, b"")),
        (
            "WINDOW_UPDATE",
            answer.clone(),
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        ),
        ("CONTINUATION", unended, frame(CONTINUATION, 0, 1, b"")),
        ("unknown frames", answer, frame(0xee, 0, 1, b"")),
    ] {
        let (address, served) = flooding(&issued, begin, more);
        let sent = block_on(async {
            let tls = TlsClient::new(&[authority.pem()], None, true).unwrap();
            let config = Config::new(format!("https://{address}/").parse().unwrap());
            let (client, _) = over(ApiServerConnector::new(tls, None), &config).unwrap();
            let server = ApiServer::new(client);
            // The answer stays open and unread while this task lives.
            let asked = tokio::spawn(async move {
                let _answer = server.split("/", Envelope::Event, 1_000).await;
                std::future::pending::<()>().await;
            });
            let sent = tokio::task::spawn_blocking(|| served.join().unwrap()).await;
            asked.abort();
            sent.unwrap()
        });
        assert!(sent < MAX_FLOOD_BYTES / 2, "{what}: {sent} bytes");
    }
}
