//! An authorizer on the loopback address, which does what a test says.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use openssl::ssl::{SslAcceptor, SslMethod, SslStream};
use serde_json::{Value, json};

use super::pki::Authority;

/// A question that it got.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// `POST /path?timeout=3s`.
    pub(crate) line: String,
    /// In lower case, in the order sent.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) review: Value,
    /// Which of the connections it came on, from 0.
    pub(crate) connection: usize,
}

/// What it does when asked.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Replies: status, further headers, body.
    Reply(u16, Vec<(String, String)>, Vec<u8>),
    /// Ends the connection.
    Close,
    /// Resets the connection.
    Reset,
    /// Says nothing, ever.
    Hang,
    /// Ends the connection in the middle of its reply.
    Half,
}

/// A running authorizer.
pub(crate) struct Authorizer {
    pub(crate) address: SocketAddr,
    authority: Vec<u8>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

type Script = dyn Fn(&Asked) -> Act + Send + Sync;

/// A reply of status 200 with this `status` of the review.
pub(crate) fn says(asked: &Asked, status: Value) -> Act {
    let review = json!({
        "kind": "SubjectAccessReview",
        "apiVersion": asked.review["apiVersion"],
        "status": status,
    });
    Act::Reply(200, Vec::new(), review.to_string().into_bytes())
}

// === impl Authorizer ===

impl Authorizer {
    /// Listens with a certificate that `authority` signed.
    pub(crate) fn start(
        authority: &Authority,
        script: impl Fn(&Asked) -> Act + Send + Sync + 'static,
    ) -> Self {
        let identity = authority.server();
        let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
        acceptor.set_private_key(&identity.key).unwrap();
        acceptor.set_certificate(&identity.certificate).unwrap();
        let acceptor = acceptor.build();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::default());
        let (of_thread, script): (_, Arc<Script>) = (Arc::clone(&asked), Arc::new(script));
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (asked, script) = (Arc::clone(&of_thread), Arc::clone(&script));
                let acceptor = acceptor.clone();
                thread::spawn(move || {
                    // A gateway that closes ends it.
                    let _ended = serve(&acceptor, stream?, connection, &asked, &*script);
                    io::Result::Ok(())
                });
            }
        });
        Self {
            address,
            authority: authority.pem(),
            asked,
        }
    }

    /// A kubeconfig that leads to `path` here, with a token.
    pub(crate) fn kubeconfig(&self, path: &str) -> String {
        kubeconfig(self.address, path, &self.authority)
    }

    /// What it was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

/// A kubeconfig that leads to `path` at `address`, with the token `authorizer-token`.
pub(crate) fn kubeconfig(address: SocketAddr, path: &str, authority: &[u8]) -> String {
    let cluster = json!({
        "server": format!("https://{address}{path}"),
        "certificate-authority-data": openssl::base64::encode_block(authority),
    });
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "authorizer-token"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    })
    .to_string()
}

/// Answers what comes over one connection, until it is closed.
fn serve(
    acceptor: &SslAcceptor,
    stream: TcpStream,
    connection: usize,
    log: &Mutex<Vec<Asked>>,
    script: &Script,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).map_err(io::Error::other)?;
    loop {
        let asked = Asked {
            connection,
            ..receive(&mut stream)?
        };
        let act = script(&asked);
        log.lock().unwrap().push(asked);
        match act {
            Act::Reply(status, headers, body) => reply(&mut stream, status, &headers, &body)?,
            Act::Close => return Ok(()),
            Act::Reset => {
                let socket = socket2::SockRef::from(stream.get_ref());
                return socket.set_linger(Some(std::time::Duration::ZERO));
            }
            Act::Hang => loop {
                thread::park();
            },
            Act::Half => {
                let half = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"status\":{";
                return stream.write_all(half);
            }
        }
    }
}

fn reply(
    stream: &mut SslStream<TcpStream>,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

fn receive(stream: &mut SslStream<TcpStream>) -> io::Result<Asked> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .map_or(0, |(_, length)| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Asked {
        line,
        headers,
        review: serde_json::from_slice(&body).unwrap_or_default(),
        connection: 0,
    })
}
