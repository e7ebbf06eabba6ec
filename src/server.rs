//! The listeners. actix-web is used only here.
//!
//! ```text
//! accept ── connections: how many ──▶ workers: TLS ──▶ http1, http2 ──▶ workers: routes
//!        routes ──▶ receive: caller, limits, body ──▶ authorize ──▶ reply
//!                                           └──▶ admit ─ pool ┘
//! admin ◀── lifecycle: starting, serving, draining ──┘
//! console: a listener of its own for people
//! ```
//!
//! An authorization decision takes about a microsecond and is made on the worker thread
//! that read the request, unless the review is unusually long. Admission reviews get a
//! short time slice there; longer ones run on separate threads.

mod accept;
mod admin;
mod admit;
mod authorize;
mod console;
mod counters;
mod gateway;
mod http1;
mod http2;
mod invariants;
mod limits;
mod pool;
mod receive;
mod refusals;
mod request;
mod respond;
mod workers;

use std::future::Future;
use std::hint::black_box;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use actix_web::rt::System;
use actix_web::web::Data;
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use crate::config::ConnectionLimits;
use crate::identity::tls::{Handshake, TlsContext};
use crate::state::ReloadState;
use accept::AcceptLimits;
use gateway::GatewayState;
use workers::Workers;

pub use gateway::Gateway;
#[cfg(fuzzing)]
pub use http2::fuzzing;

/// Why nobody can listen there, and what to do about it.
fn describe(error: &io::Error) -> String {
    let message = match error.kind() {
        io::ErrorKind::AddrInUse => "another process listens there: stop it, or set another port",
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address: set one of its own, or `0.0.0.0` or `[::]` for all of them"
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied: a port below 1024 needs the capability CAP_NET_BIND_SERVICE; set a higher one"
        }
        _ => return crate::config::files::describe(error),
    };
    message.to_owned()
}

/// How long connections get to close once nothing is in flight.
const MAX_CLOSE_TIME: Duration = Duration::from_secs(1);

/// How long the decision log gets to write what is queued, the recording, and the collector to
/// take spans.
const MAX_FLUSH_TIME: Duration = Duration::from_secs(2);

/// How long decisions and reviews get that wait to be written as files: one for each cluster.
const MAX_FILES_FLUSH_TIME: Duration = Duration::from_secs(10);

/// Why the gateway does not serve.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// An address cannot be listened at.
    #[error("cannot listen at `{address}`: {}", describe(.source))]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// A server cannot be started, or ended by itself.
    #[error("cannot serve: {0}")]
    Serve(#[from] io::Error),
}

/// A gateway that listens and does not answer yet.
pub struct Server {
    reviews: TcpListener,
    admin: TcpListener,
    console: Option<TcpListener>,
    addresses: ListenAddresses,
    shared: Data<GatewayState>,
}

/// Where a gateway listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddresses {
    /// Reviews, over TLS.
    pub server: SocketAddr,
    /// Probes and metrics.
    pub admin: SocketAddr,
    /// The page for people, if there is one.
    pub console: Option<SocketAddr>,
}

// === impl Server ===

impl Server {
    /// Listens at the addresses of the configuration in force. Their change
    /// takes a new start.
    ///
    /// # Errors
    /// [`ServerError::Bind`] with the address that is taken or not this machine's.
    pub fn bind(gateway: Gateway) -> Result<Self, ServerError> {
        let (server, admin, console) = {
            let config = &gateway.state.current().config;
            let console = config.console.as_ref().map(|console| console.address);
            (config.server.address, config.admin.address, console)
        };
        let bind = |address| accept::bind(address).map_err(|source| ServerError::Bind { address, source });
        let (reviews, admin, console) = (bind(server)?, bind(admin)?, console.map(bind).transpose()?);
        let addresses = ListenAddresses {
            server: reviews.local_addr()?,
            admin: admin.local_addr()?,
            console: console.as_ref().map(TcpListener::local_addr).transpose()?,
        };
        Ok(Self {
            reviews,
            admin,
            console,
            addresses,
            shared: Data::new(GatewayState::new(gateway)?),
        })
    }

    /// Where it listens; where the configuration says port 0, the port that it got.
    #[must_use]
    pub const fn addresses(&self) -> ListenAddresses {
        self.addresses
    }

