//! Keyed digests of secrets, used to look up credentials.
//!
//! Tokens and passwords are not stored, only SHA-256 digests of a random key of this
//! process and the secret. The time of a look-up in a table of such digests tells an
//! attacker nothing, because without the key nobody can construct a secret whose digest
//! begins like another one. The final comparison uses OpenSSL's `CRYPTO_memcmp`.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use openssl::error::ErrorStack;
use openssl::sha::Sha256;
use zeroize::Zeroizing;

/// The digest of one secret.
#[derive(Clone, Copy)]
pub(crate) struct Digest([u8; 32]);

/// What makes digests; its clones make the same.
#[derive(Clone)]
pub(crate) struct Digester(Arc<Zeroizing<[u8; 32]>>);

/// What a secret is for: the same text as token and as password has two digests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    /// A bearer token.
    Token,
    /// `username:password`.
    Basic,
    /// A certificate's DER.
    Certificate,
}

// === impl Digester ===

impl Digester {
    /// With a key that nobody knows.
    pub(crate) fn new() -> Result<Self, ErrorStack> {
        let mut key = Zeroizing::new([0; 32]);
        openssl::rand::rand_bytes(key.as_mut())?;
        Ok(Self(Arc::new(key)))
    }

    /// With a key that everybody knows: only for what serves nobody.
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
    use super::*;

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
