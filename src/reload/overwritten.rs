//! Files that the gateway writes and that are somebody else's: what it reads, or writes for another.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::{Config, HeldBack, LogPath, files};
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, Place};

/// Some files that the gateway writes.
struct Written {
    /// The field that names them.
    place: Place,
    files: Vec<PathBuf>,
    /// The cluster whose administrators may have named them.
    tenant: Option<String>,
}

/// Reports each file of `config` to be written that is among those that are `read`, or is another
/// one to be written, under whatever name. What a cluster's own files name goes to `held`, and
/// nothing is saved of that cluster.
pub(crate) fn prevent(config: &mut Config, read: &BTreeSet<PathBuf>, held: &mut HeldBack) -> Faults {
    let (faults, of_clusters) = faults(config, read);
    for (cluster, found) in of_clusters {
        let entries = config.clusters.iter_mut().filter(|entry| entry.name == cluster);
        entries.for_each(|entry| entry.cache_file = None);
        held.entry(cluster).or_default().append(found);
    }
    faults
}

fn faults(config: &Config, read: &BTreeSet<PathBuf>) -> (Faults, HeldBack) {
    let mut taken: BTreeMap<PathBuf, &'static str> = BTreeMap::new();
    for path in read {
        taken.insert(real(path), "the gateway reads it");
        taken.extend(fs::canonicalize(path).map(|path| (path, "the gateway reads it")));
    }
    let (mut faults, mut held) = (Faults::new(), HeldBack::new());
    for written in written(config) {
        let real: BTreeSet<PathBuf> = written.files.iter().map(|path| real(path)).collect();
        for (file, whose) in real.iter().filter_map(|file| Some((file, taken.get(file)?))) {
            let message = format!(
                "`{}` would be overwritten, but {whose}: choose another file",
                file.display()
            );
            let fault = Fault::error(written.place.clone(), FaultKind::Forbidden, message);
            match &written.tenant {
                Some(cluster) => held.entry(cluster.clone()).or_default().push(fault),
                None => faults.push(fault),
            }
        }
        taken.extend(
            real.into_iter()
                .map(|file| (file, "the gateway writes something else to it")),
        );
    }
    (faults, held)
}

/// Those of the gateway's administrator first: whoever comes later is at fault.
fn written(config: &Config) -> Vec<Written> {
    let root = |fields: [&str; 2]| {
        let path = fields
            .iter()
            .fold(FieldPath::root(), |path, field| path.field(field));
        Place::of_file(&config.file).at(path)
    };
    let mut written = Vec::new();
    let mut add = |place: Place, files: Vec<PathBuf>| {
        written.push(Written {
            place,
            files,
            tenant: None,
        });
    };
    if let Some(LogPath::File(path)) = config.decision_log.as_ref().map(|log| &log.path) {
        add(root(["decisionLog", "path"]), vec![path.clone()]);
    }
    if let Some(path) = &config.reload.last_good {
        add(
            root(["reload", "lastGood"]),
            vec![path.clone(), files::with_ending(path, files::NEW_FILE_ENDING)],
        );
    }
    let mut of_clusters: Vec<Written> = config
        .clusters
        .iter()
        .map(|entry| Written {
            place: entry.place.at(entry.place.path.field("cacheFile")),
            files: entry.saved_files(),
            tenant: entry.is_tenants().then(|| entry.name.clone()),
        })
        .collect();
    of_clusters.sort_by_key(|written| written.tenant.is_some());
    written.append(&mut of_clusters);
    written
}

/// The name by which a file is written: links of its folder are followed, it is replaced itself.
fn real(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| fs::canonicalize(folder).ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::config;

    /// What is said of a configuration with the entry of this tenant.
    fn told(folder: &Path, entry: &str) -> (Faults, HeldBack) {
        fs::write(folder.join("clusters.d/east.yaml"), entry).unwrap();
        let text = "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
            server: {address: '127.0.0.1:0', tls: {certificate: s.crt, privateKey: s.key}}\n\
            reload: {lastGood: last-good}\ndecisionLog: {path: d.log}\nclusters: clusters.d\n";
        let (config, faults) = config::parse(&folder.join("c.yaml"), text, folder);
        let config = config.unwrap_or_else(|| panic!("{faults}"));
        let read = ["s.key", "clusters.d/west.kubeconfig", "clusters.d/west.yaml"];
        let (mut config, mut held) = (config, HeldBack::new());
        let faults = prevent(&mut config, &read.map(|name| folder.join(name)).into(), &mut held);
        let east = config.clusters.iter().find(|entry| entry.name == "east").unwrap();
        assert_eq!(east.cache_file.is_none(), held.contains_key("east"));
        (faults, held)
    }

    #[test]
    fn a_tenant_has_nothing_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("clusters.d")).unwrap();
        fs::write(path("s.key"), "").unwrap();
        fs::write(path("clusters.d/west.kubeconfig"), "").unwrap();
        fs::write(
            path("clusters.d/west.yaml"),
            "name: west\nkubeconfig: west.kubeconfig\ncacheFile: west.saved\n",
        )
        .unwrap();
        symlink(".", path("clusters.d/.here")).unwrap();
        for (cache_file, expected) in [
            ("east.saved", false),
            ("west.kubeconfig", true),
            (".here/west.kubeconfig", true),
            (".here/west.saved", true),
        ] {
            let entry = format!("name: east\nkubeconfig: k\ncacheFile: {cache_file}\n");
            let (faults, held) = told(folder.path(), &entry);
            assert_eq!(faults.to_string(), "", "{cache_file}");
            // Of two that share a folder, the later one is told.
            assert_eq!(!held.is_empty(), expected, "{cache_file}: {held:?}");
        }
    }

    #[test]
    fn what_the_administrator_names_twice_is_a_fault_of_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let text = "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
            server: {address: '127.0.0.1:0', tls: {certificate: s.crt, privateKey: s.key}}\n\
            reload: {lastGood: d.log}\ndecisionLog: {path: d.log}\n";
        let (config, _) = config::parse(&folder.path().join("c.yaml"), text, folder.path());
        let (found, _) = faults(&config.unwrap(), &BTreeSet::new());
        assert!(found.to_string().contains("reload.lastGood"), "{found}");
    }
}
