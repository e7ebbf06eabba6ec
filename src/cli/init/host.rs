//! Host names of the gateway, and names of namespaces.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A DNS name or an address, safe to put into a URL, a certificate and YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// A DNS-1123 subdomain.
    Name(String),
    /// An address, v4 or v6.
    Address(IpAddr),
}

impl Host {
    /// Whether only this machine reaches it.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Self::Name(name) => name == "localhost",
            Self::Address(address) => address.is_loopback(),
        }
    }
}

/// As it stands in a URL: a v6 address has brackets.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(text);
        if let Ok(address) = bare.parse() {
            return Ok(Self::Address(address));
        }
        if is_dns_subdomain(text) {
            return Ok(Self::Name(text.to_owned()));
        }
        Err("expected a DNS name in lower case, such as `portcullis.example.com`, or an address".to_owned())
    }
}

/// The name of a namespace: a DNS-1123 label, safe to put into CEL and YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Namespace(String);

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Namespace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if is_dns_label(text) {
            return Ok(Self(text.to_owned()));
        }
        Err("expected the name of a namespace, such as `portcullis`".to_owned())
    }
}

/// DNS-1123 subdomain, as `apimachinery/pkg/util/validation` has it.
fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_dns_label)
}

fn is_dns_label(label: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !label.is_empty()
        && label.len() <= 63
        && label.bytes().all(allowed)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_hosts() {
        let written = |text: &str| text.parse::<Host>().unwrap().to_string();
        assert_eq!(
            written("portcullis.kube-system.svc"),
            "portcullis.kube-system.svc"
        );
        assert_eq!(written("10.0.0.7"), "10.0.0.7");
        assert_eq!(written("::1"), "[::1]");
        assert_eq!(written("[fd00::1]"), "[fd00::1]");
    }

    #[test]
    fn what_would_break_a_url_or_a_certificate_is_refused() {
        for text in [
            "",
            "Upper.case",
            "a b",
            "a:8443",
            "*.example.com",
            "-a",
            "a..b",
            "a\nb",
            "https://a",
        ] {
            assert!(text.parse::<Host>().is_err(), "`{text}`");
        }
    }
}
