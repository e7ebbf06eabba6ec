//! The open connections to one webhook, and the threads on which all calls are made: a few, started with
//! the first call and kept until the process ends.
//!
//! ```text
//! take ─▶ one call ─▶ reply ─▶ verified by the caller ─▶ release: idle, or ended
//! ```
//!
//! HTTP/1.1 does not say which question a reply answers. If a server, or a proxy before it, sends one reply too
//! many, every later question gets the reply to another. So a connection is used by one call at a time, until its
//! reply has been verified, and again only if that reply named its question. hyper closes an idle connection on
//! which anything arrives.

use std::future::Future;
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::header::{HOST, HeaderValue};
use hyper::http::uri::{PathAndQuery, Uri};
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{sleep, timeout, timeout_at};

use super::connect::{AllowedCall, Connector, IdleConnections, SWEEP_INTERVAL};
use super::reply::CallError;
use crate::config::limits::Descriptors;

/// Silence after which an HTTP/2 connection is probed, and how long it may take
/// to answer; as `apimachinery/pkg/util/net/http.go` has them.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a server that replied may take to read the rest of the request.
const MAX_UNREAD_TIME: Duration = Duration::from_millis(500);

/// The size of the buffer of an HTTP/1.1 connection, which it keeps while it is idle.
const MAX_BUFFER_BYTES: usize = 64 << 10;

/// The body of a request, which is sent in parts: hyper copies a part to its buffer, and keeps the buffer.
#[derive(Clone)]
pub(crate) struct RequestBody(Bytes);

/// The largest part of a body.
const MAX_PART_BYTES: usize = 16 << 10;

type SendResult = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>;

/// The connections to one webhook, and what opens new ones.
pub(crate) struct ConnectionPool {
    connector: Connector,
    /// `Host` of HTTP/1.1.
    host: HeaderValue,
    open: Arc<OpenConnections>,
}

/// The connections to one webhook that wait for a call.
struct OpenConnections {
    /// The ID of the HTTP/1.1 connections in [`IDLE`].
    id: u64,
    /// The ID of the HTTP/2 connection in [`IDLE`].
    shared_id: u64,
    tenant: Option<Arc<str>>,
    /// The HTTP/2 connection, which all calls may use at the same time. Once it is not kept any more, it ends with
    /// its last call.
    shared: Mutex<Weak<http2::SendRequest<RequestBody>>>,
}

/// All idle connections, and those of HTTP/2 that were used lately.
static IDLE: IdleConnections<IdleConnection> = IdleConnections::new();

enum IdleConnection {
    Http1(Http1Connection),
    Http2(
        #[expect(dead_code, reason = "it is open as long as somebody has it")]
        Arc<http2::SendRequest<RequestBody>>,
    ),
}

/// An HTTP/1.1 connection, which is closed when this is dropped.
struct Http1Connection {
    sender: http1::SendRequest<RequestBody>,
    driver: AbortHandle,
}

enum Connection {
    Http1(Http1Connection),
    Http2(Arc<http2::SendRequest<RequestBody>>),
}

/// The connection on which a reply arrived, until the reply is verified. If this is dropped without being
/// [released](Self::release), the reply was not to the question that was asked, and the connection is not used
/// again.
#[derive(Default)]
pub struct UsedConnection(Option<(Connection, Weak<OpenConnections>)>);

// === impl ConnectionPool ===

impl ConnectionPool {
    pub(crate) fn new(connector: Connector, host: HeaderValue) -> Self {
        Self {
            open: Arc::new(OpenConnections::new(connector.tenant().cloned())),
            connector,
            host,
        }
    }

    /// Allows a call's reply, of so many bytes, to be read until this is dropped.
    pub(crate) fn allow(&self, reply_bytes: usize) -> AllowedCall {
        self.connector.allow(reply_bytes)
    }

    /// Sends `request`, whose URI is absolute, and waits for the head of the reply. If a new connection is needed,
    /// it must be established by `connected_by`.
    pub(crate) async fn send(
        &self,
        request: &Request<RequestBody>,
        (connected_by, time_to_connect): (tokio::time::Instant, Duration),
    ) -> Result<(Response<Incoming>, UsedConnection), CallError> {
        while let Some(mut connection) = self.open.take() {
            match connection.send(request, &self.host).await {
                Err(error) if error.message().is_some() => {} // It had ended, and nothing was sent.
                sent => return self.sent(sent, connection),
            }
        }
        let connecting = timeout_at(connected_by, self.connect()).await;
        let mut connection = connecting.map_err(|_| CallError::Connect(time_to_connect))??;
        let sent = connection.send(request, &self.host).await;
        self.sent(sent, connection)
    }

