//! New connections to webhooks and API servers: DNS, TCP, TLS.
//!
//! A host name must be in subjectAltName of the certificate, as in Go.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use openssl::error::ErrorStack;
use openssl::ssl::{Ssl, SslContext};
use openssl::x509::X509VerifyResult;
use openssl::x509::verify::X509CheckFlags;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_openssl::SslStream;

use super::addresses::{Addresses, Resolution, Url};
use super::context::{ClientContext, ClientIdentity};
use super::reply::{CallError, SettingsError};

/// The settings of connections. Connections with equal settings are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The URL of requests.
    pub url: Url,
    /// The name in the server's certificate, if it is not the host of the URL.
    pub server_name: Option<String>,
    /// The CAs of the server's certificate: several PEM bundles. If there are none, those that the
    /// system trusts.
    pub authorities: Vec<Vec<u8>>,
    /// The client certificate, if there is one.
    pub identity: Option<ClientIdentity>,
    /// The addresses of names, and which may be dialled.
    pub addresses: Arc<Addresses>,
    /// Whether HTTP/2 is offered besides HTTP/1.1.
    pub is_http2: bool,
    /// The cluster to which the webhook belongs, for the limit of idle connections; `None` if it
    /// serves all clusters.
    pub tenant: Option<Arc<str>>,
    /// The value of `User-Agent`.
    pub user_agent: String,
    /// The pseudonym of the gateway in `Via`, by which it recognises its own calls.
    pub via: String,
}

/// The time for one of several addresses before the next is tried.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);
/// The idle time after which TCP keepalive probes are sent; as in Go's dialer.
const KEEPALIVE_TIME: Duration = Duration::from_secs(30);

/// The most bytes that are read from a connection before the task yields: small frames, such as 1xx
/// responses, each take hundreds of bytes in memory until the call is polled again.
const MAX_READ_IN_TURN: usize = 64 << 10;

/// The most bytes of one read: a TLS record.
const MAX_READ_BYTES: usize = 16 << 10;

/// The most bytes that may be read in addition to the replies, for each call and between calls.
const MAX_EXTRA_BYTES: u64 = 1 << 20;

/// The most bytes of responses of an API server that may be read but not consumed: for two HTTP/2
/// connections, and the frames of each, which may take a few hundred bytes in memory.
const MAX_UNCONSUMED_BYTES: u64 = 3 << 20;

/// The time after which an API server that exceeded its allowance may be read from again: by then
/// each list and each watch has ended, and nothing that was read is left.
const MAX_UNTAKEN_TIME: Duration = Duration::from_secs(300);

/// Opens connections to one webhook.
pub(crate) struct Connector {
    settings: Settings,
    tls: TlsClient,
    resolution: Resolution,
    allowance: Arc<ReadAllowance>,
}

/// The number of bytes that may still be read from the connections to one server: the replies to
/// the calls of a webhook, including their framing, or what is consumed of the responses of an API
/// server. It ends connections that send data without end outside of response bodies.
#[derive(Debug, Default)]
pub(crate) struct ReadAllowance(Mutex<AllowedReads>);

#[derive(Debug, Default)]
struct AllowedReads {
    calls: u64,
    left: u64,
    /// The most bytes that may be unconsumed of responses without end; 0 if only replies to calls
    /// are expected.
    untaken: u64,
    /// Since when no bytes are left, because the server sent too many.
    spent: Option<Instant>,
}

/// A call whose reply may be read until this is dropped.
#[derive(Debug)]
pub(crate) struct AllowedCall {
    allowance: Arc<ReadAllowance>,
    bytes: u64,
}

/// Opens TLS connections.
pub struct TlsClient(Arc<ClientContext>);

/// An established TLS connection.
pub struct TlsConnection {
    stream: TokioIo<SslStream<TcpStream>>,
    /// The bytes that were read since the task last yielded.
    read_in_turn: usize,
    allowance: Option<Arc<ReadAllowance>>,
    /// A value that is dropped when the connection ends.
    _place: Option<Box<dyn Send + Sync>>,
}

