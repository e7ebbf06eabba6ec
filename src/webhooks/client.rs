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
mod context;
mod pool;
mod reply;
mod url;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT, VIA,
};
use hyper::{Request, StatusCode};
use tokio::time::{Instant, timeout_at};

pub use addresses::Addresses;
pub use authorization::ClientAuthorization;
pub use connect::{ClientHandshakeError, Settings, TlsClient, TlsConnection};
pub use context::{ClientIdentity, trust_system};
pub use pool::UsedConnection;
pub use reply::{CallError, ReplyMemory, SettingsError};
pub use url::Url;

pub(crate) use connect::{Connector, ReadAllowance};

use pool::{ConnectionPool, RequestBody};
use reply::CountedBody;

use crate::telemetry::traces::TraceParent;
use portcullis_policy::admission::TakenMemory;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

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
#[derive(Default)]
pub struct Reply {
    /// Its body, decompressed.
    pub body: Bytes,
    /// The memory that was taken for it.
    pub taken: Option<TakenMemory>,
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
    pub fn new(settings: Settings, authorization: ClientAuthorization) -> Result<Self, SettingsError> {
        let connector = Connector::new(&settings)?;
        let text = |text: &str| HeaderValue::from_str(text).map_err(|_| SettingsError::Header);
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
    /// connection ends unless it is released, and whose bytes take of `memory` as they arrive.
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
        memory: Option<ReplyMemory>,
    ) -> Result<Reply, CallError> {
        let now = Instant::now();
        let deadline = now + bounds.timeout;
        let connected_by = deadline.min(now + bounds.connect);
        let client = self.clone();
        let call = async move {
            timeout_at(
                deadline,
                client.exchange(body, (bounds, memory), connected_by, parent),
            )
            .await
            .unwrap_or(Err(CallError::Timeout(bounds.timeout)))
        };
        pool::run(call).await?
    }

    async fn exchange(
        &self,
        body: Bytes,
        (bounds, memory): (Bounds, Option<ReplyMemory>),
        connected_by: Instant,
        parent: Option<TraceParent>,
    ) -> Result<Reply, CallError> {
        let request = self.request(body, bounds.announced, parent).await?;
        let connect = (connected_by, bounds.connect.min(bounds.timeout));
        let _allowed = self.connections.pool.allow(bounds.reply_bytes);
        let (response, mut connection) = self.connections.pool.send(&request, connect).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            self.authorization.refused();
        }
        let CountedBody { bytes, taken } = reply::read(response, bounds.reply_bytes, memory).await?;
        connection.sent().await;
        Ok(Reply {
            body: bytes,
            taken,
            connection,
        })
    }

    async fn request(
        &self,
        body: Bytes,
        announced: Duration,
        parent: Option<TraceParent>,
    ) -> Result<Request<RequestBody>, CallError> {
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
            .body(RequestBody::new(body))
            .map_err(|error| CallError::Exchange(error.to_string()))
    }
}

// === impl Reply ===

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply")
            .field("body", &self.body)
            .finish_non_exhaustive()
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
