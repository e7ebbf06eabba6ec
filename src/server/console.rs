//! The listener of the console, which serves people, separate from reviews and probes.
//!
//! ```text
//! accept ─▶ TLS, where configured ─▶ HTTP/1.1 ─▶ guard: Host, method, origin, caller
//!                                                  └─▶ assets
//!                                                  └─▶ views, on threads of their own
//! ```
//!
//! It has a connection limit and a thread of its own, and two threads for views, one of which
//! renders costly views one at a time: no request to the console delays a review or a probe.
//! [`crate::console`] renders the pages; this module decides who may see them, and sends them.

mod answer;
mod guard;
mod live;

use std::future::Future;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fmt, io};

use actix_rt::Arbiter;
use actix_service::{IntoServiceFactory as _, Service, ServiceFactory as _, map_config};
use actix_web::App;
use actix_web::dev::AppConfig;
use actix_web::web::{self, Data};
use openssl::ssl::SslContext;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::time::MissedTickBehavior;

use super::accept::Connections;
use super::accept::{self, AcceptedConnection, Connection};
use super::gateway::GatewayState;
use super::http1;
use super::workers::{certificate, handshake};
use crate::config::ConnectionLimits;
use crate::console::{ConsoleState, SAMPLE_INTERVAL};
use crate::identity::PeerCertificate;
use crate::identity::tls::{Handshake, TlsContext};
use answer::{CheapViews, ConsoleService, CostlyViews, UnreadAnswers, answer};
use guard::ConsoleGuard;
use live::LiveStreams;

/// The threads that render views: one for costly views, one for the others.
const VIEW_THREADS: usize = 2;

/// The most connections. The oldest is closed for a new one. A browser keeps up to six open.
const MAX_CONNECTIONS: usize = 256;

/// The limits on loopback, where clients do not authenticate.
const PLAIN_LIMITS: ConnectionLimits = ConnectionLimits {
    max: MAX_CONNECTIONS,
    per_address: MAX_CONNECTIONS,
    authentication_timeout: Duration::MAX,
};

/// The limits over TLS, where unauthenticated connections are closed as early as on the listener
/// for reviews.
const TLS_LIMITS: ConnectionLimits = ConnectionLimits {
    max: MAX_CONNECTIONS,
    per_address: 64,
    authentication_timeout: Duration::from_secs(10),
};

/// The time in which the head of a request must arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the console on `listener`. If it ends unexpectedly, reviews are still answered.
pub(crate) fn start(shared: &Data<GatewayState>, listener: TcpListener) -> io::Result<Arbiter> {
    let tls = acceptor(shared)?;
    let arbiter = Arbiter::try_with_tokio_rt(|| {
        runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(VIEW_THREADS)
            .build()
    })?;
    let shared = shared.clone();
    arbiter.spawn_fn(move || {
        drop(actix_rt::spawn(serve(shared, listener, tls)));
    });
    Ok(arbiter)
}

/// The TLS context for handshakes, if the console has TLS. If a reload removes TLS from the
/// configuration, this takes effect at the next start; until then the last certificate is used.
fn acceptor(shared: &Data<GatewayState>) -> io::Result<Option<SslContext>> {
    let Some(at_start) = shared.state.current().console_tls.clone() else {
        return Ok(None);
    };
    let state = Arc::clone(&shared.state);
    let current = move || {
        let context = state.current().console_tls.clone();
        Handshake::from(context.unwrap_or_else(|| at_start.clone()))
    };
    let acceptor = TlsContext::acceptor(current).map_err(io::Error::other)?;
    Ok(Some(acceptor.build().into_context()))
}

