//! New connections to webhooks and API servers: DNS, TCP, TLS.
//!
//! Certificates are verified as in Go: every certificate of a bundle is a trust anchor,
//! even an intermediate or the server's own; names are only in subjectAltName; TLS 1.2
//! and 1.3.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslVerifyMode, SslVersion,
};
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::{X509CheckFlags, X509VerifyFlags};
use openssl::x509::{X509, X509VerifyResult};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_openssl::SslStream;

use super::addresses::{Addresses, Resolution};
use super::reply::{CallError, SettingsError};
use super::url::Url;
use crate::config::Secret;

/// Whom to call, and how. Connections to equal settings are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where the request goes.
    pub url: Url,
    /// The name in the server's certificate, where it is not the URL's host.
    pub server_name: Option<String>,
    /// Who may have signed that certificate: bundles of PEM, together. Without
    /// any, the authorities that the system trusts.
    pub authorities: Vec<Vec<u8>>,
    /// The client certificate, if there is one.
    pub identity: Option<ClientIdentity>,
    /// Which addresses stand behind names, and which may be dialled.
    pub addresses: Arc<Addresses>,
    /// Whether HTTP/2 is offered beside HTTP/1.1.
    pub is_http2: bool,
    /// `User-Agent`.
    pub user_agent: String,
    /// What the gateway calls itself in `Via`, by which it knows a call that comes back.
    pub via: String,
}

