//! What stands in for files of a cluster that have faults.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::files::ManifestFiles;
use super::last_good::LastGoodSet;
use super::snapshot::Snapshot;
use crate::config::{ClusterEntry, ClusterFile, Config, HeldBack, UnknownEntries};
use portcullis_cel::Version;
use portcullis_policy::field::Faults;
use portcullis_policy::manifest::Options;

/// Files that were in force before those that are read; at a start without `reload.lastGood` there
/// are none.
#[derive(Default)]
pub(crate) struct StandIns {
    pub(crate) cluster_files: Vec<ClusterFile>,
    pub(crate) manifests: ManifestFiles,
    /// The clusters of which everything was known.
    clusters: BTreeSet<String>,
    /// Those of them that had an entry of `clusters`.
    followed: BTreeSet<String>,
}

// === impl StandIns ===

impl StandIns {
    /// Manifests by which everything was known of these clusters.
    #[cfg(test)]
    pub(crate) fn of_manifests(manifests: ManifestFiles, clusters: BTreeSet<String>) -> Self {
        Self {
            manifests,
            clusters,
            ..Self::default()
        }
    }

    /// What is in force.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let folder = snapshot.config.cluster_folder.as_ref();
        Self {
            cluster_files: folder.map(|folder| folder.files.clone()).unwrap_or_default(),
            manifests: snapshot.base.files.clone(),
            clusters: known(&snapshot.config, &snapshot.unknown.faulty),
            followed: followed(&snapshot.config),
        }
    }

    /// What was saved, of which `config` is the configuration, if that can still be used.
    pub(crate) fn saved(saved: LastGoodSet, config: Option<&Config>) -> Self {
        let version = config.map_or(Version::NEWEST, |config| config.admission.cel_version);
        Self {
            clusters: config.map_or_else(BTreeSet::new, |config| known(config, &saved.unknown)),
            followed: config.map_or_else(BTreeSet::new, followed),
            cluster_files: saved.cluster_files,
            manifests: ManifestFiles::of_sources(saved.manifests, version),
        }
    }

    /// Those of the clusters whose files are `held` back for which nothing stands in.
    pub(crate) fn missing(&self, held: &HeldBack) -> BTreeSet<String> {
        let held = held.keys().filter(|cluster| !self.clusters.contains(*cluster));
        held.cloned().collect()
    }

    /// The clusters whose entries are `unknown`. Where the name in such an entry cannot be read, it may
    /// be the entry of any cluster of a caller that has no other, and in a folder of a tenant of any
    /// that such a folder may name.
    pub(crate) fn unknown_clusters(&self, unknown: &UnknownEntries, config: &Config) -> BTreeSet<String> {
        let now = followed(config);
        let had_none = |name: &String| self.clusters.contains(name) && !self.followed.contains(name);
        let callers = config.callers.iter().map(|caller| &caller.cluster);
        let unsure = callers.filter(|name| unknown.may_be_for(name) && !now.contains(*name));
        let named = unknown.names.iter().chain(unsure);
        named.filter(|name| !had_none(name)).cloned().collect()
    }
}

/// `options` for judging the files of all clusters but those that are `missing`: what holds for all is
/// not at fault for what it lacks in a cluster whose requests are not decided.
pub(crate) fn options_without(options: &Options, missing: &BTreeSet<String>) -> Options {
    let mut options = options.clone();
    options.clusters.retain(|cluster| !missing.contains(cluster));
    options
}

/// The faults of entries, each under the name of its cluster, or under its path where the name is
/// that of another's entry or is not known: nobody is to blame for what is named after his cluster.
pub(crate) fn by_cluster(config: &Config, held_back: BTreeMap<PathBuf, Faults>) -> HeldBack {
    let folder = config.cluster_folder.as_ref().map(|folder| folder.path.as_path());
    let name = |path: &Path| {
        let file = path.display().to_string();
        let is_its = |entry: &&ClusterEntry| entry.place.file.as_deref() == Some(file.as_str());
        let below = folder.and_then(|folder| path.strip_prefix(folder).ok());
        let path = || below.unwrap_or(path).display().to_string();
        let entry = config.clusters.iter().find(is_its);
        entry.map_or_else(path, |entry| entry.name.clone())
    };
    let named = held_back.into_iter().map(|(path, faults)| (name(&path), faults));
    named.collect()
}

fn followed(config: &Config) -> BTreeSet<String> {
    config.clusters.iter().map(|entry| entry.name.clone()).collect()
}

/// The clusters that `config` names, but those of which something is not known.
fn known(config: &Config, unknown: &BTreeSet<String>) -> BTreeSet<String> {
    let callers = config.callers.iter().map(|caller| &caller.cluster);
    let manifests = config.manifests.iter().filter_map(|path| path.cluster.as_ref());
    let named = callers
        .chain(manifests)
        .chain(config.clusters.iter().map(|entry| &entry.name));
    named.filter(|name| !unknown.contains(*name)).cloned().collect()
}
