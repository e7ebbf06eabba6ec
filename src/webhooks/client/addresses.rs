//! The address of a webhook: its URL, parsed as in client-go, and the IP addresses of its host that
//! may be dialled.
//!
//! A name is resolved once for all calls that wait for it, and the result is cached for a short
//! time. A query to name servers cannot be cancelled, and holds a thread until they answer. If each
//! call started another query after the one before gave up, a single name whose servers are silent
//! would soon hold all threads, and calls to other webhooks would fail.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use hyper::http::uri::Authority;
use ipnet::IpNet;

use super::SettingsError;
use super::reply::CallError;
use crate::config::{Config, UpstreamAccess};

/// The URL of a webhook: `https`, a host, a port and a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    authority: String,
    host: String,
    port: u16,
    path: String,
}

// === impl Url ===

impl Url {
    /// Parses `url`. A query or fragment is dropped, as in client-go.
    ///
    /// # Errors
    ///
    /// It is not a URL, has another scheme than `https`, no host, or a user.
    pub fn parse(url: &str) -> Result<Self, SettingsError> {
        let refused = |reason| SettingsError::Url {
            url: url.to_owned(),
            reason,
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| refused("it names no host"))?;
        if !scheme.eq_ignore_ascii_case("https") {
            return Err(refused("the scheme must be https"));
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let path = rest.split(['?', '#']).next().unwrap_or_default();
        let authority: Authority = authority.parse().map_err(|_| refused("it names no host"))?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(refused("it must have a host, and no user"));
        }
        let port = match authority.as_str().strip_prefix(authority.host()) {
            None | Some("" | ":") => Some(443),
            Some(port) => port.trim_start_matches(':').parse().ok().filter(|port| *port > 0),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        Ok(Self {
            authority: authority.as_str().trim_end_matches(':').to_owned(),
            host: host.to_owned(),
            port: port.ok_or_else(|| refused("the port must be 1 to 65535"))?,
            path: clean(path).ok_or_else(|| refused("`%` is not followed by a number"))?,
        })
    }

    /// The URL of a service: `name.namespace.svc`, with `port` and `path`.
    ///
    /// # Errors
    ///
    /// As [`Url::parse`]: a name or path is not valid in a URL.
    pub fn of_service(namespace: &str, name: &str, port: u16, path: &str) -> Result<Self, SettingsError> {
        let slash = if path.starts_with('/') { "" } else { "/" };
        Self::parse(&format!("https://{name}.{namespace}.svc:{port}{slash}{path}"))
    }

    /// The host, without the brackets of an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, with brackets around an IPv6 address: the form in which a kubeconfig names
    /// users, and the configuration static addresses.
    #[must_use]
    pub fn host_port(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The path of requests.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The host and port as they are in the URL.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The URL, with the parameter `timeout` unless it is zero.
    pub(crate) fn with_timeout(&self, timeout: Duration) -> String {
        let query = if timeout.is_zero() {
            String::new()
        } else {
            format!("?timeout={}", go_duration(timeout))
        };
        format!("https://{}{}{query}", self.authority, self.path)
    }
}

/// Returns `path` as client-go sends it: cleaned like Go's `path.Join("/", path)` (no empty
/// segments, no `.` and `..`, no slash at the end), decoded and encoded again. Returns `None` if a
/// `%` is not followed by two hexadecimal digits.
fn clean(path: &str) -> Option<String> {
    let decoded = decode(path.as_bytes())?;
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in decoded.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let encoded: Vec<String> = segments.into_iter().map(encode).collect();
    Some(format!("/{}", encoded.join("/")))
}

fn decode(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((byte, rest)) = text.split_first() {
        text = rest;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, rest) = text.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        // `from_str_radix` alone would accept a sign.
        digits
            .bytes()
            .all(|digit| digit.is_ascii_hexdigit())
            .then_some(())?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        text = rest;
    }
    Some(bytes)
}

/// Encodes a segment like Go's `URL.EscapedPath`.
fn encode(segment: &[u8]) -> String {
    let mut text = String::with_capacity(segment.len());
    for byte in segment {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_.~$&+,:;=@".contains(byte);
        if is_plain {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Formats `timeout` like Go's `Duration.String`.
fn go_duration(timeout: Duration) -> String {
    let fraction = |whole: u64, nanoseconds: u32, digits: usize, unit: &str| {
        let text = format!("{whole}.{nanoseconds:0digits$}");
        format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    let (seconds, nanoseconds) = (timeout.as_secs(), timeout.subsec_nanos());
    match (seconds, nanoseconds) {
        (0, 0) => "0s".to_owned(),
        (0, 1..1_000) => format!("{nanoseconds}ns"),
        (0, 1_000..1_000_000) => fraction(u64::from(nanoseconds / 1_000), nanoseconds % 1_000, 3, "\u{b5}s"),
        (0, _) => fraction(
            u64::from(nanoseconds / 1_000_000),
            nanoseconds % 1_000_000,
            6,
            "ms",
        ),
        _ => {
            let minutes = seconds / 60;
            let rest = fraction(seconds % 60, nanoseconds, 9, "s");
            match (minutes / 60, minutes % 60) {
                (0, 0) => rest,
                (0, minutes) => format!("{minutes}m{rest}"),
                (hours, minutes) => format!("{hours}h{minutes}m{rest}"),
            }
        }
    }
}

// Resolution of host names.

/// The addresses of host names, and which of them may be dialled. Names that are not configured are
/// resolved by the system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The configured address of a `host:port` in lower case.
    pub fixed: BTreeMap<String, SocketAddr>,
    /// The networks that may be dialled; `None` for all.
    pub allowed: Option<Vec<IpNet>>,
    /// The addresses of the gateway's own listeners, which are never dialled.
    pub own: Vec<SocketAddr>,
    /// Whether someone other than the gateway's administrator chooses what is dialled. Then an
    /// address in `ON_THIS_HOST` must be one of `fixed`, or in a network of `allowed` that is
    /// within `ON_THIS_HOST`.
    pub is_guarded: bool,
}

/// The networks that lead to this machine or to link-local services, such as the metadata service
/// of a cloud. Dialling an unspecified address reaches this machine.
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
    /// The addresses of `upstreams` in `config`.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self::with_access(config, &config.upstreams.access)
    }

    /// The addresses of `access`, for webhooks that someone other than the gateway's administrator
    /// configures.
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
            // With port 0 the system chooses the port, so that no configuration can name it.
            own: own.filter(|own| own.port() != 0).collect(),
            is_guarded: false,
        }
    }

