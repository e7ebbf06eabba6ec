//! `upstreams`: webhooks behind the gateway, and how they are called.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::files::FileScope;
use super::section::{ListItem, Section};
use portcullis_policy::field::{FaultKind, Place};

/// How to call webhooks behind the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstreams {
    /// For webhooks in files, and for those that are watched in the cluster `default`.
    pub access: UpstreamAccess,
    /// The maximum size of a response, in bytes.
    pub reply_bytes: usize,
    /// The maximum number of concurrent calls of each webhook.
    pub in_flight: usize,
    /// When the circuit breaker of a webhook opens; `None`: never.
    pub breaker: Option<BreakerLimits>,
    /// Webhooks whose responses have no effect, by name or as `configuration/name`.
    pub shadow: BTreeSet<String>,
    /// Whether HTTP/2 is offered to webhooks in addition to HTTP/1.1.
    pub is_http2: bool,
}

/// The addresses, authorities and credentials with which webhooks are called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamAccess {
    /// The place of the section, for errors of the files that it names.
    pub place: Place,
    /// Where the files that the section names may be.
    pub scope: FileScope,
    /// The kubeconfig with credentials, whose users are named after hosts, as an absolute path.
    pub kubeconfig: Option<PathBuf>,
    /// The file of further trusted authorities, besides each webhook's own, as PEM; an absolute
    /// path.
    pub ca_bundle: Option<PathBuf>,
    /// The addresses to dial for a `host:port`, in lower case.
    pub addresses: BTreeMap<String, SocketAddr>,
    /// The networks that may be dialled; `None`: any, except those that must be listed explicitly.
    pub allowed_addresses: Option<Vec<IpNet>>,
}

/// When the circuit breaker of a webhook opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerLimits {
    /// The number of consecutive calls that could not reach the webhook.
    pub failures: usize,
    /// How long the webhook is not called, until one call tries again.
    pub open_for: Duration,
}

/// Enough for a patch of an object of 3 MiB, in base64.
const fn default_reply_bytes() -> usize {
    16 * 1024 * 1024
}

const fn default_in_flight() -> usize {
    64
}

// === impl BreakerLimits ===

impl Default for BreakerLimits {
    fn default() -> Self {
        Self {
            failures: 5,
            open_for: Duration::from_secs(10),
        }
    }
}

pub(crate) fn upstreams(root: &Section<'_>) -> Upstreams {
    let section = root.section(
        "upstreams",
        &[
            "kubeconfig",
            "caBundle",
            "addresses",
            "allowedAddresses",
            "replyBytes",
            "inFlight",
            "breaker",
            "shadow",
            "http2",
        ],
    );
    let shadow = section.texts("shadow");
    Upstreams {
        access: access(&section),
        reply_bytes: section.positive("replyBytes").unwrap_or_else(default_reply_bytes),
        in_flight: section.positive("inFlight").unwrap_or_else(default_in_flight),
        breaker: breaker(&section),
        shadow: shadow.into_iter().map(|(_, name)| name.to_owned()).collect(),
        is_http2: section.boolean("http2").unwrap_or_default(),
    }
}

/// The fields of `upstreams` in an entry of `clusters`.
pub(crate) const ACCESS_FIELDS: [&str; 4] = ["kubeconfig", "caBundle", "addresses", "allowedAddresses"];

/// Reads [`ACCESS_FIELDS`] of `section`.
pub(crate) fn access(section: &Section<'_>) -> UpstreamAccess {
    UpstreamAccess {
        place: section.here(),
        scope: section.scope(),
        kubeconfig: section.path("kubeconfig"),
        ca_bundle: section.path("caBundle"),
        addresses: addresses(section),
        allowed_addresses: allowed_addresses(section),
    }
}

fn addresses(section: &Section<'_>) -> BTreeMap<String, SocketAddr> {
    let mut addresses = BTreeMap::new();
    for (name, item) in section.entries("addresses") {
        let address = item.text().and_then(|text| {
            let address: Option<SocketAddr> = text.parse().ok();
            if address.is_none() {
                let message = format!("`{text}` is not an IP address and port, such as `127.0.0.1:9443`");
                item.fault(FaultKind::Invalid, message);
            }
            address
        });
        if !is_host_port(name) {
            let message = format!("`{name}` is not a host and port, such as `hooks.infra.svc:443`");
            item.fault(FaultKind::Invalid, message);
        }
        let Some(address) = address else { continue };
        if addresses.insert(name.to_ascii_lowercase(), address).is_some() {
            let message = format!("`{name}` is used twice: host names are not case-sensitive");
            item.fault(FaultKind::Duplicate, message);
        }
    }
    addresses
}

fn is_host_port(name: &str) -> bool {
    name.rsplit_once(':').is_some_and(|(host, port)| {
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        let is_host = !host.is_empty() && (is_bracketed || !host.contains([':', '/', '@', ' ']));
        is_port && is_host
    })
}

fn allowed_addresses(section: &Section<'_>) -> Option<Vec<IpNet>> {
    section.value("allowedAddresses")?;
    let items = section.items("allowedAddresses");
    if items.is_empty() {
        let message = "an empty list would not allow any webhook: add networks, or remove it to allow all";
        section.fault("allowedAddresses", FaultKind::Required, message);
    }
    Some(items.iter().filter_map(network).collect())
}

