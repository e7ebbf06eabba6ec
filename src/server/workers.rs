//! The threads that serve the connections of the `server` listener, one for each core: TLS
//! handshakes, HTTP, and the routes.
//!
//! ```text
//! accept ──▶ the worker with the fewest connections ──▶ TLS ─┬─▶ http1 ─┬─▶ routes
//!                                                            └─▶ http2 ─┘
//! ```
//!
//! | path | method | answers |
//! |---|---|---|
//! | `/authorize` | POST | a SubjectAccessReview: [`authorize`] |
//! | `/validate`, `/validate/{name}` | POST | an AdmissionReview: [`admit`] |
//! | `/mutate`, `/mutate/{name}` | POST | the same |
//! | `/t/{token}` followed by one of the last two | POST | the same, for callers identified by that token alone |
//!
//! Any other method is answered with 405, any other path with 404. [`receive`](super::receive)
//! makes the checks before a review is decoded.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use actix_rt::Arbiter;
use actix_service::Service;
use actix_web::web::{Bytes, Data};
use futures_util::Stream;
use openssl::ssl::{Ssl, SslContext};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio_openssl::SslStream;

use super::accept::{AcceptedConnection, Connection, HEAD_TIMEOUT, TrackedConnection};
use super::gateway::{GatewayState, LifecyclePhase};
use super::http2::{self, Timeouts};
use super::receive::{RequestContext, ReviewRequest, receive};
use super::request::{RequestHead, ReviewPath, ReviewRoute, skip_body};
use super::respond::{Rejection, Reply};
use super::{admit, authorize, http1};
use crate::identity::PeerCertificate;
use crate::telemetry::metrics::{Endpoint, Phase};
use crate::telemetry::per_worker::{become_worker, worker_count};

/// The threads of each worker for blocking work, such as reading files of credentials.
const BLOCKING_THREADS: usize = 1;

/// All workers.
pub(crate) struct Workers(Vec<Worker>);

struct Worker {
    arbiter: Arbiter,
    jobs: UnboundedSender<WorkerJob>,
    connections: Arc<AtomicUsize>,
}

/// A connection that is handed to a worker, with a standard stream, because a tokio stream belongs
/// to the runtime of one thread.
struct WorkerJob {
    stream: std::net::TcpStream,
    accepted: WorkerParts,
}

/// The parts of a handed-over connection besides its stream.
struct WorkerParts {
    peer: std::net::SocketAddr,
    tracked: TrackedConnection,
    load: Load,
}

/// Counts one connection of a worker until it is dropped.
struct Load(Arc<AtomicUsize>);

// === impl Workers ===

impl Workers {
    /// Starts the workers, which accept TLS with `tls`.
    pub(crate) fn start(shared: &Data<GatewayState>, tls: &SslContext) -> io::Result<Self> {
        let start = |number| Worker::start(number, shared.clone(), tls.clone());
        (0..worker_count())
            .map(start)
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Passes the connection to the worker with the fewest connections.
    pub(crate) fn serve(&self, accepted: AcceptedConnection) -> io::Result<()> {
        let load = |worker: &&Worker| worker.connections.load(Ordering::Relaxed);
        let worker = self.0.iter().min_by_key(load);
        worker.ok_or(io::ErrorKind::NotFound)?.take(accepted)
    }

    /// Stops the workers and drops their connections.
    pub(crate) fn stop(self) {
        for worker in &self.0 {
            // An error means that the worker has already ended.
            let _ended = worker.arbiter.stop();
        }
        for worker in self.0 {
            if worker.arbiter.join().is_err() {
                tracing::error!("a worker has panicked");
            }
        }
    }
}

// === impl Worker ===

impl Worker {
    fn start(number: usize, shared: Data<GatewayState>, tls: SslContext) -> io::Result<Self> {
        let arbiter = Arbiter::try_with_tokio_rt(|| {
            runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(BLOCKING_THREADS)
                .build()
        })?;
        let (jobs, received) = mpsc::unbounded_channel();
        arbiter.spawn_fn(move || {
            become_worker(number);
            drop(actix_rt::spawn(work(shared, tls, received)));
        });
        Ok(Self {
            arbiter,
            jobs,
            connections: Arc::default(),
        })
    }

