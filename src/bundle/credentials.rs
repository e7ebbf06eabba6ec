//! Credentials for a registry: those in docker's `config.json`, and the challenge in a 401 response
//! of the registry.
//!
//! It follows RFC 9110, section 11.6.1; `distribution/docs/content/spec/auth/token.md`;
//! `k8s.io/kubernetes/pkg/credentialprovider`.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use serde::Deserialize;

use super::manifest::BundleError;
use crate::config::{BundleReference, files};

/// The parts of docker's `config.json` that are used.
#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, DockerAuth>,
}

#[derive(Deserialize)]
struct DockerAuth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

/// The header value `Basic` with the credentials for the repository. Of several entries, the one
/// with the longest matching path is used, as in the kubelet.
pub(crate) fn read_credentials(
    path: &Path,
    reference: &BundleReference,
) -> Result<Option<HeaderValue>, BundleError> {
    let refused = |reason: &str| BundleError::of_file(path, reason);
    let text = files::read(path, files::CONFIGURATION_BYTES).map_err(|error| refused(&error.to_string()))?;
    // The message of the parser is not shown, because it may quote a password.
    let config: DockerConfig = serde_json::from_slice(&text)
        .map_err(|_| refused("must be a `config.json` of docker: JSON with `auths`, by registry"))?;
    let wanted = format!("{}/{}/", reference.registry, reference.repository);
    let own = config.auths.iter().filter_map(|(name, auth)| {
        let name = name
            .strip_prefix("https://")
            .unwrap_or(name)
            .trim_end_matches('/');
        let name = name
            .strip_suffix("/v1")
            .or(name.strip_suffix("/v2"))
            .unwrap_or(name);
        wanted
            .starts_with(&format!("{name}/"))
            .then_some((name.len(), auth))
    });
    let Some((_, auth)) = own.max_by_key(|(length, _)| *length) else {
        return Ok(None);
    };
    let encoded = match (&auth.auth, &auth.username, &auth.password) {
        (Some(auth), ..) if !auth.is_empty() => auth.clone(),
        (_, Some(user), Some(password)) => STANDARD.encode(format!("{user}:{password}")),
        _ => {
            return Err(refused(
                "has neither `auth` nor `username` and `password` for the registry",
            ));
        }
    };
    let mut header = HeaderValue::try_from(format!("Basic {encoded}"))
        .map_err(|_| refused("has an `auth` that is not base64"))?;
    header.set_sensitive(true);
    Ok(Some(header))
}

/// The rest of a challenge after `scheme`, if it has this scheme.
pub(crate) fn challenge<'c>(asked: &'c str, scheme: &str) -> Option<&'c str> {
    let (own, rest) = asked.split_once(' ').unwrap_or((asked, ""));
    own.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// The parameters of a challenge: `name="value"`, separated by commas.
pub(crate) fn parameters(mut text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let Some((value, after)) = rest.split_once('"') else {
            break;
        };
        let name = name.trim_matches([',', ' ']).to_ascii_lowercase();
        found.insert(name, value.to_owned());
        text = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(text: &str) -> BundleReference {
        BundleReference::parse(text).unwrap()
    }

    fn credentials(config: &str, text: &str) -> Result<Option<String>, BundleError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), config).unwrap();
        let found = read_credentials(file.path(), &reference(text))?;
        Ok(found.map(|header| header.to_str().unwrap().to_owned()))
    }

    #[test]
    fn credentials_are_those_of_the_registry_and_the_longest_path() {
        let config = r#"{"auths": {
            "https://registry.example.com/v1/": {"auth": "YTpi"},
            "registry.example.com/team": {"username": "t", "password": "u"},
            "other.example.com": {"auth": "eDp5"}
        }}"#;
        for (text, expected) in [
            ("registry.example.com/policies:1", Some("Basic YTpi")),
            ("registry.example.com/team/policies:1", Some("Basic dDp1")),
            ("registry.example.com/teams/policies:1", Some("Basic YTpi")),
            ("registry.example.com:5000/policies:1", None),
            ("evil-registry.example.com/policies:1", None),
        ] {
            assert_eq!(credentials(config, text).unwrap().as_deref(), expected, "{text}");
        }
        for config in [
            "s3cret",
            r#"{"auths": {"a.example": {"identitytoken": "s3cret"}}}"#,
            r#"{"auths": {"a.example": {"auth": "s3cret\n"}}}"#,
        ] {
            let error = credentials(config, "a.example/b:1").unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_challenge_is_read() {
        let bearer = challenge(
            r#"Bearer realm="https://a/token",service="s, t",scope="x""#,
            "bearer",
        )
        .unwrap();
        let parameters = parameters(bearer);
        assert_eq!(parameters["realm"], "https://a/token");
        assert_eq!(parameters["service"], "s, t");
        assert_eq!(challenge("Basic realm=\"a\"", "bearer"), None);
        assert!(challenge("basic", "basic").is_some());
    }
}
