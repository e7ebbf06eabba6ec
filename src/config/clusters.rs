//! `clusters`: the API servers from which objects are watched. They are listed in the
//! configuration, or in a folder with one file for each, so that clusters can be added and removed
//! independently.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::files::{self, FileScope, FolderWalk, describe};
use super::section::{ListItem, ReadContext, Section};
use super::upstreams::{self, UpstreamAccess};
use portcullis_policy::document::{self, Node, Value};
use portcullis_policy::field::{Fault, FaultKind, Faults, Place, unsupported_value};
use portcullis_policy::model::{LabelExpression, LabelSelector};

/// An API server, and what is watched there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterEntry {
    /// The place of the entry, for errors of the files that it names.
    pub place: Place,
    /// Where the files that the entry names may be.
    pub scope: FileScope,
    /// The name of the cluster. The watched objects only apply to requests of this cluster.
    pub name: String,
    /// The kubeconfig for the API server, as an absolute path.
    pub kubeconfig: PathBuf,
    /// The file that saves the watched objects for a restart, as an absolute path.
    pub cache_file: Option<PathBuf>,
    /// Which admission policies and webhooks are used; `None`: none.
    pub selector: Option<Selector>,
    /// Whether AdmissionExceptions are used. They only excuse from watched policies and webhooks.
    pub accept_exceptions: bool,
    /// Whether the gateway writes the status of AuthorizationPolicies, AuthorizationInvariants and
    /// AdmissionExceptions.
    pub writes_status: bool,
    /// How it is known that the cluster's API server sends every write to `/validate`.
    pub admission: AdmissionEvidence,
    /// How the webhooks of this cluster are called. `None`: without credentials, or for the default
    /// cluster as the configuration's `upstreams` says.
    pub upstreams: Option<UpstreamAccess>,
}

/// The suffix of the file with the changes since a `cacheFile` was written.
pub const CACHE_FILE_CHANGES: &str = ".changes";

/// The fields of an entry.
const FIELDS: [&str; 8] = [
    "name",
    "kubeconfig",
    "cacheFile",
    "selector",
    "acceptExceptions",
    "writeStatus",
    "admission",
    "upstreams",
];

/// `admission` of an entry: how it is known that the API server sends every write to `/validate`,
/// except those that the webhook configurations of `portcullis init` exclude.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AdmissionEvidence {
    /// It is not known, so Allows with `objectConditions` grant nothing.
    #[default]
    None,
    /// The webhook configurations of the cluster are watched.
    Watched,
    /// The author of the entry declares it.
    Declared,
}

/// A label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The selector as a query parameter of requests to the API server.
    pub text: String,
    /// The selector as it is matched here.
    pub labels: LabelSelector,
}

/// Reads the entries of `clusters`: a list, or the path of a folder whose files `read_folder`
/// reads.
pub(crate) fn clusters(
    root: &Section<'_>,
    read_folder: ReadFolder<'_>,
) -> (Vec<ClusterEntry>, Option<ClusterFolder>) {
    let mut clusters = Vec::new();
    if root.value("clusters").is_some_and(|node| node.as_str().is_some()) {
        let folder = entries_of_folder(root, read_folder, |section| add_entry(section, &mut clusters));
        return (clusters, folder);
    }
    for item in root.items("clusters") {
        add_entry(&item.section(&FIELDS), &mut clusters);
    }
    (clusters, None)
}

/// Adds an entry, unless it is invalid. Its name and its saved files must differ from those of the
/// others.
fn add_entry(section: &Section<'_>, clusters: &mut Vec<ClusterEntry>) {
    let Some(cluster) = cluster(section) else { return };
    if let Some(other) = clusters.iter().find(|other| other.name == cluster.name) {
        let message = format!("`{}` is used twice", cluster.name);
        record_conflict(section, "name", &message, other, &cluster);
    }
    let own = cluster.saved_files();
    let saved = |other: &&ClusterEntry| other.saved_files().iter().any(|file| own.contains(file));
    if let Some(other) = clusters.iter().find(saved) {
        let message = "another cluster uses this file: each cluster needs its own";
        record_conflict(section, "cacheFile", message, other, &cluster);
    }
    clusters.push(cluster);
}

