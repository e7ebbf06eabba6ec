//! JSON Web Key Sets (RFC 7517) with the public keys of an issuer, and the verification of token
//! signatures with OpenSSL.
//!
//! `jsonwebtoken` is built without its own cryptography. This module connects it to OpenSSL, which
//! the process uses anyway. Nothing is signed.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, new_error};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, signature};
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey, EcPoint};
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Public};
use openssl::rsa::{Padding, Rsa};
use openssl::sign::{RsaPssSaltlen, Verifier};

use super::caller::TokenFault;

/// The usable public keys of an issuer.
#[derive(Debug, Clone, Default)]
pub(crate) struct IssuerKeys(Vec<IssuerKey>);

#[derive(Debug, Clone)]
struct IssuerKey {
    id: Option<String>,
    /// The algorithms that its type supports, its `alg` permits and the configuration allows.
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// Why a text is not a JWKS.
#[derive(Debug)]
pub(crate) struct NoKeySet {
    /// The line and column, from 1; 0 if the error concerns the whole text.
    pub(crate) at: (usize, usize),
    pub(crate) message: String,
}

// === impl IssuerKeys ===

impl IssuerKeys {
    /// Reads a JWKS. Also returns a message for each key that is ignored.
    ///
    /// # Errors
    ///
    /// The text is not a JWKS.
    pub(crate) fn parse(json: &[u8], allowed: &[Algorithm]) -> Result<(Self, Vec<String>), NoKeySet> {
        let mut set: serde_json::Value = serde_json::from_slice(json).map_err(|error| no_json(&error))?;
        let Some(serde_json::Value::Array(set)) = set.get_mut("keys").map(serde_json::Value::take) else {
            return Err(NoKeySet {
                at: (0, 0),
                message: "not a JWKS, which is a mapping whose field `keys` is a list".to_owned(),
            });
        };
        let mut keys = Vec::new();
        let mut passed_over = Vec::new();
        for (position, value) in set.into_iter().enumerate() {
            let named = match value.get("kid").and_then(serde_json::Value::as_str) {
                Some(id) => format!("keys[{position}] `{id}`"),
                None => format!("keys[{position}]"),
            };
            match key(value, allowed) {
                Ok(key) => keys.push(key),
                Err(why) => passed_over.push(format!("{named} is ignored: {why}")),
            }
        }
        Ok((Self(keys), passed_over))
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key with the ID `id`, or any ID if it is `None`, for `algorithm`.
    ///
    /// # Errors
    ///
    /// No key matches, or several do.
    pub(crate) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&DecodingKey, TokenFault> {
        let named = |key: &&IssuerKey| id.is_none() || key.id.as_deref() == id;
        let mut fitting = self
            .0
            .iter()
            .filter(named)
            .filter(|key| key.algorithms.contains(&algorithm));
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(&key.key),
            _ => Err(TokenFault::Key),
        }
    }
}

/// The error with serde's message, without the position, which is reported separately.
fn no_json(error: &serde_json::Error) -> NoKeySet {
    let at = (error.line(), error.column());
    let text = error.to_string();
    let place = format!(" at line {} column {}", at.0, at.1);
    let message = if error.is_eof() {
        "not JSON: it ends too early".to_owned()
    } else {
        format!("not JSON: {}", text.strip_suffix(&place).unwrap_or(&text))
    };
    NoKeySet { at, message }
}

fn key(value: serde_json::Value, allowed: &[Algorithm]) -> Result<IssuerKey, &'static str> {
    let jwk: Jwk = serde_json::from_value(value).map_err(|_| "not a readable key")?;
    let can = usable(&jwk.algorithm)?;
    let common = &jwk.common;
    if common
        .public_key_use
        .as_ref()
        .is_some_and(|usage| *usage != PublicKeyUse::Signature)
    {
        return Err("its `use` is not `sig`");
    }
    if common
        .key_operations
        .as_ref()
        .is_some_and(|operations| !operations.contains(&KeyOperations::Verify))
    {
        return Err("its `key_ops` have no `verify`");
    }
    let said = |algorithm: &&Algorithm| {
        common
            .key_algorithm
            .as_ref()
            .is_none_or(|said| *said == KeyAlgorithm::from(**algorithm))
    };
    let algorithms: Vec<Algorithm> = can
        .iter()
        .filter(said)
        .filter(|algorithm| allowed.contains(algorithm))
        .copied()
        .collect();
    let Some(first) = algorithms.first() else {
        return Err("its algorithm is not among `algorithms`");
    };
    let key = DecodingKey::from_jwk(&jwk).map_err(|_| "not a readable key")?;
    if !is_sound(&key, *first) {
        return Err("an invalid key, or an RSA key with fewer than 2048 or more than 8192 bits");
    }
    Ok(IssuerKey {
        id: jwk.common.key_id,
        algorithms,
        key,
    })
}

