//! Handshakes, certificates, and their replacement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use openssl::ssl::{SslContextBuilder, SslSessionCacheMode, SslVersion};

use crate::harness::pki::Authority;
use crate::support::{Client, Gateway, JANE_GETS, v1};

#[test]
fn both_tls_versions_and_no_older_one() {
    let gateway = Gateway::usual();
    let only = |version: SslVersion| {
        move |client: &mut SslContextBuilder| {
            client.set_min_proto_version(Some(version)).unwrap();
            client.set_max_proto_version(Some(version)).unwrap();
        }
    };
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let mut connection = gateway
            .client()
            .connect_with(gateway.addresses.server, only(version))
            .unwrap();
        assert_eq!(connection.authorize(v1(JANE_GETS)).status, 200);
    }
    assert!(
        gateway
            .client()
            .connect_with(gateway.addresses.server, only(SslVersion::TLS1_1))
            .is_err()
    );
}

#[test]
fn a_certificate_of_another_ca_is_401_unless_a_token_speaks() {
    let gateway = Gateway::usual();
    let other = Authority::new("other");
    let foreign = other.client("kube-apiserver", &[]);
    let client = Client {
        authority: &gateway.authority,
        certificate: Some(&foreign),
    };
    let mut connection = client.connect(gateway.addresses.server);
    assert_eq!(connection.authorize(v1(JANE_GETS)).status, 401);
    let head =
        "POST /authorize HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer right-token";
    assert_eq!(connection.request(head, v1(JANE_GETS).as_bytes()).status, 200);
}

#[test]
fn a_server_certificate_is_no_client_certificate() {
    let gateway = Gateway::usual();
    let wrong_use = gateway.authority.server_elsewhere(&["kube-apiserver"]);
    let client = Client {
        authority: &gateway.authority,
        certificate: Some(&wrong_use),
    };
    assert_eq!(
        client
            .connect(gateway.addresses.server)
            .authorize(v1(JANE_GETS))
            .status,
        401
    );
}

#[test]
fn a_new_server_certificate_serves_new_connections_and_old_ones_stay() {
    let gateway = Gateway::usual();
    let mut old = gateway.connect();
    let next = gateway.authority.server();
    gateway.reload(&[("server.key", &next.key_pem()), ("server.crt", &next.pem())]);
    let mut new = gateway.connect();
    let name = new.tls().peer_certificate().unwrap().to_der().unwrap();
    assert_eq!(name, next.certificate.to_der().unwrap());
    assert_eq!(new.authorize(v1(JANE_GETS)).status, 200);
    assert_eq!(old.authorize(v1(JANE_GETS)).status, 200);
}

#[test]
fn an_open_connection_is_judged_anew_by_a_new_client_ca() {
    let gateway = Gateway::usual();
    let mut old = gateway.connect();
    assert_eq!(old.authorize(v1(JANE_GETS)).status, 200);
    let next = Authority::new("next");
    gateway.reload(&[("ca.crt", &next.pem())]);
    assert_eq!(old.authorize(v1(JANE_GETS)).status, 401);
    assert_eq!(gateway.connect().authorize(v1(JANE_GETS)).status, 401);
    let successor = next.client("kube-apiserver", &[]);
    let client = Client {
        authority: &gateway.authority,
        certificate: Some(&successor),
    };
    assert_eq!(
        client
            .connect(gateway.addresses.server)
            .authorize(v1(JANE_GETS))
            .status,
        200
    );
}

#[test]
fn nothing_is_given_to_resume_a_session_with() {
    let gateway = Gateway::usual();
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let given = Arc::new(AtomicBool::new(false));
        let reported = Arc::clone(&given);
        let configure = move |client: &mut SslContextBuilder| {
            client.set_max_proto_version(Some(version)).unwrap();
            client.set_session_cache_mode(SslSessionCacheMode::CLIENT);
            client.set_new_session_callback(move |_, session| {
                reported.store(!session.id().is_empty(), Ordering::SeqCst)
            });
        };
        let mut connection = gateway
            .client()
            .connect_with(gateway.addresses.server, configure)
            .unwrap();
        assert_eq!(connection.authorize(v1(JANE_GETS)).status, 200);
        assert!(!given.load(Ordering::SeqCst), "{version:?}");
        assert!(connection.tls().session().unwrap().id().is_empty(), "{version:?}");
    }
}
