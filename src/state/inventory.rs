//! What a reload changed, and which restrictions it removed, as the log reports it.
//!
//! A change that removes more restrictions than `reload.maxRemoved` is not put in force, because a
//! file that was truncated or only partly written could be a valid change.
//!
//! Other changes than those of objects are reported by the fields of the configuration, and by the
//! files of certificates, keys and credentials.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::hash::BuildHasher as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use portcullis_policy::admission::webhook::Webhook;
use portcullis_policy::admission::{AdmissionPolicies, AdmissionSet, Phase, PolicyBinding, ValidationAction};
use portcullis_policy::authorization::{ClusterPolicySets, PolicySet};
use portcullis_policy::document;
use portcullis_policy::document::{Node, Value};
use portcullis_policy::manifest::{ObjectIdentity, SetDifference, ValidatedObject};
use portcullis_policy::model::CauseKind;

use crate::config::files::{CONFIGURATION_BYTES, FileScope};

/// An object, and the only cluster that it is for, if any.
type InventoryKey<'o> = (&'o ObjectIdentity, Option<&'o str>);

/// What a reload changed: settings, the objects in files, and the restrictions no longer in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Fields of the configuration, and files of certificates and credentials.
    pub settings: ChangedSettings,
    /// New objects.
    pub added: LoadedObjects,
    /// Objects with different content.
    pub changed: LoadedObjects,
    /// Objects that no longer exist.
    pub removed: LoadedObjects,
    /// Restrictions that are no longer in force.
    pub vanished: Vec<Restriction>,
}

/// An object that restricts requests: a Deny or Limit in mode Enforce, a ValidatingAdmissionPolicy
/// with a binding that denies, or a webhook configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Restriction {
    /// The kind of the object, for example `AuthorizationPolicy`.
    pub kind: &'static str,
    /// The only cluster that it was for; `None` if it was for all clusters.
    pub cluster: Option<String>,
    /// The name of the object.
    pub name: String,
}

/// The number of objects, and the names of the first ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadedObjects {
    /// The number of objects.
    pub count: usize,
    /// At most ten of them as `Kind/name` or `Kind/namespace/name`, sorted.
    pub names: Vec<String>,
}

/// The maximum of names of each kind in a log line of a reload.
pub(crate) const MAX_NAMES: usize = 10;

/// A hash of the content of each file; `None` if it cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileContents(BTreeMap<PathBuf, Option<u64>>);

/// The fields and files that have changed, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedSettings {
    /// Fields of the configuration, such as `callers` or `limits.inFlight`.
    pub fields: Vec<String>,
    /// Files other than the configuration and manifests.
    pub files: Vec<PathBuf>,
}

// === impl LoadedObjects ===

impl LoadedObjects {
    fn of<'k>(keys: impl Iterator<Item = &'k InventoryKey<'k>>) -> Self {
        let mut names: Vec<String> = keys
            .map(|(identity, cluster)| match cluster {
                None => identity.to_string(),
                Some(cluster) => format!("{identity} of cluster {cluster}"),
            })
            .collect();
        names.sort();
        let count = names.len();
        names.truncate(MAX_NAMES);
        Self { count, names }
    }

    /// For example `2 objects added`, with their names if `named`.
    fn describe(&self, what: &str, named: bool) -> String {
        let objects = if self.count == 1 { "object" } else { "objects" };
        let mut text = format!("{} {objects} {what}", self.count);
        if named && self.count > 0 {
            let more = if self.count > self.names.len() {
                ", …"
            } else {
                ""
            };
            text.push_str(&format!(" ({}{more})", self.names.join(", ")));
        }
        text
    }
}

// === impl Change ===

impl Change {
    /// The changes in `difference`. An object that was only moved is not among them.
    pub(crate) fn of(difference: &SetDifference<'_>) -> Self {
        let (after, before) = (by_key(&difference.added), by_key(&difference.removed));
        let added = after.keys().filter(|key| !before.contains_key(key));
        let removed = before.keys().filter(|key| !after.contains_key(key));
        let changed = after.iter().filter_map(|(key, digest)| {
            let earlier = before.get(key)?;
            (earlier != digest).then_some(key)
        });
        Self {
            added: LoadedObjects::of(added),
            changed: LoadedObjects::of(changed),
            removed: LoadedObjects::of(removed),
            ..Self::default()
        }
    }

    /// One line, such as `1 object added, 2 objects removed`; with the names of the objects if
    /// `named`. Changed settings come first.
    #[must_use]
    pub fn describe(&self, named: bool) -> String {
        let parts = [
            (&self.added, "added"),
            (&self.changed, "changed"),
            (&self.removed, "removed"),
        ];
        let objects: Vec<String> = parts
            .into_iter()
            .filter(|(objects, _)| objects.count > 0)
            .map(|(objects, what)| objects.describe(what, named))
            .collect();
        let objects = match objects.is_empty() {
            true => "no object changed".to_owned(),
            false => objects.join(", "),
        };
        self.settings.describe(named) + &objects
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(true))
    }
}