/// The algorithms that a key of this type supports. A shared secret supports none: everyone who has
/// it could create tokens, and no supported algorithm uses one.
fn usable(parameters: &AlgorithmParameters) -> Result<&'static [Algorithm], &'static str> {
    match parameters {
        AlgorithmParameters::RSA(_) => Ok(&[
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ]),
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => Ok(&[Algorithm::ES256]),
            EllipticCurve::P384 => Ok(&[Algorithm::ES384]),
            _ => Err("its curve is not supported"),
        },
        AlgorithmParameters::OctetKeyPair(key) => match key.curve {
            EllipticCurve::Ed25519 => Ok(&[Algorithm::EdDSA]),
            _ => Err("its curve is not supported"),
        },
        AlgorithmParameters::OctetKey(_) => Err("it is a shared secret"),
        _ => Err("its type is not supported"),
    }
}

/// A public key, and the algorithm for which it is used.
struct PublicKey {
    algorithm: Algorithm,
    key: PKey<Public>,
}

/// Makes `jsonwebtoken` use OpenSSL in this process.
pub(crate) fn install() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: |_, _| Err(unsupported()),
        verifier_factory: |algorithm, key| Ok(Box::new(PublicKey::new(*algorithm, key)?)),
        key_utils: KeyUtils {
            rsa_pub_components_from_private_key: |_| Err(unsupported()),
            rsa_pub_components_from_public_key: |_| Err(unsupported()),
            ec_pub_components_from_private_key: |_, _| Err(unsupported()),
            ed_pub_components_from_private_key: |_, _| Err(unsupported()),
            compute_digest: |_, _| Err(unsupported()),
        },
    };
    // An error means that the provider is installed already, because no other one is ever
    // installed.
    let _ = PROVIDER.install_default();
}

/// Whether `key` is a valid key for `algorithm`.
pub(crate) fn is_sound(key: &DecodingKey, algorithm: Algorithm) -> bool {
    PublicKey::new(algorithm, key).is_ok()
}

fn unsupported() -> Error {
    new_error(ErrorKind::UnsupportedAlgorithm)
}

fn provider(error: impl ToString) -> Error {
    new_error(ErrorKind::Provider(error.to_string()))
}

/// The signature scheme of an algorithm.
enum Form {
    /// RSASSA-PKCS1-v1_5.
    Pkcs1(MessageDigest),
    /// RSASSA-PSS, with a salt of the length of the digest (RFC 7518, section 3.5).
    Pss(MessageDigest),
    /// ECDSA on a curve. A signature is two numbers of this many bytes each (RFC 7518, section
    /// 3.4).
    Ecdsa(MessageDigest, Nid, usize),
    /// Ed25519.
    Ed25519,
}

/// The scheme of a supported algorithm. HMAC must never be supported, because a public key could
/// then be used as its shared secret.
fn form(algorithm: Algorithm) -> Option<Form> {
    Some(match algorithm {
        Algorithm::RS256 => Form::Pkcs1(MessageDigest::sha256()),
        Algorithm::RS384 => Form::Pkcs1(MessageDigest::sha384()),
        Algorithm::RS512 => Form::Pkcs1(MessageDigest::sha512()),
        Algorithm::PS256 => Form::Pss(MessageDigest::sha256()),
        Algorithm::PS384 => Form::Pss(MessageDigest::sha384()),
        Algorithm::PS512 => Form::Pss(MessageDigest::sha512()),
        Algorithm::ES256 => Form::Ecdsa(MessageDigest::sha256(), Nid::X9_62_PRIME256V1, 32),
        Algorithm::ES384 => Form::Ecdsa(MessageDigest::sha384(), Nid::SECP384R1, 48),
        Algorithm::EdDSA => Form::Ed25519,
        _ => return None,
    })
}

