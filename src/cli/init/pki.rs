//! Keys and certificates of a set-up, and their hosts.
//!
//! ```text
//! CA --signs--> server         (serverAuth, SANs: the hosts)
//!         '---> authorization  (clientAuth, in the authorization kubeconfig)
//!         '---> admission      (clientAuth, in the admission kubeconfig)
//! ```
//!
//! All keys are ECDSA P-256, for fast handshakes and short files.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::SystemTime;

use openssl::asn1::{Asn1Integer, Asn1Time};
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName,
    SubjectKeyIdentifier,
};
use openssl::x509::{GeneralNameRef, X509, X509Builder, X509Name, X509NameBuilder};

use crate::identity::certificates::system_time;

/// A DNS name or IP address, which is safe to use in URLs, certificates and YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// A DNS-1123 subdomain.
    Name(String),
    /// An IPv4 or IPv6 address.
    Address(IpAddr),
}

impl Host {
    /// Whether the host can only be reached from this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Self::Name(name) => name == "localhost",
            Self::Address(address) => address.is_loopback(),
        }
    }
}

/// The host as in a URL: IPv6 addresses have brackets.
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

/// The name of a namespace, a DNS-1123 label, which is safe to use in CEL and YAML.
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

/// Whether `name` is a DNS-1123 subdomain (`apimachinery/pkg/util/validation`).
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

const DAY: i64 = 24 * 60 * 60;
/// 10 years, as for kubeadm: the CA outlives several renewals of the certificates that it signs.
const CA_DAYS: i64 = 3650;
const LEAF_DAYS: i64 = 365;
/// Tolerates that the clocks of machines differ a little.
const BACKDATE_SECONDS: i64 = 60 * 60;

/// A certificate and its private key, as PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: Vec<u8>,
    /// The private key, as unencrypted PKCS #8.
    pub(crate) key: Vec<u8>,
}

/// A certificate authority with its private key.
pub(crate) struct Authority {
    certificate: X509,
    key: PKey<Private>,
    now: i64,
}

/// The purpose of a certificate.
pub(crate) enum Usage<'a> {
    /// A server with these hosts.
    Server(&'a [Host]),
    /// A client.
    Client,
}

// === impl Authority ===

impl Authority {
    /// A new CA, valid from shortly before `now` (seconds since 1970).
    ///
    /// # Errors
    ///
    /// OpenSSL cannot make the key or the signature.
    pub(crate) fn new(common_name: &str, now: i64) -> Result<Self, ErrorStack> {
        let key = new_key()?;
        let name = subject(common_name)?;
        let mut builder = begin(&name, &name, &key, now, now + CA_DAYS * DAY)?;
        builder.append_extension(BasicConstraints::new().critical().ca().pathlen(0).build()?)?;
        builder.append_extension(KeyUsage::new().critical().key_cert_sign().crl_sign().build()?)?;
        let identifier = SubjectKeyIdentifier::new().build(&builder.x509v3_context(None, None))?;
        builder.append_extension(identifier)?;
        builder.sign(&key, MessageDigest::sha256())?;
        Ok(Self {
            certificate: builder.build(),
            key,
            now,
        })
    }

    /// The CA with this certificate and key, for signing at `now`.
    ///
    /// # Errors
    ///
    /// The certificate or the key is not PEM.
    pub(crate) fn from_pem(certificate: &[u8], key: &[u8], now: i64) -> Result<Self, ErrorStack> {
        Ok(Self {
            certificate: X509::from_pem(certificate)?,
            key: PKey::private_key_from_pem(key)?,
            now,
        })
    }

    /// The end of new certificates: after a year, but not after the end of the CA.
    fn end(&self) -> Result<i64, ErrorStack> {
        let end = system_time(self.certificate.not_after())?;
        let end = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let end = i64::try_from(end.as_secs()).unwrap_or(i64::MAX);
        Ok(end.min(self.now + LEAF_DAYS * DAY))
    }

    /// The certificate and key of the CA.
    ///
    /// # Errors
    ///
    /// OpenSSL cannot encode them.
    pub(crate) fn pair(&self) -> Result<Pair, ErrorStack> {
        pair(&self.certificate, &self.key)
    }

