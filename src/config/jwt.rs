//! `callers[].jwt` and `callers[].webhookToken`: which signed tokens match an entry of `callers`.

use std::path::PathBuf;
use std::time::Duration;

use jsonwebtoken::Algorithm;

use super::section::{Section, one_of};
use portcullis_policy::field::FaultKind;

/// Which signed tokens match.
#[derive(Debug, Clone, PartialEq)]
pub struct Jwt {
    /// The exact claim `iss`.
    pub issuer: String,
    /// The audiences, one of which the claim `aud` must contain.
    pub audiences: Vec<String>,
    /// The file of the issuer's public keys, as an absolute path. `None`, only for `webhookToken`:
    /// the keys that the cluster's API server publishes.
    pub jwks: Option<PathBuf>,
    /// The algorithms with which a token may be signed, all of them asymmetric.
    pub algorithms: Vec<Algorithm>,
    /// The tolerated clock difference to the issuer.
    pub leeway: Duration,
    /// Values that further claims must have, by the name of the claim.
    ///
    /// Names are exact, and may contain dots. A string, number or boolean must equal the claim, or
    /// one of its items if the claim is a list. Of a list of values, one must match. Of a mapping,
    /// all entries must match those of the claim.
    pub claims: serde_json::Map<String, serde_json::Value>,
}

/// The supported algorithms. HMAC is excluded, because a program that can verify such tokens can
/// also make them.
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

/// The algorithms with which API servers sign service account tokens.
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
    let tokens = common_fields(&section);
    let claims = claims(&section);
    Some(Jwt {
        jwks: Some(jwks?),
        claims,
        ..tokens?
    })
}

/// Reads the fields that `jwt` and `webhookToken` have in common.
fn common_fields(section: &Section<'_>) -> Option<Jwt> {
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

/// Reads `webhookToken`. Its audiences must be URLs of webhooks, because each token is for the
/// calls of one webhook.
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
        ..common_fields(&section)?
    })
}

/// The path of the URL of a webhook, if it is an admission endpoint of this gateway.
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

/// A longer leeway is a mistake, because it keeps expired tokens valid.
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
                .filter(|(_, value)| is_empty_or_has_empty(value))
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

/// Whether `value` is empty or contains an empty value: it would match every token or none, and
/// neither can be intended.
fn is_empty_or_has_empty(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Null => true,
        serde_json::Value::Array(values) => values.is_empty() || values.iter().any(is_empty_or_has_empty),
        serde_json::Value::Object(fields) => fields.is_empty() || fields.values().any(is_empty_or_has_empty),
        _ => false,
    }
}
