//! Address resolution, and which addresses may be dialled.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use ipnet::IpNet;

use super::Error;
use crate::config::Config;

/// Where names lead. What is not said is looked up by the system's resolver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The address of a `host:port`, in lower case.
    pub fixed: BTreeMap<String, SocketAddr>,
    /// Networks that may be dialled; `None`: any.
    pub allowed: Option<Vec<IpNet>>,
    /// Where this gateway listens: never dialled.
    pub own: Vec<SocketAddr>,
}

// === impl Addresses ===

impl Addresses {
    /// Where `upstreams` of `config` says that names lead, and that its own
    /// listener is not to be dialled.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let own = Some(config.server.address);
        Self {
            fixed: config.upstreams.addresses.clone(),
            allowed: config.upstreams.allowed_addresses.clone(),
            // Port 0 lets the system choose one that nobody could have written down.
            own: own.filter(|own| own.port() != 0).into_iter().collect(),
        }
    }

    /// The addresses of `host` that may be dialled, at least one, in the
    /// resolver's order.
    ///
    /// # Errors
    ///
    /// A name without address, or with none that may be dialled.
    pub(super) async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let found = match self.known(host, port) {
            Some(address) => vec![address],
            None => look_up(host, port).await?,
        };
        let mut refused = None;
        let mut admitted = Vec::new();
        for address in found {
            match self.admit(address) {
                Ok(()) => admitted.push(address),
                Err(error) => refused = Some(error),
            }
        }
        if admitted.is_empty() {
            return Err(refused.unwrap_or_else(|| Error::Resolve {
                host: host.to_owned(),
                reason: "there is none".to_owned(),
            }));
        }
        Ok(admitted)
    }

    /// Without asking anybody.
    fn known(&self, host: &str, port: u16) -> Option<SocketAddr> {
        let address: Option<IpAddr> = host.parse().ok();
        let name = match address {
            Some(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            _ => format!("{}:{port}", host.to_ascii_lowercase()),
        };
        self.fixed
            .get(&name)
            .copied()
            .or_else(|| address.map(|address| SocketAddr::new(address, port)))
    }

    fn admit(&self, address: SocketAddr) -> Result<(), Error> {
        let ip = address.ip().to_canonical();
        if self.own.iter().any(|own| leads_to(ip, address.port(), *own)) {
            return Err(Error::Itself(address));
        }
        let is_allowed = self
            .allowed
            .as_ref()
            .is_none_or(|networks| networks.iter().any(|network| network.contains(&ip)));
        is_allowed.then_some(()).ok_or(Error::Forbidden(address))
    }
}

/// Whether dialling `ip` and `port` would reach what listens at `own`.
fn leads_to(ip: IpAddr, port: u16, own: SocketAddr) -> bool {
    let listening = own.ip().to_canonical();
    port == own.port()
        && (ip == listening || ip.is_unspecified() || (listening.is_unspecified() && is_local(ip)))
}

/// Whether `ip` is one of this machine's: only those can be bound.
fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

async fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    match tokio::net::lookup_host((host, port)).await {
        Ok(found) => Ok(found.collect()),
        Err(error) => Err(Error::Resolve {
            host: host.to_owned(),
            reason: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(addresses: &Addresses, host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(addresses.resolve(host, port))
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_service_is_where_the_map_says() {
        let addresses = Addresses {
            fixed: BTreeMap::from([("hooks.infra.svc:443".to_owned(), address("127.0.0.1:9443"))]),
            ..Addresses::default()
        };
        assert_eq!(
            resolve(&addresses, "Hooks.infra.svc", 443),
            Ok(vec![address("127.0.0.1:9443")])
        );
        assert_eq!(resolve(&addresses, "::1", 443), Ok(vec![address("[::1]:443")]));
    }

    #[test]
    fn addresses_outside_the_list_are_refused_however_they_are_found() {
        let addresses = Addresses {
            fixed: BTreeMap::from([("a.b.svc:443".to_owned(), address("192.0.2.1:443"))]),
            allowed: Some(vec!["10.0.0.0/8".parse().unwrap()]),
            ..Addresses::default()
        };
        for (host, refused) in [
            ("a.b.svc", "192.0.2.1:443"),
            ("192.0.2.2", "192.0.2.2:443"),
            ("::ffff:192.0.2.2", "[::ffff:192.0.2.2]:443"),
        ] {
            assert_eq!(
                resolve(&addresses, host, 443),
                Err(Error::Forbidden(address(refused))),
                "{host}"
            );
        }
        assert!(resolve(&addresses, "10.1.2.3", 443).is_ok());
        assert!(resolve(&addresses, "::ffff:10.1.2.3", 443).is_ok());
    }

    #[test]
    fn the_gateway_is_not_called_by_itself() {
        let listening = |own: &str| Addresses {
            own: vec![address(own)],
            ..Addresses::default()
        };
        for (own, host, port) in [
            ("127.0.0.1:8443", "127.0.0.1", 8443),
            ("127.0.0.1:8443", "0.0.0.0", 8443),
            ("127.0.0.1:8443", "::ffff:127.0.0.1", 8443),
            ("0.0.0.0:8443", "127.0.0.1", 8443),
            ("[::]:8443", "127.0.0.1", 8443),
        ] {
            let found = resolve(&listening(own), host, port);
            assert!(matches!(found, Err(Error::Itself(_))), "{own} {host}: {found:?}");
        }
        for (own, host, port) in [
            ("127.0.0.1:8443", "127.0.0.1", 8444),
            ("127.0.0.1:8443", "127.0.0.2", 8443),
            ("0.0.0.0:8443", "192.0.2.1", 8443),
        ] {
            assert!(resolve(&listening(own), host, port).is_ok(), "{own} {host}");
        }
    }
}
