//! The Secret of gateways whose API server's flags cannot be set: the certificate that API servers
//! verify, and the token in the path by which the gateways authenticate API servers.
//!
//! ```text
//!             ca.crt      server.crt   path-token   next.crt, next.key
//! Settled     A           of A         a
//! Prepared    A, B        of A         a, b         of B                 pods and API servers learn B and b
//! Switched    A, B        of B         b, a                              B and b are in use
//! Settled     B           of B         b
//! ```
//!
//! Gateways accept all tokens in the file, and API servers trust all certificates in `ca.crt`.
//! Webhook configurations contain the first token. So no request is lost, in whatever order pods
//! and API servers read the changes, if all have read those of one phase before the next begins.
//!
//! The key of a CA signs one certificate and is not kept: those who read the Secret can impersonate
//! the gateway until the next rotation, but cannot issue certificates.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::rand::rand_bytes;
use openssl::stack::Stack;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::{X509VerifyFlags, X509VerifyParam};
use openssl::x509::{X509, X509PurposeId, X509StoreContext};
use serde_json::{Map, Value, json};

use crate::cli::init::{Authority, Host, Pair, SERVER_NAME, Usage, hosts_of};
use crate::config::hexadecimal;
use portcullis_policy::model::Time;

const AUTHORITIES: &str = "ca.crt";
const CERTIFICATE: &str = "server.crt";
const KEY: &str = "server.key";
const TOKENS: &str = "path-token";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";

/// The annotations with the phase and its start.
const PHASE: &str = "portcullis.dev/rotation";
const CHANGED: &str = "portcullis.dev/changed";

/// Two thirds of the validity of a certificate.
const RENEW_AFTER: Duration = Duration::from_secs(243 * 24 * 60 * 60);

/// How far the start of the phase may be in the future. A time far in the future would prevent all
/// rotations, so it is ignored.
const MAX_AHEAD: Duration = Duration::from_secs(24 * 60 * 60);

const TOKEN_BYTES: usize = 32;

/// The phase of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RotationPhase {
    /// One certificate and one token are in use.
    Settled,
    /// The next certificate and token are trusted and accepted.
    Prepared,
    /// The next ones are in use; the previous ones are still trusted and accepted.
    Switched,
}

/// The content of the Secret.
#[derive(Clone)]
pub(crate) struct WebhookCredentials {
    phase: RotationPhase,
    changed: Option<Time>,
    /// The token of the webhook configurations comes first.
    tokens: Vec<String>,
    /// `None` if another program makes the certificates.
    certificates: Option<ServingCertificates>,
}

#[derive(Clone)]
struct ServingCertificates {
    /// The trusted CAs, as PEM.
    trusted: Vec<u8>,
    server: Pair,
    next: Option<Pair>,
}

/// The parameters of a rotation.
pub(crate) struct RotationRules<'a> {
    /// The names by which API servers reach the gateway; if empty, another program makes the
    /// certificate.
    pub(crate) hosts: &'a [Host],
    pub(crate) now: SystemTime,
    /// The minimum duration of a phase, in which all pods and API servers read the changes.
    pub(crate) propagation: Duration,
    /// Older certificates and tokens are replaced.
    pub(crate) renew_before: Option<Time>,
}

// === impl RotationPhase ===

impl RotationPhase {
    const ALL: [Self; 3] = [Self::Settled, Self::Prepared, Self::Switched];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "Settled",
            Self::Prepared => "Prepared",
            Self::Switched => "Switched",
        }
    }
}

// === impl WebhookCredentials ===

