//! Client certificates: verification, and the caller that they identify.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::stack::Stack;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::verify::{X509VerifyFlags, X509VerifyParam};
use openssl::x509::{GeneralNameRef, X509, X509NameRef, X509PurposeId, X509Ref, X509StoreContext};

use super::caller::{Caller, CredentialFault, Proof, Refusal};
use crate::config::ClientCertificate;
use crate::identity::certificates::system_time;

/// The certificate that a client sent in the handshake.
///
/// It is created once for each connection. An [`Authenticator`](super::Authenticator) verifies it
/// at the first request and caches the verdict here, until time or a new authenticator makes it
/// invalid; in between a request costs two comparisons.
#[derive(Debug)]
pub struct PeerCertificate {
    pub(crate) leaf: X509,
    pub(crate) intermediates: Vec<X509>,
    pub(crate) judgement: ArcSwapOption<CertificateVerdict>,
}

/// The verdict of one authenticator on a certificate.
#[derive(Debug)]
pub(crate) struct CertificateVerdict {
    /// The generation of the authenticator.
    pub(crate) generation: u64,
    /// The time for which the verdict is valid.
    pub(crate) window: ValidityWindow,
    /// Whether the certificate chains to the client CA, expired or not.
    pub(crate) is_of_ca: bool,
    /// Why the certificate proves nothing; `None` if it is trusted.
    pub(crate) distrust: Option<CredentialFault>,
    /// The proofs from the certificate.
    pub(crate) proofs: Vec<Proof>,
    /// The caller that the certificate identifies without any other credential.
    pub(crate) alone: Option<Result<Arc<Caller>, Refusal>>,
}

/// A period, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValidityWindow {
    pub(crate) from: SystemTime,
    pub(crate) until: SystemTime,
}

/// The CAs of client certificates.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientCa(Vec<X509>);

/// The names of the holder of a certificate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateNames {
    common_name: Option<String>,
    organizations: Vec<String>,
    dns: Vec<String>,
    uris: Vec<String>,
    emails: Vec<String>,
    /// 4 or 16 bytes each.
    addresses: Vec<Vec<u8>>,
}

/// OpenSSL's security level 2, of 112 bits: no RSA keys of fewer than 2048 bits, and no SHA-1
/// signatures. It is the level of OpenSSL's handshakes, in which this module verifies instead.
const SECURITY_LEVEL: i32 = 2;

/// A client may send any number of certificates; longer chains are not built.
const MAX_INTERMEDIATES: usize = 10;

// === impl PeerCertificate ===

impl PeerCertificate {
    /// The certificate of the client and the others that it sent. They are verified when a request
    /// is authenticated.
    #[must_use]
    pub fn new(leaf: X509, intermediates: impl IntoIterator<Item = X509>) -> Self {
        let intermediates = intermediates.into_iter().take(MAX_INTERMEDIATES).collect();
        Self {
            leaf,
            intermediates,
            judgement: ArcSwapOption::empty(),
        }
    }

    /// The caller that the certificate identifies without any other credential, if the cached
    /// verdict is that of `generation` and valid at `now`.
    pub(crate) fn cached_caller(
        &self,
        generation: u64,
        now: SystemTime,
    ) -> Option<Result<Arc<Caller>, Refusal>> {
        let judgement = self.judgement.load();
        let judgement = judgement.as_ref()?;
        if judgement.generation != generation || !judgement.window.contains(now) {
            return None;
        }
        judgement.alone.clone()
    }

    /// The cached verdict, if it is that of `generation` and valid at `now`.
    pub(crate) fn cached_verdict(&self, generation: u64, now: SystemTime) -> Option<Arc<CertificateVerdict>> {
        let judgement = self.judgement.load_full()?;
        (judgement.generation == generation && judgement.window.contains(now)).then_some(judgement)
    }
}

// === impl ValidityWindow ===

impl ValidityWindow {
    /// Practically forever: from 1970 into the 26th century.
    pub(crate) fn always() -> Self {
        Self {
            from: UNIX_EPOCH,
            until: UNIX_EPOCH + Duration::from_secs(1 << 34),
        }
    }

    /// From `now` until the first of the valid `proofs` expires.
    pub(crate) fn of_proofs(proofs: &[Proof], now: SystemTime) -> Self {
        let counting = proofs.iter().filter(|proof| proof.counts(now));
        let end = counting.filter_map(|proof| proof.until).min();
        Self {
            from: now,
            until: end.unwrap_or(Self::always().until),
        }
    }

    pub(crate) fn contains(self, now: SystemTime) -> bool {
        self.from <= now && now <= self.until
    }

    pub(crate) fn intersect(self, other: Self) -> Self {
        Self {
            from: self.from.max(other.from),
            until: self.until.min(other.until),
        }
    }

    /// The period from `notBefore` to `notAfter`.
    fn of(certificate: &X509Ref) -> Result<Self, ErrorStack> {
        Ok(Self {
            from: system_time(certificate.not_before())?,
            until: system_time(certificate.not_after())?,
        })
    }
}

// === impl ClientCa ===

