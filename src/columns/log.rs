//! Lines that are written as files of columns while they come, without lines of JSON before: the decision log and
//! recordings with `format: parquet`.
//!
//! ```text
//! lines ─▶ rows of each cluster and hour, which wait in memory ─▶ a file at once, under a temporary name ─▶ its name
//! ```
//!
//! No file is open between two lines, however many clusters there are. What waits is bounded in bytes and in time:
//! so much is lost if the process is killed. The folder is bounded by bytes and age together: the oldest hours are
//! removed first.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder, DirEntry};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use openssl::sha::Sha256;

use super::RowKind;
use super::rows::{PackError, WaitingRows, cells};
use super::write::{FileMaker, MAX_WAITING_BYTES, TEMPORARY, digest_line, partition_of};
use crate::config::{FolderBounds, RecordingSettings};
use crate::recording::RecordingSink;
use crate::telemetry::decision_log::DecisionLine;
use crate::telemetry::metrics::IntCounter;
use crate::telemetry::{BatchWriter, QueueSettings, SwitchedQueue, WriteQueue};
use portcullis_cel::json::Document;
use portcullis_policy::model::Time;

/// Bytes that may wait for the writer: it takes no lines while it writes a file.
const MAX_PENDING_BYTES: usize = 32 << 20;

/// The most rows of a file. While it is sorted and written, further lines wait in the queue.
const MAX_FILE_ROWS: usize = 1 << 16;

/// What a partition takes besides its rows.
const PARTITION_BYTES: usize = 16 << 10;

/// How long a row waits for others of its cluster and hour.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// How many files are written because they have waited, before lines are taken again: those of many clusters may be
/// due at once.
const MAX_DUE_FILES: usize = 16;

/// The longest review that is recorded, in bytes of its line.
const MAX_REVIEW_BYTES: usize = 64 << 20;

/// Memory kept for the next lines.
const SPARE_BYTES: usize = 256 << 10;

/// Where decisions are written as columns at present, if anywhere.
#[derive(Debug)]
pub(crate) struct DecisionFiles {
    queue: SwitchedQueue<FolderBounds, Vec<u8>>,
    dropped: IntCounter,
}

/// Writes lines as files of columns.
pub(crate) struct ColumnLog {
    folder: PartitionFolder,
    files: FileMaker,
    kind: RowKind,
    /// By the path below the folder.
    waiting: HashMap<PathBuf, WaitingFile>,
    /// How much waits in all of them.
    bytes: usize,
    /// Counts lost lines.
    dropped: IntCounter,
    /// The last file or line could not be written, which was said.
    is_broken: bool,
}

/// The rows of a file to come.
struct WaitingFile {
    rows: WaitingRows,
    digest: Sha256,
    since: SystemTime,
}

// === impl DecisionFiles ===

impl DecisionFiles {
    /// Nothing is written yet. `dropped` counts lost lines.
    #[must_use]
    pub(crate) fn new(dropped: IntCounter) -> Self {
        Self {
            queue: SwitchedQueue::new(),
            dropped,
        }
    }

