//! `manifests`: the files, folders and signed bundles from which policies are read; `reload`: how
//! changed files are detected.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::files::{FileScope, with_ending};
use super::section::{ListItem, Section};
use portcullis_policy::field::{FaultKind, unsupported_value};

/// A file or folder of manifests, or a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ManifestPath {
    /// The absolute path; for a bundle, the file in which the last good bundle is kept.
    pub path: PathBuf,
    /// The only cluster to whose requests these objects apply; `None`: all clusters.
    pub cluster: Option<String>,
    /// The source of the bundle that is kept at `path`, if it is a bundle.
    pub bundle: Option<Arc<BundleSource>>,
}

/// A signed bundle of manifests in an OCI registry, and how it is pulled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BundleSource {
    /// The name that the bundle itself must have.
    pub name: String,
    /// The lowest sequence number that is accepted, even if no bundle is kept.
    pub min_sequence: u64,
    /// The reference of the bundle in the registry.
    pub reference: BundleReference,
    /// The file of public keys, as PEM, one of which must have signed the bundle.
    pub key: PathBuf,
    /// The time from one pull to the next.
    pub poll_interval: Duration,
    /// The file of certificate authorities for the registry and its token server; `None`: those
    /// that the system trusts.
    pub ca_bundle: Option<PathBuf>,
    /// The docker `config.json` with credentials for the registry, if it needs any.
    pub credentials: Option<PathBuf>,
}

/// A reference to a manifest in a registry: `registry/repository:tag` or `registry/repository@digest`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BundleReference {
    /// The host, and the port unless it is 443.
    pub registry: String,
    /// The path of the repository.
    pub repository: String,
    /// The tag, or a digest that begins with `sha256:`.
    pub version: String,
}

/// The file name of the last good bundle in the folder `cache`.
pub const KEPT_BUNDLE: &str = "bundle";

/// When files are read again, apart from file notifications and SIGHUP, and which changes are held
/// back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reload {
    /// The interval between checks for changes.
    pub poll_interval: Duration,
    /// The folder that keeps the configuration and manifests last in force, so that a restart can
    /// use them if the present ones have errors; `None`: they are not kept.
    pub last_good: Option<PathBuf>,
    /// How many Denies, validating policies and webhooks one reload may remove; `None`: any number.
    pub max_removed: Option<usize>,
    /// Whether objects that would lock out users are held back until they are confirmed
    /// (`refuse: [lockOut]`).
    pub refuses_lock_outs: bool,
}

/// The only value of `refuse`.
const LOCK_OUT: &str = "lockOut";

/// The interval at which the API server checks its own files.
const fn default_poll_interval() -> Duration {
    Duration::from_secs(60)
}

pub(crate) fn reload(root: &Section<'_>) -> Reload {
    let section = root.section("reload", &["pollInterval", "lastGood", "maxRemoved", "refuse"]);
    let refused = section.texts("refuse");
    for (index, text) in refused.iter().filter(|(_, text)| *text != LOCK_OUT) {
        let message = unsupported_value(text, &[LOCK_OUT]);
        section.fault_at("refuse", *index, FaultKind::NotSupported, message);
    }
    let last_good = section.path("lastGood");
    if !refused.is_empty() && last_good.is_none() {
        let message = "without `reload.lastGood` a restart forgets the last good version of an object that is held \
                       back: set it";
        section.warn("refuse", FaultKind::Suspicious, message);
    }
    Reload {
        refuses_lock_outs: !refused.is_empty(),
        poll_interval: section
            .positive_duration("pollInterval")
            .unwrap_or_else(default_poll_interval),
        last_good,
        max_removed: section.count("maxRemoved").filter(|most| *most > 0),
    }
}

// === impl ManifestPath ===

impl ManifestPath {
    /// The path at which a pulled bundle is stored until it has been verified.
    #[must_use]
    pub fn candidate(&self) -> Self {
        Self {
            path: with_ending(&self.path, ".candidate"),
            ..self.clone()
        }
    }

    /// Which files the entry may use. Files for a single cluster may be written by its
    /// administrators, so links must not lead out of the folder. Accesses the file system.
    #[must_use]
    pub fn scope(&self) -> FileScope {
        match (&self.cluster, self.path.parent()) {
            (None, _) => FileScope::Anywhere,
            (Some(_), Some(folder)) if !self.path.is_dir() => FileScope::below(folder),
            (Some(_), _) => FileScope::below(&self.path),
        }
    }
}

pub(crate) fn manifests(root: &Section<'_>) -> Vec<ManifestPath> {
    let (mut manifests, mut known) = (Vec::new(), HashSet::new());
    for item in root.items("manifests") {
        let Some(manifest) = manifest(&item) else { continue };
        // Otherwise two bundles would overwrite each other's file or metrics.
        let is_taken = |other: &ManifestPath| match (&manifest.bundle, &other.bundle) {
            (Some(own), Some(others)) => other.path == manifest.path || own.name == others.name,
            _ => false,
        };
        if manifests.iter().any(is_taken) {
            let message = "each bundle has a `name` and a `cache` of its own";
            item.fault(FaultKind::Duplicate, message);
        } else if !known.insert(manifest.clone()) {
            item.fault(
                FaultKind::Duplicate,
                format!("`{}` is used twice", manifest.path.display()),
            );
        }
        manifests.push(manifest);
    }
    manifests
}

