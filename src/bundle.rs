//! Signed bundles: manifests as an artifact in an OCI registry, shared by any number of gateways.
//!
//! ```text
//! registry ─▶ manifest ─▶ signature ─▶ name, sequence ─▶ layer ─▶ files       pull
//!                                                                  │ valid with the other manifests
//!             cache/bundle ◀───────────────────────────────────────┘          state
//!                  └─▶ the same checks again ─▶ files                         each load
//! ```
//!
//! Nothing in a bundle is used before its signature is verified, and no layer is downloaded for a
//! manifest without a valid signature. The bundle kept on disk is verified again whenever it is
//! read, so write access to its folder does not suffice to load an unsigned bundle. It does suffice
//! to restore an older signed one, or to remove the kept one and with it the sequence that the next
//! must exceed. Therefore the folder belongs to the gateway's user, and `minSequence` in the
//! configuration is a bound that does not depend on that folder.

mod archive;
mod credentials;
mod manifest;
mod registry;
mod signature;

use std::future::Future;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;
use std::{fs, str};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::runtime::{self, Runtime};
use tokio::time::timeout;

use crate::config::{BundleReference, BundleSource, Config, files, is_digest};
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, Place};
use portcullis_policy::model::Time;

pub use archive::BundleFile;
#[cfg(fuzzing)]
pub use archive::fuzz;
pub use manifest::{BundleError, BundleManifest};
pub use registry::{Registry, RegistryAccess};
pub use signature::BundleSignature;

use manifest::{ARTIFACT_TYPE, Descriptor, EMPTY, INDEX_TYPE, ImageIndex, ImageManifest, MANIFEST_TYPE};
use manifest::{MAX_DOCUMENT_BYTES, MAX_LAYER_BYTES};
use signature::VerifyKeys;

/// The longest time to pull or push a bundle.
const MAX_TIME: Duration = Duration::from_secs(60);

const API_VERSION: &str = "portcullis.dev/v1alpha1";
const KIND: &str = "KeptBundle";

/// A bundle whose signature, name and digests were verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The contents of its manifest.
    pub manifest: BundleManifest,
    /// The signature that was verified: its key and format.
    pub signature: BundleSignature,
    /// The files in the layer, in their order.
    pub files: Vec<BundleFile>,
    /// The signed manifest, byte for byte.
    text: String,
    layer: Vec<u8>,
}

/// A bundle without signature: a layer, and the manifest that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsignedBundle {
    /// The manifest, as JSON.
    pub manifest: String,
    /// The archive of its files.
    pub layer: Vec<u8>,
}

/// The first line of the file in which a bundle is kept. The layer follows.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KeptHeader {
    api_version: String,
    kind: String,
    manifest: String,
    signature: BundleSignature,
}

/// The runtime for pulling and pushing.
///
/// # Errors
///
/// The operating system does not provide what the runtime needs.
pub fn runtime() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

/// Runs `work` with a registry, for one minute at most.
///
/// # Errors
///
/// Those of `work`, or that it took too long.
pub async fn with_timeout<T>(work: impl Future<Output = Result<T, BundleError>>) -> Result<T, BundleError> {
    let late = |_| BundleError::Registry(format!("the registry took longer than {MAX_TIME:?}"));
    timeout(MAX_TIME, work).await.map_err(late)?
}

/// Pulls the newest bundle of `source`; `None` if it is the one in `kept`.
///
/// # Errors
///
/// There is no bundle, or it must not be used: it is not signed by a key of `source`, its name or
/// content is not the signed one, or its sequence is not higher than that of `kept`.
pub async fn pull(
    source: &BundleSource,
    kept: Option<&BundleManifest>,
) -> Result<Option<Bundle>, BundleError> {
    let keys = VerifyKeys::read(&source.key)?;
    let (ca_bundle, credentials) = (source.ca_bundle.as_deref(), source.credentials.as_deref());
    let mut registry = Registry::new(&source.reference, RegistryAccess::Pull, ca_bundle, credentials)?;
    let text = registry.manifest(&source.reference.version).await?;
    let text = text.ok_or_else(|| BundleError::Registry(format!("there is no `{}`", source.reference)))?;
    let digest = manifest::digest(&text);
    if kept.is_some_and(|kept| kept.digest == digest) {
        return Ok(None);
    }
    let signature = keys.first_valid(&digest, registry.signatures(&digest).await?)?;
    let manifest = BundleManifest::parse(&text, source)?;
    if let Some(kept) = kept.filter(|kept| manifest.sequence <= kept.sequence) {
        return Err(BundleError::Rollback {
            found: manifest.sequence,
            kept: kept.sequence,
        });
    }
    let layer = registry.blob(&manifest.layer).await?;
    Bundle::new(&text, manifest, signature, layer.into()).map(Some)
}