    fn sent(
        &self,
        sent: SendResult,
        connection: Connection,
    ) -> Result<(Response<Incoming>, UsedConnection), CallError> {
        let response = sent.map_err(TrySendError::into_error)?;
        Ok((
            response,
            UsedConnection(Some((connection, Arc::downgrade(&self.open)))),
        ))
    }

    async fn connect(&self) -> Result<Connection, CallError> {
        let stream = self.connector.connect().await?;
        if !stream.is_http2() {
            let mut builder = http1::Builder::new();
            builder.max_buf_size(MAX_BUFFER_BYTES);
            let (sender, driver) = builder.handshake(stream).await?;
            let driver = tokio::spawn(driver).abort_handle();
            return Ok(Connection::Http1(Http1Connection { sender, driver }));
        }
        let (sender, driver) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(stream)
            .await?;
        drop(tokio::spawn(driver));
        Ok(Connection::Http2(self.open.share(sender)))
    }
}

// === impl OpenConnections ===

impl OpenConnections {
    fn new(tenant: Option<Arc<str>>) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let new_id = || IDS.fetch_add(1, Ordering::Relaxed);
        Self {
            id: new_id(),
            shared_id: new_id(),
            tenant,
            shared: Mutex::default(),
        }
    }

    /// A connection on which a request can be sent now.
    fn take(&self) -> Option<Connection> {
        let shared = self.shared().upgrade();
        if let Some(shared) = shared.filter(|shared| !shared.is_closed()) {
            return Some(Connection::Http2(shared));
        }
        let is_ready = |idle: &IdleConnection| match idle {
            IdleConnection::Http1(connection) => connection.sender.is_ready(),
            IdleConnection::Http2(_) => false,
        };
        match IDLE.take(self.id, is_ready)? {
            IdleConnection::Http1(connection) => Some(Connection::Http1(connection)),
            IdleConnection::Http2(_) => None,
        }
    }

    /// Shares an HTTP/2 connection with other calls, unless they have one.
    fn share(&self, sender: http2::SendRequest<RequestBody>) -> Arc<http2::SendRequest<RequestBody>> {
        let sender = Arc::new(sender);
        let mut shared = self.shared();
        if shared.upgrade().is_none_or(|shared| shared.is_closed()) {
            *shared = Arc::downgrade(&sender);
            drop(shared);
            self.keep_sharing(&sender);
        }
        sender
    }

    /// Keeps the shared HTTP/2 connection, as the one that was used last.
    fn keep_sharing(&self, sender: &Arc<http2::SendRequest<RequestBody>>) {
        if ptr::eq(self.shared().as_ptr(), Arc::as_ptr(sender)) {
            IDLE.end(self.shared_id);
            self.put(self.shared_id, IdleConnection::Http2(Arc::clone(sender)));
        }
    }

    fn end_sharing(&self, sender: &Arc<http2::SendRequest<RequestBody>>) {
        let mut shared = self.shared();
        if ptr::eq(shared.as_ptr(), Arc::as_ptr(sender)) {
            *shared = Weak::new();
            IDLE.end(self.shared_id);
        }
    }

    /// Keeps an idle connection.
    fn put(&self, id: u64, connection: IdleConnection) {
        let most = Descriptors::of_process().idle_calls;
        if IDLE.put(id, self.tenant.as_ref(), connection, most) {
            spawn(sweep());
        }
    }

    fn shared(&self) -> MutexGuard<'_, Weak<http2::SendRequest<RequestBody>>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenConnections {
    fn drop(&mut self) {
        IDLE.end(self.id);
        IDLE.end(self.shared_id);
    }
}

/// Ends connections that are idle for too long, for as long as there are any.
async fn sweep() {
    loop {
        sleep(SWEEP_INTERVAL).await;
        if !IDLE.end_old() {
            return;
        }
    }
}

// === impl RequestBody ===

impl RequestBody {
    pub(crate) const fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl hyper::body::Body for RequestBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.0.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.0.len().min(MAX_PART_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.0.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.0.len()).unwrap_or(u64::MAX))
    }
}

// === impl Http1Connection ===

impl Drop for Http1Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

// === impl Connection ===

impl Connection {
    async fn send(&mut self, request: &Request<RequestBody>, host: &HeaderValue) -> SendResult {
        let mut request = request.clone();
        match self {
            Self::Http1(connection) => {
                request.headers_mut().insert(HOST, host.clone());
                *request.uri_mut() = in_origin_form(request.uri());
                connection.sender.try_send_request(request).await
            }
            Self::Http2(sender) => {
                *request.version_mut() = Version::HTTP_2;
                http2::SendRequest::clone(sender).try_send_request(request).await
            }
        }
    }
}

