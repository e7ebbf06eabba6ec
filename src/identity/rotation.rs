//! Stored credentials and their rotation: replaced credentials are accepted for a limited time.
//!
//! The API server reads its kubeconfig, certificate and token again about once a minute, the
//! gateway at once. Therefore a credential that was replaced by a newer one of the same user is
//! accepted for another [`GRACE_PERIOD`]. A credential that was removed without a successor, or
//! together with its user, is rejected at once: to revoke a credential, remove or rename its user.
//!
//! Tokens and passwords are not stored, only SHA-256 digests of a random key of this process and
//! the secret. The time of a lookup in a table of these digests tells an attacker nothing, because
//! without the key it is impossible to construct a secret whose digest shares a prefix with
//! another. The final comparison uses OpenSSL's `CRYPTO_memcmp`.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use openssl::error::ErrorStack;
use openssl::sha::Sha256;
use zeroize::Zeroizing;

/// How long a replaced credential is accepted.
const GRACE_PERIOD: Duration = Duration::from_secs(600);

/// A credential of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A certificate.
    Certificate(Digest),
    /// A bearer token.
    Token(Digest),
    /// A name and password.
    Basic(Digest),
}

/// The credentials of one user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HeldCredentials {
    /// The credentials in its kubeconfig.
    pub(crate) current: Vec<Credential>,
    /// The replaced credentials, and until when they are accepted.
    pub(crate) replaced: Vec<(Credential, SystemTime)>,
}

/// The users of all kubeconfigs, by file and name.
pub(crate) type Users = HashMap<(PathBuf, String), HeldCredentials>;

// === impl HeldCredentials ===

impl HeldCredentials {
    /// The credentials of a user whose kubeconfig now has `current`, and who had `before`.
    pub(crate) fn rotate(current: Vec<Credential>, before: Option<&Self>, now: SystemTime) -> Self {
        let Some(before) = before else {
            return Self {
                current,
                replaced: Vec::new(),
            };
        };
        let gone = |credential: &Credential| !current.contains(credential);
        let mut replaced: Vec<_> = before
            .replaced
            .iter()
            .filter(|(credential, until)| gone(credential) && now <= *until)
            .copied()
            .collect();
        if current
            .iter()
            .any(|credential| !before.current.contains(credential))
        {
            let fresh = before.current.iter().filter(|credential| gone(credential));
            replaced.extend(fresh.map(|credential| (*credential, now + GRACE_PERIOD)));
        }
        Self { current, replaced }
    }

    /// Each accepted credential and until when it is accepted; `None` means without limit.
    pub(crate) fn accepted(&self) -> impl Iterator<Item = (Credential, Option<SystemTime>)> {
        let current = self.current.iter().map(|credential| (*credential, None));
        current.chain(
            self.replaced
                .iter()
                .map(|(credential, until)| (*credential, Some(*until))),
        )
    }
}

/// The digest of one secret.
#[derive(Clone, Copy)]
pub(crate) struct Digest([u8; 32]);

/// Computes digests with a key that its clones share.
#[derive(Clone)]
pub(crate) struct Digester(Arc<Zeroizing<[u8; 32]>>);

/// The kind of a secret: the same string as a token and as a password has two digests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    /// A bearer token.
    Token,
    /// `username:password`.
    Basic,
    /// A certificate's DER.
    Certificate,
    /// A token in the path of a request.
    PathToken,
}

// === impl Digester ===

impl Digester {
    /// A digester with a random key.
    pub(crate) fn new() -> Result<Self, ErrorStack> {
        let mut key = Zeroizing::new([0; 32]);
        openssl::rand::rand_bytes(key.as_mut())?;
        Ok(Self(Arc::new(key)))
    }

    /// A digester without a secret key, for an authenticator that is not used.
    pub(crate) fn without_key() -> Self {
        Self(Arc::new(Zeroizing::new([0; 32])))
    }

