//! Throwaway certificate authorities, certificates and keys.

use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509Name, X509NameBuilder, X509NameRef};

/// When every certificate begins, in seconds since 1970: in 2023.
const BEGINNING: i64 = 1_700_000_000;

/// A certificate authority.
pub(crate) struct Authority {
    certificate: X509,
    key: PKey<Private>,
}

/// A certificate with its key, both as PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Authority {
    /// A fresh authority that signs itself.
    pub(crate) fn new(common_name: &str) -> Self {
        let key = new_key();
        let name = distinguished_name(common_name, &[]);
        let mut builder = unsigned(&name, &key);
        builder.set_issuer_name(&name).unwrap();
        builder
            .append_extension(BasicConstraints::new().critical().ca().build().unwrap())
            .unwrap();
        let usage = KeyUsage::new()
            .critical()
            .key_cert_sign()
            .crl_sign()
            .build()
            .unwrap();
        builder.append_extension(usage).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        Self {
            certificate: builder.build(),
            key,
        }
    }

    pub(crate) fn pem(&self) -> Vec<u8> {
        self.certificate.to_pem().unwrap()
    }

    /// A certificate for a server on the loopback address.
    pub(crate) fn server(&self) -> Identity {
        self.server_named(&[])
    }

    /// The same for these names too.
    pub(crate) fn server_named(&self, names: &[&str]) -> Identity {
        self.issue("server", &[], |builder, issuer| {
            serve_as(
                builder,
                issuer,
                SubjectAlternativeName::new().ip("127.0.0.1").dns("localhost"),
                names,
            );
        })
    }

    /// A certificate for these names alone.
    pub(crate) fn server_elsewhere(&self, names: &[&str]) -> Identity {
        self.issue("server", &[], |builder, issuer| {
            serve_as(builder, issuer, &mut SubjectAlternativeName::new(), names);
        })
    }

    /// One whose time is over.
    pub(crate) fn expired_server(&self) -> Identity {
        self.issue("server", &[], |builder, issuer| {
            serve_as(
                builder,
                issuer,
                SubjectAlternativeName::new().ip("127.0.0.1").dns("localhost"),
                &[],
            );
            let over = Asn1Time::from_unix(BEGINNING + 60).unwrap();
            builder.set_not_after(&over).unwrap();
        })
    }

    /// A certificate for a client: a user of these groups, as Kubernetes reads
    /// it.
    pub(crate) fn client(&self, common_name: &str, organizations: &[&str]) -> Identity {
        self.issue(common_name, organizations, |builder, _| {
            let usage = ExtendedKeyUsage::new().client_auth().build().unwrap();
            builder.append_extension(usage).unwrap();
        })
    }

    fn issue(
        &self,
        common_name: &str,
        organizations: &[&str],
        extend: impl FnOnce(&mut X509Builder, &X509),
    ) -> Identity {
        let key = new_key();
        let mut builder = unsigned(&distinguished_name(common_name, organizations), &key);
        builder.set_issuer_name(self.certificate.subject_name()).unwrap();
        extend(&mut builder, &self.certificate);
        builder.sign(&self.key, MessageDigest::sha256()).unwrap();
        Identity {
            certificate: builder.build().to_pem().unwrap(),
            key: key.private_key_to_pem_pkcs8().unwrap(),
        }
    }
}

fn serve_as(builder: &mut X509Builder, issuer: &X509, names: &mut SubjectAlternativeName, more: &[&str]) {
    let usage = ExtendedKeyUsage::new().server_auth().build().unwrap();
    builder.append_extension(usage).unwrap();
    for name in more {
        names.dns(name);
    }
    let names = names.build(&builder.x509v3_context(Some(issuer), None)).unwrap();
    builder.append_extension(names).unwrap();
}

fn new_key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

fn distinguished_name(common_name: &str, organizations: &[&str]) -> X509Name {
    let mut name = X509NameBuilder::new().unwrap();
    for organization in organizations {
        name.append_entry_by_nid(Nid::ORGANIZATIONNAME, organization)
            .unwrap();
    }
    name.append_entry_by_nid(Nid::COMMONNAME, common_name).unwrap();
    name.build()
}

fn unsigned(subject: &X509NameRef, key: &PKey<Private>) -> X509Builder {
    let mut serial = BigNum::new().unwrap();
    serial.rand(120, MsbOption::MAYBE_ZERO, false).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder
        .set_serial_number(&serial.to_asn1_integer().unwrap())
        .unwrap();
    builder.set_subject_name(subject).unwrap();
    builder.set_pubkey(key).unwrap();
    builder
        .set_not_before(&Asn1Time::from_unix(BEGINNING).unwrap())
        .unwrap();
    builder
        .set_not_after(&Asn1Time::days_from_now(2).unwrap())
        .unwrap();
    builder
}
