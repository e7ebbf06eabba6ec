//! Callers for tests: certificates, files in memory, a fixed time, signed tokens.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509NameBuilder};

use super::{Authenticator, Caller, Credentials, PeerCertificate, Refusal};
use crate::config;
use crate::field::Faults;

/// Seconds since 1970 at which the tests begin.
pub(super) const START: i64 = 1_800_000_000;

/// `seconds` after the tests begin.
pub(super) fn at(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(START + seconds).unwrap())
}

pub(super) fn ec_key(curve: Nid) -> PKey<Private> {
    let group = EcGroup::from_curve_name(curve).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

pub(super) fn rsa_key() -> &'static PKey<Private> {
    static KEY: OnceLock<PKey<Private>> = OnceLock::new();
    KEY.get_or_init(|| PKey::from_rsa(openssl::rsa::Rsa::generate(2048).unwrap()).unwrap())
}

// === certificates ===

pub(super) struct TestAuthority {
    pub(super) certificate: X509,
    key: PKey<Private>,
}

/// A certificate to be; valid from an hour before to a day after the start, for clients.
pub(super) struct Leaf<'l> {
    pub(super) subject: &'l [(Nid, &'l str)],
    pub(super) dns: &'l [&'l str],
    pub(super) uri: Option<&'l str>,
    pub(super) ip: Option<&'l str>,
    pub(super) email: Option<&'l str>,
    pub(super) usage: Option<bool>,
    pub(super) from: i64,
    pub(super) until: i64,
}

impl Default for Leaf<'_> {
    fn default() -> Self {
        Self {
            subject: &[],
            dns: &[],
            uri: None,
            ip: None,
            email: None,
            usage: Some(true),
            from: -3600,
            until: 86400,
        }
    }
}

fn builder(subject: &[(Nid, &str)], key: &PKey<Private>, from: i64, until: i64) -> X509Builder {
    let mut name = X509NameBuilder::new().unwrap();
    for (field, text) in subject {
        name.append_entry_by_nid(*field, text).unwrap();
    }
    let mut serial = BigNum::new().unwrap();
    serial.rand(100, MsbOption::ONE, false).unwrap();
    let mut builder = X509Builder::new().unwrap();
    builder.set_version(2).unwrap();
    builder
        .set_serial_number(&serial.to_asn1_integer().unwrap())
        .unwrap();
    builder.set_subject_name(&name.build()).unwrap();
    builder.set_pubkey(key).unwrap();
    builder
        .set_not_before(&Asn1Time::from_unix(START + from).unwrap())
        .unwrap();
    builder
        .set_not_after(&Asn1Time::from_unix(START + until).unwrap())
        .unwrap();
    builder
}

fn authority(name: &str, issuer: Option<&TestAuthority>) -> TestAuthority {
    let key = ec_key(Nid::X9_62_PRIME256V1);
    let mut builder = builder(&[(Nid::COMMONNAME, name)], &key, -86400, 10 * 86400);
    builder
        .append_extension(BasicConstraints::new().critical().ca().build().unwrap())
        .unwrap();
    builder
        .append_extension(KeyUsage::new().critical().key_cert_sign().build().unwrap())
        .unwrap();
    let certificate = signed(builder, &key, issuer);
    TestAuthority { certificate, key }
}

fn signed(mut builder: X509Builder, key: &PKey<Private>, issuer: Option<&TestAuthority>) -> X509 {
    match issuer {
        Some(issuer) => {
            builder
                .set_issuer_name(issuer.certificate.subject_name())
                .unwrap();
            builder.sign(&issuer.key, MessageDigest::sha256()).unwrap();
            builder.build()
        }
        None => {
            let draft = builder.build();
            let mut builder = X509Builder::new().unwrap();
            builder.set_version(2).unwrap();
            builder.set_serial_number(draft.serial_number()).unwrap();
            builder.set_subject_name(draft.subject_name()).unwrap();
            builder.set_issuer_name(draft.subject_name()).unwrap();
            builder.set_pubkey(key).unwrap();
            builder.set_not_before(draft.not_before()).unwrap();
            builder.set_not_after(draft.not_after()).unwrap();
            builder
                .append_extension(BasicConstraints::new().critical().ca().build().unwrap())
                .unwrap();
            builder
                .append_extension(KeyUsage::new().critical().key_cert_sign().build().unwrap())
                .unwrap();
            builder.sign(key, MessageDigest::sha256()).unwrap();
            builder.build()
        }
    }
}

impl TestAuthority {
    pub(super) fn root(name: &str) -> Self {
        authority(name, None)
    }

    pub(super) fn intermediate(&self, name: &str) -> Self {
        authority(name, Some(self))
    }

    pub(super) fn issue(&self, leaf: &Leaf<'_>) -> X509 {
        self.issue_for(leaf, &ec_key(Nid::X9_62_PRIME256V1))
    }

