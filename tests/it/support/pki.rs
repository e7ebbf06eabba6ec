//! A throwaway CA, and certificates that it signs.

use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509NameBuilder};

/// A certificate and its key.
pub(crate) struct Identity {
    pub(crate) certificate: X509,
    pub(crate) key: PKey<Private>,
}

impl Identity {
    /// A certificate authority of its own.
    pub(crate) fn authority(name: &str) -> Self {
        let key = key();
        let mut builder = builder(name, &key);
        builder.set_issuer_name(&subject(name)).unwrap();
        builder
            .append_extension(BasicConstraints::new().critical().ca().build().unwrap())
            .unwrap();
        builder
            .append_extension(KeyUsage::new().critical().key_cert_sign().build().unwrap())
            .unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        Self {
            certificate: builder.build(),
            key,
        }
    }

    /// A server certificate for localhost.
    pub(crate) fn server(&self, name: &str) -> Self {
        self.issue(name, |builder| {
            let context = builder.x509v3_context(Some(&self.certificate), None);
            let names = SubjectAlternativeName::new()
                .dns("localhost")
                .dns("hook.infra.svc")
                .ip("127.0.0.1")
                .build(&context)
                .unwrap();
            builder.append_extension(names).unwrap();
            builder
                .append_extension(ExtendedKeyUsage::new().server_auth().build().unwrap())
                .unwrap();
        })
    }

    /// A client certificate.
    pub(crate) fn client(&self, name: &str) -> Self {
        self.issue(name, |builder| {
            builder
                .append_extension(ExtendedKeyUsage::new().client_auth().build().unwrap())
                .unwrap();
        })
    }

    /// A client certificate whose time was over at the end of 2020.
    pub(crate) fn expired_client(&self, name: &str) -> Self {
        self.issue(name, |builder| {
            let at = |seconds| Asn1Time::from_unix(seconds).unwrap();
            builder.set_not_before(&at(1_577_836_800)).unwrap();
            builder.set_not_after(&at(1_609_459_199)).unwrap();
            builder
                .append_extension(ExtendedKeyUsage::new().client_auth().build().unwrap())
                .unwrap();
        })
    }

    pub(crate) fn certificate_pem(&self) -> Vec<u8> {
        self.certificate.to_pem().unwrap()
    }

    pub(crate) fn key_pem(&self) -> Vec<u8> {
        self.key.private_key_to_pem_pkcs8().unwrap()
    }

    fn issue(&self, name: &str, extend: impl FnOnce(&mut X509Builder)) -> Self {
        let key = key();
        let mut builder = builder(name, &key);
        builder.set_issuer_name(self.certificate.subject_name()).unwrap();
        extend(&mut builder);
        builder.sign(&self.key, MessageDigest::sha256()).unwrap();
        Self {
            certificate: builder.build(),
            key,
        }
    }
}

fn key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

fn subject(name: &str) -> openssl::x509::X509Name {
    let mut subject = X509NameBuilder::new().unwrap();
    subject.append_entry_by_nid(Nid::COMMONNAME, name).unwrap();
    subject.build()
}

fn builder(name: &str, key: &PKey<Private>) -> X509Builder {
    let mut serial = BigNum::new().unwrap();
    serial.rand(120, MsbOption::MAYBE_ZERO, false).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder
        .set_serial_number(&serial.to_asn1_integer().unwrap())
        .unwrap();
    builder.set_subject_name(&subject(name)).unwrap();
    builder.set_pubkey(key).unwrap();
    builder
        .set_not_before(&Asn1Time::days_from_now(0).unwrap())
        .unwrap();
    builder
        .set_not_after(&Asn1Time::days_from_now(2).unwrap())
        .unwrap();
    builder
}
