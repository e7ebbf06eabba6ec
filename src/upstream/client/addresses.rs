//! Address resolution, and which addresses may be dialled.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ipnet::IpNet;

use super::Error;
use crate::config::{Config, UpstreamAccess};

/// Where names lead. What is not said is looked up by the system's resolver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The address of a `host:port`, in lower case.
    pub fixed: BTreeMap<String, SocketAddr>,
    /// Networks that may be dialled; `None`: any.
    pub allowed: Option<Vec<IpNet>>,
    /// Where this gateway listens: never dialled.
    pub own: Vec<SocketAddr>,
    /// Whether others than the gateway's administrator choose what is dialled. Then an address of
    /// `ON_THIS_HOST` must be one of `fixed`, or in a network of `allowed` that is one of those.
    pub is_guarded: bool,
}

/// The networks that lead to this machine, or to what serves machines on its link, such as their
/// cloud's metadata. To dial an unspecified address is to dial this machine.
const ON_THIS_HOST: [IpNet; 6] = [
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8),
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    IpNet::new_assert(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 128),
    IpNet::new_assert(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    IpNet::new_assert(IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
];

// === impl Addresses ===

impl Addresses {
    /// Where `upstreams` of `config` says that names lead, and that its own
    /// listeners are not to be dialled.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self::with_access(config, &config.upstreams.access)
    }

    /// The same as `access` says, of what others than the gateway's administrator have dialled.
    #[must_use]
    pub fn guarded(config: &Config, access: &UpstreamAccess) -> Self {
        Self {
            is_guarded: true,
            ..Self::with_access(config, access)
        }
    }

    fn with_access(config: &Config, access: &UpstreamAccess) -> Self {
        let console = config.console.as_ref().map(|console| console.address);
        let own = [config.server.address, config.admin.address]
            .into_iter()
            .chain(console);
        Self {
            fixed: access.addresses.clone(),
            allowed: access.allowed_addresses.clone(),
            // Port 0 lets the system choose one that nobody could have written down.
            own: own.filter(|own| own.port() != 0).collect(),
            is_guarded: false,
        }
    }

    /// The addresses of `host` that may be dialled, at least one, in the
    /// resolver's order.
    ///
    /// # Errors
    ///
    /// A name without address, or with none that may be dialled.
    pub(crate) async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let named = self.named(host, port);
        let found = match named.or_else(|| literal(host, port)) {
            Some(address) => vec![address],
            None => look_up(host, port).await?,
        };
        let mut refused = None;
        let mut admitted = Vec::new();
        for address in found {
            match self.admit(address, named.is_some()) {
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

    /// Where the configuration says that the host is.
    fn named(&self, host: &str, port: u16) -> Option<SocketAddr> {
        let name = match host.parse() {
            Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            _ => format!("{}:{port}", host.to_ascii_lowercase()),
        };
        self.fixed.get(&name).copied()
    }

    fn admit(&self, address: SocketAddr, is_named: bool) -> Result<(), Error> {
        let ip = reached(address.ip());
        if self.own.iter().any(|own| leads_to(ip, address.port(), *own)) {
            return Err(Error::Itself(address));
        }
        let networks = self.allowed.as_deref();
        let mut allowing = networks
            .unwrap_or_default()
            .iter()
            .filter(|network| network.contains(&ip));
        if self.is_guarded && !is_named && is_on_this_host(ip) && !allowing.clone().any(names_this_host) {
            return Err(Error::OnThisHost(address));
        }
        if networks.is_some() && allowing.next().is_none() {
            return Err(Error::Forbidden(address));
        }
        Ok(())
    }
}

fn literal(host: &str, port: u16) -> Option<SocketAddr> {
    let address = host.parse().ok()?;
    Some(SocketAddr::new(address, port))
}

/// The address that is reached by `ip`: one of IPv6 may stand for one of IPv4, mapped,
/// compatible or translated (RFC 6052).
fn reached(ip: IpAddr) -> IpAddr {
    let IpAddr::V6(long) = ip.to_canonical() else {
        return ip.to_canonical();
    };
    match long.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => ip,
        [0 | 0x64, 0 | 0xff9b, 0, 0, 0, 0, high, low] => {
            let [[a, b], [c, d]] = [high, low].map(u16::to_be_bytes);
            Ipv4Addr::new(a, b, c, d).into()
        }
        _ => ip,
    }
}

fn is_on_this_host(ip: IpAddr) -> bool {
    ON_THIS_HOST.iter().any(|network| network.contains(&ip))
}

fn names_this_host(network: &IpNet) -> bool {
    ON_THIS_HOST.iter().any(|own| own.contains(network))
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
    fn others_reach_this_host_only_where_it_is_named() {
        let addresses = |fixed: &[(&str, &str)], allowed: Option<&[&str]>| Addresses {
            fixed: fixed
                .iter()
                .map(|(name, to)| ((*name).to_owned(), address(to)))
                .collect(),
            allowed: allowed.map(|all| all.iter().map(|one| one.parse().unwrap()).collect()),
            own: vec![address("127.0.0.1:8443")],
            is_guarded: true,
        };
        let free = addresses(&[], None);
        for host in [
            "127.0.0.1",
            "127.8.8.8",
            "localhost",
            "LOCALHOST",
            "::1",
            "0.0.0.0",
            "0.0.0.1",
            "::",
            "::ffff:127.0.0.1",
            "::ffff:0.0.0.0",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "fe80::1",
            "febf::1",
        ] {
            let found = resolve(&free, host, 443);
            assert!(matches!(found, Err(Error::OnThisHost(_))), "{host}: {found:?}");
            // A network that holds everything names nothing.
            let wide = addresses(&[], Some(&["0.0.0.0/0", "::/0"]));
            let found = resolve(&wide, host, 443);
            assert!(matches!(found, Err(Error::OnThisHost(_))), "{host}: {found:?}");
        }
        for host in [
            "10.0.0.1",
            "192.0.2.1",
            "2001:db8::1",
            "fd00::1",
            "64:ff9b::a00:1",
        ] {
            assert!(resolve(&free, host, 443).is_ok(), "{host}");
        }
        let named = addresses(&[("hook.svc:443", "127.0.0.1:9443")], None);
        assert!(resolve(&named, "hook.svc", 443).is_ok());
        // The name is not the address.
        assert!(matches!(
            resolve(&named, "127.0.0.1", 9443),
            Err(Error::OnThisHost(_))
        ));
        let listed = addresses(&[], Some(&["127.0.0.0/8", "169.254.1.1/32", "::1/128"]));
        for (host, expected) in [
            ("127.0.0.1", true),
            ("169.254.1.1", true),
            ("::1", true),
            ("10.0.0.1", false),
        ] {
            assert_eq!(resolve(&listed, host, 443).is_ok(), expected, "{host}");
        }
        assert!(matches!(
            resolve(&listed, "169.254.169.254", 443),
            Err(Error::OnThisHost(_))
        ));
        // Never itself, whoever names it.
        for addresses in [&listed, &addresses(&[("me.svc:443", "127.0.0.1:8443")], None)] {
            let found = [
                resolve(addresses, "127.0.0.1", 8443),
                resolve(addresses, "me.svc", 443),
            ];
            assert!(
                found.iter().any(|found| matches!(found, Err(Error::Itself(_)))),
                "{found:?}"
            );
        }
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