// === impl PublicKey ===

impl PublicKey {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> jsonwebtoken::errors::Result<Self> {
        if key.family() != algorithm.family() {
            return Err(new_error(ErrorKind::InvalidAlgorithm));
        }
        let key = match (form(algorithm).ok_or_else(unsupported)?, key.kind()) {
            (Form::Pkcs1(_) | Form::Pss(_), DecodingKeyKind::RsaModulusExponent { n, e }) => rsa(n, e),
            (Form::Ecdsa(_, curve, _), DecodingKeyKind::SecretOrDer(point)) => ec(curve, point),
            (Form::Ed25519, DecodingKeyKind::SecretOrDer(key)) => {
                PKey::public_key_from_raw_bytes(key, Id::ED25519)
            }
            _ => return Err(new_error(ErrorKind::InvalidKeyFormat)),
        };
        Ok(Self {
            algorithm,
            key: key.map_err(provider)?,
        })
    }

    fn is_signed(&self, message: &[u8], signature: &[u8]) -> Result<bool, ErrorStack> {
        match form(self.algorithm) {
            // RFC 8017, sections 8.1.2 and 8.2.2. OpenSSL would accept a signature without its
            // leading zeros.
            Some(Form::Pkcs1(_) | Form::Pss(_)) if signature.len() != self.key.size() => Ok(false),
            Some(Form::Pkcs1(hash)) => {
                let mut verifier = Verifier::new(hash, &self.key)?;
                verifier.set_rsa_padding(Padding::PKCS1)?;
                verifier.verify_oneshot(signature, message)
            }
            Some(Form::Pss(hash)) => {
                let mut verifier = Verifier::new(hash, &self.key)?;
                verifier.set_rsa_padding(Padding::PKCS1_PSS)?;
                verifier.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)?;
                verifier.set_rsa_mgf1_md(hash)?;
                verifier.verify_oneshot(signature, message)
            }
            Some(Form::Ecdsa(hash, _, half)) => match signature.split_at_checked(half) {
                Some((r, s)) if s.len() == half => {
                    let numbers = (BigNum::from_slice(r)?, BigNum::from_slice(s)?);
                    let der = EcdsaSig::from_private_components(numbers.0, numbers.1)?.to_der()?;
                    Verifier::new(hash, &self.key)?.verify_oneshot(&der, message)
                }
                _ => Ok(false),
            },
            Some(Form::Ed25519) => {
                Verifier::new_without_digest(&self.key)?.verify_oneshot(signature, message)
            }
            None => Ok(false),
        }
    }
}

impl signature::Verifier<Vec<u8>> for PublicKey {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        match self.is_signed(message, signature) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(signature::Error::new()),
        }
    }
}

impl JwtVerifier for PublicKey {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// The accepted sizes of RSA keys in bits. Shorter keys can be broken, and longer ones are slow.
const RSA_BITS: std::ops::RangeInclusive<i32> = 2048..=8192;

fn rsa(modulus: &[u8], exponent: &[u8]) -> Result<PKey<Public>, ErrorStack> {
    let modulus = BigNum::from_slice(modulus)?;
    if !RSA_BITS.contains(&modulus.num_bits()) {
        return Err(ErrorStack::get());
    }
    PKey::from_rsa(Rsa::from_public_components(
        modulus,
        BigNum::from_slice(exponent)?,
    )?)
}

fn ec(curve: Nid, point: &[u8]) -> Result<PKey<Public>, ErrorStack> {
    let group = EcGroup::from_curve_name(curve)?;
    let point = EcPoint::from_bytes(&group, point, &mut *BigNumContext::new()?)?;
    let key = EcKey::from_public_key(&group, &point)?;
    key.check_key()?;
    PKey::from_ec_key(key)
}
