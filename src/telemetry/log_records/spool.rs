//! A folder in which segments of lines wait for the collector, each in a file of its own, the oldest
//! first. Files outlast the process; of two gateways with one folder, one sends.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

use crate::config::{SpoolBounds, files};
use crate::telemetry::metrics::IntCounter;

/// The end of the names of segments.
const ENDING: &str = ".jsonl";

/// What a file takes at least: a folder of very small files is bounded too.
const MIN_FILE_BYTES: u64 = 4096;

/// The most that is read of a file: the largest segments have half of it.
const MAX_FILE_BYTES: usize = 16 << 20;

/// The folder.
#[derive(Debug)]
pub(crate) struct Spool {
    bounds: SpoolBounds,
    /// Who has it locked sends what is in the folder.
    lock: File,
}

/// Why a segment was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    /// The bound is reached.
    #[error(
        "the spool is full: raise `tracing.spool.maxBytes`, or see why the collector takes no log records"
    )]
    Full,
    /// The file cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

// === impl Spool ===

impl Spool {
    /// Makes the folder where it is missing, for its owner alone, and removes what a process that ended
    /// has begun to write.
    ///
    /// # Errors
    ///
    /// The folder cannot be made, read or written to.
    pub(crate) fn open(bounds: &SpoolBounds) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&bounds.folder)?;
        let lock = files::append(&bounds.folder.join("lock"), 0o600)?;
        let spool = Self {
            bounds: bounds.clone(),
            lock,
        };
        for (path, _) in spool.files(files::NEW_FILE_ENDING)? {
            fs::remove_file(path)?;
        }
        Ok(spool)
    }

    /// Locks the folder for this process, unless another one has; whether it is locked.
    pub(crate) fn lock(&self) -> bool {
        flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Writes a segment to a file.
    ///
    /// # Errors
    ///
    /// There is no room, or it cannot be written.
    pub(crate) fn add(&self, lines: &[u8]) -> Result<(), SpoolError> {
        let taken: u64 = self.segments()?.iter().map(|(_, length)| length).sum();
        if taken + (lines.len() as u64).max(MIN_FILE_BYTES) > self.bounds.max_bytes {
            return Err(SpoolError::Full);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = self.bounds.folder.join(format!("{:020}{ENDING}", now.as_nanos()));
        Ok(files::replace(&path, |file| file.write_all(lines))?)
    }

    /// The oldest segment and its file. One that cannot be read is removed, and counts as one dropped
    /// line.
    pub(crate) fn oldest(&self, dropped: &IntCounter) -> Option<(PathBuf, Vec<u8>)> {
        let mut segments = self.segments().unwrap_or_default();
        segments.sort();
        for (path, _) in segments {
            match files::read(&path, MAX_FILE_BYTES) {
                Ok(lines) => return Some((path, lines)),
                Err(error) => {
                    tracing::error!(%error, file = %path.display(), "log records of the spool cannot be read and are dropped");
                    dropped.inc();
                    self.remove(&path);
                }
            }
        }
        None
    }

    /// Removes a segment.
    pub(crate) fn remove(&self, path: &Path) {
        if let Err(error) = fs::remove_file(path) {
            tracing::error!(%error, file = %path.display(), "log records that were sent cannot be removed");
        }
    }

    /// The files of segments, and what each takes.
    fn segments(&self) -> io::Result<Vec<(PathBuf, u64)>> {
        self.files(ENDING)
    }

    fn files(&self, ending: &str) -> io::Result<Vec<(PathBuf, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.bounds.folder)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().ends_with(ending) {
                continue;
            }
            // One that is removed meanwhile takes no place.
            if let Ok(found) = entry.metadata()
                && found.is_file()
            {
                files.push((entry.path(), found.len().max(MIN_FILE_BYTES)));
            }
        }
        Ok(files)
    }
}
