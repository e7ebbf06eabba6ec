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

/// Describes why an address cannot be listened at, and what to do about it.
fn describe(error: &io::Error) -> String {
    let message = match error.kind() {
        io::ErrorKind::AddrInUse => "another process uses this address: stop it, or set another port",
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have this address: set one that it has, or `0.0.0.0` or `[::]` for all"
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied: a port below 1024 needs the capability CAP_NET_BIND_SERVICE; set a higher one"
        }
        _ => return crate::config::files::describe(error),
    };
    message.to_owned()
}

/// The time that connections have to close once no request is in flight.
const MAX_CLOSE_TIME: Duration = Duration::from_secs(1);

/// The time to write the queued lines of the decision log and the usage counts, and to send the
/// queued log records and spans to the collector.
const MAX_FLUSH_TIME: Duration = Duration::from_secs(2);

/// The time to write the decisions and reviews that are queued for files, of which there is one for
/// each cluster.
const MAX_FILES_FLUSH_TIME: Duration = Duration::from_secs(10);

/// Why the gateway cannot serve.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The gateway cannot listen at an address.
    #[error("cannot listen at `{address}`: {}", describe(.source))]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A server cannot be started, or ended unexpectedly.
    #[error("cannot serve: {0}")]
    Serve(#[from] io::Error),
}

/// A gateway that listens but does not serve yet.
pub struct Server {
    review_listener: TcpListener,
    admin: TcpListener,
    console: Option<TcpListener>,
    addresses: ListenAddresses,
    shared: Data<GatewayState>,
}

/// The addresses at which a gateway listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddresses {
    /// The listener for reviews, over TLS.
    pub server: SocketAddr,
    /// The listener for probes and metrics.
    pub admin: SocketAddr,
    /// The listener of the console, if it is configured.
    pub console: Option<SocketAddr>,
}

// === impl Server ===

impl Server {
    /// Listens at the addresses of the configuration in force. A change of these addresses takes
    /// effect only after a restart.
    ///
    /// # Errors
    /// [`ServerError::Bind`] with the address that is in use or does not belong to this machine.
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
            review_listener: reviews,
            admin,
            console,
            addresses,
            shared: Data::new(GatewayState::new(gateway)?),
        })
    }

    /// The addresses at which the gateway listens, with the port that the system chose where the
    /// configuration says port 0.
    #[must_use]
    pub const fn addresses(&self) -> ListenAddresses {
        self.addresses
    }

    /// Serves until `stop` completes, then drains: readiness fails, requests in flight and new
    /// requests are answered, and connections close. Returns as soon as no request is in flight,
    /// after `server.shutdownTimeout` at the latest. Blocks.
    ///
    /// # Errors
    /// [`ServerError::Serve`] if a server cannot be started or ends unexpectedly.
    pub fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        System::new().block_on(self.serve(stop))
    }

    async fn serve(self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        let Self {
            review_listener: reviews,
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
        let limits = limits(&shared.state, accept::affordable_connections());
        let mut listening = Box::pin(async {
            tokio::select! {
                ended = accept::accept(reviews, connections, limits, |accepted| workers.serve(accepted)) => ended,
                () = connections.sweep_forever() => Ok(()),
                () = return_freed_memory() => Ok(()),
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
        // No further connections are accepted.
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

/// Returns the TLS context of each handshake, from the snapshot in force.
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

/// Returns the connection limits in force, with a maximum that the available file descriptors
/// allow.
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

/// The error of a listener that ended, which it does only on an error.
fn unexpected_end(ended: io::Result<()>) -> ServerError {
    ServerError::Serve(
        ended
            .err()
            .unwrap_or_else(|| io::Error::other("a listener ended unexpectedly")),
    )
}

/// Fails the readiness probe and waits until no request is in flight, for `server.shutdownTimeout`
/// at most.
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

/// The signals SIGTERM, SIGINT and SIGHUP, which do not terminate the process any more.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    handle_sighup: Signal,
}

// === impl Signals ===

impl Signals {
    /// Installs the signal handlers. Needs a runtime: call it within the future that is passed to
    /// [`Server::run`](Server::run).
    ///
    /// # Errors
    /// The operating system does not allow it.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            handle_sighup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for SIGTERM or SIGINT. At each SIGHUP before that, calls `handle_sighup`.
    pub async fn until_terminated(mut self, hang_up: impl Fn()) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.handle_sighup.recv() => hang_up(),
            }
        }
    }
}

/// The interval between two allocations of [`return_freed_memory`].
const MEMORY_RETURN_INTERVAL: Duration = Duration::from_secs(3);

/// Larger than any allocation that the allocator serves from a page shared with others.
const TRIGGER_ALLOCATION_BYTES: usize = 16 << 20;

/// Makes and frees a large allocation every few seconds, forever: mimalloc looks for memory to
/// return to the system only when a page is freed (`docs/decisions/mimalloc.md`).
pub(crate) async fn return_freed_memory() {
    loop {
        sleep(MEMORY_RETURN_INTERVAL).await;
        // The memory is never written, so the system provides no pages for it.
        drop(black_box(Vec::<u8>::with_capacity(TRIGGER_ALLOCATION_BYTES)));
    }
}