    /// Answers until `stop` is there, then drains: readiness fails, what is in
    /// flight and what still comes is answered, connections close. Ends as soon
    /// as nothing is in flight, after `server.shutdownTimeout` at the latest. Blocks.
    ///
    /// # Errors
    /// [`ServerError::Serve`] when a server cannot be started or ends by itself.
    pub fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        System::new().block_on(self.serve(stop))
    }

    async fn serve(self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        let Self {
            reviews,
            admin,
            console,
            shared,
            ..
        } = self;
        let tls = TlsContext::acceptor(handshake(&shared.state)).map_err(io::Error::other)?;
        let workers = Workers::start(&shared, &tls.build().into_context())?;
        let (admin, admin_ended) = admin::start(&shared, admin)?;
        let console = console
            .map(|listener| console::start(&shared, listener))
            .transpose()?;
        let connections = &shared.lifecycle.connections;
        let limits = limits(&shared.state, accept::connections());
        let mut listening = Box::pin(async {
            tokio::select! {
                ended = accept::accept(reviews, connections, limits, |accepted| workers.serve(accepted)) => ended,
                () = connections.watch() => Ok(()),
                () = give_back() => Ok(()),
                _ = admin_ended => Ok(()),
            }
        });
        shared.lifecycle.serve();
        tokio::select! {
            () = stop => {}
            ended = &mut listening => return Err(unexpected_end(ended)),
        }
        tokio::select! {
            () = drain(&shared) => {}
            ended = &mut listening => return Err(unexpected_end(ended)),
        }
        // Nobody is accepted any more.
        drop(listening);
        shared.lifecycle.close(MAX_CLOSE_TIME).await;
        workers.stop();
        admin.stop();
        if admin.join().is_err() {
            tracing::error!("the admin listener has panicked");
        }
        if let Some(console) = console {
            console.stop();
            if console.join().is_err() {
                tracing::error!("the console has panicked");
            }
        }
        flush(&shared);
        Ok(())
    }
}

/// What each handshake goes by: the files in force.
fn handshake(state: &Arc<ReloadState>) -> impl Fn() -> Handshake + Send + Sync + 'static {
    let state = Arc::clone(state);
    move || {
        let current = state.current();
        Handshake {
            context: current.tls.clone(),
            demands_certificate: current.authenticator.demands_certificate(SystemTime::now()),
        }
    }
}

/// The limits of connections: those in force, and no more than there are descriptors for.
fn limits(state: &Arc<ReloadState>, affordable: usize) -> impl Fn() -> AcceptLimits {
    let state = Arc::clone(state);
    let configured = state.current().config.server.connections.max;
    if configured > affordable {
        tracing::warn!(
            configured,
            affordable,
            "the limit of open files allows fewer connections than server.connections.max"
        );
    }
    move || {
        let current = state.current();
        let limits = current.config.server.connections;
        AcceptLimits {
            connections: ConnectionLimits {
                max: limits.max.min(affordable),
                ..limits
            },
            clusters: current.authenticator.shares().len(),
        }
    }
}

/// Why listening has ended.
fn unexpected_end(ended: io::Result<()>) -> ServerError {
    ServerError::Serve(
        ended
            .err()
            .unwrap_or_else(|| io::Error::other("a listener ended by itself")),
    )
}

/// Has readiness fail and waits until nothing is in flight, `server.shutdownTimeout` at most.
async fn drain(shared: &GatewayState) {
    shared.lifecycle.drain();
    let limit = shared.state.current().config.server.shutdown_timeout;
    tracing::info!(limit_seconds = limit.as_secs(), "draining");
    if !shared.lifecycle.wait_until_idle(limit).await {
        tracing::warn!(
            limit_seconds = limit.as_secs(),
            "shutdown timeout: closing connections with requests in flight"
        );
    }
}

fn flush(shared: &GatewayState) {
    if !shared.recorder.flush_log(MAX_FLUSH_TIME) {
        tracing::warn!("some lines of the decision log were not written");
    }
    if !shared.recorder.flush_files(MAX_FILES_FLUSH_TIME) {
        tracing::warn!("some decisions were not written to `decisionLog.folder`");
    }
    if !shared.recorder.flush_log_records(MAX_FLUSH_TIME) {
        tracing::warn!("some log records were not sent to the collector");
    }
    if !shared.recorder.flush_usage(MAX_FLUSH_TIME) {
        tracing::warn!("some decisions of the last minute are not counted in the files of usage");
    }
    if !shared.recordings.flush(MAX_FILES_FLUSH_TIME) {
        tracing::warn!("some reviews were not recorded");
    }
    if !shared.traces.flush(MAX_FLUSH_TIME) {
        tracing::warn!("some spans were not sent");
    }
}

/// SIGTERM, SIGINT and SIGHUP, which from now on end the process no more.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

// === impl Signals ===

impl Signals {
    /// Begins to listen for signals. Needs a runtime: call it within the
    /// future that [`Server::run`](Server::run) is given.
    ///
    /// # Errors
    /// When the system does not let signals be handled.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for SIGTERM or SIGINT. At each SIGHUP before that, calls `hang_up`.
    pub async fn until_terminated(mut self, hang_up: impl Fn()) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => hang_up(),
            }
        }
    }
}

/// The time from one look to the next.
const COLLECT_INTERVAL: Duration = Duration::from_secs(3);

/// More than the allocator puts into a page with others.
const MIN_COLLECTED_BYTES: usize = 16 << 20;

/// Has the allocator look every few seconds, for ever.
pub(crate) async fn give_back() {
    loop {
        sleep(COLLECT_INTERVAL).await;
        // Nothing is written to it, so no memory is taken for it.
        drop(black_box(Vec::<u8>::with_capacity(MIN_COLLECTED_BYTES)));
    }
}
