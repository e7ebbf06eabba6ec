//! How many connections there may be, and how long one may take to say whose it is.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use openssl::ssl::{SslContextBuilder, SslVersion};

use crate::h2::{Connection as Http2, block_on};
use crate::support::frames::{ACK, Frames, PING};
use crate::support::{Builder, Client, Gateway, JANE_GETS, get, until, v1};

/// Open connections in this state.
fn count(gateway: &Gateway, state: &str) -> f64 {
    gateway.metric(&format!(r#"portcullis_connections{{state="{state}"}}"#))
}

/// Whether the server has closed the connection, waiting for it.
fn is_closed(connection: &mut TcpStream) -> bool {
    connection
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    match connection.read(&mut [0; 64]) {
        Ok(0) => true,
        Ok(_) => is_closed(connection),
        Err(error) => !matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        ),
    }
}

fn silent(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).unwrap()
}

#[test]
fn silent_unauthenticated_connections_do_not_keep_callers_out() {
    let gateway = Builder::new()
        .connections("{max: 20, perAddress: 10, authenticationTimeout: 1h}")
        .start();
    let mut caller = gateway.connect();
    assert_eq!(caller.authorize(v1(JANE_GETS)).status, 200);
    let mut strangers: Vec<_> = (0..200).map(|_| silent(gateway.addresses.server)).collect();
    assert_eq!(caller.authorize(v1(JANE_GETS)).status, 200);
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
    assert!(is_closed(&mut strangers[0]), "it made way for a newer one");
    until("the second caller is gone", || {
        count(&gateway, "authenticated") == 1.0
    });
    // No deadline closes these: they have shaken hands, and an hour to say who they are.
    let _others: Vec<_> = (0..30)
        .map(|_| gateway.stranger().connect(gateway.addresses.server))
        .collect();
    until("as many as allowed are open", || {
        count(&gateway, "handshake") == 0.0 && count(&gateway, "unauthenticated") == 10.0
    });
}

#[test]
fn hundreds_of_connections_of_a_caller_are_limited_by_the_maximum_alone() {
    let gateway = Builder::new()
        .connections("{max: 40, perAddress: 2, authenticationTimeout: 1h}")
        .start();
    let mut callers: Vec<_> = (0..38).map(|_| gateway.connect()).collect();
    until("all have proven who they are", || {
        count(&gateway, "authenticated") == 38.0
    });
    let _strangers: Vec<_> = (0..50).map(|_| silent(gateway.addresses.server)).collect();
    for caller in &mut callers {
        assert_eq!(caller.authorize(v1(JANE_GETS)).status, 200);
    }
}

#[test]
fn one_cluster_s_connections_do_not_keep_the_others_out() {
    let gateway = Builder::new()
        .connections("{max: 20, perAddress: 20, authenticationTimeout: 1h}")
        .east()
        .start();
    let head =
        "POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer east-token";
    let body = v1(JANE_GETS);
    let mut of_east: Vec<_> = (0..20)
        .map(|_| {
            let mut connection = gateway.stranger().connect(gateway.addresses.server);
            assert_eq!(connection.request(head, body.as_bytes()).status, 200);
            connection
        })
        .collect();
    let mut others: Vec<_> = (0..5).map(|_| gateway.connect()).collect();
    for other in &mut others {
        assert_eq!(other.authorize(&body).status, 200);
    }
    // Its quarter and the common half.
    for connection in &mut of_east[..15] {
        assert_eq!(connection.request(head, body.as_bytes()).status, 200);
    }
    assert!(of_east[19].is_closed(), "the newest makes way");
}

/// A client with a certificate of the client CA, say a user of the cluster, and is no caller.
#[test]
fn certificates_of_the_client_ca_that_are_no_caller_s_keep_nobody_out() {
    let gateway = Builder::new()
        .connections("{max: 20, perAddress: 20, authenticationTimeout: 1h}")
        .start();
    let user = gateway.authority.client("jane", &[]);
    let client = Client {
        authority: &gateway.authority,
        certificate: Some(&user),
    };
    let mut callers: Vec<_> = (0..5).map(|_| gateway.connect()).collect();
    let _held: Vec<_> = (0..15)
        .map(|_| client.connect(gateway.addresses.server))
        .collect();
    until("all are there", || count(&gateway, "authenticated") == 20.0);
    callers.extend((0..15).map(|_| gateway.connect()));
    for caller in &mut callers {
        assert_eq!(caller.authorize(v1(JANE_GETS)).status, 200);
    }
}

#[test]
fn an_unauthenticated_connection_is_closed_after_its_time() {
    let gateway = Builder::new().connections("{authenticationTimeout: 1s}").start();
    let mut stranger = gateway.stranger().connect(gateway.addresses.server);
    assert_eq!(stranger.authorize(v1(JANE_GETS)).status, 401);
    assert!(stranger.is_closed());
    let mut caller = gateway.connect();
    until("nobody without proof is left", || {
        count(&gateway, "unauthenticated") == 0.0
    });
    assert_eq!(caller.authorize(v1(JANE_GETS)).status, 200);
}

#[test]
fn a_token_proves_its_connection_with_the_first_request_accepted() {
    let gateway = Gateway::usual();
    let mut caller = gateway.stranger().connect(gateway.addresses.server);
    until("it is open", || count(&gateway, "unauthenticated") == 1.0);
    let head = |token: &str| {
        format!("POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}")
    };
    assert_eq!(caller.request(&head("wrong"), b"{}").status, 401);
    assert_eq!(count(&gateway, "authenticated"), 0.0);
    assert_eq!(
        caller
            .request(&head("right-token"), v1(JANE_GETS).as_bytes())
            .status,
        200
    );
    assert_eq!(
        (
            count(&gateway, "authenticated"),
            count(&gateway, "unauthenticated")
        ),
        (1.0, 0.0)
    );
    drop(caller);
    until("it is gone", || count(&gateway, "authenticated") == 0.0);
}

