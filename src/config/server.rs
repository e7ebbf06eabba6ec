//! `server` and `admin`: the listeners.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::section::Section;
use portcullis_policy::field::FaultKind;

/// The listener for reviews.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The address to listen on. With port 0 the system chooses a port.
    pub address: SocketAddr,
    /// The certificate, and the authorities of client certificates.
    pub tls: Tls,
    /// The maximum time for which a shutdown waits for requests in flight.
    pub shutdown_timeout: Duration,
    /// The limits of connections.
    pub connections: ConnectionLimits,
}

/// The maximum number of connections, and the deadline for authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The maximum number of connections. When it is reached, a new connection replaces the oldest
    /// unauthenticated one, never an authenticated one.
    pub max: usize,
    /// The maximum number of unauthenticated connections from one address.
    pub per_address: usize,
    /// How long a connection may stay unauthenticated.
    pub authentication_timeout: Duration,
}

/// The certificate files of a listener, as absolute paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The server's certificate, followed by its intermediates, as PEM.
    pub certificate: PathBuf,
    /// The private key of the certificate, as PEM.
    pub private_key: PathBuf,
    /// The authorities of client certificates, as PEM; `None`: clients are not asked for a
    /// certificate.
    pub client_ca: Option<PathBuf>,
}

/// The listener for probes and metrics, without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// The address to listen on. With port 0 the system chooses a port.
    pub address: SocketAddr,
}

const fn default_server_address() -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8443)
}

const fn default_admin_address() -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9090)
}

/// Less than the 30 s in which Kubernetes lets a pod terminate.
const fn default_shutdown_timeout() -> Duration {
    Duration::from_secs(25)
}

const DEFAULT_CONNECTIONS: ConnectionLimits = ConnectionLimits {
    max: 4096,
    per_address: 512,
    authentication_timeout: Duration::from_secs(10),
};

pub(crate) fn server(root: &Section<'_>) -> Option<Server> {
    let section = root.section("server", &["address", "tls", "shutdownTimeout", "connections"]);
    let connections = connections(&section);
    let tls = tls(&section);
    let address = section.address("address");
    let shutdown_timeout = section.duration("shutdownTimeout");
    Some(Server {
        address: address.unwrap_or_else(default_server_address),
        tls: tls?,
        shutdown_timeout: shutdown_timeout.unwrap_or_else(default_shutdown_timeout),
        connections,
    })
}

fn connections(server: &Section<'_>) -> ConnectionLimits {
    let section = server.section("connections", &["max", "perAddress", "authenticationTimeout"]);
    let default = DEFAULT_CONNECTIONS;
    ConnectionLimits {
        max: section.positive("max").unwrap_or(default.max),
        per_address: section.positive("perAddress").unwrap_or(default.per_address),
        authentication_timeout: section
            .positive_duration("authenticationTimeout")
            .unwrap_or(default.authentication_timeout),
    }
}

fn tls(server: &Section<'_>) -> Option<Tls> {
    let section = server.section("tls", &["certificate", "privateKey", "clientCA"]);
    let certificate = section.required_path("certificate", "the file with the server's certificate");
    let private_key = section.required_path("privateKey", "the file with the certificate's private key");
    let client_ca = section.path("clientCA");
    Some(Tls {
        certificate: certificate?,
        private_key: private_key?,
        client_ca,
    })
}

pub(crate) fn admin(root: &Section<'_>, server: Option<&Server>) -> Admin {
    let section = root.section("admin", &["address"]);
    let address = section.address("address").unwrap_or_else(default_admin_address);
    let taken = server.is_some_and(|server| server.address == address && address.port() != 0);
    if taken {
        section.fault(
            "address",
            FaultKind::Duplicate,
            format!("`{address}` is also the address of `server`: choose another one"),
        );
    }
    Admin { address }
}