/// Parses a network, or a single address.
fn network(item: &ListItem<'_>) -> Option<IpNet> {
    let text = item.text()?;
    let alone = text.parse::<IpAddr>().map(IpNet::from);
    let network = text.parse().or(alone).ok();
    if network.is_none() {
        let message = format!("`{text}` is not a network such as `10.0.0.0/8`");
        item.fault(FaultKind::Invalid, message);
    }
    network
}

fn breaker(section: &Section<'_>) -> Option<BreakerLimits> {
    let section = section.section("breaker", &["failures", "openFor"]);
    let open_for = section.positive_duration("openFor");
    let failures = section
        .count("failures")
        .unwrap_or(BreakerLimits::default().failures);
    (failures > 0).then(|| BreakerLimits {
        failures,
        open_for: open_for.unwrap_or(BreakerLimits::default().open_for),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config, faults};
    use super::*;

    #[test]
    fn reads_every_field() {
        let upstreams = config(
            r#"
upstreams:
  kubeconfig: hooks.kubeconfig
  caBundle: pki/hooks.crt
  addresses: {"Hooks.infra.svc:443": "127.0.0.1:9443", "[::1]:8443": "[::1]:1"}
  allowedAddresses: [10.0.0.0/8, 127.0.0.1, "::1/128"]
  replyBytes: 1024
  inFlight: 2
  breaker: {failures: 3, openFor: 1m}
  shadow: [a.example.com, config/b.example.com]
  http2: true
"#,
        )
        .upstreams;
        let networks = ["10.0.0.0/8", "127.0.0.1/32", "::1/128"].map(|network| network.parse().unwrap());
        let expected = Upstreams {
            access: UpstreamAccess {
                place: upstreams.access.place.clone(),
                scope: FileScope::Anywhere,
                kubeconfig: Some("/etc/portcullis/hooks.kubeconfig".into()),
                ca_bundle: Some("/etc/portcullis/pki/hooks.crt".into()),
                addresses: BTreeMap::from([
                    (
                        "hooks.infra.svc:443".to_owned(),
                        "127.0.0.1:9443".parse().unwrap(),
                    ),
                    ("[::1]:8443".to_owned(), "[::1]:1".parse().unwrap()),
                ]),
                allowed_addresses: Some(networks.into()),
            },
            reply_bytes: 1024,
            in_flight: 2,
            breaker: Some(BreakerLimits {
                failures: 3,
                open_for: Duration::from_secs(60),
            }),
            shadow: ["a.example.com", "config/b.example.com"]
                .map(str::to_owned)
                .into(),
            is_http2: true,
        };
        assert_eq!(upstreams, expected);
    }

    #[test]
    fn has_the_defaults_of_the_documentation() {
        let upstreams = config("").upstreams;
        assert_eq!(upstreams.reply_bytes, 16_777_216);
        assert_eq!(upstreams.in_flight, 64);
        assert_eq!(
            upstreams.breaker,
            Some(BreakerLimits {
                failures: 5,
                open_for: Duration::from_secs(10)
            })
        );
        assert_eq!(upstreams.access.allowed_addresses, None);
        assert!(!upstreams.is_http2);
        assert_eq!(
            config("upstreams: {breaker: {failures: 0}}").upstreams.breaker,
            None
        );
        let breaker = config("upstreams: {breaker: {openFor: 3s}}").upstreams.breaker;
        assert_eq!(breaker.map(|breaker| breaker.failures), Some(5));
    }

    #[test]
    fn reports_what_cannot_be() {
        for (section, expected) in [
            ("{proxy: x}", "upstreams.proxy: Unsupported value: unknown field"),
            (
                "{addresses: [a]}",
                "upstreams.addresses: Invalid type: must be a mapping",
            ),
            ("{addresses: {'a:443': b}}", "`b` is not an IP address and port"),
            ("{addresses: {a: '127.0.0.1:1'}}", "`a` is not a host and port"),
            (
                "{addresses: {'a:0': '127.0.0.1:1'}}",
                "`a:0` is not a host and port",
            ),
            (
                "{addresses: {'a:1': '127.0.0.1:1', 'A:1': '127.0.0.1:2'}}",
                "is used twice",
            ),
            (
                "{allowedAddresses: []}",
                "upstreams.allowedAddresses: Required value",
            ),
            (
                "{allowedAddresses: [10.0.0.0/33]}",
                "`10.0.0.0/33` is not a network",
            ),
            ("{replyBytes: 0}", "upstreams.replyBytes: Invalid value"),
            ("{inFlight: 0}", "upstreams.inFlight: Invalid value"),
            (
                "{breaker: {failures: -1}}",
                "upstreams.breaker.failures: Invalid value",
            ),
            (
                "{breaker: {openFor: 0s}}",
                "upstreams.breaker.openFor: Invalid value",
            ),
            ("{shadow: [1]}", "upstreams.shadow[0]: Invalid type"),
            ("{http2: 1}", "upstreams.http2: Invalid type"),
        ] {
            let found = faults(&format!("upstreams: {section}\n"));
            assert!(found.contains(expected), "{section}: {found}");
        }
    }
}
