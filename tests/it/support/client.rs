//! A client of few lines: TLS, HTTP/1.1 written by hand, and the bytes as they come.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use openssl::ssl::{SslConnector, SslContextBuilder, SslMethod, SslStream, SslVerifyMode};
use serde_json::Value;

use crate::harness::pki::{Authority, Identity};

/// Longer than anything takes, also a review of a worker that runs step by step on a busy machine (`wide.rs`). A test
/// that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(180);

/// What a client shows when it connects.
pub(crate) struct Client<'a> {
    pub(crate) authority: &'a Authority,
    pub(crate) certificate: Option<&'a Identity>,
}

/// An open connection.
pub(crate) struct Connection<S = SslStream<TcpStream>> {
    stream: S,
    unread: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Client<'_> {
    /// Connects and completes the handshake.
    pub(crate) fn connect(&self, address: SocketAddr) -> Connection {
        self.connect_with(address, |_| {}).unwrap()
    }

    /// The same with a configuration of one's own.
    pub(crate) fn connect_with(
        &self,
        address: SocketAddr,
        configure: impl FnOnce(&mut SslContextBuilder),
    ) -> Result<Connection, String> {
        let tcp = TcpStream::connect(address).map_err(|error| error.to_string())?;
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp.set_nodelay(true).unwrap();
        let stream = self
            .connector(configure)
            .connect("localhost", tcp)
            .map_err(|error| error.to_string())?;
        Ok(Connection {
            stream,
            unread: Vec::new(),
        })
    }

    /// A connector that trusts the authority and shows the certificate.
    pub(crate) fn connector(&self, configure: impl FnOnce(&mut SslContextBuilder)) -> SslConnector {
        let mut builder = SslConnector::builder(SslMethod::tls_client()).unwrap();
        builder
            .cert_store_mut()
            .add_cert(self.authority.certificate.clone())
            .unwrap();
        builder.set_verify(SslVerifyMode::PEER);
        if let Some(identity) = self.certificate {
            builder.set_certificate(&identity.certificate).unwrap();
            builder.set_private_key(&identity.key).unwrap();
        }
        configure(&mut builder);
        builder.build()
    }
}

impl Connection<TcpStream> {
    /// A connection without TLS.
    pub(crate) fn plain(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            unread: Vec::new(),
        }
    }
}

impl Connection {
    pub(crate) fn tls(&self) -> &openssl::ssl::SslRef {
        self.stream.ssl()
    }
}

impl<S: Read + Write> Connection<S> {
    /// Sends a request and reads its answer.
    pub(crate) fn request(&mut self, head: &str, body: &[u8]) -> Response {
        self.send(&request(head, body));
        self.receive().unwrap()
    }

    /// POSTs JSON to `/authorize`.
    pub(crate) fn authorize(&mut self, body: impl AsRef<[u8]>) -> Response {
        self.request(
            "POST /authorize?timeout=3s HTTP/1.1\r\nContent-Type: application/json",
            body.as_ref(),
        )
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The same to a server that may answer before all of it has come, and take no more.
    pub(crate) fn send_what_is_taken(&mut self, bytes: &[u8]) {
        let _refused = self.stream.write_all(bytes);
    }

    /// Reads one answer.
    pub(crate) fn receive(&mut self) -> io::Result<Response> {
        let mut response = self.receive_head()?;
        let length = response
            .header("content-length")
            .map_or(0, |length| length.parse().unwrap());
        while self.unread.len() < length {
            self.read_more()?;
        }
        response.body = self.unread.drain(..length).collect();
        Ok(response)
    }

    /// Reads status and headers; what follows comes later.
    pub(crate) fn receive_head(&mut self) -> io::Result<Response> {
        let head_ends = loop {
            if let Some(at) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            self.read_more()?;
        };
        let head = String::from_utf8(self.unread.drain(..head_ends + 4).collect()).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        Ok(Response {
            status,
            headers,
            body: Vec::new(),
        })
    }

    /// Reads until `text` has come; everything up to then.
    pub(crate) fn read_until(&mut self, text: &str) -> String {
        loop {
            let read = String::from_utf8_lossy(&self.unread);
            if let Some(at) = read.find(text) {
                let end = at + text.len();
                return String::from_utf8_lossy(&self.unread.drain(..end).collect::<Vec<_>>()).into_owned();
            }
            self.read_more().unwrap();
        }
    }

    /// Whether the server closes the connection, and not with more bytes.
    pub(crate) fn is_closed(&mut self) -> bool {
        assert!(self.unread.is_empty(), "{}", self.unread.escape_ascii());
        let is_late =
            |error: io::Error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        self.read_more().is_err_and(|error| !is_late(error))
    }

    /// Reads what still comes until the server ends the connection, which it must.
    pub(crate) fn read_to_end(&mut self) -> String {
        loop {
            match self.read_more() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("it stays open"),
                Err(_) => return String::from_utf8_lossy(&self.unread).into_owned(),
            }
        }
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => {
                self.unread.extend_from_slice(&buffer[..length]);
                Ok(())
            }
        }
    }
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.body.escape_ascii()))
    }
}

/// The bytes of a request with this head and body.
pub(crate) fn request(head: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "{head}\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// GETs `path` over plain HTTP.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
