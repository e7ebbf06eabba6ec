//! Lines that wait for the collector, in memory or in a spool: a folder in which each segment of
//! lines is a file. The oldest is sent first. Files outlast the process; if two gateways use one
//! folder, only one of them sends.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

use crate::config::{SpoolBounds, files};
use crate::telemetry::create_private_folder;
use crate::telemetry::metrics::IntCounter;

/// The most bytes of lines in the queue, and without a spool the most that wait for the collector.
pub(crate) const MAX_PENDING_BYTES: usize = 8 << 20;

/// How long a segment waits for more lines while the collector is unavailable, so that a spool gets
/// few files.
pub(crate) const MAX_SEGMENT_AGE_AWAY: Duration = Duration::from_secs(60);

/// The first pause between two attempts.
pub(crate) const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);

/// How long a gateway that is shutting down waits for the collector.
const MAX_FLUSH_TIME: Duration = Duration::from_millis(1500);

/// The suffix of the names of segments.
const ENDING: &str = ".jsonl";

/// The bytes that a file counts at least, so that the number of very small files is bounded, too.
const MIN_FILE_BYTES: u64 = 4096;

/// The most bytes that are read of a file: twice the size of the largest segment.
const MAX_FILE_BYTES: usize = 16 << 20;

/// The longest time for which the size of the folder is used without listing its files again.
const MAX_LISTING_AGE: Duration = Duration::from_secs(60);

/// The folder of a spool.
#[derive(Debug)]
pub(crate) struct Spool {
    bounds: SpoolBounds,
    /// The process that holds the lock sends the files in the folder.
    lock: File,
    /// The total size of the files, and when they were last listed: listing thousands for each
    /// segment would be slow.
    taken: Mutex<(u64, Option<Instant>)>,
    /// The files that were listed to be sent, the oldest first.
    listed: Mutex<VecDeque<PathBuf>>,
}

/// Why a segment was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    /// The bound is reached.
    #[error(
        "the spool is full: raise `tracing.spool.maxBytes`, or find out why the collector accepts no log \
        records"
    )]
    Full,
    /// The file cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The state that the writer and the sender share.
#[derive(Debug)]
pub(crate) struct Backlog {
    pub(crate) spool: Option<Spool>,
    pub(crate) state: Mutex<BacklogState>,
    pub(crate) changed: Condvar,
    pub(crate) endpoint: Arc<Mutex<Arc<str>>>,
    pub(crate) dropped: IntCounter,
}

#[derive(Debug, Default)]
pub(crate) struct BacklogState {
    /// Without a spool: the segments, and their bytes together with those of the segment that is
    /// being sent.
    segments: VecDeque<Segment>,
    bytes: usize,
    /// With a spool: whether there may be files that the sender has not seen.
    has_new_file: bool,
    /// Whether the last attempt to send failed.
    pub(crate) is_unavailable: bool,
    /// Whether the writer has ended.
    pub(crate) is_closed: bool,
}

/// Lines that are sent together.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) lines: Vec<u8>,
    /// The file in a spool that contains them.
    pub(crate) file: Option<PathBuf>,
}

// === impl Backlog ===