/// The errors in the files (keys, CA bundles, credentials) of the bundles in `config`.
pub(crate) fn file_faults(config: &Config) -> Faults {
    let place = Place::of_file(&config.file).at(FieldPath::root().field("manifests"));
    let mut faults = Faults::new();
    for (source, _) in config.bundles() {
        let registry = |ca_bundle, credentials| {
            Registry::new(&source.reference, RegistryAccess::Pull, ca_bundle, credentials).err()
        };
        let errors = VerifyKeys::read(&source.key)
            .err()
            .into_iter()
            .chain(registry(source.ca_bundle.as_deref(), None))
            .chain(registry(None, source.credentials.as_deref()));
        faults.extend(errors.map(|error| Fault::error(place.clone(), FaultKind::Invalid, error.to_string())));
    }
    faults
}

// === impl Bundle ===

impl Bundle {
    fn new(
        text: &[u8],
        manifest: BundleManifest,
        signature: BundleSignature,
        layer: Vec<u8>,
    ) -> Result<Self, BundleError> {
        let text = str::from_utf8(text).map_err(|error| BundleError::Manifest(error.to_string()))?;
        Ok(Self {
            files: archive::unpack(&layer)?,
            manifest,
            signature,
            text: text.to_owned(),
            layer,
        })
    }

    /// Reads the bundle kept at `path`, and verifies it as after a pull. Blocks.
    ///
    /// # Errors
    ///
    /// There is no bundle, or no key of `source` signed it.
    pub fn kept(source: &BundleSource, path: &Path) -> Result<Self, BundleError> {
        let refused = |reason: String| BundleError::File {
            path: path.to_owned(),
            reason: format!("{reason}; remove it, and the gateway pulls the bundle again"),
        };
        let content = match files::read(path, 2 * MAX_DOCUMENT_BYTES + MAX_LAYER_BYTES) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(BundleError::Missing(source.reference.to_string()));
            }
            Err(error) => return Err(refused(error.to_string())),
        };
        let end = content.iter().position(|byte| *byte == b'\n');
        let (header, layer) = content.split_at(end.unwrap_or_default());
        let header: KeptHeader =
            serde_json::from_slice(header).map_err(|_| refused("is not a cached bundle".to_owned()))?;
        if header.api_version != API_VERSION || header.kind != KIND {
            return Err(refused("another version of Portcullis wrote it".to_owned()));
        }
        let text = header.manifest.as_bytes();
        // The keys that are trusted now count, not the key at the time of the pull.
        let keys = VerifyKeys::read(&source.key)?;
        let signature = keys.first_valid(&manifest::digest(text), [header.signature])?;
        let manifest = BundleManifest::parse(text, source)?;
        let layer = layer.get(1..).unwrap_or_default();
        if manifest::digest(layer) != manifest.layer.digest {
            return Err(refused("its layer differs from the signed one".to_owned()));
        }
        Self::new(text, manifest, signature, layer.to_owned())
    }

    /// Writes the bundle to `path`, replacing an earlier one. Blocks.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn keep(&self, path: &Path) -> Result<(), BundleError> {
        let header = KeptHeader {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            manifest: self.text.clone(),
            signature: self.signature.clone(),
        };
        let written = files::replace(path, |file| {
            serde_json::to_writer(&mut *file, &header)?;
            file.write_all(b"\n")?;
            file.write_all(&self.layer)
        });
        written.map_err(|error| BundleError::File {
            path: path.to_owned(),
            reason: files::describe(&error),
        })
    }
}

// === impl UnsignedBundle ===

