//! Sockets, and the actix-web servers on them.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use actix_http::{HttpService, Protocol};
use actix_service::{IntoServiceFactory, ServiceFactory, ServiceFactoryExt, map_config};
use actix_tls::accept::openssl::{Acceptor, TlsStream};
use actix_tls::accept::{TlsError, max_concurrent_tls_connect};
use actix_web::dev::{AppConfig, Extensions, Server};
use actix_web::rt::net::TcpStream;
use actix_web::web::Data;
use actix_web::{App, HttpServer};
use openssl::error::ErrorStack;
use openssl::ssl::SslAcceptor;
use socket2::{Domain, SockRef, Socket, Type};

use super::farewell::Stream;
use super::gateway::Shared;
use super::{admin, connection, routes};
use crate::tls::TlsContext;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Idle connections stay: an API server's client keeps them for 90 s and would
/// lose a request on one that closes first.
const KEEP_ALIVE: Duration = Duration::from_secs(120);

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Handshakes at once on each worker. Silent connections must not fill it.
const HANDSHAKES: usize = 4096;

/// How long the head of a connection's first request may take.
const HEAD: Duration = Duration::from_secs(10);

/// How long a connection may take to close.
const DISCONNECT: Duration = Duration::from_secs(1);

/// Large reviews at once for each worker: one is decided after the other, and
/// the memory that they take decoded is bounded.
const LARGE_REVIEWS: usize = 1;

/// What actix waits for at a graceful stop; draining is done before.
const STOP_SECONDS: u64 = 1;

/// Listens at `address`.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(socket2::Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Has the system refuse new connections from now on.
pub(super) fn refuse(listener: &TcpListener) {
    if let Err(error) = SockRef::from(listener).shutdown(std::net::Shutdown::Both) {
        tracing::debug!(%error, "the listener cannot be closed");
    }
}

/// The TLS server that answers reviews, on as many workers as there are cores.
pub(super) fn reviews(shared: &Data<Shared>, listener: TcpListener) -> io::Result<Server> {
    let state = Arc::clone(&shared.state);
    let acceptor = TlsContext::acceptor(move || state.current().tls.clone())
        .map_err(|error: ErrorStack| io::Error::other(error))?;
    let (shared, acceptor) = (shared.clone(), acceptor.build());
    max_concurrent_tls_connect(HANDSHAKES);
    let server = Server::build()
        .workers(available_parallelism().map_or(1, usize::from))
        .worker_max_blocking_threads(LARGE_REVIEWS)
        .disable_signals()
        .shutdown_timeout(STOP_SECONDS)
        .listen("reviews", listener, move || {
            connections(shared.clone(), acceptor.clone())
        })?;
    Ok(server.run())
}

/// TCP to TLS, to HTTP by what the handshake agreed on, to the routes.
fn connections(
    shared: Data<Shared>,
    acceptor: SslAcceptor,
) -> impl ServiceFactory<TcpStream, Config = (), Response = (), Error = impl fmt::Debug, InitError = ()> {
    let app = App::new()
        .app_data(shared.clone())
        .configure(routes::routes)
        .into_factory();
    let app = app.map_err(|error: actix_web::Error| error.error_response());
    let http = HttpService::build()
        .keep_alive(KEEP_ALIVE)
        .client_request_timeout(HEAD)
        .client_disconnect_timeout(DISCONNECT)
        // Who closes has gone: an API server that gives up, a webhook that waits for nobody.
        .h1_allow_half_closed(false)
        .on_connect_ext(|stream: &Stream<TlsStream<TcpStream>>, data: &mut Extensions| {
            connection::remember_peer(stream.io(), data);
        })
        .finish(map_config(app, |()| AppConfig::default()));
    let mut tls = Acceptor::new(acceptor);
    tls.set_handshake_timeout(HANDSHAKE);
    tls.map_err(TlsError::into_service_error)
        .map(move |stream: TlsStream<TcpStream>| {
            let tcp = stream.get_ref();
            let peer = tcp.peer_addr().ok();
            if let Err(error) = tcp.set_nodelay(true) {
                tracing::debug!(%error, "small answers may wait");
            }
            let is_http2 = stream.ssl().selected_alpn_protocol() == Some(b"h2");
            let protocol = if is_http2 {
                Protocol::Http2
            } else {
                Protocol::Http1
            };
            (shared.lifecycle.farewell.stream(stream, is_http2), protocol, peer)
        })
        .and_then(http.map_err(TlsError::Service))
}

/// The plain server of probes and metrics.
pub(super) fn admin(shared: &Data<Shared>, listener: TcpListener) -> io::Result<Server> {
    let shared = shared.clone();
    let server = HttpServer::new(move || App::new().app_data(shared.clone()).configure(admin::routes))
        .workers(1)
        .disable_signals()
        .shutdown_timeout(STOP_SECONDS)
        .listen(listener)?;
    Ok(server.run())
}