    /// Resolves `host`, and returns those of its addresses that may be dialled, at least one, in
    /// the resolver's order.
    ///
    /// # Errors
    ///
    /// The name has no address, or none that may be dialled.
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

    /// The configured address of the host.
    fn named(&self, host: &str, port: u16) -> Option<SocketAddr> {
        let name = match host.parse() {
            Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            _ => format!("{}:{port}", host.to_ascii_lowercase()),
        };
        self.fixed.get(&name).copied()
    }

    fn admit(&self, address: SocketAddr, is_named: bool) -> Result<(), CallError> {
        let ip = effective_ip(address.ip());
        if self.own.iter().any(|own| reaches(ip, address.port(), *own)) {
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

/// The address that dialling `ip` reaches: an IPv6 address may be the mapped, compatible or
/// translated form (RFC 6052) of an IPv4 address.
fn effective_ip(ip: IpAddr) -> IpAddr {
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

/// Whether dialling `ip` and `port` reaches the listener at `own`.
fn reaches(ip: IpAddr, port: u16, own: SocketAddr) -> bool {
    let listening = own.ip().to_canonical();
    port == own.port()
        && (ip == listening || ip.is_unspecified() || (listening.is_unspecified() && is_local(ip)))
}

/// Whether `ip` is an address of this machine: only these can be bound.
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

/// How long the addresses of a name are cached.
const CACHE_TIME: Duration = Duration::from_secs(5);

/// A resolution that all waiting calls share.
pub(crate) type PendingResolution = Shared<BoxFuture<'static, Result<Vec<SocketAddr>, CallError>>>;

/// The cached or pending addresses of one name.
#[derive(Default)]
pub(crate) struct Resolution(Mutex<Option<(Instant, PendingResolution)>>);

// === impl Resolution ===

impl Resolution {
    /// Returns the cached or pending result; if there is none, starts `resolve`, which continues
    /// even if no call waits for it any more. Errors are not cached.
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
