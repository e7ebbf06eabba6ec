//! The decision log and recordings with `format: parquet`: lines are written directly as Parquet
//! files, without files of JSON lines before.
//!
//! ```text
//! lines ─▶ rows in memory, by cluster and hour ─▶ a whole file with a temporary name ─▶ renamed
//! ```
//!
//! No file stays open between two lines, however many clusters there are. The rows in memory, which
//! are lost if the process is killed, are limited in bytes and in age.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use openssl::sha::Sha256;

use super::RowKind;
use super::folder::PartitionFolder;
use super::rows::{PackError, WaitingRows, cells};
use super::write::{FileMaker, MAX_WAITING_BYTES, digest_line, partition_of};
use crate::config::{FolderBounds, RecordingSettings};
use crate::recording::RecordingSink;
use crate::telemetry::decision_log::DecisionLine;
use crate::telemetry::metrics::IntCounter;
use crate::telemetry::{BatchWriter, QueueSettings, SwitchedQueue, WriteQueue};
use portcullis_cel::json::Document;

/// The maximum size of the queue before the writer, which takes no lines while it writes a file.
const MAX_PENDING_BYTES: usize = 32 << 20;

/// The maximum number of rows of a file. While a file is sorted and written, lines wait in the
/// queue.
const MAX_FILE_ROWS: usize = 1 << 16;

/// The assumed memory of a partition besides its rows, in bytes.
const PARTITION_BYTES: usize = 16 << 10;

/// How long a row waits for other rows of its cluster and hour.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// The maximum number of due files that are written before lines are taken again, because the files
/// of many clusters may be due at once.
const MAX_DUE_FILES: usize = 16;

/// The maximum length of the line of a recorded review, in bytes.
const MAX_REVIEW_BYTES: usize = 64 << 20;

/// Writes decisions as Parquet files, if that is configured.
#[derive(Debug)]
pub(crate) struct DecisionFiles {
    queue: SwitchedQueue<FolderBounds, Vec<u8>>,
    dropped: IntCounter,
}

/// Writes lines as Parquet files.
pub(crate) struct ColumnLog {
    folder: PartitionFolder,
    files: FileMaker,
    kind: RowKind,
    /// The rows of each future file, by its path below the folder.
    waiting: HashMap<PathBuf, WaitingFile>,
    /// The memory of all of them in bytes.
    bytes: usize,
    /// Counts lost lines.
    dropped: IntCounter,
    /// Whether the last file or line could not be written, which was logged.
    is_broken: bool,
}

/// The rows of a future file.
struct WaitingFile {
    rows: WaitingRows,
    digest: Sha256,
    since: SystemTime,
}

// === impl DecisionFiles ===

impl DecisionFiles {
    /// Writes nothing until [`follow`](Self::follow). `dropped` counts lost lines.
    #[must_use]
    pub(crate) fn new(dropped: IntCounter) -> Self {
        Self {
            queue: SwitchedQueue::new(),
            dropped,
        }
    }

    /// Writes to the folder of `bounds` from now on, or nothing any more if it is `None`. Lines
    /// that wait are still written.
    ///
    /// # Errors
    ///
    /// The folder cannot be created or read, or no thread can be started. Nothing is written then.
    pub(crate) fn follow(&self, bounds: Option<&FolderBounds>) -> io::Result<()> {
        self.queue.apply(bounds, |bounds| {
            let log = ColumnLog::open(RowKind::Decision, bounds, self.dropped.clone(), SystemTime::now())?;
            let settings = QueueSettings {
                thread: "decision-files",
                limit: MAX_PENDING_BYTES,
                dropped: self.dropped.clone(),
            };
            WriteQueue::start(log, settings)
        })
    }

    /// Whether decisions are written.
    pub(crate) fn is_on(&self) -> bool {
        self.queue.is_on()
    }

    /// Queues the line of a decision. If the queue is full, drops and counts it.
    pub(crate) fn write(&self, line: &DecisionLine<'_>, with_near_misses: bool) {
        self.queue.push(|queue| {
            let [start, end] = line.parts(with_near_misses);
            queue.push(start.len() + end.len(), |pending| {
                pending.extend_from_slice(start);
                pending.extend_from_slice(end);
            });
        });
    }

    /// Waits until every line so far is in a file, for at most `limit`. Returns whether it is.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        self.queue.flush(limit)
    }
}

/// Returns a sink that records reviews as Parquet files.
///
/// # Errors
///
/// The folder cannot be created or read.
pub(crate) fn recording_files(
    settings: &RecordingSettings,
    dropped: &IntCounter,
    now: SystemTime,
) -> io::Result<Box<dyn RecordingSink>> {
    let log = ColumnLog::open(RowKind::Recording, &settings.files, dropped.clone(), now)?;
    Ok(Box::new(log))
}

// === impl ColumnLog ===

impl ColumnLog {
    /// # Errors
    ///
    /// The folder cannot be created or read.
    pub(crate) fn open(
        kind: RowKind,
        bounds: &FolderBounds,
        dropped: IntCounter,
        now: SystemTime,
    ) -> io::Result<Self> {
        let folder = PartitionFolder::open(bounds, kind, now)?;
        Ok(Self {
            files: FileMaker::new(kind, folder.path()).map_err(io::Error::other)?,
            folder,
            kind,
            waiting: HashMap::new(),
            bytes: 0,
            dropped,
            is_broken: false,
        })
    }