#[test]
fn an_expired_certificate_proves_its_connection_and_no_request() {
    let gateway = Gateway::usual();
    let expired = gateway.authority.expired_client("kube-apiserver");
    let client = Client {
        authority: &gateway.authority,
        certificate: Some(&expired),
    };
    let mut connection = client.connect(gateway.addresses.server);
    let response = connection.authorize(v1(JANE_GETS));
    assert_eq!(response.status, 401);
    assert_eq!(
        response.json()["message"],
        "Unauthorized: certificate expired since 2023-11-14T22:14:20Z"
    );
    assert_eq!(count(&gateway, "authenticated"), 1.0);
}

#[test]
fn every_request_header_has_a_deadline() {
    let gateway = Gateway::usual();
    let mut connection = gateway.connect();
    assert_eq!(connection.authorize(v1(JANE_GETS)).status, 200);
    connection.send(b"POST /authorize HTTP/1.1\r\nHost: x\r\n");
    until("the second head is too late", || {
        count(&gateway, "authenticated") == 0.0
    });
}

#[test]
fn if_every_caller_has_a_certificate_the_handshake_requires_one() {
    let gateway = Builder::new()
        .callers("- clientCertificate: {commonNames: [kube-apiserver]}")
        .start();
    let old = |client: &mut SslContextBuilder| {
        client.set_max_proto_version(Some(SslVersion::TLS1_2)).unwrap();
    };
    let address = gateway.addresses.server;
    assert!(gateway.stranger().connect_with(address, old).is_err());
    assert!(gateway.client().connect_with(address, old).is_ok());
    assert!(gateway.stranger().connect(address).is_closed());
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 200);
}

#[test]
fn few_descriptors_are_enough_for_answers_and_probes() {
    let process = Builder::new().spawn_within(512);
    let mut caller = process.connect();
    let _strangers: Vec<_> = (0..600).map(|_| silent(process.server)).collect();
    assert_eq!(get(process.admin, "/readyz").0, 200);
    assert_eq!(caller.authorize(v1(JANE_GETS)).status, 200);
    assert_eq!(process.connect().authorize(v1(JANE_GETS)).status, 200);
}

#[test]
fn probes_are_answered_despite_idle_connections() {
    let gateway = Gateway::usual();
    let mut idle: Vec<_> = (0..200).map(|_| silent(gateway.addresses.admin)).collect();
    assert_eq!(get(gateway.addresses.admin, "/livez"), (200, "ok".to_owned()));
    assert!(is_closed(&mut idle[0]), "it made way for a newer one");
    // Which is still open: no deadline has closed the first.
    let mut newest = idle.pop().unwrap();
    newest.write_all(b"GET /livez HTTP/1.1\r\n\r\n").unwrap();
    assert!(newest.read(&mut [0; 64]).unwrap() > 0);
    let mut half = silent(gateway.addresses.admin);
    half.write_all(b"GET /livez HTTP/1.1\r\n").unwrap();
    assert!(is_closed(&mut half), "its head is too late");
}

#[test]
fn malformed_requests_do_not_fill_the_log() {
    let process = Builder::new().spawn();
    for _ in 0..50 {
        let mut stranger = process.stranger().connect(process.server);
        stranger.send(b"\x00\x01\x02\r\n\r\n");
        assert_eq!(stranger.receive().unwrap().status, 400);
    }
    let mut frames = Frames::open(&process.stranger(), process.server, &[]).unwrap();
    for _ in 0..50 {
        // Answers to PINGs that nobody has sent.
        frames.send(PING, ACK, 0, &[0; 8]).unwrap();
    }
    // The answer to a question: the others have been read.
    frames.send(PING, 0, 0, &[1; 8]).unwrap();
    while frames.receive().unwrap().kind != PING {}
    // A line that comes after all others.
    assert_eq!(
        process.stranger().connect(process.server).authorize("{}").status,
        401
    );
    until("the log is written", || process.log().contains("no credential"));
    let log = process.log();
    assert!(log.lines().count() < 10, "{log}");
}

#[test]
fn a_refusal_over_http2_lets_the_body_arrive() {
    let gateway = Gateway::usual();
    block_on(async {
        let connection = Http2::open_as(&gateway.stranger(), gateway.addresses.server).await;
        for _ in 0..20 {
            let (response, mut stream) = connection.begin("/authorize").await.unwrap();
            let response = response.await.unwrap();
            assert_eq!(response.status(), 401);
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                stream.send_data(vec![b' '; 1000].into(), false).unwrap();
            }
            stream.send_data("".into(), true).unwrap();
        }
    });
}

#[test]
fn where_a_certificate_is_demanded_dates_and_caller_are_judged_at_the_request() {
    let gateway = Builder::new()
        .callers("- clientCertificate: {commonNames: [kube-apiserver]}")
        .start();
    for (identity, said) in [
        (
            gateway.authority.expired_client("kube-apiserver"),
            "certificate expired since 2023-11-14T22:14:20Z",
        ),
        (gateway.authority.client("jane", &[]), "Unauthorized"),
    ] {
        let client = Client {
            authority: &gateway.authority,
            certificate: Some(&identity),
        };
        let response = client.connect(gateway.addresses.server).authorize(v1(JANE_GETS));
        assert_eq!(response.status, 401);
        assert!(
            response.json()["message"].as_str().unwrap().contains(said),
            "{said}"
        );
    }
}
