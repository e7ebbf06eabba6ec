//! Whether the files that a configuration has written can be written. Nothing is made or changed.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::config::{Config, LogPath, ManifestPath, files};
use portcullis_policy::field::{Fault, FaultKind, Faults, FieldPath, Place};

/// What is wrong with a path, and the words for it.
type Unwritable = (FaultKind, String);

/// A decision log that cannot be opened and a folder that cannot be recorded to are errors, since
/// `serve` would not start. Without the last good set or a cluster's cache file it does start, so
/// those are warnings.
pub(crate) fn faults(config: &Config) -> Faults {
    let mut faults = Faults::default();
    let (place, root) = (Place::of_file(&config.file), FieldPath::root());
    if let Some(log) = &config.decision_log
        && let LogPath::File(path) = &log.path
        && let Some((kind, message)) = unusable_log(path)
    {
        let place = place.at(root.field("decisionLog").field("path"));
        faults.push(Fault::error(place, kind, message));
    }
    if let Some(recording) = &config.recording
        && let Some((kind, message)) = unusable_recording(&recording.folder, &config.manifests)
    {
        let place = place.at(root.field("recording").field("folder"));
        faults.push(Fault::error(place, kind, message));
    }
    let cache_files = config.clusters.iter().filter_map(|cluster| {
        let place = cluster.place.at(cluster.place.path.field("cacheFile"));
        Some((place, cluster.cache_file.as_deref()?))
    });
    let last_good = config.reload.last_good.as_deref();
    let last_good = last_good.map(|path| (place.at(root.field("reload").field("lastGood")), path));
    for (place, path) in last_good.into_iter().chain(cache_files) {
        if let Some((kind, message)) = irreplaceable(path) {
            faults.push(Fault::warning(place, kind, message));
        }
    }
    faults
}

/// A log is opened, and made where it is missing; its folder is not made.
fn unusable_log(path: &Path) -> Option<Unwritable> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Some(is_folder(path)),
        Ok(_) => Some(refused(path, &files::append(path, 0).err()?)),
        // It would be made where the link leads.
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

/// A folder is made, for its owner alone, where it is missing. One that is there must be so
/// already, and lead nowhere that manifests are read from.
fn unusable_recording(folder: &Path, manifests: &[ManifestPath]) -> Option<Unwritable> {
    let nearest = folder.ancestors().find(|folder| folder.exists());
    let real = nearest.and_then(|folder| folder.canonicalize().ok());
    let is_read = |manifest: &&ManifestPath| {
        let manifest = manifest.path.canonicalize();
        let starts = |real: &PathBuf| manifest.as_ref().is_ok_and(|manifest| real.starts_with(manifest));
        real.as_ref().is_some_and(starts)
    };
    if let Some(manifest) = manifests.iter().find(is_read) {
        let message = format!(
            "recordings do not go where manifests are read from, `{}`: use another folder",
            manifest.path.display()
        );
        return Some((FaultKind::Invalid, message));
    }
    match std::fs::metadata(folder) {
        Ok(found) if !found.is_dir() => {
            let message = format!("`{}` is not a folder", folder.display());
            Some((FaultKind::Invalid, message))
        }
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            let message = format!(
                "others may use `{0}`, where whole reviews are kept: `chmod 700 {0}`, or name a folder within \
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

/// A file that is replaced as a whole ([`files::replace`]): one beside it takes its place, and
/// folders that are missing are made.
fn irreplaceable(path: &Path) -> Option<Unwritable> {
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

/// Of a name alone, the working folder.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
