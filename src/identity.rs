//! Authentication of callers: client certificates, tokens, JWTs, passwords, and tokens in the path.
//!
//! ```text
//!  connection                request
//!  PeerCertificate           Authorization: Bearer … | Basic …
//!      |  verified once          |  looked up by keyed digest
//!      v                         v
//!  proofs: this credential satisfies that field of that entry of `callers`
//!      '-----------.-------------'
//!                  v   in the order certificate, bearer, basic:
//!               Caller  the first proof that identifies one decides
//! ```
//!
//! A service account token that is bound to a webhook configuration (`webhook_token`) states which
//! calls it is for. The server compares that with the request and with the webhook configurations
//! of the cluster.
//!
//! A token in the path (`path_token`) is for API servers that cannot be given a credential. A
//! request with a path token is authenticated by that token alone; its other credentials are
//! ignored.
//!
//! An [`Authenticator`] is immutable. It is replaced when the configuration or one of its
//! [`files`](Authenticator::files) changes. Credentials that were replaced are accepted for another
//! ten minutes. Every request is checked by the current authenticator, on existing connections too.

mod build;
mod caller;
mod certificate;
pub mod certificates;
mod jwks;
mod jwt;
mod path_token;
mod rotation;
pub mod tls;
mod webhook_token;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use openssl::hash::MessageDigest;
use openssl::x509::{X509NameRef, X509Ref};

use crate::config::ClientCertificate;
use caller::{CallerMatch, CompiledCaller, CredentialFields, Proof};
use certificate::{CertificateNames, CertificateVerdict, ClientCa, ValidityWindow};
use jwt::AuthorizationHeader;
use rotation::{Digest, Digester, Purpose};

pub use caller::{AuthenticationMethod, Caller, CredentialFault, PATH_TOKEN_NAME, Refusal, TokenFault};
pub use certificate::PeerCertificate;
pub use webhook_token::Attestation;

/// What each credential, by its keyed digest, proves.
type ProofTable = HashMap<Digest, Vec<Proof>>;

/// Authenticates the callers of one configuration.
#[derive(Clone)]
pub struct Authenticator {
    /// A number that is unique in this process: a [`PeerCertificate`] caches its verdict with it.
    generation: u64,
    entries: Vec<CompiledCaller>,
    /// Whether an entry requires more than one credential.
    has_multi_credential_entries: bool,
    /// The entries with `clientCertificate`, by their position in `entries`.
    certificate_patterns: Vec<(usize, ClientCertificate)>,
    digester: Digester,
    client_ca: ClientCa,
    certificates: ProofTable,
    tokens: ProofTable,
    passwords: ProofTable,
    path_tokens: ProofTable,
    jwts: jwt::Tokens,
    users: rotation::Users,
    challenge: String,
    files: BTreeSet<PathBuf>,
    shares: BTreeSet<Arc<str>>,
}

/// The credentials of a request.
#[derive(Clone, Copy, Default)]
pub struct Credentials<'r> {
    /// The client certificate of the connection.
    pub peer: Option<&'r PeerCertificate>,
    /// The value of the header `Authorization`. `None` if a request has several of them.
    pub authorization: Option<&'r [u8]>,
    /// The token in the path of the request: if there is one, no other credential counts.
    pub path_token: Option<&'r [u8]>,
    /// The path of the request, as it was received.
    pub path: &'r str,
    /// The caller of the last token of the same connection, with the same certificate.
    pub recent: Option<&'r RecentToken>,
}

/// The caller of the last token of a connection. Nearly every connection sends the same token with each request,
/// which then writes to no reference count that other connections write to, too.
#[derive(Debug, Default)]
pub struct RecentToken(RefCell<Option<TokenVerdict>>);

/// The result of one authenticator for a token.
#[derive(Debug)]
struct TokenVerdict {
    /// The generation of the authenticator.
    generation: u64,
    digest: Digest,
    /// The period for which the result is valid.
    window: ValidityWindow,
    caller: Arc<Caller>,
}

/// How long the verdict that a certificate is not trusted is cached.
const UNTRUSTED_CACHE_TIME: Duration = Duration::from_secs(1);

/// The identity that credentials claim, which is not verified. Absent fields are not in the
/// credentials.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ClaimedIdentity {
    /// The subject of the certificate, or the `sub` of the token.
    pub subject: Option<String>,
    /// The issuer that the certificate or the token names.
    pub issuer: Option<String>,
    /// SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` prints it.
    pub fingerprint: Option<String>,
}

