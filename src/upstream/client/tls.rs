//! TLS of calls to webhooks and to API servers: trusted CAs and client certificate.
//!
//! Certificates are verified as in Go: every certificate of a bundle is a trust anchor,
//! even an intermediate or the server's own; names are only in subjectAltName; TLS 1.2
//! and 1.3.

use std::net::IpAddr;
use std::path::Path;

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslVerifyMode, SslVersion,
};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::{X509CheckFlags, X509VerifyFlags};

use super::InvalidSettings;
use crate::config::Secret;

/// A client certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// PEM: the certificate, and then its intermediates.
    pub certificate: Vec<u8>,
    /// PEM, not encrypted.
    pub key: Secret,
}

/// Where systems keep the authorities that they trust, in Go's order
/// (`crypto/x509/root_linux.go`). OpenSSL compiled in knows a folder that no
/// system has.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

// === impl ClientIdentity ===

impl ClientIdentity {
    /// Whether it can be shown.
    ///
    /// # Errors
    ///
    /// What is wrong with the certificate, the key, or both together.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        show(&mut SslContextBuilder::new(SslMethod::tls_client())?, self)
    }
}

/// The ciphers of TLS 1.2, as `openssl::ssl::SslConnector` has them.
const CIPHERS: &str = "DEFAULT:!aNULL:!eNULL:!MD5:!3DES:!DES:!RC4:!IDEA:!SEED:!aDSS:!SRP:!PSK";

/// What handshakes to a server are made with that one of `authorities` vouches for, or, where
/// there is none, one that the system trusts.
///
/// The authorities of the system are read only where they are needed: they take a megabyte, and
/// 20 ms of processor time.
pub(crate) fn context(
    authorities: &[Vec<u8>],
    identity: Option<&ClientIdentity>,
    is_http2: bool,
) -> Result<SslContext, InvalidSettings> {
    let mut builder = SslContextBuilder::new(SslMethod::tls_client())?;
    builder.set_options(SslOptions::NO_COMPRESSION);
    // What an idle connection does not need, it does not keep.
    builder.set_mode(
        SslMode::AUTO_RETRY
            | SslMode::ACCEPT_MOVING_WRITE_BUFFER
            | SslMode::ENABLE_PARTIAL_WRITE
            | SslMode::RELEASE_BUFFERS,
    );
    builder.set_cipher_list(CIPHERS)?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    builder.set_verify(SslVerifyMode::PEER);
    builder.set_read_ahead(true);
    builder.set_alpn_protos(if is_http2 {
        b"\x02h2\x08http/1.1"
    } else {
        b"\x08http/1.1"
    })?;
    trust(&mut builder, authorities)?;
    if let Some(identity) = identity {
        show(&mut builder, identity)?;
    }
    Ok(builder.build())
}

/// One handshake, in which the certificate must be that of `server_name`. An
/// address as name is not sent along.
pub(crate) fn handshake(context: &SslContext, server_name: &str) -> Result<Ssl, ErrorStack> {
    let mut ssl = Ssl::new(context)?;
    let address = server_name.parse::<IpAddr>().ok();
    if address.is_none() {
        ssl.set_hostname(server_name)?;
    }
    let param = ssl.param_mut();
    param.set_hostflags(X509CheckFlags::NO_PARTIAL_WILDCARDS | X509CheckFlags::NEVER_CHECK_SUBJECT);
    match address {
        Some(address) => param.set_ip(address)?,
        None => param.set_host(server_name)?,
    }
    Ok(ssl)
}

fn trust(builder: &mut SslContextBuilder, bundles: &[Vec<u8>]) -> Result<(), InvalidSettings> {
    if bundles.is_empty() {
        return Ok(trust_system(builder)?);
    }
    let mut store = X509StoreBuilder::new()?;
    for bundle in bundles {
        for certificate in certificates(bundle).ok_or(InvalidSettings::Authorities)? {
            store.add_cert(certificate)?;
        }
    }
    store.set_flags(X509VerifyFlags::PARTIAL_CHAIN)?;
    builder.set_cert_store(store.build());
    Ok(())
}

/// Trusts whom the system trusts: as `SSL_CERT_FILE` and `SSL_CERT_DIR` say, or else where
/// systems have them.
///
/// # Errors
///
/// The file cannot be read.
pub fn trust_system(builder: &mut SslContextBuilder) -> Result<(), ErrorStack> {
    builder.set_default_verify_paths()?;
    if std::env::var_os("SSL_CERT_FILE").is_some() || std::env::var_os("SSL_CERT_DIR").is_some() {
        return Ok(());
    }
    match SYSTEM_BUNDLES.iter().find(|file| Path::new(file).is_file()) {
        Some(file) => builder.set_ca_file(file),
        None => Ok(()),
    }
}

fn show(builder: &mut SslContextBuilder, identity: &ClientIdentity) -> Result<(), InvalidSettings> {
    let mut chain = certificates(&identity.certificate)
        .ok_or(InvalidSettings::Certificate)?
        .into_iter();
    let certificate = chain.next().ok_or(InvalidSettings::Certificate)?;
    let key = private_key(identity.key.reveal()).ok_or(InvalidSettings::Key)?;
    if !certificate
        .public_key()
        .is_ok_and(|public| public.public_eq(&key))
    {
        return Err(InvalidSettings::Mismatch);
    }
    builder.set_certificate(&certificate)?;
    for intermediate in chain {
        builder.add_extra_chain_cert(intermediate)?;
    }
    builder.set_private_key(&key)?;
    Ok(())
}

/// At least one.
fn certificates(pem: &[u8]) -> Option<Vec<X509>> {
    X509::stack_from_pem(pem)
        .ok()
        .filter(|certificates| !certificates.is_empty())
}

fn private_key(pem: &[u8]) -> Option<PKey<Private>> {
    // Without a callback OpenSSL would ask the terminal for a passphrase.
    PKey::private_key_from_pem_callback(pem, |_| Err(ErrorStack::get())).ok()
}