fn manifest(item: &ListItem<'_>) -> Option<ManifestPath> {
    let bundle = None;
    if item.is_text() {
        let cluster = None;
        return item.path().map(|path| ManifestPath {
            path,
            cluster,
            bundle,
        });
    }
    let section = item.section(&["path", "cluster", "oci"]);
    let cluster = section.text("cluster").map(str::to_owned);
    let Some(oci) = section.optional("oci", &BUNDLE_FIELDS) else {
        let path = section.required_path("path", "a file or folder of Kubernetes YAML or JSON")?;
        return Some(ManifestPath {
            path,
            cluster,
            bundle,
        });
    };
    if section.value("path").is_some() {
        section.fault("path", FaultKind::Invalid, "either `path` or `oci`, not both");
    }
    let (cache, source) = (oci.required_path("cache", CACHE), bundle_source(&oci)?);
    Some(ManifestPath {
        path: cache?.join(KEPT_BUNDLE),
        cluster,
        bundle: Some(source.into()),
    })
}

const BUNDLE_FIELDS: [&str; 8] = [
    "reference",
    "name",
    "minSequence",
    "verify",
    "pollInterval",
    "caBundle",
    "credentials",
    "cache",
];

const CACHE: &str = "a separate folder, which keeps the last good bundle for a start without the registry";

/// Polling more often would overload the registry.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);

fn bundle_source(oci: &Section<'_>) -> Option<BundleSource> {
    let verify = oci.section("verify", &["key"]);
    let key = verify.required_path(
        "key",
        "the public key that verifies the bundle's signature, in PEM",
    );
    let poll_interval = oci
        .positive_duration("pollInterval")
        .unwrap_or_else(default_poll_interval);
    if poll_interval < MIN_POLL_INTERVAL {
        oci.fault("pollInterval", FaultKind::Invalid, "must be at least 1s");
    }
    let (ca_bundle, credentials) = (oci.path("caBundle"), oci.path("credentials"));
    let text = oci.required_text("reference", "where the bundle is: `registry/repository:tag`")?;
    let reference = BundleReference::parse(text);
    if let Err(message) = &reference {
        oci.fault("reference", FaultKind::Invalid, format!("`{text}`: {message}"));
    }
    let reference = reference.ok()?;
    let name = oci.text("name").unwrap_or(&reference.repository).to_owned();
    let min_sequence = oci.count("minSequence").unwrap_or_default();
    Some(BundleSource {
        name,
        min_sequence: u64::try_from(min_sequence).unwrap_or(u64::MAX),
        reference,
        key: key?,
        poll_interval,
        ca_bundle,
        credentials,
    })
}

/// The limits of the OCI distribution specification.
const MAX_REPOSITORY_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;

// === impl BundleReference ===

impl BundleReference {
    /// Parses `registry/repository:tag` or `registry/repository@sha256:…`. Unlike for docker, there
    /// is no default registry or tag.
    ///
    /// # Errors
    ///
    /// Why `text` is not a reference.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (registry, rest) = text.split_once('/').ok_or("names no registry")?;
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        if registry.is_empty() || !registry.bytes().all(is_host) {
            return Err("begins with the host of the registry, without a scheme");
        }
        if !registry.contains(['.', ':']) && registry != "localhost" {
            return Err("must begin with the host of the registry, such as `registry.example.com`");
        }
        let (repository, version) = match rest.split_once('@') {
            Some((repository, digest)) if is_digest(digest) => (repository, digest),
            Some(_) => return Err("the digest is `sha256:` and 64 lower-case hexadecimal digits"),
            None => rest
                .split_once(':')
                .ok_or("names no tag: add the tag that is moved with each version, such as `:stable`")?,
        };
        let is_version = is_digest(version) || is_tag(version);
        if !is_version {
            return Err("the tag has up to 128 letters, digits, `_`, `.` and `-`");
        }
        if !is_repository(repository) {
            return Err("the repository has lower-case letters, digits, `.`, `_`, `-` and `/`");
        }
        Ok(Self {
            registry: registry.to_ascii_lowercase(),
            repository: repository.to_owned(),
            version: version.to_owned(),
        })
    }
}

/// Whether `text` is the digest of a manifest or blob.
#[must_use]
pub fn is_digest(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.len() == 64 && digits.bytes().all(is_digit)
}

fn is_tag(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=MAX_TAG_BYTES).contains(&text.len()) && text.bytes().all(is_part) && !text.starts_with(['.', '-'])
}

fn is_repository(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(is_inner)
            && part.trim_matches(['.', '_', '-']).len() == part.len()
    };
    text.len() <= MAX_REPOSITORY_BYTES && text.split('/').all(is_part)
}

impl fmt::Display for BundleReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if is_digest(&self.version) { '@' } else { ':' };
        write!(f, "{}/{}{sign}{}", self.registry, self.repository, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_names_registry_repository_and_tag_or_digest() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for text in [
            "registry.example.com/policies:stable",
            "localhost/a:1",
            "[::1]:5000/a/b-c/d_e:v1.2",
            &format!("r.example:5000/a@{digest}"),
        ] {
            assert_eq!(BundleReference::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "policies:stable",
            "library/policies:stable",
            "https://registry.example.com/policies:stable",
            "user@registry.example.com/policies:stable",
            "registry.example.com/policies",
            "registry.example.com/Policies:stable",
            "registry.example.com/../policies:stable",
            "registry.example.com/a//b:stable",
            "registry.example.com/a:",
            "registry.example.com/a:b/c",
            "registry.example.com/a?b:c",
            "registry.example.com/a@sha256:0a",
            &format!("registry.example.com/a:b@{digest}"),
        ] {
            assert!(BundleReference::parse(text).is_err(), "{text}");
        }
    }
}