/// The most bytes of each field.
const MAX_TEXT_BYTES: usize = 256;

// === impl Authenticator ===

impl Authenticator {
    /// Every file that was read, or would be read if it existed. If one changes, a new
    /// authenticator has to be built.
    #[must_use]
    pub const fn files(&self) -> &BTreeSet<PathBuf> {
        &self.files
    }

    /// The [shares](Caller::share) of all callers.
    #[must_use]
    pub const fn shares(&self) -> &BTreeSet<Arc<str>> {
        &self.shares
    }

    /// The value of `WWW-Authenticate` for a 401.
    #[must_use]
    pub fn challenge(&self) -> &str {
        &self.challenge
    }

    /// Whether `peer` chains to the client CA, expired or not: the client has the key of a
    /// certificate that the CA signed. Whether it is a caller is checked for each request.
    #[must_use]
    pub fn is_signed_by_client_ca(&self, peer: &PeerCertificate, now: SystemTime) -> bool {
        self.verdict_of(peer, now).is_of_ca
    }

    /// The cluster of the caller that `peer` identifies without any other credential.
    #[must_use]
    pub fn cluster_of(&self, peer: &PeerCertificate, now: SystemTime) -> Option<Arc<str>> {
        let judgement = self.verdict_of(peer, now);
        let caller = judgement.alone.as_ref()?.as_ref().ok()?;
        Some(Arc::clone(&caller.cluster))
    }

    /// Whether every caller authenticates with a certificate at `now`. Replaced credentials count
    /// as long as they are accepted.
    #[must_use]
    pub fn demands_certificate(&self, now: SystemTime) -> bool {
        let is_accepted = |proof: &Proof| proof.until.is_none_or(|until| now <= until);
        let accepts = |table: &ProofTable| table.values().flatten().any(is_accepted);
        !self.client_ca.is_empty()
            && self.jwts.is_empty()
            && self.path_tokens.is_empty()
            && !accepts(&self.tokens)
            && !accepts(&self.passwords)
    }

    /// Returns the caller that these `credentials` identify. A caller's
    /// [attestation](Caller::attestation) is not compared with the request: see
    /// [`Snapshot::authenticate`](crate::state::Snapshot::authenticate).
    ///
    /// # Errors
    ///
    /// The credentials identify no caller, or callers of several clusters.
    pub fn authenticate(
        &self,
        credentials: &Credentials<'_>,
        now: SystemTime,
    ) -> Result<Arc<Caller>, Refusal> {
        if let Some(peer) = credentials.peer
            && credentials.authorization.is_none()
            && credentials.path_token.is_none()
            && let Some(outcome) = peer.cached_caller(self.generation, now)
        {
            return outcome;
        }
        let digested = |recent| Some((recent, self.digest_of(credentials)?));
        let Some((recent, digest)) = credentials.recent.and_then(digested) else {
            return self.find_caller(credentials, now).0;
        };
        if let Some(caller) = recent.caller(self.generation, digest, now) {
            return Ok(caller);
        }
        let (outcome, window) = self.find_caller(credentials, now);
        recent.0.replace(outcome.as_ref().ok().map(|caller| TokenVerdict {
            generation: self.generation,
            digest,
            window,
            caller: Arc::clone(caller),
        }));
        outcome
    }

    /// The digest of the token or password.
    fn digest_of(&self, credentials: &Credentials<'_>) -> Option<Digest> {
        if let Some(token) = credentials.path_token {
            return Some(self.digester.digest(Purpose::PathToken, token));
        }
        Some(match jwt::parse(credentials.authorization?).ok()? {
            AuthorizationHeader::Bearer(token) => self.digester.digest(Purpose::Token, token),
            AuthorizationHeader::Basic(pair) => self.digester.digest(Purpose::Basic, &pair),
        })
    }