/// Records in the files of both entries that they conflict, because it is not known here which one
/// came later.
fn record_conflict(
    section: &Section<'_>,
    field: &str,
    message: &str,
    other: &ClusterEntry,
    own: &ClusterEntry,
) {
    let (Some(own_file), Some(file)) = (&own.place.file, &other.place.file) else {
        return section.fault(field, FaultKind::Duplicate, message);
    };
    if own_file == file {
        return section.fault(field, FaultKind::Duplicate, message);
    }
    section.fault(
        field,
        FaultKind::Duplicate,
        format!("{message} (here and in `{file}`)"),
    );
    let place = other.place.at(other.place.path.field(field));
    let message = format!("{message} (here and in `{own_file}`)");
    let mut of_other = Faults::new();
    of_other.push(Fault::error(place, FaultKind::Duplicate, message));
    section.append(of_other);
}

fn cluster(section: &Section<'_>) -> Option<ClusterEntry> {
    let name = section.required_text("name", "the `cluster` of this API server's callers");
    let kubeconfig = section.required_path("kubeconfig", "the kubeconfig for the API server");
    let cache_file = section
        .path("cacheFile")
        .filter(|path| is_outside_entries(section, path));
    if cache_file.is_none() && section.value("cacheFile").is_none() {
        let message = "without it, a restarted gateway has no policies of the cluster until the API \
                       server answers: set a file";
        section.warn("cacheFile", FaultKind::Required, message);
    }
    let selector = section
        .optional("selector", &["matchLabels", "matchExpressions"])
        .map(|selector| read_selector(section, &selector));
    let upstreams = section
        .optional("upstreams", &upstreams::ACCESS_FIELDS)
        .map(|section| upstreams::access(&section));
    Some(ClusterEntry {
        place: section.here(),
        scope: section.scope(),
        name: name?.to_owned(),
        kubeconfig: kubeconfig?,
        cache_file,
        selector,
        accept_exceptions: section.boolean("acceptExceptions").unwrap_or(false),
        writes_status: section.boolean("writeStatus").unwrap_or(false),
        admission: admission(section),
        upstreams,
    })
}

fn admission(section: &Section<'_>) -> AdmissionEvidence {
    match section.text("admission") {
        None | Some("None") => AdmissionEvidence::None,
        Some("Declared") => AdmissionEvidence::Declared,
        Some("Watched") => AdmissionEvidence::Watched,
        Some(other) => {
            let message = unsupported_value(other, &["None", "Watched", "Declared"]);
            section.fault("admission", FaultKind::NotSupported, message);
            AdmissionEvidence::None
        }
    }
}

/// Whether the file at `path` is not itself read as an entry, if entries are files of a folder.
fn is_outside_entries(section: &Section<'_>, path: &Path) -> bool {
    let is_hidden = |below: &Path| {
        let mut names = below.iter();
        names.any(|name| name.as_encoded_bytes().starts_with(b"."))
    };
    let is_entry = match section.scope() {
        FileScope::Anywhere => false,
        FileScope::Below(folder) => {
            files::is_manifest(path) && !path.strip_prefix(folder).is_ok_and(is_hidden)
        }
    };
    if is_entry {
        let message = "in this folder a file of this name is read as an entry: choose one that does not \
                       end in `.yaml`, `.yml` or `.json`, or a folder that begins with `.`";
        section.fault("cacheFile", FaultKind::Invalid, message);
    }
    !is_entry
}

// === impl ClusterEntry ===

impl ClusterEntry {
    /// An entry that is in no configuration, for an API server whose objects are read otherwise.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            place: Place::default(),
            scope: FileScope::Anywhere,
            name: name.to_owned(),
            kubeconfig: PathBuf::new(),
            cache_file: None,
            selector: None,
            accept_exceptions: false,
            writes_status: false,
            admission: AdmissionEvidence::None,
            upstreams: None,
        }
    }

    /// Whether the entry is in a file of its own, which others than the gateway's administrator may
    /// write.
    #[must_use]
    pub fn is_written_by_tenant(&self) -> bool {
        self.scope != FileScope::Anywhere
    }

    /// The files in which the watched objects are saved.
    #[must_use]
    pub fn saved_files(&self) -> Vec<PathBuf> {
        let Some(path) = &self.cache_file else {
            return Vec::new();
        };
        let beside =
            [files::NEW_FILE_ENDING, CACHE_FILE_CHANGES].map(|ending| files::with_ending(path, ending));
        std::iter::once(path.clone()).chain(beside).collect()
    }
}

