//! TLS contexts for connections to servers: the trusted CAs, and the client certificate.
//!
//! Certificates are verified as in Go: every certificate of a CA bundle is a trust anchor, even an
//! intermediate CA or the server's own certificate. The versions are TLS 1.2 and 1.3.
//!
//! There may be many webhooks, so clients with the same CAs and client certificate share one
//! context, and a bundle that several contexts use is parsed once.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::sha::Sha256;
use openssl::ssl::{
    SslContext, SslContextBuilder, SslFiletype, SslMethod, SslMode, SslOptions, SslVerifyMode, SslVersion,
};
use openssl::x509::X509;
use openssl::x509::store::{X509Lookup, X509Store, X509StoreBuilder};
use openssl::x509::verify::X509VerifyFlags;

use super::reply::SettingsError;
use crate::config::Secret;

/// A client certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate in PEM, followed by its intermediates.
    pub certificate: Vec<u8>,
    /// The key in PEM, not encrypted.
    pub key: Secret,
}

/// A TLS context: the trusted CAs, the client certificate, and the protocols that are offered.
pub(crate) struct ClientContext {
    context: SslContext,
    /// The bundles of trusted CAs, kept so that other contexts can share them.
    _bundles: Vec<Arc<Vec<X509>>>,
}

static CONTEXTS: SharedValues<ClientContext> = SharedValues::new();
static BUNDLES: SharedValues<Vec<X509>> = SharedValues::new();

/// Values created from some bytes, by the digest of the bytes, for as long as they are in use.
struct SharedValues<V>(Mutex<BTreeMap<[u8; 32], Weak<V>>>);

// === impl ClientIdentity ===

impl ClientIdentity {
    /// Checks that the certificate and the key can be used.
    ///
    /// # Errors
    ///
    /// The certificate or the key is invalid, or they do not belong together.
    pub fn check(&self) -> Result<(), SettingsError> {
        show(&mut SslContextBuilder::new(SslMethod::tls_client())?, self)
    }
}

/// The ciphers of TLS 1.2, which are those of `openssl::ssl::SslConnector`.
const CIPHERS: &str = "DEFAULT:!aNULL:!eNULL:!MD5:!3DES:!DES:!RC4:!IDEA:!SEED:!aDSS:!SRP:!PSK";

// === impl ClientContext ===

impl ClientContext {
    /// The context for servers whose certificates are signed by one of `authorities` or, if there
    /// are none, by a CA that the system trusts.
    pub(crate) fn shared(
        authorities: &[Vec<u8>],
        identity: Option<&ClientIdentity>,
        is_http2: bool,
    ) -> Result<Arc<Self>, SettingsError> {
        CONTEXTS.get_or_make(digest(authorities, identity, is_http2), || {
            let bundles = authorities.iter().map(|pem| bundle(pem));
            let bundles = bundles.collect::<Result<Vec<_>, _>>()?;
            let mut builder = builder(is_http2)?;
            builder.set_cert_store(if bundles.is_empty() {
                system_store()?
            } else {
                store(&bundles)?
            });
            if let Some(identity) = identity {
                show(&mut builder, identity)?;
            }
            Ok(Self {
                context: builder.build(),
                _bundles: bundles,
            })
        })
    }

    pub(crate) fn context(&self) -> &SslContext {
        &self.context
    }
}

// === impl SharedValues ===

impl<V> SharedValues<V> {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// The value for `digest` if it is in use, otherwise a new one from `make`.
    fn get_or_make(
        &self,
        digest: [u8; 32],
        make: impl FnOnce() -> Result<V, SettingsError>,
    ) -> Result<Arc<V>, SettingsError> {
        if let Some(known) = self.values().get(&digest).and_then(Weak::upgrade) {
            return Ok(known);
        }
        // The lock is not held meanwhile, because `make` takes time.
        let made = Arc::new(make()?);
        let mut values = self.values();
        values.retain(|_, value| value.strong_count() > 0);
        values.insert(digest, Arc::downgrade(&made));
        Ok(made)
    }

    fn values(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], Weak<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(authorities: &[Vec<u8>], identity: Option<&ClientIdentity>, is_http2: bool) -> [u8; 32] {
    let mut digest = Sha256::new();
    let shown = identity.map(|identity| [identity.certificate.as_slice(), identity.key.reveal()]);
    digest.update(&[u8::from(is_http2), u8::from(identity.is_some())]);
    for part in shown
        .iter()
        .flatten()
        .copied()
        .chain(authorities.iter().map(Vec::as_slice))
    {
        digest.update(&part.len().to_le_bytes());
        digest.update(part);
    }
    digest.finish()
}

fn builder(is_http2: bool) -> Result<SslContextBuilder, ErrorStack> {
    let mut builder = SslContextBuilder::new(SslMethod::tls_client())?;
    builder.set_options(SslOptions::NO_COMPRESSION);
    // With RELEASE_BUFFERS, idle connections keep no buffers.
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
    Ok(builder)
}

fn bundle(pem: &[u8]) -> Result<Arc<Vec<X509>>, SettingsError> {
    BUNDLES.get_or_make(openssl::sha::sha256(pem), || {
        certificates(pem).ok_or(SettingsError::Authorities)
    })
}

fn store(bundles: &[Arc<Vec<X509>>]) -> Result<X509Store, ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    for certificate in bundles.iter().flat_map(|bundle| bundle.iter()) {
        store.add_cert(certificate.clone())?;
    }
    store.set_flags(X509VerifyFlags::PARTIAL_CHAIN)?;
    Ok(store.build())
}