    fn take(&self, accepted: AcceptedConnection) -> io::Result<()> {
        let AcceptedConnection {
            stream,
            peer,
            tracked,
        } = accepted;
        let accepted = WorkerParts {
            peer,
            tracked,
            load: Load::new(&self.connections),
        };
        // An error concerns this connection only.
        let Ok(stream) = stream.into_std() else {
            return Ok(());
        };
        let job = WorkerJob { stream, accepted };
        self.jobs
            .send(job)
            .map_err(|_| io::Error::other("a worker has ended"))
    }
}

// === impl Load ===

impl Load {
    fn new(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connections))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The task of one worker.
async fn work(shared: Data<GatewayState>, tls: SslContext, mut jobs: UnboundedReceiver<WorkerJob>) {
    let shared = Rc::new(shared);
    let of_http1 = Rc::clone(&shared);
    let app = move |head: &RequestHead<'_>, body| answer(&of_http1, head, body);
    let Some(http1) = http1::service(Rc::new(http1::reviews(app))).await else {
        tracing::error!("HTTP/1.1 cannot be served");
        return;
    };
    let http1 = Rc::new(http1);
    while let Some(job) = jobs.recv().await {
        let (shared, tls, http1) = (Rc::clone(&shared), tls.clone(), Rc::clone(&http1));
        actix_rt::spawn(async move {
            let status = Arc::clone(job.accepted.tracked.status());
            status.run(connection(job, &shared, &tls, &*http1)).await;
        });
    }
}

/// Serves one connection to its end.
async fn connection<H>(job: WorkerJob, shared: &Rc<Data<GatewayState>>, tls: &SslContext, http1: &H)
where
    H: Service<(http1::Stream<SslStream<TcpStream>>, Option<std::net::SocketAddr>), Response = ()>,
    H::Error: std::fmt::Debug,
{
    let WorkerParts {
        peer,
        tracked,
        load: _load,
    } = job.accepted;
    let Ok(stream) = TcpStream::from_std(job.stream) else {
        return;
    };
    if stream.readable().await.is_ok() {
        tracked.record_sent();
    }
    let stream = match handshake(stream, tls).await {
        Ok(stream) => stream,
        Err(error) => return shared.refusals.log_handshake(&error, peer),
    };
    let certificate = certificate(&stream);
    prove(&tracked, certificate.as_ref(), shared);
    let connection = Connection::new(tracked, peer, certificate, HEAD_TIMEOUT);
    if stream.ssl().selected_alpn_protocol() == Some(b"h2") {
        let app = |head: &RequestHead<'_>, body| answer(shared, head, body);
        http2::serve(stream, connection, app, Timeouts::default()).await;
    } else if let Err(error) = http1
        .call((http1::Stream::new(stream, connection), Some(peer)))
        .await
    {
        tracing::debug!(?error, %peer, "an HTTP/1.1 connection has ended early");
    }
}

/// Records what the handshake has proven about the client.
fn prove(tracked: &TrackedConnection, certificate: Option<&PeerCertificate>, shared: &GatewayState) {
    let (authenticator, now) = (&shared.state.current().authenticator, SystemTime::now());
    tracked.handshake_done(
        certificate.is_some_and(|certificate| authenticator.is_signed_by_client_ca(certificate, now)),
    );
    if let Some(cluster) = certificate.and_then(|certificate| authenticator.cluster_of(certificate, now)) {
        tracked.mark_authenticated(&cluster);
    }
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("{0}")]
    Tcp(#[from] io::Error),
    #[error("{0}")]
    Setup(#[from] openssl::error::ErrorStack),
    #[error("{0}")]
    Tls(#[from] openssl::ssl::Error),
}

/// Accepts a TLS connection with `tls`.
pub(crate) async fn handshake(
    stream: TcpStream,
    tls: &SslContext,
) -> Result<SslStream<TcpStream>, HandshakeError> {
    stream.set_nodelay(true)?;
    let mut stream = SslStream::new(Ssl::new(tls)?, stream)?;
    Pin::new(&mut stream).accept().await?;
    Ok(stream)
}

/// The certificate that the client sent, with its intermediates.
pub(crate) fn certificate(stream: &SslStream<TcpStream>) -> Option<PeerCertificate> {
    let leaf = stream.ssl().peer_certificate()?;
    let sent_with_it = stream.ssl().peer_cert_chain().into_iter().flatten();
    Some(PeerCertificate::new(leaf, sent_with_it.map(ToOwned::to_owned)))
}

// The routes.

/// Answers one request, and returns the rest of its body. The head is checked before this function
/// returns, so that the future does not borrow it. `shared` is the worker's own reference.
fn answer<B, E>(
    shared: &Rc<Data<GatewayState>>,
    head: &RequestHead<'_>,
    mut body: B,
) -> impl Future<Output = (Reply, B)> + use<B, E>
where
    B: Stream<Item = Result<Bytes, E>> + Unpin,
{
    let path = ReviewPath::of(head.path);
    let endpoint = path.as_ref().map(|path| path.route.endpoint());
    let begun = begin(shared, head, path);
    let trace = begun.as_ref().map(|(_, context)| context.trace().clone());
    let trace = trace.unwrap_or_default();
    let shared = Rc::clone(shared);
    async move {
        let received = match begun {
            Ok((route, context)) => context
                .read(&shared, &mut body)
                .await
                .map(|review| (route, review)),
            Err(rejection) => Err(rejection),
        };
        let answer = match received {
            Ok((route, received)) => {
                let room = received.permit.reply_room();
                let reply = review(&shared, route, received).await;
                reply.and_then(|reply| room.reserve(reply).ok_or(Rejection::TooManyRequests))
            }
            Err(rejection) => {
                skip_body(&mut body).await;
                Err(rejection)
            }
        };
        let reply = finish(&shared, endpoint, answer);
        trace.finish(reply.code);
        (reply, body)
    }
}

fn begin(
    shared: &GatewayState,
    head: &RequestHead<'_>,
    path: Option<ReviewPath>,
) -> Result<(ReviewRoute, RequestContext), Rejection> {
    let ReviewPath { route, token } = path.ok_or(Rejection::NotFound)?;
    if !head.is_post {
        return Err(Rejection::MethodNotAllowed);
    }
    let context = receive(head, token.as_ref(), shared, route.endpoint())?;
    Ok((route, context))
}

async fn review(
    shared: &Data<GatewayState>,
    route: ReviewRoute,
    received: ReviewRequest,
) -> Result<Bytes, Rejection> {
    match route {
        ReviewRoute::Authorize => authorize::answer(shared, received).await,
        // Boxed because it is large, and would enlarge the future of every request.
        ReviewRoute::Admit(phase, only) => Box::pin(admit::answer(shared, received, phase, only))
            .await
            .map(Bytes::from),
    }
}

/// Counts the response and, while draining, closes the connection after it.
fn finish(shared: &GatewayState, endpoint: Option<Endpoint>, answer: Result<Bytes, Rejection>) -> Reply {
    let mut reply = match answer {
        Ok(review) => Reply::review(review),
        Err(rejection) => rejection.reply(),
    };
    reply.closes_connection = shared.lifecycle.phase() == LifecyclePhase::Draining;
    shared.metrics.http_request(endpoint, reply.code);
    reply
}

// === impl ReviewRoute ===

impl ReviewRoute {
    const fn endpoint(&self) -> Endpoint {
        match self {
            Self::Authorize => Endpoint::Authorize,
            Self::Admit(Phase::Validate, _) => Endpoint::Validate,
            Self::Admit(Phase::Mutate, _) => Endpoint::Mutate,
        }
    }
}
