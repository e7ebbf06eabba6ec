//! The listeners; actix-web lives here and nowhere else.
//!
//! ```text
//! listener ── TLS, peer certificate ──▶ routes ──▶ receive ── caller, limits, body ──▶ authorize ──▶ reply
//!                                                                         └──▶ admit ─ pool ┘
//! admin ◀── lifecycle: starting, serving, draining ──┘
//! ```
//!
//! Who may do what takes less than a microsecond to say and is decided on the
//! worker that read the request, but for reviews of unusual length. Admission
//! is tried there for a moment; what takes longer runs on threads of its own.

mod admin;
mod admit;
mod authorize;
mod body;
mod connection;
mod counters;
mod deadline;
mod farewell;
mod gateway;
mod lifecycle;
mod limits;
mod listener;
mod pool;
mod receive;
mod refusals;
mod respond;
mod routes;
mod signals;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::rt::{self, System};
use actix_web::web::Data;
use thiserror::Error;

pub use gateway::Gateway;
pub use signals::Signals;

use gateway::Shared;

/// How long connections get to close once nothing is in flight.
const CLOSE: Duration = Duration::from_millis(300);

/// How long the decision log gets to write what is queued.
const FLUSH: Duration = Duration::from_secs(2);

/// Why the gateway does not serve.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// An address cannot be listened at.
    #[error("cannot listen at `{address}`: {source}")]
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
    addresses: Addresses,
    shared: Data<Shared>,
}

/// Where a gateway listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Reviews, over TLS.
    pub server: SocketAddr,
    /// Probes and metrics.
    pub admin: SocketAddr,
}

// === impl Server ===

impl Server {
    /// Listens at the addresses of the configuration in force. Their change
    /// takes a new start.
    ///
    /// # Errors
    /// [`Error::Bind`] with the address that is taken or not this machine's.
    pub fn bind(gateway: Gateway) -> Result<Self, Error> {
        let (server, admin) = {
            let config = &gateway.state.current().config;
            (config.server.address, config.admin.address)
        };
        let bind = |address| listener::bind(address).map_err(|source| Error::Bind { address, source });
        let (reviews, admin) = (bind(server)?, bind(admin)?);
        let addresses = Addresses {
            server: reviews.local_addr()?,
            admin: admin.local_addr()?,
        };
        Ok(Self {
            reviews,
            admin,
            addresses,
            shared: Data::new(Shared::new(gateway)?),
        })
    }

    /// Where it listens; where the configuration says port 0, the port that it got.
    #[must_use]
    pub const fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Answers until `stop` is there, then drains: readiness fails, what is in
    /// flight and what still comes is answered, connections close. Ends as soon
    /// as nothing is in flight, after `server.drain` at the latest. Blocks.
    ///
    /// # Errors
    /// [`Error::Serve`] when a server cannot be started or ends by itself.
    pub fn run(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        System::new().block_on(self.serve(stop))
    }

    async fn serve(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let Self {
            reviews,
            admin,
            shared,
            ..
        } = self;
        let door = reviews.try_clone()?;
        let reviews = listener::reviews(&shared, reviews)?;
        let admin = listener::admin(&shared, admin)?;
        let (handle, admin_handle) = (reviews.handle(), admin.handle());
        let (mut reviews, mut admin) = (rt::spawn(reviews), rt::spawn(admin));
        shared.lifecycle.serve();
        let ended = tokio::select! {
            () = stop => None,
            ended = &mut reviews => Some(ended),
            ended = &mut admin => Some(ended),
        };
        if let Some(ended) = ended {
            ended.map_err(io::Error::other)??;
            return Err(Error::Serve(io::Error::other("a listener ended by itself")));
        }
        drain(&shared, &handle, &door).await;
        admin_handle.stop(false).await;
        Ok(())
    }
}

async fn drain(shared: &Shared, handle: &ServerHandle, door: &TcpListener) {
    shared.lifecycle.drain();
    let limit = shared.state.current().config.server.drain;
    tracing::info!(?limit, "draining");
    if !shared.lifecycle.drained(limit).await {
        tracing::warn!(?limit, "requests are still in flight: they are cut off");
    }
    handle.pause().await;
    listener::refuse(door);
    shared.lifecycle.close(CLOSE).await;
    handle.stop(false).await;
    if let Some(log) = &shared.decision_log
        && !log.flush(FLUSH)
    {
        tracing::warn!("some of the decision log is not written");
    }
}