    /// Issues a certificate for `common_name` with a new key.
    ///
    /// # Errors
    ///
    /// OpenSSL cannot make the key or the signature.
    pub(crate) fn issue(&self, common_name: &str, usage: &Usage<'_>) -> Result<Pair, ErrorStack> {
        let key = new_key()?;
        let issuer = self.certificate.subject_name().to_owned()?;
        let mut builder = begin(&subject(common_name)?, &issuer, &key, self.now, self.end()?)?;
        builder.append_extension(BasicConstraints::new().critical().build()?)?;
        builder.append_extension(KeyUsage::new().critical().digital_signature().build()?)?;
        builder.append_extension(extended_key_usage(usage)?)?;
        let context = builder.x509v3_context(Some(&self.certificate), None);
        let identifier = AuthorityKeyIdentifier::new().keyid(true).build(&context)?;
        let names = match usage {
            Usage::Server(hosts) => Some(alternative_names(hosts).build(&context)?),
            Usage::Client => None,
        };
        builder.append_extension(identifier)?;
        if let Some(names) = names {
            builder.append_extension(names)?;
        }
        builder.sign(&self.key, MessageDigest::sha256())?;
        pair(&builder.build(), &key)
    }
}

/// The hosts of a server's certificate.
///
/// # Errors
///
/// The certificate is not PEM.
pub(crate) fn hosts_of(certificate: &[u8]) -> Result<Vec<Host>, ErrorStack> {
    let names = X509::from_pem(certificate)?.subject_alt_names();
    let host = |name: &GeneralNameRef| {
        let bytes = name.ipaddress();
        let v4 = bytes
            .and_then(|bytes| <[u8; 4]>::try_from(bytes).ok())
            .map(IpAddr::from);
        let v6 = bytes
            .and_then(|bytes| <[u8; 16]>::try_from(bytes).ok())
            .map(IpAddr::from);
        let address = v4.or(v6).map(Host::Address);
        address.or_else(|| name.dnsname()?.parse().ok())
    };
    Ok(names.iter().flatten().filter_map(host).collect())
}

fn begin(
    subject: &X509Name,
    issuer: &X509Name,
    key: &PKey<Private>,
    now: i64,
    end: i64,
) -> Result<X509Builder, ErrorStack> {
    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    builder.set_serial_number(random_serial()?.as_ref())?;
    builder.set_subject_name(subject)?;
    builder.set_issuer_name(issuer)?;
    builder.set_not_before(Asn1Time::from_unix(now - BACKDATE_SECONDS)?.as_ref())?;
    builder.set_not_after(Asn1Time::from_unix(end)?.as_ref())?;
    builder.set_pubkey(key)?;
    Ok(builder)
}

fn new_key() -> Result<PKey<Private>, ErrorStack> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
    PKey::from_ec_key(EcKey::generate(&group)?)
}

fn subject(common_name: &str) -> Result<X509Name, ErrorStack> {
    let mut name = X509NameBuilder::new()?;
    name.append_entry_by_nid(Nid::COMMONNAME, common_name)?;
    Ok(name.build())
}

fn random_serial() -> Result<Asn1Integer, ErrorStack> {
    let mut serial = BigNum::new()?;
    // 127 bits: positive, and within the 20 octets of RFC 5280, 4.1.2.2.
    serial.rand(127, MsbOption::ONE, false)?;
    serial.to_asn1_integer()
}

fn extended_key_usage(usage: &Usage<'_>) -> Result<openssl::x509::X509Extension, ErrorStack> {
    let mut extension = ExtendedKeyUsage::new();
    match usage {
        Usage::Server(_) => extension.server_auth(),
        Usage::Client => extension.client_auth(),
    };
    extension.build()
}

fn alternative_names(hosts: &[Host]) -> SubjectAlternativeName {
    let mut names = SubjectAlternativeName::new();
    for host in hosts {
        match host {
            Host::Name(name) => names.dns(name),
            Host::Address(address) => names.ip(&address.to_string()),
        };
    }
    names
}

