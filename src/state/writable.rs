//! Checks the files that the gateway writes: that they can be written, and that they are not files
//! which it reads or writes for another purpose. Also checks that the folders of the listeners'
//! private keys are safe. Nothing is created or changed.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{Access, access};
use rustix::process::geteuid;

use crate::config::files::{self, KeyFolderOwner, unsafe_for_keys};
use crate::config::{Config, HeldBack, LogPath, ManifestPath};
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, Place};

/// The kind of a fault, and its message.
type Unwritable = (FaultKind, String);

/// The faults of files and folders that cannot be written. For a decision log or a folder these are
/// errors, since `serve` would not start. Without the last good set or a cluster's cache file it
/// does start, so those are warnings.
pub(crate) fn unwritable_faults(config: &Config) -> Faults {
    let mut faults = Faults::default();
    let (place, root) = (Place::of_file(&config.file), FieldPath::root());
    if let Some(log) = &config.decision_log
        && let LogPath::File(path) = &log.path
        && let Some((kind, message)) = unusable_log(path)
    {
        let place = place.at(root.field("decisionLog").field("path"));
        faults.push(Fault::error(place, kind, message));
    }
    let recording = config.recording.as_ref().map(|recording| &recording.files.folder);
    let usage = config.usage.as_ref().map(|usage| &usage.folder);
    let decisions = config.decision_log.as_ref().and_then(|log| log.folder());
    let spool = config.tracing.as_ref().and_then(|tracing| tracing.spool.as_ref());
    let folders = [
        (root.field("recording"), recording, "whole reviews are"),
        (root.field("usage"), usage, "what users ask is"),
        (
            root.field("decisionLog"),
            decisions.map(|bounds| &bounds.folder),
            "decisions are",
        ),
        (
            root.field("tracing").field("spool"),
            spool.map(|spool| &spool.folder),
            "decisions are",
        ),
    ];
    for (section, folder, what) in folders {
        if let Some(folder) = folder
            && let Some((kind, message)) = unusable_folder(folder, &config.manifests, what)
        {
            let place = place.at(section.field("folder"));
            faults.push(Fault::error(place, kind, message));
        }
    }
    let cache_files = config.clusters.iter().filter_map(|cluster| {
        let place = cluster.place.at(cluster.place.path.field("cacheFile"));
        Some((place, cluster.cache_file.as_deref()?))
    });
    let bundles = config.bundles();
    let bundles = bundles.map(|(_, entry)| (place.at(root.field("manifests")), entry.path.as_path()));
    let last_good = config.reload.last_good.as_deref();
    let last_good = last_good.map(|path| (place.at(root.field("reload").field("lastGood")), path));
    for (place, path) in last_good.into_iter().chain(cache_files).chain(bundles) {
        if let Some((kind, message)) = unreplaceable_file_fault(path) {
            faults.push(Fault::warning(place, kind, message));
        }
    }
    faults
}

/// A log file is created if it is missing, but its folder is not.
fn unusable_log(path: &Path) -> Option<Unwritable> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Some(is_folder(path)),
        Ok(_) => Some(refused(path, &files::append(path, 0).err()?)),
        // The file would be created at the link's target.
        Err(_) if path.is_symlink() => None,
        Err(error) if error.kind() != io::ErrorKind::NotFound => Some(refused(path, &error)),
        Err(_) => {
            let folder = parent(path);
            if folder.is_dir() {
                return unwritable(folder);
            }
            let message = format!(
                "the folder `{}` does not exist: create it, or use another path",
                folder.display()
            );
            Some((FaultKind::NotFound, message))
        }
    }
}

