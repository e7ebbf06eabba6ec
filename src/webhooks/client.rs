//! The HTTP client for webhooks, with persistent connections.
//!
//! ```text
//! post ──(runtime of its own)──▶ pool ──▶ an idle connection, or a new one: addresses ▶ dial ▶ TLS
//!                                  └─▶ request ──▶ reply: status, gzip, bound ──▶ verified: released
//! ```
//!
//! As in client-go, HTTP/1.1 is used unless HTTP/2 is enabled, only replies with a status from 200
//! to 206 succeed, and the `timeout` of the call is in the URL. Unlike client-go, there is no proxy
//! from the environment, there are no redirects, no retries on `Retry-After`, and every reply is
//! bounded. A request is sent a second time only if its idle connection was closed before any of it
//! was written.
//!
//! It follows `client-go/rest/request.go` and `client-go/transport`.

mod addresses;
mod connect;
mod context;
mod pool;
mod reply;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT, VIA,
};
use hyper::{Request, StatusCode};
use portcullis_policy::admission::TakenMemory;
use tokio::task::spawn_blocking;
use tokio::time::timeout_at;
use zeroize::Zeroizing;

pub use addresses::{Addresses, Url};
pub use connect::{ClientHandshakeError, Settings, TlsClient, TlsConnection};
pub(crate) use connect::{Connector, ReadAllowance};
pub use context::{ClientIdentity, trust_system};
pub use pool::UsedConnection;
pub use reply::{CallError, ReplyMemory, SettingsError};

use crate::config::{FileScope, Files, Secret};
use crate::telemetry::traces::TraceParent;

use pool::{ConnectionPool, RequestBody};
use reply::CountedBody;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Calls one webhook. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Client {
    connections: Arc<ClientConnections>,
    authorization: ClientAuthorization,
}

/// The limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// For the whole call: name resolution, dialling, handshake, request and reply.
    pub timeout: Duration,
    /// For name resolution, dialling and handshake, if there is no idle connection; at most
    /// `timeout`.
    pub connect: Duration,
    /// The timeout that is sent in the URL; none if zero.
    pub announced: Duration,
    /// The most bytes of the reply, both as sent and decompressed.
    pub reply_bytes: usize,
}

/// The reply of one call.
#[derive(Default)]
pub struct Reply {
    /// Its body, decompressed.
    pub body: Bytes,
    /// The memory that is reserved for it.
    pub taken: Option<TakenMemory>,
    /// Has to be released after the body was verified as the reply to this request, so that the
    /// connection can be reused.
    pub connection: UsedConnection,
}

struct ClientConnections {
    settings: Settings,
    user_agent: HeaderValue,
    via: HeaderValue,
    pool: ConnectionPool,
}

/// How long a token is used before its file is read again: the leeway of client-go's tokens
/// (`transport/token_source.go`).
const TOKEN_LEEWAY: Duration = Duration::from_secs(10);

/// The least time between two reads of the file, even if the webhook keeps rejecting the token.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(1);

/// How the `Authorization` header of each request is determined.
#[derive(Debug, Clone, Default)]
pub enum ClientAuthorization {
    /// The header is not sent.
    #[default]
    None,
    /// A constant header.
    Fixed(HeaderValue),
    /// A bearer token from a file that is read again periodically.
    File(Arc<TokenFile>),
}

/// A file with a bearer token, which another program updates.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    scope: FileScope,
    current: Mutex<CachedToken>,
}

#[derive(Debug)]
struct CachedToken {
    header: HeaderValue,
    /// When the file has to be read again.
    due: Instant,
    /// When it was last read, if ever.
    read_at: Option<Instant>,
    /// Whether it is being read.
    is_reading: bool,
}

// === impl Client ===