    /// The digest of `secret`.
    pub(crate) fn digest(&self, purpose: Purpose, secret: &[u8]) -> Digest {
        let mut hash = Sha256::new();
        hash.update(self.0.as_ref().as_ref());
        hash.update(&[match purpose {
            Purpose::Token => 1,
            Purpose::Basic => 2,
            Purpose::Certificate => 3,
            Purpose::PathToken => 4,
        }]);
        hash.update(secret);
        Digest(hash.finish())
    }
}

impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digester([redacted])")
    }
}

// === impl Digest ===

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        openssl::memcmp::eq(&self.0, &other.0)
    }
}

impl Eq for Digest {}

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::{Digester, Purpose, *};

    fn at(minutes: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(60 * minutes)
    }

    #[test]
    fn a_replaced_credential_stays_good_for_ten_minutes() {
        let digester = Digester::new().unwrap();
        let token = |text: &str| Credential::Token(digester.digest(Purpose::Token, text.as_bytes()));
        let (a, b, c) = (token("a"), token("b"), token("c"));

        let first = HeldCredentials::rotate(vec![a], None, at(0));
        assert_eq!(first.replaced, []);
        let second = HeldCredentials::rotate(vec![b], Some(&first), at(1));
        assert_eq!(second.replaced, [(a, at(11))]);
        let same = HeldCredentials::rotate(vec![b], Some(&second), at(2));
        assert_eq!(
            same.replaced,
            [(a, at(11))],
            "a reload that changes nothing changes nothing"
        );
        let third = HeldCredentials::rotate(vec![c], Some(&same), at(3));
        assert_eq!(third.replaced, [(a, at(11)), (b, at(13))]);
        let later = HeldCredentials::rotate(vec![c], Some(&third), at(12));
        assert_eq!(later.replaced, [(b, at(13))]);
        let back = HeldCredentials::rotate(vec![b], Some(&later), at(12));
        assert_eq!((back.current, back.replaced), (vec![b], vec![(c, at(22))]));
    }

    #[test]
    fn what_has_no_successor_is_gone_at_once() {
        let digester = Digester::new().unwrap();
        let token = Credential::Token(digester.digest(Purpose::Token, b"a"));
        let certificate = Credential::Certificate(digester.digest(Purpose::Certificate, b"a"));
        let both = HeldCredentials::rotate(vec![certificate, token], None, at(0));
        assert_eq!(
            HeldCredentials::rotate(vec![certificate], Some(&both), at(1)).replaced,
            []
        );
        assert_eq!(HeldCredentials::rotate(vec![], Some(&both), at(1)).replaced, []);
    }

    #[test]
    fn a_credential_of_another_sort_is_a_successor_too() {
        let digester = Digester::new().unwrap();
        let token = Credential::Token(digester.digest(Purpose::Token, b"a"));
        let certificate = Credential::Certificate(digester.digest(Purpose::Certificate, b"a"));
        let before = HeldCredentials::rotate(vec![token], None, at(0));
        assert_eq!(
            HeldCredentials::rotate(vec![certificate], Some(&before), at(1)).replaced,
            [(token, at(11))]
        );
    }

    #[test]
    fn one_secret_has_one_digest_for_one_purpose_and_key() {
        let digester = Digester::new().unwrap();
        let digest = digester.digest(Purpose::Token, b"a");
        assert_eq!(digest, digester.clone().digest(Purpose::Token, b"a"));
        assert_ne!(digest, digester.digest(Purpose::Token, b"b"));
        assert_ne!(digest, digester.digest(Purpose::Basic, b"a"));
        assert_ne!(digest, Digester::new().unwrap().digest(Purpose::Token, b"a"));
    }

    #[test]
    fn prints_neither_key_nor_digest() {
        let digester = Digester::new().unwrap();
        assert_eq!(format!("{digester:?}"), "Digester([redacted])");
        assert_eq!(
            format!("{:?}", digester.digest(Purpose::Token, b"a")),
            "[redacted]"
        );
    }
}
