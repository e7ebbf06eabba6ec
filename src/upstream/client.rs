//! The HTTP client for webhooks, with persistent connections.
//!
//! ```text
//! post ──(runtime of its own)──▶ pool ──▶ an idle connection, or a new one: addresses ▶ dial ▶ TLS
//!                                  └─▶ request ──▶ reply: status, gzip, bound ──▶ verified: released
//! ```
//!
//! Like client-go: HTTP/1.1 unless HTTP/2 is enabled, only replies of 200 to 206 succeed,
//! the `timeout` of the call is in the URL. Unlike client-go: no proxy from the
//! environment, no redirects, no retry on `Retry-After`, and every reply is bounded. A
//! request is sent a second time only if its idle connection closed before any of it was
//! written.
//!
//! Facts: `client-go/rest/request.go`, `client-go/transport`.

mod addresses;
mod authorization;
mod connect;
mod pool;
mod reply;
mod url;

use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use connect::Connector;
use http_body_util::Full;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT, VIA,
};
use hyper::{Request, StatusCode};
use pool::ConnectionPool;
use tokio::time::{Instant, timeout_at};

use crate::telemetry::traces::TraceParent;

pub use addresses::Addresses;
pub use authorization::ClientAuthorization;
pub use connect::{ClientHandshakeError, ClientIdentity, TlsClient, TlsConnection, trust_system};
pub use pool::UsedConnection;
pub use url::Url;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

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

/// Calls one webhook. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Client {
    connections: Arc<ClientConnections>,
    authorization: ClientAuthorization,
}

/// How much one call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Time for everything from here on: name, dial, handshake, request, reply.
    pub timeout: Duration,
    /// Time for name, dial and handshake, where there is no connection yet; no
    /// more than `timeout`.
    pub connect: Duration,
    /// The timeout that is sent to the webhook in the URL; none if zero.
    pub announced: Duration,
    /// The largest reply in bytes, as sent and as decompressed.
    pub reply_bytes: usize,
}

/// The reply to one call.
#[derive(Debug, Default)]
pub struct Reply {
    /// Its body, decompressed.
    pub body: Bytes,
    /// To be released once the body turned out to be a reply to the question that was asked.
    pub connection: UsedConnection,
}

struct ClientConnections {
    settings: Settings,
    user_agent: HeaderValue,
    via: HeaderValue,
    pool: ConnectionPool,
}

// === impl Client ===

impl Client {
    /// A client that has not connected yet.
    ///
    /// # Errors
    ///
    /// Authorities or a client certificate that cannot be used.
    pub fn new(settings: Settings, authorization: ClientAuthorization) -> Result<Self, InvalidSettings> {
        let connector = Connector::new(&settings)?;
        let text = |text: &str| HeaderValue::from_str(text).map_err(|_| InvalidSettings::Header);
        let connections = ClientConnections {
            // As the URL has it, with its port.
            pool: ConnectionPool::new(connector, text(settings.url.authority())?),
            user_agent: text(&settings.user_agent)?,
            via: text(&format!("1.1 {}", settings.via))?,
            settings,
        };
        Ok(Self {
            connections: Arc::new(connections),
            authorization,
        })
    }