impl Client {
    /// A client that has not connected yet.
    ///
    /// # Errors
    ///
    /// The CAs or the client certificate cannot be used.
    pub fn new(settings: Settings, authorization: ClientAuthorization) -> Result<Self, SettingsError> {
        let connector = Connector::new(&settings)?;
        let text = |text: &str| HeaderValue::from_str(text).map_err(|_| SettingsError::Header);
        let connections = ClientConnections {
            // The host header has the port of the URL.
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

    /// The settings of its connections.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.connections.settings
    }

    /// A client with the same connections that sends `authorization`.
    #[must_use]
    pub fn with_authorization(&self, authorization: ClientAuthorization) -> Self {
        Self {
            connections: Arc::clone(&self.connections),
            authorization,
        }
    }

    /// Posts `body`, which is JSON, as a part of the trace of `parent`, and returns the reply. Its
    /// connection is closed unless it is released, and its bytes are reserved in `memory` as they
    /// arrive.
    ///
    /// May be awaited on any runtime: the work is done on the client's own threads. Dropping the
    /// future cancels the call.
    ///
    /// # Errors
    ///
    /// Why there is no reply with a status from 200 to 206 within `bounds`.
    pub async fn post(
        &self,
        body: Bytes,
        bounds: Bounds,
        parent: Option<TraceParent>,
        memory: Option<ReplyMemory>,
    ) -> Result<Reply, CallError> {
        let now = tokio::time::Instant::now();
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
        connected_by: tokio::time::Instant,
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

// === impl ClientAuthorization ===

impl ClientAuthorization {
    /// The scheme `Bearer` with `token`.
    ///
    /// # Errors
    ///
    /// The token contains characters that are not allowed in a header.
    pub fn bearer(token: &Secret) -> Result<Self, SettingsError> {
        bearer(token.reveal()).map(Self::Fixed)
    }

    /// The scheme `Basic` with a username and password.
    ///
    /// # Errors
    ///
    /// None in practice: every name and password can be encoded.
    pub fn basic(username: &str, password: &Secret) -> Result<Self, SettingsError> {
        let mut pair = Zeroizing::new(format!("{username}:").into_bytes());
        pair.extend_from_slice(password.reveal());
        let encoded = Zeroizing::new(STANDARD.encode(&*pair));
        header("Basic ", encoded.as_bytes()).map(Self::Fixed)
    }

    /// The scheme `Bearer` with `token`, and later with the contents of the file at `path`, which
    /// must be within `scope`.
    ///
    /// # Errors
    ///
    /// The token contains characters that are not allowed in a header.
    pub fn token_file((path, scope): (&Path, &FileScope), token: &Secret) -> Result<Self, SettingsError> {
        let current = CachedToken {
            header: bearer(token.reveal())?,
            due: Instant::now() + TOKEN_LEEWAY,
            read_at: None,
            is_reading: false,
        };
        Ok(Self::File(Arc::new(TokenFile {
            path: path.to_owned(),
            scope: scope.clone(),
            current: Mutex::new(current),
        })))
    }

    /// The header to send now.
    pub(crate) async fn header(&self) -> Option<HeaderValue> {
        match self {
            Self::None => None,
            Self::Fixed(header) => Some(header.clone()),
            Self::File(file) => Some(file.header(Instant::now()).await),
        }
    }

    /// Records that the webhook rejected the header: the next call reads the file again, unless it
    /// was just read.
    pub(crate) fn refused(&self) {
        if let Self::File(file) = self {
            file.refused(Instant::now());
        }
    }
}

// === impl TokenFile ===

impl TokenFile {
    /// Returns the header. Once in ten seconds one call reads the file; others use the current
    /// token meanwhile, so that a slow file system blocks one thread at most. If the file cannot be
    /// read, the token is kept.
    async fn header(self: &Arc<Self>, now: Instant) -> HeaderValue {
        let (header, is_due) = self.with(|current| {
            let is_due = current.due <= now && !current.is_reading;
            if is_due {
                current.due = now + TOKEN_LEEWAY;
                current.read_at = Some(now);
                current.is_reading = true;
            }
            (current.header.clone(), is_due)
        });
        if !is_due {
            return header;
        }
        let file = Arc::clone(self);
        spawn_blocking(move || file.read()).await.unwrap_or(header)
    }

    /// Reads the file, and returns the header to send from now on.
    fn read(&self) -> HeaderValue {
        let read = Files::read(&self.scope, &self.path).map(Zeroizing::new);
        let file = self.path.display();
        let fresh = match read.map(|bytes| bearer(bytes.trim_ascii())) {
            Ok(Ok(header)) => Some(header),
            Ok(Err(_)) => {
                tracing::warn!(%file, "token file is empty: using the previous token");
                None
            }
            Err(error) => {
                tracing::warn!(%file, %error, "cannot read token file: using the previous token");
                None
            }
        };
        self.with(|current| {
            current.is_reading = false;
            if let Some(fresh) = fresh {
                current.header = fresh;
            }
            current.header.clone()
        })
    }

    fn refused(&self, now: Instant) {
        self.with(|current| {
            let soon = current
                .read_at
                .map_or(now, |looked| now.max(looked + MIN_READ_INTERVAL));
            current.due = current.due.min(soon);
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut CachedToken) -> T) -> T {
        act(&mut self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn bearer(token: &[u8]) -> Result<HeaderValue, SettingsError> {
    if token.is_empty() {
        return Err(SettingsError::Header);
    }
    header("Bearer ", token)
}

/// A header that is marked as sensitive, so that it is never printed.
fn header(scheme: &str, credential: &[u8]) -> Result<HeaderValue, SettingsError> {
    let mut text = Zeroizing::new(scheme.as_bytes().to_vec());
    text.extend_from_slice(credential);
    let mut header = HeaderValue::from_bytes(&text).map_err(|_| SettingsError::Header)?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests;