impl ClientCa {
    /// Reads the certificates of a PEM file.
    pub(crate) fn from_pem(pem: &[u8]) -> Result<Self, ErrorStack> {
        X509::stack_from_pem(pem).map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Verifies a chain from `leaf` over `intermediates` to one of the CAs, and returns the period
    /// for which the chain is valid. Every certificate must be valid `now` and allow client
    /// authentication. A chain may end with any of the CAs, not only with a root, as in Go.
    ///
    /// # Errors
    ///
    /// Why there is no such chain.
    pub(crate) fn verify(
        &self,
        leaf: &X509Ref,
        intermediates: &[X509],
        now: SystemTime,
    ) -> Result<ValidityWindow, String> {
        self.chain(leaf, intermediates, Some(now))
            .unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Like [`verify`](Self::verify), ignoring the validity periods.
    pub(crate) fn verify_timeless(&self, leaf: &X509Ref, intermediates: &[X509]) -> Option<ValidityWindow> {
        let window = self.chain(leaf, intermediates, None);
        window.ok().and_then(Result::ok)
    }

    fn chain(
        &self,
        leaf: &X509Ref,
        intermediates: &[X509],
        now: Option<SystemTime>,
    ) -> Result<Result<ValidityWindow, String>, ErrorStack> {
        let store = self.store(now)?;
        let mut untrusted = Stack::new()?;
        for certificate in intermediates {
            untrusted.push(certificate.clone())?;
        }
        X509StoreContext::new()?.init(&store, leaf, &untrusted, |context| {
            if !context.verify_cert()? {
                return Ok(Err(context.error().error_string().to_owned()));
            }
            let chain = context.chain().into_iter().flatten();
            let first = ValidityWindow::of(leaf)?;
            chain
                .map(ValidityWindow::of)
                .try_fold(first, |all, one| one.map(|one| all.intersect(one)))
                .map(Ok)
        })
    }

    fn store(&self, now: Option<SystemTime>) -> Result<X509Store, ErrorStack> {
        let mut rules = X509VerifyParam::new()?;
        rules.set_flags(X509VerifyFlags::PARTIAL_CHAIN)?;
        rules.set_purpose(X509PurposeId::SSL_CLIENT)?;
        rules.set_auth_level(SECURITY_LEVEL);
        match now {
            Some(now) => {
                let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                rules.set_time(seconds.try_into().unwrap_or(i64::MAX));
            }
            None => rules.set_flags(X509VerifyFlags::NO_CHECK_TIME)?,
        }
        let mut store = X509StoreBuilder::new()?;
        store.set_param(&rules)?;
        for certificate in &self.0 {
            store.add_cert(certificate.clone())?;
        }
        Ok(store.build())
    }
}

// === impl CertificateNames ===

impl CertificateNames {
    /// The names in `certificate`. The last of several common names counts, as in Go. A name that
    /// cannot be decoded counts as absent.
    pub(crate) fn of(certificate: &X509Ref) -> Self {
        let mut names = Self {
            common_name: texts(certificate.subject_name(), Nid::COMMONNAME).pop(),
            organizations: texts(certificate.subject_name(), Nid::ORGANIZATIONNAME),
            ..Self::default()
        };
        for name in certificate.subject_alt_names().iter().flatten() {
            names.add(name);
        }
        names
    }

    fn add(&mut self, name: &GeneralNameRef) {
        if let Some(dns) = name.dnsname() {
            self.dns.push(dns.to_owned());
        } else if let Some(uri) = name.uri() {
            self.uris.push(uri.to_owned());
        } else if let Some(email) = name.email() {
            self.emails.push(email.to_owned());
        } else if let Some(address) = name.ipaddress() {
            self.addresses.push(address.to_owned());
        }
    }

    /// Whether each list in `wanted` is empty or contains one of these names.
    pub(crate) fn matches(&self, wanted: &ClientCertificate) -> bool {
        let common_name = |name: &String| self.common_name.as_ref() == Some(name);
        let organization = |name: &String| self.organizations.contains(name);
        any(&wanted.common_names, common_name)
            && any(&wanted.organizations, organization)
            && any(&wanted.sans, |pattern| {
                self.dns.iter().any(|name| pattern.matches_dns(name))
                    || self.addresses.iter().any(|address| pattern.matches_ip(address))
                    || self.uris.iter().any(|uri| pattern.matches_uri(uri))
                    || self.emails.iter().any(|address| pattern.matches_email(address))
            })
    }

    /// The name for the caller.
    pub(crate) fn display(&self) -> Arc<str> {
        let text = |names: &[String]| names.first().cloned();
        self.common_name
            .clone()
            .or_else(|| text(&self.dns))
            .or_else(|| text(&self.uris))
            .or_else(|| text(&self.emails))
            .or_else(|| self.addresses.first().and_then(|address| ip(address)))
            .unwrap_or_else(|| "certificate".to_owned())
            .into()
    }
}

/// An empty list matches everything.
fn any<T>(wanted: &[T], meets: impl Fn(&T) -> bool) -> bool {
    wanted.is_empty() || wanted.iter().any(meets)
}

fn ip(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or(v6).ok().map(|address| address.to_string())
}

fn texts(name: &X509NameRef, field: Nid) -> Vec<String> {
    name.entries_by_nid(field)
        .filter_map(|entry| entry.data().to_string().ok())
        .collect()
}