/// Why a handshake failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientHandshakeError {
    /// The certificate is not trusted, with the reason.
    #[error("the certificate is not trusted: {0}")]
    Untrusted(String),
    /// Another error of the peer or the network.
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
            allowance: Arc::default(),
        })
    }

    /// Allows the reply of a call, of up to `reply_bytes`, to be read until the returned value is
    /// dropped.
    pub(crate) fn allow(&self, reply_bytes: usize) -> AllowedCall {
        ReadAllowance::call(&self.allowance, reply_bytes)
    }

    pub(crate) fn tenant(&self) -> Option<&Arc<str>> {
        self.settings.tenant.as_ref()
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<TlsConnection, CallError> {
        let addresses = self.resolve().await?;
        let stream = dial(&addresses).await?;
        let url = &self.settings.url;
        let name = self.settings.server_name.as_deref().unwrap_or(url.host());
        let connected = self.tls.connect(stream, name).await;
        let connected = connected.map_err(|error| CallError::Tls(error.to_string()))?;
        Ok(TlsConnection {
            allowance: Some(Arc::clone(&self.allowance)),
            ..connected
        })
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

/// Connects to the first of `addresses` that accepts; if none does, returns the last error.
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

/// Disables Nagle's algorithm, and enables keepalive to detect a peer that has vanished.
fn ready(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_TIME))?;
    Ok(stream)
}

// === impl TlsClient ===

impl TlsClient {
    /// Connects to servers whose certificate is signed by one of `authorities`, which are PEM
    /// bundles, or by a CA that the system trusts if there are none. Sends the certificate of
    /// `identity`, and offers HTTP/2 if `is_http2`.
    ///
    /// # Errors
    ///
    /// The CAs or the client certificate cannot be used.
    pub fn new(
        authorities: &[Vec<u8>],
        identity: Option<&ClientIdentity>,
        is_http2: bool,
    ) -> Result<Self, SettingsError> {
        Ok(Self(ClientContext::shared(authorities, identity, is_http2)?))
    }

