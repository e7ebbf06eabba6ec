//! Webhooks for tests: on the loopback address, with throwaway certificates,
//! answering what a script says.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{AlpnError, SslAcceptor, SslMethod, SslVerifyMode, select_next_proto};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509NameBuilder};

use super::client::ClientIdentity;
use crate::config::Secret;

// === certificates ===

/// A certificate authority.
pub(super) struct FakeAuthority {
    certificate: X509,
    key: PKey<Private>,
}

/// A certificate with its key.
#[derive(Clone)]
pub(super) struct Issued {
    pub(super) certificate: X509,
    pub(super) key: PKey<Private>,
}

impl FakeAuthority {
    pub(super) fn new(name: &str) -> Self {
        let key = new_key();
        let mut builder = unsigned(name, &key, 13_000);
        builder.set_issuer_name(&subject(name)).unwrap();
        builder
            .append_extension(BasicConstraints::new().critical().ca().build().unwrap())
            .unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        Self {
            certificate: builder.build(),
            key,
        }
    }

    pub(super) fn pem(&self) -> Vec<u8> {
        self.certificate.to_pem().unwrap()
    }

    /// A certificate for these names, addresses among them.
    pub(super) fn issue(&self, names: &[&str]) -> Issued {
        self.issue_for_days(names, 13_000)
    }

    /// One that lasts so many days from 2023-11-14 on.
    pub(super) fn issue_for_days(&self, names: &[&str], days: i64) -> Issued {
        self.sign(names.first().unwrap_or(&"nobody"), names, days)
    }

    /// One without alternative names, as they were before 2000.
    pub(super) fn issue_with_common_name(&self, name: &str) -> Issued {
        self.sign(name, &[], 13_000)
    }

    fn sign(&self, common_name: &str, names: &[&str], days: i64) -> Issued {
        let key = new_key();
        let mut builder = unsigned(common_name, &key, days);
        builder.set_issuer_name(self.certificate.subject_name()).unwrap();
        let mut alternatives = SubjectAlternativeName::new();
        for name in names {
            match name.parse::<std::net::IpAddr>() {
                Ok(_) => alternatives.ip(name),
                Err(_) => alternatives.dns(name),
            };
        }
        if !names.is_empty() {
            let context = builder.x509v3_context(Some(&self.certificate), None);
            let extension = alternatives.build(&context).unwrap();
            builder.append_extension(extension).unwrap();
        }
        builder.sign(&self.key, MessageDigest::sha256()).unwrap();
        Issued {
            certificate: builder.build(),
            key,
        }
    }
}

impl Issued {
    pub(super) fn pem(&self) -> Vec<u8> {
        self.certificate.to_pem().unwrap()
    }

    pub(super) fn identity(&self) -> ClientIdentity {
        ClientIdentity {
            certificate: self.pem(),
            key: Secret::new(self.key.private_key_to_pem_pkcs8().unwrap()),
        }
    }
}

fn new_key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

fn subject(name: &str) -> openssl::x509::X509Name {
    let mut builder = X509NameBuilder::new().unwrap();
    builder.append_entry_by_nid(Nid::COMMONNAME, name).unwrap();
    builder.build()
}

fn unsigned(name: &str, key: &PKey<Private>, days: i64) -> X509Builder {
    const FROM: i64 = 1_700_000_000;
    let mut serial = BigNum::new().unwrap();
    serial.rand(100, MsbOption::ONE, false).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder
        .set_serial_number(&serial.to_asn1_integer().unwrap())
        .unwrap();
    builder.set_subject_name(&subject(name)).unwrap();
    builder.set_pubkey(key).unwrap();
    builder
        .set_not_before(&Asn1Time::from_unix(FROM).unwrap())
        .unwrap();
    builder
        .set_not_after(&Asn1Time::from_unix(FROM + days * 86_400).unwrap())
        .unwrap();
    builder
}

// === servers ===

