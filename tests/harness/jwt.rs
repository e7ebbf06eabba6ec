//! JSON web tokens from an issuer of a test's own.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::sign::Signer;
use serde_json::{Value, json};

/// When the tokens expire, in seconds since 1970: in the year 2100.
const EXPIRY: u64 = 4_102_444_800;

/// A signer of tokens, with RS256.
pub(crate) struct Issuer {
    name: &'static str,
    key: PKey<Private>,
}

impl Issuer {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            key: PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap(),
        }
    }

    /// A token with these claims, `iss`, and `exp` unless that is among them.
    pub(crate) fn token(&self, mut claims: Value) -> String {
        claims["iss"] = self.name.into();
        if claims.get("exp").is_none() {
            claims["exp"] = EXPIRY.into();
        }
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": "one"});
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let mut signer = Signer::new(MessageDigest::sha256(), &self.key).unwrap();
        let signature = signer.sign_oneshot_to_vec(signed.as_bytes()).unwrap();
        format!("{signed}.{}", encode(signature))
    }

    /// The key set that proves the tokens.
    pub(crate) fn jwks(&self) -> String {
        let rsa = self.key.rsa().unwrap();
        json!({"keys": [{
            "kty": "RSA",
            "kid": "one",
            "use": "sig",
            "alg": "RS256",
            "n": encode(rsa.n().to_vec()),
            "e": encode(rsa.e().to_vec()),
        }]})
        .to_string()
    }
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