    /// Performs the handshake over `stream`. The server's certificate must be valid for
    /// `server_name`.
    ///
    /// # Errors
    ///
    /// The handshake failed.
    pub async fn connect(
        &self,
        stream: TcpStream,
        server_name: &str,
    ) -> Result<TlsConnection, ClientHandshakeError> {
        let failed = |error: &dyn ToString| ClientHandshakeError::Failed(error.to_string());
        let ssl = handshake(self.0.context(), server_name).map_err(|error| failed(&error))?;
        let mut stream = SslStream::new(ssl, stream).map_err(|error| failed(&error))?;
        match Pin::new(&mut stream).connect().await {
            Ok(()) => Ok(TlsConnection {
                stream: TokioIo::new(stream),
                read_in_turn: 0,
                allowance: None,
                _place: None,
            }),
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
    /// Whether HTTP/2 was negotiated.
    pub(crate) fn is_http2(&self) -> bool {
        self.stream.inner().ssl().selected_alpn_protocol() == Some(b"h2")
    }

    /// Limits the bytes that are read to `allowance`.
    pub(crate) fn allowed(self, allowance: Arc<ReadAllowance>) -> Self {
        Self {
            allowance: Some(allowance),
            ..self
        }
    }

    /// Holds `place` until the connection ends.
    pub(crate) fn holding(self, place: impl Send + Sync + 'static) -> Self {
        Self {
            _place: Some(Box::new(place)),
            ..self
        }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut TokioIo<SslStream<TcpStream>>> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl Read for TlsConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let connection = self.get_mut();
        if connection.read_in_turn >= MAX_READ_IN_TURN {
            connection.read_in_turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // The cursor does not give access to the bytes that were read, so they are read into a
        // separate buffer.
        let mut part = [0; MAX_READ_BYTES];
        let room = buffer.remaining().min(part.len());
        let mut part = ReadBuf::new(part.get_mut(..room).unwrap_or_default());
        ready!(Pin::new(connection.stream.inner_mut()).poll_read(cx, &mut part))?;
        let read = part.filled();
        connection.read_in_turn += read.len();
        let allowance = connection.allowance.as_ref();
        if allowance.is_some_and(|allowance| !allowance.take(read.len(), Instant::now())) {
            return Poll::Ready(Err(io::Error::other("it sends more than any reply may have")));
        }
        buffer.put_slice(read);
        Poll::Ready(Ok(()))
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

// === impl ReadAllowance ===

impl ReadAllowance {
    /// Allows a reply of up to `reply_bytes` to be read until the returned value is dropped.
    pub(crate) fn call(allowance: &Arc<Self>, reply_bytes: usize) -> AllowedCall {
        let reply_bytes = u64::try_from(reply_bytes).unwrap_or(u64::MAX);
        let bytes = reply_bytes.saturating_mul(2).saturating_add(MAX_EXTRA_BYTES);
        let mut reads = allowance.reads();
        reads.calls += 1;
        reads.left = reads.left.saturating_add(bytes);
        reads.limit(bytes);
        drop(reads);
        AllowedCall {
            allowance: Arc::clone(allowance),
            bytes,
        }
    }

    /// An allowance for responses without end, such as watches: it grows as they are consumed.
    pub(crate) fn for_streams() -> Arc<Self> {
        Arc::new(Self(Mutex::new(AllowedReads {
            left: MAX_UNCONSUMED_BYTES,
            untaken: MAX_UNCONSUMED_BYTES,
            ..AllowedReads::default()
        })))
    }

    /// Records that `bytes` of a response were consumed. Its framing may have had as many bytes
    /// again.
    pub(crate) fn consumed(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(2);
        let mut reads = self.reads();
        reads.left = reads.left.saturating_add(bytes).min(reads.untaken);
    }

    /// Takes `bytes` from the allowance; `false` if there are not enough left `now`.
    pub(crate) fn take(&self, bytes: usize, now: Instant) -> bool {
        let mut reads = self.reads();
        let is_over = |since: Instant| now.saturating_duration_since(since) >= MAX_UNTAKEN_TIME;
        if reads.spent.take_if(|since| is_over(*since)).is_some() {
            reads.left = reads.left.max(reads.untaken);
        }
        let left = reads.left.checked_sub(u64::try_from(bytes).unwrap_or(u64::MAX));
        reads.left = left.unwrap_or_default();
        if left.is_none() {
            reads.spent.get_or_insert(now);
        }
        left.is_some()
    }

    fn reads(&self) -> MutexGuard<'_, AllowedReads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AllowedReads {
    /// Limits the allowance to what the calls in progress may need, each of them `bytes`.
    fn limit(&mut self, bytes: u64) {
        let most = self.calls.saturating_mul(bytes).saturating_add(MAX_EXTRA_BYTES);
        self.left = self.left.min(most);
    }
}

impl Drop for AllowedCall {
    fn drop(&mut self) {
        let mut reads = self.allowance.reads();
        reads.calls -= 1;
        reads.limit(self.bytes);
    }
}

impl Connection for TlsConnection {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        let connected = match &self.allowance {
            Some(allowance) => connected.extra(Arc::clone(allowance)),
            None => connected,
        };
        if self.is_http2() {
            connected.negotiated_h2()
        } else {
            connected
        }
    }
}

/// Prepares a handshake in which the certificate must be valid for `server_name`. An IP address is
/// not sent as server name.
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

// Idle connections to webhooks. They are limited for the whole process, so that their memory and
// file descriptors do not grow with the number of webhooks, which tenants determine.

/// How long an idle connection is kept: as in Go's default transport.
const MAX_IDLE_TIME: Duration = Duration::from_secs(90);

/// The most idle connections to one webhook; client-go keeps 25.
const MAX_IDLE_OF_POOL: usize = 64;

/// The idle connections, in the order in which they were last used.
pub(crate) struct IdleConnections<C>(Mutex<Vec<PooledConnection<C>>>);

struct PooledConnection<C> {
    /// The pool of one webhook.
    pool: u64,
    /// The cluster to which the webhook belongs; `None` if it serves all clusters.
    tenant: Option<Arc<str>>,
    connection: C,
    since: Instant,
}

// === impl IdleConnections ===

impl<C> IdleConnections<C> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Takes an idle connection of `pool` that `is_usable`, and closes those that are not.
    pub(crate) fn take(&self, pool: u64, is_usable: impl Fn(&C) -> bool) -> Option<C> {
        loop {
            let mut idle = self.idle();
            let place = idle.iter().rposition(|idle| idle.pool == pool)?;
            let found = idle.remove(place);
            drop(idle);
            if found.since.elapsed() < MAX_IDLE_TIME && is_usable(&found.connection) {
                return Some(found.connection);
            }
        }
    }

    /// Keeps an idle connection. If that makes more than `most`, closes the least recently used one
    /// of the tenant with the most connections. Returns whether it was the first idle connection.
    pub(crate) fn put(&self, pool: u64, tenant: Option<&Arc<str>>, connection: C, most: usize) -> bool {
        let mut idle = self.idle();
        if idle.iter().filter(|idle| idle.pool == pool).count() >= MAX_IDLE_OF_POOL {
            return false;
        }
        let is_first = idle.is_empty();
        idle.push(PooledConnection {
            pool,
            tenant: tenant.cloned(),
            connection,
            since: Instant::now(),
        });
        let ended = (idle.len() > most).then(|| {
            let place = eviction_candidate(&idle);
            idle.remove(place)
        });
        drop((idle, ended));
        is_first
    }

    /// Closes all idle connections of `pool`.
    pub(crate) fn end(&self, pool: u64) {
        self.idle().retain(|idle| idle.pool != pool);
    }

    /// Closes connections that were idle for too long, and returns whether any are left.
    pub(crate) fn end_old(&self) -> bool {
        let mut idle = self.idle();
        idle.retain(|idle| idle.since.elapsed() < MAX_IDLE_TIME);
        !idle.is_empty()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PooledConnection<C>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The position of the least recently used connection of the tenant with the most connections.
fn eviction_candidate<C>(idle: &[PooledConnection<C>]) -> usize {
    let mut counts: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for one in idle {
        *counts.entry(one.tenant.as_deref()).or_default() += 1;
    }
    let largest = counts.into_iter().max_by_key(|(_, count)| *count);
    let largest = largest.map(|(tenant, _)| tenant);
    let place = idle.iter().position(|one| Some(one.tenant.as_deref()) == largest);
    place.unwrap_or_default()
}

/// The interval at which connections that were idle for too long are closed.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(45);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_many_webhooks_leaves_the_others_their_connections() {
        let idle = IdleConnections::new();
        let [east, west] = ["east", "west"].map(|name| Some(Arc::<str>::from(name)));
        idle.put(0, west.as_ref(), 1_000, 10);
        for pool in 1..100 {
            idle.put(pool, east.as_ref(), pool, 10);
        }
        assert_eq!(idle.idle().len(), 10);
        assert_eq!(idle.take(0, |_| true), Some(1_000));
        assert_eq!(idle.take(90, |_| true), None, "the oldest of east ended");
        assert_eq!(idle.take(99, |_| true), Some(99));
    }

    #[test]
    fn of_one_webhook_so_many_are_kept_and_the_last_is_used_first() {
        let idle = IdleConnections::new();
        for connection in 0..100 {
            assert_eq!(idle.put(7, None, connection, 1_000), connection == 0);
        }
        let taken: Vec<_> = std::iter::from_fn(|| idle.take(7, |connection| connection % 2 == 0)).collect();
        assert_eq!(taken.len(), MAX_IDLE_OF_POOL / 2);
        assert_eq!(taken.first(), Some(&62));
        idle.put(7, None, 1, 10);
        idle.put(8, None, 2, 10);
        idle.end(7);
        assert_eq!((idle.take(7, |_| true), idle.take(8, |_| true)), (None, Some(2)));
        assert!(!idle.end_old());
    }
}
