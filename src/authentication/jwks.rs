//! JSON Web Key Sets (RFC 7517): the public keys of an issuer, each for its own
//! algorithms.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};

use super::caller::TokenFault;
use super::crypto;

/// The keys of an issuer that can check a token here.
#[derive(Debug, Default)]
pub(crate) struct IssuerKeys(Vec<IssuerKey>);

#[derive(Debug)]
struct IssuerKey {
    id: Option<String>,
    /// What it may be used for: what its type can do, its `alg` says and we allow.
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// Why a text is no JWKS.
#[derive(Debug)]
pub(crate) struct NoKeySet {
    /// The line and column, from 1; 0 where it is about the whole.
    pub(crate) at: (usize, usize),
    pub(crate) message: String,
}

// === impl IssuerKeys ===

impl IssuerKeys {
    /// Reads a JWKS and says of each key that is passed over why.
    ///
    /// # Errors
    ///
    /// It is no JWKS.
    pub(crate) fn parse(json: &[u8], allowed: &[Algorithm]) -> Result<(Self, Vec<String>), NoKeySet> {
        let mut set: serde_json::Value = serde_json::from_slice(json).map_err(|error| no_json(&error))?;
        let Some(serde_json::Value::Array(set)) = set.get_mut("keys").map(serde_json::Value::take) else {
            return Err(NoKeySet {
                at: (0, 0),
                message: "no JWKS: that is a mapping whose field `keys` is a list".to_owned(),
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

    /// The key called `id`, for `algorithm`. Without a name, or where a name
    /// stands twice, exactly one key must fit.
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

/// serde's words, without the place, which is told by itself.
fn no_json(error: &serde_json::Error) -> NoKeySet {
    let at = (error.line(), error.column());
    let text = error.to_string();
    let place = format!(" at line {} column {}", at.0, at.1);
    let message = if error.is_eof() {
        "no JSON: the text ends too early".to_owned()
    } else {
        format!("no JSON: {}", text.strip_suffix(&place).unwrap_or(&text))
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
    if !crypto::is_sound(&key, *first) {
        return Err("an invalid key, or an RSA key with fewer than 2048 or more than 8192 bits");
    }
    Ok(IssuerKey {
        id: jwk.common.key_id,
        algorithms,
        key,
    })
}

/// What a key of this type can do. A shared secret can do nothing: whoever
/// holds it could make tokens, and none of our algorithms uses one.
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
