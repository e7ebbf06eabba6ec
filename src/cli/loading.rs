//! Loads the policies for an offline command, from a configuration or from paths.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::{CommandError, output};
use crate::cluster::Clusters;
use crate::config::{self, ManifestPath, files};
use crate::reload;
use crate::reload::{ManifestSource, Origin};
use portcullis_policy::explain::LoadedPolicies;
use portcullis_policy::field::Faults;
use portcullis_policy::manifest;

/// The configuration of the development set-up, used where none is named.
pub(crate) const DEVELOPMENT: &str = ".portcullis/portcullis.yaml";

/// The configuration named, or that of the development set-up where there is one.
///
/// # Errors
///
/// The file named cannot be read, or none is named and there is no such set-up.
pub(crate) fn configuration(named: Option<&Path>) -> Result<PathBuf, CommandError> {
    match named {
        Some(path) => regular(path).map(|()| path.to_owned()),
        None if Path::new(DEVELOPMENT).is_file() => Ok(PathBuf::from(DEVELOPMENT)),
        None => Err(CommandError::Usage(format!(
            "set a configuration with `--config FILE`; `{} init DIR` creates one",
            output::program()
        ))),
    }
}

/// The same of what must be a file and no folder.
///
/// # Errors
///
/// It cannot be opened, or is a folder.
pub(crate) fn regular(path: &Path) -> Result<(), CommandError> {
    readable(path)?;
    if path.is_dir() {
        let folder = std::io::Error::from(std::io::ErrorKind::IsADirectory);
        return Err(CommandError::file("read", path, folder));
    }
    Ok(())
}

/// Says at once, and not among the faults, that a file named on the command line is not there.
///
/// # Errors
///
/// It cannot be opened.
pub(crate) fn readable(path: &Path) -> Result<(), CommandError> {
    if path.is_dir() {
        return Ok(());
    }
    let read = files::read(path, files::MANIFEST_BYTES);
    read.map(drop)
        .map_err(|source| CommandError::file("read", path, source))
}

/// What manifests come from beside files.
pub(crate) fn source() -> Arc<dyn ManifestSource> {
    source_accepting_absence(BTreeSet::new())
}

/// The same, where what is absent in these clusters at the start is gone.
pub(crate) fn source_accepting_absence(clusters: BTreeSet<String>) -> Arc<dyn ManifestSource> {
    Arc::new(Clusters::accepting_absence(clusters))
}

/// Warns of a `--cluster` that the configuration at `path` says nothing of: a misspelt name
/// would be answered by the manifests for all clusters alone.
pub(crate) fn warn_of_unknown_cluster(path: &Path, cluster: &str) {
    let Some(config) = config::examine(path).0.config else {
        return;
    };
    let callers = config.callers.iter().map(|caller| caller.cluster.as_str());
    let watched = config.clusters.iter().map(|watched| watched.name.as_str());
    let own = config.manifests.iter();
    let own = own.filter_map(|manifests| manifests.cluster.as_deref());
    let known: BTreeSet<&str> = callers.chain(watched).chain(own).collect();
    if known.is_empty() || known.contains(cluster) {
        return;
    }
    let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    output::complain(format_args!(
        "{} names no cluster `{cluster}`: only manifests for all clusters are used; `--cluster` takes {}",
        path.display(),
        known.join(", ")
    ));
}

/// What the configuration at `path` decides by, with what is saved of its
/// clusters. Keys, certificates and callers are not read.
pub(crate) fn of_configuration(path: &Path) -> (Option<LoadedPolicies>, Faults) {
    let (config, mut faults) = config::load(path);
    let Some(config) = config else {
        return (None, faults);
    };
    let source = source();
    let (found, more) = reload::policies(&config, &*source, SystemTime::now());
    faults.append(more);
    for status in source.status() {
        if status.origin == Origin::Nowhere {
            let cluster = status.cluster;
            output::complain(format_args!(
                "there are no valid saved objects of the cluster `{cluster}`: only the files are used"
            ));
        }
    }
    let webhooks = &config.authorization.webhooks;
    let loaded = found.map(|(policies, admission)| LoadedPolicies {
        policies,
        admission,
        authorizers: webhooks.iter().map(|entry| entry.rules.clone()).collect(),
        namespace: None,
    });
    (loaded.filter(|_| !faults.has_errors()), faults)
}

/// Every fault of the configuration at `path`, of all that it names, and of more
/// manifests at `paths`. A file that is among its own counts once.
pub(crate) fn faults_of_configuration(path: &Path, paths: &[PathBuf]) -> Faults {
    let own: BTreeSet<PathBuf> = reload::read_manifests(&config::examine(path).0.manifests)
        .0
        .iter()
        .filter_map(|source| Path::new(&source.file).canonicalize().ok())
        .collect();
    let (sources, mut faults) = reload::read_manifests(&everywhere(paths));
    let files = sources.into_iter().map(|source| PathBuf::from(source.file));
    let is_new = |file: &PathBuf| file.canonicalize().is_ok_and(|file| !own.contains(&file));
    let more: Vec<PathBuf> = files.filter(is_new).collect();
    faults.append(reload::check(
        path,
        &*source(),
        &everywhere(&more),
        SystemTime::now(),
    ));
    faults
}

/// Whether there is any object in the files at `paths`.
pub(crate) fn has_objects(paths: &[PathBuf]) -> bool {
    let (sources, mut faults) = reload::read_manifests(&everywhere(paths));
    let mut sources = sources.iter();
    sources.any(|source| !manifest::documents(source, &mut faults).is_empty())
}

/// What files and folders decide by, which hold for every cluster.
pub(crate) fn of_paths(paths: &[PathBuf]) -> (Option<LoadedPolicies>, Faults) {
    let (sources, mut faults) = reload::read_manifests(&everywhere(paths));
    let options = manifest::Options {
        now: Some(SystemTime::now().into()),
        ..manifest::Options::default()
    };
    let (manifests, found) = manifest::load(&sources, &options);
    faults.append(found);
    let manifests = manifests.filter(|_| !faults.has_errors());
    (manifests.map(LoadedPolicies::of_manifests), faults)
}

/// The files at `paths` that kubectl would apply, those in folders below included. A folder
/// without any stands for itself.
///
/// # Errors
///
/// A path cannot be read.
pub(crate) fn applied(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CommandError> {
    let mut files = Vec::new();
    for path in paths {
        let found = reload::applied_manifests(path);
        let found = found.map_err(|(path, source)| CommandError::file("read", &path, source))?;
        if found.is_empty() {
            files.push(path.clone());
        }
        files.extend(found);
    }
    Ok(files)
}

/// Paths as messages name them.
pub(crate) fn shown(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join("`, `")
}

/// `paths` as a configuration would name them.
pub(crate) fn everywhere(paths: &[PathBuf]) -> Vec<ManifestPath> {
    paths
        .iter()
        .map(|path| ManifestPath {
            path: path.clone(),
            cluster: None,
        })
        .collect()
}