impl WebhookCredentials {
    /// Reads `secret`. Invalid values count as missing.
    pub(crate) fn read(secret: &Value) -> Self {
        let annotation = |name: &str| secret.pointer("/metadata/annotations")?.get(name)?.as_str();
        let data = |name: &str| STANDARD.decode(secret.get("data")?.get(name)?.as_str()?).ok();
        let pair = |certificate: &str, key: &str| {
            Some(Pair {
                certificate: data(certificate)?,
                key: data(key)?,
            })
        };
        let certificates = || {
            Some(ServingCertificates {
                trusted: data(AUTHORITIES)?,
                server: pair(CERTIFICATE, KEY)?,
                next: pair(NEXT_CERTIFICATE, NEXT_KEY),
            })
        };
        let tokens = data(TOKENS).unwrap_or_default();
        let tokens = String::from_utf8_lossy(&tokens);
        let phase = RotationPhase::ALL
            .into_iter()
            .find(|phase| annotation(PHASE) == Some(phase.as_str()));
        Self {
            phase: phase.unwrap_or(RotationPhase::Settled),
            changed: annotation(CHANGED).and_then(Time::parse),
            tokens: tokens
                .lines()
                .map(str::trim)
                .filter(|line| is_token(line))
                .map(str::to_owned)
                .collect(),
            certificates: certificates(),
        }
    }

