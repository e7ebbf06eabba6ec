//! Verification of token signatures with OpenSSL.
//!
//! `jsonwebtoken` has no cryptography of its own; this connects it to the library that
//! the process uses anyway. Nothing is signed here.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, Result, new_error};
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

/// A public key and what it is used for.
struct PublicKey {
    algorithm: Algorithm,
    key: PKey<Public>,
}

/// Has `jsonwebtoken` use OpenSSL, in this process and from now on.
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
    // An error says that it is installed already: nothing else here installs one.
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

/// How an algorithm makes its signatures.
enum Form {
    /// RSASSA-PKCS1-v1_5.
    Pkcs1(MessageDigest),
    /// RSASSA-PSS; the salt is as long as the digest (RFC 7518, 3.5).
    Pss(MessageDigest),
    /// ECDSA on a curve; a signature is two numbers of so many bytes (RFC 7518, 3.4).
    Ecdsa(MessageDigest, Nid, usize),
    /// Ed25519.
    Ed25519,
}

/// `None` for HMAC above all: a public key must never be taken for a shared secret.
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
    fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Self> {
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

    fn is_signed(&self, message: &[u8], signature: &[u8]) -> std::result::Result<bool, ErrorStack> {
        match form(self.algorithm) {
            // RFC 8017, 8.1.2 and 8.2.2: OpenSSL would take one whose leading zeros are left out.
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
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), signature::Error> {
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

/// Shorter keys can be broken, longer ones take long to use.
const RSA_BITS: std::ops::RangeInclusive<i32> = 2048..=8192;

fn rsa(modulus: &[u8], exponent: &[u8]) -> std::result::Result<PKey<Public>, ErrorStack> {
    let modulus = BigNum::from_slice(modulus)?;
    if !RSA_BITS.contains(&modulus.num_bits()) {
        return Err(ErrorStack::get());
    }
    PKey::from_rsa(Rsa::from_public_components(
        modulus,
        BigNum::from_slice(exponent)?,
    )?)
}

fn ec(curve: Nid, point: &[u8]) -> std::result::Result<PKey<Public>, ErrorStack> {
    let group = EcGroup::from_curve_name(curve)?;
    let point = EcPoint::from_bytes(&group, point, &mut *BigNumContext::new()?)?;
    let key = EcKey::from_public_key(&group, &point)?;
    key.check_key()?;
    PKey::from_ec_key(key)
}
