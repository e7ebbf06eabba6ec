//! Address resolution, and which addresses may be dialled.
//!
//! A name is resolved once for all calls that wait for it, and the addresses are kept for a while. A
//! query to name servers cannot be cancelled, and holds a thread until they answer. Were each call to
//! query again when the one before has given up, a single name whose servers are silent would soon hold
//! all threads, and calls to other webhooks would find none.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use ipnet::IpNet;

use super::reply::CallError;
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
    pub(crate) async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, CallError> {
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
            return Err(refused.unwrap_or_else(|| CallError::Resolve {
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

    fn admit(&self, address: SocketAddr, is_named: bool) -> Result<(), CallError> {
        let ip = reached(address.ip());
        if self.own.iter().any(|own| leads_to(ip, address.port(), *own)) {
            return Err(CallError::Itself(address));
        }
        let networks = self.allowed.as_deref();
        let mut allowing = networks
            .unwrap_or_default()
            .iter()
            .filter(|network| network.contains(&ip));
        if self.is_guarded && !is_named && is_on_this_host(ip) && !allowing.clone().any(names_this_host) {
            return Err(CallError::OnThisHost(address));
        }
        if networks.is_some() && allowing.next().is_none() {
            return Err(CallError::Forbidden(address));
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

async fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, CallError> {
    match tokio::net::lookup_host((host, port)).await {
        Ok(found) => Ok(found.collect()),
        Err(error) => Err(CallError::Resolve {
            host: host.to_owned(),
            reason: error.to_string(),
        }),
    }
}

/// How long what a name led to is believed.
const CACHE_TIME: Duration = Duration::from_secs(5);

/// What is being found out, for everybody who waits for it.
pub(crate) type PendingResolution = Shared<BoxFuture<'static, Result<Vec<SocketAddr>, CallError>>>;

/// The addresses of one name.
#[derive(Default)]
pub(crate) struct Resolution(Mutex<Option<(Instant, PendingResolution)>>);

// === impl Resolution ===

impl Resolution {
    /// What the name led to a moment ago, or what `resolve` is finding out or, if nobody is
    /// at it, begins to: it goes on when nobody waits for it any more. Failures are not kept.
    pub(crate) fn get<F>(&self, resolve: impl FnOnce() -> F) -> PendingResolution
    where
        F: Future<Output = Result<Vec<SocketAddr>, CallError>> + Send + 'static,
    {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((begun, resolving)) = &*last
            && match resolving.peek() {
                None => true,
                Some(Ok(_)) => begun.elapsed() < CACHE_TIME,
                Some(Err(_)) => false,
            }
        {
            return resolving.clone();
        }
        let resolving = resolve().boxed().shared();
        drop(tokio::spawn(resolving.clone()));
        *last = Some((Instant::now(), resolving.clone()));
        resolving
    }
}

#[cfg(test)]
mod tests;
