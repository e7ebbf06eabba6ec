//! The gateway's configuration file: how it is read, and the resolved [`Config`].
//!
//! ```text
//! text --document::parse--> Document --Section, one file per section--> Config
//!                                              |
//!                                              '--> every Fault of the file
//! ```
//!
//! A [`Config`] needs no further checks: paths are absolute, defaults filled in, and
//! numbers within bounds. The contents of the files that it names are checked by the
//! modules that use them, for example [`kubeconfig`].

pub mod authorizers;
mod callers;
mod clusters;
mod console;
mod decisions;
mod fallback;
pub mod files;
mod jwt;
pub mod kubeconfig;
pub(crate) mod limits;
mod manifests;
mod recording;
pub(crate) mod section;
mod server;
mod telemetry;
mod upstreams;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openssl::sha::sha256;

pub use authorizers::{AuthorizerEntry, AuthorizerTypes};
pub(crate) use callers::conflicting_cluster_message;
pub use callers::{CallerEntry, ClientCertificate, DEFAULT_CLUSTER, Endpoint, Endpoints, SanPattern};
pub use clusters::{
    AdmissionEvidence, CACHE_FILE_CHANGES, ClusterEntry, ClusterFile, ClusterFolder, Selector,
};
pub use console::Console;
pub(crate) use decisions::MISSING_NAMESPACE;
pub use decisions::{AdmissionDefaults, Authorization};
pub use fallback::{ConfigWithFallback, HeldBack, UnknownEntries, load_with_fallback};
pub use files::{Disk, FileScope, Files};
pub use jwt::Jwt;
pub(crate) use jwt::path_of_audience;
pub use kubeconfig::Secret;
pub use limits::Limits;
pub use manifests::{BundleReference, BundleSource, KEPT_BUNDLE, ManifestPath, Reload, is_digest};
pub use recording::{FileFormat, FolderBounds, PathStep, RecordingSettings, Redact};
pub(crate) use section::parse_duration;
pub use server::{Admin, ConnectionLimits, Server, Tls};
pub use telemetry::{DecisionLog, LogPath, LogTrace, SpoolBounds, Tracing};
pub use upstreams::{BreakerLimits, UpstreamAccess, Upstreams};

use clusters::ReadFolder;
use portcullis_policy::document::{self, Document};
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, Place};
use section::{ReadContext, Section};

/// `apiVersion` of the file.
pub const API_VERSION: &str = "config.portcullis.dev/v1alpha1";
/// `kind` of the file.
pub const KIND: &str = "GatewayConfiguration";

/// A GatewayConfiguration, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file that it was read from, as the user named it.
    pub file: PathBuf,
    /// The content of the file.
    pub text: Arc<str>,
    /// The listener for reviews.
    pub server: Server,
    /// The listener for probes and metrics.
    pub admin: Admin,
    /// The web console, if it is enabled.
    pub console: Option<Console>,
    /// The clients that may send reviews.
    pub callers: Vec<CallerEntry>,
    /// The files, folders and bundles that policies and other objects are read from.
    pub manifests: Vec<ManifestPath>,
    /// The API servers from which further objects are watched.
    pub clusters: Vec<ClusterEntry>,
    /// The folder of cluster files, if `clusters` names one.
    pub cluster_folder: Option<ClusterFolder>,
    /// Settings for authorization that are not objects, such as `neverDeny`.
    pub authorization: Authorization,
    /// Settings for admission that are not objects, such as the CEL version.
    pub admission: AdmissionDefaults,
    /// How to call webhooks behind the gateway.
    pub upstreams: Upstreams,
    /// Bounds of concurrent work, sizes and times.
    pub limits: Limits,
    /// How file changes are detected.
    pub reload: Reload,
    /// Where decision log lines are written, if anywhere.
    pub decision_log: Option<DecisionLog>,
    /// Where reviews are recorded with their content, if anywhere.
    pub recording: Option<RecordingSettings>,
    /// Where hourly counts of decisions are written, if anywhere.
    pub usage: Option<FolderBounds>,
    /// Which requests are traced, if any.
    pub tracing: Option<Tracing>,
}

/// Reads the configuration at `path`, and reports all of its errors and warnings. There is no
/// [`Config`] if there is an error.
#[must_use]
pub fn load(path: &Path) -> (Option<Config>, Faults) {
    load_from(&Disk, path)
}