/// A digest of the content of each object.
fn by_key<'o>(objects: &[&'o Arc<ValidatedObject>]) -> HashMap<InventoryKey<'o>, u64> {
    let entry = |object: &&'o Arc<ValidatedObject>| ((object.identity(), object.cluster()), object.digest());
    objects.iter().map(entry).collect()
}

// === impl Restriction ===

impl Restriction {
    /// The name, or `cluster/name` if it was for one cluster only.
    #[must_use]
    pub fn in_cluster(&self) -> String {
        match &self.cluster {
            None => self.name.clone(),
            Some(cluster) => format!("{cluster}/{}", self.name),
        }
    }
}

impl fmt::Display for Restriction {
    /// `Kind/name`, or `Kind/cluster/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.in_cluster())
    }
}

/// The restrictions that are in force in the first pair and not in the second, for every cluster or
/// for one; sorted.
pub(crate) fn removed_restrictions(
    (policies, admission): (&ClusterPolicySets, &AdmissionPolicies),
    (policies_after, admission_after): (&ClusterPolicySets, &AdmissionPolicies),
) -> Vec<Restriction> {
    let denies = |cluster: Option<&str>| {
        let of = |policies: &'_ ClusterPolicySets| {
            Arc::clone(cluster.map_or(&policies.shared, |cluster| policies.for_cluster(cluster)))
        };
        vanished_denies(&of(policies), &of(policies_after))
    };
    let validations = |cluster: Option<&str>| {
        let of = |policies: &'_ AdmissionPolicies| {
            Arc::clone(cluster.map_or(&policies.shared, |cluster| policies.for_cluster(cluster)))
        };
        vanished_validations(&of(admission), &of(admission_after))
    };
    let clusters = policies.clusters.keys().chain(policies_after.clusters.keys());
    let mut vanished = by_cluster(CauseKind::AuthorizationPolicy.as_str(), clusters, denies);
    let clusters = || admission.clusters.keys().chain(admission_after.clusters.keys());
    let kind = CauseKind::ValidatingAdmissionPolicy.as_str();
    vanished.append(&mut by_cluster(kind, clusters(), validations));
    for (kind, phase) in [
        ("MutatingWebhookConfiguration", Phase::Mutate),
        ("ValidatingWebhookConfiguration", Phase::Validate),
    ] {
        let webhooks = |cluster: Option<&str>| {
            let of = |policies: &'_ AdmissionPolicies| {
                Arc::clone(cluster.map_or(&policies.shared, |cluster| policies.for_cluster(cluster)))
            };
            vanished_webhooks(&of(admission), &of(admission_after), phase)
        };
        vanished.append(&mut by_cluster(kind, clusters(), webhooks));
    }
    vanished
}

/// The restrictions that `vanished` returns for every cluster, and then those that it returns only
/// for one.
fn by_cluster<'c>(
    kind: &'static str,
    clusters: impl Iterator<Item = &'c String>,
    vanished: impl Fn(Option<&str>) -> BTreeSet<String>,
) -> Vec<Restriction> {
    let everywhere = vanished(None);
    let clusters: BTreeSet<&String> = clusters.collect();
    let of_clusters = clusters.into_iter().flat_map(|cluster| {
        let own: Vec<String> = vanished(Some(cluster)).difference(&everywhere).cloned().collect();
        own.into_iter().map(|name| (Some(cluster.clone()), name))
    });
    let all = everywhere
        .iter()
        .map(|name| (None, name.clone()))
        .chain(of_clusters);
    all.map(|(cluster, name)| Restriction { kind, cluster, name })
        .collect()
}

fn vanished_denies(before: &Arc<PolicySet>, after: &Arc<PolicySet>) -> BTreeSet<String> {
    if Arc::ptr_eq(before, after) || before.shares_policies(after) {
        return BTreeSet::new();
    }
    let still: HashSet<&Arc<str>> = after.enforced_denies().collect();
    let denies = before.enforced_denies().filter(|name| !still.contains(name));
    denies.map(|name| name.to_string()).collect()
}

fn vanished_validations(before: &Arc<AdmissionSet>, after: &Arc<AdmissionSet>) -> BTreeSet<String> {
    if Arc::ptr_eq(before, after) || before.policies_address() == after.policies_address() {
        return BTreeSet::new();
    }
    let still = policies_that_deny(after);
    policies_that_deny(before)
        .difference(&still)
        .map(|name| (*name).to_owned())
        .collect()
}

/// The names of the configurations with a webhook that is no longer called.
fn vanished_webhooks(
    before: &Arc<AdmissionSet>,
    after: &Arc<AdmissionSet>,
    phase: Phase,
) -> BTreeSet<String> {
    if Arc::ptr_eq(before, after) {
        return BTreeSet::new();
    }
    let still: HashSet<(&str, &str)> = after.webhooks(phase).map(|webhook| names_of(webhook)).collect();
    let before = before.webhooks(phase).map(|webhook| names_of(webhook));
    let gone = before.filter(|names| !still.contains(names));
    gone.map(|(configuration, _)| configuration.to_owned()).collect()
}