// === impl UsedConnection ===

impl UsedConnection {
    /// Waits until the whole request is sent, now that the whole reply has arrived: only then can another request
    /// follow.
    pub(crate) async fn sent(&mut self) {
        let Some((Connection::Http1(connection), _)) = &mut self.0 else {
            return;
        };
        let ready = timeout(MAX_UNREAD_TIME, connection.sender.ready()).await;
        if !matches!(ready, Ok(Ok(()))) {
            self.0 = None;
        }
    }

    /// Lets other calls use the connection, if the reply was verified to be to the question that was asked, where
    /// that is possible. An HTTP/1.1 connection is used again only if the reply `names_question`.
    pub fn release(mut self, names_question: bool) {
        match self.0.take() {
            Some((Connection::Http1(connection), open)) if names_question => {
                if let Some(open) = open.upgrade() {
                    open.put(open.id, IdleConnection::Http1(connection));
                }
            }
            Some((Connection::Http2(sender), open)) => {
                if let Some(open) = open.upgrade() {
                    open.keep_sharing(&sender);
                }
            }
            _ => {}
        }
    }
}

impl Drop for UsedConnection {
    fn drop(&mut self) {
        if let Some((Connection::Http2(sender), open)) = self.0.take()
            && let Some(open) = open.upgrade()
        {
            open.end_sharing(&sender);
        }
    }
}

impl std::fmt::Debug for UsedConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UsedConnection").finish_non_exhaustive()
    }
}

/// The URI in origin form, as requests of HTTP/1.1 have it (RFC 9112, 3.2.1).
fn in_origin_form(uri: &Uri) -> Uri {
    let path = uri.path_and_query().cloned();
    path.unwrap_or_else(|| PathAndQuery::from_static("/")).into()
}

/// Threads for what blocks: name resolution and files.
const BLOCKING_THREADS: usize = 64;

static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();

/// Ends its task when dropped.
struct Task<T>(JoinHandle<T>);

/// Runs `call` on the threads for calls. It is aborted if the caller stops waiting.
pub(crate) async fn run<T: Send + 'static>(
    call: impl Future<Output = T> + Send + 'static,
) -> Result<T, CallError> {
    let runtime = RUNTIME.get_or_init(start).as_ref().ok_or(CallError::Runtime)?;
    let mut task = Task(runtime.spawn(call));
    (&mut task.0).await.map_err(|_| CallError::Runtime)
}

/// Runs `work` on the threads for calls, in the background.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    if let Some(runtime) = RUNTIME.get_or_init(start) {
        drop(runtime.spawn(work));
    }
}

fn start() -> Option<Runtime> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    Builder::new_multi_thread()
        .worker_threads(cores.clamp(2, 4))
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("upstream")
        .enable_all()
        .build()
        .inspect_err(|error| tracing::error!(%error, "cannot start the threads that call webhooks"))
        .ok()
}

// === impl Task ===

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use hyper_util::rt::TokioIo;
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    /// A connection of HTTP/2, what runs it, and its other end.
    async fn http2_connection() -> (http2::SendRequest<RequestBody>, JoinHandle<()>, DuplexStream) {
        let (near, far) = duplex(1 << 16);
        let builder = http2::Builder::new(TokioExecutor::new());
        let (sender, driver) = builder.handshake(TokioIo::new(near)).await.unwrap();
        (sender, tokio::spawn(async move { drop(driver.await) }), far)
    }

    #[tokio::test]
    async fn a_connection_of_http2_that_is_not_kept_ends_with_its_last_call() {
        let open = OpenConnections::new(None);
        let (sender, driver, _far) = http2_connection().await;
        drop(open.share(sender));
        let calls = [open.take().unwrap(), open.take().unwrap()];
        // As when there are too many idle ones.
        IDLE.end(open.shared_id);
        let [first, second] = calls;
        drop(first);
        let third = open.take();
        assert!(third.is_some(), "there is a call on it");
        drop((second, third));
        driver.await.unwrap();
        assert!(open.take().is_none());
    }

    #[tokio::test]
    async fn a_connection_of_http2_is_kept_as_one_that_was_used_last() {
        let open = Arc::new(OpenConnections::new(None));
        let (sender, _driver, _far) = http2_connection().await;
        drop(open.share(sender));
        let used = || UsedConnection(Some((open.take().unwrap(), Arc::downgrade(&open))));
        let late = used();
        IDLE.end(open.shared_id);
        late.release(false);
        assert!(open.take().is_some(), "it is kept again");
        // One whose reply was to another question is not, however many use it.
        drop((used(), used()));
        assert!(open.take().is_none());
    }
}
