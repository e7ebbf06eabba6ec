//! Patterns over the subject alternative names of a certificate.

use std::fmt;
use std::net::IpAddr;

/// Which subject alternative names are meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SanPattern {
    /// `name.example.com`: this DNS name, whatever its case.
    Dns(String),
    /// `*.example.com`: DNS names with exactly one label more. Holds `example.com`.
    DnsBelow(String),
    /// `10.0.0.1`, `2001:db8::1`: this IP address.
    Ip(IpAddr),
    /// `spiffe://example.com/apiserver`: this URI, letter by letter.
    Uri(String),
    /// `api@example.com`: this e-mail address, letter by letter.
    Email(String),
}

// === impl SanPattern ===

impl SanPattern {
    /// Reads a pattern; what it is follows from its form.
    ///
    /// # Errors
    ///
    /// What is wrong with `text`.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(address));
        }
        if text.contains("://") {
            return Ok(Self::Uri(text.to_owned()));
        }
        if text.contains('@') {
            return Ok(Self::Email(text.to_owned()));
        }
        let below = text.strip_prefix("*.");
        let name = below.unwrap_or(text);
        if name.contains('*') {
            return Err("`*` may only be the whole first label, as in `*.example.com`");
        }
        if !name.split('.').all(is_label) {
            return Err("must be a DNS name, IP address, URI or e-mail address");
        }
        let name = name.to_ascii_lowercase();
        Ok(if below.is_some() {
            Self::DnsBelow(name)
        } else {
            Self::Dns(name)
        })
    }

    /// Whether a certificate's DNS name is meant. A name that is itself a
    /// pattern, `*.example.com`, is meant by the same pattern alone.
    #[must_use]
    pub fn means_dns(&self, name: &str) -> bool {
        match self {
            Self::Dns(expected) => name.eq_ignore_ascii_case(expected),
            Self::DnsBelow(parent) => name
                .split_once('.')
                .is_some_and(|(label, rest)| !label.is_empty() && rest.eq_ignore_ascii_case(parent)),
            _ => false,
        }
    }

    /// Whether a certificate's IP address, as 4 or 16 bytes, is meant.
    #[must_use]
    pub fn means_ip(&self, address: &[u8]) -> bool {
        match self {
            Self::Ip(IpAddr::V4(expected)) => expected.octets() == address,
            Self::Ip(IpAddr::V6(expected)) => expected.octets() == address,
            _ => false,
        }
    }

    /// Whether a certificate's URI is meant.
    #[must_use]
    pub fn means_uri(&self, uri: &str) -> bool {
        matches!(self, Self::Uri(expected) if expected == uri)
    }

    /// Whether a certificate's e-mail address is meant.
    #[must_use]
    pub fn means_email(&self, address: &str) -> bool {
        matches!(self, Self::Email(expected) if expected == address)
    }
}

impl fmt::Display for SanPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(text) | Self::Uri(text) | Self::Email(text) => f.write_str(text),
            Self::DnsBelow(parent) => write!(f, "*.{parent}"),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

fn is_label(label: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !label.is_empty() && label.len() <= 63 && label.bytes().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> SanPattern {
        SanPattern::parse(text).unwrap()
    }

    #[test]
    fn a_wildcard_stands_for_exactly_one_label() {
        let table = [
            ("*.cp.example.com", "a.cp.example.com", true),
            ("*.cp.example.com", "A.CP.Example.COM", true),
            ("*.CP.example.com", "a.cp.example.com", true),
            ("*.cp.example.com", "*.cp.example.com", true),
            ("*.cp.example.com", "cp.example.com", false),
            ("*.cp.example.com", ".cp.example.com", false),
            ("*.cp.example.com", "a.b.cp.example.com", false),
            ("*.cp.example.com", "a.cp.example.com.evil", false),
            ("*.cp.example.com", "a.xcp.example.com", false),
            ("*.cp.example.com", "evilcp.example.com", false),
            ("*.cp.example.com", "a.cp.example.com.", false),
            ("*.cp.example.com", "a.cp.example.com\0", false),
            ("*.cp.example.com", "", false),
            ("a.cp.example.com", "a.cp.example.com", true),
            ("a.cp.example.com", "A.cp.example.com", true),
            ("a.cp.example.com", "*.cp.example.com", false),
            ("a.cp.example.com", "b.cp.example.com", false),
            ("localhost", "localhost", true),
        ];
        for (text, name, expected) in table {
            assert_eq!(pattern(text).means_dns(name), expected, "{text} {name}");
        }
    }

    #[test]
    fn each_form_means_its_own_kind_alone() {
        let ip = pattern("10.0.0.1");
        assert!(ip.means_ip(&[10, 0, 0, 1]));
        assert!(!ip.means_ip(&[10, 0, 0, 2]) && !ip.means_ip(&[10, 0, 0]) && !ip.means_dns("10.0.0.1"));
        assert!(pattern("::1").means_ip(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]));

        let uri = pattern("spiffe://example.com/apiserver");
        assert!(uri.means_uri("spiffe://example.com/apiserver"));
        assert!(!uri.means_uri("spiffe://example.com/apiserver/x") && !uri.means_dns("example.com"));

        let email = pattern("api@example.com");
        assert!(email.means_email("api@example.com"));
        assert!(!email.means_email("API@example.com") && !email.means_dns("example.com"));
    }

    #[test]
    fn refuses_what_would_mean_more_or_less_than_it_seems() {
        for text in [
            "*",
            "*.",
            "a.*.com",
            "*a.example.com",
            "**.example.com",
            "a b",
            "",
            ".",
            "a..b",
            "a.",
        ] {
            assert!(SanPattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn prints_as_it_is_written() {
        for text in [
            "a.example.com",
            "*.example.com",
            "10.0.0.1",
            "::1",
            "spiffe://x/y",
            "a@b.c",
        ] {
            assert_eq!(pattern(text).to_string(), text);
        }
    }
}
