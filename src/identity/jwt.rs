//! JSON Web Tokens (RFC 7519, RFC 8725): verification and caching.
//!
//! A token is accepted only if all of this holds: its algorithm is one of the entry's, which are
//! all asymmetric; exactly one key of the issuer, from the entry's file or published by the API
//! server, has its `kid` and may be used for that algorithm; the signature is valid for that key;
//! `iss`, `aud`, `exp`, `nbf` and the entry's claims match. Keys or key URLs in the token are
//! ignored.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Header, Validation, decode, decode_header};
use moka::sync::Cache;
use serde::Deserialize;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::caller::{AuthenticationMethod, CredentialFault, CredentialFields, Proof, TokenFault};
use super::certificate::ValidityWindow;
use super::jwks::IssuerKeys;
use super::rotation::Digest;
use super::webhook_token::Attestation;
use crate::config::Jwt;

/// Checks the tokens of all issuers, and caches the results.
#[derive(Debug, Clone)]
pub(crate) struct Tokens {
    issuers: Vec<Issuer>,
    /// The results for tokens that are valid for an entry, and for all others: in separate caches,
    /// so that invalid tokens cannot evict valid ones.
    good: Cache<Digest, Arc<CheckedToken>>,
    bad: Cache<Digest, Arc<CheckedToken>>,
}

/// An entry of the configuration, and the keys of its issuer.
#[derive(Debug, Clone)]
pub(crate) struct Issuer {
    /// The position of the entry.
    pub(crate) entry: usize,
    /// Whether only tokens bound to a webhook configuration are accepted.
    pub(crate) requires_webhook_binding: bool,
    pub(crate) rules: Jwt,
    pub(crate) keys: IssuerKeys,
}

/// The result of checking a token.
#[derive(Debug)]
pub(crate) struct CheckedToken {
    pub(crate) proofs: Vec<Proof>,
    /// The reason if there is no proof.
    pub(crate) fault: TokenFault,
    /// The period for which the result is valid, which lasts at most [`MAX_TOKEN_CACHE_TIME`].
    pub(crate) window: ValidityWindow,
}

/// The claims of a token that an entry accepts, or why it does not, and the period for which that
/// is valid by the token's `nbf` and `exp`.
type ClaimsOutcome = (Result<Map<String, Value>, TokenFault>, ValidityWindow);

/// Longer tokens are rejected without parsing.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// How long the result for a token is cached. A removed key is not accepted any more, because the
/// whole authenticator, and this cache with it, is replaced when the file of keys changes.
const MAX_TOKEN_CACHE_TIME: Duration = Duration::from_secs(10);

/// The capacity of each cache.
const MAX_CACHED_TOKENS: u64 = 1024;

// === impl Tokens ===

impl Tokens {
    pub(crate) fn new(issuers: Vec<Issuer>) -> Self {
        super::jwks::install();
        let cache = || {
            Cache::builder()
                .max_capacity(MAX_CACHED_TOKENS)
                .time_to_live(MAX_TOKEN_CACHE_TIME)
                .build()
        };
        Self {
            issuers,
            good: cache(),
            bad: cache(),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.issuers.is_empty()
    }

    /// The same issuers, with `published` keys for those without a file of keys. The caches start
    /// empty, so that a removed key is not accepted any more.
    pub(crate) fn with_keys(&self, published: impl Fn(&Issuer) -> Option<IssuerKeys>) -> Self {
        let with_keys = |issuer: &Issuer| match issuer.rules.jwks {
            Some(_) => issuer.clone(),
            None => Issuer {
                keys: published(issuer).unwrap_or_default(),
                ..issuer.clone()
            },
        };
        Self::new(self.issuers.iter().map(with_keys).collect())
    }

    /// Checks `token` at `now`. Returns `None` if it does not have the form of a signed token, or
    /// there are no issuers.
    pub(crate) fn check(&self, token: &[u8], digest: Digest, now: SystemTime) -> Option<Arc<CheckedToken>> {
        if self.issuers.is_empty() || token.iter().filter(|byte| **byte == b'.').count() != 2 {
            return None;
        }
        let known = self.good.get(&digest).or_else(|| self.bad.get(&digest));
        if let Some(checked) = known.filter(|checked| checked.window.contains(now)) {
            return Some(checked);
        }
        let checked = Arc::new(self.check_uncached(token, now));
        let cache = if checked.proofs.is_empty() {
            &self.bad
        } else {
            &self.good
        };
        cache.insert(digest, checked.clone());
        Some(checked)
    }

    /// The number of cached results.
    #[cfg(test)]
    pub(crate) fn cached_results(&self) -> u64 {
        self.good.run_pending_tasks();
        self.bad.run_pending_tasks();
        self.good.entry_count() + self.bad.entry_count()
    }

    fn check_uncached(&self, token: &[u8], now: SystemTime) -> CheckedToken {
        let mut window = ValidityWindow {
            from: now,
            until: now + MAX_TOKEN_CACHE_TIME,
        };
        let nothing = |fault| CheckedToken {
            proofs: Vec::new(),
            fault,
            window,
        };
        let (header, issuer) = match unverified(token) {
            Ok(unverified) => unverified,
            Err(fault) => return nothing(fault),
        };
        let mut proofs = Vec::new();
        let mut fault = TokenFault::Issuer;
        for entry in self.issuers.iter().filter(|entry| entry.rules.issuer == issuer) {
            let (outcome, holds) = entry.check(token, &header, now);
            window = window.intersect(holds);
            match outcome.and_then(|claims| entry.proof(&claims)) {
                Ok(proof) => proofs.push(proof),
                Err(why) => fault = why,
            }
        }
        CheckedToken {
            proofs,
            fault,
            window,
        }
    }
}

/// The claims of a token that is not verified: they may be forged.
#[derive(Deserialize)]
struct UnverifiedClaims<'t> {
    #[serde(borrow)]
    iss: Cow<'t, str>,
    /// Used only for the log, so an invalid value is not an error.
    #[serde(default)]
    sub: Value,
}