fn names_of(webhook: &Webhook) -> (&str, &str) {
    (&webhook.configuration, &webhook.name)
}

/// The names of the policies with a binding that denies.
fn policies_that_deny(set: &AdmissionSet) -> BTreeSet<&str> {
    let denies = |binding: &Arc<PolicyBinding>| binding.actions.contains(&ValidationAction::Deny);
    let bound = set.policies(Phase::Validate).into_iter();
    let denying = bound.filter(|(_, bindings)| bindings.iter().any(denies));
    denying.map(|(policy, _)| policy.name.as_str()).collect()
}

// === impl FileContents ===

impl FileContents {
    /// Hashes `files`. Those in the folder `of_clusters` are written by others than the
    /// administrator, so links in it are not followed out of the folder.
    pub(crate) fn of(files: impl IntoIterator<Item = PathBuf>, of_clusters: Option<&Path>) -> Self {
        // With a random key, a hash that leaks cannot be used to guess passwords.
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let content = |file: &Path| {
            let scope = match of_clusters.filter(|folder| file.starts_with(folder)) {
                Some(folder) => FileScope::below(folder),
                None => FileScope::Anywhere,
            };
            let content = scope.read(file, CONFIGURATION_BYTES).ok()?;
            Some(KEY.hash_one(content))
        };
        let read = files.into_iter().map(|file| {
            let content = content(&file);
            (file, content)
        });
        Self(read.collect())
    }

    /// The files whose content differs from `before`. Files that only one of both contains are not
    /// reported, because a field of the configuration has changed, too.
    fn since(&self, before: &Self) -> Vec<PathBuf> {
        let is_changed = |(file, content): &(&PathBuf, &Option<u64>)| {
            before.0.get(*file).is_some_and(|before| before != *content)
        };
        self.0
            .iter()
            .filter(is_changed)
            .map(|(file, _)| file.clone())
            .collect()
    }
}

// === impl ChangedSettings ===

impl ChangedSettings {
    /// The differences between two configurations, as they are written, and their files.
    pub(crate) fn between(
        (before, files_before): (&str, &FileContents),
        (after, files_after): (&str, &FileContents),
    ) -> Self {
        Self {
            fields: changed_fields(before, after),
            files: files_after.since(files_before),
        }
    }

    /// For example `configuration changed (limits.inFlight), `, with the names of files if `named`;
    /// empty if nothing changed.
    pub(crate) fn describe(&self, named: bool) -> String {
        let files: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        let mut text = String::new();
        if !self.fields.is_empty() {
            text.push_str(&format!("configuration changed ({}), ", listed(&self.fields)));
        }
        if !files.is_empty() {
            let plural = if files.len() == 1 { "" } else { "s" };
            let names = if named {
                format!(" ({})", listed(&files))
            } else {
                String::new()
            };
            text.push_str(&format!(
                "{} file{plural} of certificates or credentials changed{names}, ",
                files.len()
            ));
        }
        text
    }
}

fn listed(names: &[String]) -> String {
    let more = if names.len() > MAX_NAMES { ", …" } else { "" };
    let first: Vec<&str> = names.iter().take(MAX_NAMES).map(String::as_str).collect();
    first.join(", ") + more
}

/// The fields that differ between two configurations. For sections, these are the fields within.
fn changed_fields(before: &str, after: &str) -> Vec<String> {
    let root = |text| {
        let mut documents = document::parse(None, text).unwrap_or_default();
        documents.pop().map(document::Document::into_root)
    };
    let (Some(before), Some(after)) = (root(before), root(after)) else {
        return Vec::new();
    };
    let mut fields = Vec::new();
    for name in keys(&before, &after) {
        match (before.get(name), after.get(name)) {
            (Some(before), Some(after)) if before.equals_ignoring_lines(after) => {}
            (Some(before), Some(after)) if is_section(before) && is_section(after) => {
                let within = keys(before, after).into_iter().filter(|field| {
                    let (before, after) = (before.get(field), after.get(field));
                    !matches!((before, after), (Some(before), Some(after)) if before.equals_ignoring_lines(after))
                });
                fields.extend(within.map(|field| format!("{name}.{field}")));
            }
            _ => fields.push(name.to_owned()),
        }
    }
    fields.sort();
    fields
}

fn is_section(node: &Node) -> bool {
    matches!(node.value, Value::Map(_))
}

/// The keys of both nodes, without duplicates.
fn keys<'n>(before: &'n Node, after: &'n Node) -> Vec<&'n str> {
    let of = |node: &'n Node| match &node.value {
        Value::Map(entries) => entries.iter().map(|entry| entry.key.as_str()).collect(),
        _ => Vec::new(),
    };
    let mut keys = [of(before), of(after)].concat();
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests;
