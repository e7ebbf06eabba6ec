//! Throwaway certificate authorities, certificates and keys: for every test, those
//! within the library too (`src/lib.rs`).

#![allow(dead_code, reason = "each test program uses its own part of the harness")]

use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509Name, X509NameBuilder, X509NameRef};

/// When a certificate begins that says nothing else, in seconds since 1970: in 2023.
pub(crate) const BEGINNING: i64 = 1_700_000_000;

/// When it ends: in 2096.
const END: i64 = 4_000_000_000;

/// A certificate authority.
pub(crate) struct Authority {
    pub(crate) certificate: X509,
    key: PKey<Private>,
}

/// A certificate with its key.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: X509,
    pub(crate) key: PKey<Private>,
}

/// A certificate to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaf<'l> {
    pub(crate) subject: &'l [(Nid, &'l str)],
    pub(crate) dns: &'l [&'l str],
    pub(crate) ips: &'l [&'l str],
    pub(crate) uri: Option<&'l str>,
    pub(crate) email: Option<&'l str>,
    /// What its key is for; `None`: it does not say.
    pub(crate) usage: Option<Usage>,
    /// In seconds since 1970.
    pub(crate) from: i64,
    /// In seconds since 1970.
    pub(crate) until: i64,
}

/// What the key of a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    Client,
    Server,
}

/// A fresh key, of the sort that most certificates have.
pub(crate) fn new_key() -> PKey<Private> {
    ec_key(Nid::X9_62_PRIME256V1)
}

/// A fresh key on this curve.
pub(crate) fn ec_key(curve: Nid) -> PKey<Private> {
    let group = EcGroup::from_curve_name(curve).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

/// The IP addresses among `names`, and the others.
pub(crate) fn addresses_and_names<'n>(names: &[&'n str]) -> (Vec<&'n str>, Vec<&'n str>) {
    let is_address = |name: &&str| name.parse::<std::net::IpAddr>().is_ok();
    names.iter().copied().partition(is_address)
}

// === impl Authority ===

impl Authority {
    /// A fresh authority that signs itself.
    pub(crate) fn new(common_name: &str) -> Self {
        let key = new_key();
        let builder = authority(common_name, &key);
        let name = distinguished_name(&[(Nid::COMMONNAME, common_name)]);
        let certificate = signed(builder, &name, &key);
        Self { certificate, key }
    }

    /// A fresh authority that this one signs.
    pub(crate) fn intermediate(&self, common_name: &str) -> Self {
        let key = new_key();
        let builder = authority(common_name, &key);
        let certificate = signed(builder, self.certificate.subject_name(), &self.key);
        Self { certificate, key }
    }

    pub(crate) fn pem(&self) -> Vec<u8> {
        self.certificate.to_pem().unwrap()
    }

    /// A certificate with a fresh key.
    pub(crate) fn issue(&self, leaf: &Leaf<'_>) -> Identity {
        let key = new_key();
        Identity {
            certificate: self.issue_for(leaf, &key),
            key,
        }
    }

    /// A certificate of this key.
    pub(crate) fn issue_for(&self, leaf: &Leaf<'_>, key: &PKey<Private>) -> X509 {
        let builder = leaf.builder(key, Some(&self.certificate));
        signed(builder, self.certificate.subject_name(), &self.key)
    }

    /// A certificate for a server on the loopback address.
    pub(crate) fn server(&self) -> Identity {
        self.server_named(&[])
    }

    /// The same for these names too.
    pub(crate) fn server_named(&self, names: &[&str]) -> Identity {
        let dns = [&["localhost"], names].concat();
        self.issue(&Leaf {
            dns: &dns,
            ips: &["127.0.0.1"],
            ..Leaf::server()
        })
    }

    /// A certificate for a server of these names alone, addresses among them; of the
    /// first as common name.
    pub(crate) fn server_elsewhere(&self, names: &[&str]) -> Identity {
        self.server_until(names, END)
    }

    /// The same, which ends then, in seconds since 1970.
    pub(crate) fn server_until(&self, names: &[&str], until: i64) -> Identity {
        let (ips, dns) = addresses_and_names(names);
        self.issue(&Leaf {
            subject: &[(Nid::COMMONNAME, names.first().unwrap_or(&"nobody"))],
            dns: &dns,
            ips: &ips,
            until,
            ..Leaf::server()
        })
    }

    /// One for a server on the loopback address whose time is over.
    pub(crate) fn expired_server(&self) -> Identity {
        self.server_until(&["localhost", "127.0.0.1"], BEGINNING + 60)
    }

    /// A certificate for a client: a user of these groups, as Kubernetes reads it.
    pub(crate) fn client(&self, common_name: &str, organizations: &[&str]) -> Identity {
        let organizations = organizations.iter().map(|name| (Nid::ORGANIZATIONNAME, *name));
        let subject: Vec<_> = organizations.chain([(Nid::COMMONNAME, common_name)]).collect();
        self.issue(&Leaf {
            subject: &subject,
            ..Leaf::default()
        })
    }