    /// Adds lines, each of which ends with a line break.
    pub(crate) fn add_lines(&mut self, lines: &[u8], now: SystemTime) {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if let Err(error) = self.add(line.trim_ascii_end(), now) {
                self.lost(1, &error);
            }
        }
        self.write_due(now);
    }

    fn add(&mut self, line: &[u8], now: SystemTime) -> Result<(), PackError> {
        let document = Document::parse_bytes(line)?;
        let cells = cells(self.kind, document.root())?;
        let path = partition_of(document.root())?;
        let kind = self.kind;
        let bytes = &mut self.bytes;
        let waiting = self.waiting.entry(path.clone()).or_insert_with(|| {
            *bytes += PARTITION_BYTES;
            WaitingFile {
                rows: WaitingRows::new(kind),
                digest: Sha256::new(),
                since: now,
            }
        });
        digest_line(&mut waiting.digest, line);
        let before = waiting.rows.bytes;
        waiting.rows.add(cells);
        self.bytes += waiting.rows.bytes - before;
        if waiting.rows.count >= MAX_FILE_ROWS {
            self.write(&path, now);
        }
        while self.bytes > MAX_WAITING_BYTES {
            let largest = self.waiting.iter().max_by_key(|(_, waiting)| waiting.rows.bytes);
            let Some(path) = largest.map(|(path, _)| path.clone()) else {
                break;
            };
            self.write(&path, now);
        }
        Ok(())
    }

    /// Writes the files that are due. Returns the time until the next one is due.
    fn write_due(&mut self, now: SystemTime) -> Duration {
        let left = |waiting: &WaitingFile| {
            // If the clock was set back, the file is due.
            let waited = now.duration_since(waiting.since).unwrap_or(MAX_WAIT);
            MAX_WAIT.saturating_sub(waited)
        };
        let due = self.waiting.iter().filter(|(_, waiting)| left(waiting).is_zero());
        let due = due.take(MAX_DUE_FILES);
        let due: Vec<PathBuf> = due.map(|(path, _)| path.clone()).collect();
        due.iter().for_each(|path| self.write(path, now));
        let next = self.waiting.values().map(left).min();
        next.unwrap_or(MAX_WAIT)
    }

    /// Writes all rows that wait.
    pub(crate) fn write_all(&mut self, now: SystemTime) {
        let all: Vec<PathBuf> = self.waiting.keys().cloned().collect();
        all.iter().for_each(|path| self.write(path, now));
    }

    /// Writes the rows of the partition `path` as a file.
    fn write(&mut self, path: &Path, now: SystemTime) {
        let Some(waiting) = self.waiting.remove(path) else {
            return;
        };
        self.bytes -= waiting.rows.bytes + PARTITION_BYTES;
        let count = waiting.rows.count as u64;
        match self.write_file(path, waiting) {
            Ok(bytes) => {
                self.is_broken = false;
                self.folder.add(bytes, now);
            }
            Err(error) => self.lost(count, &error),
        }
    }

    fn write_file(&self, path: &Path, waiting: WaitingFile) -> Result<u64, PackError> {
        let (mut writer, temporary) = self.files.begin(path)?;
        waiting.rows.write(&mut writer)?;
        let written = self.files.complete(path, (writer, temporary), waiting.digest)?;
        let bytes = written.bytes;
        written.persist()?;
        Ok(bytes)
    }

    /// Counts lost lines. Logs why, unless the last write failed, too.
    fn lost(&mut self, count: u64, error: &PackError) {
        self.dropped.inc_by(count);
        if !self.is_broken {
            let (folder, what) = (self.folder.path().display(), self.kind.name());
            tracing::error!(%error, %folder, "cannot write {what} as columns: lines are lost");
        }
        self.is_broken = true;
    }
}

/// Writes the waiting rows when a reload ends the writer.
impl Drop for ColumnLog {
    fn drop(&mut self) {
        self.write_all(SystemTime::now());
        self.folder.wait();
    }
}

impl BatchWriter<Vec<u8>> for ColumnLog {
    fn write(&mut self, lines: &mut Vec<u8>, _: u64) -> u64 {
        self.add_lines(lines, SystemTime::now());
        // `add_lines` has counted lost lines.
        0
    }

    fn flush(&mut self) {
        self.write_all(SystemTime::now());
    }

    fn idle(&mut self) -> Option<Duration> {
        Some(RecordingSink::maintain(self, SystemTime::now()))
    }
}

impl RecordingSink for ColumnLog {
    fn append(&mut self, lines: &[u8], now: SystemTime) -> io::Result<()> {
        self.add_lines(lines, now);
        Ok(())
    }

    fn maintain(&mut self, now: SystemTime) -> Duration {
        self.write_due(now).min(self.folder.maintain(now))
    }

    fn max_append_bytes(&self) -> usize {
        MAX_REVIEW_BYTES
    }

    fn flush(&mut self, now: SystemTime) {
        self.write_all(now);
    }
}

#[cfg(test)]
mod tests;
