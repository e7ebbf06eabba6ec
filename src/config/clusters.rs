//! `clusters`: API servers that manifests are watched from, in a list or in a folder with a file
//! for each.

mod folder;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use folder::{ClusterFile, ClusterFolder};
pub(super) use folder::{ReadFolder, read_folder};

use super::section::{ListItem, Section};
use portcullis_policy::document::{Node, Value};
use portcullis_policy::engine::{LabelExpression, LabelSelector};
use portcullis_policy::field::{FaultKind, Place};

/// One API server, and what is taken from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterEntry {
    /// Where the entry stands, for faults of what it refers to.
    pub place: Place,
    /// The cluster whose requests alone these objects hold for.
    pub name: String,
    /// How to reach the API server, as an absolute path.
    pub kubeconfig: PathBuf,
    /// Where the last complete set is saved, as an absolute path.
    pub snapshot: Option<PathBuf>,
    /// Which policies and webhooks of admission are taken; `None`: none.
    pub selector: Option<Selector>,
    /// Whether AdmissionExceptions are taken, for what is taken from there too.
    pub exceptions: bool,
    /// Whether the status of AuthorizationPolicies and AdmissionExceptions is written.
    pub writes_status: bool,
}

/// What the name of a `snapshot` is followed by in that of the file of its changes.
pub const SNAPSHOT_CHANGES: &str = ".changes";

/// The fields of an entry.
const FIELDS: [&str; 6] = [
    "name",
    "kubeconfig",
    "snapshot",
    "selector",
    "exceptions",
    "writeStatus",
];

/// A label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// As the API server reads it in a request.
    pub text: String,
    /// As it matches here.
    pub labels: LabelSelector,
}

/// Reads the entries of `clusters`, a list or the name of a folder whose files `read_folder` reads.
pub(super) fn clusters(
    root: &Section<'_>,
    read_folder: ReadFolder<'_>,
) -> (Vec<ClusterEntry>, Option<ClusterFolder>) {
    let mut clusters = Vec::new();
    if root.value("clusters").is_some_and(|node| node.as_str().is_some()) {
        let folder = folder::clusters(root, read_folder, |section| add(section, &mut clusters));
        return (clusters, folder);
    }
    for item in root.items("clusters") {
        add(&item.section(&FIELDS), &mut clusters);
    }
    (clusters, None)
}

/// Adds an entry to those before it, from which it must differ.
fn add(section: &Section<'_>, clusters: &mut Vec<ClusterEntry>) {
    let Some(cluster) = cluster(section) else { return };
    if let Some(other) = clusters.iter().find(|other| other.name == cluster.name) {
        let message = format!("`{}` is used twice{}", cluster.name, elsewhere(other, &cluster));
        section.fault("name", FaultKind::Duplicate, message);
    }
    let saved = |other: &&ClusterEntry| other.snapshot.is_some() && other.snapshot == cluster.snapshot;
    if let Some(other) = clusters.iter().find(saved) {
        let file = elsewhere(other, &cluster);
        let message = format!("another cluster uses this file: each cluster needs its own{file}");
        section.fault("snapshot", FaultKind::Duplicate, message);
    }
    clusters.push(cluster);
}

/// Which file `other` is in, where that is not the one of `cluster`.
fn elsewhere(other: &ClusterEntry, cluster: &ClusterEntry) -> String {
    match &other.place.file {
        Some(file) if other.place.file != cluster.place.file => format!(" (here and in `{file}`)"),
        _ => String::new(),
    }
}

fn cluster(section: &Section<'_>) -> Option<ClusterEntry> {
    let name = section.required_text("name", "the `cluster` of this API server's callers");
    let kubeconfig = section.required_path("kubeconfig", "the kubeconfig for the API server");
    let snapshot = section.path("snapshot");
    if snapshot.is_none() && section.value("snapshot").is_none() {
        let message = "without it, a restarted gateway has no policies of the cluster until the API \
                       server answers: set a file";
        section.warn("snapshot", FaultKind::Required, message);
    }
    let selector = section
        .optional("selector", &["matchLabels", "matchExpressions"])
        .map(|selector| read_selector(section, &selector));
    Some(ClusterEntry {
        place: section.here(),
        name: name?.to_owned(),
        kubeconfig: kubeconfig?,
        snapshot,
        selector,
        exceptions: section.boolean("exceptions").unwrap_or(false),
        writes_status: section.boolean("writeStatus").unwrap_or(false),
    })
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

/// As `labels.Requirement` of apimachinery writes it.
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
