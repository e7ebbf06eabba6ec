//! `console`: the listener of the web console.

use std::net::{Ipv4Addr, SocketAddr};

use super::callers::CallerEntry;
use super::section::Section;
use super::server::{Admin, Server, Tls};
use portcullis_policy::field::FaultKind;

/// The listener of the console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Console {
    /// The address to listen on. With port 0 the system chooses a port.
    pub address: SocketAddr,
    /// The certificate. With TLS, only callers whose `endpoints` include `console` have access.
    /// Client certificates are verified with `server.tls.clientCA`, as for reviews.
    pub tls: Option<Tls>,
    /// How many recent decisions are kept.
    pub max_decisions: usize,
}

/// The port after that of the `admin` listener.
const fn default_address() -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9091)
}

/// Ordinary decisions take about 10 MB then.
const fn default_max_decisions() -> usize {
    10_000
}

pub(crate) fn console(
    root: &Section<'_>,
    server: Option<&Server>,
    admin: &Admin,
    callers: &[CallerEntry],
) -> Option<Console> {
    let section = root.optional("console", &["address", "tls", "maxDecisions"])?;
    let address = section.address("address").unwrap_or_else(default_address);
    let console = Console {
        address,
        tls: tls(&section, server),
        max_decisions: section
            .positive("maxDecisions")
            .unwrap_or_else(default_max_decisions),
    };
    for (listener, taken) in [
        ("server", server.map(|server| server.address)),
        ("admin", Some(admin.address)),
    ] {
        if taken == Some(address) && address.port() != 0 {
            let message = format!("`{address}` is also the address of `{listener}`: choose another one");
            section.fault("address", FaultKind::Duplicate, message);
        }
    }
    if section.value("tls").is_none() && !is_loopback(address) {
        let message = format!(
            "`{address}` can be reached from other machines: set `certificate` and `privateKey`, or \
             listen on a loopback address such as `127.0.0.1:9091`"
        );
        section.fault("tls", FaultKind::Required, message);
    }
    let nobody = !callers.iter().any(|caller| caller.endpoints.contains_console());
    if section.value("tls").is_some() && nobody {
        let message = "with `tls` only callers see the console, and none may: add `console` to the \
                       `endpoints` of an entry of `callers`";
        section.fault_here(FaultKind::Invalid, message);
    }
    Some(console)
}

/// Whether `address` can only be reached from this machine.
fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn tls(console: &Section<'_>, server: Option<&Server>) -> Option<Tls> {
    let section = console.optional("tls", &["certificate", "privateKey"])?;
    let certificate = section.required_path("certificate", "the file with the console's certificate");
    let private_key = section.required_path("privateKey", "the file with the certificate's private key");
    Some(Tls {
        certificate: certificate?,
        private_key: private_key?,
        client_ca: server.and_then(|server| server.tls.client_ca.clone()),
    })
}

// === impl Console ===

impl Console {
    /// Whether the console can only be reached from this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        is_loopback(self.address)
    }
}
