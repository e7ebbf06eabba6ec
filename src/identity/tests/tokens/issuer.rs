//! An issuer, its keys, and the tokens that it and others make.

use std::sync::OnceLock;

use openssl::bn::{BigNum, BigNumContext};
use openssl::ecdsa::EcdsaSig;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Padding;
use openssl::sign::{RsaPssSaltlen, Signer};
use serde_json::{Value, json};

use crate::identity::tests::fixtures::{START, World, base64url, rsa_key, seen};
use crate::identity::*;
use crate::pki::{Authority, ec_key};

pub(crate) const ISSUER: &str = "https://issuer.example.com";
pub(crate) const KNOWN: &str = "apiserver default {authorize} jwt";

/// One key for each algorithm family; `ec` and `rsa` stand in the issuer's file.
pub(crate) struct Keys {
    pub(crate) ec: PKey<Private>,
    pub(crate) ec384: PKey<Private>,
    pub(crate) ed: PKey<Private>,
    pub(crate) stranger: PKey<Private>,
}

pub(crate) fn keys() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(|| Keys {
        ec: ec_key(Nid::X9_62_PRIME256V1),
        ec384: ec_key(Nid::SECP384R1),
        ed: PKey::generate_ed25519().unwrap(),
        stranger: ec_key(Nid::X9_62_PRIME256V1),
    })
}

pub(crate) fn rsa_jwk(kid: &str, key: &PKey<Private>) -> Value {
    let rsa = key.rsa().unwrap();
    json!({"kty": "RSA", "kid": kid, "n": base64url(rsa.n().to_vec()), "e": base64url(rsa.e().to_vec())})
}

pub(crate) fn ec_jwk(kid: &str, curve: &str, key: &PKey<Private>) -> Value {
    let key = key.ec_key().unwrap();
    let (mut x, mut y) = (BigNum::new().unwrap(), BigNum::new().unwrap());
    let mut context = BigNumContext::new().unwrap();
    key.public_key()
        .affine_coordinates(key.group(), &mut x, &mut y, &mut context)
        .unwrap();
    let bytes = i32::try_from(key.group().degree() / 8).unwrap();
    let text = |number: &BigNum| base64url(number.to_vec_padded(bytes).unwrap());
    json!({"kty": "EC", "kid": kid, "crv": curve, "x": text(&x), "y": text(&y)})
}

pub(crate) fn with(mut value: Value, changes: Value) -> Value {
    for (name, change) in changes.as_object().unwrap() {
        match change {
            Value::Null => drop(value.as_object_mut().unwrap().remove(name)),
            change => value[name] = change.clone(),
        }
    }
    value
}

pub(crate) fn jwks() -> Value {
    let keys = keys();
    let ed = base64url(keys.ed.raw_public_key().unwrap());
    json!({"keys": [
        rsa_jwk("rsa", rsa_key()),
        ec_jwk("ec", "P-256", &keys.ec),
        ec_jwk("ec384", "P-384", &keys.ec384),
        {"kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": ed},
    ]})
}

pub(crate) fn world_of(jwt: &str, jwks: &Value) -> World {
    let mut world = World::new(
        &Authority::new("ca"),
        &format!(
            "- {{jwt: {{issuer: '{ISSUER}', audiences: [portcullis, other], jwks: jwks.json{jwt}}}, endpoints: [authorize]}}\n"
        ),
    );
    world.write("jwks.json", jwks.to_string());
    world
}

pub(crate) fn world() -> World {
    world_of("", &jwks())
}

pub(crate) fn signature(algorithm: &str, key: &PKey<Private>, message: &[u8]) -> Vec<u8> {
    let hash = match algorithm.get(2..) {
        Some("256") => MessageDigest::sha256(),
        Some("384") => MessageDigest::sha384(),
        _ => MessageDigest::sha512(),
    };
    if algorithm == "EdDSA" {
        return Signer::new_without_digest(key)
            .unwrap()
            .sign_oneshot_to_vec(message)
            .unwrap();
    }
    let mut signer = Signer::new(hash, key).unwrap();
    if algorithm.starts_with("PS") {
        signer.set_rsa_padding(Padding::PKCS1_PSS).unwrap();
        signer.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH).unwrap();
    }
    let signature = signer.sign_oneshot_to_vec(message).unwrap();
    if !algorithm.starts_with("ES") {
        return signature;
    }
    let half = if algorithm == "ES256" { 32 } else { 48 };
    let numbers = EcdsaSig::from_der(&signature).unwrap();
    [numbers.r(), numbers.s()]
        .map(|number| number.to_vec_padded(half).unwrap())
        .concat()
}

pub(crate) fn claims() -> Value {
    json!({"iss": ISSUER, "aud": ["portcullis"], "sub": "apiserver", "exp": START + 100, "nbf": START - 100})
}

pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    format!(
        "{}.{}",
        base64url(header.to_string()),
        base64url(claims.to_string())
    )
}

pub(crate) fn token(header: &Value, claims: &Value, key: &PKey<Private>) -> String {
    let message = unsigned(header, claims);
    let signature = signature(header["alg"].as_str().unwrap(), key, message.as_bytes());
    format!("{message}.{}", base64url(signature))
}

/// A good token but for these changes of its claims.
pub(crate) fn with_claims(changes: Value) -> String {
    token(
        &json!({"alg": "ES256", "kid": "ec", "typ": "JWT"}),
        &with(claims(), changes),
        &keys().ec,
    )
}

pub(crate) fn with_header(header: &Value, key: &PKey<Private>) -> String {
    token(header, &claims(), key)
}

pub(crate) fn refused(why: &str) -> String {
    format!("401 jwt unauthorized: token not accepted: {why}")
}

pub(crate) fn bearer(authenticator: &Authenticator, token: &str) -> String {
    seen(authenticator, None, Some(&format!("Bearer {token}")))
}