/// A folder is created, accessible to its owner only, if it is missing. If it exists it must have
/// this mode, and must not be inside a folder of manifests.
fn unusable_folder(folder: &Path, manifests: &[ManifestPath], what: &str) -> Option<Unwritable> {
    let nearest = folder.ancestors().find(|folder| folder.exists());
    let real = nearest.and_then(|folder| folder.canonicalize().ok());
    let is_read = |manifest: &&ManifestPath| {
        let manifest = manifest.path.canonicalize();
        let starts = |real: &PathBuf| manifest.as_ref().is_ok_and(|manifest| real.starts_with(manifest));
        real.as_ref().is_some_and(starts)
    };
    if let Some(manifest) = manifests.iter().find(is_read) {
        let message = format!(
            "these files must not be in a folder of manifests, `{}`: use another folder",
            manifest.path.display()
        );
        return Some((FaultKind::Invalid, message));
    }
    match std::fs::metadata(folder) {
        Ok(found) if !found.is_dir() => {
            let message = format!("`{}` is not a folder", folder.display());
            Some((FaultKind::Invalid, message))
        }
        Ok(found) if ![0, geteuid().as_raw()].contains(&found.uid()) => {
            let message = format!(
                "`{}` belongs to another user, but {what} kept there: use another folder",
                folder.display()
            );
            Some((FaultKind::Invalid, message))
        }
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            let message = format!(
                "others may use `{0}`, where {what} kept: `chmod 700 {0}`, or name a folder within \
                 it, which is then created",
                folder.display()
            );
            Some((FaultKind::Invalid, message))
        }
        Ok(_) => {
            let error = access(folder, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).err()?;
            Some(refused(folder, &error.into()))
        }
        Err(_) => unwritable(nearest.unwrap_or(Path::new("."))),
    }
}

/// Checks a file that is replaced as a whole ([`files::replace`]), by renaming a temporary file
/// next to it. Missing folders are created.
fn unreplaceable_file_fault(path: &Path) -> Option<Unwritable> {
    if path.is_dir() {
        return Some(is_folder(path));
    }
    let nearest = path.ancestors().skip(1).find(|folder| folder.exists());
    unwritable(nearest.unwrap_or(Path::new(".")))
}

fn unwritable(folder: &Path) -> Option<Unwritable> {
    let error = access(folder, Access::WRITE_OK | Access::EXEC_OK).err()?;
    Some(refused(folder, &error.into()))
}

fn refused(path: &Path, error: &io::Error) -> Unwritable {
    let message = format!("`{}`: {}", path.display(), files::describe(error));
    (FaultKind::Invalid, message)
}

fn is_folder(path: &Path) -> Unwritable {
    let message = format!("`{}` is a folder: name a file in it", path.display());
    (FaultKind::Invalid, message)
}

/// The folder of a file; for a mere name, the working directory.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Files that the gateway writes.
struct WritableFiles {
    /// The field that names them.
    place: Place,
    files: Vec<PathBuf>,
    /// The cluster whose administrators may have named them.
    tenant: Option<String>,
}

/// Reports each file in `config` that would be written although it is among the files that are
/// `read`, or is also written for another purpose, even under another name. The faults of a
/// cluster's own files are added to `held`, and nothing is saved for that cluster.
pub(crate) fn prevent_overwriting(
    config: &mut Config,
    read: &BTreeSet<PathBuf>,
    held: &mut HeldBack,
) -> Faults {
    let (faults, of_clusters) = overwritten_faults(config, read);
    for (cluster, found) in of_clusters {
        let entries = config.clusters.iter_mut().filter(|entry| entry.name == cluster);
        entries.for_each(|entry| entry.cache_file = None);
        held.entry(cluster).or_default().append(found);
    }
    faults
}

fn overwritten_faults(config: &Config, read: &BTreeSet<PathBuf>) -> (Faults, HeldBack) {
    let mut taken: BTreeMap<PathBuf, &'static str> = BTreeMap::new();
    for path in read {
        taken.insert(written_path(path), "the gateway reads it");
        taken.extend(fs::canonicalize(path).map(|path| (path, "the gateway reads it")));
    }
    let (mut faults, mut held) = (Faults::new(), HeldBack::new());
    for written in written_files(config) {
        let real: BTreeSet<PathBuf> = written.files.iter().map(|path| written_path(path)).collect();
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
                .map(|file| (file, "the gateway writes other data to it")),
        );
    }
    (faults, held)
}

