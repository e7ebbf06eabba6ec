//! The manifest of a bundle in an OCI registry, and the errors of bundles.
//!
//! ```text
//! artifactType  application/vnd.portcullis.policies.v1
//! layers        one, application/vnd.portcullis.policies.v1.tar+gzip
//! annotations   dev.portcullis.bundle.name      the name of the bundle
//!               dev.portcullis.bundle.sequence  a number that grows with each version
//!               org.opencontainers.image.created
//! ```
//!
//! A signature is made for the digest of this manifest, so that it covers name, sequence and layer.
//! It does not cover the tag: only the sequence prevents someone who can move the tag from bringing
//! back an old version.
//!
//! It follows `image-spec/manifest.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use openssl::sha::sha256;
use serde::{Deserialize, Serialize};

use crate::config::{BundleSource, hexadecimal, is_digest};
use portcullis_policy::model::Time;

/// `artifactType` of a bundle.
pub(crate) const ARTIFACT_TYPE: &str = "application/vnd.portcullis.policies.v1";

/// `mediaType` of the layer of a bundle.
const LAYER_TYPE: &str = "application/vnd.portcullis.policies.v1.tar+gzip";

/// `mediaType` of manifests.
pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// `mediaType` of an image index, which lists manifests.
pub(crate) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";

/// `mediaType` of the configuration of an artifact that has none, which is [`EMPTY`].
const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";

/// The content of the empty configuration.
pub(crate) const EMPTY: &[u8] = b"{}";

const NAME: &str = "dev.portcullis.bundle.name";
const SEQUENCE: &str = "dev.portcullis.bundle.sequence";
const CREATED: &str = "org.opencontainers.image.created";

/// The most bytes of a manifest, index or signature.
pub(crate) const MAX_DOCUMENT_BYTES: usize = 1 << 20;

/// The most bytes of a compressed layer.
pub(crate) const MAX_LAYER_BYTES: usize = 16 << 20;

/// Why a bundle is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// A file that the configuration names cannot be used.
    #[error("`{path}`: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No bundle was pulled yet.
    #[error(
        "no bundle of `{0}` has been pulled yet: `serve` pulls it when it starts and tries again until it succeeds, \
         `portcullis bundle pull --config FILE` pulls it now"
    )]
    Missing(String),
    /// The registry did not reply as expected.
    #[error("{0}")]
    Registry(String),
    /// The manifest is not that of a bundle.
    #[error("the manifest is not one of a bundle: {0}")]
    Manifest(String),
    /// The manifest has no valid signature by one of the keys.
    #[error("no valid signature of `{digest}` by a key in `{key}`: {reason}")]
    Unsigned {
        /// The digest of the manifest.
        digest: String,
        /// The file of public keys.
        key: PathBuf,
        /// Why the signatures that were found are not valid.
        reason: String,
    },
    /// It is another bundle, signed with the same key.
    #[error("the name of the bundle is `{found}`, not `{expected}`: correct `name`, or the reference")]
    Name {
        /// The name in the manifest.
        found: String,
        /// The name in the configuration.
        expected: String,
    },
    /// Its sequence is lower than `minSequence`.
    #[error("its sequence {found} is lower than `minSequence`, {least}: publish a newer one")]
    Sequence {
        /// The sequence in the manifest.
        found: u64,
        /// `minSequence` in the configuration.
        least: u64,
    },
    /// Its sequence is not higher than that of the kept bundle.
    #[error(
        "its sequence {found} is not higher than that of the last good bundle, {kept}: moving a tag must not bring \
         back an old version. To go back, build the old content with a higher sequence"
    )]
    Rollback {
        /// The sequence in the manifest.
        found: u64,
        /// The sequence of the kept bundle.
        kept: u64,
    },
    /// The layer is not the one in the manifest, or contains something that is not allowed.
    #[error("the layer is not valid: {0}")]
    Layer(String),
    /// With this bundle, the manifests of the gateway would have errors.
    #[error(
        "the last good bundle stays in force, because with this one the gateway's files would have \
        errors:\n{0}"
    )]
    Faulty(String),
}

// === impl BundleError ===

impl BundleError {
    /// The error of a file that cannot be used.
    pub(crate) fn of_file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }

    /// Whether a bundle was found, but must not be used.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        !matches!(self, Self::File { .. } | Self::Missing(_) | Self::Registry(_))
    }
}

/// A reference from a manifest or index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    pub(crate) digest: String,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// An OCI image manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ImageManifest {
    schema_version: u32,
    media_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

/// An OCI image index.
#[derive(Debug, Deserialize)]
pub(crate) struct ImageIndex {
    pub(crate) manifests: Vec<Descriptor>,
}

/// The relevant contents of the manifest of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleManifest {
    /// The digest of the manifest.
    pub digest: String,
    /// The name of the bundle.
    pub name: String,
    /// The number of its version.
    pub sequence: u64,
    /// When it was built.
    pub created: Time,
    /// The layer with its files.
    pub(crate) layer: Descriptor,
}

// === impl Descriptor ===

impl Descriptor {
    /// The descriptor of `content`.
    pub(crate) fn of(media_type: &str, content: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: digest(content),
            size: content.len() as u64,
            ..Self::default()
        }
    }
}

// === impl ImageManifest ===