/// The `iss` and `sub` that the token in the header `Authorization` claims.
pub(crate) fn claimed(header: &[u8]) -> Option<(String, Option<String>)> {
    let Ok(AuthorizationHeader::Bearer(token)) = parse(header) else {
        return None;
    };
    let payload = payload(token).ok()?;
    let claims: UnverifiedClaims<'_> = serde_json::from_slice(&payload).ok()?;
    Some((claims.iss.into_owned(), claims.sub.as_str().map(str::to_owned)))
}

/// The header and the `iss` of a token, without verification.
fn unverified(token: &[u8]) -> Result<(Header, String), TokenFault> {
    let payload = payload(token)?;
    let header = decode_header(token).map_err(|_| TokenFault::Malformed)?;
    if header.crit.is_some() {
        return Err(TokenFault::Critical);
    }
    let claims: UnverifiedClaims<'_> = serde_json::from_slice(&payload).map_err(|_| TokenFault::Malformed)?;
    Ok((header, claims.iss.into_owned()))
}

/// The decoded payload of a token, its second part.
fn payload(token: &[u8]) -> Result<Vec<u8>, TokenFault> {
    if token.len() > MAX_TOKEN_BYTES {
        return Err(TokenFault::Malformed);
    }
    let payload = token.split(|byte| *byte == b'.').nth(1);
    let decoded = payload.and_then(|payload| URL_SAFE_NO_PAD.decode(payload).ok());
    decoded.ok_or(TokenFault::Malformed)
}

// === impl Issuer ===

impl Issuer {
    /// The proof from a token with these claims, whose signature, times and claims were checked.
    fn proof(&self, claims: &Map<String, Value>) -> Result<Proof, TokenFault> {
        let subject = claims
            .get("sub")
            .and_then(Value::as_str)
            .unwrap_or(&self.rules.issuer);
        let (field, method, attestation) = if self.requires_webhook_binding {
            let attestation = Arc::new(Attestation::of(claims).ok_or(TokenFault::Unbound)?);
            (
                CredentialFields::WEBHOOK_TOKEN,
                AuthenticationMethod::WebhookToken,
                Some(attestation),
            )
        } else {
            (CredentialFields::JWT, AuthenticationMethod::Jwt, None)
        };
        Ok(Proof {
            entry: self.entry,
            field,
            name: subject.into(),
            method,
            until: None,
            attestation,
        })
    }

    fn check(&self, token: &[u8], header: &Header, now: SystemTime) -> ClaimsOutcome {
        let claims = match self.verified(token, header) {
            Ok(claims) => claims,
            Err(fault) => return (Err(fault), ValidityWindow::always()),
        };
        let window = match validity(&claims, self.rules.leeway) {
            Ok(window) => window,
            Err(fault) => return (Err(fault), ValidityWindow::always()),
        };
        if now < window.from {
            let before = ValidityWindow {
                until: window.from - Duration::from_nanos(1),
                ..ValidityWindow::always()
            };
            return (Err(TokenFault::NotYetValid), before);
        }
        if now > window.until {
            let after = ValidityWindow {
                from: window.until + Duration::from_nanos(1),
                ..ValidityWindow::always()
            };
            return (Err(TokenFault::Expired), after);
        }
        (self.check_claims(claims), window)
    }

