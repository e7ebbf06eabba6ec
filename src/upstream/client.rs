//! The HTTP client for webhooks, with persistent connections.
//!
//! ```text
//! post ──(runtime of its own)──▶ pool ──▶ an idle connection, or a new one: addresses ▶ dial ▶ TLS
//!                                  └─▶ request ──▶ reply: status, gzip, bound
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
mod error;
mod media_type;
mod reply;
mod resolution;
mod runtime;
mod tls;
mod url;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT, VIA,
};
use hyper::{Request, StatusCode, Version};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, sleep_until, timeout_at};

pub use addresses::Addresses;
pub use authorization::ClientAuthorization;
pub use connect::{ClientHandshakeError, TlsClient, TlsConnection};
pub use error::{Error, InvalidSettings};
pub use tls::{ClientIdentity, trust_system};
pub use url::Url;

use connect::Connector;

use crate::telemetry::traces::TraceParent;

/// How long an idle connection is kept: as Go's default transport does.
const IDLE: Duration = Duration::from_secs(90);
/// Idle connections to one webhook; client-go keeps 25.
const IDLE_CONNECTIONS: usize = 64;

/// Silence after which an HTTP/2 connection is probed, and how long it may take
/// to answer; as `apimachinery/pkg/util/net/http.go` has them.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(15);

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

struct ClientConnections {
    settings: Settings,
    host: HeaderValue,
    user_agent: HeaderValue,
    via: HeaderValue,
    pool: legacy::Client<Connector, Full<Bytes>>,
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
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PONG)
            .build(connector);
        let text = |text: &str| HeaderValue::from_str(text).map_err(|_| InvalidSettings::Header);
        let connections = ClientConnections {
            host: text(settings.url.authority())?,
            user_agent: text(&settings.user_agent)?,
            via: text(&format!("1.1 {}", settings.via))?,
            settings,
            pool,
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

    /// Posts `body`, which is JSON, as a part of the trace of `parent`, and gives the body of
    /// the reply.
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
    ) -> Result<Bytes, Error> {
        let now = Instant::now();
        let deadline = now + bounds.timeout;
        let connected_by = deadline.min(now + bounds.connect);
        let client = self.clone();
        let call = async move {
            timeout_at(deadline, client.exchange(body, bounds, connected_by, parent))
                .await
                .unwrap_or(Err(Error::Timeout(bounds.timeout)))
        };
        runtime::run(call).await?
    }

    async fn exchange(
        &self,
        body: Bytes,
        bounds: Bounds,
        connected_by: Instant,
        parent: Option<TraceParent>,
    ) -> Result<Bytes, Error> {
        let mut request = self.request(body, bounds.announced, parent).await?;
        let connection = capture_connection(&mut request);
        let response = tokio::select! {
            biased;
            response = self.connections.pool.request(request) => response?,
            () = unconnected(connection, connected_by) => {
                return Err(Error::Connect(bounds.connect.min(bounds.timeout)));
            }
        };
        if response.status() == StatusCode::UNAUTHORIZED {
            self.authorization.refused();
        }
        reply::read(response, bounds.reply_bytes).await
    }

    async fn request(
        &self,
        body: Bytes,
        announced: Duration,
        parent: Option<TraceParent>,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let connections = &self.connections;
        let mut request = Request::post(connections.settings.url.with_timeout(announced))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, */*")
            .header(ACCEPT_ENCODING, "gzip")
            .header(USER_AGENT, &connections.user_agent)
            .header(VIA, &connections.via);
        if !connections.settings.is_http2 {
            // As the URL has it, with its port; hyper would leave out 443.
            request = request.version(Version::HTTP_11).header(HOST, &connections.host);
        }
        if let Some(authorization) = self.authorization.header().await {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some(parent) = parent {
            request = request.header(TRACEPARENT, parent.to_string());
        }
        request
            .body(Full::new(body))
            .map_err(|error| Error::Exchange(error.to_string()))
    }
}

/// Ends at `by` if there is no connection then; else never.
async fn unconnected(connection: CaptureConnection, by: Instant) {
    sleep_until(by).await;
    if connection.connection_metadata().is_some() {
        pending::<()>().await;
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

#[cfg(test)]
mod tests;
