//! `callers[].jwt` and `callers[].webhookToken`: which tokens of an issuer name a caller.

use std::path::PathBuf;
use std::time::Duration;

use jsonwebtoken::Algorithm;

use super::section::{Section, one_of};
use portcullis_policy::field::FaultKind;

/// Which tokens name a caller.
#[derive(Debug, Clone, PartialEq)]
pub struct Jwt {
    /// The claim `iss`, letter by letter.
    pub issuer: String,
    /// The claim `aud` must hold one of these.
    pub audiences: Vec<String>,
    /// The file of the issuer's public keys, as an absolute path; `None`, of `webhookToken` alone: those that
    /// the API server of the cluster publishes.
    pub jwks: Option<PathBuf>,
    /// The algorithms a token may be signed with: asymmetric ones alone.
    pub algorithms: Vec<Algorithm>,
    /// How far the issuer's clock may be off.
    pub leeway: Duration,
    /// What further claims must be: names of claims and what they must hold.
    ///
    /// Names are exact, dots are part of them. A text, number or truth value
    /// must equal the claim, or be an item of it where it is a list; of a list
    /// one value must; of a mapping every entry must, within the claim.
    pub claims: serde_json::Map<String, serde_json::Value>,
}

/// What `algorithms` may name. HMAC is not among them: a program that can check such a
/// token can make one.
const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

/// What API servers sign service account tokens with, RSA or ECDSA.
fn default_algorithms() -> Vec<Algorithm> {
    vec![Algorithm::RS256, Algorithm::ES256]
}

const fn default_leeway() -> Duration {
    Duration::from_secs(30)
}

pub(crate) fn jwt(entry: &Section<'_>) -> Option<Jwt> {
    let fields = ["issuer", "audiences", "jwks", "algorithms", "leeway", "claims"];
    let section = entry.optional("jwt", &fields)?;
    let jwks = section.required_path("jwks", "the file with the issuer's public keys");
    let tokens = tokens_of_issuer(&section);
    let claims = claims(&section);
    Some(Jwt {
        jwks: Some(jwks?),
        claims,
        ..tokens?
    })
}

/// What `jwt` and `webhookToken` have in common.
fn tokens_of_issuer(section: &Section<'_>) -> Option<Jwt> {
    let issuer = section.required_text("issuer", "the claim `iss` of the tokens");
    let audiences = section.strings("audiences");
    if audiences.is_empty() {
        let message = "set at least one; otherwise tokens for other services would be accepted";
        section.fault("audiences", FaultKind::Required, message);
    }
    let algorithms = algorithms(section);
    let leeway = leeway(section);
    Some(Jwt {
        issuer: issuer?.to_owned(),
        audiences,
        jwks: None,
        algorithms,
        leeway,
        claims: serde_json::Map::new(),
    })
}

/// The tokens of API servers, which stand alone in their entry: they say themselves which calls they are for.
pub(crate) fn webhook_token(entry: &Section<'_>) -> Option<Jwt> {
    let fields = ["issuer", "audiences", "jwks", "algorithms", "leeway"];
    let section = entry.optional("webhookToken", &fields)?;
    for (index, audience) in section.texts("audiences") {
        if path_of_audience(audience).is_none() {
            let message = format!(
                "`{audience}`: the URL that a webhook configuration calls, to the letter, as \
                 `https://NAME.NAMESPACE.svc:443/validate` for a Service"
            );
            section.fault_at("audiences", index, FaultKind::Invalid, message);
        }
    }
    let jwks = section.path("jwks");
    Some(Jwt {
        jwks,
        ..tokens_of_issuer(&section)?
    })
}

/// The path of the URL of a webhook, if it is one of this gateway's.
pub(crate) fn path_of_audience(audience: &str) -> Option<&str> {
    let rest = audience.strip_prefix("https://")?;
    let (host, path) = rest.split_at_checked(rest.find('/')?)?;
    let endpoint = path.split('/').nth(1)?;
    let is_admission = ["validate", "mutate"].contains(&endpoint);
    (is_admission && !host.is_empty() && !path.contains(['?', '#', '%'])).then_some(path)
}

fn algorithms(section: &Section<'_>) -> Vec<Algorithm> {
    let mut algorithms = Vec::new();
    for (index, text) in section.texts("algorithms") {
        match ALGORITHMS.iter().find(|(name, _)| *name == text) {
            Some((_, algorithm)) => algorithms.push(*algorithm),
            None => {
                let message = format!("`{text}`: supported values: {}", one_of(&ALGORITHMS));
                section.fault_at("algorithms", index, FaultKind::NotSupported, message);
            }
        }
    }
    if algorithms.is_empty() {
        default_algorithms()
    } else {
        algorithms
    }
}

/// More than some minutes is a mistake, and would keep expired tokens alive.
const MAX_LEEWAY: Duration = Duration::from_secs(600);

fn leeway(section: &Section<'_>) -> Duration {
    let leeway = section.duration("leeway").unwrap_or_else(default_leeway);
    if leeway > MAX_LEEWAY {
        section.fault("leeway", FaultKind::Invalid, "must be at most 10m");
    }
    leeway
}

fn claims(section: &Section<'_>) -> serde_json::Map<String, serde_json::Value> {
    match section
        .value("claims")
        .map(portcullis_policy::document::Node::to_json)
    {
        None => serde_json::Map::new(),
        Some(serde_json::Value::Object(claims)) => {
            for name in claims
                .iter()
                .filter(|(_, value)| proves_nothing(value))
                .map(|(name, _)| name)
            {
                section.fault(
                    "claims",
                    FaultKind::Required,
                    format!("claim `{name}`: needs a value"),
                );
            }
            claims
        }
        Some(_) => {
            section.fault("claims", FaultKind::TypeInvalid, "must be a mapping");
            serde_json::Map::new()
        }
    }
}

/// Whether `value` is empty, or holds something empty: it would be met by every
/// token or by none, and either is not what was meant.
fn proves_nothing(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Null => true,
        serde_json::Value::Array(values) => values.is_empty() || values.iter().any(proves_nothing),
        serde_json::Value::Object(fields) => fields.is_empty() || fields.values().any(proves_nothing),
        _ => false,
    }
}