async fn serve(shared: Data<GatewayState>, listener: TcpListener, tls: Option<SslContext>) {
    // Without authentication, only loopback may be served: check the actual address, not the
    // configured one.
    let is_loopback = listener
        .local_addr()
        .is_ok_and(|address| address.ip().to_canonical().is_loopback());
    let guard = ConsoleGuard {
        is_loopback,
        has_tls: tls.is_some(),
    };
    let Some(service) = ConsoleService::new(shared, guard).filter(|_| guard.is_sound()) else {
        tracing::error!("the console needs TLS, or an address on loopback: it is not served");
        return;
    };
    let ended = match tls {
        None => {
            let plain = |stream: TcpStream| async { Some((stream, None)) };
            run(service, listener, PLAIN_LIMITS, plain).await
        }
        Some(tls) => {
            let encrypted = move |stream| {
                let tls = tls.clone();
                async move {
                    let stream = handshake(stream, &tls).await.ok()?;
                    let certificate = certificate(&stream);
                    Some((stream, certificate))
                }
            };
            run(service, listener, TLS_LIMITS, encrypted).await
        }
    };
    if let Err(error) = ended {
        tracing::error!(%error, "the console has ended");
    }
}

/// Serves connections, which `open` turns into streams, until accepting them fails.
async fn run<IO, O, F>(
    service: ConsoleService,
    listener: TcpListener,
    limits: ConnectionLimits,
    open: O,
) -> io::Result<()>
where
    IO: AsyncRead + AsyncWrite + Unpin + 'static,
    O: Fn(TcpStream) -> F,
    F: Future<Output = Option<(IO, Option<PeerCertificate>)>> + 'static,
{
    let sampling = sample(service.shared.clone(), Arc::clone(&service.console));
    let app = App::new()
        .app_data(Data::new(Rc::new(service)))
        .default_service(web::to(answer))
        .into_factory();
    let app = map_config(app, |()| AppConfig::default()).new_service(()).await;
    let app = app.map_err(|()| io::Error::other("its routes cannot be built"))?;
    let http1 = http1::service::<IO, _, _>(Rc::new(app)).await;
    let http1 = Rc::new(http1.ok_or_else(|| io::Error::other("HTTP/1.1 cannot be served"))?);
    let connections = Connections::new(None);
    let serve = |accepted: AcceptedConnection| {
        let opening = open(accepted.stream);
        let status = Arc::clone(accepted.tracked.status());
        let http1 = Rc::clone(&http1);
        let serving = async move {
            let Some((stream, certificate)) = opening.await else {
                return;
            };
            accepted.tracked.handshake_done(false);
            let connection = Connection::new(accepted.tracked, accepted.peer, certificate, HEAD_TIMEOUT);
            connection.head_began();
            // An error concerns this connection only.
            end(&*http1, http1::Stream::new(stream, connection), accepted.peer).await;
        };
        actix_rt::spawn(async move { status.run(serving).await });
        Ok(())
    };
    tokio::select! {
        () = connections.sweep_forever() => Ok(()),
        () = sampling => Ok(()),
        ended = accept::accept(listener, &connections, || limits.into(), serve) => ended,
    }
}

/// Takes samples of the metrics, forever.
async fn sample(shared: Data<GatewayState>, console: Arc<ConsoleState>) {
    let mut samples = tokio::time::interval(SAMPLE_INTERVAL);
    // Samples that were missed are not made up for.
    samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        samples.tick().await;
        console.sample(&shared.metrics, SystemTime::now());
    }
}

/// Serves one connection to its end.
async fn end<H, IO>(http1: &H, stream: http1::Stream<IO>, peer: std::net::SocketAddr)
where
    H: Service<(http1::Stream<IO>, Option<std::net::SocketAddr>), Response = ()>,
    H::Error: fmt::Debug,
{
    if let Err(error) = http1.call((stream, Some(peer))).await {
        tracing::debug!(?error, %peer, "a connection of the console has ended early");
    }
}

// === impl ConsoleService ===

impl ConsoleService {
    /// `None` if the gateway has no console.
    fn new(shared: Data<GatewayState>, guard: ConsoleGuard) -> Option<Self> {
        let console = Arc::clone(shared.console.as_ref()?);
        Some(Self {
            shared,
            console,
            guard,
            costly: CostlyViews::new(),
            usual: CheapViews::new(),
            streams: LiveStreams::new(),
            unread: UnreadAnswers::new(),
        })
    }
}