    /// One for a client whose time is over.
    pub(crate) fn expired_client(&self, common_name: &str) -> Identity {
        self.issue(&Leaf {
            subject: &[(Nid::COMMONNAME, common_name)],
            until: BEGINNING + 60,
            ..Leaf::default()
        })
    }
}

// === impl Identity ===

impl Identity {
    /// A certificate that signs itself.
    pub(crate) fn self_signed(leaf: &Leaf<'_>) -> Self {
        let key = new_key();
        let builder = leaf.builder(&key, None);
        let certificate = signed(builder, &distinguished_name(leaf.subject), &key);
        Self { certificate, key }
    }

    /// What PEM files say.
    pub(crate) fn from_pem(certificate: &[u8], key: &[u8]) -> Self {
        Self {
            certificate: X509::from_pem(certificate).unwrap(),
            key: PKey::private_key_from_pem(key).unwrap(),
        }
    }

    /// The certificate as PEM.
    pub(crate) fn pem(&self) -> Vec<u8> {
        self.certificate.to_pem().unwrap()
    }

    /// The key as PEM.
    pub(crate) fn key_pem(&self) -> Vec<u8> {
        self.key.private_key_to_pem_pkcs8().unwrap()
    }
}

// === impl Leaf ===

/// A client's, without any name.
impl Default for Leaf<'_> {
    fn default() -> Self {
        Self {
            subject: &[],
            dns: &[],
            ips: &[],
            uri: None,
            email: None,
            usage: Some(Usage::Client),
            from: BEGINNING,
            until: END,
        }
    }
}

impl Leaf<'_> {
    /// A server's, without alternative names.
    pub(crate) fn server() -> Self {
        Self {
            subject: &[(Nid::COMMONNAME, "server")],
            usage: Some(Usage::Server),
            ..Self::default()
        }
    }

    fn builder(&self, key: &PKey<Private>, issuer: Option<&X509>) -> X509Builder {
        let mut builder = unsigned(&distinguished_name(self.subject), key, self.from, self.until);
        let mut usage = ExtendedKeyUsage::new();
        let usage = self.usage.map(|of| match of {
            Usage::Client => usage.client_auth(),
            Usage::Server => usage.server_auth(),
        });
        if let Some(usage) = usage {
            builder.append_extension(usage.build().unwrap()).unwrap();
        }
        let mut names = SubjectAlternativeName::new();
        for name in self.dns {
            names.dns(name);
        }
        for address in self.ips {
            names.ip(address);
        }
        if let Some(uri) = self.uri {
            names.uri(uri);
        }
        if let Some(email) = self.email {
            names.email(email);
        }
        let lists = [self.dns, self.ips, self.uri.as_slice(), self.email.as_slice()];
        if lists.iter().any(|list| !list.is_empty()) {
            let names = names.build(&builder.x509v3_context(issuer.map(|issuer| &**issuer), None));
            builder.append_extension(names.unwrap()).unwrap();
        }
        builder
    }
}

fn authority(common_name: &str, key: &PKey<Private>) -> X509Builder {
    let name = distinguished_name(&[(Nid::COMMONNAME, common_name)]);
    let mut builder = unsigned(&name, key, BEGINNING, END);
    let constraints = BasicConstraints::new().critical().ca().build();
    builder.append_extension(constraints.unwrap()).unwrap();
    let usage = KeyUsage::new().critical().key_cert_sign().crl_sign().build();
    builder.append_extension(usage.unwrap()).unwrap();
    builder
}

fn distinguished_name(entries: &[(Nid, &str)]) -> X509Name {
    let mut name = X509NameBuilder::new().unwrap();
    for (field, text) in entries {
        name.append_entry_by_nid(*field, text).unwrap();
    }
    name.build()
}

fn unsigned(subject: &X509NameRef, key: &PKey<Private>, from: i64, until: i64) -> X509Builder {
    let mut serial = BigNum::new().unwrap();
    serial.rand(120, MsbOption::MAYBE_ZERO, false).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder
        .set_serial_number(&serial.to_asn1_integer().unwrap())
        .unwrap();
    builder.set_subject_name(subject).unwrap();
    builder.set_pubkey(key).unwrap();
    let time = |seconds| Asn1Time::from_unix(seconds).unwrap();
    builder.set_not_before(&time(from)).unwrap();
    builder.set_not_after(&time(until)).unwrap();
    builder
}

fn signed(mut builder: X509Builder, issuer: &X509NameRef, key: &PKey<Private>) -> X509 {
    builder.set_issuer_name(issuer).unwrap();
    builder.sign(key, MessageDigest::sha256()).unwrap();
    builder.build()
}
