//! Sockets, and the actix-web servers on them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::web::Data;
use actix_web::{App, HttpServer};
use openssl::error::ErrorStack;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

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

/// What actix waits for at a graceful stop; draining is done before.
const STOP_SECONDS: u64 = 1;

/// Listens at `address`.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
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
    let shared = shared.clone();
    let server = HttpServer::new(move || App::new().app_data(shared.clone()).configure(routes::routes))
        .workers(available_parallelism().map_or(1, usize::from))
        .keep_alive(KEEP_ALIVE)
        .client_request_timeout(HEAD)
        .tls_handshake_timeout(HANDSHAKE)
        .max_connection_rate(HANDSHAKES)
        .tcp_nodelay(true)
        .on_connect(connection::remember_peer)
        .disable_signals()
        .shutdown_timeout(STOP_SECONDS)
        .listen_openssl(listener, acceptor)?;
    Ok(server.run())
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