    /// The caller with these `credentials`, and the period for which that is valid.
    fn find_caller(
        &self,
        credentials: &Credentials<'_>,
        now: SystemTime,
    ) -> (Result<Arc<Caller>, Refusal>, ValidityWindow) {
        if let Some(token) = credentials.path_token {
            return self.by_path_token(token, now);
        }
        let judgement = credentials.peer.map(|peer| self.verdict_of(peer, now));
        let certified_window = judgement
            .as_ref()
            .map_or_else(ValidityWindow::always, |judgement| judgement.window);
        if let Some(judgement) = &judgement
            && (credentials.authorization.is_none() || !self.has_multi_credential_entries)
            && let Some(outcome) = &judgement.alone
        {
            return (outcome.clone(), certified_window);
        }
        let certified: &[Proof] = judgement.as_deref().map_or(&[], |judgement| &judgement.proofs);
        let presented = self.header_proofs(credentials.authorization, now);
        let window = certified_window
            .intersect(presented.window)
            .intersect(ValidityWindow::of_proofs(&presented.proofs, now));
        let mut incomplete = false;
        for (proofs, others) in [(certified, &*presented.proofs), (&*presented.proofs, certified)] {
            match caller::match_caller(&self.entries, proofs, others, now) {
                CallerMatch::Caller(outcome) => return (outcome.map(Arc::new), window),
                CallerMatch::Incomplete => incomplete = true,
                CallerMatch::Nobody => {}
            }
        }
        let refusal = refusal(&presented, judgement.as_deref(), incomplete);
        (Err(refusal), window)
    }

    /// The proofs from the header `Authorization`.
    fn header_proofs(&self, header: Option<&[u8]>, now: SystemTime) -> HeaderProofs<'_> {
        match jwt::parse(header.unwrap_or_default()) {
            Ok(AuthorizationHeader::Bearer(token)) => self.bearer(token, now),
            Ok(AuthorizationHeader::Basic(pair)) => {
                let digest = self.digester.digest(Purpose::Basic, &pair);
                HeaderProofs::known(AuthenticationMethod::Basic, self.passwords.get(&digest))
            }
            Err((method, cause)) => HeaderProofs {
                method,
                cause,
                proofs: Cow::Borrowed(&[]),
                window: ValidityWindow::always(),
            },
        }
    }

    /// The proofs from a bearer token: as a token of a kubeconfig, and as a JWT.
    fn bearer(&self, token: &[u8], now: SystemTime) -> HeaderProofs<'_> {
        let digest = self.digester.digest(Purpose::Token, token);
        let mut presented = HeaderProofs::known(AuthenticationMethod::Bearer, self.tokens.get(&digest));
        if let Some(checked) = self.jwts.check(token, digest, now) {
            presented.window = checked.window;
            if checked.proofs.is_empty() {
                presented.cause = CredentialFault::Token(checked.fault);
                presented.method = AuthenticationMethod::Jwt;
            } else {
                presented.proofs.to_mut().extend_from_slice(&checked.proofs);
            }
        }
        presented
    }

    /// The verdict on `peer` at `now`, cached on the connection.
    fn verdict_of(&self, peer: &PeerCertificate, now: SystemTime) -> Arc<CertificateVerdict> {
        if let Some(judgement) = peer.cached_verdict(self.generation, now) {
            return judgement;
        }
        let judgement = Arc::new(self.verify(peer, now));
        peer.judgement.store(Some(judgement.clone()));
        judgement
    }

    fn verify(&self, peer: &PeerCertificate, now: SystemTime) -> CertificateVerdict {
        let generation = self.generation;
        let Ok(window) = self.client_ca.verify(&peer.leaf, &peer.intermediates, now) else {
            return self.untrusted_verdict(peer, now);
        };
        let proofs = self.certified(peer);
        let window = ValidityWindow {
            until: window.until.min(ValidityWindow::of_proofs(&proofs, now).until),
            ..window
        };
        let alone = match caller::match_caller(&self.entries, &proofs, &[], now) {
            CallerMatch::Caller(outcome) => Some(outcome.map(Arc::new)),
            CallerMatch::Incomplete | CallerMatch::Nobody => None,
        };
        CertificateVerdict {
            generation,
            window,
            is_of_ca: true,
            distrust: None,
            proofs,
            alone,
        }
    }

    /// The verdict on a certificate that is not valid at `now`.
    fn untrusted_verdict(&self, peer: &PeerCertificate, now: SystemTime) -> CertificateVerdict {
        let once = self.client_ca.verify_timeless(&peer.leaf, &peer.intermediates);
        let expired = once.filter(|window| window.until < now);
        CertificateVerdict {
            generation: self.generation,
            window: ValidityWindow {
                from: now,
                until: now + UNTRUSTED_CACHE_TIME,
            },
            is_of_ca: once.is_some(),
            distrust: Some(expired.map_or(CredentialFault::Untrusted, |window| {
                CredentialFault::Expired(window.until)
            })),
            proofs: Vec::new(),
            alone: None,
        }
    }

    /// The proofs from a trusted certificate: by the certificate itself, and by the names in it.
    fn certified(&self, peer: &PeerCertificate) -> Vec<Proof> {
        let digest = peer
            .leaf
            .to_der()
            .map(|der| self.digester.digest(Purpose::Certificate, &der));
        let known = digest.ok().and_then(|digest| self.certificates.get(&digest));
        let mut proofs = known.cloned().unwrap_or_default();
        let names = CertificateNames::of(&peer.leaf);
        for (position, _) in self
            .certificate_patterns
            .iter()
            .filter(|(_, wanted)| names.matches(wanted))
        {
            proofs.push(Proof {
                entry: *position,
                field: CredentialFields::CLIENT_CERTIFICATE,
                name: names.display(),
                method: AuthenticationMethod::Certificate,
                until: None,
                attestation: None,
            });
        }
        proofs
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator")
            .field("generation", &self.generation)
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("peer", &self.peer.is_some())
            .field("authorization", &self.authorization.map(|_| "[redacted]"))
            .field("path_token", &self.path_token.map(|_| "[redacted]"))
            .field("path", &"[redacted]")
            .finish()
    }
}

