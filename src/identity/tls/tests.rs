//! Files valid and faulty, and handshakes in memory.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use openssl::nid::Nid;
use openssl::ssl::{SslConnector, SslVersion};
use openssl::symm::Cipher;
use tempfile::TempDir;

use super::*;
use crate::pki::{BEGINNING, Identity, Leaf, new_key};

/// A certificate that signs itself, for so many days.
fn mk_identity(name: &str, days: i64) -> Identity {
    Identity::self_signed(&Leaf {
        subject: &[(Nid::COMMONNAME, name)],
        until: BEGINNING + days * 86_400,
        ..Leaf::server()
    })
}

/// A folder with a certificate `name` that lasts until 2060 and its key.
fn mk_files(name: &str) -> (TempDir, Tls) {
    let folder = tempfile::tempdir().unwrap();
    let identity = mk_identity(name, 13_000);
    let file = |file: &str, pem: Vec<u8>| {
        let path = folder.path().join(file);
        std::fs::write(&path, pem).unwrap();
        path
    };
    let tls = Tls {
        certificate: file("server.crt", identity.pem()),
        private_key: file("server.key", identity.key_pem()),
        client_ca: None,
    };
    (folder, tls)
}

fn faults(tls: &Tls) -> Vec<String> {
    let Err(faults) = TlsContext::build(tls) else {
        panic!("no fault")
    };
    faults
        .iter()
        .map(|fault| format!("{} {}", fault.place.path, fault.message))
        .collect()
}

/// What a client sees of a handshake.
#[derive(Debug, PartialEq, Eq)]
struct SeenAlerts {
    server: String,
    version: &'static str,
    alpn: Option<Vec<u8>>,
    /// Whether it was asked for a certificate.
    asked: bool,
    /// Whether it got anything to resume the session with.
    resumable: bool,
}

fn handshake(
    acceptor: &SslAcceptor,
    configure: impl FnOnce(&mut SslContextBuilder),
) -> Result<SeenAlerts, String> {
    let (client, server) = UnixStream::pair().unwrap();
    let acceptor = acceptor.clone();
    let server = thread::spawn(move || -> io::Result<bool> {
        let mut stream = acceptor
            .accept(server)
            .map_err(|error| io::Error::other(error.to_string()))?;
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])?;
        Ok(stream.ssl().verify_mode() == SslVerifyMode::PEER)
    });
    let resumable = Arc::new(AtomicBool::new(false));
    let reported = Arc::clone(&resumable);
    let mut builder = SslConnector::builder(SslMethod::tls_client()).unwrap();
    builder.set_verify(SslVerifyMode::NONE);
    builder.set_session_cache_mode(SslSessionCacheMode::CLIENT);
    builder.set_new_session_callback(move |_, session| {
        reported.store(!session.id().is_empty(), Ordering::SeqCst)
    });
    configure(&mut builder);
    let mut stream = builder
        .build()
        .connect("localhost", client)
        .map_err(|error| error.to_string())?;
    stream.read_exact(&mut [0]).unwrap();
    stream.write_all(b"y").unwrap();
    let asked = server.join().unwrap().unwrap();
    let ssl = stream.ssl();
    let certificate = ssl.peer_certificate().unwrap();
    Ok(SeenAlerts {
        server: certificate
            .subject_name()
            .entries()
            .next()
            .unwrap()
            .data()
            .to_string()
            .unwrap(),
        version: ssl.version_str(),
        alpn: ssl.selected_alpn_protocol().map(<[u8]>::to_vec),
        asked,
        resumable: resumable.load(Ordering::SeqCst) || !ssl.session().unwrap().id().is_empty(),
    })
}

#[test]
fn both_versions_are_spoken_and_neither_can_be_resumed() {
    let (_folder, tls) = mk_files("one");
    let context = TlsContext::build(&tls).unwrap();
    let acceptor = TlsContext::acceptor(move || context.clone().into())
        .unwrap()
        .build();
    for (version, name) in [(SslVersion::TLS1_2, "TLSv1.2"), (SslVersion::TLS1_3, "TLSv1.3")] {
        let seen = handshake(&acceptor, |client| {
            client.set_max_proto_version(Some(version)).unwrap()
        })
        .unwrap();
        let expected = SeenAlerts {
            server: "one".into(),
            version: name,
            alpn: None,
            asked: false,
            resumable: false,
        };
        assert_eq!(seen, expected);
    }
    handshake(&acceptor, |client| {
        client.set_min_proto_version(Some(SslVersion::TLS1)).unwrap();
        client.set_max_proto_version(Some(SslVersion::TLS1_1)).unwrap();
    })
    .unwrap_err();
}

#[test]
fn http_2_is_preferred_and_foreign_protocols_passed_over() {
    let (_folder, tls) = mk_files("one");
    let context = TlsContext::build(&tls).unwrap();
    let acceptor = TlsContext::acceptor(move || context.clone().into())
        .unwrap()
        .build();
    let chosen = |offered: &[u8]| {
        handshake(&acceptor, |client| client.set_alpn_protos(offered).unwrap())
            .unwrap()
            .alpn
    };
    assert_eq!(chosen(b"\x08http/1.1\x02h2").as_deref(), Some(&b"h2"[..]));
    assert_eq!(chosen(b"\x08http/1.1").as_deref(), Some(&b"http/1.1"[..]));
    assert_eq!(chosen(b"\x03foo"), None);
}