/// Like [`load`], but reads from `files`.
#[must_use]
pub fn load_from(files: &dyn Files, path: &Path) -> (Option<Config>, Faults) {
    let unreadable = |message: String| {
        let place = Place::of_file(path);
        (
            None,
            single_fault(Fault::error(place, FaultKind::Unreadable, message)),
        )
    };
    let bytes = match files.read(path) {
        Ok(bytes) => bytes,
        Err(error) => return unreadable(error.to_string()),
    };
    let Ok(text) = String::from_utf8(bytes) else {
        return unreadable("not UTF-8".into());
    };
    match std::path::absolute(path) {
        Ok(absolute) => parse(path, &text, absolute.parent().unwrap_or(&absolute)),
        Err(error) => unreadable(error.to_string()),
    }
}

/// The valid parts of a configuration that has errors.
#[derive(Debug, Default)]
pub struct ValidParts {
    /// The configuration without the faulty parts; `None` if the section `server` is invalid.
    pub config: Option<Config>,
    /// The entries of `manifests`, if they can be read.
    pub manifests: Vec<ManifestPath>,
}

/// Like [`load`], but returns the valid parts even if there are errors, so that one run of `check`
/// can also report the errors of the files that the configuration names. The server must not use
/// the result.
#[must_use]
pub fn load_valid_parts(path: &Path) -> (ValidParts, Faults) {
    let (config, faults) = load(path);
    if let Some(config) = config {
        let manifests = config.manifests.clone();
        let config = Some(config);
        return (ValidParts { config, manifests }, faults);
    }
    (examine_faulty(path).unwrap_or_default(), faults)
}

fn examine_faulty(path: &Path) -> Option<ValidParts> {
    let text = String::from_utf8(Disk.read(path).ok()?).ok()?;
    let absolute = std::path::absolute(path).ok()?;
    // Sections keep their places for errors that are found later.
    let documents = document::parse(Some(&path.display().to_string()), &text).ok()?;
    let reading = ReadContext::new(documents.first()?, absolute.parent()?);
    let root = reading.root(&FIELDS);
    Some(ValidParts {
        config: sections(path, &text, &root, &clusters::read_folder),
        manifests: manifests::manifests(&root),
    })
}

/// The path of the last good files (`reload.lastGood`) in the configuration at `path`, even if
/// other parts of it have errors. `None` if the field is absent or the file cannot be read.
///
/// # Errors
///
/// The file is not valid YAML.
pub fn last_good(path: &Path) -> Result<Option<PathBuf>, Fault> {
    let last_good = read_root(path, |root| manifests::reload(root).last_good)?;
    Ok(last_good.flatten())
}

/// The entries of `manifests` in the configuration at `path`, even if other parts of it have
/// errors; empty if it cannot be read.
#[must_use]
pub fn manifests_at(path: &Path) -> Vec<ManifestPath> {
    let manifests = read_root(path, manifests::manifests).ok().flatten();
    manifests.unwrap_or_default()
}

