//! A folder of files by cluster, date and hour, bounded by total size and age: the oldest hours are
//! removed first.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use super::RowKind;
use super::write::TEMPORARY;
use crate::config::FolderBounds;
use crate::telemetry::create_private_folder;
use portcullis_policy::model::Time;

/// The bytes that a file counts at least, so that the number of very small files is bounded, too.
const MIN_FILE_BYTES: u64 = 512;

/// A sixteenth of the maximum size is removed at a time, and files that are too old are removed
/// sixteen times within the maximum age.
const PARTS: u32 = 16;

/// The age at which a file with a temporary name counts as abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);

const HOUR: Duration = Duration::from_secs(3600);

/// A folder, and the state of its files of one kind.
#[derive(Debug)]
pub(crate) struct PartitionFolder {
    bounds: FolderBounds,
    kind: RowKind,
    /// The bytes of the files of this kind.
    total: u64,
    /// The bytes that were added since the last comparison was started.
    added: u64,
    /// When the last comparison with the bounds was started.
    compared_at: SystemTime,
    /// The thread of that comparison. There may be a million files, and lines must not wait for it.
    comparing: Option<JoinHandle<u64>>,
}

/// The names of the date and hour folders, in the order of time.
type HourFolder = (String, String);

/// A file that may be removed.
struct OldFile {
    written: SystemTime,
    path: PathBuf,
    bytes: u64,
}

// === impl PartitionFolder ===

impl PartitionFolder {
    /// Creates the folder if it does not exist, accessible to its owner only, and starts removing
    /// files beyond the bounds, without waiting for that, so that a reload is not delayed.
    ///
    /// # Errors
    ///
    /// The folder cannot be created or read.
    pub(crate) fn open(bounds: &FolderBounds, kind: RowKind, now: SystemTime) -> io::Result<Self> {
        create_private_folder(&bounds.folder)?;
        fs::read_dir(&bounds.folder)?;
        let mut folder = Self {
            total: 0,
            added: 0,
            bounds: bounds.clone(),
            kind,
            compared_at: now,
            comparing: None,
        };
        folder.compare(now);
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.bounds.folder
    }

    /// Counts a new file of `bytes`, and starts removing the oldest files if the total exceeds the
    /// maximum. Waits for that only if the maximum is exceeded by a sixteenth.
    pub(crate) fn add(&mut self, bytes: u64, now: SystemTime) {
        let bytes = bytes.max(MIN_FILE_BYTES);
        self.total += bytes;
        self.added += bytes;
        let most = self.bounds.max_bytes;
        if self.total > most + most / u64::from(PARTS) {
            self.wait();
        }
        if self.total > most {
            self.compare(now);
        }
    }

    /// Removes files that are too old, and returns the time until it should be called again.
    pub(crate) fn maintain(&mut self, now: SystemTime) -> Duration {
        let pause = self.bounds.max_age / PARTS;
        let since = now.duration_since(self.compared_at).unwrap_or(pause);
        if since < pause {
            return pause - since;
        }
        self.compare(now);
        pause
    }

    /// Waits for the comparison with the bounds, if one is running.
    pub(crate) fn wait(&mut self) {
        // A file that was added meanwhile may count twice until the next comparison, but none is
        // left out.
        if let Some(comparing) = self.comparing.take()
            && let Ok(total) = comparing.join()
        {
            self.total = total + self.added;
        }
    }

    /// Whether a comparison with the bounds is running.
    pub(crate) fn is_comparing(&self) -> bool {
        let comparing = self.comparing.as_ref();
        comparing.is_some_and(|comparing| !comparing.is_finished())
    }

    fn compare(&mut self, now: SystemTime) {
        if self.is_comparing() {
            return;
        }
        self.wait();
        self.added = 0;
        self.compared_at = now;
        let (bounds, kind) = (self.bounds.clone(), self.kind);
        let name = "old-files".to_owned();
        let started = thread::Builder::new()
            .name(name)
            .spawn(move || enforce_bounds(&bounds, kind, now));
        self.comparing = started.ok();
    }
}

