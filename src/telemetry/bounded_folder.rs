//! A folder of files, bounded by total size and age: the oldest files are removed first.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::config::FolderBounds;

/// The bytes that a file counts at least, so that the number of very small files is bounded, too.
const MIN_FILE_BYTES: u64 = 512;

/// A folder with its bounds and size.
#[derive(Debug)]
pub(crate) struct BoundedFolder {
    bounds: FolderBounds,
    /// The time at which the file of a name was created; `None` for other files, which are not
    /// touched.
    begun: fn(&str) -> Option<SystemTime>,
    /// The total size of all files, and when it was last computed.
    total: u64,
    read_at: SystemTime,
}

/// A file in the folder, of this process or another one.
#[derive(Debug)]
struct WrittenFile {
    path: PathBuf,
    length: u64,
    begun: SystemTime,
}

/// Creates a folder if it is missing, accessible to its owner only.
///
/// # Errors
///
/// The folder cannot be created.
pub(crate) fn create_private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

// === impl BoundedFolder ===

impl BoundedFolder {
    /// Creates the folder if it is missing, accessible to its owner only, and removes files beyond
    /// the bounds.
    ///
    /// # Errors
    ///
    /// The folder cannot be created or read.
    pub(crate) fn open(
        bounds: &FolderBounds,
        begun: fn(&str) -> Option<SystemTime>,
        now: SystemTime,
    ) -> io::Result<Self> {
        let mut folder = Self {
            bounds: bounds.clone(),
            begun,
            total: 0,
            read_at: now,
        };
        folder.create()?;
        folder.enforce_bounds(0, None, now)?;
        Ok(folder)
    }

    /// Creates the folder if it is missing, accessible to its owner only.
    ///
    /// # Errors
    ///
    /// The folder cannot be created.
    pub(crate) fn create(&self) -> io::Result<()> {
        create_private_folder(&self.bounds.folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.bounds.folder
    }

    pub(crate) const fn bounds(&self) -> &FolderBounds {
        &self.bounds
    }

    /// When the files were last compared with the bounds.
    pub(crate) const fn read_at(&self) -> SystemTime {
        self.read_at
    }

    /// Whether `more` bytes fit, by the size that is known without listing the files.
    pub(crate) const fn has_room(&self, more: u64) -> bool {
        self.total + more <= self.bounds.max_bytes
    }

    /// Counts bytes that were written.
    pub(crate) const fn add(&mut self, bytes: u64) {
        self.total += bytes;
    }

    /// Removes files, the oldest first, until `more` bytes fit and no file is too old. The file at
    /// `open`, which is being written, is never removed.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, or a file cannot be removed.
    pub(crate) fn enforce_bounds(
        &mut self,
        more: u64,
        open: Option<&Path>,
        now: SystemTime,
    ) -> io::Result<()> {
        self.read_at = now;
        let mut written = self.written()?;
        written.sort_by(|one, other| one.path.cmp(&other.path));
        let mut total: u64 = written.iter().map(|file| file.length).sum();
        for file in written {
            let age = now.duration_since(file.begun).unwrap_or_default();
            if total + more <= self.bounds.max_bytes && age < self.bounds.max_age {
                continue;
            }
            if open == Some(file.path.as_path()) {
                continue;
            }
            match fs::remove_file(&file.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => total -= file.length,
            }
        }
        self.total = total;
        Ok(())
    }

    /// Like [`BoundedFolder::enforce_bounds`] without bytes to be written. Files that cannot be removed are
    /// tried again later.
    pub(crate) fn try_enforce_bounds(&mut self, open: Option<&Path>, now: SystemTime) {
        if let Err(error) = self.enforce_bounds(0, open, now) {
            tracing::warn!(%error, folder = %self.path().display(), "old files cannot be removed");
        }
    }

    /// The longest interval between two searches for files that are too old, if `files` files are
    /// created within `maxAge`.
    pub(crate) fn check_interval(&self, files: u32) -> Duration {
        self.bounds.max_age / files / 2
    }

    fn written(&self) -> io::Result<Vec<WrittenFile>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.path())? {
            let entry = entry?;
            let Some(begun) = entry.file_name().to_str().and_then(self.begun) else {
                continue;
            };
            // A file that another process has removed does not count.
            if let Ok(found) = entry.metadata() {
                files.push(WrittenFile {
                    path: entry.path(),
                    length: found.len().max(MIN_FILE_BYTES),
                    begun,
                });
            }
        }
        Ok(files)
    }
}