/// The files of the gateway's administrator come first, because the later of two is reported.
fn written_files(config: &Config) -> Vec<WritableFiles> {
    let root = |fields: [&str; 2]| {
        let path = fields
            .iter()
            .fold(FieldPath::root(), |path, field| path.field(field));
        Place::of_file(&config.file).at(path)
    };
    let mut written = Vec::new();
    let mut add = |place: Place, files: Vec<PathBuf>| {
        written.push(WritableFiles {
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
    for (_, entry) in config.bundles() {
        let candidate = entry.candidate().path;
        let new = [&entry.path, &candidate].map(|path| files::with_ending(path, files::NEW_FILE_ENDING));
        let place = Place::of_file(&config.file).at(FieldPath::root().field("manifests"));
        add(
            place,
            [vec![entry.path.clone(), candidate], new.to_vec()].concat(),
        );
    }
    let mut of_clusters: Vec<WritableFiles> = config
        .clusters
        .iter()
        .map(|entry| WritableFiles {
            place: entry.place.at(entry.place.path.field("cacheFile")),
            files: entry.saved_files(),
            tenant: entry.is_written_by_tenant().then(|| entry.name.clone()),
        })
        .collect();
    of_clusters.sort_by_key(|written| written.tenant.is_some());
    written.append(&mut of_clusters);
    written
}

/// The path to which a file is written: links in its folder are followed, but a link in its place
/// is replaced.
fn written_path(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| fs::canonicalize(folder).ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// Reports private keys in a folder to which others may write, or behind a link: a user who can
/// replace the key and its certificate can impersonate the gateway.
pub(crate) fn key_folder_faults(config: &Config) -> Faults {
    let root = FieldPath::root();
    let console = config.console.as_ref().and_then(|console| console.tls.as_ref());
    let keys = [
        Some((root.field("server"), &config.server.tls)),
        console.map(|tls| (root.field("console"), tls)),
    ];
    let mut faults = Faults::new();
    for (listener, tls) in keys.into_iter().flatten() {
        let folder = tls.private_key.parent().unwrap_or(Path::new("/"));
        if let Some(message) = unsafe_for_keys(folder, KeyFolderOwner::Any) {
            let path = listener.field("tls").field("privateKey");
            let place = Place::of_file(&config.file).at(path);
            faults.push(Fault::error(place, FaultKind::Invalid, message));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::config;

    /// The faults of a configuration with this entry of a tenant.
    fn told(folder: &Path, entry: &str) -> (Faults, HeldBack) {
        fs::write(folder.join("clusters.d/east.yaml"), entry).unwrap();
        let text = "apiVersion: config.portcullis.dev/v1alpha1\nkind: GatewayConfiguration\n\
            server: {address: '127.0.0.1:0', tls: {certificate: s.crt, privateKey: s.key}}\n\
            reload: {lastGood: last-good}\ndecisionLog: {path: d.log}\nclusters: clusters.d\n";
        let (config, faults) = config::parse(&folder.join("c.yaml"), text, folder);
        let config = config.unwrap_or_else(|| panic!("{faults}"));
        let read = ["s.key", "clusters.d/west.kubeconfig", "clusters.d/west.yaml"];
        let (mut config, mut held) = (config, HeldBack::new());
        let faults = prevent_overwriting(&mut config, &read.map(|name| folder.join(name)).into(), &mut held);
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
            // Of two entries that share a folder, the later one is reported.
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
        let (found, _) = overwritten_faults(&config.unwrap(), &BTreeSet::new());
        assert!(found.to_string().contains("reload.lastGood"), "{found}");
    }
}