    /// The object to apply to `secret`. It has the same resource version, so that the API server
    /// rejects it if the Secret has changed.
    pub(crate) fn object(&self, secret: &Value) -> Value {
        let mut data = Map::new();
        let mut put = |name: &str, bytes: &[u8]| {
            data.insert(name.to_owned(), json!(STANDARD.encode(bytes)));
        };
        put(TOKENS, format!("{}\n", self.tokens.join("\n")).as_bytes());
        if let Some(certificates) = &self.certificates {
            put(AUTHORITIES, &certificates.trusted);
            put(CERTIFICATE, &certificates.server.certificate);
            put(KEY, &certificates.server.key);
            if let Some(next) = &certificates.next {
                put(NEXT_CERTIFICATE, &next.certificate);
                put(NEXT_KEY, &next.key);
            }
        }
        let metadata = |name: &str| {
            secret
                .pointer("/metadata")
                .and_then(|metadata| metadata.get(name))
        };
        let changed = self.changed.map(|changed| changed.to_string());
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": metadata("name"),
                "namespace": metadata("namespace"),
                "resourceVersion": metadata("resourceVersion"),
                "annotations": {PHASE: self.phase.as_str(), CHANGED: changed},
            },
            "data": data,
        })
    }

    pub(crate) const fn phase(&self) -> RotationPhase {
        self.phase
    }

    /// The token for webhook configurations.
    pub(crate) fn token(&self) -> Option<&str> {
        self.tokens.first().map(String::as_str)
    }

    /// The CAs for webhook configurations.
    pub(crate) fn authorities(&self) -> Option<&[u8]> {
        self.certificates
            .as_ref()
            .map(|certificates| certificates.trusted.as_slice())
    }

    /// Why API servers would reject the certificates.
    pub(crate) fn faults(&self, rules: &RotationRules<'_>) -> Vec<String> {
        let certificates = self.certificates.iter().filter(|_| !rules.hosts.is_empty());
        certificates
            .flat_map(|certificates| [certificates.fault(rules), certificates.fault_of_next(rules)])
            .flatten()
            .collect()
    }

    /// Replaces what is missing or invalid, without a rotation; `None` if nothing is.
    ///
    /// # Errors
    ///
    /// OpenSSL cannot make a key, signature or random number.
    pub(crate) fn repaired(&self, rules: &RotationRules<'_>) -> Result<Option<Self>, ErrorStack> {
        let mut repaired = self.clone();
        if rules.hosts.is_empty() {
            repaired.certificates = None;
        } else if self
            .certificates
            .as_ref()
            .is_none_or(|known| known.fault(rules).is_some())
        {
            let (trusted, server) = issue(rules)?;
            repaired.certificates = Some(ServingCertificates {
                trusted,
                server,
                next: None,
            });
            repaired.phase = RotationPhase::Settled;
        } else if let Some(certificates) = &mut repaired.certificates
            && certificates.fault_of_next(rules).is_some()
        {
            // The next certificate is not in use yet, so the rotation can start again.
            certificates.next = None;
            repaired.phase = RotationPhase::Settled;
        }
        if self.tokens.is_empty() {
            repaired.tokens = vec![new_token()?];
        }
        repaired.drop_unused();
        let is_same =
            repaired.tokens.len() == self.tokens.len() && repaired.authorities() == self.authorities();
        Ok((!is_same).then(|| repaired.changed_now(rules)))
    }

    /// Removes tokens and CAs that do not belong to the phase. Otherwise, those who once wrote to the
    /// Secret could continue to call the gateways, or to impersonate them.
    fn drop_unused(&mut self) {
        let is_settled = self.phase == RotationPhase::Settled;
        self.tokens.truncate(if is_settled { 1 } else { 2 });
        if let Some(certificates) = self.certificates.as_mut().filter(|_| is_settled) {
            certificates.trust_only_issuer();
        }
    }

    /// Returns the next phase, if it is due.
    ///
    /// # Errors
    ///
    /// As for [`Self::repaired`].
    pub(crate) fn advanced(&self, rules: &RotationRules<'_>) -> Result<Option<Self>, ErrorStack> {
        let mut next = self.clone();
        match self.phase {
            RotationPhase::Settled if self.is_due(rules) => next.prepare(rules)?,
            RotationPhase::Prepared if self.is_older_than(rules.propagation, rules) => next.switch(),
            RotationPhase::Switched if self.is_older_than(rules.propagation, rules) => next.settle(),
            _ => return Ok(None),
        }
        Ok(Some(next.changed_now(rules)))
    }

    fn prepare(&mut self, rules: &RotationRules<'_>) -> Result<(), ErrorStack> {
        self.phase = RotationPhase::Prepared;
        self.tokens.truncate(1);
        self.tokens.push(new_token()?);
        if let Some(certificates) = &mut self.certificates {
            let (authority, server) = issue(rules)?;
            certificates.trusted.extend(authority);
            certificates.next = Some(server);
        }
        Ok(())
    }

    fn switch(&mut self) {
        self.phase = RotationPhase::Switched;
        self.tokens.reverse();
        if let Some(certificates) = &mut self.certificates
            && let Some(next) = certificates.next.take()
        {
            certificates.server = next;
        }
    }

    fn settle(&mut self) {
        self.phase = RotationPhase::Settled;
        self.tokens.truncate(1);
        if let Some(certificates) = &mut self.certificates {
            certificates.trust_only_issuer();
        }
    }

    fn changed_now(mut self, rules: &RotationRules<'_>) -> Self {
        self.changed = Some(rules.now.into());
        self
    }

    fn is_due(&self, rules: &RotationRules<'_>) -> bool {
        let is_to_be_renewed = |before| self.changed.is_none_or(|changed| changed < before);
        rules.renew_before.is_some_and(is_to_be_renewed) || self.is_older_than(RENEW_AFTER, rules)
    }

    fn is_older_than(&self, age: Duration, rules: &RotationRules<'_>) -> bool {
        let Some(latest) = rules.now.checked_sub(age).map(Time::from) else {
            return false;
        };
        let is_ahead = |changed: Time| changed > Time::from(rules.now + MAX_AHEAD);
        self.changed
            .is_none_or(|changed| changed <= latest || is_ahead(changed))
    }
}

// === impl ServingCertificates ===

impl ServingCertificates {
    /// Why a client that trusts these CAs would reject the present certificate for one of the
    /// hosts.
    fn fault(&self, rules: &RotationRules<'_>) -> Option<String> {
        self.fault_of(&self.server, CERTIFICATE, KEY, rules)
    }

    /// Why such a client would reject the next certificate.
    fn fault_of_next(&self, rules: &RotationRules<'_>) -> Option<String> {
        let next = self.next.as_ref()?;
        self.fault_of(next, NEXT_CERTIFICATE, NEXT_KEY, rules)
    }