    /// The claims of a token, after verifying its signature, issuer and audience.
    fn verified(&self, token: &[u8], header: &Header) -> Result<Map<String, Value>, TokenFault> {
        let key = self.keys.find(header.kid.as_deref(), header.alg)?;
        let mut rules = Validation::new(header.alg);
        rules.set_issuer(&[&self.rules.issuer]);
        rules.set_audience(&self.rules.audiences);
        rules.set_required_spec_claims(&["exp", "iss", "aud"]);
        // Times are checked by the caller, at the time of the request.
        rules.validate_exp = false;
        rules.validate_nbf = false;
        decode(token, key, &rules)
            .map(|token| token.claims)
            .map_err(|error| match error.kind() {
                ErrorKind::InvalidSignature => TokenFault::Signature,
                ErrorKind::InvalidIssuer => TokenFault::Issuer,
                ErrorKind::InvalidAudience => TokenFault::Audience,
                ErrorKind::MissingRequiredClaim(claim) if claim == "exp" => TokenFault::NoExpiry,
                ErrorKind::MissingRequiredClaim(claim) if claim == "aud" => TokenFault::Audience,
                ErrorKind::MissingRequiredClaim(_) => TokenFault::Issuer,
                _ => TokenFault::Malformed,
            })
    }

    fn check_claims(&self, claims: Map<String, Value>) -> Result<Map<String, Value>, TokenFault> {
        if claims.get("iss").and_then(Value::as_str) != Some(self.rules.issuer.as_str()) {
            return Err(TokenFault::Issuer);
        }
        let mut wanted = self.rules.claims.iter();
        if wanted.all(|(name, wanted)| claims.get(name).is_some_and(|claim| holds(wanted, claim))) {
            return Ok(claims);
        }
        Err(TokenFault::Claims)
    }
}

/// Whether `claim` matches `wanted` by the rules of [`Jwt::claims`].
fn holds(wanted: &Value, claim: &Value) -> bool {
    match wanted {
        Value::Array(values) => values.iter().any(|wanted| holds(wanted, claim)),
        Value::Object(fields) => fields
            .iter()
            .all(|(name, wanted)| claim.get(name).is_some_and(|claim| holds(wanted, claim))),
        scalar => match claim {
            Value::Array(items) => items.contains(scalar),
            other => other == scalar,
        },
    }
}

/// The period from `nbf` to `exp`, extended by the leeway on both sides. A token without `exp` is
/// rejected, because it would be valid forever.
fn validity(claims: &Map<String, Value>, leeway: Duration) -> Result<ValidityWindow, TokenFault> {
    let time = |name| {
        claims
            .get(name)
            .filter(|claim| !claim.is_null())
            .map(numeric_date)
    };
    let until = time("exp")
        .ok_or(TokenFault::NoExpiry)?
        .ok_or(TokenFault::Malformed)?;
    let from = match time("nbf") {
        Some(from) => from.ok_or(TokenFault::Malformed)?,
        None => UNIX_EPOCH,
    };
    let from = from.checked_sub(leeway).unwrap_or(UNIX_EPOCH).max(UNIX_EPOCH);
    Ok(ValidityWindow {
        from,
        until: until.checked_add(leeway).ok_or(TokenFault::Malformed)?,
    })
}

/// Seconds since 1970, possibly with a fraction (RFC 7519, section 2).
fn numeric_date(value: &Value) -> Option<SystemTime> {
    let seconds = Duration::try_from_secs_f64(value.as_f64()?).ok()?;
    UNIX_EPOCH.checked_add(seconds)
}

// Parsing of the request header `Authorization`.

/// The most bytes of a credential. The token of a service account has about 1,500.
pub(crate) const MAX_CREDENTIAL_BYTES: usize = 32 * 1024;

/// The credential in the header.
#[derive(PartialEq, Eq)]
pub(crate) enum AuthorizationHeader<'h> {
    /// A token.
    Bearer(&'h [u8]),
    /// `username:password`.
    Basic(Zeroizing<Vec<u8>>),
}