/// How long one of several addresses may take before the next is tried.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection is silent before the peer is probed; as Go's dialer.
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);

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
    pub(crate) fn new(settings: &Settings) -> Result<Self, SettingsError> {
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
    pub(crate) async fn connect(&self) -> Result<TlsConnection, CallError> {
        let addresses = self.resolve().await?;
        let stream = dial(&addresses).await?;
        let url = &self.settings.url;
        let name = self.settings.server_name.as_deref().unwrap_or(url.host());
        let connected = self.tls.connect(stream, name).await;
        connected.map_err(|error| CallError::Tls(error.to_string()))
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, CallError> {
        let Settings { url, addresses, .. } = &self.settings;
        let resolve = || {
            let (addresses, host, port) = (Arc::clone(addresses), url.host().to_owned(), url.port());
            async move { addresses.resolve(&host, port).await }
        };
        self.resolution.get(resolve).await
    }
}

/// The first of `addresses` that answers; the last one's error if none does.
async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream, CallError> {
    let mut failure = CallError::Runtime;
    for (index, address) in addresses.iter().enumerate() {
        let connecting = TcpStream::connect(address);
        let connected = if index + 1 == addresses.len() {
            connecting.await
        } else {
            timeout(ADDRESS_TIMEOUT, connecting)
                .await
                .unwrap_or(Err(io::ErrorKind::TimedOut.into()))
        };
        match connected.and_then(ready) {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                failure = CallError::Dial {
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
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_TIME))?;
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
    ) -> Result<Self, SettingsError> {
        Ok(Self(context(authorities, identity, is_http2)?))
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
        let ssl = handshake(&self.0, server_name).map_err(|error| failed(&error))?;
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

/// A client certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// PEM: the certificate, and then its intermediates.
    pub certificate: Vec<u8>,
    /// PEM, not encrypted.
    pub key: Secret,
}

/// Where systems keep the authorities that they trust, in Go's order
/// (`crypto/x509/root_linux.go`). OpenSSL compiled in knows a folder that no
/// system has.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

// === impl ClientIdentity ===

impl ClientIdentity {
    /// Whether it can be shown.
    ///
    /// # Errors
    ///
    /// What is wrong with the certificate, the key, or both together.
    pub fn check(&self) -> Result<(), SettingsError> {
        show(&mut SslContextBuilder::new(SslMethod::tls_client())?, self)
    }
}

/// The ciphers of TLS 1.2, as `openssl::ssl::SslConnector` has them.
const CIPHERS: &str = "DEFAULT:!aNULL:!eNULL:!MD5:!3DES:!DES:!RC4:!IDEA:!SEED:!aDSS:!SRP:!PSK";

/// What handshakes to a server are made with that one of `authorities` vouches for, or, where
/// there is none, one that the system trusts.
///
/// The authorities of the system are read only where they are needed: they take a megabyte, and
/// 20 ms of processor time.
pub(crate) fn context(
    authorities: &[Vec<u8>],
    identity: Option<&ClientIdentity>,
    is_http2: bool,
) -> Result<SslContext, SettingsError> {
    let mut builder = SslContextBuilder::new(SslMethod::tls_client())?;
    builder.set_options(SslOptions::NO_COMPRESSION);
    // What an idle connection does not need, it does not keep.
    builder.set_mode(
        SslMode::AUTO_RETRY
            | SslMode::ACCEPT_MOVING_WRITE_BUFFER
            | SslMode::ENABLE_PARTIAL_WRITE
            | SslMode::RELEASE_BUFFERS,
    );
    builder.set_cipher_list(CIPHERS)?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    builder.set_verify(SslVerifyMode::PEER);
    builder.set_read_ahead(true);
    builder.set_alpn_protos(if is_http2 {
        b"\x02h2\x08http/1.1"
    } else {
        b"\x08http/1.1"
    })?;
    trust(&mut builder, authorities)?;
    if let Some(identity) = identity {
        show(&mut builder, identity)?;
    }
    Ok(builder.build())
}

/// One handshake, in which the certificate must be that of `server_name`. An
/// address as name is not sent along.
pub(crate) fn handshake(context: &SslContext, server_name: &str) -> Result<Ssl, ErrorStack> {
    let mut ssl = Ssl::new(context)?;
    let address = server_name.parse::<IpAddr>().ok();
    if address.is_none() {
        ssl.set_hostname(server_name)?;
    }
    let param = ssl.param_mut();
    param.set_hostflags(X509CheckFlags::NO_PARTIAL_WILDCARDS | X509CheckFlags::NEVER_CHECK_SUBJECT);
    match address {
        Some(address) => param.set_ip(address)?,
        None => param.set_host(server_name)?,
    }
    Ok(ssl)
}

fn trust(builder: &mut SslContextBuilder, bundles: &[Vec<u8>]) -> Result<(), SettingsError> {
    if bundles.is_empty() {
        return Ok(trust_system(builder)?);
    }
    let mut store = X509StoreBuilder::new()?;
    for bundle in bundles {
        for certificate in certificates(bundle).ok_or(SettingsError::Authorities)? {
            store.add_cert(certificate)?;
        }
    }
    store.set_flags(X509VerifyFlags::PARTIAL_CHAIN)?;
    builder.set_cert_store(store.build());
    Ok(())
}

/// Trusts whom the system trusts: as `SSL_CERT_FILE` and `SSL_CERT_DIR` say, or else where
/// systems have them.
///
/// # Errors
///
/// The file cannot be read.
pub fn trust_system(builder: &mut SslContextBuilder) -> Result<(), ErrorStack> {
    builder.set_default_verify_paths()?;
    if std::env::var_os("SSL_CERT_FILE").is_some() || std::env::var_os("SSL_CERT_DIR").is_some() {
        return Ok(());
    }
    match SYSTEM_BUNDLES.iter().find(|file| Path::new(file).is_file()) {
        Some(file) => builder.set_ca_file(file),
        None => Ok(()),
    }
}

fn show(builder: &mut SslContextBuilder, identity: &ClientIdentity) -> Result<(), SettingsError> {
    let mut chain = certificates(&identity.certificate)
        .ok_or(SettingsError::Certificate)?
        .into_iter();
    let certificate = chain.next().ok_or(SettingsError::Certificate)?;
    let key = private_key(identity.key.reveal()).ok_or(SettingsError::Key)?;
    if !certificate
        .public_key()
        .is_ok_and(|public| public.public_eq(&key))
    {
        return Err(SettingsError::Mismatch);
    }
    builder.set_certificate(&certificate)?;
    for intermediate in chain {
        builder.add_extra_chain_cert(intermediate)?;
    }
    builder.set_private_key(&key)?;
    Ok(())
}

/// At least one.
fn certificates(pem: &[u8]) -> Option<Vec<X509>> {
    X509::stack_from_pem(pem)
        .ok()
        .filter(|certificates| !certificates.is_empty())
}

fn private_key(pem: &[u8]) -> Option<PKey<Private>> {
    // Without a callback OpenSSL would ask the terminal for a passphrase.
    PKey::private_key_from_pem_callback(pem, |_| Err(ErrorStack::get())).ok()
}
