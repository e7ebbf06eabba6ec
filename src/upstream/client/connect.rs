//! New connections: DNS, TCP, TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use openssl::ssl::SslContext;
use openssl::x509::X509VerifyResult;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_openssl::SslStream;

use super::resolution::Resolution;
use super::{ClientIdentity, Error, InvalidSettings, Settings, tls};

/// How long one of several addresses may take before the next is tried.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a connection is silent before the peer is probed; as Go's dialer.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Connects to one webhook.
pub(crate) struct Connector {
    settings: Settings,
    tls: TlsClient,
    resolution: Resolution,
}

/// Makes connections of TLS.
pub struct TlsClient(SslContext);

/// A connection after its handshake.
pub struct TlsConnection(TokioIo<SslStream<TcpStream>>);

/// Why a handshake failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientHandshakeError {
    /// The certificate, with what is wrong with it.
    #[error("the certificate is not trusted: {0}")]
    Untrusted(String),
    /// What the peer or the network did.
    #[error("{0}")]
    Failed(String),
}

// === impl Connector ===

impl Connector {
    pub(crate) fn new(settings: &Settings) -> Result<Self, InvalidSettings> {
        Ok(Self {
            settings: settings.clone(),
            tls: TlsClient::new(
                &settings.authorities,
                settings.identity.as_ref(),
                settings.is_http2,
            )?,
            resolution: Resolution::default(),
        })
    }

    /// A new connection.
    pub(crate) async fn connect(&self) -> Result<TlsConnection, Error> {
        let addresses = self.resolve().await?;
        let stream = dial(&addresses).await?;
        let url = &self.settings.url;
        let name = self.settings.server_name.as_deref().unwrap_or(url.host());
        let connected = self.tls.connect(stream, name).await;
        connected.map_err(|error| Error::Tls(error.to_string()))
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, Error> {
        let Settings { url, addresses, .. } = &self.settings;
        let resolve = || {
            let (addresses, host, port) = (Arc::clone(addresses), url.host().to_owned(), url.port());
            async move { addresses.resolve(&host, port).await }
        };
        self.resolution.get(resolve).await
    }
}

/// The first of `addresses` that answers; the last one's error if none does.
async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream, Error> {
    let mut failure = Error::Runtime;
    for (index, address) in addresses.iter().enumerate() {
        let connecting = TcpStream::connect(address);
        let connected = if index + 1 == addresses.len() {
            connecting.await
        } else {
            timeout(PATIENCE, connecting)
                .await
                .unwrap_or(Err(io::ErrorKind::TimedOut.into()))
        };
        match connected.and_then(ready) {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                failure = Error::Dial {
                    address: *address,
                    reason: error.to_string(),
                };
            }
        }
    }
    Err(failure)
}

/// Sends at once, and notices a peer that went without a word.
fn ready(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    Ok(stream)
}

// === impl TlsClient ===

impl TlsClient {
    /// Connects to servers that one of `authorities` vouches for, bundles of PEM, or, without
    /// any, one that the system trusts; shows `identity`, and offers HTTP/2 if `is_http2`.
    ///
    /// # Errors
    ///
    /// Authorities or a client certificate that cannot be used.
    pub fn new(
        authorities: &[Vec<u8>],
        identity: Option<&ClientIdentity>,
        is_http2: bool,
    ) -> Result<Self, InvalidSettings> {
        Ok(Self(tls::context(authorities, identity, is_http2)?))
    }

    /// The handshake over `stream`, in which the certificate must be that of `server_name`.
    ///
    /// # Errors
    ///
    /// It failed.
    pub async fn connect(
        &self,
        stream: TcpStream,
        server_name: &str,
    ) -> Result<TlsConnection, ClientHandshakeError> {
        let failed = |error: &dyn ToString| ClientHandshakeError::Failed(error.to_string());
        let ssl = tls::handshake(&self.0, server_name).map_err(|error| failed(&error))?;
        let mut stream = SslStream::new(ssl, stream).map_err(|error| failed(&error))?;
        match Pin::new(&mut stream).connect().await {
            Ok(()) => Ok(TlsConnection(TokioIo::new(stream))),
            Err(error) => Err(ClientHandshakeError::of(&stream, &error)),
        }
    }
}

// === impl ClientHandshakeError ===

impl ClientHandshakeError {
    fn of(stream: &SslStream<TcpStream>, error: &openssl::ssl::Error) -> Self {
        let verified = stream.ssl().verify_result();
        if verified != X509VerifyResult::OK {
            return Self::Untrusted(verified.error_string().to_owned());
        }
        let cause = error
            .ssl_error()
            .and_then(|stack| stack.errors().first()?.reason());
        Self::Failed(match (cause, error.io_error()) {
            (Some(reason), _) => reason.to_owned(),
            (None, Some(error)) => error.to_string(),
            (None, None) => "the connection ended during the handshake".to_owned(),
        })
    }
}

// === impl TlsConnection ===

impl TlsConnection {
    /// Whether both ends chose HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.0.inner().ssl().selected_alpn_protocol() == Some(b"h2")
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut TokioIo<SslStream<TcpStream>>> {
        Pin::new(&mut self.get_mut().0)
    }
}

impl Read for TlsConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buffer)
    }
}

impl Write for TlsConnection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}

impl Connection for TlsConnection {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.is_http2() {
            connected.negotiated_h2()
        } else {
            connected
        }
    }
}