    pub(super) fn issue_for(&self, leaf: &Leaf<'_>, key: &PKey<Private>) -> X509 {
        let mut builder = builder(leaf.subject, key, leaf.from, leaf.until);
        if let Some(for_client) = leaf.usage {
            let mut usage = ExtendedKeyUsage::new();
            let usage = if for_client {
                usage.client_auth()
            } else {
                usage.server_auth()
            };
            builder.append_extension(usage.build().unwrap()).unwrap();
        }
        let mut names = SubjectAlternativeName::new();
        for name in leaf.dns {
            names.dns(name);
        }
        if let Some(uri) = leaf.uri {
            names.uri(uri);
        }
        if let Some(ip) = leaf.ip {
            names.ip(ip);
        }
        if let Some(email) = leaf.email {
            names.email(email);
        }
        if !leaf.dns.is_empty() || leaf.uri.is_some() || leaf.ip.is_some() || leaf.email.is_some() {
            let extension = names
                .build(&builder.x509v3_context(Some(&self.certificate), None))
                .unwrap();
            builder.append_extension(extension).unwrap();
        }
        signed(builder, key, Some(self))
    }

    /// A client's certificate with this common name.
    pub(super) fn client(&self, common_name: &str) -> X509 {
        self.issue(&Leaf {
            subject: &[(Nid::COMMONNAME, common_name)],
            ..Leaf::default()
        })
    }

    pub(super) fn pem(&self) -> Vec<u8> {
        self.certificate.to_pem().unwrap()
    }
}

pub(super) fn peer(certificate: &X509) -> PeerCertificate {
    PeerCertificate::new(certificate.clone(), [])
}

/// `client-certificate-data: …`.
pub(super) fn certificate_data(certificate: &X509) -> String {
    format!(
        "client-certificate-data: {}",
        STANDARD.encode(certificate.to_pem().unwrap())
    )
}

// === files and authenticators ===

/// Files in memory, and the callers that refer to them.
#[derive(Clone, Default)]
pub(super) struct World {
    pub(super) files: BTreeMap<PathBuf, Vec<u8>>,
    pub(super) callers: String,
}

impl World {
    /// With `callers` as YAML and the client CA `ca`.
    pub(super) fn new(ca: &TestAuthority, callers: &str) -> Self {
        let mut world = Self {
            files: BTreeMap::new(),
            callers: callers.to_owned(),
        };
        world.write("ca.crt", ca.pem());
        world
    }

    pub(super) fn write(&mut self, name: &str, content: impl Into<Vec<u8>>) {
        self.files.insert(Path::new("/").join(name), content.into());
    }

    /// Writes a kubeconfig of these users, each a name and its fields.
    pub(super) fn kubeconfig(&mut self, name: &str, users: &[(&str, &str)]) {
        let users: Vec<String> = users
            .iter()
            .map(|(name, fields)| format!("{{name: {name}, user: {{{fields}}}}}"))
            .collect();
        self.write(
            name,
            format!("apiVersion: v1\nkind: Config\nusers: [{}]\n", users.join(", ")),
        );
    }

    /// The authenticator and what is to be said of it.
    pub(super) fn try_build(
        &self,
        previous: Option<&Authenticator>,
        now: SystemTime,
    ) -> (Authenticator, String) {
        let (built, faults) = self.read(previous, now);
        (built, faults.to_string())
    }

    fn read(&self, previous: Option<&Authenticator>, now: SystemTime) -> (Authenticator, Faults) {
        let text = format!(
            "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
             server: {{tls: {{certificate: s.crt, privateKey: s.key, clientCA: ca.crt}}}}\ncallers:\n{}",
            self.callers
        );
        let (config, faults) = config::parse(Path::new("g.yaml"), &text, Path::new("/"));
        assert_eq!(faults.to_string(), "");
        Authenticator::build_from(&self.files, &config.unwrap(), previous, now)
    }

    pub(super) fn build(&self) -> Authenticator {
        self.rebuild(None, 0)
    }

    pub(super) fn rebuild(&self, previous: Option<&Authenticator>, seconds: i64) -> Authenticator {
        let (built, faults) = self.read(previous, at(seconds));
        assert!(!faults.has_errors(), "{faults}");
        built
    }
}

// === requests ===

/// Who shows these at a time: `NAME CLUSTER {ENDPOINTS} METHOD`, or the refusal.
pub(super) fn seen_at(
    seconds: i64,
    authenticator: &Authenticator,
    peer: Option<&PeerCertificate>,
    authorization: Option<&str>,
) -> String {
    let authorization = authorization.map(str::as_bytes);
    told(&authenticator.authenticate(&Credentials { peer, authorization }, at(seconds)))
}

/// [`seen_at`] the start.
pub(super) fn seen(
    authenticator: &Authenticator,
    peer: Option<&PeerCertificate>,
    authorization: Option<&str>,
) -> String {
    seen_at(0, authenticator, peer, authorization)
}

fn told(outcome: &Result<Caller, Refusal>) -> String {
    match outcome {
        Ok(caller) => {
            format!(
                "{} {} {:?} {}",
                caller.name,
                caller.cluster,
                caller.endpoints,
                caller.method.as_str()
            )
        }
        Err(refusal) => format!("{} {} {refusal}", refusal.status(), refusal.method().as_str()),
    }
}

pub(super) fn basic(pair: &str) -> String {
    format!("Basic {}", STANDARD.encode(pair))
}

pub(super) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(super) fn unbase64url(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}