fn read_selector(entry: &Section<'_>, section: &Section<'_>) -> Selector {
    let labels = match_labels(section);
    let expressions: Vec<_> = section.items("matchExpressions").iter().map(expression).collect();
    let compiled = LabelSelector::compile(&labels, &expressions)
        .map_err(|fault| section.fault_here(FaultKind::Invalid, fault.to_string()))
        .unwrap_or_default();
    if labels.is_empty() && expressions.is_empty() {
        let message = "this selects every policy and webhook that the API server stores and also \
                       runs itself: select only those for the gateway, by a label";
        entry.warn("selector", FaultKind::Suspicious, message);
    }
    let equal = labels.iter().map(|(key, value)| format!("{key}={value}"));
    let terms: Vec<String> = equal.chain(expressions.iter().map(term)).collect();
    Selector {
        text: terms.join(","),
        labels: compiled,
    }
}

fn match_labels(section: &Section<'_>) -> BTreeMap<String, String> {
    let labels = section.foreign_section("matchLabels");
    let keys = match section.value("matchLabels").map(|node| &node.value) {
        Some(Value::Map(entries)) => entries.iter().map(|entry| entry.key.as_str()).collect(),
        _ => Vec::new(),
    };
    let value_of = |key: &str| {
        let empty = labels.value(key).and_then(Node::as_str) == Some("");
        let value = if empty { Some("") } else { labels.text(key) };
        Some((key.to_owned(), value?.to_owned()))
    };
    keys.into_iter().filter_map(value_of).collect()
}

fn expression(item: &ListItem<'_>) -> LabelExpression {
    let section = item.section(&["key", "operator", "values"]);
    let text = |field, what| section.required_text(field, what).unwrap_or_default().to_owned();
    LabelExpression {
        key: text("key", "the label"),
        operator: text("operator", "`In`, `NotIn`, `Exists` or `DoesNotExist`"),
        values: section.strings("values"),
    }
}

/// The term in the syntax of `labels.Requirement` (apimachinery).
fn term(expression: &LabelExpression) -> String {
    let key = &expression.key;
    let values = expression.values.join(",");
    match expression.operator.as_str() {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "DoesNotExist" => format!("!{key}"),
        _ => key.clone(),
    }
}

/// The maximum number of files and folders directly in the folder of `clusters`, and in each
/// subfolder.
const MAX_FILES: usize = 20_000;
const MAX_TENANT_FILES: usize = 1_000;
/// The maximum number of clusters of one tenant's folder. Each cluster needs a connection and
/// processor time for every kind, and a share of the memory for watched objects.
const MAX_TENANT_ENTRIES: usize = 8;
/// The maximum size of one file, in bytes.
const MAX_ENTRY_BYTES: usize = 1 << 20;
/// The maximum size of all files directly in the folder, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// The folder that `clusters` names, with its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFolder {
    /// The absolute path.
    pub path: PathBuf,
    /// The files, in the order of reading.
    pub files: Vec<ClusterFile>,
}

/// A file with one entry of `clusters`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFile {
    /// The absolute path. Relative paths in the file are resolved against its folder.
    pub path: PathBuf,
    /// The content of the file.
    pub text: String,
}

impl ClusterFile {
    /// The name of the cluster, if it can be read.
    pub(crate) fn name(&self) -> Option<String> {
        match document::parse(None, &self.text) {
            Ok(documents) => documents.first()?.text("name").map(str::to_owned),
            Err(_) => self.name_in_line().map(str::to_owned),
        }
    }

    /// The name on the only line that begins with `name:`, for a file that is not valid YAML
    /// elsewhere.
    fn name_in_line(&self) -> Option<&str> {
        let mut names = self.text.lines().filter_map(|line| line.strip_prefix("name:"));
        let (name, None) = (names.next()?, names.next()) else {
            return None;
        };
        let is_plain = |text: &&str| {
            let is_of_names = |char: char| char.is_ascii_alphanumeric() || "-._".contains(char);
            !text.is_empty() && text.chars().all(is_of_names)
        };
        Some(name.trim().trim_matches(['"', '\''])).filter(is_plain)
    }
}

/// Reads the files of a folder.
pub(crate) type ReadFolder<'f> = &'f dyn Fn(&Path) -> (Vec<ClusterFile>, Faults);

