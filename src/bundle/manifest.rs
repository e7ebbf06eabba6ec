//! The manifest of a bundle in an OCI registry, and what can be wrong with a bundle.
//!
//! ```text
//! artifactType  application/vnd.portcullis.policies.v1
//! layers        one, application/vnd.portcullis.policies.v1.tar+gzip
//! annotations   dev.portcullis.bundle.name      what the bundle is called
//!               dev.portcullis.bundle.sequence  a number that grows with each version
//!               org.opencontainers.image.created
//! ```
//!
//! A signature names the digest of this manifest, so that it covers name, sequence and layer. A tag is
//! no part of what is signed: the sequence alone keeps those who can move it from going back.
//!
//! Facts: `image-spec/manifest.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use openssl::sha::sha256;
use serde::{Deserialize, Serialize};

use crate::config::{BundleSource, hexadecimal, is_digest};
use portcullis_policy::model::Time;

/// `artifactType` of a bundle.
pub(crate) const ARTIFACT_TYPE: &str = "application/vnd.portcullis.policies.v1";

/// `mediaType` of its layer.
const LAYER_TYPE: &str = "application/vnd.portcullis.policies.v1.tar+gzip";

/// `mediaType` of manifests.
pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// `mediaType` of lists of manifests.
pub(crate) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";

/// `mediaType` of the configuration of what has none, which is [`EMPTY`].
const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";

/// The content of the configuration.
pub(crate) const EMPTY: &[u8] = b"{}";

const NAME: &str = "dev.portcullis.bundle.name";
const SEQUENCE: &str = "dev.portcullis.bundle.sequence";
const CREATED: &str = "org.opencontainers.image.created";

/// The most bytes of a manifest, list or signature.
pub(crate) const MAX_DOCUMENT_BYTES: usize = 1 << 20;

/// The most bytes of a layer, compressed.
pub(crate) const MAX_LAYER_BYTES: usize = 16 << 20;

/// Why a bundle is not taken.
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
    /// There is none yet.
    #[error(
        "no bundle of `{0}` has been pulled yet: `serve` pulls it when it starts and tries again until it succeeds, \
         `portcullis bundle pull --config FILE` pulls it now"
    )]
    Missing(String),
    /// What happened with the registry instead of a reply.
    #[error("{0}")]
    Registry(String),
    /// The manifest is none of a bundle.
    #[error("the manifest is not that of a bundle: {0}")]
    Manifest(String),
    /// Nobody signed it whose key is known.
    #[error("no valid signature of `{digest}` by a key in `{key}`: {reason}")]
    Unsigned {
        /// The digest of the manifest.
        digest: String,
        /// The public keys.
        key: PathBuf,
        /// What was found instead.
        reason: String,
    },
    /// It is another bundle, signed by the same key.
    #[error(
        "the bundle calls itself `{found}`, and `{expected}` is expected: correct `name`, or the reference"
    )]
    Name {
        /// What it says.
        found: String,
        /// What the configuration says.
        expected: String,
    },
    /// It is older than any that may be taken.
    #[error("its sequence {found} is lower than `minSequence`, {least}: publish a newer one")]
    Sequence {
        /// Its sequence.
        found: u64,
        /// What the configuration says.
        least: u64,
    },
    /// It is older than the one that is kept.
    #[error(
        "its sequence {found} is not higher than that of the last good bundle, {kept}: moving a tag must not bring \
         back an old version. To go back, build the old content with a higher sequence"
    )]
    Rollback {
        /// Its sequence.
        found: u64,
        /// The sequence of the one that is kept.
        kept: u64,
    },
    /// The layer is not what the manifest says, or holds what no bundle may.
    #[error("the layer cannot be used: {0}")]
    Layer(String),
    /// With it, the files of the gateway would have faults.
    #[error(
        "the last good bundle stays in force, for with this one the gateway's files would have faults:\n{0}"
    )]
    Faulty(String),
}

// === impl BundleError ===

impl BundleError {
    /// That of a file that cannot be used.
    pub(crate) fn of_file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }

    /// Whether there is a bundle, which must not be taken.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        !matches!(self, Self::File { .. } | Self::Missing(_) | Self::Registry(_))
    }
}

/// What a manifest or list refers to.
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

/// A manifest.
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

/// A list of manifests.
#[derive(Debug, Deserialize)]
pub(crate) struct ImageIndex {
    pub(crate) manifests: Vec<Descriptor>,
}

/// What the manifest of a bundle says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleManifest {
    /// Names the manifest.
    pub digest: String,
    /// What the bundle is called.
    pub name: String,
    /// Which version it is.
    pub sequence: u64,
    /// When it was built.
    pub created: Time,
    /// Where its files are.
    pub(crate) layer: Descriptor,
}

// === impl Descriptor ===

impl Descriptor {
    /// That of `content`.
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
    /// Reads a manifest.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, BundleError> {
        let refused = |reason: String| BundleError::Manifest(reason);
        let manifest: Self = serde_json::from_slice(text).map_err(|error| refused(error.to_string()))?;
        if manifest.media_type != MANIFEST_TYPE {
            return Err(refused(format!("its `mediaType` must be `{MANIFEST_TYPE}`")));
        }
        Ok(manifest)
    }

    /// That of a bundle with this `layer`.
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
    /// Reads the manifest of a bundle, which must be that of `source`.
    pub(crate) fn parse(text: &[u8], source: &BundleSource) -> Result<Self, BundleError> {
        let manifest = Self::of_any(text)?;
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

    /// Reads the manifest of a bundle of any name.
    pub(crate) fn of_any(text: &[u8]) -> Result<Self, BundleError> {
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

/// The digest of `content`, as registries write it.
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
        let read = BundleManifest::of_any(text.as_bytes()).unwrap();
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
                "not that of a bundle",
            ),
        ] {
            let changed = text.replace(from, to);
            assert_ne!(changed, text, "{from}");
            let error = BundleManifest::of_any(changed.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{from}: {error}");
        }
    }
}