/// What a webhook received.
#[derive(Debug, Clone, Default)]
pub(super) struct FakeRequest {
    /// `POST /path?query HTTP/1.1`.
    pub(super) line: String,
    /// By name in lower case.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
    /// The common name of the client's certificate.
    pub(super) client: Option<String>,
    /// The name that the client asked for (SNI).
    pub(super) server_name: Option<String>,
    /// The connection's number, from 0.
    pub(super) connection: usize,
}

/// What a webhook does after it received a request.
pub(super) enum FakeAction {
    /// Sends these bytes, and waits for the next request.
    Send(Vec<u8>),
    /// Sends these bytes, and closes.
    SendAndClose(Vec<u8>),
    /// Sends nothing and keeps the connection.
    Hang,
}

/// A webhook that runs as long as the test.
pub(super) struct FakeWebhook {
    pub(super) address: SocketAddr,
    received: Arc<Mutex<Vec<FakeRequest>>>,
}

impl FakeWebhook {
    /// Answers with `respond`, whose argument is the request.
    pub(super) fn start(
        issued: &Issued,
        respond: impl Fn(&FakeRequest) -> FakeAction + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let acceptor = acceptor(issued);
        let respond = Arc::new(respond);
        let record = Arc::clone(&received);
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let (acceptor, respond) = (acceptor.clone(), Arc::clone(&respond));
                let record = Arc::clone(&record);
                thread::spawn(move || {
                    if let Ok(stream) = acceptor.accept(stream) {
                        serve(stream, connection, &*respond, &record);
                    }
                });
            }
        });
        Self { address, received }
    }

    /// The requests so far.
    pub(super) fn received(&self) -> Vec<FakeRequest> {
        self.received.lock().unwrap().clone()
    }

    /// Its URL by address.
    pub(super) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }
}

/// A whole reply with status 200.
pub(super) fn ok(body: &[u8]) -> Vec<u8> {
    reply("200 OK", "", body)
}

/// A whole reply; `headers` end in CRLF each.
pub(super) fn reply(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn acceptor(issued: &Issued) -> SslAcceptor {
    let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    builder.set_certificate(&issued.certificate).unwrap();
    builder.set_private_key(&issued.key).unwrap();
    builder.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
    builder.set_alpn_select_callback(|_, offered| {
        select_next_proto(b"\x08http/1.1", offered).ok_or(AlpnError::NOACK)
    });
    builder.build()
}

fn serve(
    stream: openssl::ssl::SslStream<std::net::TcpStream>,
    connection: usize,
    respond: &dyn Fn(&FakeRequest) -> FakeAction,
    record: &Mutex<Vec<FakeRequest>>,
) {
    let client = stream.ssl().peer_certificate().and_then(|certificate| {
        let entry = certificate
            .subject_name()
            .entries_by_nid(Nid::COMMONNAME)
            .next()?;
        entry.data().to_string().ok()
    });
    let server_name = stream
        .ssl()
        .servername(openssl::ssl::NameType::HOST_NAME)
        .map(str::to_owned);
    let mut stream = BufReader::new(stream);
    while let Some(mut request) = read_request(&mut stream) {
        request.client.clone_from(&client);
        request.server_name.clone_from(&server_name);
        request.connection = connection;
        let action = respond(&request);
        record.lock().unwrap().push(request);
        let (bytes, closes) = match action {
            FakeAction::Send(bytes) => (bytes, false),
            FakeAction::SendAndClose(bytes) => (bytes, true),
            FakeAction::Hang => (Vec::new(), false),
        };
        if stream.get_mut().write_all(&bytes).is_err() || closes {
            return;
        }
    }
}

fn read_request(stream: &mut impl BufRead) -> Option<FakeRequest> {
    let mut request = FakeRequest::default();
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
    request.line = line.trim_end().to_owned();
    loop {
        line.clear();
        stream.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        request
            .headers
            .insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = request.headers.get("content-length")?.parse().ok()?;
    request.body = vec![0; length];
    stream.read_exact(&mut request.body).ok()?;
    Some(request)
}