impl Backlog {
    pub(crate) fn state(&self) -> MutexGuard<'_, BacklogState> {
        lock(&self.state)
    }

    /// Adds a segment of `count` lines, or drops and counts them.
    pub(crate) fn add(&self, lines: Vec<u8>, count: u64) -> Result<(), SpoolError> {
        let added = match &self.spool {
            Some(spool) => spool.add(&lines),
            None => Ok(()),
        };
        let mut state = self.state();
        if added.is_err() || (self.spool.is_none() && state.bytes + lines.len() > MAX_PENDING_BYTES) {
            drop(state);
            self.dropped.inc_by(count);
            return added;
        }
        if self.spool.is_some() {
            state.has_new_file = true;
        } else {
            state.bytes += lines.len();
            state.segments.push_back(Segment { lines, file: None });
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until no other gateway sends the files of the spool. Returns `false` if the writer
    /// ends before.
    pub(crate) fn wait_for_spool(&self) -> bool {
        let mut is_told = false;
        while self.spool.as_ref().is_some_and(|spool| !spool.lock()) {
            if !is_told {
                tracing::warn!("log records wait: another gateway uses the folder of `tracing.spool`");
            }
            is_told = true;
            if self.pause(MIN_RETRY_DELAY) {
                return false;
            }
        }
        true
    }

    /// Waits for the oldest segment; `None` when there will be no more.
    pub(crate) fn next(&self) -> Option<Segment> {
        loop {
            if let Some(spool) = &self.spool {
                self.state().has_new_file = false;
                if let Some((file, lines)) = spool.oldest(&self.dropped) {
                    let file = Some(file);
                    return Some(Segment { lines, file });
                }
            }
            let mut state = self.state();
            while !state.has_new_file {
                if let Some(segment) = state.segments.pop_front() {
                    return Some(segment);
                }
                if state.is_closed {
                    return None;
                }
                state = wait(&self.changed, state, MAX_SEGMENT_AGE_AWAY);
            }
        }
    }

    /// Removes a segment that was sent or rejected, and returns whether it is gone. A file that
    /// cannot be removed would be sent again.
    pub(crate) fn done(&self, segment: &Segment) -> bool {
        let is_gone = match (&self.spool, &segment.file) {
            (Some(spool), Some(file)) => spool.remove(file, file_bytes(&segment.lines)),
            _ => {
                self.state().bytes -= segment.lines.len();
                true
            }
        };
        self.changed.notify_all();
        is_gone
    }

    /// Records whether the collector is unavailable, and returns whether that has changed.
    pub(crate) fn set_unavailable(&self, is_away: bool) -> bool {
        let mut state = self.state();
        let was_away = std::mem::replace(&mut state.is_unavailable, is_away);
        drop(state);
        self.changed.notify_all();
        was_away != is_away
    }

    /// Waits for `delay`, or until the writer ends, and returns whether it has ended.
    pub(crate) fn pause(&self, delay: Duration) -> bool {
        let end = Instant::now() + delay;
        let mut state = self.state();
        while !state.is_closed {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = wait(&self.changed, state, left);
        }
        true
    }

    /// Without a spool: waits until everything is sent, unless the collector is unavailable.
    pub(crate) fn flush(&self) {
        let end = Instant::now() + MAX_FLUSH_TIME;
        let mut state = self.state();
        while state.bytes > 0 && !state.is_unavailable {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = wait(&self.changed, state, left);
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait<'g, T>(changed: &Condvar, guard: MutexGuard<'g, T>, limit: Duration) -> MutexGuard<'g, T> {
    match changed.wait_timeout(guard, limit) {
        Ok((guard, _)) => guard,
        Err(poisoned) => poisoned.into_inner().0,
    }
}

/// The size that a file with these lines counts.
fn file_bytes(lines: &[u8]) -> u64 {
    (lines.len() as u64).max(MIN_FILE_BYTES)
}

// === impl Spool ===

impl Spool {
    /// Creates the folder if it is missing, accessible to its owner only, and removes incomplete
    /// files of an earlier process.
    ///
    /// # Errors
    ///
    /// The folder cannot be created, read or written to.
    pub(crate) fn open(bounds: &SpoolBounds) -> io::Result<Self> {
        create_private_folder(&bounds.folder)?;
        let lock = files::append(&bounds.folder.join("lock"), 0o600)?;
        let spool = Self {
            bounds: bounds.clone(),
            lock,
            taken: Mutex::default(),
            listed: Mutex::default(),
        };
        for (path, _) in spool.files(&format!("{ENDING}{}", files::NEW_FILE_ENDING))? {
            fs::remove_file(path)?;
        }
        Ok(spool)
    }

    /// Locks the folder for this process, unless another process has locked it. Returns whether it
    /// is locked.
    pub(crate) fn lock(&self) -> bool {
        flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Writes a segment to a file.
    ///
    /// # Errors
    ///
    /// The spool is full, or the file cannot be written.
    pub(crate) fn add(&self, lines: &[u8]) -> Result<(), SpoolError> {
        let bytes = file_bytes(lines);
        if !self.has_room(bytes)? {
            return Err(SpoolError::Full);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = self.bounds.folder.join(format!("{:020}{ENDING}", now.as_nanos()));
        files::replace(&path, |file| file.write_all(lines))?;
        lock(&self.taken).0 += bytes;
        Ok(())
    }

    /// Whether this many bytes fit, according to the current or a recent listing of the folder.
    fn has_room(&self, bytes: u64) -> io::Result<bool> {
        let mut taken = lock(&self.taken);
        let is_known = taken.1.is_some_and(|at| at.elapsed() < MAX_LISTING_AGE);
        if !is_known || taken.0 + bytes > self.bounds.max_bytes {
            let files = self.files(ENDING)?;
            *taken = (files.iter().map(|(_, length)| length).sum(), Some(Instant::now()));
        }
        Ok(taken.0 + bytes <= self.bounds.max_bytes)
    }

    /// Reads the oldest segment and returns it with its file. A file that cannot be read is
    /// removed, and counts as one dropped line.
    pub(crate) fn oldest(&self, dropped: &IntCounter) -> Option<(PathBuf, Vec<u8>)> {
        let mut listed = lock(&self.listed);
        // Files that were listed before may be gone.
        for _ in 0..2 {
            if listed.is_empty() {
                let mut files = self.files(ENDING).unwrap_or_default();
                files.sort();
                listed.extend(files.into_iter().map(|(path, _)| path));
            }
            while let Some(path) = listed.pop_front() {
                match files::read(&path, MAX_FILE_BYTES) {
                    Ok(lines) => return Some((path, lines)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => {
                        tracing::error!(%error, file = %path.display(), "log records of the spool cannot be read and are dropped");
                        if self.remove(&path, 0) {
                            dropped.inc();
                        }
                    }
                }
            }
        }
        None
    }

    /// Removes a segment of this size, and returns whether it is gone.
    fn remove(&self, path: &Path, bytes: u64) -> bool {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::error!(%error, file = %path.display(), "log records of the spool cannot be removed");
                false
            }
            _ => {
                let mut taken = lock(&self.taken);
                taken.0 = taken.0.saturating_sub(bytes);
                true
            }
        }
    }

    /// The files of segments with this suffix, and their sizes. Other files in the folder are not
    /// touched.
    fn files(&self, ending: &str) -> io::Result<Vec<(PathBuf, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.bounds.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(ending));
            let is_own =
                |number: &str| number.len() == 20 && number.bytes().all(|byte| byte.is_ascii_digit());
            if !number.is_some_and(is_own) {
                continue;
            }
            // A file that was removed meanwhile does not count.
            if let Ok(found) = entry.metadata()
                && found.is_file()
            {
                files.push((entry.path(), found.len().max(MIN_FILE_BYTES)));
            }
        }
        Ok(files)
    }
}