/// Removes files that are too old, and if the rest exceeds the maximum, the oldest until a part of
/// it is free. Returns the bytes of the rest. Files that cannot be read or removed are tried again
/// the next time.
fn enforce_bounds(bounds: &FolderBounds, kind: RowKind, now: SystemTime) -> u64 {
    let mut hours: BTreeMap<HourFolder, u64> = BTreeMap::new();
    each_hour(&bounds.folder, |hour, folder| {
        if end_of(&hour).is_none() {
            return;
        }
        let bytes: u64 = own_files(folder, kind, now).map(|file| file.bytes).sum();
        *hours.entry(hour).or_default() += bytes;
    });
    let mut total: u64 = hours.values().sum();
    let most = match total > bounds.max_bytes {
        true => bounds.max_bytes - bounds.max_bytes / u64::from(PARTS),
        false => bounds.max_bytes,
    };
    for (hour, _) in hours {
        let is_too_old = end_of(&hour)
            .and_then(|end| now.duration_since(end).ok())
            .is_some_and(|age| age >= bounds.max_age);
        if !is_too_old && total <= most {
            break;
        }
        let target = if is_too_old { 0 } else { most };
        // Files of the hour may have been added since they were counted.
        total = total.saturating_sub(remove_hour(
            (bounds, kind, now),
            &hour,
            total.saturating_sub(target),
        ));
    }
    total
}

/// Removes the oldest files of an hour, of all clusters, until `wanted` bytes are freed. Returns
/// the bytes that were freed.
fn remove_hour(
    (bounds, kind, now): (&FolderBounds, RowKind, SystemTime),
    (date, hour): &HourFolder,
    wanted: u64,
) -> u64 {
    // Links are not followed: an archive may be behind one.
    let is_folder = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let days = folders(&bounds.folder, "cluster=").map(|(_, cluster)| cluster.join(date));
    let hours = days.filter(is_folder).map(|day| day.join(hour));
    let folders: Vec<PathBuf> = hours.filter(is_folder).collect();
    let mut files: Vec<OldFile> = folders
        .iter()
        .flat_map(|folder| own_files(folder, kind, now))
        .collect();
    files.sort_by_key(|file| file.written);
    let mut removed = 0;
    for file in files {
        if removed >= wanted {
            break;
        }
        match fs::remove_file(&file.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, file = %file.path.display(), "an old file cannot be removed");
            }
            _ => removed += file.bytes,
        }
    }
    for folder in folders {
        // Removing a folder fails if it is not empty.
        let emptied = folder.ancestors().take(3).try_for_each(fs::remove_dir);
        drop(emptied);
    }
    removed
}

fn each_hour(folder: &Path, mut each: impl FnMut(HourFolder, &Path)) {
    for (_, cluster) in folders(folder, "cluster=") {
        for (date, day) in folders(&cluster, "date=") {
            for (hour, folder) in folders(&day, "hour=") {
                each((date.clone(), hour), &folder);
            }
        }
    }
}

/// The subfolders whose name begins with `prefix`.
fn folders(folder: &Path, prefix: &'static str) -> impl Iterator<Item = (String, PathBuf)> {
    entries(folder).filter_map(move |entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        (is_folder && name.starts_with(prefix)).then(|| (name, entry.path()))
    })
}

/// The files of `kind`, and abandoned temporary files.
fn own_files(folder: &Path, kind: RowKind, now: SystemTime) -> impl Iterator<Item = OldFile> {
    entries(folder).filter_map(move |entry| {
        let name = entry.file_name().into_string().ok()?;
        let rest = name
            .strip_prefix(kind.name())
            .and_then(|rest| rest.strip_prefix('-'));
        let is_own = rest.is_some_and(|rest| rest.ends_with(".parquet"));
        let [begin, end] = TEMPORARY;
        // A file that another process has removed does not count.
        let found = entry.metadata().ok()?;
        let mut written = found.modified().ok()?;
        if !is_own {
            let is_abandoned = now.duration_since(written).is_ok_and(|age| age >= ABANDONED);
            if !(is_abandoned && name.starts_with(begin) && name.ends_with(end)) {
                return None;
            }
            written = SystemTime::UNIX_EPOCH;
        }
        Some(OldFile {
            written,
            path: entry.path(),
            bytes: found.len().max(MIN_FILE_BYTES),
        })
    })
}

fn entries(folder: &Path) -> impl Iterator<Item = DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// The end of an hour.
fn end_of((date, hour): &HourFolder) -> Option<SystemTime> {
    let (date, hour) = (date.strip_prefix("date=")?, hour.strip_prefix("hour=")?);
    let begin = Time::parse(&format!("{date}T{hour}:00:00Z"))?.as_microseconds();
    Some(SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(begin).ok()?) + HOUR)
}