#[test]
fn the_console_offers_one_protocol() {
    let (_folder, tls) = mk_files("gateway");
    let context = TlsContext::build_for_console(&tls).unwrap();
    let acceptor = TlsContext::acceptor(move || context.clone().into())
        .unwrap()
        .build();
    let both = Protocols::Http2AndHttp1.alpn();
    let seen = handshake(&acceptor, |client| client.set_alpn_protos(both).unwrap()).unwrap();
    assert_eq!(seen.alpn.as_deref(), Some(&b"http/1.1"[..]));
}

#[test]
fn a_replaced_context_holds_for_the_next_connection() {
    let (_old_folder, old) = mk_files("old");
    let (_new_folder, new) = mk_files("new");
    let current = Arc::new(Mutex::new(TlsContext::build(&old).unwrap()));
    let shared = Arc::clone(&current);
    let acceptor = TlsContext::acceptor(move || shared.lock().unwrap().clone().into())
        .unwrap()
        .build();
    let offer = |client: &mut SslContextBuilder| {
        client.set_alpn_protos(Protocols::Http2AndHttp1.alpn()).unwrap();
    };

    let seen = handshake(&acceptor, offer).unwrap();
    assert_eq!((seen.server.as_str(), seen.asked), ("old", false));

    let with_authority = Tls {
        client_ca: Some(old.certificate.clone()),
        ..new
    };
    *current.lock().unwrap() = TlsContext::build(&with_authority).unwrap();
    let seen = handshake(&acceptor, offer).unwrap();
    assert_eq!(
        (seen.server.as_str(), seen.asked, seen.resumable),
        ("new", true, false)
    );
    assert_eq!(seen.alpn.as_deref(), Some(&b"h2"[..]));
}

#[test]
fn a_certificate_of_nobody_completes_the_handshake() {
    let (_folder, tls) = mk_files("one");
    let tls = Tls {
        client_ca: Some(tls.certificate.clone()),
        ..tls
    };
    let context = TlsContext::build(&tls).unwrap();
    let acceptor = TlsContext::acceptor(move || context.clone().into())
        .unwrap()
        .build();
    let stranger = mk_identity("stranger", 1);
    handshake(&acceptor, |client| {
        client.set_certificate(&stranger.certificate).unwrap();
        client.set_private_key(&stranger.key).unwrap();
    })
    .unwrap();
}

#[test]
fn a_handshake_that_demands_a_certificate_fails_without_one() {
    let (_folder, tls) = mk_files("one");
    let tls = Tls {
        client_ca: Some(tls.certificate.clone()),
        ..tls
    };
    let context = TlsContext::build(&tls).unwrap();
    let demanding = move || Handshake {
        context: context.clone(),
        demands_certificate: true,
    };
    let acceptor = TlsContext::acceptor(demanding).unwrap().build();
    let anybody = mk_identity("anybody", 1);
    handshake(&acceptor, |client| {
        client.set_certificate(&anybody.certificate).unwrap();
        client.set_private_key(&anybody.key).unwrap();
    })
    .unwrap();
    // In TLS 1.3 the client hears of it after its own part of the handshake.
    let old = |client: &mut SslContextBuilder| {
        client
            .set_max_proto_version(Some(openssl::ssl::SslVersion::TLS1_2))
            .unwrap();
    };
    assert!(handshake(&acceptor, old).is_err());
}

#[test]
fn every_fault_is_told_at_once() {
    let (folder, tls) = mk_files("one");
    let write = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let encrypted = new_key()
        .private_key_to_pem_pkcs8_passphrase(Cipher::aes_128_cbc(), b"secret")
        .unwrap();
    let all = Tls {
        certificate: folder.path().join("absent.crt"),
        private_key: write("encrypted.key", &encrypted),
        client_ca: Some(write("empty.crt", b"nothing here")),
    };
    assert_eq!(
        faults(&all),
        [
            "server.tls.certificate there is no such file or folder: put it there, or correct the path",
            "server.tls.privateKey is encrypted: store it without a passphrase, readable only by this program",
            "server.tls.clientCA contains no certificate in PEM, or an invalid one",
        ]
    );
    let damaged = Tls {
        private_key: write("bad.key", b"-----BEGIN PRIVATE KEY-----\nx\n"),
        ..tls.clone()
    };
    assert_eq!(
        faults(&damaged),
        ["server.tls.privateKey contains no private key in PEM, or an invalid one"]
    );
    let (_other_folder, other) = mk_files("other");
    let mixed = Tls {
        private_key: other.private_key,
        ..tls.clone()
    };
    let message = format!(
        "server.tls.privateKey is not the key of the certificate in `{}`",
        tls.certificate.display()
    );
    assert_eq!(faults(&mixed), [message]);
}