    fn fault_of(
        &self,
        pair: &Pair,
        certificate_name: &str,
        key_name: &str,
        rules: &RotationRules<'_>,
    ) -> Option<String> {
        let Ok(certificate) = X509::from_pem(&pair.certificate) else {
            return Some(format!("`{certificate_name}` is not a certificate in PEM"));
        };
        let hosts = hosts_of(&pair.certificate).unwrap_or_default();
        if let Some(host) = rules.hosts.iter().find(|host| !hosts.contains(host)) {
            return Some(format!("`{certificate_name}` is not for `{host}`"));
        }
        let is_its_key = |key: PKey<_>| {
            let public = certificate.public_key();
            public.is_ok_and(|public| public.public_eq(&key))
        };
        if !PKey::private_key_from_pem(&pair.key).is_ok_and(is_its_key) {
            return Some(format!("`{key_name}` is not the key of `{certificate_name}`"));
        }
        match self.verify(&certificate, rules.now) {
            Ok(Ok(())) => None,
            Ok(Err(why)) => Some(format!(
                "no CA in `{AUTHORITIES}` verifies `{certificate_name}` in the way of API servers: {why}"
            )),
            Err(error) => Some(format!("`{AUTHORITIES}`: {error}")),
        }
    }

    /// Verifies `certificate` like an API server: the CA must be one (`basicConstraints`,
    /// `keyUsage`) and be valid `now`.
    fn verify(&self, certificate: &X509, now: SystemTime) -> Result<Result<(), String>, ErrorStack> {
        let seconds = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let mut rules = X509VerifyParam::new()?;
        rules.set_flags(X509VerifyFlags::PARTIAL_CHAIN)?;
        rules.set_purpose(X509PurposeId::SSL_SERVER)?;
        rules.set_time(seconds.try_into().unwrap_or(i64::MAX));
        let mut store = X509StoreBuilder::new()?;
        store.set_param(&rules)?;
        for authority in X509::stack_from_pem(&self.trusted)? {
            store.add_cert(authority)?;
        }
        let no_others = Stack::new()?;
        X509StoreContext::new()?.init(&store.build(), certificate, &no_others, |context| {
            let is_verified = context.verify_cert()?;
            Ok(is_verified
                .then_some(())
                .ok_or_else(|| context.error().error_string().to_owned()))
        })
    }

    /// The trusted CA that signed `certificate`.
    fn issuer(&self, certificate: &X509) -> Option<X509> {
        let signed = |authority: &X509| {
            let key = authority.public_key();
            key.is_ok_and(|key| certificate.verify(&key).unwrap_or(false))
        };
        X509::stack_from_pem(&self.trusted).ok()?.into_iter().find(signed)
    }

    fn trust_only_issuer(&mut self) {
        if X509::stack_from_pem(&self.trusted).is_ok_and(|trusted| trusted.len() == 1) {
            return;
        }
        let certificate = X509::from_pem(&self.server.certificate).ok();
        let issuer = certificate.and_then(|certificate| self.issuer(&certificate));
        if let Some(Ok(issuer)) = issuer.map(|issuer| issuer.to_pem()) {
            self.trusted = issuer;
        }
    }
}

/// A new CA, whose key is not kept, and a certificate for the hosts.
fn issue(rules: &RotationRules<'_>) -> Result<(Vec<u8>, Pair), ErrorStack> {
    let now = rules
        .now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let authority = Authority::new(&format!("portcullis-ca-{now}"), now)?;
    let server = authority.issue(SERVER_NAME, &Usage::Server(rules.hosts))?;
    Ok((authority.pair()?.certificate, server))
}

fn new_token() -> Result<String, ErrorStack> {
    let mut bytes = [0; TOKEN_BYTES];
    rand_bytes(&mut bytes)?;
    Ok(hexadecimal(&bytes))
}

/// Whether `text` has the form of [`new_token`].
fn is_token(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 2 * TOKEN_BYTES && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests;