fn pair(certificate: &X509, key: &PKey<Private>) -> Result<Pair, ErrorStack> {
    Ok(Pair {
        certificate: certificate.to_pem()?,
        key: key.private_key_to_pem_pkcs8()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use openssl::stack::Stack;
    use openssl::x509::store::X509StoreBuilder;
    use openssl::x509::verify::X509VerifyParam;
    use openssl::x509::{X509PurposeId, X509StoreContext};

    const NOW: i64 = 1_790_000_000;

    /// Whether `leaf` is valid for `purpose` under `authority` at the time `at`.
    fn verifies(authority: &Authority, leaf: &Pair, purpose: X509PurposeId, at: i64) -> bool {
        let mut param = X509VerifyParam::new().unwrap();
        param.set_time(at);
        param.set_purpose(purpose).unwrap();
        let mut store = X509StoreBuilder::new().unwrap();
        store.add_cert(authority.certificate.clone()).unwrap();
        store.set_param(&param).unwrap();
        let certificate = X509::from_pem(&leaf.certificate).unwrap();
        let mut context = X509StoreContext::new().unwrap();
        context
            .init(&store.build(), &certificate, &Stack::new().unwrap(), |context| {
                context.verify_cert()
            })
            .unwrap()
    }

    #[test]
    fn a_certificate_stands_for_its_usage_alone() {
        let authority = Authority::new("test-ca", NOW).unwrap();
        let server = authority
            .issue("server", &Usage::Server(&["localhost".parse().unwrap()]))
            .unwrap();
        let client = authority.issue("client", &Usage::Client).unwrap();
        assert!(verifies(&authority, &server, X509PurposeId::SSL_SERVER, NOW));
        assert!(!verifies(&authority, &server, X509PurposeId::SSL_CLIENT, NOW));
        assert!(verifies(&authority, &client, X509PurposeId::SSL_CLIENT, NOW));
        assert!(!verifies(&authority, &client, X509PurposeId::SSL_SERVER, NOW));
    }

    #[test]
    fn a_certificate_of_another_authority_does_not_verify() {
        let authority = Authority::new("test-ca", NOW).unwrap();
        let other = Authority::new("test-ca", NOW).unwrap();
        let client = other.issue("client", &Usage::Client).unwrap();
        assert!(!verifies(&authority, &client, X509PurposeId::SSL_CLIENT, NOW));
    }

    #[test]
    fn a_leaf_ends_after_a_year_and_begins_an_hour_before() {
        let authority = Authority::new("test-ca", NOW).unwrap();
        let client = authority.issue("client", &Usage::Client).unwrap();
        let valid = |at| verifies(&authority, &client, X509PurposeId::SSL_CLIENT, at);
        assert!(valid(NOW - BACKDATE_SECONDS));
        assert!(!valid(NOW - BACKDATE_SECONDS - 1));
        assert!(valid(NOW + 364 * DAY));
        assert!(!valid(NOW + 366 * DAY));
    }

    #[test]
    fn nothing_outlives_the_authority_that_signed_it() {
        let ca = Authority::new("test-ca", NOW).unwrap().pair().unwrap();
        let late = NOW + (CA_DAYS - 10) * DAY;
        let authority = Authority::from_pem(&ca.certificate, &ca.key, late).unwrap();
        let client = authority.issue("client", &Usage::Client).unwrap();
        let client = X509::from_pem(&client.certificate).unwrap();
        let ca = X509::from_pem(&ca.certificate).unwrap();
        assert!(client.not_after() == ca.not_after());
    }

    #[test]
    fn the_hosts_of_a_certificate_can_be_read_again() {
        let authority = Authority::new("test-ca", NOW).unwrap();
        let hosts: Vec<Host> = ["a.example.com", "10.0.0.7", "::1"]
            .map(|host| host.parse().unwrap())
            .into();
        let server = authority.issue("a", &Usage::Server(&hosts)).unwrap();
        assert_eq!(hosts_of(&server.certificate).unwrap(), hosts);
    }

    #[test]
    fn a_server_certificate_names_its_hosts() {
        let authority = Authority::new("test-ca", NOW).unwrap();
        let hosts = [
            "a.example.com".parse().unwrap(),
            "10.0.0.7".parse().unwrap(),
            "::1".parse().unwrap(),
        ];
        let server = authority.issue("a.example.com", &Usage::Server(&hosts)).unwrap();
        let certificate = X509::from_pem(&server.certificate).unwrap();
        let names = certificate.subject_alt_names().unwrap();
        let found: Vec<String> = names
            .iter()
            .map(|name| match (name.dnsname(), name.ipaddress()) {
                (Some(name), _) => name.to_owned(),
                (_, Some(address)) => format!("{} bytes", address.len()),
                _ => String::new(),
            })
            .collect();
        assert_eq!(found, ["a.example.com", "4 bytes", "16 bytes"]);
    }

    #[test]
    fn a_key_belongs_to_its_certificate() {
        let pair = Authority::new("test-ca", NOW).unwrap().pair().unwrap();
        let key = PKey::private_key_from_pem(&pair.key).unwrap();
        assert!(
            X509::from_pem(&pair.certificate)
                .unwrap()
                .public_key()
                .unwrap()
                .public_eq(&key)
        );
    }

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