impl ImageManifest {
    /// Parses a manifest.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, BundleError> {
        let refused = |reason: String| BundleError::Manifest(reason);
        let manifest: Self = serde_json::from_slice(text).map_err(|error| refused(error.to_string()))?;
        if manifest.media_type != MANIFEST_TYPE {
            return Err(refused(format!("its `mediaType` must be `{MANIFEST_TYPE}`")));
        }
        Ok(manifest)
    }

    /// The manifest of a bundle with this `layer`.
    pub(crate) fn of_bundle(name: &str, sequence: u64, created: Time, layer: &[u8]) -> Self {
        let annotation = |name: &str, value: String| (name.to_owned(), value);
        Self {
            schema_version: 2,
            media_type: MANIFEST_TYPE.to_owned(),
            artifact_type: Some(ARTIFACT_TYPE.to_owned()),
            config: Descriptor::of(EMPTY_TYPE, EMPTY),
            layers: vec![Descriptor::of(LAYER_TYPE, layer)],
            annotations: BTreeMap::from([
                annotation(NAME, name.to_owned()),
                annotation(SEQUENCE, sequence.to_string()),
                annotation(CREATED, created.to_string()),
            ]),
        }
    }
}

// === impl BundleManifest ===

impl BundleManifest {
    /// Parses the manifest of a bundle, whose name and sequence must be allowed by `source`.
    pub(crate) fn parse(text: &[u8], source: &BundleSource) -> Result<Self, BundleError> {
        let manifest = Self::parse_unchecked(text)?;
        if manifest.name != source.name {
            return Err(BundleError::Name {
                found: manifest.name,
                expected: source.name.clone(),
            });
        }
        if manifest.sequence < source.min_sequence {
            return Err(BundleError::Sequence {
                found: manifest.sequence,
                least: source.min_sequence,
            });
        }
        Ok(manifest)
    }

    /// Parses the manifest of a bundle with any name and sequence.
    pub(crate) fn parse_unchecked(text: &[u8]) -> Result<Self, BundleError> {
        let refused = |reason: &str| BundleError::Manifest(reason.to_owned());
        let manifest = ImageManifest::parse(text)?;
        if manifest.artifact_type.as_deref() != Some(ARTIFACT_TYPE) {
            return Err(refused(&format!("its `artifactType` must be `{ARTIFACT_TYPE}`")));
        }
        let annotation = |name: &str| {
            let value = manifest.annotations.get(name).map(String::as_str);
            value.ok_or_else(|| refused(&format!("it has no annotation `{name}`")))
        };
        let sequence = annotation(SEQUENCE)?.parse().ok();
        let created = Time::parse(annotation(CREATED)?);
        let name = annotation(NAME)?.to_owned();
        let Ok([layer]) = <[Descriptor; 1]>::try_from(manifest.layers.clone()) else {
            return Err(refused("it must have one layer"));
        };
        if layer.media_type != LAYER_TYPE || !is_digest(&layer.digest) {
            return Err(refused(&format!(
                "its layer must be of type `{LAYER_TYPE}`, with a digest of SHA-256"
            )));
        }
        if layer.size > MAX_LAYER_BYTES as u64 {
            return Err(refused(&format!(
                "its layer has more than {MAX_LAYER_BYTES} bytes"
            )));
        }
        Ok(Self {
            digest: digest(text),
            name,
            sequence: sequence.ok_or_else(|| refused(&format!("`{SEQUENCE}` must be a whole number")))?,
            created: created.ok_or_else(|| refused(&format!("`{CREATED}` must be a time of RFC 3339")))?,
            layer,
        })
    }
}

/// The digest of `content` in the form of registries.
pub(crate) fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hexadecimal(&sha256(content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_manifest_of_a_bundle_is_read() {
        let created = Time::parse("2026-11-27T10:00:00Z").unwrap();
        let manifest = ImageManifest::of_bundle("policies", 7, created, b"layer");
        let text = serde_json::to_string(&manifest).unwrap();
        let read = BundleManifest::parse_unchecked(text.as_bytes()).unwrap();
        assert_eq!(
            (read.name.as_str(), read.sequence, read.created, &read.digest),
            ("policies", 7, created, &digest(text.as_bytes()))
        );
        for (from, to, expected) in [
            (
                ARTIFACT_TYPE,
                "application/vnd.other.v1",
                "`artifactType` must be",
            ),
            (
                LAYER_TYPE,
                "application/vnd.other.tar",
                "its layer must be of type",
            ),
            (MANIFEST_TYPE, INDEX_TYPE, "`mediaType` must be"),
            (r#""7""#, r#""-7""#, "must be a whole number"),
            (r#""7""#, r#""99999999999999999999""#, "must be a whole number"),
            (
                SEQUENCE,
                "other",
                "no annotation `dev.portcullis.bundle.sequence`",
            ),
            (NAME, "other", "no annotation `dev.portcullis.bundle.name`"),
            ("2026-11-27", "yesterday", "must be a time of RFC 3339"),
            (r#""size":5"#, r#""size":16777217"#, "more than 16777216 bytes"),
            (r#""size":5"#, r#""size":-5"#, "invalid value"),
            (
                r#"{"schemaVersion""#,
                r#"[{"schemaVersion""#,
                "not one of a bundle",
            ),
        ] {
            let changed = text.replace(from, to);
            assert_ne!(changed, text, "{from}");
            let error = BundleManifest::parse_unchecked(changed.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{from}: {error}");
        }
    }
}