    /// Whom it calls, and how.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.connections.settings
    }

    /// A client over the same connections that shows `authorization`.
    #[must_use]
    pub fn with_authorization(&self, authorization: ClientAuthorization) -> Self {
        Self {
            connections: Arc::clone(&self.connections),
            authorization,
        }
    }

    /// Posts `body`, which is JSON, as a part of the trace of `parent`, and gives the reply, whose
    /// connection ends unless it is released.
    ///
    /// May be awaited on any runtime; the work is done on threads of its own. A
    /// caller that stops waiting ends the call.
    ///
    /// # Errors
    ///
    /// What happened instead of a reply of status 200 to 206 within `bounds`.
    pub async fn post(
        &self,
        body: Bytes,
        bounds: Bounds,
        parent: Option<TraceParent>,
    ) -> Result<Reply, CallError> {
        let now = Instant::now();
        let deadline = now + bounds.timeout;
        let connected_by = deadline.min(now + bounds.connect);
        let client = self.clone();
        let call = async move {
            timeout_at(deadline, client.exchange(body, bounds, connected_by, parent))
                .await
                .unwrap_or(Err(CallError::Timeout(bounds.timeout)))
        };
        pool::run(call).await?
    }

    async fn exchange(
        &self,
        body: Bytes,
        bounds: Bounds,
        connected_by: Instant,
        parent: Option<TraceParent>,
    ) -> Result<Reply, CallError> {
        let request = self.request(body, bounds.announced, parent).await?;
        let connect = (connected_by, bounds.connect.min(bounds.timeout));
        let (response, mut connection) = self.connections.pool.send(&request, connect).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            self.authorization.refused();
        }
        let body = reply::read(response, bounds.reply_bytes).await?;
        connection.sent().await;
        Ok(Reply { body, connection })
    }

    async fn request(
        &self,
        body: Bytes,
        announced: Duration,
        parent: Option<TraceParent>,
    ) -> Result<Request<Full<Bytes>>, CallError> {
        let connections = &self.connections;
        let mut request = Request::post(connections.settings.url.with_timeout(announced))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, */*")
            .header(ACCEPT_ENCODING, "gzip")
            .header(USER_AGENT, &connections.user_agent)
            .header(VIA, &connections.via);
        if let Some(authorization) = self.authorization.header().await {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some(parent) = parent {
            request = request.header(TRACEPARENT, parent.to_string());
        }
        request
            .body(Full::new(body))
            .map_err(|error| CallError::Exchange(error.to_string()))
    }
}

// === impl ClientConnections ===

impl std::fmt::Debug for ClientConnections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

// Errors of calls to webhooks.

/// Why a call got no reply. No text holds a credential or what the webhook sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The name has no address.
    #[error("no address for `{host}`: {reason}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// The address is not among those that may be dialled.
    #[error("`{0}` is not among the allowed addresses")]
    Forbidden(SocketAddr),
    /// The address is loopback or link-local, and others than the administrator chose it.
    #[error("`{0}` is loopback or link-local: the gateway's `upstreams` for this cluster must name it")]
    OnThisHost(SocketAddr),
    /// The address is where this gateway listens: the call would come back.
    #[error("`{0}` is this gateway itself")]
    Itself(SocketAddr),
    /// No connection came about.
    #[error("dial `{address}`: {reason}")]
    Dial {
        /// Where to.
        address: SocketAddr,
        /// What the system said.
        reason: String,
    },
    /// No connection came about in time.
    #[error("no connection within {0:?}")]
    Connect(Duration),
    /// The handshake failed, or the certificate is not to be trusted.
    #[error("tls: {0}")]
    Tls(String),
    /// The connection broke, or what came over it is not HTTP.
    #[error("{0}")]
    Exchange(String),
    /// The other side ended the connection in the middle.
    #[error("connection reset")]
    Reset,
    /// A status other than 200 to 206; a redirect is one.
    #[error("the webhook answered with status {0}")]
    Status(u16),
    /// The reply is larger than this many bytes.
    #[error("the reply is larger than {0} bytes")]
    TooLarge(usize),
    /// The reply says of itself what nobody can read.
    #[error("the reply's Content-Type is not a media type")]
    ContentType,
    /// The reply is not in the encoding that it claims.
    #[error("the reply cannot be decompressed")]
    Encoding,
    /// There is a connection, but the time is over.
    #[error("no reply within {0:?}")]
    Timeout(Duration),
    /// The threads that make calls are not there.
    #[error("cannot start a thread for the call")]
    Runtime,
}

/// Why nothing could be called with some settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    /// The URL is none, or not one of the scheme `https`.
    #[error("`{url}` is not a valid webhook URL: {reason}")]
    Url {
        /// As written.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A CA bundle without a certificate.
    #[error("the CA bundle has no certificate in PEM, or an invalid one")]
    Authorities,
    /// A client certificate that is none.
    #[error("the client certificate is not valid PEM")]
    Certificate,
    /// A key that is none, or is encrypted.
    #[error("the client key is not valid PEM, or is encrypted")]
    Key,
    /// A key of another certificate.
    #[error("the client key does not belong to the client certificate")]
    Mismatch,
    /// A host or credential that no header can hold.
    #[error("a host, user agent or credential contains characters that are not allowed in HTTP headers")]
    Header,
    /// OpenSSL refused.
    #[error("openssl: {0}")]
    OpenSsl(String),
}

// === impl CallError ===

impl From<hyper::Error> for CallError {
    fn from(error: hyper::Error) -> Self {
        if error.source().is_some_and(is_reset) {
            return Self::Reset;
        }
        let cause = error.source().map(|cause| format!(": {cause}"));
        Self::Exchange(format!("{error}{}", cause.unwrap_or_default()))
    }
}

fn is_reset(cause: &(dyn std::error::Error + 'static)) -> bool {
    let error = cause.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

// === impl InvalidSettings ===

impl From<openssl::error::ErrorStack> for InvalidSettings {
    fn from(error: openssl::error::ErrorStack) -> Self {
        let reason = error.errors().first().and_then(|first| first.reason());
        Self::OpenSsl(reason.unwrap_or("no reason given").to_owned())
    }
}

#[cfg(test)]
mod tests;