/// Reads the folder that `clusters` names, and passes each entry to `add`.
fn entries_of_folder(
    root: &Section<'_>,
    read_folder: ReadFolder<'_>,
    mut add: impl FnMut(&Section<'_>),
) -> Option<ClusterFolder> {
    let path = root.path("clusters")?;
    let (files, unreadable) = read_folder(&path);
    if files.is_empty() && !unreadable.has_errors() {
        let message = "this folder contains no file for a cluster: their names end in `.yaml`, `.yml` or \
            `.json`, and do not begin with `.`";
        root.warn("clusters", FaultKind::NotFound, message);
    }
    root.append(unreadable);
    for file in &files {
        let folder = tenant_of(&path, &file.path);
        root.append(entry(file, folder.as_deref().and_then(Path::file_name), &mut add));
    }
    Some(ClusterFolder { path, files })
}

/// Passes the entry in `file` to `add`, and returns its errors. `folder` is the name of the
/// tenant's folder that contains the file, if any.
fn entry(file: &ClusterFile, folder: Option<&OsStr>, add: &mut impl FnMut(&Section<'_>)) -> Faults {
    let mut faults = Faults::new();
    let documents = match document::parse(Some(&file.path.display().to_string()), &file.text) {
        Ok(documents) => documents,
        Err(fault) => {
            faults.push(fault);
            return faults;
        }
    };
    let [document] = documents.as_slice() else {
        let message = format!(
            "{} documents: a file contains one entry of `clusters`, with `name` and `kubeconfig`",
            documents.len()
        );
        faults.push(Fault::error(
            Place::of_file(&file.path),
            FaultKind::Invalid,
            message,
        ));
        return faults;
    };
    let reading = ReadContext::of_tenant(document, file.path.parent().unwrap_or(Path::new("/")));
    let root = reading.root(&FIELDS);
    let name = root.value("name").and_then(Node::as_str).unwrap_or_default();
    let folder = folder.map(OsStr::to_string_lossy).unwrap_or_default();
    if folder.is_empty() || name.is_empty() || folder_allows_name(&folder, name) {
        add(&root);
    } else {
        let message = format!(
            "an entry in the folder `{folder}` may be for the cluster `{folder}`, and for those whose names begin \
             with `{folder}.`: rename the folder, or move the file directly into that of `clusters`"
        );
        root.fault("name", FaultKind::Forbidden, message);
    }
    faults.append(reading.into_faults());
    faults
}

/// Reads the files in the folder at `path` and its subfolders. Blocks.
pub(crate) fn read_folder(path: &Path) -> (Vec<ClusterFile>, Faults) {
    let mut faults = Faults::new();
    let mut unreadable = |path: &Path, error: &io::Error| {
        faults.push(Fault::error(
            Place::of_file(path),
            FaultKind::Unreadable,
            describe(error),
        ));
    };
    let scope = FileScope::below(path);
    let walk = FolderWalk::of_tenants(path, MAX_FILES, MAX_TENANT_FILES);
    for (path_of_error, error) in &walk.errors {
        unreadable(path_of_error, error);
    }
    let cut = walk.exceeded_limit.then_some(path).into_iter();
    for cut in cut.chain(walk.folders_over_limit.iter().map(PathBuf::as_path)) {
        let error = io::Error::other("contains more files and folders than can be read");
        unreadable(cut, &error);
    }
    let mut entries: BTreeMap<PathBuf, usize> = BTreeMap::new();
    let mut left = MAX_BYTES;
    let mut files = Vec::with_capacity(walk.files.len());
    for file in walk.files {
        let tenant = tenant_of(path, &file);
        let number = tenant.clone().map_or(0, |tenant| {
            let entries = entries.entry(tenant).or_default();
            *entries += 1;
            *entries
        });
        if number > MAX_TENANT_ENTRIES {
            continue;
        }
        let limit = if tenant.is_some() {
            MAX_ENTRY_BYTES
        } else {
            left.min(MAX_ENTRY_BYTES)
        };
        match scope.read_text(&file, limit) {
            Ok(text) => {
                if tenant.is_none() {
                    left -= text.len();
                }
                files.push(ClusterFile { path: file, text });
            }
            Err(error) => unreadable(&file, &error),
        }
    }
    for (tenant, entries) in entries
        .iter()
        .filter(|(_, entries)| **entries > MAX_TENANT_ENTRIES)
    {
        let message = format!("holds {entries} entries of `clusters`: at most {MAX_TENANT_ENTRIES} are read");
        unreadable(tenant, &io::Error::other(message));
    }
    (files, faults)
}

/// Whether an entry in the tenant's folder named `folder` may be for the cluster `name`. The
/// content of the folder determines what the users of that cluster may do.
pub(crate) fn folder_allows_name(folder: &str, name: &str) -> bool {
    let rest = name.strip_prefix(folder);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The direct subfolder of `clusters` that contains `file`, if any.
pub(crate) fn tenant_of(clusters: &Path, file: &Path) -> Option<PathBuf> {
    let mut below = file.strip_prefix(clusters).ok()?.components();
    let first = below.next()?;
    below.next().map(|_| clusters.join(first))
}