/// What is wrong with a header, and the method of its credential.
pub(crate) type HeaderError = (AuthenticationMethod, CredentialFault);

/// Parses the value of the header: a scheme, whose case does not matter, and a credential. White
/// space around the two is ignored; within the credential it is an error.
pub(crate) fn parse(header: &[u8]) -> Result<AuthorizationHeader<'_>, HeaderError> {
    let header = header.trim_ascii();
    if header.is_empty() {
        return Err((AuthenticationMethod::None, CredentialFault::Absent));
    }
    let end = header
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(header.len());
    let (scheme, credential) = header.split_at_checked(end).unwrap_or((header, &[]));
    let credential = credential.trim_ascii();
    if scheme.eq_ignore_ascii_case(b"bearer") {
        checked(credential)
            .map(AuthorizationHeader::Bearer)
            .ok_or((AuthenticationMethod::Bearer, CredentialFault::Malformed))
    } else if scheme.eq_ignore_ascii_case(b"basic") {
        basic(credential)
            .map(AuthorizationHeader::Basic)
            .ok_or((AuthenticationMethod::Basic, CredentialFault::Malformed))
    } else {
        Err((AuthenticationMethod::None, CredentialFault::UnsupportedScheme))
    }
}

/// Whether a header can carry `credential` after its scheme.
pub(crate) fn is_credential(credential: &[u8]) -> bool {
    !credential.is_empty()
        && credential.len() <= MAX_CREDENTIAL_BYTES
        && !credential
            .iter()
            .any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control())
}

fn checked(credential: &[u8]) -> Option<&[u8]> {
    is_credential(credential).then_some(credential)
}

fn basic(credential: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let decoded = Zeroizing::new(STANDARD.decode(checked(credential)?).ok()?);
    decoded.contains(&b':').then_some(decoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The parsed header as `Bearer TOKEN` or `Basic NAME:PASSWORD`, or the error.
    fn reported(header: &[u8]) -> String {
        match parse(header) {
            Ok(AuthorizationHeader::Bearer(token)) => format!("Bearer {}", String::from_utf8_lossy(token)),
            Ok(AuthorizationHeader::Basic(pair)) => format!("Basic {}", String::from_utf8_lossy(&pair)),
            Err((method, cause)) => format!("{} {cause}", method.as_str()),
        }
    }

    #[test]
    fn reads_a_scheme_and_a_credential() {
        let table: [(&[u8], &str); 21] = [
            (b"Bearer abc", "Bearer abc"),
            (b"bearer abc", "Bearer abc"),
            (b"BEARER  \t abc  ", "Bearer abc"),
            (b"Bearer", "bearer malformed credential"),
            (b"Bearer ", "bearer malformed credential"),
            (b"Bearer a b", "bearer malformed credential"),
            (b"Bearer a\0b", "bearer malformed credential"),
            (b"Bearer \xff", "Bearer \u{fffd}"),
            (b"Bearera", "none unsupported authorization scheme"),
            (b"Basic bjpw", "Basic n:p"),
            (b"basic bjpwOnA=", "Basic n:p:p"),
            (b"Basic bjo=", "Basic n:"),
            (b"Basic Ojo=", "Basic ::"),
            (b"Basic bg==", "basic malformed credential"),
            (b"Basic bjpw=", "basic malformed credential"),
            (b"Basic n:p", "basic malformed credential"),
            (b"Basic", "basic malformed credential"),
            (b"Digest username=n", "none unsupported authorization scheme"),
            (b"\xff\xfe", "none unsupported authorization scheme"),
            (b"", "none no credential"),
            (b"  ", "none no credential"),
        ];
        for (header, expected) in table {
            assert_eq!(reported(header), expected, "{}", String::from_utf8_lossy(header));
        }
    }

    #[test]
    fn a_credential_has_a_greatest_length() {
        let longest = [b"Bearer ".as_slice(), &[b'a'; MAX_CREDENTIAL_BYTES]].concat();
        assert!(parse(&longest).is_ok());
        assert_eq!(
            reported(&[longest.as_slice(), b"a"].concat()),
            "bearer malformed credential"
        );
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(header in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&header);
        }

        #[test]
        fn no_credential_makes_it_panic(
            scheme in "(?i:bearer|basic)[ \t]{0,3}",
            credential in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let header = [scheme.as_bytes(), &credential].concat();
            if let Ok(AuthorizationHeader::Bearer(token)) = parse(&header) {
                prop_assert!(!token.is_empty() && !token.contains(&b' '));
            }
        }
    }
}