impl UnsignedBundle {
    /// Builds the bundle of `files` with this name and sequence. The same arguments give the same
    /// bytes.
    ///
    /// # Errors
    ///
    /// A path is not allowed in a bundle, or the files are too large.
    pub fn build(
        name: &str,
        sequence: u64,
        created: Time,
        files: &[BundleFile],
    ) -> Result<Self, BundleError> {
        let layer = archive::pack(files)?;
        let manifest = ImageManifest::of_bundle(name, sequence, created.whole_seconds(), &layer);
        let manifest =
            serde_json::to_string(&manifest).map_err(|error| BundleError::Manifest(error.to_string()))?;
        Self::read(manifest, layer)
    }

    /// The bundle with this manifest and layer.
    ///
    /// # Errors
    ///
    /// The manifest is invalid or names another layer, or the layer cannot be unpacked.
    fn read(manifest: String, layer: Vec<u8>) -> Result<Self, BundleError> {
        let parsed = BundleManifest::parse_unchecked(manifest.as_bytes())?;
        if manifest::digest(&layer) != parsed.layer.digest {
            return Err(BundleError::Layer(
                "its digest differs from the one in the manifest".to_owned(),
            ));
        }
        archive::unpack(&layer)?;
        Ok(Self { manifest, layer })
    }

    /// Pushes the bundle to a registry, and returns the digest to sign.
    ///
    /// # Errors
    ///
    /// The reference names a digest instead of a tag, or the registry rejects the push.
    pub async fn push(
        &self,
        registry: &mut Registry,
        reference: &BundleReference,
    ) -> Result<String, BundleError> {
        if is_digest(&reference.version) {
            return Err(BundleError::Registry(format!(
                "`{reference}` names a digest: push to a tag"
            )));
        }
        registry.push_blob(EMPTY).await?;
        registry.push_blob(&self.layer).await?;
        registry
            .push_manifest(&reference.version, self.manifest.as_bytes())
            .await?;
        Ok(manifest::digest(self.manifest.as_bytes()))
    }

    /// Writes the bundle into the folder `to` as an OCI image layout, which other tools can copy
    /// too.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write_layout(&self, to: &Path) -> io::Result<()> {
        let manifest = Descriptor {
            artifact_type: Some(ARTIFACT_TYPE.to_owned()),
            ..Descriptor::of(MANIFEST_TYPE, self.manifest.as_bytes())
        };
        let index = json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [manifest]});
        fs::create_dir_all(to.join("blobs/sha256"))?;
        for blob in [EMPTY, &self.layer, self.manifest.as_bytes()] {
            fs::write(to.join(blob_path(&manifest::digest(blob))), blob)?;
        }
        fs::write(to.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        fs::write(to.join(LAYOUT_INDEX), index.to_string())
    }

    /// Reads the bundle from a folder that is an OCI image layout.
    ///
    /// # Errors
    ///
    /// The folder contains no valid bundle.
    pub fn read_layout(folder: &Path) -> Result<Self, BundleError> {
        let read = |name: &str, most: usize| {
            let path = folder.join(name);
            files::read(&path, most).map_err(|error| BundleError::File {
                path,
                reason: error.to_string(),
            })
        };
        let refused = |reason: &str| BundleError::Manifest(reason.to_owned());
        let index: Option<ImageIndex> = serde_json::from_slice(&read(LAYOUT_INDEX, MAX_DOCUMENT_BYTES)?).ok();
        let digest = match index.as_ref().map(|index| index.manifests.as_slice()) {
            Some([manifest]) if is_digest(&manifest.digest) => &manifest.digest,
            _ => return Err(refused("the index of the layout must name one manifest")),
        };
        let manifest = String::from_utf8(read(&blob_path(digest), MAX_DOCUMENT_BYTES)?)
            .map_err(|_| refused("it is not UTF-8"))?;
        let layer = BundleManifest::parse_unchecked(manifest.as_bytes())?.layer;
        Self::read(manifest, read(&blob_path(&layer.digest), MAX_LAYER_BYTES)?)
    }
}

/// The file of an image layout that names its manifests.
const LAYOUT_INDEX: &str = "index.json";

fn blob_path(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}