/// Applies `read` to the root of the configuration at `path`; `None` if the file cannot be read.
fn read_root<T>(path: &Path, read: impl FnOnce(&Section<'_>) -> T) -> Result<Option<T>, Fault> {
    let (Ok(bytes), Ok(absolute)) = (Disk.read(path), std::path::absolute(path)) else {
        return Ok(None);
    };
    let documents = document::parse(None, &String::from_utf8_lossy(&bytes))?;
    let (Some(document), Some(folder)) = (documents.first(), absolute.parent()) else {
        return Ok(None);
    };
    let reading = ReadContext::new(document, folder);
    Ok(Some(read(&reading.root(&FIELDS))))
}

/// Parses `text`, the content of `file`. Relative paths are resolved against `folder`. If
/// `clusters` names a folder, its files are read from the disk.
#[must_use]
pub fn parse(file: &Path, text: &str, folder: &Path) -> (Option<Config>, Faults) {
    parse_with(file, text, folder, &clusters::read_folder)
}

/// Like [`parse`], with `cluster_files` in place of the files of the folder that `clusters` names.
#[must_use]
pub fn parse_saved(
    file: &Path,
    text: &str,
    folder: &Path,
    cluster_files: &[ClusterFile],
) -> (Option<Config>, Faults) {
    parse_with(file, text, folder, &|_| (cluster_files.to_vec(), Faults::new()))
}

fn parse_with(
    file: &Path,
    text: &str,
    folder: &Path,
    read_folder: ReadFolder<'_>,
) -> (Option<Config>, Faults) {
    let name = file.display().to_string();
    let documents = match document::parse(Some(&name), text) {
        Ok(documents) => documents,
        Err(fault) => return (None, single_fault(fault)),
    };
    let place = Place {
        file: Some(name.into()),
        ..Place::default()
    };
    match documents.as_slice() {
        [document] => match other_kind(document) {
            Some(fault) => (None, single_fault(fault)),
            None => resolve(file, text, document, folder, read_folder),
        },
        [] => (
            None,
            single_fault(Fault::error(
                place,
                FaultKind::Required,
                format!("the file contains no {KIND}"),
            )),
        ),
        [first, second, ..] => {
            let place = second.place(FieldPath::root());
            let too_many = || {
                Fault::error(
                    place,
                    FaultKind::TooMany,
                    format!("a file may contain only one {KIND}"),
                )
            };
            (None, single_fault(other_kind(first).unwrap_or_else(too_many)))
        }
    }
}

/// An error if `document` is an object of another group. No further errors are reported then.
fn other_kind(document: &Document) -> Option<Fault> {
    let (api_version, kind) = (document.text("apiVersion")?, document.text("kind")?);
    let is_own = kind == KIND || api_version.starts_with("config.portcullis.dev/");
    (!is_own).then(|| {
        let place = document.place(FieldPath::root().field("kind"));
        let message = format!(
            "a {kind} of {api_version} is not a {KIND}: name manifests with `--manifests`, or for `check` \
            without an option"
        );
        Fault::error(place, FaultKind::NotSupported, message)
    })
}

fn single_fault(fault: Fault) -> Faults {
    let mut faults = Faults::new();
    faults.push(fault);
    faults
}

const FIELDS: [&str; 17] = [
    "apiVersion",
    "kind",
    "server",
    "admin",
    "console",
    "callers",
    "manifests",
    "authorization",
    "admission",
    "upstreams",
    "clusters",
    "limits",
    "reload",
    "decisionLog",
    "usage",
    "recording",
    "tracing",
];

fn resolve(
    file: &Path,
    text: &str,
    document: &Document,
    folder: &Path,
    read_folder: ReadFolder<'_>,
) -> (Option<Config>, Faults) {
    let reading = ReadContext::new(document, folder);
    let config = sections(file, text, &reading.root(&FIELDS), read_folder);
    let faults = reading.into_faults();
    (config.filter(|_| !faults.has_errors()), faults)
}

/// Reads every section, even if others have errors.
fn sections(file: &Path, text: &str, root: &Section<'_>, read_folder: ReadFolder<'_>) -> Option<Config> {
    type_meta(root);
    let server = server::server(root);
    let admin = server::admin(root, server.as_ref());
    let callers = callers::callers(root, server.as_ref());
    let console = console::console(root, server.as_ref(), &admin, &callers);
    let manifests = manifests::manifests(root);
    let (clusters, cluster_folder) = clusters::clusters(root, read_folder);
    let admission = decisions::admission(root);
    let authorization = decisions::authorization(root, admission.cel_version);
    let upstreams = upstreams::upstreams(root);
    let limits = limits::limits(root);
    let reload = manifests::reload(root);
    let decision_log = telemetry::decision_log(root, &manifests);
    let usage = recording::usage(root, &manifests);
    let recording = recording::recording(root, &manifests);
    let tracing = telemetry::tracing(root, &manifests);
    Some(Config {
        file: file.to_owned(),
        text: text.into(),
        server: server?,
        admin,
        console,
        callers,
        manifests,
        clusters,
        cluster_folder,
        authorization,
        admission,
        upstreams,
        limits,
        reload,
        decision_log,
        usage,
        recording,
        tracing,
    })
}

fn type_meta(root: &Section<'_>) {
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let text = root.required_text(field, expected);
        if text.is_some_and(|text| text != expected) {
            root.fault(field, FaultKind::NotSupported, format!("must be `{expected}`"));
        }
    }
}

/// `bytes` as lower-case hexadecimal digits.
pub(crate) fn hexadecimal<'b>(bytes: impl IntoIterator<Item = &'b u8>) -> String {
    let mut digits = String::new();
    for byte in bytes {
        let _infallible = write!(digits, "{byte:02x}");
    }
    digits
}

// === impl Config ===

impl Config {
    /// The name of this gateway in the header `Via`: the same for all replicas with this
    /// configuration, and different for every other configuration.
    #[must_use]
    pub fn pseudonym(&self) -> String {
        let digest = sha256(self.text.as_bytes());
        format!("portcullis-{}", hexadecimal(digest.iter().take(8)))
    }