/// The files in which systems keep the trusted CAs, in Go's order (`crypto/x509/root_linux.go`).
/// The default paths of the OpenSSL that is linked into the program exist on no system.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Trusts the CAs that the system trusts: those in `SSL_CERT_FILE` and `SSL_CERT_DIR` or, if
/// neither is set, in the usual file. As in Go, the file is read once.
///
/// # Errors
///
/// The file cannot be read.
pub fn trust_system(builder: &mut SslContextBuilder) -> Result<(), ErrorStack> {
    builder.set_cert_store(system_store()?);
    Ok(())
}

fn system_store() -> Result<X509Store, ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    for certificate in system_certificates()?.iter() {
        store.add_cert(certificate.clone())?;
    }
    if let Some(folders) = variable("SSL_CERT_DIR") {
        // OpenSSL reads certificates from these folders when it needs them, by file name.
        let lookup = store.add_lookup(X509Lookup::hash_dir())?;
        lookup.add_dir(&folders.to_string_lossy(), SslFiletype::PEM)?;
    }
    Ok(store.build())
}

/// The certificates in the system's file. Parsing them takes 15 ms, and they take a megabyte.
fn system_certificates() -> Result<Arc<Vec<X509>>, ErrorStack> {
    static READ: Mutex<Option<Arc<Vec<X509>>>> = Mutex::new(None);
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(certificates) = &*read {
        return Ok(Arc::clone(certificates));
    }
    let certificates = Arc::new(match system_file() {
        Some(file) => certificates_in(&file)?,
        None => Vec::new(),
    });
    *read = Some(Arc::clone(&certificates));
    Ok(certificates)
}

fn system_file() -> Option<PathBuf> {
    if let Some(file) = variable("SSL_CERT_FILE") {
        return Some(file.into());
    }
    if variable("SSL_CERT_DIR").is_some() {
        return None;
    }
    let file = SYSTEM_BUNDLES.into_iter().find(|file| Path::new(file).is_file());
    file.map(PathBuf::from)
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn certificates_in(file: &Path) -> Result<Vec<X509>, ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    let lookup = store.add_lookup(X509Lookup::file())?;
    lookup.load_cert_file(file, SslFiletype::PEM)?;
    Ok(store.build().all_certificates().into_iter().collect())
}

fn show(builder: &mut SslContextBuilder, identity: &ClientIdentity) -> Result<(), SettingsError> {
    let mut chain = certificates(&identity.certificate)
        .ok_or(SettingsError::Certificate)?
        .into_iter();
    let certificate = chain.next().ok_or(SettingsError::Certificate)?;
    let key = private_key(identity.key.reveal()).ok_or(SettingsError::Key)?;
    if !certificate
        .public_key()
        .is_ok_and(|public| public.public_eq(&key))
    {
        return Err(SettingsError::Mismatch);
    }
    builder.set_certificate(&certificate)?;
    for intermediate in chain {
        builder.add_extra_chain_cert(intermediate)?;
    }
    builder.set_private_key(&key)?;
    Ok(())
}

/// Parses certificates in PEM; `None` if any is invalid or there are none.
fn certificates(pem: &[u8]) -> Option<Vec<X509>> {
    X509::stack_from_pem(pem)
        .ok()
        .filter(|certificates| !certificates.is_empty())
}

fn private_key(pem: &[u8]) -> Option<PKey<Private>> {
    // Without a callback, OpenSSL would ask for a passphrase on the terminal.
    PKey::private_key_from_pem_callback(pem, |_| Err(ErrorStack::get())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Authority;
    use crate::webhooks::tests::fixtures::client_identity;

    #[test]
    fn clients_that_trust_and_show_the_same_share_a_context_for_as_long_as_there_is_one() {
        let bundles = [Authority::new("one"), Authority::new("two")].map(|authority| authority.pem());
        let of =
            |authorities: &[Vec<u8>], is_http2| ClientContext::shared(authorities, None, is_http2).unwrap();
        let first = of(&bundles[..1], false);
        assert!(Arc::ptr_eq(&first, &of(&bundles[..1], false)));
        assert!(!Arc::ptr_eq(&first, &of(&bundles[..1], true)));
        assert!(!Arc::ptr_eq(&first, &of(&bundles[1..], false)));
        let both = of(&bundles, false);
        assert!(!Arc::ptr_eq(&first, &both));
        assert!(Arc::ptr_eq(&first._bundles[0], &both._bundles[0]));
        let gone = Arc::downgrade(&first);
        drop(first);
        assert!(gone.upgrade().is_none());
    }

    #[test]
    fn another_certificate_is_shown_with_another_context() {
        let authority = Authority::new("ca");
        let shown = ["jane", "joe"].map(|user| client_identity(&authority.client(user, &[])));
        let of = |identity| ClientContext::shared(&[authority.pem()], identity, false).unwrap();
        let contexts = [of(None), of(Some(&shown[0])), of(Some(&shown[1]))];
        assert!(!Arc::ptr_eq(&contexts[0], &contexts[1]) && !Arc::ptr_eq(&contexts[1], &contexts[2]));
        assert!(Arc::ptr_eq(&contexts[1], &of(Some(&shown[0]))));
    }

    #[test]
    fn the_authorities_of_the_system_are_read_once() {
        let shared = |is_http2| ClientContext::shared(&[], None, is_http2).unwrap();
        assert!(Arc::ptr_eq(&shared(false), &shared(false)));
        let read = || system_certificates().unwrap();
        assert!(Arc::ptr_eq(&read(), &read()));
        let (first, second) = (shared(false), shared(true));
        let trusted = |of: &ClientContext| of.context().cert_store().all_certificates().len();
        assert_eq!(trusted(&first), read().len());
        assert_eq!(trusted(&second), read().len());
    }
}