/// The proofs from the header of a request, or why there are none.
struct HeaderProofs<'a> {
    method: AuthenticationMethod,
    cause: CredentialFault,
    proofs: Cow<'a, [Proof]>,
    /// The period for which this is valid, unless one of the proofs expires before.
    window: ValidityWindow,
}

// === impl HeaderProofs ===

impl<'a> HeaderProofs<'a> {
    fn known(method: AuthenticationMethod, proofs: Option<&'a Vec<Proof>>) -> Self {
        Self {
            method,
            cause: CredentialFault::Unknown,
            proofs: Cow::Borrowed(proofs.map_or(&[], Vec::as_slice)),
            window: ValidityWindow::always(),
        }
    }
}

fn refusal(
    presented: &HeaderProofs<'_>,
    judgement: Option<&CertificateVerdict>,
    incomplete: bool,
) -> Refusal {
    let (method, cause) = match (presented.cause, judgement) {
        (CredentialFault::Absent, Some(judgement)) => {
            let cause = judgement.distrust.unwrap_or(CredentialFault::Unknown);
            (AuthenticationMethod::Certificate, cause)
        }
        (cause, _) => (presented.method, cause),
    };
    Refusal::Unauthenticated {
        method,
        cause: if incomplete {
            CredentialFault::Incomplete
        } else {
            cause
        },
    }
}

// === impl RecentToken ===

impl RecentToken {
    /// The caller of this token according to the authenticator of this generation, if that is cached and valid at
    /// `now`.
    fn caller(&self, generation: u64, digest: Digest, now: SystemTime) -> Option<Arc<Caller>> {
        let recent = self.0.borrow();
        let verdict = recent.as_ref()?;
        let holds =
            verdict.generation == generation && verdict.window.contains(now) && verdict.digest == digest;
        holds.then(|| Arc::clone(&verdict.caller))
    }
}

// === impl Credentials ===

impl Credentials<'_> {
    /// The identity that the token in the header claims, or else the certificate. The token is
    /// preferred because it is checked last.
    #[must_use]
    pub fn claimed(&self) -> ClaimedIdentity {
        match (self.authorization.map(jwt::claimed), self.peer) {
            (None | Some(None), Some(peer)) => of_certificate(&peer.leaf),
            (Some(Some((issuer, subject))), _) => ClaimedIdentity {
                subject: subject.map(cut),
                issuer: Some(cut(issuer)),
                fingerprint: None,
            },
            _ => ClaimedIdentity::default(),
        }
    }
}

fn of_certificate(certificate: &X509Ref) -> ClaimedIdentity {
    let digest = certificate.digest(MessageDigest::sha256()).ok();
    let hexadecimal = |digest: &[u8]| {
        let bytes: Vec<_> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
        bytes.join(":")
    };
    ClaimedIdentity {
        subject: Some(cut(name(certificate.subject_name()))),
        issuer: Some(cut(name(certificate.issuer_name()))),
        fingerprint: digest.map(|digest| hexadecimal(&digest)),
    }
}

/// The name as `openssl x509 -subject` prints it: `O = apiservers, CN = kube-apiserver`.
fn name(name: &X509NameRef) -> String {
    let mut text = String::new();
    for entry in name.entries() {
        if text.len() > MAX_TEXT_BYTES {
            break;
        }
        let field = entry.object().nid().short_name().unwrap_or("?");
        let value = entry.data().to_string().unwrap_or_default();
        let comma = if text.is_empty() { "" } else { ", " };
        text.push_str(&format!("{comma}{field} = {value}"));
    }
    text
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests;