    /// Writes to this folder from now on, or no more. What waits is still written.
    ///
    /// # Errors
    ///
    /// The folder cannot be made or read, or no thread be started. Nothing is written then.
    pub(crate) fn follow(&self, bounds: Option<&FolderBounds>) -> io::Result<()> {
        self.queue.follow(bounds, |bounds| {
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

    /// Queues the line of a decision, or drops and counts it when the queue is full.
    pub(crate) fn write(&self, line: &DecisionLine<'_>, with_near_misses: bool) {
        self.queue.push(|queue| {
            let [start, end] = line.parts(with_near_misses);
            queue.push(start.len() + end.len(), |pending| {
                pending.extend_from_slice(start);
                pending.extend_from_slice(end);
            });
        });
    }

    /// Waits until every line so far is in a file, `limit` at most. Whether it is.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        self.queue.flush(limit)
    }
}

/// Where reviews are recorded as columns.
///
/// # Errors
///
/// The folder cannot be made or read.
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
    /// The folder cannot be made or read.
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

    /// Takes lines, each with its line break.
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

    /// Writes what has waited long enough. After how long there is more of that.
    fn write_due(&mut self, now: SystemTime) -> Duration {
        let left = |waiting: &WaitingFile| {
            // Where the clock was set back, it has waited for long.
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

    /// Writes everything that waits.
    pub(crate) fn write_all(&mut self, now: SystemTime) {
        let all: Vec<PathBuf> = self.waiting.keys().cloned().collect();
        all.iter().for_each(|path| self.write(path, now));
    }

    /// Writes the file of a partition.
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

    /// Counts lost lines, and says why, once until a file can be written again.
    fn lost(&mut self, count: u64, error: &PackError) {
        self.dropped.inc_by(count);
        if !self.is_broken {
            let (folder, what) = (self.folder.path().display(), self.kind.name());
            tracing::error!(%error, %folder, "cannot write {what} as columns: lines are lost");
        }
        self.is_broken = true;
    }
}

/// What waits is not lost where a reload ends the writer.
impl Drop for ColumnLog {
    fn drop(&mut self) {
        self.write_all(SystemTime::now());
        self.folder.wait();
    }
}

impl BatchWriter<Vec<u8>> for ColumnLog {
    fn write(&mut self, lines: &mut Vec<u8>, _: u64) -> u64 {
        self.add_lines(lines, SystemTime::now());
        lines.clear();
        lines.shrink_to(SPARE_BYTES);
        // What is lost is counted where it is.
        0
    }

    fn flush(&mut self) {
        self.write_all(SystemTime::now());
    }

    fn rest(&mut self) -> Option<Duration> {
        Some(RecordingSink::rest(self, SystemTime::now()))
    }
}

impl RecordingSink for ColumnLog {
    fn append(&mut self, lines: &[u8], now: SystemTime) -> io::Result<()> {
        self.add_lines(lines, now);
        Ok(())
    }

    fn rest(&mut self, now: SystemTime) -> Duration {
        self.write_due(now).min(self.folder.rest(now))
    }

    fn most(&self) -> usize {
        MAX_REVIEW_BYTES
    }

    fn flush(&mut self, now: SystemTime) {
        self.write_all(now);
    }
}

// The folder.

/// What a file takes at least: a folder of very small files is bounded too.
const MIN_FILE_BYTES: u64 = 512;

/// Into how many parts bytes and age are divided: so much is removed at once, and so often age is looked at.
const PARTS: u32 = 16;

/// After how long a file under a temporary name is one that nobody completes.
const ABANDONED: Duration = Duration::from_secs(3600);

const HOUR: Duration = Duration::from_secs(3600);

/// The folder, of which files of one kind are the own.
#[derive(Debug)]
pub(crate) struct PartitionFolder {
    bounds: FolderBounds,
    kind: RowKind,
    /// What the own files take.
    total: u64,
    /// What was added of it since they are being compared.
    added: u64,
    /// When they were last compared with the bounds.
    read_at: SystemTime,
    /// Compares them now: there may be a million, and lines do not wait for that.
    comparing: Option<JoinHandle<u64>>,
}

/// The date and the hour, as folders name them; in the order of time.
type HourFolder = (String, String);

/// A file that may be removed.
struct OldFile {
    written: SystemTime,
    path: PathBuf,
    bytes: u64,
}

// === impl PartitionFolder ===

impl PartitionFolder {
    /// Makes the folder if it does not exist, for its owner alone, and has what is beyond the bounds removed,
    /// without waiting for that: a reload does not.
    ///
    /// # Errors
    ///
    /// The folder cannot be made or read.
    pub(crate) fn open(bounds: &FolderBounds, kind: RowKind, now: SystemTime) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&bounds.folder)?;
        fs::read_dir(&bounds.folder)?;
        let mut folder = Self {
            total: 0,
            added: 0,
            bounds: bounds.clone(),
            kind,
            read_at: now,
            comparing: None,
        };
        folder.compare(now);
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.bounds.folder
    }

    /// Takes note of a file of so many bytes, and has the oldest removed where all take too much. Waits for
    /// those only if they take a sixteenth more than they may.
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

    /// Removes what has become too old. After how long there may be more of that.
    pub(crate) fn rest(&mut self, now: SystemTime) -> Duration {
        let pause = self.bounds.max_age / PARTS;
        let since = now.duration_since(self.read_at).unwrap_or(pause);
        if since < pause {
            return pause - since;
        }
        self.compare(now);
        pause
    }

    /// Waits until the files are compared with the bounds, if they are being compared.
    pub(crate) fn wait(&mut self) {
        // A file that was added meanwhile may count twice until the next time, and none is forgotten.
        if let Some(comparing) = self.comparing.take()
            && let Ok(total) = comparing.join()
        {
            self.total = total + self.added;
        }
    }

    /// Whether the files are being compared with the bounds now.
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
        self.read_at = now;
        let (bounds, kind) = (self.bounds.clone(), self.kind);
        let name = "old-files".to_owned();
        let started = thread::Builder::new()
            .name(name)
            .spawn(move || bound(&bounds, kind, now));
        self.comparing = started.ok();
    }
}

/// Removes what is too old, and where the rest takes too much, the oldest until there is some room. What the rest
/// takes. What cannot be read or removed now is tried again the next time.
fn bound(bounds: &FolderBounds, kind: RowKind, now: SystemTime) -> u64 {
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
        // Of an hour, there may be more by now than was counted.
        total = total.saturating_sub(remove_hour(
            (bounds, kind, now),
            &hour,
            total.saturating_sub(target),
        ));
    }
    total
}

/// Removes files of an hour, of all clusters, the oldest first, until they took `wanted` bytes. What they took.
fn remove_hour(
    (bounds, kind, now): (&FolderBounds, RowKind, SystemTime),
    (date, hour): &HourFolder,
    wanted: u64,
) -> u64 {
    // What is behind a link is an archive of somebody.
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
        // Those that are not empty stay.
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

/// The folders whose name begins with `prefix`.
fn folders(folder: &Path, prefix: &'static str) -> impl Iterator<Item = (String, PathBuf)> {
    entries(folder).filter_map(move |entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        (is_folder && name.starts_with(prefix)).then(|| (name, entry.path()))
    })
}

/// The files of `kind`, and those that nobody completes.
fn own_files(folder: &Path, kind: RowKind, now: SystemTime) -> impl Iterator<Item = OldFile> {
    entries(folder).filter_map(move |entry| {
        let name = entry.file_name().into_string().ok()?;
        let rest = name
            .strip_prefix(kind.name())
            .and_then(|rest| rest.strip_prefix('-'));
        let is_own = rest.is_some_and(|rest| rest.ends_with(".parquet"));
        let [begin, end] = TEMPORARY;
        // One that another process removes meanwhile takes no place.
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

/// When an hour is over.
fn end_of((date, hour): &HourFolder) -> Option<SystemTime> {
    let (date, hour) = (date.strip_prefix("date=")?, hour.strip_prefix("hour=")?);
    let begin = Time::parse(&format!("{date}T{hour}:00:00Z"))?.as_microseconds();
    Some(SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(begin).ok()?) + HOUR)
}

#[cfg(test)]
mod tests;
