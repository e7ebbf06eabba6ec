//! Webhooks for tests: on the loopback address, with throwaway certificates,
//! answering what a script says.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use openssl::nid::Nid;
use openssl::ssl::{AlpnError, SslAcceptor, SslMethod, SslVerifyMode, select_next_proto};

use crate::config::Secret;
use crate::pki::Identity;
use crate::webhooks::client::ClientIdentity;

// === certificates ===

/// What a gateway shows, of this certificate.
pub(crate) fn client_identity(identity: &Identity) -> ClientIdentity {
    ClientIdentity {
        certificate: identity.pem(),
        key: Secret::new(identity.key_pem()),
    }
}

// === servers ===

/// What a webhook received.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeRequest {
    /// `POST /path?query HTTP/1.1`.
    pub(crate) line: String,
    /// By name in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// The common name of the client's certificate.
    pub(crate) client: Option<String>,
    /// The name that the client asked for (SNI).
    pub(crate) server_name: Option<String>,
    /// The connection's number, from 0.
    pub(crate) connection: usize,
}

/// What a webhook does after it received a request.
pub(crate) enum FakeAction {
    /// Sends these bytes, and waits for the next request.
    Send(Vec<u8>),
    /// Sends these bytes, and closes.
    SendAndClose(Vec<u8>),
    /// Sends nothing and keeps the connection.
    Hang,
}

/// A webhook that runs as long as the test.
pub(crate) struct FakeWebhook {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<FakeRequest>>>,
}

impl FakeWebhook {
    /// Answers with `respond`, whose argument is the request.
    pub(crate) fn start(
        identity: &Identity,
        respond: impl Fn(&FakeRequest) -> FakeAction + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let acceptor = acceptor(identity);
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
    pub(crate) fn received(&self) -> Vec<FakeRequest> {
        self.received.lock().unwrap().clone()
    }

    /// Its URL by address.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }
}

/// A whole reply with status 200.
pub(crate) fn ok(body: &[u8]) -> Vec<u8> {
    reply("200 OK", "", body)
}

/// A whole reply; `headers` end in CRLF each.
pub(crate) fn reply(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn acceptor(identity: &Identity) -> SslAcceptor {
    let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    builder.set_certificate(&identity.certificate).unwrap();
    builder.set_private_key(&identity.key).unwrap();
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
    let length = request.headers.get("content-length");
    let length = length.map_or(Ok(0), |length| length.parse()).ok()?;
    request.body = vec![0; length];
    stream.read_exact(&mut request.body).ok()?;
    Some(request)
}