    /// The contents of the configuration file and of the cluster files.
    pub fn contents(&self) -> impl Iterator<Item = &str> {
        let of_clusters = self.cluster_folder.iter().flat_map(|folder| &folder.files);
        iter::once(&*self.text).chain(of_clusters.map(|file| file.text.as_str()))
    }

    /// The files on which the configuration depends: itself, the cluster files, and the files of
    /// the listeners' certificates and of bundles. The files of callers are listed by
    /// [`crate::identity::Authenticator::files`].
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let tls = &self.server.tls;
        let mut files = vec![
            self.file.clone(),
            tls.certificate.clone(),
            tls.private_key.clone(),
        ];
        files.extend(tls.client_ca.clone());
        let console = self.console.as_ref().and_then(|console| console.tls.as_ref());
        if let Some(tls) = console {
            files.extend([tls.certificate.clone(), tls.private_key.clone()]);
        }
        let of_clusters = self.cluster_folder.iter().flat_map(|folder| &folder.files);
        files.extend(of_clusters.map(|file| file.path.clone()));
        for (source, _) in self.bundles() {
            files.push(source.key.clone());
            files.extend(
                [&source.ca_bundle, &source.credentials]
                    .into_iter()
                    .flatten()
                    .cloned(),
            );
        }
        files
    }

    /// Reads the bundle of `candidate` from its path, instead of from the copy that is kept.
    pub(crate) fn replace_bundle(&mut self, candidate: &ManifestPath) {
        let bundles = self.manifests.iter_mut();
        for entry in bundles.filter(|entry| entry.bundle == candidate.bundle) {
            *entry = candidate.clone();
        }
    }

    /// The entries of `manifests` that are bundles, with their sources.
    pub fn bundles(&self) -> impl Iterator<Item = (&BundleSource, &ManifestPath)> {
        self.manifests
            .iter()
            .filter_map(|entry| Some((entry.bundle.as_deref()?, entry)))
    }

    /// How the webhooks that are watched in the cluster of `entry` are called. With `None`, they are
    /// called without credentials, and not at addresses that `allowedAddresses` must list.
    #[must_use]
    pub fn upstreams_of<'c>(&'c self, entry: &'c ClusterEntry) -> Option<&'c UpstreamAccess> {
        let own = entry.upstreams.as_ref();
        own.or_else(|| (entry.name == DEFAULT_CLUSTER).then_some(&self.upstreams.access))
    }

    /// The tenant's folder that contains the file of `entry`: a direct subfolder of the folder that
    /// `clusters` names, whose files are all written by one tenant.
    #[must_use]
    pub fn tenant_of(&self, entry: &ClusterEntry) -> Option<PathBuf> {
        let (folder, file) = (self.cluster_folder.as_ref()?, entry.place.file.as_deref()?);
        clusters::tenant_of(&folder.path, Path::new(file))
    }

    /// Whether a caller of `cluster` sends tokens that are verified with the keys that its API
    /// server publishes.
    #[must_use]
    pub fn uses_published_keys(&self, cluster: &str) -> bool {
        let tokens = |caller: &CallerEntry| {
            let token = caller.webhook_token.as_ref();
            caller.cluster == cluster && token.is_some_and(|token| token.jwks.is_none())
        };
        self.callers.iter().any(tokens)
    }

    /// The kubeconfigs of all callers, without duplicates.
    #[must_use]
    pub fn caller_kubeconfigs(&self) -> BTreeSet<&Path> {
        let named = self
            .callers
            .iter()
            .filter_map(|entry| entry.kubeconfig.as_deref());
        named.collect()
    }

    /// Checks that there is a caller. `check` and the offline commands work without callers, but a
    /// server without callers is a mistake.
    ///
    /// # Errors
    ///
    /// The error to report if there is no caller.
    pub fn require_callers(&self) -> Result<(), Fault> {
        if !self.callers.is_empty() {
            return Ok(());
        }
        let file: Arc<str> = self.file.display().to_string().into();
        let place = Place {
            file: Some(file),
            ..Place::default()
        }
        .at(FieldPath::root().field("callers"));
        Err(Fault::error(
            place,
            FaultKind::Required,
            "without an entry nobody may call the gateway: add at least one caller",
        ))
    }
}

#[cfg(test)]
mod tests;
